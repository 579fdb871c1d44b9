"""What the losses do on real rows: indices out of range, and values or derivatives that are not finite."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior.instruments.checking.finding import Finding
from wior.instruments.checking.indices import WRITES, is_read_of, line_of_error, lines_of, nan_checked, range_checked
from wior.instruments.checking.sample import Loss, Place, Sample
from wior.problems import Batch

Tree = Any

SECONDS = 2.0  # for going through the rows of one loss


def number_of(value: Tree) -> jax.Array:
    """A scalar as it is, a map as the sum of its entries."""
    return jnp.asarray(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(value)))


def with_gradients(loss: Loss, problem: Any, x: Tree, y: Tree, batch: Batch) -> tuple[Tree, Tree]:
    """The value of a loss on a batch, and its derivatives in what it sees of x and in y."""

    def value(point: Tree, y: Tree) -> tuple[jax.Array, Tree]:
        own = loss.value(problem, point, y, batch.data)
        return number_of(own), own

    gradients, own = jax.grad(value, (0, 1), has_aux=True)(loss.point(x, batch), loss.answer(y, batch))
    return own, gradients


class Losses:
    """The losses of a sample's problem at one point, compiled once for batches of one size."""

    def __init__(self, sample: Sample, x: Tree, y: Tree):
        self.sample, self.x, self.y = sample, x, y
        self._finite: dict[str, Callable[..., Any]] = {}

    def arguments(self, place: Place) -> tuple[Any, ...]:
        return self.sample.problem, self.x, self.y, jnp.asarray(place.outer), jnp.asarray(place.inner)

    def finite(self, loss: Loss, place: Place) -> tuple[bool, bool]:
        """Whether the value and whether the derivatives of a loss are finite on a batch."""
        if loss.name not in self._finite:

            def look(problem: Any, x: Tree, y: Tree, outer: Any, inner: Any) -> tuple[Any, Any]:
                value, gradients = with_gradients(loss, problem, x, y, loss.batch(problem, outer, inner))
                return tuple(
                    jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(part)]))
                    for part in (value, gradients)
                )  # type: ignore[return-value]

            self._finite[loss.name] = jax.jit(look)
        value, gradients = self._finite[loss.name](*self.arguments(place))
        return bool(value), bool(gradients)

    def value(self, loss: Loss) -> Callable[..., Any]:
        """The value of a loss as a function of a problem, x, y and the indices of a place."""
        return lambda problem, x, y, outer, inner: _value(loss, problem, x, y, outer, inner)


def out_of_range(losses: Losses, loss: Loss) -> list[Finding]:
    """A finding where a loss reads or writes an index out of range on some row.

    All rows on the device are tried, as long as some seconds last.
    """
    sample, program = losses.sample, range_checked(losses.value(loss))
    asked = lambda place: program(*losses.arguments(place))[0].get_exception()
    try:
        asked(sample.places[0])
    except Exception as failure:  # noqa: BLE001 - the loss itself has been traced before: it is checkify that fails on it
        message = f"cannot be searched for indices out of range: {type(failure).__name__} in jax.experimental.checkify."
        return [Finding("note", loss.name, message)]
    begun = time.perf_counter()
    for place in sample.all_places(loss):
        error = asked(place)
        if error is not None:
            row = _row_with(sample, loss, place, lambda place: asked(place) is not None)
            return [_range_finding(losses, loss, place, error, row)]
        if time.perf_counter() - begun > SECONDS:
            break
    return []


def not_finite_at_start(losses: Losses, loss: Loss) -> list[Finding]:
    """A finding where the value or a derivative of a loss is not finite on rows that are finite themselves."""
    sample = losses.sample
    for place in sample.places:
        value, gradients = losses.finite(loss, place)
        if not (value and gradients):
            row = _row_with(sample, loss, place, lambda place: not all(losses.finite(loss, place)))
            return [_nan_finding(losses, loss, place, value, row)]
    return []


