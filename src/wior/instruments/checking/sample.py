"""Some real batches of a problem, and its losses as functions of them.

The rows of streamed data are gathered once, a few hundred of them, and stand in the problem in place of the source. So
everything that looks at batches works in the same way for data on the device and for data on the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.problems import Batch, Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax
from wior.problems.movement import two_batches
from wior.problems.per_example import at_rows, without_rows
from wior.problems.problem import LARGEST
from wior.problems.restated import restated
from wior.streaming.gathered import Gathered

Tree = Any

ROWS = 512  # of each level, where a batch is not larger
MOST_BATCHES = 64
MOST_ROWS = 2**20  # of resident data that are looked at one batch after another
BYTES = 2**28  # of streamed rows in memory


class AtHand(NamedTuple):
    """A problem with data on the device, and the rows of it that batches can be drawn from."""

    problem: Any
    posed: Any  # the same as `two_losses` takes it: a compositional problem restated with g = ½‖y − r(x)‖²
    rows: dict[str, np.ndarray]  # for each level the places of rows, in random order
    numbers: dict[str, np.ndarray | None]  # of streamed levels the number of the row at each place


class Place(NamedTuple):
    """One batch of each level.

    In a conditional problem `inner` are rows of the inner set of the first outer example.
    """

    outer: np.ndarray
    inner: np.ndarray


class Loss(NamedTuple):
    """A loss of a problem: `value(problem, point, y, rows)`, where the point is what the loss sees of x."""

    name: str  # the problem's argument
    level: str  # the level whose batch it is called with
    data: str  # the argument that the batch is taken from
    value: Callable[[Any, Tree, Tree, Tree], Tree]
    sees_rows: bool  # whether it receives the `PerExample` rows of its batch

    def point(self, x: Tree, batch: Batch) -> Tree:
        # in a conditional problem, the rows of the outer example that a batch belongs to
        return at_rows(x, getattr(batch, "of", batch.examples)) if self.sees_rows else without_rows(x)

    def answer(self, y: Tree, batch: Batch) -> Tree:
        """What the loss sees of y: all of it, or the rows of its batch."""
        return at_rows(y, batch.examples)

    def batch(self, problem: Any, outer: jax.Array, inner: jax.Array) -> Batch:
        return two_batches(problem, outer, inner)[0 if self.level == "outer" else 1]


def losses_of(problem: Any) -> tuple[Loss, ...]:
    """Every loss of a problem. Those of a conditional problem include the representation that they see x through."""
    if isinstance(problem, Minimax):
        objective = lambda p, x, y, b: p.objective(x, y, b)
        own = (Loss("objective", "outer", "data", objective, True),)
        return (
            own
            if problem.ascent_data is None
            else (*own, Loss("objective on ascent_data", "inner", "ascent_data", objective, True))
        )
    if isinstance(problem, Bilevel):
        f, g = lambda p, x, y, b: p.outer(x, y, b), lambda p, x, y, b: p.inner(x, y, b)
    elif isinstance(problem, (Compositional, ConditionalCompositional)):
        f, g = lambda p, x, y, b: p.outer(y, b), lambda p, x, y, b: p.inner(x, b)
    else:
        f = lambda p, x, y, b: p.outer(x if p.represent_outer is None else p.represent_outer(x, b), y, b)
        g = lambda p, x, y, b: p.inner(x if p.represent is None else p.represent(x, b), y, b)
    return Loss("outer", "outer", "outer_data", f, problem.conditional), Loss("inner", "inner", "inner_data", g, True)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Real batches of a problem, drawn at random from rows without NaN and infinity."""

    at_hand: AtHand
    batches: tuple[int, int]
    places: tuple[Place, ...]

    @property
    def problem(self) -> Any:
        return self.at_hand.problem

    @property
    def posed(self) -> Any:
        return self.at_hand.posed

    @property
    def conditional(self) -> bool:
        return self.problem.conditional

    def stacked(self) -> Place:
        """All places as one, with a first axis of places."""
        return Place(*(np.stack(each) for each in zip(*self.places, strict=True)))

    def all_places(self, loss: Loss) -> Iterator[Place]:
        """Places that go through all rows on the device, batch by batch of the level that the loss reads."""
        rows = self.at_hand.rows[loss.level if not self.conditional else "outer"]
        if self.conditional:
            for example in rows:
                yield Place(example[None], self.own_rows(example, self.problem.sizes()["inner"]))
            return
        size = self.batches[0 if loss.level == "outer" else 1]
        for first in range(0, len(rows), size):
            yield self.with_rows(loss, np.resize(rows[first : first + size], size))

    def with_rows(self, loss: Loss, rows: np.ndarray) -> Place:
        """The first place, with these rows in the batch that the loss reads."""
        return self.places[0]._replace(**{loss.level: rows})

    def own_rows(self, example: Any, size: int) -> np.ndarray:
        """The numbers of so many rows of the inner set of an outer example, without padding.

        Where the set has fewer rows, they are repeated.
        """
        problem = self.problem
        count = problem.sizes()["inner"]
        if problem.counts is not None:
            count = int(problem.counts[self.number("outer", example)])
        return np.arange(size, dtype=np.int32) % count

    def number(self, level: str, place: Any) -> int:
        """The number that a row on the device has in the data."""
        numbers = self.at_hand.numbers[level]
        return int(place if numbers is None else numbers[place])

    def row_name(self, loss: Loss, place: Place, row: Any) -> str:
        """What messages call a row of the batch of a loss."""
        if self.conditional and loss.level == "inner":
            return f"row {int(row)} of the inner set of example {self.number('outer', place.outer[0])}"
        return f"row {self.number(loss.level, row)} of {loss.data}"


