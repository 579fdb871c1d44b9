"""Wrong labels found by `LabelCleaner`, by cleanlab and by two simple rules, on real data with labels made wrong on
purpose.

Every contestant has the same rows, the same verified rows and the same class of model: the network that `LabelCleaner`
chooses by itself, trained by Adam where it is trained plainly. cleanlab gets probabilities of five-fold cross
validation, with the verified rows added to every training part. The small-loss rule is told the share of wrong labels.
Verified rows are drawn at random, after four of every class. A test accuracy is that of a plain model on the rows that
are kept and the verified rows.

    python benchmarks/cleaning.py --out FILE.jsonl [--sets digits,cancer,…] [--rates 0,0.1,0.3,0.45,0.6] [--noises
    uniform,pairs] [--seeds 5] [--data DIR] python benchmarks/cleaning.py --table FILE.jsonl

Runs that are in the file already are not made again. Needs cleanlab (pip install cleanlab), which the package does not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.cleaning import LabelCleaner
from wior.cleaning.models import Network, all_log_probabilities
from wior.cleaning.plain import drawn, trained
from wior.data import covtype, mnist
from wior.tasks.data_cleaning import auroc, corrupt

FOLDS = 5
ROWS_A_STEP, LEARNING_RATE = 64, 1e-3
PASSES, FEWEST_STEPS = 12, 2000
OF_EVERY_CLASS = 4  # verified rows: a class of which nothing is verified is never judged
RATES, NOISES = (0.0, 0.1, 0.3, 0.45, 0.6), ("uniform", "pairs")


class Sizes(NamedTuple):
    train: int
    verified: int
    test: int


class Rows(NamedTuple):
    features: np.ndarray
    labels: np.ndarray


def from_scikit_learn(name: str) -> Callable[[Path | None], Rows]:
    def load(folder: Path | None) -> Rows:
        import sklearn.datasets

        return Rows(*getattr(sklearn.datasets, f"load_{name}")(return_X_y=True))

    return load


def load_mnist(folder: Path | None) -> Rows:
    rows = mnist(folder).train
    return Rows(rows.features.reshape(len(rows.labels), -1), rows.labels)


SETS: dict[str, tuple[Callable[[Path | None], Rows], Sizes]] = {
    "digits": (from_scikit_learn("digits"), Sizes(1297, 100, 400)),
    "cancer": (from_scikit_learn("breast_cancer"), Sizes(400, 30, 139)),
    "wine": (from_scikit_learn("wine"), Sizes(110, 20, 48)),
    "covtype": (lambda folder: Rows(*covtype(folder)), Sizes(20000, 200, 10000)),
    "mnist": (load_mnist, Sizes(20000, 200, 10000)),
}


def plain(network: Network, rows: Rows, kept: np.ndarray, seed: int) -> Any:
    """A network trained by Adam on the rows at the places `kept`; one program whatever their number."""
    steps = max(FEWEST_STEPS, PASSES * len(rows.labels) // ROWS_A_STEP)
    batches = drawn(kept, steps, ROWS_A_STEP, seed)
    numbers = (jnp.float32(1 / len(kept)), jnp.float32(LEARNING_RATE))
    return trained(
        network, network.init(seed), (jnp.asarray(rows.features),), jnp.asarray(rows.labels), batches, *numbers
    )


def found(scores: np.ndarray, flagged: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Detection: positives are wrong labels."""
    hits = int((flagged & wrong).sum())
    return {
        "auroc": float(auroc(jnp.asarray(scores, jnp.float32), jnp.asarray(~wrong))) if wrong.any() else float("nan"),
        "f1": 2 * hits / max(int(flagged.sum() + wrong.sum()), 1),
        "flagged": float(flagged.mean()),
    }


