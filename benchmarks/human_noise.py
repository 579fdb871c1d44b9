"""Wrong labels that people made, and some that a program made, found by `LabelCleaner` and by others, on the same
features and verified rows.

The sets are those of `labeled_sets.py`: `human` (news, worst, random1, aggregate), `made` (digits:uniform, …), `all`, or
names; features are those that `wior clean` makes of texts and, without a network, of pictures. Verified rows are rows of
the table, drawn at random; what is measured is measured on all others. Plain models choose their penalty by the given
labels of held-out rows. cleanlab and small loss learn from the right labels of verified rows in place of the given ones.
Those that have no threshold of their own flag as many rows as the verified rows say are wrong.

    python benchmarks/human_noise.py --out FILE.jsonl [--sets human,mnist:pairs,…] [--verified 100,200] [--draws 5]
        [--jobs 16] [--data DIR]
    python benchmarks/human_noise.py --ablation --out FILE.jsonl …   what each part adds
    python benchmarks/human_noise.py --curve --out FILE.jsonl …      what 0 to 400 verified rows buy, drawn or at random
    python benchmarks/human_noise.py --table FILE.jsonl

Every set, number of verified rows and draw is a process of its own with one thread, `--jobs` of them at a time. The file
has a line for each run; runs that are in it are not made again. Features are made once, and kept in FILE.features. Needs
cleanlab (pip install cleanlab), which the package does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labeled_sets import BASES, GROUPS, Labeled, base_of, load, prepare
from wior.cleaning import LabelCleaner, judging, sampling

PENALTIES = (0.001, 0.01, 0.1, 1.0)  # C of logistic regression on standardized columns
FOLDS = 5
BINS = 10  # of the expected calibration error
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}  # fmt: skip


class Found(NamedTuple):
    """Of every row: how right its label seems, and whether it is flagged."""

    scores: np.ndarray
    flagged: np.ndarray


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


def with_learners(*names: str) -> Callable[[Labeled, np.ndarray, float], Any]:
    """The closed forms, and some further opinions, those that take long as far as they join."""

    def found(rows: Labeled, known: np.ndarray, penalty: float) -> Any:
        usual = judging.LEARNERS["usual"]
        judging.LEARNERS["usual"] = names
        try:
            return ours()(rows, known, penalty)
        finally:
            judging.LEARNERS["usual"] = usual

    return found


ABLATION: dict[str, Callable[[Labeled, np.ndarray, float], Any]] = {
    "closed forms": with_learners(),
    "and neighbors (fast)": ours(effort="fast"),
    "closed forms and a network under forward correction": with_learners("forward"),
    "closed forms and a bilevel noise model": with_learners("bilevel"),
    "forward correction and neighbors (the default)": ours(),
    "all of them (thorough)": ours(effort="thorough"),
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
        values["opinions"] = found.choice_.get("opinions", {})
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


class Task(NamedTuple):
    """What one process does."""

    kind: str  # "prepare", "compare", "ablation" or "curve"
    name: str
    count: int
    draw: int
    who: tuple[str, ...]

    def run(self, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        kept = features_of(options.out)
        if self.kind == "prepare":
            prepare(self.name, options.data, options.backbone, kept)
            return
        rows = load(self.name, self.draw, kept)
        if self.kind == "curve":
            yield from curve(self.name, rows, self.draw)
            return
        contestants = ABLATION if self.kind == "ablation" else CONTESTANTS
        yield from compare(self.name, rows, self.count, self.draw, {who: contestants[who] for who in self.who})


def features_of(out: Path) -> Path:
    return out.with_suffix(".features")


def wanted(options: argparse.Namespace) -> tuple[list[Task], list[Task]]:
    """What must be prepared first, and the runs that are not in the file yet, draw by draw."""
    kept = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(line["set"], line["verified"], line["draw"], line["who"]) for line in kept}
    names = [name for part in options.sets.split(",") for name in GROUPS.get(part, (part,))]
    unknown = [name for name in names if name not in GROUPS["all"]]
    if unknown:
        raise SystemExit(f"--sets: {unknown[0]!r} is none of {', '.join((*GROUPS, *GROUPS['all']))}")
    runs = []
    for draw in range(options.draws):
        for name in names:
            if options.curve:
                runs += [Task("curve", name, 0, draw, ())] if (name, 400, draw, "drawn by the tool") not in done else []
                continue
            kind, contestants = ("ablation", ABLATION) if options.ablation else ("compare", CONTESTANTS)
            for count in map(int, options.verified.split(",")):
                who = tuple(one for one in contestants if (name, count, draw, one) not in done)
                runs += [Task(kind, name, count, draw, who)] if who else []
    bases = [base for base in BASES if any(base_of(run.name) == base for run in runs)]
    missing = [base for base in bases if not (features_of(options.out) / f"{base}.npz").exists()]
    return [Task("prepare", base, 0, 0, ()) for base in missing], runs


def in_processes(tasks: list[Task], options: argparse.Namespace) -> None:
    """Each task in a process of its own, which has one thread; its lines are written as they come."""
    arguments = [sys.executable, __file__, "--out", options.out, "--data", options.data, "--backbone", options.backbone]

    def one(task: Task) -> int:
        command = [*map(str, arguments), "--task", json.dumps(task)]
        # before numpy and jax are imported: later they would not look
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}) as process:
            for line in process.stdout or ():
                with options.out.open("a") as file:
                    file.write(line)
                print(line, end="", flush=True)
        return process.returncode

    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [task for task, code in zip(tasks, pool.map(one, tasks), strict=True) if code]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(tasks)} processes failed, the first: {failed[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--sets", default="human")
    parser.add_argument("--verified", default="100,200")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--backbone", default="patches")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WIOR_DATA", "../shared/data")))
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    if not options.out:
        parser.error("give --out FILE.jsonl or --table FILE.jsonl")
    if options.task:
        for line in Task(*json.loads(options.task)).run(options):
            print(json.dumps(line), flush=True)
        return
    before, runs = wanted(options)
    features_of(options.out).mkdir(parents=True, exist_ok=True)
    in_processes(before, options)
    in_processes(runs, options)


if __name__ == "__main__":
    main()