def at_hand(problem: Any, batches: tuple[int, int], random: np.random.Generator) -> AtHand:
    """Gathers the rows of streamed data that are looked at; of other data all rows are on the device already."""
    sizes, streamed = problem.sizes(), problem.streamed()
    rows: dict[str, np.ndarray] = {}
    numbers: dict[str, np.ndarray | None] = {}
    gathered: dict[str, Gathered] = {}
    for level in [level for level in problem._read_by if level in sizes]:
        batch = batches[0 if level == "outer" else 1]
        if level not in streamed:
            rows[level], numbers[level] = _some(sizes[level], MOST_ROWS, random).astype(np.int32), None
            continue
        row_bytes = sum(leaf.row_bytes for leaf in jax.tree.leaves(streamed[level]))
        wanted = max(batch, min(max(ROWS, batch), BYTES // max(row_bytes, 1)))
        read = _some(sizes[level], wanted, random)
        rows[level], numbers[level] = np.arange(len(read), dtype=np.int32), read
        # past 2³¹ rows nothing looks at the numbers on the device
        known = jnp.asarray(read if sizes[level] <= LARGEST else np.zeros_like(read), jnp.int32)
        for name, data in streamed[level].items():
            gathered[name] = Gathered(_read(name, data, read), known, sizes[level])
    posed = restated(problem, Bilevel, ConditionalBilevel, Minimax)
    if gathered:
        problem, posed = problem.with_rows(gathered), posed.with_rows(gathered)
    return AtHand(problem, posed, rows, numbers)


def draw(found: AtHand, broken: dict[str, np.ndarray], batches: tuple[int, int]) -> Sample | None:
    """Batches of rows that are not `broken`; None where a level has no such row."""
    problem = found.problem
    whole = {level: rows[~broken[level][rows]] for level, rows in found.rows.items()}
    if not all(len(rows) for rows in whole.values()):
        return None
    found = found._replace(rows=whole)
    number = max(1, min(MOST_BATCHES, ROWS // max(batches)))
    outer = np.resize(whole["outer"], (number, batches[0]))
    if problem.conditional:
        sample, size = Sample(found, batches, ()), min(batches[1], problem.sizes()["inner"])
        owns = [sample.own_rows(examples[0], size) for examples in outer]
        # the first place is the one that rows are halved in: the set with most of them
        order = np.argsort([-len(np.unique(own)) for own in owns], kind="stable")
        outer, inner = outer[order], np.stack(owns)[order]
    else:
        inner = outer if len(problem.sizes()) == 1 else np.resize(whole["inner"], (number, batches[1]))
    return Sample(found, batches, tuple(Place(*each) for each in zip(outer, inner, strict=True)))


def _some(n: int, wanted: int, random: np.random.Generator) -> np.ndarray:
    """So many different numbers below n, in random order; all n where more are asked for."""
    if n <= max(wanted, MOST_ROWS):
        return random.permutation(n)[:wanted]
    return random.permutation(np.unique(random.integers(0, n, wanted)))


def _read(name: str, data: Tree, numbers: np.ndarray) -> Tree:
    """The rows of streamed data that have these numbers, on the device."""

    def one(path: Any, leaf: Any) -> Any:
        into = leaf.empty(len(numbers))
        leaf.read(numbers, into, f"{name}{jax.tree_util.keystr(path)}, read by check")
        return jax.tree.map(jnp.asarray, into)

    return jax.tree_util.tree_map_with_path(one, data)
