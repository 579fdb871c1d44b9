"""NaN and infinity in the data of a problem, and floating-point types that do not agree."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.instruments.checking.finding import Finding
from wior.instruments.checking.sample import AtHand
from wior.problems.per_example import is_per_example
from wior.streaming.gathered import Gathered

Tree = Any

NAMED = 5  # rows and leaves that a sentence names


class NotFinite(NamedTuple):
    """A leaf of the data that has NaN or infinity, and in which places."""

    name: str
    level: str
    places: np.ndarray
    nans: int
    infinities: int
    looked_at: int


def not_finite(found: AtHand) -> list[NotFinite]:
    """The leaves with NaN or infinity in the rows that are looked at.

    Padding past the counts of a conditional problem may hold anything, and is not looked at.
    """
    problem, seen = found.problem, []
    for level, names in problem._read_by.items():
        for name in names:
            data = getattr(problem, name)
            rows = data.rows if isinstance(data, Gathered) else data
            real = None
            if name == "inner_data" and problem.conditional and problem.counts is not None:
                counts = problem.counts[data.examples] if isinstance(data, Gathered) else problem.counts
                real = jnp.arange(problem.sizes()["inner"]) < counts[:, None]
            for path, leaf in jax.tree_util.tree_leaves_with_path(rows):
                if jnp.issubdtype(leaf.dtype, jnp.inexact):
                    bad, nans, infinities = _look_at(leaf, real)
                    if nans or infinities:
                        places = np.flatnonzero(bad)
                        whole_name = checks.path_name(name, path)
                        seen.append(NotFinite(whole_name, level, places, int(nans), int(infinities), len(leaf)))
    return seen


def broken_places(found: AtHand, seen: list[NotFinite]) -> dict[str, np.ndarray]:
    """For each level, which places have NaN or infinity in some leaf."""
    broken = {}
    for level in found.rows:
        data = getattr(found.problem, found.problem._read_by[level][0])
        broken[level] = np.zeros(len(jax.tree.leaves(data)[0]), bool)
        for leaf in seen:
            if leaf.level == level:
                broken[level][leaf.places] = True
    return broken


def data_findings(found: AtHand, seen: list[NotFinite], harmful: bool) -> list[Finding]:
    """A finding for each leaf with NaN or infinity; an error where a loss is not finite on such rows (`harmful`)."""
    findings = []
    for leaf in seen:
        numbers = found.numbers[leaf.level]
        rows = leaf.places if numbers is None else np.sort(numbers[leaf.places])
        of = "" if numbers is None else f" of the {leaf.looked_at} rows looked at"
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        kinds = [f"{count} {kind}" for count, kind in ((leaf.nans, "NaN"), (leaf.infinities, "infinite")) if count]
        effect = (
            "a loss or its derivative is not finite on such rows. Leave these rows out, fill the values, or mask them "
            "inside the loss"
            if harmful
            else "the losses stay finite on such rows"
        )
        message = (
            f"has values that are not finite ({', '.join(kinds)}) in row{'s' if len(rows) > 1 else ''} "
            f"{_listed(rows[:NAMED])}{more}{of}; {effect}."
        )
        findings.append(Finding("error" if harmful else "note", leaf.name, message))
    return findings


def rounded_leaves(name: str, given: Tree, used: Tree) -> list[Finding]:
    """A note for leaves of x0 or y0 that were given in float64 and are computed with in float32."""
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(given, is_leaf=is_per_example),
        jax.tree.leaves(used, is_leaf=is_per_example),
        strict=True,
    )
    lost = []
    for (path, leaf), own in pairs:
        leaf, own = (part.rows if is_per_example(part) else part for part in (leaf, own))
        before = getattr(leaf, "dtype", None)
        if before is not None and np.dtype(before).itemsize > own.dtype.itemsize:
            lost.append((checks.path_name(name, path), before, own.dtype))
    if not lost:
        return []
    names = _listed([one[0] for one in lost[:NAMED]]) + (f" and {len(lost) - NAMED} more" if len(lost) > NAMED else "")
    message = (
        f"is given in {lost[0][1]} and computed with in {lost[0][2]}, since JAX is set so. That is usual; if 16 digits "
        "are needed, set "
        'jax.config.update("jax_enable_x64", True) before anything else. To silence this, give float32.'
    )
    return [Finding("note", names, message)]


def type_findings(problem: Any, x: Tree, y: Tree, batches: tuple[int, int]) -> list[Finding]:
    """Losses that return fewer digits than y has, and data, x and y of different floating-point types."""
    findings = []
    own = jnp.result_type(*jax.tree.leaves(y))
    for name, (loss, arguments) in problem.loss_calls(x, y, batches).items():
        returned = {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(loss, *arguments))}
        for dtype in sorted(returned, key=str):
            if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < own.itemsize:
                message = (
                    f"returns {dtype}, and y0 is {own}: it is computed with fewer digits than y has. "
                    f"Look for a cast inside of it, or for data in {dtype}; or give y0 in {dtype}."
                )
                findings.append(Finding("warning", name, message))
    others: dict[str, list[str]] = {}
    data = problem.without_sources()
    for name, tree in [("x0", x), *((name, getattr(data, name)) for name in problem._data)]:
        rows = tree.rows if isinstance(tree, Gathered) else tree
        for path, leaf in jax.tree_util.tree_leaves_with_path(rows):
            # half precision beside float32 is a choice; of float32 beside float64 one is an oversight
            if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != own and leaf.dtype.itemsize >= 4:
                others.setdefault(str(leaf.dtype), []).append(checks.path_name(name, path))
    for dtype, names in others.items():
        listed = _listed(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        message = f"{'is' if len(names) == 1 else 'are'} {dtype}, and y0 is {own}: give all of them in one type."
        findings.append(Finding("note", listed, message))
    return findings


@jax.jit
def _look_at(leaf: jax.Array, real: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """For each row whether it is not finite, and how many NaN and infinities there are."""

    def within(values: jax.Array) -> jax.Array:
        return values if real is None else values & real.reshape(real.shape + (1,) * (leaf.ndim - 2))

    nans, infinities = within(jnp.isnan(leaf)), within(jnp.isinf(leaf))
    return jnp.any((nans | infinities).reshape(len(leaf), -1), 1), jnp.sum(nans), jnp.sum(infinities)


def _listed(values: Any) -> str:
    return ", ".join(str(value) for value in values)
