"""The table of methods: numbers that are measured against numbers worked out by hand."""

import io
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import wior
from runs import run_main
from wior import algorithms, baselines, cli, oracle
from wior.instruments import listing
from wior.instruments.methods import BATCHES, REQUIRED, STEPS
from wior.problems import CLASSES
from wior.tasks.quadratic import quadratic, quadratic_conditional

N = BATCHES
EXPORTED = sorted({*algorithms.__all__, *baselines.__all__} - {"Algorithm"})
PROBLEMS = ("Bilevel", "ConditionalBilevel", "Compositional", "ConditionalCompositional", "Minimax")


@pytest.fixture(scope="module")
def table():
    return {method.name: method for method in wior.methods()}


def test_every_exported_method_is_there_once():
    assert len(EXPORTED) > 25
    found = wior.methods()
    assert sorted(method.name for method in found) == EXPORTED
    for method in found:
        assert method.algorithm in (getattr(algorithms, method.name, None), getattr(baselines, method.name, None))
        assert method.paper
        assert method.summary.count(". ") == 0
        assert method.summary.endswith(".")


def test_it_is_measured_once_and_the_list_is_the_callers_own():
    first, again = wior.methods(), wior.methods()
    assert first is not again
    assert all(a is b for a, b in zip(first, again, strict=True))


K, Q, T = 10, 4, 1  # default inner steps, Neumann terms, inner steps of F²SA


@pytest.mark.parametrize(
    ("name", "calls"),  # ∇f, ∇g, Jacobian and Hessian products, passes
    {
        "WiORBO": (1, 1, 1, 1, 3),
        "WiRBO": (2, 1, 1, 1, 7),
        "SOBA": (1, 1, 1, 1, 3),
        "SABA": (1, 1, 1, 1, 3),
        "FSLA": (2, 1, 2, 1, 3 + 1 + 2),  # D, and D_x at the iterate before
        "StocBiO": (1, K, 1, Q - 1, K + 1 + 2 * (Q - 1) + 2),
        "AmIGO": (1, K, 1, K, K + 1 + 2 * K + 2),
        "AIDCG": (
            1,
            K,
            1,
            K + 1,
            K + 1 + 1 + (K + 1) + 1,
        ),  # one graph for all products; one product for the first residual
        "Reverse": (1, K, K, K, K + 1 + 2 * K),
        "F2SA": (T + 1, 2 * T + 2, 0, 0, 3 * T + 3),
        "MRBO": (2, 2, 2, 2 * (Q - 1), 2 * (1 + 1 + 2 * (Q - 1) + 1)),
        "WiORComp": (1, 1, 1, 0, 2),
        "BSGD": (1, 1, 1, 0, 2),
        "WiORMinimax": (1, 0, 0, 0, 1),
        "AGDA": (2, 0, 0, 0, 2),
        "WiORCBO": (N + 1, N, N, N, 3 * N + 1 + 2),  # one pass over the inner set, then the whole of it
        "WiORCComp": (N, N, N, 0, N + 1),
    }.items(),
)
def test_calls_that_are_the_same_in_every_step(table, name, calls):
    method = table[name]
    assert list(method.calls) == list(oracle.CALLS)
    assert tuple(method.calls.values()) == calls
    assert method.bounds == {name: (number, number) for name, number in zip(oracle.CALLS, calls, strict=True)}
    assert not method.varies


def varying(table, name):
    assert table[name].varies
    return table[name].calls, table[name].bounds


@pytest.mark.parametrize(("name", "times"), [("TTSA", 1), ("BSA", 1), ("DLSGD", 1), ("SUSTAIN", 2), ("RTMLMC", 3)])
def test_neumann_products_of_random_length(table, name, times):
    """p is uniform in 0 … Q − 1: mean (Q − 1)/2, variance (Q² − 1)/12. The measured mean is within five deviations."""
    calls, bounds = varying(table, name)
    within = 5 * times * math.sqrt((Q**2 - 1) / 12 / STEPS)
    assert calls["hessian_products"] == pytest.approx(times * (Q - 1) / 2, abs=within)
    assert within < 0.1
    assert bounds["hessian_products"] == (0, times * (Q - 1))


