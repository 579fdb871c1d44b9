"""Seconds of `LabelCleaner` against cleanlab's: five folds of the same network on the same table, in one run.

    python benchmarks/cleaning_speed.py [--data DIR]

10,000 rows of MNIST (784 columns) and 100,000 made-up rows of 50 columns; 30% of the labels are wrong, 200 rows are
verified. The first fit of a program that is new to the process is timed with its compilation. Needs cleanlab.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from wior.cleaning import LabelCleaner
from wior.cleaning.models import Network
from wior.cleaning.opinions.taught import TaughtNetwork
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


def cleanlab_seconds(features: np.ndarray, given: np.ndarray, hidden: tuple[int, ...]) -> float:
    """Five folds of the network, and what cleanlab makes of their probabilities."""
    from cleanlab.filter import find_label_issues

    begun = time.perf_counter()
    classes = int(given.max()) + 1
    network = TaughtNetwork.of(Network.standardizing(features, hidden, classes), features)
    parts = np.random.default_rng(0).permutation(len(given)) % FOLDS
    out_of_fold = np.zeros((len(given), classes))
    for fold in range(FOLDS):
        says = network.taught_by(np.flatnonzero(parts != fold), given, fold)
        out_of_fold[parts == fold] = np.exp(says(features[parts == fold]))
    find_label_issues(given, out_of_fold / out_of_fold.sum(1, keepdims=True), n_jobs=1)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WIOR_DATA", "../shared/data")))
    print("| table | wior | wior, fast | cleanlab's five folds | ratio | ratio, fast |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (features, right) in tables(parser.parse_args().data).items():
        given = np.asarray(corrupt(right, RATE, int(right.max()) + 1, "uniform", 0).labels)
        known = np.full(len(right), np.nan)
        places = np.random.default_rng(2).permutation(len(right))[:VERIFIED]
        known[places] = right[places]
        hidden = (256, 128) if features.shape[1] >= 200 else (128,)
        seconds = {}
        for effort in ("usual", "fast"):
            begun = time.perf_counter()
            LabelCleaner(effort=effort, hidden=hidden).fit(features, given, y_verified=known)
            seconds[effort] = time.perf_counter() - begun
        theirs = cleanlab_seconds(features, given, hidden)
        print(
            f"| {name} | {seconds['usual']:.1f} s | {seconds['fast']:.1f} s | {theirs:.1f} s | "
            f"{seconds['usual'] / theirs:.2f} | {seconds['fast'] / theirs:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
