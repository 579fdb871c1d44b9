"""The registry of test problems, and what is said of bad input: the argument, its value, and what would be right."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import problems
import wior
from wior.baselines import WiRBO
from wior.problems import CLASSES
from wior.running import loop

ONES = np.ones((4, 2))  # four examples
SETS = np.ones((4, 3, 2))  # each with three inner ones
X, Y = np.ones(2), np.ones(2)
BILEVEL, MINIMAX, COMPOSITIONAL = wior.WiORBO(0.1, 0.1, 0.1), wior.WiORMinimax(0.1, 0.1), wior.WiORComp(0.1, 0.1, 0.1)
CBO, CCOMP = wior.WiORCBO(0.1, 0.1, 0.1), wior.WiORCComp(0.1, 0.1, 0.1)


def loss(x, y, batch):
    return jnp.mean(batch @ x) + jnp.mean(batch @ y) + y @ y


def loss_of_y(y, batch):
    return jnp.mean(batch @ y)


def map_of_x(x, batch):
    return jnp.mean(batch, 0) * x


# The registry.


def test_the_registry_holds_every_class_of_problem():
    classes = {type(build().problem) for build in problems.CASES.values()}
    assert classes == set(CLASSES)
    assert len(classes) == 5


@pytest.mark.parametrize("name", problems.CASES)
def test_the_problems_of_the_registry_are_sound_and_unsymmetric(name):
    problem, algorithm, x, y, _ = problems.CASES[name]()
    problem.check(x, y)
    assert isinstance(problem, algorithm.solves)
    sizes = problem.sizes()
    assert len(set(sizes.values())) == len(sizes)
    assert len(problems.flat(x)) != len(problems.flat(y))
    assert jax.tree.structure(x) != jax.tree.structure(y)


def test_the_registry_holds_every_feature():
    cases = [build() for build in problems.CASES.values()]
    assert any(wior.problems.per_example.has_rows(case.x0) for case in cases)
    assert any(getattr(case.problem, "counts", None) is not None for case in cases)
    assert any(getattr(case.problem, "represent", None) is not None for case in cases)
    assert any(getattr(case.problem, "represent_outer", None) is not None for case in cases)


# Data and losses, when a problem is made.

UNEQUAL = {"a": np.ones((4, 2)), "b": np.ones(3)}
MADE = {
    "outer data that disagree": (
        lambda: wior.Bilevel(loss, loss, UNEQUAL, ONES),
        ValueError,
        ["outer_data['a'] has 4", "outer_data['b'] has 3", "must have one length"],
    ),
    "inner data that disagree": (
        lambda: wior.Compositional(loss_of_y, map_of_x, ONES, UNEQUAL),
        ValueError,
        ["inner_data['a'] has 4", "inner_data['b'] has 3", "must have one length"],
    ),
    "data that disagree": (
        lambda: wior.Minimax(loss, UNEQUAL),
        ValueError,
        ["data['a'] has 4", "data['b'] has 3", "must have one length"],
    ),
    "inner sets that disagree": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, {"a": SETS, "b": np.ones((4, 2))}),
        ValueError,
        ["inner_data", "['a'] has 3", "['b'] has 2", "second axis"],
    ),
    "inner sets for fewer outer examples": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, np.ones((3, 3, 2))),
        ValueError,
        ["inner_data", "each of the 4 rows of outer_data", "length 3"],
    ),
    "inner sets without a second axis": (
        lambda: wior.ConditionalCompositional(loss_of_y, map_of_x, ONES, np.ones(4)),
        ValueError,
        ["inner_data", "(4,)", "(outer examples, inner examples, ...)"],
    ),
    "data without rows": (
        lambda: wior.Minimax(loss, np.ones((0, 2))),
        ValueError,
        ["data is empty", "length 0", "at least one example"],
    ),
    "inner sets without rows": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, np.ones((4, 0, 2))),
        ValueError,
        ["inner_data", "is empty", "length 0"],
    ),
    "data without arrays": (
        lambda: wior.Bilevel(loss, loss, {}, ONES),
        ValueError,
        ["outer_data has no arrays: {}", "one row for each example"],
    ),
    "a number in the data": (
        lambda: wior.Bilevel(loss, loss, ONES, {"rows": ONES, "number": 3.5}),
        ValueError,
        ["inner_data['number'] is a single number, 3.5", "one row for each example"],
    ),
    "words in the data": (
        lambda: wior.Bilevel(loss, loss, np.array(["a", "b"]), ONES),
        TypeError,
        ["outer_data must be an array of numbers"],
    ),
    "an outer loss that is no function": (
        lambda: wior.Bilevel(3.5, loss, ONES, ONES),
        TypeError,
        ["outer must be a function, got 3.5 of type float"],
    ),
    "an inner loss that is no function": (
        lambda: wior.ConditionalCompositional(loss_of_y, None, ONES, SETS),
        TypeError,
        ["inner must be a function, got None of type NoneType"],
    ),
    "an objective that is no function": (
        lambda: wior.Minimax("loss", ONES),
        TypeError,
        ["objective must be a function, got 'loss' of type str"],
    ),
    "a representation that is no function": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, SETS, represent=3.5),
        TypeError,
        ["represent must be a function, got 3.5 of type float"],
    ),
    "a count above the rows": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, SETS, counts=[1, 2, 4, 3]),
        ValueError,
        ["counts must lie between 1 and 3", "counts[2] is 4"],
    ),
    "a count of zero": (
        lambda: wior.ConditionalCompositional(loss_of_y, map_of_x, ONES, SETS, counts=[1, 0, 3, 3]),
        ValueError,
        ["counts must lie between 1 and 3", "counts[1] is 0"],
    ),
    "too few counts": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, SETS, counts=[1, 2, 3]),
        ValueError,
        ["counts must have shape (4,)", "got shape (3,)"],
    ),
    "counts that are no integers": (
        lambda: wior.ConditionalBilevel(loss, loss, ONES, SETS, counts=[1.0, 2.0, 3.0, 1.0]),
        TypeError,
        ["counts must be integers", "float64"],
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_problem_that_cannot_be_made_says_why(name):
    make, kind, parts = MADE[name]
    with pytest.raises(kind) as error:
        make()
    for part in parts:
        assert part in str(error.value)


# Losses and starts, when a run is prepared.


def bilevel(outer=loss, inner=loss):
    return wior.Bilevel(outer, inner, ONES, ONES)


def conditional(**options):
    return wior.ConditionalBilevel(loss, loss, ONES, SETS, **options)


def beside(x, y, batch):
    """An outer loss that leaves x["weights"] alone."""
    return loss(x["shared"], y, batch)


def weighted(x, y, batch):
    return jnp.mean(x["weights"] * (batch @ y)) + y @ y


def weights(n):
    return {"shared": X, "weights": wior.PerExample(np.ones(n))}


PREPARED = {
    "an outer loss for each row": (
        (bilevel(outer=lambda x, y, b: b @ y), BILEVEL, X, Y),
        ValueError,
        ["outer must return one number", "shape (2,)"],
    ),
    "an inner loss for each row": (
        (bilevel(inner=lambda x, y, b: (b @ y)[None]), BILEVEL, X, Y),
        ValueError,
        ["inner must return one number", "shape (1, 2)"],
    ),
    "an objective for each row": (
        (wior.Minimax(lambda x, y, b: b @ y, ONES), MINIMAX, X, Y),
        ValueError,
        ["objective must return one number", "shape (2,)"],
    ),
    "a loss that is an integer": (
        (bilevel(inner=lambda x, y, b: jnp.sum(b > y)), BILEVEL, X, Y),
        TypeError,
        ["inner must return a floating-point number", "int64"],
    ),
    "a loss with something beside it": (
        (bilevel(outer=lambda x, y, b: (loss(x, y, b), {})), BILEVEL, X, Y),
        TypeError,
        ["outer must return one number", "float64[]"],
    ),
    "two losses": (
        (wior.Compositional(lambda y, b: (b @ y, y), map_of_x, ONES, ONES), COMPOSITIONAL, X, Y),
        TypeError,
        ["outer must return one number", "float64[2]"],
    ),
    "a conditional loss for each row": (
        (wior.ConditionalBilevel(loss, lambda x, y, b: b @ y, ONES, SETS), CBO, X, Y),
        ValueError,
        ["inner must return one number", "shape (2,)"],
    ),
    "x0 of integers": (
        (bilevel(), BILEVEL, {"a": np.ones(2, int)}, Y),
        TypeError,
        ["x0['a'] has dtype int64", "must be floating point"],
    ),
    "y0 of integers": (
        (bilevel(), BILEVEL, X, (np.ones(2, np.int32),)),
        TypeError,
        ["y0[0] has dtype int32", "must be floating point"],
    ),
    "x0 without arrays": ((bilevel(), BILEVEL, {}, Y), ValueError, ["x0 has no arrays: {}", "floating-point"]),
    "x0 with NaN": (
        (bilevel(), BILEVEL, np.array([1, np.nan]), Y),
        ValueError,
        ["x0 has values that are not finite", "must be finite"],
    ),
    "y0 with infinity": (
        (bilevel(), BILEVEL, X, {"b": np.array([1, np.inf])}),
        ValueError,
        ["y0['b'] has values that are not finite", "must be finite"],
    ),
    "an outer loss that uses rows of inner examples": (
        (bilevel(outer=weighted, inner=weighted), BILEVEL, weights(4), Y),
        TypeError,
        ["outer uses the PerExample leaf x0['weights']", "None", "Let only inner depend on it"],
    ),
    "too few rows": (
        (bilevel(outer=beside, inner=weighted), BILEVEL, weights(3), Y),
        ValueError,
        ["x0['weights'] is PerExample with shape (3,)", "must be 4"],
    ),
    "too few rows of a minimax problem": (
        (wior.Minimax(weighted, ONES), MINIMAX, weights(5), Y),
        ValueError,
        ["x0['weights'] is PerExample with shape (5,)", "must be 4"],
    ),
    "a row that is a number": (
        (bilevel(outer=beside, inner=weighted), BILEVEL, {"shared": X, "weights": wior.PerExample(1.0)}, Y),
        ValueError,
        ["x0['weights'] is PerExample with shape ()", "must be 4"],
    ),
    "rows in y": (
        (bilevel(), BILEVEL, X, wior.PerExample(np.ones(4))),
        TypeError,
        ["y0 has a PerExample leaf", "only x may"],
    ),
    "rows of y in a conditional problem": (
        (conditional(), CBO, X, wior.PerExample(np.ones((4, 2)))),
        TypeError,
        ["y0 has a PerExample leaf", "conditional problem", "starts y anew"],
    ),
    "rows of another length in a conditional compositional problem": (
        (wior.ConditionalCompositional(loss_of_y, map_of_x, ONES, SETS), CCOMP, wior.PerExample(np.ones((3, 2))), Y),
        ValueError,
        ["x0 is PerExample with shape (3, 2)", "must be 4, one row for each outer example"],
    ),
    "a map to another shape": (
        (wior.Compositional(loss_of_y, map_of_x, ONES, ONES), COMPOSITIONAL, X, np.ones((2, 1))),
        ValueError,
        ["inner(x, batch)", "y0", "float64[2]", "float64[2, 1]"],
    ),
    "a map to another tree": (
        (wior.ConditionalCompositional(loss_of_y, map_of_x, ONES, SETS), CCOMP, X, {"y": Y}),
        ValueError,
        ["inner(x, batch)", "y0", "float64[2]", "{'y': 'float64[2]'}"],
    ),
    "a map to integers": (
        (wior.Compositional(loss_of_y, lambda x, b: jnp.sum(b > x, 0), ONES, ONES), COMPOSITIONAL, X, Y),
        TypeError,
        ["inner(x, batch) must be floating point", "int64"],
    ),
    "a representation of fewer rows": (
        (conditional(represent=lambda x, rows: rows[:2]), CBO, X, Y),
        ValueError,
        ["represent must return one row for each row", "here 6", "returns 2"],
    ),
    "an outer representation of no rows": (
        (conditional(represent_outer=lambda x, rows: jnp.concatenate([rows, rows])), CBO, X, Y),
        ValueError,
        ["represent_outer must return one row for each row", "here 2", "returns 4"],
    ),
    "a representation that is one number": (
        (conditional(represent=lambda x, rows: jnp.sum(x)), CBO, X, Y),
        ValueError,
        ["represent(x, rows) is a single number", "one row for each"],
    ),
    "an algorithm for other problems": (
        (conditional(), BILEVEL, X, Y),
        TypeError,
        ["WiORBO solves Bilevel problems", "ConditionalBilevel"],
    ),
    "data in the place of a problem": (
        (ONES, BILEVEL, X, Y),
        TypeError,
        ["problem must be one of wior's problems", "ndarray"],
    ),
    "a class in the place of an algorithm": (
        (bilevel(), wior.WiORBO, X, Y),
        TypeError,
        ["algorithm is the class WiORBO", "WiORBO(outer_lr=0.1"],
    ),
}


@pytest.mark.parametrize("name", PREPARED)
def test_a_run_that_cannot_start_says_why_before_anything_is_compiled(name, monkeypatch):
    def drive(*_):
        pytest.fail("the run was started")

    monkeypatch.setattr(loop, "drive", drive)
    arguments, kind, parts = PREPARED[name]
    with pytest.raises(kind) as error:
        wior.solve(*arguments, batch_size=2, steps=1)
    for part in parts:
        assert part in str(error.value)


def test_a_mistake_in_a_loss_is_shown_as_it_is():
    """An error that has nothing to do with PerExample rows is not explained by them."""

    def misspelt(x, y, batch):
        return loss(x["shard"], y, batch)

    with pytest.raises(KeyError, match="shard"):
        wior.solve(bilevel(outer=misspelt, inner=weighted), BILEVEL, weights(4), Y, batch_size=2, steps=1)


# Hyper-parameters, when an algorithm is made.

STEP_SIZES = [
    (0.0, ValueError, "must be a positive finite number, got 0.0"),
    (-0.1, ValueError, "must be a positive finite number, got -0.1"),
    (float("nan"), ValueError, "must be a positive finite number, got nan"),
    (float("inf"), ValueError, "must be a positive finite number, got inf"),
    (np.float32("nan"), ValueError, "must be a positive finite number, got "),
    (True, TypeError, "must be a positive finite number, got True of type bool"),
    (np.True_, TypeError, "must be a positive finite number, got "),
    (np.array(True), TypeError, "must be a positive finite number, got "),
    ("0.1", TypeError, "must be a positive finite number, got '0.1' of type str"),
    (None, TypeError, "must be a positive finite number, got None of type NoneType"),
    (1j, TypeError, "must be a positive finite number, got 1j of type complex"),
    ([0.1], TypeError, "must be a positive finite number, got [0.1] of type list"),
    (np.ones(2), TypeError, "must be a positive finite number, got array([1., 1.])"),
]


@pytest.mark.parametrize("which", ["outer_lr", "inner_lr", "adjoint_lr"])
@pytest.mark.parametrize(("value", "kind", "message"), STEP_SIZES, ids=[repr(value) for value, *_ in STEP_SIZES])
def test_step_sizes_are_positive_numbers(which, value, kind, message):
    rates = {"outer_lr": 0.1, "inner_lr": 0.1, "adjoint_lr": 0.1}
    with pytest.raises(kind) as error:
        wior.WiORBO(**rates | {which: value})
    assert f"{which} {message}" in str(error.value)
    assert "or give a schedule" in str(error.value)


@pytest.mark.parametrize("algorithm", [WiRBO, wior.WiORComp, wior.WiORCBO, wior.WiORCComp])
def test_every_algorithm_checks_its_numbers(algorithm):
    for which in range(3):
        rates = [0.1, 0.1, 0.1]
        rates[which] = 0
        with pytest.raises(ValueError, match="_lr must be a positive finite number, got 0"):
            algorithm(*rates)
    with pytest.raises(ValueError, match="radius must be a positive number, got 0"):
        algorithm(0.1, 0.1, 0.1, radius=0)


def test_minimax_checks_its_numbers():
    with pytest.raises(ValueError, match=r"inner_lr must be a positive finite number, got -1\.0"):
        wior.WiORMinimax(0.1, -1.0)


@pytest.mark.parametrize(
    ("schedule", "value"),
    [
        (optax.constant_schedule(-0.1), "-0.1"),
        (lambda t: jnp.nan * t, "nan"),
        (lambda t: np.inf, "inf"),
        (lambda t: jnp.ones(2), "[1., 1.]"),
        (lambda t: None, "None"),
        (lambda t: "0.1", "'0.1'"),
    ],
    ids=["negative", "nan", "infinite", "array", "none", "string"],
)
def test_schedules_are_numbers_at_the_first_step(schedule, value):
    with pytest.raises(ValueError, match="adjoint_lr is a schedule whose value at step 0 is") as error:
        wior.WiORBO(0.1, 0.1, schedule)
    assert value in str(error.value)
    assert "must be a non-negative finite number" in str(error.value)


def test_schedules_may_start_at_zero():
    algorithm = wior.WiORBO(
        0.1, optax.linear_schedule(0.0, 0.1, 10), optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 20)
    )
    assert [float(rate(0)) for rate in (algorithm.inner_lr, algorithm.adjoint_lr)] == [0, 0]


@pytest.mark.parametrize(
    ("radius", "kind"),
    [(0, ValueError), (-2.0, ValueError), (float("nan"), ValueError), (True, TypeError), ("1", TypeError)],
)
def test_a_radius_is_a_positive_number(radius, kind):
    with pytest.raises(kind, match=f"radius must be a positive number, got {radius!r}"):
        wior.WiORBO(0.1, 0.1, 0.1, radius=radius)


@pytest.mark.parametrize("algorithm", [wior.WiORCBO, wior.WiORCComp])
@pytest.mark.parametrize(
    ("value", "kind"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (2.0, TypeError), (True, TypeError)]
)
def test_inner_epochs_are_a_positive_integer(algorithm, value, kind):
    with pytest.raises(kind, match=f"inner_epochs must be a positive integer, got {value!r}"):
        algorithm(0.1, 0.1, 0.1, inner_epochs=value)
