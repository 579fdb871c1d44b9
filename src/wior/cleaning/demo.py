"""`wior clean` without an argument: the embedded digits, with labels made wrong on purpose and a hundred verified rows.

Every class is confused with the next one, the systematic kind of error that is hard to see; what was found is held
against the truth.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from wior.cleaning.command import clean
from wior.cleaning.findings import Findings
from wior.cleaning.request import Request
from wior.cleaning.tables import Asked
from wior.data import Split, digits
from wior.data.arrays import write_arrays
from wior.saving.folders import CONFIG, SUMMARY
from wior.saving.whole import write_json
from wior.tasks.data_cleaning import auroc, corrupt

TRAIN_ROWS, VERIFIED_ROWS = 1297, 100
RATE, NOISE = 0.4, "pairs"
DATA_SEED = 0
TRAIN, VERIFIED = "train.npz", "verified.npz"


def demo(request: Request) -> dict[str, Any]:
    """The folder of `clean` on the demonstration data, with the data and how it did."""
    data = digits(DATA_SEED, TRAIN_ROWS, VERIFIED_ROWS)
    made = corrupt(data.train.labels, RATE, 10, NOISE, DATA_SEED)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for file, features, labels in (
            (TRAIN, data.train.features, made.labels),
            (VERIFIED, data.clean.features, data.clean.labels),
        ):
            pictures = np.round(features * 255).astype(np.uint8).reshape(-1, 8, 8)
            write_arrays(work / file, {"X": pictures, "y": labels})

        def complete(folder: Path, summary: dict[str, Any], found: Findings) -> None:
            for file in (TRAIN, VERIFIED):
                shutil.copyfile(work / file, folder / file)
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            write_json(folder / CONFIG, {**config, "train": TRAIN, "verified": VERIFIED})  # they lie beside it now
            summary["demo"] = against_the_truth(found, data, made.labels, made.wrong)
            summary["files"] = [TRAIN, VERIFIED, *summary["files"]]
            write_json(folder / SUMMARY, summary)

        return clean(dataclasses.replace(request, asked=Asked(work / TRAIN, verified=work / VERIFIED)), complete)


def against_the_truth(found: Findings, data: Split, given: np.ndarray, wrong: np.ndarray) -> dict[str, Any]:
    """How well the wrong labels were found, and what a model gains by it."""
    flagged = found.flagged
    repaired = np.where(flagged, np.array(found.classes, int)[found.suggested], given)
    hits = int((flagged & wrong).sum())
    precision, recall = hits / max(int(flagged.sum()), 1), hits / int(wrong.sum())
    features = data.train.features
    trained_on = {
        "all rows as they are": (features, given),
        "the verified rows alone": data.clean,
        "what is kept": (features[~flagged], given[~flagged]),
        "flagged rows relabeled": (features, repaired),
        "the right labels alone": (features[~wrong], given[~wrong]),
    }
    return {
        "rows": len(given),
        "wrong": int(wrong.sum()),
        "noise": NOISE,
        "rate": RATE,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(precision + recall, 1e-12),
        "auroc": float(auroc(jnp.asarray(found.scores, jnp.float32), jnp.asarray(~wrong))),
        "right_after_relabeling": float(np.mean(repaired == data.train.labels)),
        "test_rows": len(data.test.labels),
        "test_accuracy": {name: accuracy(rows, data.test) for name, rows in trained_on.items()},
    }


def accuracy(train: tuple[Any, Any], test: tuple[Any, Any], hidden: tuple[int, ...] = (64,), seed: int = 0) -> float:
    """On test rows, of a network that knows nothing of wrong labels."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(MLPClassifier(hidden, max_iter=100, random_state=seed).fit(*train).score(*test))
