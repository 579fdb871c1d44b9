"""Pictures of what was found: the scores, how it was learned, and which class was labeled how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wior import figures
from wior.cleaning.review.review import Curve

NAME = "overview"
NAMED_CLASSES = 20  # more names would not be legible


def save(
    folder: Path,
    scores: np.ndarray,
    threshold: float,
    curves: Sequence[Curve],
    table: np.ndarray,
    classes: Sequence[str],
) -> None:
    figure = figures.new_figure(3, 1)
    histogram, learning, noise = figure.subplots(1, 3)
    edges = np.linspace(0, 1, 51)
    for part, color, label in (
        (scores < threshold, figures.COLORS[1], "flagged"),
        (scores >= threshold, figures.COLORS[0], "kept"),
    ):
        histogram.hist(scores[part], edges, color=color, label=f"{label}: {int(part.sum()):,}")
    histogram.axvline(threshold, color="0.2", linestyle=figures.LINES[2], linewidth=1)
    histogram.set(title="Scores", xlabel="probability that the label is right", ylabel="rows", yscale="log")
    histogram.legend(frameon=False)
    looks = figures.styles([curve.name for curve in curves])
    for curve in curves:
        look = looks[curve.name]
        label = curve.name.partition("(")[2].rstrip(")")
        learning.plot(curve.steps, curve.values, color=look.color, linestyle=look.line, label=label)
    learning.set(title="Loss on verified rows held out", xlabel="steps", ylim=(0, None))
    if curves:
        learning.legend(frameon=False, fontsize=7)
    picture = noise.imshow(table, cmap="Blues", vmin=0, vmax=1)
    noise.set(title="How a class is labeled", xlabel="given label", ylabel="class")
    if len(classes) <= NAMED_CLASSES:
        short = [plain(name) for name in classes]
        noise.set_xticks(range(len(classes)), short, rotation=90)
        noise.set_yticks(range(len(classes)), short)
    figure.colorbar(picture, ax=noise, shrink=0.8, label="share")
    for axis in (histogram, learning):
        figures.tidy(axis)
    figures.save(figure, folder, NAME)


def plain(name: str) -> str:
    """A name as it stands: a dollar would begin a formula, and what cannot be drawn is a question mark."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    drawn = (letter.isprintable() and font.get_char_index(ord(letter)) for letter in name)
    text = "".join(letter if known else "?" for letter, known in zip(name, drawn, strict=True))
    short = text if len(text) <= 14 else text[:13] + "…"
    return short.replace("$", r"\$")
