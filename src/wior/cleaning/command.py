"""`wior clean`: from the user's files to a folder with what was found."""

from __future__ import annotations

import csv
import dataclasses
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wior.cleaning import choosing, plots
from wior.cleaning.label_cleaner import NO_VERIFIED_ROW, LabelCleaner
from wior.cleaning.review.guard import guard
from wior.cleaning.review.review import Curve, Review, write_review
from wior.cleaning.tables import UNKNOWN, Asked, InputError, Job, read
from wior.saving.folders import CONFIG, SUMMARY, made_by_wior, whole_folder
from wior.saving.whole import write_json
from wior.version import __version__

ROWS, REVIEW = "rows.csv", "review.html"
COLUMNS = ("id", "given", "weight", "score", "flagged", "suggested", "confidence")
COMMONEST = 10  # pairs of labels in the summary


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asks for."""

    asked: Asked
    out: Path
    relabel: bool = False
    settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # of `LabelCleaner`, where they are not its own
    progress: bool = False
    checkpoint: Path | None = None
    resume: bool = False


class Findings(NamedTuple):
    """What is said of every row of the table, the verified ones too."""

    given: np.ndarray  # places in classes
    suggested: np.ndarray
    scores: np.ndarray
    confidence: np.ndarray
    weights: np.ndarray
    flagged: np.ndarray
    classes: Sequence[str]


def clean(request: Request, complete: Callable[[Path, dict[str, Any], Findings], None] | None = None) -> dict[str, Any]:
    """Finds the wrong labels, writes the folder and returns its summary; `complete` adds to both before the folder
    appears.
    """
    check_paths(request)
    check_checkpoint(request)
    with whole_folder(request.out, made_by_wior) as folder:
        job = read(request.asked)
        cleaner = LabelCleaner(**{**request.settings, "progress": request.progress, "checkpoint": request.checkpoint})
        with warnings.catch_warnings():
            # that no verified row has a class is among the notes; all else, such as a save that fails, is for the user
            warnings.filterwarnings("ignore", f"{NO_VERIFIED_ROW} ", UserWarning)
            cleaner.fit_job(job)
        found = findings(job, cleaner)
        summary = write(folder, request, job, cleaner, found)
        if complete is not None:
            complete(folder, summary, found)
        return summary


def check_paths(request: Request) -> None:
    """The output folder is replaced: what is read must not lie in it, nor it in what is read."""
    out = request.out.expanduser().resolve()
    for path in (request.asked.train, request.asked.verified, request.checkpoint):
        if path is None:
            continue
        place = path.expanduser().resolve()
        if out in place.parents:
            raise InputError(
                f"{path} lies in the output folder {request.out}, which is replaced; give another one by --out"
            )
        if place in out.parents and place.is_dir():
            raise InputError(f"the output folder {request.out} lies in {path}; give another one by --out")


def check_checkpoint(request: Request) -> None:
    """An interrupted run resumes only with `--resume`."""
    folder = request.checkpoint
    if folder is None:
        if request.resume:
            raise InputError("--resume needs --checkpoint, the folder in which the interrupted run was saved")
        return
    if folder.exists() and any(folder.iterdir()) and not request.resume:
        raise InputError(f"{folder} is not empty; go on with the run in it by --resume, or give another folder")


def findings(job: Job, cleaner: LabelCleaner) -> Findings:
    """The judged rows as the cleaner sees them; of verified rows the label is known."""
    given, known = job.given, job.right != UNKNOWN
    suggested = np.where(known, job.right, given)
    scores = np.where(known, (job.right == given).astype(float), 1.0)
    confidence, weights = np.ones(len(given)), scores.copy()
    judged = job.judged
    suggested[judged] = cleaner.suggested_codes_
    scores[judged], confidence[judged], weights[judged] = cleaner.scores_, cleaner.confidence_, cleaner.weights_
    return Findings(given, suggested, scores, confidence, weights, scores < cleaner.threshold, job.classes)


def write(folder: Path, request: Request, job: Job, cleaner: LabelCleaner, found: Findings) -> dict[str, Any]:
    """All files of the output folder."""
    write_rows(folder / ROWS, job, found)
    fixable = found.flagged & (found.suggested != found.given) & request.relabel
    keep = ~found.flagged | fixable
    changes = {int(place): found.classes[found.suggested[place]] for place in np.flatnonzero(fixable)}
    cleaned = job.write(folder, keep, changes)
    curves = learning_curves(cleaner)
    plots.save(
        folder, found.scores, cleaner.threshold, curves, cleaner.noise_, [str(name) for name in cleaner.classes_]
    )
    write_review(folder / REVIEW, review(request, job, cleaner, found, curves))
    config = {
        "made_by": "wior clean",
        "version": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "train": str(request.asked.train),
        "verified": None if request.asked.verified is None else str(request.asked.verified),
        "verified_column": request.asked.verified_column,
        "label": request.asked.label,
        "id": request.asked.id_column,
        "ignore": list(request.asked.ignore),
        "relabel": request.relabel,
        "settings": {
            name: value if isinstance(value, (int, float, str, list, tuple, type(None))) else repr(value)
            for name, value in cleaner.get_params(deep=False).items()
            if name not in ("progress", "checkpoint")
        },
    }
    write_json(folder / CONFIG, config)
    summary = summarize(request, job, cleaner, found, keep, cleaned.name)
    entries = sorted(entry.name for entry in folder.iterdir() if entry.name not in (CONFIG, SUMMARY))
    summary["files"] = [*entries, CONFIG, SUMMARY]
    write_json(folder / SUMMARY, summary)
    return summary


def write_rows(path: Path, job: Job, found: Findings) -> None:
    """One line for each row of the table, in its order; verified rows have a score of 1, or of 0 where the label was
    wrong.
    """
    names = found.classes
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COLUMNS)
        for at, name in enumerate(job.ids):
            lines.writerow(
                (
                    guard(str(name)),
                    guard(names[found.given[at]]),
                    f"{found.weights[at]:.6g}",
                    f"{found.scores[at]:.6g}",
                    "true" if found.flagged[at] else "false",
                    guard(names[found.suggested[at]]),
                    f"{found.confidence[at]:.6g}",
                )
            )


def learning_curves(cleaner: LabelCleaner) -> list[Curve]:
    """The loss on verified rows held out, of the candidates that ran to the end."""
    last = [one for one in cleaner.trials_ if one.steps[-1] >= cleaner.choice_["steps_at_most"]]
    made = []
    for setting in dict.fromkeys(one.setting for one in last):
        steps, losses = choosing.curve(setting, last)
        if np.isfinite(losses).all():
            made.append(
                Curve(f"loss on held-out verified rows ({setting.describe()})", steps.tolist(), losses.tolist())
            )
    return made


def review(request: Request, job: Job, cleaner: LabelCleaner, found: Findings, curves: list[Curve]) -> Review:
    facts = {
        "rows": f"{len(found.given):,}",
        "verified rows": f"{len(job.outside):,}",
        "classes": f"{len(found.classes):,}",
        **({"label": job.label} if job.kind == "table" else {}),
        **{f"note {number}" if len(job.notes) > 1 else "note": text for number, text in enumerate(job.notes, 1)},
    }
    return Review(
        title=request.asked.train.name,
        facts=facts,
        classes=found.classes,
        ids=[str(name) for name in job.ids],
        given=found.given,
        suggested=found.suggested,
        scores=np.clip(found.scores, 0, 1),
        confidence=np.clip(found.confidence, 0, 1),
        threshold=float(cleaner.threshold),
        columns=[str(name) for name in job.fields],
        records=job.records if job.fields else None,
        images=job.images,
        curves=curves,
    )


def summarize(
    request: Request, job: Job, cleaner: LabelCleaner, found: Findings, keep: np.ndarray, cleaned: str
) -> dict[str, Any]:
    """What was found, for people and for scripts."""
    names, classes = found.classes, len(found.classes)
    flagged = found.flagged
    moved = flagged & (found.suggested != found.given)
    pairs = np.bincount(found.given[moved] * classes + found.suggested[moved], minlength=classes**2)
    commonest = [at for at in np.argsort(-pairs, kind="stable")[:COMMONEST] if pairs[at]]
    of_class = np.bincount(found.given, minlength=classes)
    flagged_of_class = np.bincount(found.given[flagged], minlength=classes)
    return {
        "made_by": "wior clean",
        "version": __version__,
        "rows": len(found.given),
        "verified_rows": len(job.outside),
        "known_rows": int((job.right != UNKNOWN).sum()),
        "classes": names,
        "flagged": int(flagged.sum()),
        "flagged_share": float(flagged.mean()),
        "flagged_by_class": {
            name: {"rows": int(rows), "flagged": int(count)}
            for name, rows, count in zip(names, of_class, flagged_of_class, strict=True)
        },
        "commonest_changes": [
            {"given": names[at // classes], "suggested": names[at % classes], "rows": int(pairs[at])}
            for at in commonest
        ],
        "cleaned": {"file": cleaned, "rows": int(keep.sum()), "relabeled": int(moved.sum()) if request.relabel else 0},
        "threshold": float(cleaner.threshold),
        "choice": json.loads(json.dumps(cleaner.choice_, default=float)),
        "trials": trials(cleaner),
        "noise": {
            "classes": [str(name) for name in cleaner.classes_],
            "table": np.round(cleaner.noise_, 6).tolist(),
        },
        "trusted_classes": [str(name) for name in cleaner.trusted_classes_],
        "columns": dict(job.fates),
        "notes": list(job.notes),
    }


def trials(cleaner: LabelCleaner) -> list[dict[str, Any]]:
    """Every candidate, with its best loss on rows held out."""
    made = []
    for steps in sorted({int(one.steps[-1]) for one in cleaner.trials_}):
        heat = [one for one in cleaner.trials_ if one.steps[-1] == steps]
        for setting in dict.fromkeys(one.setting for one in heat):
            loss, best, _ = choosing.best_record(setting, heat)
            finite = bool(np.isfinite(loss))  # else it diverged
            found = {"best_steps": best if finite else None, "held_out_loss": loss if finite else None}
            made.append({**setting._asdict(), "steps": steps, **found})
    return made
