"""Whether a loss is a mean over the rows of its batch, each row by itself.

With two halves A and B of a batch, a loss in which every row stands for itself has

    L(A ∪ B) + L(B ∪ A) = L(A ∪ A) + L(B ∪ B),

all four of one size: a sum has it as well as a mean, with a term that has no rows added or not, and so has a loss that
treats the first place of a batch unlike the second. Where it fails, rows depend on each other: batch normalization,
negatives from the batch, weights that are normalized within it, the root of a mean. Where it holds, a mean has L(A ∪ A)
= L(A), and a sum has not.

All of it is asked of the values and of the derivatives, at the start and at a point beside it, since at the start a
loss may be simpler than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.instruments.checking.finding import Finding
from wior.instruments.checking.sample import Loss, Sample
from wior.instruments.checking.values import with_gradients
from wior.problems import ConditionalBilevel
from wior.problems.losses import may_mix_rows
from wior.problems.per_example import is_per_example, shared_part

Tree = Any

APART = 0.5  # how far the second point lies from the start, in sizes of x and y
HALF_PRECISION = 0.03


class OnBatch(NamedTuple):
    """The value and derivatives of a loss on one batch, in float64."""

    shared: np.ndarray  # all numbers that the rows of the batch have in common
    rows: np.ndarray  # (rows, ...): the derivatives in `PerExample` rows


def row_findings(sample: Sample, loss: Loss, x: Tree, y: Tree) -> list[Finding]:
    """At most one finding: rows depend on each other or on their place, or the loss is not their mean."""
    halves = _halves(sample, loss)
    if halves is None or may_mix_rows(getattr(sample.problem, loss.name.split()[0])):
        return []
    evaluate, size = _evaluator(sample, loss), len(halves[0])
    points = [(x, y), _beside(x, y)]
    join = lambda first, second: np.concatenate([halves[first], halves[second]])
    tolerance = _tolerance(loss, sample, x, y)
    at_size, doubled = (
        _accepted(evaluate, sample, loss, x, y, rows) for rows in (halves[0], np.concatenate([halves[0]] * 2))
    )
    if doubled:
        for point in points:
            four = [evaluate(*point, join(*pair)) for pair in ((0, 1), (1, 0), (0, 0), (1, 1))]
            if _interact(four, size, tolerance):
                return [_dependent(loss)]
            if _apart(four[0].shared, four[1].shared, tolerance):
                return [_placed(loss)]
    if not (doubled and at_size):
        wrong = size if not at_size else 2 * size
        message = f"cannot be called with {wrong} rows, so whether it is a mean over its rows was not checked."
        return [Finding("note", loss.name, message)]
    for point in points:
        once, twice = evaluate(*point, halves[0]), evaluate(*point, join(0, 0))
        joined = OnBatch(twice.shared, twice.rows[:size] + twice.rows[size:])
        if _apart(once.shared, joined.shared, tolerance) or _apart(once.rows, joined.rows, tolerance):
            return [_no_mean(loss, once, twice, size)]
    return []


def representation_findings(sample: Sample, x: Tree) -> list[Finding]:
    """A finding for each representation of a conditional problem in which rows depend on each other.

    They must not, since the rows of all examples of a batch are represented together.
    """
    findings = []
    problem = sample.problem
    if not isinstance(problem, ConditionalBilevel):
        return []
    for name, loss in (("represent", "inner"), ("represent_outer", "outer")):
        if getattr(problem, name) is None:
            continue
        rows = _rows_to_represent(sample, loss)
        half = jax.tree.leaves(rows)[0].shape[0] // 2
        try:
            depends = bool(half) and _depends_on_company(problem, name, x, rows, half)
        except Exception as failure:  # noqa: BLE001 - with the rows of a step it was traced before, and only other numbers fail
            message = (
                f"cannot be called with {half} rows ({type(failure).__name__}), so whether rows depend on each other "
                "was not checked."
            )
            findings.append(Finding("note", name, message))
            continue
        if depends:
            message = (
                "represents a row differently when the other rows of its batch change. The rows of all outer examples "
                "of a step are represented together, so each must depend on itself alone: normalize by the row's own "
                "statistics, or by fixed ones, not by those of the batch."
            )
            findings.append(Finding("error", name, message))
    return findings


def _depends_on_company(problem: Any, name: str, x: Tree, rows: Tree, half: int) -> bool:
    """Whether rows that are represented together differ from the same rows in two halves."""
    represent = jax.jit(lambda problem, x, rows: getattr(problem, name)(x, rows))
    parts = [jax.tree.map(lambda leaf, at=at: leaf[at : at + half], rows) for at in (0, half)]
    apart = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(represent(problem, x, part) for part in parts))
    together = represent(problem, x, jax.tree.map(lambda leaf: leaf[: 2 * half], rows))
    tolerance = _tolerance_of(jax.make_jaxpr(represent)(problem, x, rows))
    pairs = zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True)
    return any(_apart(np.asarray(one, np.float64), np.asarray(two, np.float64), tolerance) for one, two in pairs)


def _halves(sample: Sample, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
    """Two halves of a batch, of different rows; None where a loss sees one row at a time or there is only one row."""
    if sample.conditional and loss.level == "outer":
        return None
    rows = getattr(sample.places[0], loss.level)
    different = len(np.unique(rows))
    size = min((len(rows) + 1) // 2, different // 2)
    if size == 0 and len(rows) == 1 and not sample.conditional:
        others = sample.at_hand.rows[loss.level]
        rows, size = others[:2], len(others[:2]) // 2
    return (rows[:size], rows[size : 2 * size]) if size else None


def _evaluator(sample: Sample, loss: Loss) -> Callable[[Tree, Tree, np.ndarray], OnBatch]:
    @jax.jit
    def look(problem: Any, x: Tree, y: Tree, outer: Any, inner: Any) -> tuple[jax.Array, jax.Array]:
        batch = loss.batch(problem, outer, inner)
        value, (of_x, of_y) = with_gradients(loss, problem, x, y, batch)
        by_rows = loss.sees_rows and not sample.conditional  # there all rows of a batch are of one outer example
        shared = jax.tree.leaves((value, shared_part(x, of_x) if by_rows else of_x, shared_part(y, of_y)))
        own = jax.tree.leaves((x, y) if by_rows else y, is_leaf=is_per_example)
        found = jax.tree.leaves((of_x, of_y) if by_rows else of_y)
        rows = [d for leaf, d in zip(own, found, strict=True) if is_per_example(leaf)]
        length = len(batch.examples)
        return (
            jnp.concatenate([jnp.ravel(leaf) for leaf in shared]),
            jnp.concatenate([d.reshape(length, -1) for d in rows], 1) if rows else jnp.zeros((length, 0)),
        )

    def evaluate(x: Tree, y: Tree, rows: np.ndarray) -> OnBatch:
        place = sample.with_rows(loss, rows)
        found = look(sample.problem, x, y, jnp.asarray(place.outer), jnp.asarray(place.inner))
        return OnBatch(*(np.asarray(part, np.float64) for part in found))

    return evaluate


def _accepted(evaluate: Any, sample: Sample, loss: Loss, x: Tree, y: Tree, rows: np.ndarray) -> bool:
    """Whether a loss can be called with so many rows."""
    try:
        evaluate(x, y, rows)
    except Exception:  # noqa: BLE001 - the batch size that will be used was checked before, and only another one fails
        return False
    return True


def _interact(four: list[OnBatch], size: int, tolerance: float) -> bool:
    """Whether rows depend on each other, given A ∪ B, B ∪ A, A ∪ A and B ∪ B."""
    ab, ba, aa, bb = four
    scale = max(_largest(seen.shared) for seen in four)
    if _apart(ab.shared + ba.shared, aa.shared + bb.shared, tolerance, scale):
        return True
    return _apart(ab.rows[:size], aa.rows[:size], tolerance) or _apart(ab.rows[size:], bb.rows[size:], tolerance)


def _apart(first: np.ndarray, second: np.ndarray, tolerance: float, scale: float = 0.0) -> bool:
    """Whether two arrays differ by more than rounding. Entries that are not finite are not compared."""
    if not (np.isfinite(first).all() and np.isfinite(second).all()) or not np.isfinite(scale):
        return False
    scale = max(scale, _largest(first), _largest(second))
    return bool(_largest(first - second) > tolerance * scale)


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _beside(x: Tree, y: Tree) -> tuple[Tree, Tree]:
    """A point at some distance from x and y, measured by the size of each leaf."""
    random = np.random.default_rng(0)

    def move(leaf: jax.Array) -> jax.Array:
        size = float(jnp.sqrt(jnp.mean(leaf.astype(float) ** 2))) if leaf.size else 0.0
        noise = random.standard_normal(leaf.shape)
        return leaf + jnp.asarray(APART * (size or 1.0) * noise, leaf.dtype)

    return jax.tree.map(move, (x, y))


def _tolerance(loss: Loss, sample: Sample, x: Tree, y: Tree) -> float:
    place = sample.places[0]

    def value(problem: Any, x: Tree, y: Tree) -> Any:
        batch = loss.batch(problem, jnp.asarray(place.outer), jnp.asarray(place.inner))
        return loss.value(problem, loss.point(x, batch), loss.answer(y, batch), batch.data)

    return _tolerance_of(jax.make_jaxpr(value)(sample.problem, x, y))


def _tolerance_of(program: Any) -> float:
    """The relative rounding error of a loss, by the least precise dtype that it computes with."""
    eps = [float(jnp.finfo(dtype).eps) for dtype in _types(program.jaxpr)]
    return min(max(2000 * max(eps, default=0.0), 1e-8), HALF_PRECISION)


def _types(program: Any) -> set[Any]:
    found = set()
    for equation in program.eqns:
        dtypes = [getattr(var.aval, "dtype", None) for var in equation.outvars]
        found |= {dtype for dtype in dtypes if dtype is not None and jnp.issubdtype(dtype, jnp.floating)}
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    found |= _types(inner)
    return found


def _rows_to_represent(sample: Sample, loss: str) -> Tree:
    """Rows of different outer examples, as a step represents them together."""
    index = jnp.asarray(np.unique(sample.places[0].outer)[:4])
    if loss == "outer":
        return sample.problem.outer_batch(index).data
    sets = sample.problem.inner_sets(index)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), sets.rows)


def _dependent(loss: Loss) -> Finding:
    message = (
        "is not a mean over the rows of its batch: what a row adds depends on the other rows. Its mean over batches "
        "is then not the loss on all data, and another batch size or order is another problem. Usual causes: batch "
        "normalization with the statistics of the batch, negatives taken from the batch, weights divided by their sum "
        "in the batch, a root or logarithm of a mean."
    )
    return Finding("warning", loss.name, message)


def _placed(loss: Loss) -> Finding:
    message = (
        "changes when the rows of its batch change places. A usual cause is dropout, or other noise, with a key that "
        "never changes: the same places are dropped in every step. Let the loss have a parameter `key`, which "
        "is another one for each batch."
    )
    return Finding("warning", loss.name, message)


def _no_mean(loss: Loss, once: OnBatch, twice: OnBatch, size: int) -> Finding:
    """How a loss that is not a mean grows with its batch, for the message."""
    growth = float(once.shared @ twice.shared / max(once.shared @ once.shared, np.finfo(float).tiny))
    # where the values agree, a derivative does not
    entry = 0 if once.shared[0] != twice.shared[0] else int(np.argmax(np.abs(once.shared - twice.shared)))
    of = "" if entry == 0 else " as a derivative"
    shown = f"{once.shared[entry]:.6g}{of}, the same rows twice {twice.shared[entry]:.6g}"
    given = f"{size} rows give {shown}" if size > 1 else f"one row gives {shown}"
    if abs(growth - 2) < 0.01:
        kind = "It is a sum over rows: use jnp.mean, or divide by the number of rows of the batch"
    elif 1 < growth < 2:
        kind = (
            "It looks like a sum over rows beside a term without rows (a penalty), whose weight then depends on the "
            "batch size: use jnp.mean for the part over rows"
        )
    else:
        kind = "Let it return the mean over the rows of the batch, whatever their number"
    return Finding("error", loss.name, f"is not a mean over the rows of its batch: {given}. {kind}.")
