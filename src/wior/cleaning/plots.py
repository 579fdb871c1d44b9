"""Pictures of what was found: the scores, how it was learned, and which class was labeled how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wior import figures
from wior.cleaning.review.review import Curve

NAME = "overview"
NAMED_CLASSES = 15  # more names would not be legible


def save(
    folder: Path,
    scores: np.ndarray,
    threshold: float,
    curves: Sequence[Curve],
    table: np.ndarray | None,
    classes: Sequence[str],
) -> None:
    """Scores, learning curves where there are some, and the table of labels where the classes are not too many."""
    parts = 1 + bool(curves) + (table is not None)
    figure = figures.new_figure(parts, 1)
    histogram, *others = figure.subplots(1, parts, squeeze=False)[0]
    _draw_scores(histogram, scores, threshold)
    figures.tidy(histogram)
    if curves:
        _draw_curves(others[0], curves)
        figures.tidy(others[0])
    if table is not None:
        figure.colorbar(_draw_noise(others[-1], table, classes), ax=others[-1], shrink=0.8, label="share")
    figures.save(figure, folder, NAME)


def busiest(table: np.ndarray, classes: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """The table of the classes that are taken for others, or others for them, most; all others are its last row and
    column: the mean of their rows, and the sum of their columns.
    """
    if len(classes) <= NAMED_CLASSES + 1:  # one class is no others
        return table, list(classes)
    mistakes = table * (1 - np.eye(len(table)))
    order = np.argsort(-(mistakes.sum(0) + mistakes.sum(1)), kind="stable")
    shown, rest = np.sort(order[:NAMED_CLASSES]), np.sort(order[NAMED_CLASSES:])
    columns = np.column_stack([table[:, shown], table[:, rest].sum(1)])
    rows = np.vstack([columns[shown], columns[rest].mean(0)])
    return rows, [*(classes[place] for place in shown), f"{len(rest):,} others"]


def _draw_scores(histogram: Any, scores: np.ndarray, threshold: float) -> None:
    edges = np.linspace(0, 1, 51)
    for part, color, label in (
        (scores < threshold, figures.COLORS[1], "flagged"),
        (scores >= threshold, figures.COLORS[0], "kept"),
    ):
        histogram.hist(scores[part], edges, color=color, label=f"{label}: {int(part.sum()):,}")
    histogram.axvline(threshold, color="0.2", linestyle=figures.LINES[2], linewidth=1)
    histogram.set(title="Scores", xlabel="probability that the label is right", ylabel="rows", yscale="log")
    histogram.legend(frameon=False)


def _draw_curves(learning: Any, curves: Sequence[Curve]) -> None:
    looks = figures.styles([curve.name for curve in curves])
    for curve in curves:
        look = looks[curve.name]
        label = curve.name.partition("(")[2].rstrip(")")
        learning.plot(curve.steps, curve.values, color=look.color, linestyle=look.line, label=label)
    learning.set(title="Loss on verified rows held out", xlabel="steps", ylim=(0, None))
    if curves:
        learning.legend(frameon=False, fontsize=7)


def _draw_noise(noise: Any, table: np.ndarray, classes: Sequence[str]) -> Any:
    shown, names = busiest(table, classes)
    picture = noise.imshow(shown, cmap="Blues", vmin=0, vmax=1)
    noise.set(title="How a class is labeled", xlabel="given label", ylabel="class")
    short = [plain(name) for name in names]
    size = 10 if len(names) <= 8 else 7
    noise.set_xticks(range(len(names)), short, rotation=90, fontsize=size)
    noise.set_yticks(range(len(names)), short, fontsize=size)
    if len(names) < len(classes):
        noise.set_title(f"How a class is labeled:\nthe {NAMED_CLASSES} of {len(classes):,} with the most mistakes")
        for line in (noise.axhline, noise.axvline):
            line(NAMED_CLASSES - 0.5, color="0.4", linewidth=0.8)
    return picture


def plain(name: str) -> str:
    """A name as it stands: a dollar would begin a formula, and what cannot be drawn is a question mark."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    drawn = (letter.isprintable() and font.get_char_index(ord(letter)) for letter in name)
    text = "".join(letter if known else "?" for letter, known in zip(name, drawn, strict=True))
    short = text if len(text) <= 14 else text[:13] + "…"
    return short.replace("$", r"\$")
