"""Wrong labels that people made, found by `LabelCleaner` and by others, on the same features and verified rows.

5,000 news texts labeled by a crowd, and 6,000 CIFAR-10 pictures labeled by three people (CIFAR-10N: aggregate, random1,
worst); features are those that `wior clean` makes of texts and, without a network, of pictures. Verified rows are rows
of the table, drawn at random; what is measured is measured on all others. Plain models choose their penalty by the
given labels of held-out rows. cleanlab and small loss learn from the right labels of verified rows in place of the
given ones. Those that have no threshold of their own flag as many rows as the verified rows say are wrong.

    python benchmarks/human_noise.py --out FILE.jsonl [--sets news,worst,…] [--verified 100,200] [--draws 5] [--data DIR]
    python benchmarks/human_noise.py --ablation --out FILE.jsonl …   what each part adds
    python benchmarks/human_noise.py --curve --out FILE.jsonl …      what 0 to 400 verified rows buy, drawn or at random
    python benchmarks/human_noise.py --table FILE.jsonl

Runs that are in the file are not made again. Needs cleanlab (pip install cleanlab), which the package does not.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wior.cleaning import LabelCleaner, sampling
from wior.cleaning.features.pictures import ArrayPictures, picture_features
from wior.cleaning.features.text import TextFeatures

PICTURES = 6000
PENALTIES = (0.001, 0.01, 0.1, 1.0)  # C of logistic regression on standardized columns
FOLDS = 5
BINS = 10  # of the expected calibration error
SETS = ("news", "worst", "random1", "aggregate")


class Labeled(NamedTuple):
    features: np.ndarray
    given: np.ndarray
    right: np.ndarray


class Found(NamedTuple):
    """Of every row: how right its label seems, and whether it is flagged."""

    scores: np.ndarray
    flagged: np.ndarray


def news(folder: Path) -> Labeled:
    with (folder / "human_noise" / "ag_news_train.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [row["text"] for row in rows]
    names = sorted({row["truth"] for row in rows})
    codes = lambda column: np.array([names.index(row[column]) for row in rows])
    return Labeled(TextFeatures().fit(texts).transform(texts), codes("given"), codes("truth"))


def pictures(folder: Path, backbone: str) -> dict[str, Labeled]:
    with np.load(folder / "human_noise" / "cifar10n.npz") as file:
        data = {name: file[name] for name in file.files}
    ends = data["offsets"]
    decoded = [
        np.asarray(Image.open(io.BytesIO(data["jpeg"][ends[i] : ends[i + 1]].tobytes())).convert("RGB"))
        for i in range(PICTURES)
    ]
    features = picture_features(ArrayPictures(np.stack(decoded)), backbone).values
    right = data["clean"][:PICTURES].astype(int)
    return {name: Labeled(features, data[name][:PICTURES].astype(int), right) for name in SETS[1:]}


def load(folder: Path, sets: list[str], backbone: str) -> Iterator[tuple[str, Labeled]]:
    if "news" in sets:
        yield "news", news(folder)
    if any(name != "news" for name in sets):
        for name, rows in pictures(folder, backbone).items():
            if name in sets:
                yield name, rows


def drawn(rows: Labeled, count: int, draw: int) -> np.ndarray:
    return np.sort(np.random.default_rng(1000 + draw).permutation(len(rows.given))[:count])


# contestants


def logistic(penalty: float) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=200))


def best_penalty(rows: Labeled) -> float:
    """By the loss of given labels, on a third of the rows."""
    held = np.random.default_rng(0).permutation(len(rows.given))[: len(rows.given) // 3]
    others = np.setdiff1d(np.arange(len(rows.given)), held)
    losses = []
    for penalty in PENALTIES:
        model = logistic(penalty).fit(rows.features[others], rows.given[others])
        says = model.predict_proba(rows.features[held])
        losses.append(-np.log(says[np.arange(len(held)), rows.given[held]] + 1e-12).mean())
    return PENALTIES[int(np.argmin(losses))]


def corrected_by_verified(rows: Labeled, known: np.ndarray) -> np.ndarray:
    labels = rows.given.copy()
    labels[known] = rows.right[known]
    return labels


def lowest(scores: np.ndarray, rows: Labeled, known: np.ndarray) -> np.ndarray:
    """As many flags as the verified rows say are wrong."""
    share = (rows.given[known] != rows.right[known]).mean()
    return scores < np.quantile(scores, share)


def cleanlab(rows: Labeled, known: np.ndarray, penalty: float) -> Found:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    labels = corrected_by_verified(rows, known)
    out_of_fold = cross_val_predict(logistic(penalty), rows.features, labels, cv=FOLDS, method="predict_proba")
    issues = np.asarray(find_label_issues(labels, out_of_fold, n_jobs=1), bool)
    return Found(get_label_quality_scores(labels, out_of_fold), issues)


def small_loss(rows: Labeled, known: np.ndarray, penalty: float) -> Found:
    labels = corrected_by_verified(rows, known)
    says = logistic(penalty).fit(rows.features, labels).predict_proba(rows.features)
    scores = says[np.arange(len(labels)), rows.given]
    return Found(scores, lowest(scores, rows, known))


def gold_loss_correction(rows: Labeled, known: np.ndarray, penalty: float) -> Found:
    """Hendrycks et al. 2018: T as the mean prediction of a plain noisy model on the verified rows of each class, then a
    model under forward correction, here by expectation maximization with T fixed.
    """
    classes = int(max(rows.given.max(), rows.right.max())) + 1
    plain = cross_val_predict(logistic(penalty), rows.features, rows.given, cv=FOLDS, method="predict_proba")
    table = np.full((classes, classes), 1e-3)
    np.add.at(table, rows.right[known], plain[known])
    table /= table.sum(1, keepdims=True)
    says = plain
    for _ in range(3):
        members = says * table[:, rows.given].T
        members /= members.sum(1, keepdims=True)
        members[known] = np.eye(classes)[rows.right[known]]
        places, labels = np.nonzero(members > 0.02)
        parts = np.random.default_rng(0).permutation(len(rows.given)) % FOLDS
        says = np.zeros_like(plain)
        for fold in range(FOLDS):
            own = parts[places] != fold
            weights = {"logisticregression__sample_weight": members[places[own], labels[own]]}
            model = logistic(penalty).fit(rows.features[places[own]], labels[own], **weights)
            says[parts == fold] = model.predict_proba(rows.features[parts == fold])
    members = says * table[:, rows.given].T
    members /= members.sum(1, keepdims=True)
    scores = members[np.arange(len(rows.given)), rows.given]
    return Found(scores, members.argmax(1) != rows.given)


def verified_alone(rows: Labeled, known: np.ndarray, penalty: float) -> Found:
    model = LogisticRegression(C=10.0, max_iter=500)
    scaled = rows.features / np.sqrt((rows.features**2).sum(1).mean())
    says = np.zeros((len(rows.given), int(rows.given.max()) + 1))
    model.fit(scaled[known], rows.right[known])
    says[:, model.classes_] = model.predict_proba(scaled)
    scores = says[np.arange(len(rows.given)), rows.given]
    return Found(scores, lowest(scores, rows, known))


def ours(**settings: Any) -> Callable[[Labeled, np.ndarray, float], Found]:
    def found(rows: Labeled, known: np.ndarray, penalty: float) -> Any:
        right = np.full(len(rows.given), np.nan)
        right[known] = rows.right[known]
        return LabelCleaner(**settings).fit(rows.features, rows.given, y_verified=right)

    return found


CONTESTANTS: dict[str, Callable[[Labeled, np.ndarray, float], Any]] = {
    "wior": ours(),
    "wior, fast": ours(effort="fast"),
    "cleanlab": cleanlab,
    "small loss": small_loss,
    "gold loss correction": gold_loss_correction,
    "verified alone": verified_alone,
}
ABLATION: dict[str, Callable[[Labeled, np.ndarray, float], Any]] = {
    "closed forms": ours(effort="fast"),
    "and a taught network": ours(),
    "and taught twice": ours(effort="thorough"),
    "bilevel noise model alone": ours(weighting="noise"),
    "the same without second opinion": ours(weighting="noise", rounds=0),
}


# measures


def calibration_error(scores: np.ndarray, right: np.ndarray) -> float:
    places = np.clip((scores * BINS).astype(int), 0, BINS - 1)
    shares = [(places == b).mean() * abs(scores[places == b].mean() - right[places == b].mean()) for b in range(BINS)
              if (places == b).any()]  # fmt: skip
    return float(sum(shares))


def measured(rows: Labeled, known: np.ndarray, found: Any, own: bool) -> dict[str, Any]:
    others = np.setdiff1d(np.arange(len(rows.given)), known)
    wrong = rows.given != rows.right
    scores, flagged = (found.scores_, found.flagged_) if own else found
    hits = int((flagged & wrong)[others].sum())
    values = {
        "auroc": float(roc_auc_score(~wrong[others], scores[others])),
        "f1": 2 * hits / max(int(flagged[others].sum() + wrong[others].sum()), 1),
        "flagged": float(flagged[others].mean()),
        "wrong": float(wrong[others].mean()),
    }
    if own:
        values["calibration_error"] = calibration_error(scores[others], ~wrong[others])
        if found.estimates_ is not None:
            holds = lambda interval, truth: None if interval is None else bool(interval.low <= truth <= interval.high)
            values["estimate_holds"] = holds(found.estimates_.wrong, int(wrong.sum()))
            values["precision_holds"] = holds(found.estimates_.precision, hits / max(int(flagged[others].sum()), 1))
            values["recall_holds"] = holds(found.estimates_.recall, hits / max(int(wrong[others].sum()), 1))
            values["width"] = (found.estimates_.wrong.high - found.estimates_.wrong.low) / len(wrong)
    return values


def compare(name: str, rows: Labeled, count: int, draw: int, contestants: dict[str, Any]) -> Iterator[dict[str, Any]]:
    known, penalty = drawn(rows, count, draw), best_penalty(rows)
    for who, contestant in contestants.items():
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = contestant(rows, known, penalty)
        seconds = time.perf_counter() - begun
        own = isinstance(found, LabelCleaner)
        yield {"set": name, "verified": count, "draw": draw, "who": who, "seconds": seconds,
               **measured(rows, known, found, own)}  # fmt: skip


def curve(name: str, rows: Labeled, draw: int) -> Iterator[dict[str, Any]]:
    """Verified rows at random, and as `wior clean` draws them; none at first."""
    n = len(rows.given)
    nothing = LabelCleaner(effort="fast", random_state=draw).fit(rows.features, rows.given)
    yield {"set": name, "verified": 0, "draw": draw, "who": "none", **measured(rows, np.zeros(0, int), nothing, True)}
    for count in (50, 100, 200, 400):
        chosen = sampling.draw(nothing.scores_, rows.given, np.arange(n), count, draw)
        for who, known, known_chances in (
            ("at random", drawn(rows, count, draw), np.full(count, np.nan)),
            ("drawn by the tool", chosen.places, chosen.chances),
        ):
            right, chances = np.full(n, np.nan), np.full(n, np.nan)
            right[known], chances[known] = rows.right[known], known_chances
            cleaner = LabelCleaner(effort="fast").fit(rows.features, rows.given, y_verified=right, chances=chances)
            yield {"set": name, "verified": count, "draw": draw, "who": who, **measured(rows, known, cleaner, True)}


def table(lines: list[dict[str, Any]]) -> str:
    """Means over draws, in Markdown."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["set"], line["verified"], line["who"]), []).append(line)
    mean = lambda group, key: np.mean([line[key] for line in group if line.get(key) is not None] or [np.nan])
    out = [
        "| set | verified | who | AUROC | F1 | flagged (truth) | calibration error | total, precision, recall in their "
        "intervals | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (name, count, who), group in groups.items():
        held = " ".join(
            f"{sum(bool(line.get(key)) for line in group)}/{sum(line.get(key) is not None for line in group)}"
            for key in ("estimate_holds", "precision_holds", "recall_holds")
        )
        own = "calibration_error" in group[0]
        out.append(
            f"| {name} | {count} | {who} | {mean(group, 'auroc'):.3f} | {mean(group, 'f1'):.3f} | "
            f"{mean(group, 'flagged'):.1%} ({mean(group, 'wrong'):.1%}) | "
            f"{mean(group, 'calibration_error') if own else float('nan'):.3f} | {held if own else ''} | "
            f"{mean(group, 'seconds') if 'seconds' in group[0] else float('nan'):.1f} |".replace("nan", "")
        )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--verified", default="100,200")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--backbone", default="patches")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WIOR_DATA", "../shared/data")))
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    kept = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(line["set"], line["verified"], line["draw"], line["who"]) for line in kept}
    counts = [int(count) for count in options.verified.split(",")]
    contestants = ABLATION if options.ablation else CONTESTANTS
    with options.out.open("a") as file:
        for name, rows in load(options.data, options.sets.split(","), options.backbone):
            for draw in range(options.draws):
                if options.curve:
                    missing = [curve(name, rows, draw)] if (name, 400, draw, "drawn by the tool") not in done else []
                else:
                    missing = [
                        compare(name, rows, count, draw, {
                            who: one for who, one in contestants.items() if (name, count, draw, who) not in done
                        })
                        for count in counts
                    ]  # fmt: skip
                for lines in missing:
                    for line in lines:
                        file.write(json.dumps(line) + "\n")
                        file.flush()
                        print(line, flush=True)


if __name__ == "__main__":
    main()
