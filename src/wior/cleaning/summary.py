"""What was found, for people and for scripts."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from wior.cleaning import choosing
from wior.cleaning.estimates import Estimates, Interval
from wior.cleaning.findings import Findings, sentence
from wior.cleaning.label_cleaner import LabelCleaner
from wior.cleaning.tables import UNKNOWN, Job
from wior.version import __version__

COMMONEST = 10  # pairs of labels


def summarize(
    job: Job, cleaner: LabelCleaner, found: Findings, keep: np.ndarray, changed: np.ndarray, cleaned: str
) -> dict[str, Any]:
    names, classes, flagged = found.classes, len(found.classes), found.flagged
    moved = (flagged | found.wrong) & (found.suggested != found.given)
    pairs, counts = np.unique(found.given[moved] * classes + found.suggested[moved], return_counts=True)
    commonest = np.argsort(-counts, kind="stable")[:COMMONEST]
    of_class = np.bincount(found.given, minlength=classes)
    flagged_of_class = np.bincount(found.given[flagged], minlength=classes)
    table = cleaner.noise_
    return {
        "made_by": "wior clean",
        "version": __version__,
        "rows": len(found.given),
        "verified_rows": int((job.right != UNKNOWN).sum()) + len(job.outside),
        "known_rows": int((job.right != UNKNOWN).sum()),
        "classes": names,
        "flagged": int(flagged.sum()),
        "flagged_share": float(flagged.mean()),
        "estimate": sentence(found),
        "estimates": _estimates(found.estimates),
        "flagged_by_class": {
            name: {"rows": int(rows), "flagged": int(count)}
            for name, rows, count in zip(names, of_class, flagged_of_class, strict=True)
        },
        "commonest_changes": [
            {
                "given": names[pairs[at] // classes],
                "suggested": names[pairs[at] % classes],
                "rows": int(counts[at]),
            }
            for at in commonest
        ],
        "cleaned": {"file": cleaned, "rows": int(keep.sum()), "relabeled": int(changed.sum())},
        "threshold": found.threshold,
        "choice": _plain(cleaner.choice_),
        "trials": trials(cleaner),
        "noise": None
        if table is None
        else {"classes": [str(name) for name in cleaner.classes_], "table": np.round(table, 6).tolist()},
        "trusted_classes": [str(name) for name in cleaner.trusted_classes_],
        "columns": dict(job.fates),
        "notes": list(job.notes),
    }


def trials(cleaner: LabelCleaner) -> list[dict[str, Any]]:
    """Every bilevel candidate, with its best loss on rows held out."""
    made = []
    for steps in sorted({int(one.steps[-1]) for one in cleaner.trials_}):
        heat = [one for one in cleaner.trials_ if one.steps[-1] == steps]
        for setting in dict.fromkeys(one.setting for one in heat):
            loss, best, _ = choosing.best_record(setting, heat)
            finite = bool(np.isfinite(loss))  # else it diverged
            found = {"best_steps": best if finite else None, "held_out_loss": loss if finite else None}
            made.append({**setting._asdict(), "steps": steps, **found})
    return made


def _estimates(found: Estimates | None) -> dict[str, Any] | None:
    if found is None:
        return None
    interval = lambda one: None if one is None else dict(zip(Interval._fields, map(float, one), strict=True))
    return {
        "wrong": interval(found.wrong),
        "precision": interval(found.precision),
        "recall": interval(found.recall),
        "pairs": found.pairs,
    }


def _plain(choice: dict[str, Any]) -> Any:
    """As JSON has it: no number that is not finite."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in choice.items()}
    return json.loads(json.dumps(finite, default=float))
