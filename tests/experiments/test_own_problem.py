"""`wior.compare`: each method tuned alike, judged by seeds that tuned nothing, equal to sweeps by hand."""

import json
import re

import numpy as np
import optax
import pytest

import runs
import wior
from small_comparisons import assert_pictures
from wior.experiments import comparison
from wior.running import block

GRID = {"outer_lr": [0.001, 0.01], "inner_lr": [0.01, 0.05]}
HOW = {"batch_size": (3, 5), "steps": 30, "metrics": runs.metrics, "metric": "size", "progress": False}


def compare(**options):
    given = {"methods": [wior.WiORBO], "orders": ["random-reshuffling"], "grid": GRID, "seeds": 3} | HOW | options
    return wior.compare(given.pop("problem", runs.problem()), *runs.start(), **given)


def test_it_is_what_two_sweeps_by_hand_give():
    found = compare(methods=[wior.WiORBO, wior.baselines.SOBA], orders=["independent", "herding"])
    assert len(found.rows) == len(found.outcomes) == 4
    options = {"batch_size": (3, 5), "steps": 30, "metrics": runs.metrics}
    for row in found.rows:
        kind = {"WiORBO": wior.WiORBO, "SOBA": wior.baselines.SOBA}[row["method"]]
        grid = [{"outer_lr": a, "inner_lr": b, "adjoint_lr": b} for a in GRID["outer_lr"] for b in GRID["inner_lr"]]
        run = lambda grid, seeds, kind=kind, row=row: wior.sweep(
            runs.problem(), kind(0.1, 0.1, 0.1), *runs.start(), grid=grid, seeds=seeds, order=row["order"], **options
        )
        tuned = run(grid, [3, 4]).final("size").mean(-1)
        assert row["setting"] == grid[int(np.argmin(tuned))]
        np.testing.assert_allclose([one["size"] for one in row["grid"]], tuned, rtol=1e-12)
        judged = run([row["setting"]], [0, 1, 2]).final("size")[0]
        np.testing.assert_allclose(row["size"]["seeds"], judged, rtol=1e-12)
        assert row["size"]["mean"] == pytest.approx(judged.mean())
        assert row["size"]["std"] == pytest.approx(judged.std(ddof=1))
    means = [row["size"]["mean"] for row in found.rows]
    assert means == sorted(means)
    assert [one.label for one in found.outcomes] == [f"{row['method']}, {row['order']}" for row in found.rows]


def test_the_largest_may_be_the_best_and_tuning_may_be_shorter():
    found = compare(metric="first", largest=True, tuning_steps=6, tuning_seeds=[7], orders=["incremental", "herding"])
    means = [row["first"]["mean"] for row in found.rows]
    assert means == sorted(means, reverse=True)
    grid = [{"outer_lr": a, "inner_lr": b, "adjoint_lr": b} for a in GRID["outer_lr"] for b in GRID["inner_lr"]]
    short = wior.sweep(
        runs.problem(), wior.WiORBO(0.1, 0.1, 0.1), *runs.start(), grid=grid, seeds=[7], order=found.rows[0]["order"],
        batch_size=(3, 5), steps=6, metrics=runs.metrics, record_every=1,
    ).final("first")[:, 0]  # fmt: skip
    np.testing.assert_allclose([one["first"] for one in found.rows[0]["grid"]], short, rtol=1e-12)
    assert "the largest is the best" in found.protocol
    assert found.protocol.endswith("Each was tuned over 4 settings with seed 7.")


def test_the_table_is_printed():
    found = compare(
        methods=[wior.WiORBO, wior.WiORBO(0.1, 0.1, 0.1, radius=2.0)], orders=[("herding", wior.orders.Independent())]
    )
    lines = repr(found).splitlines()
    assert lines[0].split("  ")[0] == "method"
    assert {row["method"] for row in found.rows} == {"WiORBO", "WiORBO(radius=2)"}
    assert {row["order"] for row in found.rows} == {"herding / independent"}
    for row, line in zip(found.rows, lines[1:3], strict=True):
        assert line.startswith(row["method"])
        assert f"{row['size']['mean']:.4g} ± {row['size']['std']:.2g}" in line
        assert f"outer_lr={row['setting']['outer_lr']:g}" in line
        assert line.endswith("  3")
    assert lines[-1] == (
        "Ranked by size, the smallest is the best: mean ± standard deviation over seeds 0, 1 and 2 after 30 steps in "
        "batches of (3, 5). Each was tuned over 4 settings with seeds 3 and 4."
    )


def test_a_method_that_diverges_is_last_and_said_so():
    grid = {"WiORBO": GRID, "SOBA": {"outer_lr": [1e8, 1e9], "inner_lr": [1e8, 1e9]}}
    found = compare(methods=[wior.baselines.SOBA, wior.WiORBO], grid=grid)
    assert [row["method"] for row in found.rows] == ["WiORBO", "SOBA"]
    assert [row["diverged"] for row in found.rows] == [False, True]
    assert repr(found).splitlines()[2].split()[2] == "diverged"
    found.plot()
    assert json.loads(json.dumps(found.rows)) == found.rows


