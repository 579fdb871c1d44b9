"""The folder of `wior clean`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wior.cleaning import choosing, plots
from wior.cleaning.findings import Findings, notes, sentence
from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.request import Request, the_command, unused
from wior.cleaning.review.guard import guard
from wior.cleaning.review.review import Curve, Review, write_review
from wior.cleaning.similar import similar
from wior.cleaning.summary import summarize
from wior.cleaning.tables import Job
from wior.saving.folders import CONFIG, SUMMARY
from wior.saving.whole import write_json
from wior.version import __version__

ROWS, REVIEW, VERIFY = "rows.csv", "review.html", "verify.html"
COLUMNS = ("id", "given", "weight", "score", "flagged", "suggested", "confidence")
LIKELY = 4  # labels on a card
MOST_CLASSES_OF_A_PICTURE = 1000


def write(
    folder: Path, request: Request, job: Job, cleaner: LabelCleaner, found: Findings, to_verify: int
) -> dict[str, Any]:
    """All files of the folder but the page to verify."""
    write_rows(folder / ROWS, job, found)
    changed = found.corrected(request.relabel)
    keep = ~found.flagged | changed
    changes = {int(place): found.classes[found.suggested[place]] for place in np.flatnonzero(changed)}
    cleaned = job.write(folder, keep, changes)
    curves = learning_curves(cleaner)
    plots.save(folder, found.scores, found.threshold, curves, cleaner.noise_, [str(name) for name in cleaner.classes_])
    write_review(folder / REVIEW, review(request, job, cleaner, found, curves))
    write_config(folder, request, cleaner, "wior clean")
    summary = summarize(job, cleaner, found, keep, changed, cleaned.name)
    summary["to_verify"] = to_verify
    summary["notes"] += notes(found, request.relabel)
    if cleaner.choice_["weighting"] == "opinions" and unused(request):
        summary["notes"].append(f"not used, since only bilevel designs (--weighting) do: {', '.join(unused(request))}")
    entries = sorted(entry.name for entry in folder.iterdir() if entry.name not in (CONFIG, SUMMARY))
    summary["files"] = [*entries, CONFIG, SUMMARY]
    write_json(folder / SUMMARY, summary)
    return summary


def write_config(folder: Path, request: Request, cleaner: LabelCleaner, made_by: str) -> None:
    """All that is needed to run it again."""
    verified = [str(path) for path in request.asked.verified_files]
    asked, text = request.asked, lambda value: None if value is None else str(value)
    config = {
        "made_by": made_by,
        "version": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "train": str(asked.train),
        "verified": verified if len(verified) > 1 else next(iter(verified), None),
        "verified_column": asked.verified_column,
        "verified_label": asked.verified_label,
        "label": asked.label,
        "id": asked.id_column,
        "ignore": list(asked.ignore),
        "embeddings": text(asked.embeddings),
        "probabilities": text(asked.probabilities),
        "backbone": asked.backbone,
        "relabel": request.relabel,
        "settings": {
            name: value if isinstance(value, (int, float, str, list, tuple, type(None))) else repr(value)
            for name, value in cleaner.get_params(deep=False).items()
            if name not in ("progress", "checkpoint")
        },
    }
    write_json(folder / CONFIG, config)


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
    """The loss on verified rows held out, of the bilevel designs that ran to the end."""
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
    told = [*job.notes, *notes(found, request.relabel)]
    verified = int(found.known.sum()) + len(job.outside)
    facts = {
        "rows": f"{len(found.given):,}",
        "verified rows": f"{verified:,}",
        "classes": f"{len(found.classes):,}",
        **({"label": job.label} if job.kind == "table" else {}),
        **{f"note {number}" if len(told) > 1 else "note": text for number, text in enumerate(told, 1)},
    }
    alike = similar(job.features, found.scores, int(cleaner.random_state))
    likely, likelihoods = cleaner.likeliest(LIKELY)
    return Review(
        title=request.asked.train.name,
        facts=facts,
        classes=found.classes,
        ids=[str(name) for name in job.ids],
        given=found.given,
        suggested=found.suggested,
        scores=np.clip(found.scores, 0, 1),
        confidence=np.clip(found.confidence, 0, 1),
        threshold=found.threshold,
        columns=[str(name) for name in job.fields],
        records=job.records if job.fields else None,
        images=job.images,
        curves=curves,
        likely=likely,
        likelihoods=likelihoods,
        similar=None if alike is None else alike.places,
        similarity=None if alike is None else alike.similarity,
        estimate=sentence(found),
        again=the_command(request, "decisions.csv"),
        verified=found.known,
    )