def harmful(losses: Losses, loss: Loss, broken: np.ndarray) -> bool:
    """Whether a loss or a derivative is not finite on rows that are not."""
    sample = losses.sample
    if sample.conditional:
        # all rows of the set, since the value may be in any of them
        place = Place(broken[:1], sample.own_rows(broken[0], sample.problem.sizes()["inner"]))
    else:
        place = sample.with_rows(loss, np.resize(broken, sample.batches[0 if loss.level == "outer" else 1]))
    return not all(losses.finite(loss, place))


def _value(loss: Loss, problem: Any, x: Tree, y: Tree, outer: Any, inner: Any) -> Tree:
    batch = loss.batch(problem, outer, inner)
    return loss.value(problem, loss.point(x, batch), loss.answer(y, batch), batch.data)


def _row_with(sample: Sample, loss: Loss, place: Place, fails: Callable[[Place], bool]) -> str | None:
    """The name of one row of a batch that has a fault by itself, found by halving; None where no row has."""
    if sample.conditional and loss.level == "outer":
        return sample.row_name(loss, place, place.outer[0])
    rows = own = getattr(place, loss.level)
    at = lambda part: place._replace(**{loss.level: np.resize(part, len(own))})
    while len(rows) > 1:
        first, second = np.array_split(rows, 2)
        rows = first if fails(at(first)) else second
    return sample.row_name(loss, place, rows[0]) if fails(at(rows)) else None


def _range_finding(losses: Losses, loss: Loss, place: Place, error: Any, row: str | None) -> Finding:
    on = f", on {row}" if row is not None else ""
    one_hot = re.match(r"one_hot (-?\d+) (\d+)", str(error))
    if one_hot:
        label, classes = one_hot.groups()
        return Finding(
            "warning",
            loss.name,
            f"gives the label {label} to one_hot with {classes} classes{on}: it becomes a row of zeros, and the "
            f"example has no label. Labels must lie between 0 and {int(classes) - 1}.",
        )
    name, shape = getattr(error, "prim", ""), tuple(getattr(error, "operand_shape", ()))
    found = re.search(r"index (-?\d+) is out of bounds for axis (\d+) with size (\d+)", str(error))
    what = (
        f"uses the index {found[1]} on an axis of length {found[3]}"
        if found
        else f"has an index out of range ({error})"
    )
    lines = lines_of(losses.value(loss), losses.arguments(place), is_read_of(name, shape))
    at = f" ({' or '.join(lines[:2])})" if lines else ""
    of = f" of an array of shape {shape}" if shape else ""
    if name in WRITES:
        said = "JAX drops such a write without an error. Correct the index, or leave the row out"
        return Finding("warning", loss.name, f"{what}{of}{on}{at}: {said}.")
    said = (
        "JAX reads another entry, or NaN, in its place without an error. Correct the values in the data; "
        'if it is meant, say so with mode="clip" or a fill_value'
    )
    return Finding("error", loss.name, f"{what}{of}{on}{at}: {said}.")


def _nan_finding(losses: Losses, loss: Loss, place: Place, value: bool, row: str | None) -> Finding:
    """What is not finite, and the line where the first NaN arises if checkify finds it."""

    def gradients(problem: Any, x: Tree, y: Tree, outer: Any, inner: Any) -> Tree:
        return with_gradients(loss, problem, x, y, loss.batch(problem, outer, inner))[1]

    on = f"on {row}" if row is not None else "on a batch of real rows"
    error = nan_checked(gradients if value else losses.value(loss))(*losses.arguments(place))[0].get_exception()
    line = line_of_error(error)
    cause = f"; it begins with {str(error).rstrip('. ')}{f' at {line}' if line else ''}" if error is not None else ""
    remedy = (
        "A jnp.where does not stop NaN in a derivative: guard the argument too, jnp.where(ok, f(jnp.where(ok, a, 1)), "
        "0)"
        if value
        else "Look at logarithms, roots, divisions and exponentials"
    )
    what = "has a derivative that is" if value else "is"
    return Finding("error", loss.name, f"{what} not finite at x0, y0 {on}{cause}. {remedy}.")