def test_a_frame_has_a_row_for_each():
    pandas = pytest.importorskip("pandas")
    found = compare(orders=["incremental", "herding"])
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["order"].tolist() == [row["order"] for row in found.rows]
    assert frame["size mean"].tolist() == [row["size"]["mean"] for row in found.rows]
    assert frame["adjoint_lr"].tolist() == [row["setting"]["adjoint_lr"] for row in found.rows]


def test_the_figure_has_error_bars():
    found = compare(orders=["incremental", "herding"])
    ends, curves = found.plot().axes
    bars = ends.containers
    assert [bar.lines[0].get_xdata()[0] for bar in bars] == [row["size"]["mean"] for row in found.rows]
    for bar, row in zip(bars, found.rows, strict=True):
        (segments,) = bar.lines[2]
        low, high = segments.get_segments()[0][:, 0]
        assert (low, high) == pytest.approx(
            (row["size"]["mean"] - row["size"]["std"], row["size"]["mean"] + row["size"]["std"])
        )
    assert [label.get_text() for label in ends.get_yticklabels()] == [one.label for one in found.outcomes]
    for line, one in zip(curves.get_lines(), found.outcomes, strict=True):
        np.testing.assert_allclose(line.get_ydata(), one.history["size"].mean(0))


def test_it_is_saved_whole(tmp_path):
    found = compare()
    found.save(tmp_path / "out")
    found.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.json", "comparison.pdf", "comparison.png", "history.jsonl",
    ]  # fmt: skip
    assert_pictures(tmp_path / "out", "comparison")
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"] == found.rows
    lines = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert [line["size"] for line in lines if line["seed"] == 1] == found.outcomes[0].history["size"][1].tolist()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="was left as it is"):
        found.save(tmp_path / "out")


def test_progress_is_shown(capsys, monkeypatch):
    monkeypatch.setattr("wior.running.progress.SECONDS_BETWEEN_LINES", 0.0)
    compare(orders=["incremental", "herding"], progress=True)
    shown = capsys.readouterr().err
    for place in ("compare 1/2: WiORBO, incremental", "compare 2/2: WiORBO, herding"):
        assert place in shown
    shares = [float(share) for share in re.findall(r": (\d+)% in", shown)]
    assert shares == sorted(shares)
    assert {0.0, 25.0, 50.0, 75.0, 100.0} <= set(shares)


def test_what_was_interrupted_resumes(tmp_path, monkeypatch):
    options = {"orders": ["incremental", "herding"], "checkpoint": tmp_path / "saves"}
    whole, swept = compare(orders=["incremental", "herding"]), []
    original = comparison.sweep

    def sweep(*args, **more):
        if len(swept) == 3:  # the second of the second method
            raise KeyboardInterrupt
        swept.append(more["seeds"])
        return original(*args, **more)

    monkeypatch.setattr(comparison, "sweep", sweep)
    with pytest.raises(KeyboardInterrupt):
        compare(**options)
    monkeypatch.setattr(comparison, "sweep", original)
    steps = []
    advance = block.many_runs
    monkeypatch.setattr(block, "many_runs", lambda *args: steps.append(int(args[-1])) or advance(*args))
    found = compare(**options)
    assert sum(steps) == 30  # of one sweep
    strip = lambda rows: [{name: row[name] for name in row if "seconds" not in name} for row in rows]
    assert strip(found.rows) == strip(whole.rows)


def test_a_task_still_tunes_by_the_seeds_that_judge():
    """`wior compare` and the figures: their numbers have stayed what they were."""
    assert comparison.How(5).tuning_seeds == ()


