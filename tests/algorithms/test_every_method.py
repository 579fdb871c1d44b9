"""What holds for every method alike: it checks its parameters, is swept, is resumed, and takes PerExample rows."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import problems
import wior
from methods import CASE_OF, CLASSES, made
from problems import flat
from wior.orders import Herding, RandomReshuffling
from wior.saving.checkpoint import describe_algorithm

FIELDS = [(kind, field.name) for kind in CLASSES for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=[f"{kind.__name__}-{name}" for kind, name in FIELDS])
def test_a_parameter_out_of_range_names_itself(kind, name):
    may_be_none = ("checkpoints", "large_batch", "inner_steps", "period", "probability")
    absent = () if name == "damping" else (0 if name in may_be_none else None,)  # which may be None and 0
    for wrong in (-1, "much", float("nan"), *absent):
        with pytest.raises((TypeError, ValueError), match=rf"^{name} must be .*{'None' if wrong is None else wrong}"):
            made(kind, **{name: wrong})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_method_is_a_tree_of_its_numbers(kind):
    algorithm = made(kind)
    leaves, structure = jax.tree.flatten(algorithm)
    assert jax.tree.unflatten(structure, leaves) == algorithm
    assert all(isinstance(leaf, (int, float)) for leaf in leaves)
    assert describe_algorithm(algorithm)["name"] == kind.__name__
    assert kind.paper
    assert f"`{kind.solves.__name__}` problems" in kind.__doc__


def run(kind, solver=wior.solve, steps=9, **options):
    problem, _, x, y, batch_size = CASE_OF[kind.solves]()
    if kind.fixed_batches:
        batch_size = (2, 3)
    return solver(problem, made(kind), x, y, batch_size=batch_size, steps=steps, record_every=9, **options)


# Those whose state, length or memory is of a kind of its own; the others follow in `make slow`.
FIRST = ("SABA",)
in_turn = [
    pytest.param(kind, id=kind.__name__, marks=[] if kind.__name__ in FIRST else [pytest.mark.slow]) for kind in CLASSES
]


@pytest.mark.parametrize("kind", in_turn)
def test_a_sweep_is_its_runs(kind):
    rates, seeds = [0.02, 0.05], [0, 3]
    together = run(kind, wior.sweep, grid={"outer_lr": rates}, seeds=seeds)
    problem, _, x, y, batch_size = CASE_OF[kind.solves]()
    if kind.fixed_batches:
        batch_size = (2, 3)
    for i, j in ((0, 1), (1, 0)):
        one = wior.solve(
            problem,
            made(kind, outer_lr=rates[i]),
            x,
            y,
            batch_size=batch_size,
            steps=9,
            record_every=9,
            seed=seeds[j],
        )
        swept = jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], (together.x, together.y))
        np.testing.assert_allclose(flat(swept), flat((one.x, one.y)), rtol=1e-9, atol=1e-12)
        calls = together.history["backward_passes"]
        assert (calls if calls.ndim == 1 else calls[i, j])[-1] == one.history["backward_passes"][-1]


@pytest.mark.parametrize("kind", in_turn)
def test_a_run_resumes_bit_for_bit(kind, tmp_path):
    options = {"order": Herding() if kind.__name__ == "VRBO" else RandomReshuffling(), "seed": 2}
    whole = run(kind, **options)
    run(kind, steps=4, checkpoint=tmp_path / "run", **options)
    resumed = run(kind, checkpoint=tmp_path / "run", **options)
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.history["hessian_products"][-1], resumed.history["hessian_products"][-1])


def test_seeds_draw_other_lengths_coins_and_levels():
    for kind in (wior.baselines.SUSTAIN, wior.baselines.SPABA, wior.baselines.RTMLMC):
        passes = {float(run(kind, seed=seed).history["inner_gradients"][-1]) for seed in range(4)}
        products = {float(run(kind, seed=seed).history["hessian_products"][-1]) for seed in range(4)}
        assert len(passes) > 1 or len(products) > 1


def test_every_required_parameter_is_a_step_size():
    """So that a method may be tried with a grid of step sizes and nothing else."""
    for kind in CLASSES:
        for field in dataclasses.fields(kind):
            assert (field.default is dataclasses.MISSING) == field.name.endswith("_lr"), (kind, field.name)


@pytest.mark.parametrize(
    ("kind", "name", "given"),
    [
        ("SRBA", "period", 3),
        pytest.param("VRBO", "period", 1, marks=pytest.mark.slow),
        pytest.param("SPABA", "probability", 3 / (3 + 9), marks=pytest.mark.slow),
    ],
)
def test_what_is_left_to_the_data_is_the_rule_of_the_paper(kind, name, given):
    """Nine inner examples in batches of three: a pass is three steps, or one of VRBO's that takes three batches."""
    problem, _, x, y, _ = problems.bilevel()
    kind, options = getattr(wior.baselines, kind), {"batch_size": (2, 3), "steps": 9, "record_every": 9}
    by_rule = wior.solve(problem, made(kind, **{name: None}), x, y, **options)
    as_given = wior.solve(problem, made(kind, **{name: given}), x, y, **options)
    np.testing.assert_allclose(flat(by_rule.state), flat(as_given.state), rtol=1e-12)
    assert by_rule.history["inner_gradients"][-1] == as_given.history["inner_gradients"][-1]


COPIES = r"""
import re, jax.numpy as jnp, numpy as np, jax, wior
from wior.running import block
from wior.running.plan import start_at, stream_keys
from wior.running.arguments import Arguments
from wior.running.setup import prepare, run_key
from methods import CLASSES, made

n, rng = 300_007, np.random.default_rng(0)
rows = lambda n: {"features": rng.random((n, 4), np.float32), "target": rng.random(n, np.float32)}
loss = lambda y, b: (b["features"] @ y - b["target"]) ** 2
outer = lambda x, y, b: jnp.mean(loss(y, b)) + x["ridge"] ** 2
inner = lambda x, y, b: jnp.mean(jax.nn.sigmoid(x["rows"]) * loss(y, b)) + jnp.exp(x["ridge"]) * jnp.sum(y * y)
problem = wior.Bilevel(outer, inner, rows(200), rows(n))
x, y = {"rows": wior.PerExample(jnp.zeros(n)), "ridge": jnp.zeros(())}, jnp.zeros(4)
for kind in CLASSES:
    if kind.solves is wior.Bilevel:
        batch = (4, 1) if kind.fixed_batches else (4, 5)
        setup = prepare(problem, made(kind), x, y, Arguments(wior.orders.RandomReshuffling(), batch, steps=9, record_every=9))
        keys = stream_keys(setup.plan, run_key(0))
        carry = block.begin(setup.plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
        arguments = (setup.problem, setup.algorithm, carry, keys, start_at(setup.plan, 0), np.int32(1))
        text = block.one_run.lower(setup.plan, *arguments).compile().as_text()
        assert not re.search(r"= f32\[300007\]\S* copy\(", text), kind.__name__
        print(kind.__name__)
"""


@pytest.mark.slow
def test_no_method_copies_the_rows_of_x_in_a_step():
    """In a process of its own, with the compiler as users have it."""
    folder = Path(problems.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", COPIES], capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) == 20
