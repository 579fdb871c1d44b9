"""`wior clean` and `wior verify`: from the user's files to a folder."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wior.cleaning import output, sampling
from wior.cleaning.findings import Findings, findings
from wior.cleaning.label_cleaner import NO_VERIFIED_ROW, USELESS, LabelCleaner
from wior.cleaning.request import Request, the_command
from wior.cleaning.review.verification import Verification, write_verification
from wior.cleaning.tables import UNKNOWN, InputError, Job, read
from wior.saving.folders import CONFIG, SUMMARY, made_by_wior, whole_folder
from wior.saving.whole import write_json
from wior.version import __version__

Complete = Callable[[Path, dict[str, Any], Findings], None]


def clean(request: Request, complete: Complete | None = None) -> dict[str, Any]:
    """Finds the wrong labels, writes the folder and returns its summary; `complete` adds to both before the folder
    appears. Where nothing is verified the folder has a page to verify rows too.
    """
    check_paths(request)
    check_checkpoint(request)
    with whole_folder(request.out, made_by_wior) as folder:
        job, cleaner = _learned(request)
        found = findings(job, cleaner)
        to_verify = 0
        if not found.known.any() and not len(job.outside):
            to_verify = write_page_to_verify(folder, request, job, found, request.verify)
        summary = output.write(folder, request, job, cleaner, found, to_verify)
        if complete is not None:
            complete(folder, summary, found)
        return summary


def verify(request: Request) -> Path:
    """Writes the page to verify rows, or more of them, where they matter most; returns its place."""
    check_paths(request)
    with whole_folder(request.out, made_by_wior) as folder:
        job, cleaner = _learned(request)
        count = write_page_to_verify(folder, request, job, findings(job, cleaner), request.verify)
        output.write_config(folder, request, cleaner, "wior verify")
        write_json(
            folder / SUMMARY,
            {
                "made_by": "wior verify",
                "version": __version__,
                "to_verify": count,
                "files": [output.VERIFY, CONFIG, SUMMARY],
            },
        )
    return request.out / output.VERIFY


def _learned(request: Request) -> tuple[Job, LabelCleaner]:
    job = read(dataclasses.replace(request.asked, progress=request.progress))
    if not len(job.judged):
        raise InputError(f"{job.path}: every row is verified, none is left to be judged")
    cleaner = LabelCleaner(**{**request.settings, "progress": request.progress, "checkpoint": request.checkpoint})
    with warnings.catch_warnings():
        # what these say is among the notes or an error; all else, such as a save that fails, is for the user
        warnings.filterwarnings("ignore", f"{NO_VERIFIED_ROW} ", UserWarning)
        warnings.filterwarnings("ignore", USELESS, UserWarning)
        cleaner.fit_job(job)
    if not cleaner.helpful_:
        raise InputError(f"{job.path}: {USELESS}")
    return job, cleaner


def write_page_to_verify(folder: Path, request: Request, job: Job, found: Findings, count: int) -> int:
    """Draws rows that nobody has verified, and returns how many they are."""
    candidates = np.flatnonzero(job.right == UNKNOWN)
    if not len(candidates) or not count:
        return 0
    seed = int(request.settings.get("random_state", 0)) + int((job.right != UNKNOWN).sum())
    drawn = sampling.draw(found.scores, found.given, candidates, count, seed)
    hidden = {job.label, request.asked.verified_label, request.asked.verified_column}
    shown = [at for at, name in enumerate(job.fields) if name not in hidden]
    pictures, files = job.images, len(request.asked.verified_files)
    export = f"verified-{files + 1}.csv" if files else "verified.csv"  # the earlier answers keep their name
    write_verification(
        folder / output.VERIFY,
        Verification(
            title=request.asked.train.name,
            facts={"rows to verify": f"{len(drawn.places):,}", "rows": f"{len(job.given):,}"},
            classes=job.classes,
            ids=[str(job.ids[place]) for place in drawn.places],
            given=job.given[drawn.places],
            chances=drawn.chances,
            columns=[str(job.fields[at]) for at in shown],
            records=(lambda places: _some(job.records(drawn.places[places]), shown)) if shown else None,
            images=None if pictures is None else lambda places: pictures(drawn.places[places]),
            command=the_command(request, export),
            export=export,
        ),
    )
    return len(drawn.places)


def _some(records: list[list[str]], columns: list[int]) -> list[list[str]]:
    return [[record[at] for at in columns] for record in records]


def check_paths(request: Request) -> None:
    """The output folder is replaced: what is read must not lie in it, nor it in what is read."""
    out, asked = request.out.expanduser().resolve(), request.asked
    for path in (asked.train, *asked.verified_files, asked.embeddings, asked.probabilities, request.checkpoint):
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