BAD = {
    "no methods": ({"methods": []}, TypeError, "methods must be a list of methods, such as [wior.WiORBO]; got []"),
    "one method": ({"methods": wior.WiORBO}, TypeError, "methods must be a list of methods"),
    "a name": ({"methods": ["WiORBO"]}, TypeError, "algorithm must be one of wior's algorithms"),
    "a method twice": ({"methods": [wior.WiORBO, wior.WiORBO]}, ValueError, "methods has WiORBO twice"),
    "for another class": ({"methods": [wior.WiORMinimax]}, TypeError, "WiORMinimax solves Minimax problems; the problem given is Bilevel"),
    "one order": ({"orders": "herding"}, TypeError, "orders must be a list of orders or of their names, such as ['herding']; got 'herding'"),
    "an unknown order": ({"orders": ["sorted"]}, ValueError, "orders must be one of 'independent'"),
    "no grid": ({"grid": {}}, TypeError, "grid must map outer_lr and inner_lr to lists of values, got {}"),
    "half a grid": ({"grid": {"outer_lr": [1.0]}}, ValueError, "grid must have outer_lr and inner_lr, and may have adjoint_lr for all other step sizes; it has outer_lr"),
    "a rate of zero": ({"grid": GRID | {"inner_lr": [0.0]}}, ValueError, "grid['inner_lr'] must be a positive finite number, got 0.0"),
    "an empty list": ({"grid": GRID | {"inner_lr": []}}, ValueError, "grid['inner_lr'] must be a list of at least one value, got []"),
    "no grid for one": ({"grid": {"SOBA": GRID}}, ValueError, "grid has no values for WiORBO; it has SOBA"),
    "unequal tuning": (
        {"grid": GRID | {"adjoint_lr": [0.1, 0.2]}, "methods": [wior.WiORBO, wior.baselines.AIDCG]}, ValueError,
        "grid makes settings of unequal numbers (WiORBO 8, AIDCG 4), which would tune some better than others",
    ),
    "seeds in both": ({"seeds": [1, 2, 3], "tuning_seeds": [3, 4]}, ValueError, "tuning_seeds must be other seeds than those that judge; 3 in both"),
    "an unknown metric": ({"metric": "loss"}, ValueError, "metric must name one of what metrics returns, ['size', 'first']; got 'loss'"),
    "no steps": ({"steps": 0}, ValueError, "steps must be a positive integer, got 0"),
    "no problem": ({"problem": 3}, TypeError, "problem must be one of wior's problems, got 3 of type int"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_named_before_anything_is_compiled(options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        compare(**options)


def test_streamed_data_are_refused_with_the_reason():
    data = runs.problem()
    streamed = wior.Bilevel(
        runs.outer, runs.inner, {k: wior.Streamed(np.asarray(v)) for k, v in data.outer_data.items()}, data.inner_data
    )
    with pytest.raises(
        ValueError, match="the outer data are streamed, and every seed reads them in an order of its own"
    ):
        compare(problem=streamed)


def test_what_diverges_to_the_end_of_float64_leaves_a_picture_of_the_others(tmp_path):
    grid = {"WiORBO": GRID, "SOBA": {"outer_lr": [1e8, 1e9], "inner_lr": [1e8, 1e9]}}
    found = compare(methods=[wior.WiORBO, wior.baselines.SOBA], grid=grid)
    kept, lost = (one.history["size"] for one in found.outcomes)
    lost[:] = np.geomspace(1.0, 1e307, lost.shape[1])
    found.save(tmp_path / "comparison")  # draws it, and matplotlib cannot draw 1e300
    low, high = found.plot().axes[1].get_ylim()
    assert low < kept.min() < kept.max() < high < 2 * kept.max()


def test_an_optimizer_and_a_schedule_are_kept_and_not_tuned():
    adam, slow = wior.WiORBO(optax.adam(0.1), 1.0, 1.0), wior.WiORBO(optax.adam(1e-3), 1.0, 1.0)
    falling = wior.WiORBO(lambda step: 0.1 / (1 + step), 1.0, 1.0)
    names = ["WiORBO(outer_lr=optimizer)", "WiORBO(outer_lr=optimizer) 2", "WiORBO(outer_lr=schedule)"]
    grid = {"outer_lr": [0.01], "inner_lr": [0.01, 0.05]}
    found = compare(methods=[adam, slow, falling], grid={**dict.fromkeys(names, grid)})
    rows = {row["method"]: row for row in found.rows}
    assert set(rows) == set(names)
    for name, method in zip(names, (adam, slow, falling), strict=True):
        assert set(rows[name]["setting"]) == {"inner_lr", "adjoint_lr"}
        by_hand = wior.sweep(
            runs.problem(), method, *runs.start(), grid=[rows[name]["setting"]], seeds=3, batch_size=(3, 5), steps=30,
            metrics=runs.metrics, order="random-reshuffling",
        )  # fmt: skip
        np.testing.assert_allclose(rows[name]["size"]["seeds"], by_hand.final("size")[0], rtol=1e-12)
    every = wior.WiORBO(optax.adam(0.1), optax.sgd(0.05), 0.1)
    assert compare(methods=[every], grid={"outer_lr": [1.0], "inner_lr": [0.05]}).rows[0]["setting"] == {
        "adjoint_lr": 0.05
    }
    with pytest.raises(ValueError, match=re.escape("grid makes settings of unequal numbers (WiORBO 4, WiORBO(outer_")):
        compare(methods=[wior.WiORBO, adam])


def test_orders_are_judged_before_anything_runs():
    with pytest.raises(ValueError, match="orders has herding twice"):
        compare(orders=["herding", wior.orders.Herding()])
    with pytest.raises(ValueError, match=re.escape("orders must be one value or a pair (outer, inner), got 3 values")):
        compare(orders=["herding", ("herding",) * 3], steps=10**9)