def test_inner_loops_that_grow(table):
    calls, bounds = varying(table, "BSA")
    exact = sum(min(K, math.isqrt(k) + 1) for k in range(STEPS)) / STEPS  # ⌈√(k + 1)⌉ = ⌊√k⌋ + 1
    assert calls["inner_gradients"] == pytest.approx(exact, abs=1e-3)
    assert bounds["inner_gradients"] == (1, K)


def test_random_levels(table):
    calls, bounds = varying(table, "RTMLMC")
    levels = range(1, 7)
    weights = [0.5**k / sum(0.5**j for j in levels) for k in levels]
    steps = [2 ** (k + 2) - 1 for k in levels]  # of EpochSGD(k + 1)
    mean = sum(w * s for w, s in zip(weights, steps, strict=True))
    variance = sum(w * (s - mean) ** 2 for w, s in zip(weights, steps, strict=True))
    assert calls["inner_gradients"] == pytest.approx(mean, abs=5 * math.sqrt(variance / STEPS))
    assert bounds["inner_gradients"] == (steps[0], steps[-1])


def test_full_data_every_period(table):
    calls, bounds = varying(table, "SRBA")
    period = 64  # D on a batch in every step; all data in one step of a period, D at the iterate before in the others
    assert STEPS % period == 0
    for name in oracle.CALLS[:-1]:
        assert calls[name] == 1 + (N + (period - 1)) / period
        assert bounds[name] == (2, N + 1)
    assert calls["backward_passes"] == 6


def test_large_batches_within_an_inner_loop(table):
    calls, _ = varying(table, "VRBO")
    batches, period = 4, 16  # each batch at two points
    for name in oracle.CALLS[:3]:
        assert calls[name] == 2 * batches + N / period
    assert calls["hessian_products"] == (2 * batches + N / period) * (Q - 1)


def test_large_batches_by_a_coin(table):
    calls, bounds = varying(table, "SPABA")
    p = 1 / 64
    mean = 1 + p * N + (1 - p)
    deviation = (N - 1) * math.sqrt(p * (1 - p) / STEPS)
    for name in oracle.CALLS[:-1]:
        assert calls[name] == pytest.approx(mean, abs=5 * deviation)
        assert bounds[name] == (2, N + 1)


@pytest.mark.parametrize("name", ["StocBiO", "WiORCBO"])
def test_a_run_counts_the_same(table, name):
    """In examples: batches of 2 and 4, and for a conditional method an inner set of as many batches as in the table."""
    method = table[name]
    conditional = method.solves[0] == "ConditionalBilevel"
    problem = (quadratic_conditional(m=4, n=4 * N) if conditional else quadratic(m=8, n=12)).problem
    required = [1e-3 for default in method.parameters.values() if default == REQUIRED]
    start = np.full(3, 0.1), np.full(5, 0.1)
    result = wior.solve(problem, method.algorithm(*required), *start, batch_size=(2, 4), steps=3)
    outer, inner = (2, 2 * 4) if conditional else (2, 4)
    for call, number in method.calls.items():
        size = {"outer_gradients": outer, "backward_passes": 1}.get(call, inner)
        assert result.history[call][-1] == 3 * size * number


@pytest.mark.parametrize(
    ("name", "memory"),
    {
        "WiORBO": "x + 2 y",
        "SOBA": "x + 2 y",
        "StocBiO": "x + y",
        "NASA": "2 x + y",
        "FSLA": "3 x + 4 y",  # x, y, u, STORM's estimate, and x, y, u before
        "SRBA": "3 x + 6 y",
        # x, y, u and the sums of both tables; their entries
        "SABA": "3 x + 5 y + (x + y) an outer batch + (x + 2 y) an inner batch",
        "WiORMinimax": "x + y",
        "RTMLMC": "x + y",
    }.items(),
)
def test_memory(table, name, memory):
    assert table[name].memory == memory


