"""Seconds of `LabelCleaner` against cleanlab's, with five folds of a network on the same table, in one run.

    python benchmarks/cleaning_speed.py [--data DIR] [--scikit-learn]

10,000 rows of MNIST (784 columns) and 100,000 made-up rows of 50 columns; 30% of the labels are wrong, 200 rows are
verified. Beside the seconds that pass are those of the processors, which say more on a machine with other work. All
compile their programs anew but where it is said. cleanlab's probabilities come from

- the same network as the cleaner's, trained by the same loop for as many steps (12 passes, at most 6000 steps of 64),
  compiled before and with compilation;
- the same for 12 passes, however many steps that takes;
- with `--scikit-learn` its MLPClassifier of the same layers as it comes, which takes minutes: one fold, times five.

Needs cleanlab.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wior.cleaning import LabelCleaner
from wior.cleaning.models import Network
from wior.cleaning.opinions.taught import BATCH, PASSES, TaughtNetwork
from wior.data import mnist
from wior.tasks.data_cleaning import corrupt

FOLDS, VERIFIED, RATE = 5, 200, 0.3


def tables(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rows = mnist(folder).train
    some = np.random.default_rng(0).permutation(len(rows.labels))[:10_000]
    rng = np.random.default_rng(1)
    wide, weights = rng.normal(size=(100_000, 50)).astype(np.float32), rng.normal(size=(50, 5))
    labels = (np.tanh(wide @ weights) + 0.3 * rng.gumbel(size=(100_000, 5))).argmax(1)
    features = rows.features.reshape(len(rows.labels), -1)[some].astype(np.float32)
    return {"10,000 x 784": (features, rows.labels[some].astype(int)), "100,000 x 50": (wide, labels)}


class Table(NamedTuple):
    features: np.ndarray
    given: np.ndarray
    known: np.ndarray  # right labels, nan where nobody looked
    hidden: tuple[int, ...]


class Taken(NamedTuple):
    seconds: float
    of_processors: float

    def times(self, number: float) -> Taken:
        return Taken(self.seconds * number, self.of_processors * number)


def timed(what: Callable[[], Any]) -> Taken:
    passed, processors = time.perf_counter(), time.process_time()
    what()
    return Taken(time.perf_counter() - passed, time.process_time() - processors)


def learned(table: Table, effort: str) -> None:
    LabelCleaner(effort=effort, hidden=table.hidden).fit(table.features, table.given, y_verified=table.known)


def cleanlab(table: Table, capped: bool = True) -> None:
    """Five folds of the network, and what cleanlab makes of their probabilities."""
    from cleanlab.filter import find_label_issues

    features, given = table.features, table.given
    classes = int(given.max()) + 1
    network = TaughtNetwork.of(Network.standardizing(features, table.hidden, classes), features)
    if not capped:
        network = dataclasses.replace(network, steps=max(network.steps, PASSES * len(given) // BATCH))
    parts = np.random.default_rng(0).permutation(len(given)) % FOLDS
    out_of_fold = np.zeros((len(given), classes))
    for fold in range(FOLDS):
        says = network.taught_by(np.flatnonzero(parts != fold), given, fold)
        out_of_fold[parts == fold] = np.exp(says(features[parts == fold]))
    find_label_issues(given, out_of_fold / out_of_fold.sum(1, keepdims=True), n_jobs=1)


def fold_of_scikit_learn(table: Table) -> None:
    model = make_pipeline(StandardScaler(), MLPClassifier(table.hidden, random_state=0))
    own = np.random.default_rng(0).permutation(len(table.given)) % FOLDS > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table.features[own], table.given[own]).predict_proba(table.features[~own])


def contestants(table: Table, with_scikit_learn: bool) -> Iterator[tuple[str, Taken]]:
    for name, effort in (("wior", "usual"), ("wior `--fast`", "fast")):
        jax.clear_caches()
        yield name, timed(lambda effort=effort: learned(table, effort))
    for name, capped in (("cleanlab, 12 passes, however many steps", False), ("cleanlab, the same network", True)):
        jax.clear_caches()
        yield name, timed(lambda capped=capped: cleanlab(table, capped))
    yield "cleanlab, the same network, compiled before", timed(lambda: cleanlab(table))
    if with_scikit_learn:
        yield "cleanlab, MLPClassifier of scikit-learn", timed(lambda: fold_of_scikit_learn(table)).times(FOLDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WIOR_DATA", "../shared/data")))
    parser.add_argument("--scikit-learn", action="store_true")
    options = parser.parse_args()
    print("| table | who | seconds | wior takes as long, times | of the processors | times |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (features, right) in tables(options.data).items():
        given = np.asarray(corrupt(right, RATE, int(right.max()) + 1, "uniform", 0).labels)
        known = np.full(len(right), np.nan)
        places = np.random.default_rng(2).permutation(len(right))[:VERIFIED]
        known[places] = right[places]
        table = Table(features, given, known, (256, 128) if features.shape[1] >= 200 else (128,))
        ours = None
        for who, taken in contestants(table, options.scikit_learn):
            ours = ours or taken
            ratios = ours.seconds / taken.seconds, ours.of_processors / taken.of_processors
            print(
                f"| {name} | {who} | {taken.seconds:.1f} | {ratios[0]:.2f} | {taken.of_processors:.1f} | "
                f"{ratios[1]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
