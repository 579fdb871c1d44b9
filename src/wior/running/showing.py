"""Results for people: a few lines of text, a table, a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from wior import figures
from wior.running.measuring import ALWAYS

Tree = Any

ALONG = {
    "passes": ("outer_passes", "passes over the outer data"),
    "seconds": ("seconds", "seconds of steps"),
    "steps": ("step", "steps"),
}
MOST_SHOWN = 6
WIDE = 100.0  # a metric that is positive and varies by more than this factor is drawn on a logarithmic axis


def metrics_of(history: Mapping[str, Any]) -> list[str]:
    return [name for name in history if name not in ALWAYS]


def of_tree(value: Tree) -> str:
    """Shapes and types, or how many numbers there are in how many arrays."""
    leaves = jax.tree.leaves(value)
    if len(leaves) == 1:
        return f"{leaves[0].dtype}{list(np.shape(leaves[0]))}"
    kinds = ", ".join(sorted({str(leaf.dtype) for leaf in leaves}))
    return f"{len(leaves)} arrays, {sum(int(np.size(leaf)) for leaf in leaves):,} numbers, {kinds}"


def of_result(result: Any) -> str:
    """A result in a few lines."""
    history = result.history
    if not len(history["step"]):
        return f"Result: {result.steps} steps, no records, ended by {result.stopped_by}"
    outer, inner, seconds = (history[name][-1] for name in ("outer_passes", "inner_passes", "seconds"))
    passes = f"{outer:.4g} outer and {inner:.4g} inner passes"
    lines = [f"Result: {result.steps} steps ({passes}) in {seconds:.3g} s, ended by {result.stopped_by}"]
    names = metrics_of(history)
    lines += [
        f"  {name}: {history[name][0]:.5g} at step {history['step'][0]}, {history[name][-1]:.5g} at the end"
        for name in names[:MOST_SHOWN]
    ]
    return "\n".join([*lines, *_and_more(names), f"  x: {of_tree(result.x)}; y: {of_tree(result.y)}"])


def of_sweep(result: Any) -> str:
    """A sweep in a few lines."""
    runs = f"{len(result.settings)} settings × {len(result.seeds)} seeds"
    lines = [f"SweepResult: {runs}, {result.steps} steps each"]
    if result.best is not None:
        lines.append(f"  best by {result.best_by}: {setting(result.best)}")
    names = metrics_of(result.history)
    for name in names[:MOST_SHOWN]:
        mean = np.mean(result.final(name), -1)
        finite = mean[np.isfinite(mean)]
        spread = f"{finite.min():.5g} to {finite.max():.5g}" if len(finite) else "not finite"
        lines.append(f"  {name} at the end: {spread} (means over seeds)")
    return "\n".join([*lines, *_and_more(names)])


def setting(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}" for name, value in values.items()
    )


def _and_more(names: Sequence[str]) -> list[str]:
    return [f"  and {len(names) - MOST_SHOWN} more metrics"] if len(names) > MOST_SHOWN else []


def frame(columns: Mapping[str, Any]) -> Any:
    """A data frame of pandas."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_frame needs the package pandas: pip install pandas", name="pandas") from None
    return pandas.DataFrame(dict(columns))


def plot(history: Mapping[str, np.ndarray], against: str) -> Any:
    """Each metric along passes, seconds or steps, one panel each."""
    if against not in ALONG:
        raise ValueError(f"against must be one of {', '.join(map(repr, ALONG))}; got {against!r}")
    names = metrics_of(history)
    if not names:
        raise ValueError("there is nothing to plot: the run had no metrics; give solve metrics=lambda x, y: {...}")
    column, label = ALONG[against]
    figure = figures.new_figure(min(len(names), 3), -(-len(names) // 3))
    axes = np.ravel(figure.subplots(-(-len(names) // 3), min(len(names), 3), squeeze=False))
    for axis, name in zip(axes, names, strict=False):
        values = figures.drawable(np.asarray(history[name], float))
        axis.plot(history[column], values, color=figures.COLORS[0], linewidth=1.5)
        axis.set(xlabel=label, ylabel=name, yscale="log" if varies_widely(values) else "linear")
        figures.tidy(axis)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return figure


def varies_widely(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.min() > 0 and finite.max() > WIDE * finite.min())
