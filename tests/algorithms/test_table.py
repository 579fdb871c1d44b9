"""The table: every algorithm × every order × every class of problem that it takes."""

import dataclasses

import jax
import numpy as np
import pytest

import problems
import wior
from problems import flat
from twins import BRIEFLY, RATES, WRAPPERS
from wior.instruments.methods import classes
from wior.orders import BY_NAME, Incremental
from wior.running import block
from wior.running.arguments import posed_for

# The table: every algorithm × every order × every class of problem that it takes.

CLASSES = {
    name: problems.CASES[name]()
    for name in (
        "bilevel",
        "minimax",
        "compositional",
        "conditional bilevel, ragged",
        "conditional compositional, ragged",
    )
}
TAUGHT = {"inner_steps": 2, "adjoint_steps": 2, "neumann_terms": 3, "period": 3, "inner_epochs": 2, "levels": 1}


def exported():
    """Every algorithm that the library has, with step sizes for these problems and short inner loops."""
    rates = {"outer_lr": RATES[0], "inner_lr": RATES[1], "adjoint_lr": RATES[2], "neumann_lr": 0.1, "penalized_lr": 0.1}
    for kind in classes():
        names = [field.name for field in dataclasses.fields(kind)]
        yield kind(**{name: value for name, value in (rates | TAUGHT).items() if name in names})


ALGORITHMS = list(exported())
BY_DEFAULT = ("independent", "random-reshuffling", "herding")
BASELINES_BY_DEFAULT = ("herding",)  # which takes the longest way through a block
# one baseline for each part that several share, and those that share none
FIRST = (
    "StocBiO", "MRBO", "SRBA", "F2SA", "Reverse", "SABA", "SPABA", "VRBO", "DLSGD", "SCGD", "AGDA"
)  # fmt: skip


def takes(algorithm, problem):
    try:
        posed_for(problem, algorithm)
    except TypeError:
        return False
    return True


def row(algorithm, order, case):
    """One run of the table. Other losses in the same programs, and further orders, wait for `make slow`."""
    restated = not isinstance(CLASSES[case].problem, algorithm.solves)
    baseline = type(algorithm).__module__.startswith("wior.baselines")
    waits = restated or order not in (BASELINES_BY_DEFAULT if baseline else BY_DEFAULT)
    waits |= baseline and type(algorithm).__name__ not in FIRST
    name = f"{type(algorithm).__name__}-{order}-{case}"
    return pytest.param(algorithm, order, case, id=name, marks=[pytest.mark.slow] if waits else [])


TABLE = [
    row(algorithm, order, case)
    for algorithm in ALGORITHMS
    for case in CLASSES
    if takes(algorithm, CLASSES[case].problem)
    for order in BY_NAME
]


def test_the_table_is_complete():
    """20 bilevel methods on three classes, 3 conditional ones on two, 3 compositional, 3 minimax and 2 more on their
    own.
    """
    assert len(TABLE) == (20 * 3 + 3 * 2 + 3 + 3 + 2) * len(BY_NAME)
    assert {type(case.problem) for case in CLASSES.values()} == set(WRAPPERS)
    assert {*BY_DEFAULT, *BASELINES_BY_DEFAULT} <= set(BY_NAME)


@pytest.mark.parametrize(("algorithm", "order", "case"), TABLE)
def test_every_algorithm_runs_in_every_order_on_every_problem_it_takes(algorithm, order, case):
    problem, _, x, y, batch_size = CLASSES[case]
    if algorithm.fixed_batches:  # which must divide the data
        batch_size = (2, 3) if isinstance(batch_size, tuple) else 3
    programs = block.one_run._cache_size()
    result = wior.solve(problem, algorithm, x, y, order=BY_NAME[order], batch_size=batch_size, **BRIEFLY)
    again = wior.solve(problem, algorithm, x, y, order=BY_NAME[order], batch_size=batch_size, **BRIEFLY | {"steps": 12})
    assert again.steps == 12
    more = wior.solve(
        problem, algorithm, state=result.state, order=BY_NAME[order], batch_size=batch_size,
        **BRIEFLY | {"steps": 12 - result.steps},
    )  # fmt: skip
    np.testing.assert_array_equal(flat(more.state), flat(again.state))  # two parts are the whole
    assert (
        block.one_run._cache_size() - programs <= 1
    )  # a remainder, a second block and a second run are the same program
    assert np.isfinite(flat((result.x, result.y))).all()
    for before, after in zip(jax.tree.leaves(x), jax.tree.leaves(result.x), strict=True):
        assert np.abs(after - before).min() > 1e-6


@pytest.mark.parametrize("name", sorted(set(problems.CASES) - set(CLASSES)))
def test_every_test_problem_runs(name):
    problem, algorithm, x, y, batch_size = problems.CASES[name]()
    result = wior.solve(problem, algorithm, x, y, order=Incremental(), batch_size=batch_size, **BRIEFLY)
    assert np.isfinite(flat(result.state)).all()
    assert np.abs(flat(result.x) - flat(x)).min() > 1e-6
