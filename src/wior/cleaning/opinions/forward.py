"""A network of the right labels that learns from all given labels, right or wrong, under forward correction.

    mean over rows of −log Σ_c p(c; row) T[c, given]  +  λ · mean over verified rows of −log p(right; row)
        − (1 / rows) Σ over pairs of log T[right, given]  +  (L2 / 2) ‖weights‖²

T, the table of which class is labeled how, begins with the pairs and is learned with the network (Patrini et al. 2017;
Hendrycks et al. 2018, who keep T). A part of the rows is judged by a network of the other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from wior.cleaning import plain
from wior.cleaning.models import all_log_probabilities
from wior.cleaning.opinions.rows import Rows
from wior.cleaning.opinions.table import tables
from wior.cleaning.opinions.taught import TaughtNetwork
from wior.cleaning.opinions.threads import part_by_part
from wior.tasks.networks import label_losses, squares

Tree = Any
Notify = Callable[[str], None]

BATCH, KNOWN_BATCH, LEARNING_RATE = 64, 16, 1e-3
SHARE = 0.1  # λ
PENALTY = 10.0  # over the number of rows: L2
LEAST = 1e-4  # of T at the start


class Learned(NamedTuple):
    """What a network learns from, beside its batches."""

    features: jax.Array
    given: jax.Array
    right: jax.Array
    pairs: jax.Array  # (classes, classes) over the number of rows
    l2: jax.Array


class Batches(NamedTuple):
    """Places of rows, a batch for each step."""

    rows: jax.Array
    known: jax.Array


def of_forward(
    learner: TaughtNetwork, rows: Rows, counts: np.ndarray, seed: int, notify: Notify
) -> Iterator[np.ndarray]:
    """For every part in turn log p (k, classes) of its rows; `counts` are those of pairs, as in `tables`."""
    model, given, right = learner.model, jnp.asarray(rows.given), jnp.asarray(rows.right)
    from_pairs = tables(rows, counts)

    def of_part(part: int) -> np.ndarray:
        notify(f"network under forward correction, part {part + 1} of {rows.count_of_parts}")
        others = rows.parts != part
        places = np.flatnonzero(others & rows.in_table & ~rows.known)
        batches = Batches(
            plain.drawn(places, learner.steps, BATCH, seed + part),
            plain.drawn(np.flatnonzero(others & rows.known), learner.steps, KNOWN_BATCH, seed + part),
        )
        pairs = jnp.asarray(counts[part] / len(places), jnp.float32)
        start = (model.init(seed + part), jnp.log(jnp.asarray(from_pairs[part], jnp.float32) + LEAST))
        learned = Learned(learner.features, given, right, pairs, jnp.float32(PENALTY / len(places)))
        params = trained(model, start, learned, batches)[0]
        return all_log_probabilities(model, params, rows.features[rows.parts == part])

    return part_by_part(of_part, rows.count_of_parts, learner.at_once)


def compile_forward(learner: TaughtNetwork, rows: Rows) -> None:
    """Compiles what `of_forward` runs."""
    shape: Any = jax.ShapeDtypeStruct
    number, labels = shape((), jnp.float32), shape(rows.given.shape, jnp.int32)
    table = shape((rows.classes, rows.classes), jnp.float32)
    batches = Batches(*(shape((learner.steps, batch), jnp.int32) for batch in (BATCH, KNOWN_BATCH)))
    learned = Learned(learner.features, labels, labels, table, number)
    trained.lower(learner.model, (learner.model.init(0), table), learned, batches).compile()
    learner.compile_says()


def loss(model: Any, numbers: tuple[Tree, jax.Array], learned: Learned, batch: Batches) -> jax.Array:
    """Of parameters and of T, whose rows are softmaxes; `batch` are the places of one step."""
    params, x = numbers
    log_t = jax.nn.log_softmax(x, -1)
    logs = jax.nn.log_softmax(model.logits(params, learned.features[batch.rows]))
    corrected = -jnp.mean(jax.nn.logsumexp(logs + log_t.T[learned.given[batch.rows]], -1))
    known = label_losses(model.logits(params, learned.features[batch.known]), learned.right[batch.known])
    of_table = -jnp.sum(learned.pairs * log_t)
    return corrected + SHARE * jnp.mean(known) + of_table + learned.l2 / 2 * squares(params)


@jax.jit
def trained(model: Any, start: tuple[Tree, jax.Array], learned: Learned, batches: Batches) -> tuple[Tree, jax.Array]:
    """The parameters and T as `loss` takes them, after a step of Adam on each of `batches`."""
    rule = optax.adam(LEARNING_RATE)

    def step(carry: tuple[Any, Any], batch: Batches) -> tuple[tuple[Any, Any], None]:
        numbers, state = carry
        slopes = jax.grad(loss, argnums=1)(model, numbers, learned, batch)
        updates, state = rule.update(slopes, state, numbers)
        return (optax.apply_updates(numbers, updates), state), None

    return jax.lax.scan(step, (start, rule.init(start)), batches)[0][0]
