"""Small test problems of every class, none of them symmetric: p ≠ d, m ≠ n, x and y nested trees, nothing quadratic.

`CASES` maps a name to a function that builds the problem, an algorithm for it, a start and batch sizes. The losses are
written on the joined leaves (`flat`), so that a test can differentiate them densely as functions of two vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import wior
from wior.algorithms import Algorithm
from wior.problems import Problem

P, D, M, N = 4, 5, 6, 9  # lengths of x and y, numbers of outer and inner examples
N_SETS = 4  # inner examples of each outer one
COUNTS = np.array([4, 2, 3, 1, 4, 3])


class Case(NamedTuple):
    problem: Problem
    algorithm: Algorithm
    x0: Any
    y0: Any
    batch_size: Any = (2, 4)


def start() -> tuple[Any, Any]:
    """x and y as nested trees, away from zero."""
    rng = np.random.default_rng(1)
    x = {"w": jnp.asarray(rng.normal(size=3)), "deep": (jnp.asarray(0.4, float),)}
    y = ({"v": jnp.asarray(rng.normal(size=(2, 1)))}, [jnp.asarray(rng.normal(size=3))])
    return x, y


def flat(values: Any) -> jax.Array:
    return ravel_pytree(values)[0]


def like_y(vector: jax.Array) -> Any:
    return ravel_pytree(start()[1])[1](vector)


def rows(seed: int, *lead: int) -> dict[str, jax.Array]:
    """Examples for either level: a vector for y, one for x, and a number."""
    rng = np.random.default_rng(seed)
    return {
        "for_y": jnp.asarray(rng.normal(size=(*lead, D))),
        "for_x": jnp.asarray(rng.normal(size=(*lead, P))),
        "target": jnp.asarray(rng.normal(size=lead)),
    }


def outer(x: Any, y: Any, batch: Any) -> jax.Array:
    error = batch["for_y"] @ flat(y) - jnp.sin(batch["for_x"] @ flat(x)) - batch["target"]
    return jnp.mean(jnp.sqrt(1 + error**2)) + 0.1 * flat(x) @ flat(x)


def inner(x: Any, y: Any, batch: Any) -> jax.Array:
    from_x, from_y = batch["for_x"] @ flat(x), batch["for_y"] @ flat(y)
    return jnp.mean(jax.nn.softplus(from_y + jnp.tanh(from_x)) + 0.3 * from_x * from_y) + 0.5 * flat(y) @ flat(y)


def objective(x: Any, y: Any, batch: Any) -> jax.Array:
    return outer(x, jax.tree.map(jnp.zeros_like, y), batch) - inner(x, y, batch)


def outer_of_y(y: Any, batch: Any) -> jax.Array:
    return jnp.mean(jnp.sqrt(1 + (batch["for_y"] @ flat(y) - batch["target"]) ** 2))


def inner_map(x: Any, batch: Any) -> Any:
    """r(x; ζ), a tree like y; a mean over the rows like a loss."""
    value = jnp.mean(jnp.tanh(batch["for_x"] @ flat(x))[:, None] * batch["for_y"] + batch["target"][:, None], 0)
    return like_y(value)


# With one weight for each inner example in x["rows"]; only inner sees them.


def outer_beside_rows(x: Any, y: Any, batch: Any) -> jax.Array:
    return outer(x["shared"], y, batch)


def inner_with_rows(x: Any, y: Any, batch: Any) -> jax.Array:
    from_x, from_y = batch["for_x"] @ flat(x["shared"]), batch["for_y"] @ flat(y)
    each = jax.nn.softplus(from_y + jnp.tanh(from_x)) + 0.3 * from_x * from_y
    return jnp.mean(jax.nn.sigmoid(x["rows"]) * each) + 0.5 * flat(y) @ flat(y)


def objective_with_rows(x: Any, y: Any, batch: Any) -> jax.Array:
    return 0.1 * flat(x["shared"]) @ flat(x["shared"]) - inner_with_rows(x, y, batch)


def inner_map_with_rows(x: Any, batch: Any) -> Any:
    from_x = jnp.tanh(batch["for_x"] @ flat(x["shared"])) * x["rows"]
    return like_y(jnp.mean(from_x[:, None] * batch["for_y"], 0))


def with_rows(x: Any, n: int) -> dict[str, Any]:
    return {"shared": x, "rows": wior.PerExample(jnp.asarray(np.random.default_rng(2).normal(size=n)))}


# With a representation of the rows: both losses see x through two features of a row.


def represent(x: Any, batch: Any) -> dict[str, jax.Array]:
    from_x = batch["for_x"] @ flat(x)
    return {"sine": jnp.sin(from_x), "both": jnp.tanh(from_x)[:, None] * batch["for_y"][:, :2]}


def outer_of_features(features: Any, y: Any, batch: Any) -> jax.Array:
    error = batch["for_y"] @ flat(y) - features["sine"] - features["both"].sum(1)
    return jnp.mean(jnp.sqrt(1 + error**2))


def inner_of_features(features: Any, y: Any, batch: Any) -> jax.Array:
    from_y = batch["for_y"] @ flat(y)
    each = jax.nn.softplus(from_y + features["sine"]) + features["both"] @ flat(y)[:2]
    return jnp.mean(each) + 0.5 * flat(y) @ flat(y)


def bilevel() -> Case:
    problem = wior.Bilevel(outer, inner, rows(3, M), rows(4, N))
    return Case(problem, wior.WiORBO(0.05, 0.1, 0.1), *start())


def bilevel_drawn_separately() -> Case:
    return bilevel()._replace(algorithm=wior.baselines.WiRBO(0.05, 0.1, 0.1))


def bilevel_per_example() -> Case:
    problem = wior.Bilevel(outer_beside_rows, inner_with_rows, rows(3, M), rows(4, N))
    x, y = start()
    return Case(problem, wior.WiORBO(0.05, 0.1, 0.1), with_rows(x, N), y)


def minimax() -> Case:
    return Case(wior.Minimax(objective, rows(5, M)), wior.WiORMinimax(0.05, 0.1), *start(), batch_size=4)


def minimax_per_example() -> Case:
    x, y = start()
    problem = wior.Minimax(objective_with_rows, rows(5, M))
    return Case(problem, wior.WiORMinimax(0.05, 0.1), with_rows(x, M), y, batch_size=4)


def compositional() -> Case:
    problem = wior.Compositional(outer_of_y, inner_map, rows(3, M), rows(4, N))
    return Case(problem, wior.WiORComp(0.05, 0.1, 0.1), *start())


def compositional_per_example() -> Case:
    x, y = start()
    problem = wior.Compositional(outer_of_y, inner_map_with_rows, rows(3, M), rows(4, N))
    return Case(problem, wior.WiORComp(0.05, 0.1, 0.1), with_rows(x, N), y)


def conditional_bilevel() -> Case:
    problem = wior.ConditionalBilevel(outer, inner, rows(3, M), rows(4, M, N_SETS))
    return Case(problem, wior.WiORCBO(0.05, 0.1, 0.1, inner_epochs=2), *start(), batch_size=(2, 3))


def conditional_bilevel_ragged() -> Case:
    problem = wior.ConditionalBilevel(outer, inner, rows(3, M), rows(4, M, N_SETS), COUNTS)
    return conditional_bilevel()._replace(problem=problem)


def conditional_bilevel_represented() -> Case:
    problem = wior.ConditionalBilevel(
        outer_of_features,
        inner_of_features,
        rows(3, M),
        rows(4, M, N_SETS),
        COUNTS,
        represent=represent,
        represent_outer=represent,
    )
    return conditional_bilevel()._replace(problem=problem)


def conditional_compositional() -> Case:
    problem = wior.ConditionalCompositional(outer_of_y, inner_map, rows(3, M), rows(4, M, N_SETS))
    return Case(problem, wior.WiORCComp(0.05, 0.1, 0.1, inner_epochs=2), *start(), batch_size=(2, 3))


def conditional_compositional_ragged() -> Case:
    problem = wior.ConditionalCompositional(outer_of_y, inner_map, rows(3, M), rows(4, M, N_SETS), COUNTS)
    return conditional_compositional()._replace(problem=problem)


CASES: dict[str, Callable[[], Case]] = {
    "bilevel": bilevel,
    "bilevel, drawn separately": bilevel_drawn_separately,
    "bilevel, per example": bilevel_per_example,
    "minimax": minimax,
    "minimax, per example": minimax_per_example,
    "compositional": compositional,
    "compositional, per example": compositional_per_example,
    "conditional bilevel": conditional_bilevel,
    "conditional bilevel, ragged": conditional_bilevel_ragged,
    "conditional bilevel, represented": conditional_bilevel_represented,
    "conditional compositional": conditional_compositional,
    "conditional compositional, ragged": conditional_compositional_ragged,
}
