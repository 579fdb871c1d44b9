"""A second opinion: plain models of the rows that were kept judge every label again.

A model that learns from wrong labels too, however well corrected, is not as good as one that learns from right ones. So
the rows are cut in parts, and each part is judged by models that are trained plainly on the kept rows of the others and
on verified rows. A fold of the verified rows is left out as well: the temperature at which the models are right about
it is theirs. Then the table of noise is estimated again, the rows are judged again, and other rows are kept in the next
round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from wior.cleaning import noise_model, plain
from wior.cleaning.designs import Material, likeliest_table
from wior.cleaning.models import all_log_probabilities, tempered
from wior.cleaning.opinions.discriminants import best_temperature
from wior.running.progress import Progress

Tree = Any
BATCH, LEARNING_RATE = 64, 1e-3
PASSES, FEWEST_STEPS, MOST_STEPS = 12, 2000, 4000
ROUNDS = 2
ESTIMATES = 3  # of the table in a round
LEAST = 1e-6  # probability of a class

Begin = Callable[[str, int], Progress]
Parts = list[tuple[np.ndarray, np.ndarray]]


class Opinion(NamedTuple):
    posterior: np.ndarray  # (rows, classes)
    table: np.ndarray  # (classes, classes)
    params: Tree  # of a model trained on all rows that are kept
    temperature: float


def steps_of(rows: int) -> int:
    return min(max(FEWEST_STEPS, PASSES * rows // BATCH), MOST_STEPS)


def members_of(rows: int) -> int:
    """Models that judge a part together."""
    return 3 if rows <= 5000 else 2


class Cuts(NamedTuple):
    """How the training rows and the verified rows are cut in a round, as (learned from, judged)."""

    parts: Callable[[int], Parts]
    folds: Callable[[int], Parts]


def second_opinion(
    material: Material, posterior: np.ndarray, table: np.ndarray, rounds: int, cuts: Cuts, begin: Begin
) -> Opinion:
    """The labels judged again, `rounds` times."""
    given = np.asarray(material.given)
    log_t = jnp.log(jnp.asarray(table, jnp.float32) + 1e-30)
    temperature = 1.0
    for number in range(rounds):
        kept = posterior[np.arange(len(given)), given] >= 0.5

        def told(part: int, number: int = number) -> Progress:
            return begin(f"second opinion, round {number + 1} of {rounds}, part {part + 1}", 1)

        in_this_round = material._replace(seed=material.seed + 101 * number)
        judgment = _judged(in_this_round, kept, cuts.parts(number), cuts.folds(number), told)
        temperature = judgment.temperature
        log_t = likeliest_table(judgment.logs, material.given, material.trusted, log_t, ESTIMATES)
        posterior = noise_model.posterior(judgment.logs, log_t, material.given)
    kept = posterior[np.arange(len(given)), given] >= 0.5
    everyone = np.arange(len(material.verified[1]))
    params = _learned(material, np.flatnonzero(kept), everyone, material.seed, begin("what is kept", 1))
    return Opinion(posterior, np.asarray(jnp.exp(log_t)), params, temperature)


class _Judgment(NamedTuple):
    logs: np.ndarray  # (rows, classes): log p by models that did not see the row
    temperature: float


def _judged(
    material: Material, kept: np.ndarray, parts: Parts, folds: Parts, told: Callable[[int], Progress]
) -> _Judgment:
    features, labels = material.verified
    members = members_of(len(kept))
    logs = np.zeros((members, len(kept), material.classes), np.float32)
    known, right = [], []
    for place, (rows, judged) in enumerate(parts):
        mine, held = folds[place % len(folds)]
        own = np.unique(rows)
        for member in range(members):
            seed = material.seed + 11 * place + member
            params = _learned(material, own[kept[own]], np.unique(mine), seed, told(place))
            logs[member, judged] = all_log_probabilities(material.model, params, material.features[judged])
            known.append(all_log_probabilities(material.model, params, features[held]))
            right.append(np.asarray(labels)[held])
    temperature, _ = best_temperature(np.concatenate(known), np.concatenate(right))
    together = np.exp(tempered(logs, temperature)).mean(0)
    return _Judgment(np.log(together + LEAST), temperature)


def _learned(material: Material, rows: np.ndarray, verified: np.ndarray, seed: int, report: Progress) -> Tree:
    places = np.concatenate([rows, len(material.given) + verified])
    batches = plain.drawn(places, steps_of(len(material.given)), BATCH, seed)
    labels = jnp.concatenate([material.given, material.verified[1]])
    params = plain.trained(
        material.model, material.model.init(seed), (material.features, material.verified[0]), labels, batches,
        jnp.float32(1 / len(places)), jnp.float32(LEARNING_RATE),
    )  # fmt: skip
    report(1, {})
    return params
