"""What is known of the right labels: of rows of the table, from any source, and of rows beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wior.cleaning.tables.errors import InputError, counted, listed
from wior.cleaning.tables.job import UNKNOWN, Job, Known, Labels
from wior.cleaning.tables.vocabulary import match_spellings, note_on_matched, notes_on_classes_alike


class Outside(NamedTuple):
    """Verified rows that are none of the table."""

    features: np.ndarray
    labels: Labels


def settle(job: Job, known: Sequence[Known], outside: Outside | None = None) -> Job:
    """The job with all that is known of its rows; contradictions are errors."""
    given_names = [job.classes[code] for code in np.unique(job.given)]
    if len(given_names) < 2:
        raise InputError(f"{job.path}: all labels are {listed(given_names)}; there must be two classes at least")
    matched, classes = _vocabulary(job, known, outside)
    right = np.full(len(job.given), UNKNOWN, np.int32)
    paired, chances = np.zeros(len(right), bool), np.full(len(right), np.nan)
    for number, one in enumerate(known):
        codes = _codes(one.labels, matched, classes)
        _demand_one_label(one, codes, classes)
        clash = np.flatnonzero((right[one.places] != UNKNOWN) & (right[one.places] != codes))
        if len(clash):
            place = one.places[clash[0]]
            names = listed([classes[right[place]], classes[codes[clash[0]]]])
            raise InputError(
                f"{_earlier(known[:number], place)} and {one.where(int(clash[0]))} say different right labels of the "
                f"same row, {names}"
            )
        new = right[one.places] == UNKNOWN
        paired[one.places] = one.paired & (new | paired[one.places])
        right[one.places] = codes
        chances[one.places] = np.where(new, one.chances, _likelier(chances[one.places], one.chances))
    job = dataclasses.replace(
        job,
        classes=classes,
        given=Labels(job.given, job.classes).among(classes),
        right=right,
        paired=paired,
        chances=chances,
    )
    if outside is not None:
        codes = _codes(outside.labels, matched, classes)
        job = dataclasses.replace(job, outside_features=outside.features, outside=codes)
    if len(right) and (right != UNKNOWN).all():
        raise InputError(f"{job.path}: every row is verified, none is left to be judged")
    notes = [*note_on_matched(matched), *notes_on_classes_alike(classes), *_notes_on_known(job)]
    return dataclasses.replace(job, notes=[*job.notes, *notes, *_notes_on_classes(job)])


def _vocabulary(job: Job, known: Sequence[Known], outside: Outside | None) -> tuple[dict[str, str], list[str]]:
    """Which class each other spelling is, and all classes."""
    sources = [(one.labels, one.source, one.beside_given) for one in known]
    if outside is not None:
        sources.append((outside.labels, "", False))
    matched: dict[str, str] = {}
    names: set[str] = set()
    for labels, source, _ in sources:
        used = [labels.names[code] for code in np.unique(labels.codes)]
        matched.update(match_spellings(used, job.classes, source))
        names.update(used)
    met = {matched.get(name, name) for name in names} & set(job.classes)
    if names and not met and not any(beside_given for *_, beside_given in sources):
        source = next((source for _, source, _ in sources if source), str(job.path))
        raise InputError(
            f"{source}: no verified label is a label of {job.path}: verified are {listed(sorted(names))}, "
            f"the table has {listed(job.classes)}"
        )
    return matched, sorted({*job.classes, *(matched.get(name, name) for name in names)})


def _codes(labels: Labels, matched: dict[str, str], classes: Sequence[str]) -> np.ndarray:
    place = {name: at for at, name in enumerate(classes)}
    codes = [place.get(matched.get(name, name), UNKNOWN) for name in labels.names]  # some names no row may have
    return np.array(codes, np.int32)[labels.codes] if len(labels.codes) else np.zeros(0, np.int32)


def _earlier(known: Sequence[Known], place: int) -> str:
    """Where a row was spoken of first."""
    return next(one.where(int(at[0])) for one in known if len(at := np.flatnonzero(one.places == place)))


def _demand_one_label(one: Known, codes: np.ndarray, classes: Sequence[str]) -> None:
    """A row that one source speaks of twice must have the same label."""
    order = np.argsort(one.places, kind="stable")
    again = np.flatnonzero((one.places[order][1:] == one.places[order][:-1]) & (codes[order][1:] != codes[order][:-1]))
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        names = listed([classes[codes[first]], classes[codes[second]]])
        raise InputError(
            f"{one.where(int(first))} and {one.where(int(second))} have {one.same} and different labels, {names}"
        )


def _notes_on_known(job: Job) -> list[str]:
    known = job.right != UNKNOWN
    if not known.any():
        return []
    other = int((job.given[known] != job.right[known]).sum())
    verb = "is" if known.sum() == 1 else "are"
    return [
        f"{counted(int(known.sum()), 'row')} of the table {verb} verified; {other:,} of them with another label than "
        "the given one"
    ]


def _notes_on_classes(job: Job) -> list[str]:
    verified = np.concatenate([job.right[job.right != UNKNOWN], job.outside])
    if not len(verified):
        return []
    given, right = (np.bincount(codes, minlength=len(job.classes)) > 0 for codes in (job.given, verified))
    names = np.array(job.classes)
    notes = []
    if (given & ~right).any():
        notes.append(f"no verified row has the label {listed(names[given & ~right])}")
    if (right & ~given).any():
        notes.append(f"no row of the table has the label {listed(names[right & ~given])}, which verified rows have")
    return notes


def _likelier(earlier: np.ndarray, later: np.ndarray | float) -> np.ndarray:
    """The chance of rows that two sources verify: a known one counts before one at random, and that before a score."""
    best = np.fmax(earlier, later)
    return np.where((best == 0) & (np.isnan(earlier) | np.isnan(later)), np.nan, best)