def split(labels: np.ndarray, sizes: Sizes, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of training, verified and test rows at random, but that every class has some verified rows."""
    order = np.random.default_rng(seed).permutation(len(labels))
    first = np.concatenate([order[labels[order] == label][:OF_EVERY_CLASS] for label in np.unique(labels)])
    others = order[~np.isin(order, first)]
    more, train, test, _ = np.split(others, np.cumsum([sizes.verified - len(first), sizes.train, sizes.test]))
    return train, np.concatenate([first, more]), test


def measure(name: str, noise: str, rate: float, seed: int, folder: Path | None) -> dict[str, Any]:
    load, sizes = SETS[name]
    features, labels = load(folder)
    features = np.asarray(features, np.float32)
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int32)
    classes = int(labels.max()) + 1
    train, verified, test = split(labels, sizes, seed)
    made = corrupt(labels[train], rate, classes, noise, seed + 1)

    begun = time.perf_counter()
    cleaner = LabelCleaner(random_state=seed).fit(features[train], made.labels, features[verified], labels[verified])
    seconds = time.perf_counter() - begun

    # training rows first, then the verified ones, whose labels are right
    rows = Rows(np.concatenate([features[train], features[verified]]), np.concatenate([made.labels, labels[verified]]))
    known = np.arange(sizes.train, sizes.train + sizes.verified)
    network = cleaner.model_
    given = np.arange(sizes.train), made.labels
    says = lambda params: np.exp(all_log_probabilities(network, params, features[train]))
    accuracy = lambda params: float(
        np.mean(all_log_probabilities(network, params, features[test]).argmax(1) == labels[test])
    )
    with_known = lambda places: np.concatenate([places, known])
    everything = plain(network, rows, np.arange(len(rows.labels)), seed)
    verified_alone = plain(network, rows, known, seed)

    begun = time.perf_counter()
    out_of_fold = np.zeros((sizes.train, classes), np.float64)
    parts = np.random.default_rng(seed).permutation(sizes.train) % FOLDS
    for fold in range(FOLDS):
        params = plain(network, rows, with_known(np.flatnonzero(parts != fold)), seed)
        held = np.flatnonzero(parts == fold)
        out_of_fold[held] = np.exp(all_log_probabilities(network, params, features[train][held]))
    out_of_fold /= out_of_fold.sum(1, keepdims=True)
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issues = np.asarray(find_label_issues(made.labels, out_of_fold, n_jobs=1), bool)
        quality = get_label_quality_scores(made.labels, out_of_fold)
    cleanlab_seconds = time.perf_counter() - begun

    in_sample = says(everything)[given]
    small_loss = np.zeros(sizes.train, bool)
    small_loss[np.argsort(in_sample)[: int(made.wrong.sum())]] = True
    by_verified = says(verified_alone)
    flagged = cleaner.flagged_
    repaired = Rows(rows.features, rows.labels.copy())
    repaired.labels[: sizes.train][flagged] = cleaner.suggested_labels_[flagged]
    kept = lambda flags: accuracy(plain(network, rows, with_known(np.flatnonzero(~flags)), seed))
    return {
        "set": name, "noise": noise, "rate": rate, "seed": seed,
        "found": {
            "wior": found(cleaner.scores_, flagged, made.wrong),
            "cleanlab": found(quality, issues, made.wrong),
            "small loss": found(in_sample, small_loss, made.wrong),
            "verified alone": found(by_verified[given], by_verified.argmax(1) != made.labels, made.wrong),
        },
        "accuracy": {
            "wior, kept": kept(flagged),
            "wior, relabeled": accuracy(plain(network, repaired, np.arange(len(rows.labels)), seed)),
            "wior, its own model": float(np.mean(cleaner.predict(features[test]) == labels[test])),
            "cleanlab, kept": kept(issues),
            "everything": accuracy(everything),
            "verified alone": accuracy(verified_alone),
            "oracle": kept(made.wrong),
        },
        "choice": cleaner.choice_,
        "seconds": {"wior": seconds, "cleanlab": cleanlab_seconds},
        "device": jax.devices()[0].device_kind,
    }  # fmt: skip


def tables(lines: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown: detection, then accuracy."""
    finders, accuracies = list(lines[0]["found"]), list(lines[0]["accuracy"])
    detect = ["| set | noise | rate | seeds | " + " | ".join(f"{f}: AUROC, F1" for f in finders) + " |"]
    learn = ["| set | noise | rate | " + " | ".join(accuracies) + " |"]
    detect += ["|" + " --- |" * (4 + len(finders))]
    learn += ["|" + " --- |" * (3 + len(accuracies))]
    for (name, noise, rate), group in grouped(lines).items():
        mean = lambda key, who, group=group: float(np.mean([line["found"][who][key] for line in group]))
        cells = [
            f"{mean('flagged', who):.1%} flagged" if rate == 0 else f"{mean('auroc', who):.3f}, {mean('f1', who):.3f}"
            for who in finders
        ]
        kind = "none" if rate == 0 else noise
        detect.append(f"| {name} | {kind} | {rate:g} | {len(group)} | " + " | ".join(cells) + " |")
        values = [
            f"{np.mean([line['accuracy'][who] for line in group]):.3f}"
            + (f" ± {np.std([line['accuracy'][who] for line in group], ddof=1):.3f}" if len(group) > 1 else "")
            for who in accuracies
        ]
        learn.append(f"| {name} | {kind} | {rate:g} | " + " | ".join(values) + " |")
    return "\n".join(detect) + "\n\n" + "\n".join(learn)


def grouped(lines: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["set"], line["noise"], line["rate"]), []).append(line)
    places = {name: at for at, name in enumerate(SETS)}
    return dict(sorted(groups.items(), key=lambda item: (places[item[0][0]], item[0][1], item[0][2])))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--noises", default=",".join(NOISES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    if options.table:
        print(tables(read(options.table)))
        return
    if not options.out:
        parser.error("give --out FILE.jsonl or --table FILE.jsonl")
    done = {(line["set"], line["noise"], line["rate"], line["seed"]) for line in read(options.out)}
    rates = [float(rate) for rate in options.rates.split(",")]
    wanted = itertools.product(options.sets.split(","), options.noises.split(","), rates, range(options.seeds))
    for run in wanted:
        if run in done or (run[2] == 0 and run[1] != NOISES[0]):  # nothing wrong is nothing wrong in either way
            continue
        line = measure(*run, options.data)
        with options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = {who: f"{value['auroc']:.3f}/{value['f1']:.3f}" for who, value in line["found"].items()}
        print(*run, shown, {who: round(value, 3) for who, value in line["accuracy"].items()}, line["seconds"], file=sys.stderr, flush=True)  # fmt: skip
    print(tables(read(options.out)))


if __name__ == "__main__":
    main()
