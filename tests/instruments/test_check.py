"""`check`: each fault is found in a problem that has it, and none in the sound ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import wior
from faulty_losses import CLASSES, FEATURES, INPUTS, LABELS, X0, Y0, N, by_place, by_take, drawn, softmax, with_label
from small_tasks import SMALL
from wior.instruments.check import Report, _movement_findings, check
from wior.instruments.checking import curvature, data, rows, sample, values
from wior.tasks import mlp, mlp_init, quadratic

# leaves that cannot move


def test_leaves_that_cannot_move_are_findings():
    def said(x0):
        problem = wior.Bilevel(
            lambda x, y, b: jnp.mean((b @ y) ** 2),
            lambda x, y, b: jnp.mean((b @ y - 1) ** 2) + x["a"] * jnp.sum(y**2),
            FEATURES,
            FEATURES,
        )
        return [f[:2] for f in _movement_findings(problem, x0, jnp.ones(INPUTS), (4, 4))]

    assert said({"a": jnp.ones(())}) == []
    unused = wior.Bilevel(
        lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.mean((b @ y) ** 2) * x["a"], FEATURES, FEATURES
    )
    (finding,) = _movement_findings(unused, {"a": jnp.ones(()), "b": jnp.ones(2)}, jnp.ones(INPUTS), (4, 4))
    assert finding == ("warning", "x0['b']", "cannot move: neither outer nor inner depends on it.")
    stuck = wior.Bilevel(lambda x, y, b: jnp.mean(b @ y), lambda x, y, b: jnp.mean((b @ y) ** 2), FEATURES, FEATURES)
    (finding,) = _movement_findings(stuck, jnp.ones(()), jnp.ones(INPUTS), (4, 4))
    assert (finding.severity, finding.about) == ("error", "x0")


# streamed data


class Source:
    """Rows that are counted as they are read."""

    def __init__(self, array):
        self.array, self.read = array, set()

    def __len__(self):
        return len(self.array)

    def __getitem__(self, numbers):
        self.read |= set(np.asarray(numbers).tolist())
        return self.array[numbers]


def test_of_streamed_data_some_rows_are_read_and_they_are_named_by_their_numbers():
    array = np.random.default_rng(103).normal(size=(5000, INPUTS))
    array[::2, 1] = np.nan
    source = Source(array)
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((b @ y) ** 2), lambda x, y, b: jnp.mean((b @ y - 1) ** 2), FEATURES, source
    )
    found = sample.at_hand(problem, (8, 8), np.random.default_rng(0))
    assert len(source.read) <= sample.ROWS + 2  # the first and the last show what a row is
    (leaf,) = data.not_finite(found)
    (finding,) = data.data_findings(found, [leaf], harmful=True)
    named = [int(number) for number in finding.message.split(" in rows ")[1].split(" and ")[0].split(", ")]
    assert all(np.isnan(array[number, 1]) for number in named)
    assert "of the 512 rows looked at" in finding.message
    own = drawn(problem)
    assert all(np.isfinite(array[own.number("inner", place)]).all() for one in own.places for place in one.inner)


@pytest.mark.parametrize("streamed", [False, True])
def test_streamed_data_give_the_findings_of_resident_data(streamed):
    labels = with_label(CLASSES, 33)
    mark = wior.Streamed if streamed else lambda array: array
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean(by_place(jax.nn.log_softmax(b[0] @ y), b[1])),
        lambda x, y, b: jnp.sum(by_place(jax.nn.log_softmax(b[0] @ y), b[1]) * jnp.exp(x)),
        (mark(FEATURES), mark(LABELS)),
        (mark(FEATURES), mark(labels)),
    )
    report = check(problem, wior.PerExample(jnp.zeros(N)), Y0, batch_size=8, show=False)
    assert [f[:2] for f in report.findings if f.severity != "note"] == [("error", "inner"), ("error", "inner")]
    assert "row 33 of inner_data" in report.findings[0].message
    assert report.step_sizes["outer_lr"] > 0


def test_streamed_inner_sets():
    made = quadratic.quadratic_conditional_compositional(ragged=True)
    mark = lambda tree: jax.tree.map(lambda leaf: wior.Streamed(np.asarray(leaf)), tree)
    problem = dataclasses.replace(
        made.problem, outer_data=mark(made.problem.outer_data), inner_data=mark(made.problem.inner_data)
    )
    report = check(problem, jnp.zeros(3), jnp.zeros(5), batch_size=(2, 3), show=False)
    assert report.ok, str(report)
    assert report.step_sizes["outer_lr"] > 0


# no false alarm


def sound(problem, x, y, batches):
    """The findings on real batches that are no notes, without the short runs."""
    own = drawn(problem, batches)
    losses = values.Losses(own, x, y)
    found = [
        *data.type_findings(problem, x, y, batches),
        *_movement_findings(problem, x, y, batches),
        *rows.representation_findings(own, x),
        *curvature.curvature_findings(own, curvature.inner_curvature(own, x, y), y),
    ]
    for loss in sample.losses_of(problem):
        found += values.out_of_range(losses, loss) + values.not_finite_at_start(losses, loss)
        found += rows.row_findings(own, loss, x, y)
    return [finding for finding in found if finding.severity != "note"]


# of the conditional ones those whose sets are ragged, which are longer programs
OTHERS = ("bilevel, drawn separately", "conditional bilevel", "conditional compositional")


@pytest.mark.parametrize("name", [name for name in problems.CASES if name not in OTHERS])
def test_no_false_alarm_on_the_problems_of_the_tests(name):
    case = problems.CASES[name]()
    batches = case.batch_size if isinstance(case.batch_size, tuple) else (case.batch_size,) * 2
    assert sound(case.problem, case.x0, case.y0, batches) == []


@pytest.mark.parametrize("name", SMALL)
def test_no_false_alarm_on_the_tasks(name):
    task = SMALL[name][0]()
    batches = task.batch_size if isinstance(task.batch_size, tuple) else (task.batch_size,) * 2
    assert sound(task.problem, task.x0, task.y0, batches) == []


# the report and its arguments


def test_the_report_is_printed_and_is_no_wider_than_a_terminal(capsys):
    problem = softmax(by_place, with_label(CLASSES), jnp.sum)
    report = check(problem, X0, Y0, batch_size=8)
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    assert max(map(len, printed.splitlines())) <= 100
    assert printed.startswith("Bilevel: 40 outer and 40 inner examples, batches of 8 and 8\n")
    assert "error    inner         uses the index 3" in printed
    assert "first steps     wior.WiORBO(outer_lr=" in printed
    assert not report.ok
    assert isinstance(report, Report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.findings = ()


def test_arguments_are_checked():
    problem = softmax(by_take)
    with pytest.raises(TypeError, match="must be one of wior's problems"):
        check(3, X0, Y0)
    with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
        check(problem, X0, Y0, batch_size=0)
    with pytest.raises(ValueError, match="one data set"):
        check(wior.Minimax(lambda x, y, b: jnp.mean(b) * x * y, FEATURES), 1.0, 1.0, batch_size=(2, 3))
    with pytest.raises(TypeError, match="seed must be an integer"):
        check(problem, X0, Y0, seed=0.5)
    with pytest.raises(TypeError, match="show must be True or False, got 'yes'"):
        check(problem, X0, Y0, show="yes")
    with pytest.raises(TypeError, match="x0 has dtype int"):
        check(problem, 1, Y0)


def test_what_a_loss_raises_is_raised():
    with pytest.raises(ValueError, match="it returns an array of shape \\(8,\\), one loss for each row: take the mean"):
        check(softmax(by_take, over=lambda each: each), X0, Y0, batch_size=8)

    def broken(x, y, b):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        check(wior.Bilevel(broken, broken, FEATURES, FEATURES), X0, Y0)


def test_a_network_is_a_note_and_no_warning():
    y0 = mlp_init(jax.random.key(0), (INPUTS, 6, CLASSES))
    cross_entropy = lambda y, b: jnp.mean(by_take(jax.nn.log_softmax(mlp(y, b[0])), b[1]))
    problem = wior.Bilevel(
        lambda x, y, b: cross_entropy(y, b),
        lambda x, y, b: cross_entropy(y, b) + jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y)),
        (FEATURES, LABELS),
        (FEATURES, LABELS),
    )
    assert sound(problem, jnp.asarray(-5.0), y0, (8, 8)) == []


def test_functions_are_taken_as_they_are_now():
    held = {"strength": 0.01}
    inner = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2) + jnp.exp(x) * held["strength"] * jnp.sum(y * y)
    outer = lambda x, y, batch: held["strength"] * jnp.mean((batch @ y - 1) ** 2)
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    problem = wior.Bilevel(outer, inner, rows, rows)

    def looked_at():
        return check(problem, jnp.zeros(()), jnp.zeros(3), batch_size=8, show=False)

    first = looked_at()
    held["strength"] = 5.0
    second = looked_at()
    fresh = lambda function: lambda *args: function(*args)
    other = wior.Bilevel(fresh(outer), fresh(inner), rows, rows)
    expected = check(other, jnp.zeros(()), jnp.zeros(3), batch_size=8, show=False)
    assert second.inner_curvature == expected.inner_curvature != first.inner_curvature
    assert second.step_sizes["inner_lr"] == expected.step_sizes["inner_lr"] != first.step_sizes["inner_lr"]
