"""Pictures: curves with their spread over seeds, in colors that color-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Okabe and Ito's
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#404040", "#8C6D31", "#999999")
LINES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)), (0, (3, 1.5)))


LARGEST = 1e100  # an axis that reaches the end of float64 cannot be drawn


class Style(NamedTuple):
    color: str
    line: Any = "-"
    width: float = 1.5


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A color and a line for each, no two alike."""
    return {
        label: Style(COLORS[i % len(COLORS)], LINES[(2 * (i // len(COLORS)) + i) % len(LINES)])
        for i, label in enumerate(labels)
    }


def new_figure(columns: int, rows: int, width: float = 4.2, height: float = 3.2) -> Any:
    from matplotlib.figure import Figure  # used by itself it draws with Agg: no window, no global state

    return Figure(figsize=(width * columns, height * rows + 0.7), dpi=150, layout="constrained")


def save(figure: Any, folder: Path, name: str) -> None:
    """As PNG and as PDF, the same bytes every time."""
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})


def tidy(axis: Any) -> None:
    axis.grid(color="0.9", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.01)


def drawable(values: np.ndarray) -> np.ndarray:
    """The values without those of a run that diverged which no axis can show."""
    values = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < LARGEST, values, np.nan)


def curve(axis: Any, along: np.ndarray, values: np.ndarray, style: Style, label: str, log: bool) -> None:
    """The mean over the first axis and one standard deviation around it."""
    with np.errstate(invalid="ignore", over="ignore"):  # of runs that diverged
        mean = values.mean(0)
        std = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    mean, std = drawable(mean), drawable(std)
    axis.plot(along, mean, color=style.color, linestyle=style.line, linewidth=style.width, label=label)
    lowest = np.maximum(mean - std, mean / 10) if log else mean - std
    axis.fill_between(along, lowest, mean + std, color=style.color, alpha=0.15, linewidth=0)


def legend(figure: Any, axis: Any, columns: int = 4) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def limits(curves: Sequence[np.ndarray], skip: float = 0.1, margin: float = 0.05) -> tuple[float, float]:
    """Limits that show where curves differ, leaving out their steep beginning.

    Those of a share where nothing is finite.
    """
    parts = [values[..., int(skip * values.shape[-1]) :].ravel() for values in curves]
    settled = np.concatenate([np.zeros(0), *parts])
    settled = settled[np.isfinite(settled)]
    if not settled.size:
        return 0.0, 1.0
    low, high = float(settled.min()), float(settled.max())
    room = margin * max(high - low, 1e-9)
    return low - room, high + room
