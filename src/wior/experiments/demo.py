"""The demo: does the order of the examples matter when wrong labels are to be found?

Hyper-data cleaning on the embedded digits. WiOR-BO under two orders without replacement against WiR-BO, the paper's
control with independent draws, at equal step sizes, batch size and number of steps. Every seed of a method runs in one
program; a seed is the seed of the order, and all runs share the wrong labels and the starting network.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from wior.algorithms import WiORBO
from wior.algorithms.algorithm import Algorithm
from wior.baselines import WiRBO
from wior.data import digits
from wior.experiments.comparison import CALLS, spread
from wior.orders import Independent, Order, RandomReshuffling, ShuffleOnce
from wior.running.sweep import SweepResult, sweep
from wior.saving.folders import whole_folder
from wior.tasks import DataCleaning, data_cleaning
from wior.version import __version__

TRAIN_ROWS, CLEAN_ROWS = 1000, 500
NETWORK = (64, 32, 10)
L2 = 1e-3
BATCH = 25
STEPS, QUICK_STEPS = 1000, 200  # later the network fits the clean rows by heart and F1 falls, under every order
RECORDS = 50
ROUNDS = 5  # each method is timed that often, in turn with the others
DATA_SEED = 0

# of the 36 in {30, 100, 300, 1000} × {0.1, 0.3, 1} × {0.03, 0.1, 0.3}, ten seeds each, these are second for the control,
# WiR-BO, in clean loss and in F1 (random reshuffling: fifth and first; shuffle once: second and tenth)
STEP_SIZES: dict[str, Any] = {"outer_lr": 100.0, "inner_lr": 0.3, "adjoint_lr": 0.1}

METRICS = ("clean_loss", "f1", "auroc", "accuracy")
MADE_BY = "wior demo"
SUMMARY, CURVES, PLOT = "summary.json", "curves.csv", "comparison.png"


class Method(NamedTuple):
    name: str
    order_name: str
    algorithm: Algorithm
    order: Order
    color: str  # Okabe and Ito's, which color-blind readers can tell apart
    line: Any


class Outcome(NamedTuple):
    method: Method
    result: SweepResult
    seconds: np.ndarray  # (records,), of one run: those of the whole program divided by its runs


METHODS = (
    Method("WiOR-BO", "random reshuffling", WiORBO(**STEP_SIZES), RandomReshuffling(), "#0072B2", "-"),
    Method("WiOR-BO", "shuffle once", WiORBO(**STEP_SIZES), ShuffleOnce(), "#D55E00", (0, (6, 2))),
    Method("WiR-BO", "independent", WiRBO(**STEP_SIZES), Independent(), "#404040", (0, (1, 1.3))),
)


def demo(
    out: Path,
    *,
    rate: float = 0.5,
    noise: str = "uniform",
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Runs the comparison, saves plot, curves and summary in the folder `out`, and returns the summary."""
    if not 0 < round(rate * TRAIN_ROWS) < TRAIN_ROWS:
        raise ValueError(f"rate must leave some of {TRAIN_ROWS} labels right and make some wrong, got {rate!r}")
    with whole_folder(out, is_a_demo) as folder:
        rows = digits(DATA_SEED, TRAIN_ROWS, CLEAN_ROWS)
        task = data_cleaning(*rows, sizes=NETWORK, rate=rate, noise=noise, l2=L2, seed=DATA_SEED)
        steps = QUICK_STEPS if quick else STEPS
        outcomes = compare(task, seeds, steps, progress)
        summary = summarize(outcomes, task, rate, noise, steps)
        write_curves(outcomes, folder / CURVES)
        plot(outcomes, f"{rate:.0%} of the training labels are wrong ({noise})", folder / PLOT)
        (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def compare(task: DataCleaning, seeds: int, steps: int, progress: bool) -> list[Outcome]:
    """Runs every method once with metrics, and again without to time it on a machine that others may use as well."""
    results: dict[Method, SweepResult] = {}
    seconds: dict[Method, list[np.ndarray]] = {method: [] for method in METHODS}
    with progress_bar(progress, ROUNDS * len(METHODS)) as now:
        for number in range(ROUNDS):
            for method in METHODS:
                what = f"compile, run {seeds} seeds" if number == 0 else f"timed again, {number + 1} of {ROUNDS}"
                now(f"{method.name}, {method.order_name}: {what}")
                result = sweep(
                    task.problem,
                    method.algorithm,
                    task.x0,
                    task.y0(DATA_SEED),
                    grid={},
                    seeds=seeds,
                    order=method.order,
                    batch_size=BATCH,
                    steps=steps,
                    metrics=task.metrics if number == 0 else None,
                    record_every=-(-steps // RECORDS),
                )
                results.setdefault(method, result)
                seconds[method].append(result.history["seconds"] / seeds)
    return [Outcome(method, results[method], least_disturbed(seconds[method])) for method in METHODS]


def least_disturbed(rounds: list[np.ndarray]) -> np.ndarray:
    """The time at each record, every stretch between two records as fast as in its fastest round."""
    stretches = np.diff(np.array(rounds), axis=1, prepend=0.0)
    return np.cumsum(stretches.min(0))


@contextlib.contextmanager
def progress_bar(show: bool, total: int) -> Iterator[Callable[[str], None]]:
    """Yields a function that is told before each of `total` pieces what it is."""
    if not show:
        yield lambda name: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # on stderr, so that what is printed on stdout can be piped
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, done = bar.add_task("", total=total), itertools.count()

        def now(name: str) -> None:
            bar.update(task, completed=next(done), description=name)

        yield now


def summarize(outcomes: list[Outcome], task: DataCleaning, rate: float, noise: str, steps: int) -> dict[str, Any]:
    """Everything the tables show, as numbers, and what is needed to run it again."""
    sizes, wrong = task.problem.sizes(), int(task.wrong.sum())
    right = sizes["inner"] - wrong
    return {
        "made_by": MADE_BY,
        "version": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "task": {
            "data": "digits",
            "train_rows": sizes["inner"],
            "clean_rows": sizes["outer"],
            "test_rows": len(task.test[1]),
            "rate": rate,
            "noise": noise,
            "wrong_labels": wrong,
            "f1_of_keeping_all": 2 * right / (right + sizes["inner"]),
            "network": list(NETWORK),
            "l2": L2,
        },
        "settings": {
            **STEP_SIZES,
            "batch_size": BATCH,
            "steps": steps,
            "steps_between_records": int(outcomes[0].result.history["step"][1]),
            "rounds": ROUNDS,
            "seeds": outcomes[0].result.seeds,
        },
        "methods": [
            {
                "method": method.name,
                "order": method.order_name,
                **{metric: spread(result.final(metric)[0]) for metric in METRICS},
                "seconds": float(seconds[-1]),
                "compile_seconds": result.compile_seconds,
                **{call: int(result.history[call][0, 0, -1]) for call in CALLS},
            }
            for method, result, seconds in outcomes
        ],
    }


def deviation(values: np.ndarray) -> Any:
    """The standard deviation over the first axis, of a sample; zero for a single one."""
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def tables(summary: dict[str, Any], folder: Path) -> Group:
    """The summary for a terminal of 100 columns."""
    task, settings = summary["task"], summary["settings"]
    steps, seeds = settings["steps"], len(settings["seeds"])
    stretch = settings["steps_between_records"]
    shared = f", of {seeds} runs in one program divided by {seeds}" if seeds > 1 else ""
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    quality = table(
        f"{task['wrong_labels']} of {task['train_rows']} labels wrong ({task['noise']}); after {steps} steps, {over}",
        ("clean loss ↓", "F1 ↑", "AUROC ↑", "accuracy ↑"),
        f"Loss on the {task['clean_rows']} clean rows, accuracy on {task['test_rows']} test rows. F1 of the rows kept as clean, weight > ½ "
        f"(keeping all: {task['f1_of_keeping_all']:.3f}). AUROC of the weight as a score for 'this label is right'. "
        "Seeds are seeds of the order; the wrong labels and the starting network are the same in all runs.",
    )
    cost = table(
        "Cost of one run",
        ("seconds", "∇f", "∇g", "JV", "HV", "backward passes"),
        f"Seconds in steps, without compilation and metrics{shared}; each stretch of {stretch} steps the fastest of "
        f"{settings['rounds']} rounds. Calls in examples: gradients of f and g, Jacobian- and Hessian-vector products.",
    )
    for row in summary["methods"]:
        name = (row["method"], row["order"])
        quality.add_row(*name, *(with_deviation(row[metric]) for metric in METRICS))
        cost.add_row(*name, f"{row['seconds']:.3f}", *(f"{row[call]:,}" for call in CALLS))
    return Group(quality, "", cost, "", f"Plot, curves and summary: {folder}/")


def table(title: str, columns: tuple[str, ...], caption: str) -> Table:
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    made.title_style, made.caption_style = "bold", "dim"
    for name in ("method", "order"):
        made.add_column(name, no_wrap=True)
    for name in columns:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def with_deviation(value: dict[str, Any]) -> str:
    if value["mean"] is None:
        return "diverged"
    return f"{value['mean']:.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")


def write_curves(outcomes: list[Outcome], path: Path) -> None:
    """One line for each method, seed and record."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "order", "seed", "step", "seconds", *METRICS))
        for method, result, seconds in outcomes:
            for place, seed in enumerate(result.seeds):
                for record, step in enumerate(result.history["step"]):
                    values = (f"{result.history[metric][0, place, record]:.6g}" for metric in METRICS)
                    writer.writerow((method.name, method.order_name, seed, step, f"{seconds[record]:.6g}", *values))


def plot(outcomes: list[Outcome], title: str, path: Path) -> None:
    """Clean loss and F1 against steps and against seconds, the mean over seeds and one deviation around it."""
    from matplotlib.figure import Figure  # used by itself it draws with Agg: no window, no global state
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = Figure(figsize=(10, 6.8), dpi=150, layout="constrained")
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for method, result, seconds in outcomes:
        for row, metric in zip(axes, ("clean_loss", "f1"), strict=True):
            values = result.history[metric][0]
            mean, std = values.mean(0), deviation(values)
            for axis, along in zip(row, (result.history["step"], seconds), strict=True):
                label = f"{method.name}, {method.order_name}"
                axis.plot(along, mean, color=method.color, linestyle=method.line, linewidth=1.8, label=label)
                lowest = np.maximum(mean - std, 1e-6)
                axis.fill_between(along, lowest, mean + std, color=method.color, alpha=0.18, linewidth=0)
    axes[0, 0].set(ylabel="clean-set loss (log scale)", yscale="log")
    axes[0, 0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0, 0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes[0, 0].yaxis.set_minor_formatter(NullFormatter())
    axes[1, 0].set(ylabel="F1 of the rows kept as clean", xlabel="steps", ylim=zoom(outcomes))
    axes[1, 1].set(xlabel="seconds in steps, of one run")
    for axis in axes.flat:
        axis.grid(color="0.9", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    figure.suptitle(f"Finding wrong labels in the digits: {title}\nmean and standard deviation over seeds")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path)


def zoom(outcomes: list[Outcome]) -> tuple[float, float]:
    """Limits of F1 that show where methods differ: it starts at zero, before any weight has moved, and rises steeply."""
    means = np.array([result.history["f1"][0].mean(0) for _, result, _ in outcomes])
    if not np.isfinite(means).all():
        return 0.0, 1.0
    settled = means[:, means.shape[1] // 8 :]
    return max(0.0, float(settled.min()) - 0.01), min(1.0, float(settled.max()) + 0.01)


def is_a_demo(path: Path) -> bool:
    """Whether a folder is that of an earlier demo, with nothing of the user's added to it."""
    try:
        made_by = json.loads((path / SUMMARY).read_text())["made_by"]
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return bool(made_by == MADE_BY) and {entry.name for entry in path.iterdir()} <= {SUMMARY, CURVES, PLOT}