def test_problems_parameters_and_batches(table):
    assert table["StocBiO"].solves == ("Bilevel", "Compositional", "Minimax")
    assert table["RTMLMC"].solves == ("ConditionalBilevel", "ConditionalCompositional")
    assert table["AGDA"].solves == ("Minimax",)
    assert {method.solves[0] for method in table.values()} == set(PROBLEMS)
    assert table["StocBiO"].parameters == {
        "outer_lr": REQUIRED,
        "inner_lr": REQUIRED,
        "neumann_lr": REQUIRED,
        "inner_steps": 10,
        "neumann_terms": 4,
        "separate_streams": False,
        "damping": None,
    }
    assert table["WiORBO"].parameters["radius"] == math.inf
    batches = {name: table[name].batches for name in ("WiORBO", "WiRBO", "StocBiO", "WiORMinimax", "WiORCBO", "DLSGD")}
    assert batches == {
        "WiORBO": (1, 1),
        "WiRBO": (2, 3),
        "StocBiO": (1, K + Q - 1 + 1),
        "WiORMinimax": (1, 0),
        "WiORCBO": (1, N),
        "DLSGD": (1, 15 + Q),
    }


def test_the_import_stays_light():
    heavy = "optax", "orbax", "matplotlib", "typer", "rich", "sklearn"
    program = f"import sys, wior; sys.exit(', '.join({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""


# the command


def test_the_list(monkeypatch, capsys):
    code, out, err = run_main(monkeypatch, capsys, "list")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert all(names.count(name) == 1 for name in EXPORTED)
    assert "Bilevel problems, and Compositional and Minimax problems restated" in out
    assert f"{N} batches" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    "rows", [(listing.costs, listing.COSTS), (listing.parameters, listing.PARAMETERS)], ids=["costs", "parameters"]
)
@pytest.mark.parametrize("width", [80, 100, 160])
def test_nothing_is_cut_off_in_a_terminal(table, rows, width):
    console = Console(width=width, file=io.StringIO())
    console.print(listing.tables(list(table.values()), *rows, width), highlight=False)
    out = console.file.getvalue()
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    words = set(out.replace(",", " ").split())
    for method in table.values():
        assert method.name in words
        if rows[0] is listing.costs:
            assert method.paper.split(", ")[0].split()[0] in words
            assert method.paper.split()[-1] in words
        else:
            assert {name for name, default in method.parameters.items() if default == REQUIRED} <= words


def test_the_list_as_json(monkeypatch, capsys, table):
    code, out, err = run_main(monkeypatch, capsys, "list", "--json")
    assert (code, err) == (0, "")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    found = {row["name"]: row for row in json.loads(out, parse_constant=refuse)}
    assert sorted(found) == EXPORTED
    for name, row in found.items():
        assert row["calls"] == table[name].calls
        assert row["varies"] == table[name].varies
        assert tuple(row["solves"]) == table[name].solves
        assert list(row["parameters"]) == list(table[name].parameters)
    assert found["WiORBO"]["parameters"]["radius"] == "inf"
    assert found["SOBA"]["measured_on"] == {"batches": N, "steps": STEPS}


def test_every_problem_class_can_be_asked_for(monkeypatch, capsys, table):
    assert {kind.__name__ for kind in CLASSES} == set(PROBLEMS)
    assert [one.value for one in cli.ProblemClass] == [kind.name for kind in CLASSES]
    for one, kind in zip(cli.ProblemClass, CLASSES, strict=True):
        _, out, _ = run_main(monkeypatch, capsys, "list", "--json", "--problem", one.value)
        rows = json.loads(out)
        assert [row["name"] for row in rows if row["solves"][0] == kind.__name__]
        assert {row["name"] for row in rows} == {n for n, method in table.items() if kind.__name__ in method.solves}
        made_for = [row["solves"][0] == kind.__name__ for row in rows]
        assert made_for == sorted(made_for, reverse=True)


def test_the_list_in_markdown(monkeypatch, capsys):
    for arguments, columns in (([], 10), (["--parameters"], 3)):
        code, out, err = run_main(monkeypatch, capsys, "list", "--markdown", *arguments)
        assert (code, err) == (0, "")
        lines = [line for line in out.splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {columns + 1}
        assert sorted(line.split(" | ")[0].removeprefix("| ") for line in lines[2:]) == EXPORTED
    assert "inner_steps=10" in out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--problem", "trilevel"], ("trilevel", *(one.value for one in cli.ProblemClass))),
        (["--json", "--markdown"], ("--json", "--markdown")),
    ],
)
def test_bad_usage_is_one_line(monkeypatch, capsys, arguments, parts):
    code, out, err = run_main(monkeypatch, capsys, "list", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("wior: ")
    assert err.count("\n") == 1
    assert all(part in err for part in parts)
