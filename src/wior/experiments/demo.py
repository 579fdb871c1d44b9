"""The demo: does the order of the examples matter when wrong labels are to be found?

Hyper-data cleaning on the embedded digits. WiOR-BO under two orders without replacement against WiR-BO, the paper's
control with independent draws, at equal step sizes, batch size and number of steps. A seed is the seed of the order,
and all runs share the wrong labels and the starting network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from wior import figures
from wior.algorithms import WiORBO
from wior.baselines import WiRBO
from wior.data import digits
from wior.experiments import comparison, contest
from wior.experiments.comparison import CALLS, Entrant, How, Piece
from wior.experiments.experiment import Conclusion, Options
from wior.orders import Independent, RandomReshuffling, ShuffleOnce
from wior.tasks.data_cleaning import data_cleaning
from wior.tasks.task import Measure, Task

TRAIN_ROWS, CLEAN_ROWS = 1000, 500
NETWORK = (64, 32, 10)
L2 = 1e-3
BATCH = 25
STEPS, QUICK_STEPS = 1000, 200  # later the network fits the clean rows by heart and F1 falls, under every order
DATA_SEED = 0

# of the 36 in {30, 100, 300, 1000} × {0.1, 0.3, 1} × {0.03, 0.1, 0.3}, ten seeds each, these are second for the
# control, WiR-BO, in clean loss and in F1 (random reshuffling: fifth and first; shuffle once: second and tenth)
STEP_SIZES = {"outer_lr": (100.0,), "inner_lr": (0.3,), "adjoint_lr": (0.1,)}

ENTRANTS = (
    Entrant("WiOR-BO, random reshuffling", WiORBO, RandomReshuffling()),
    Entrant("WiOR-BO, shuffle once", WiORBO, ShuffleOnce()),
    Entrant("WiR-BO, independent", WiRBO, Independent()),
)
MEASURES = {
    "clean_loss": Measure("clean loss", log=True),
    "f1": Measure("F1", largest=True),
    "auroc": Measure("AUROC", largest=True),
    "accuracy": Measure("accuracy", largest=True),
}


@dataclasses.dataclass(frozen=True)
class Demo:
    """The comparison with a share `rate` of the training labels made wrong, of a kind of `noise`."""

    rate: float = 0.5
    noise: str = "uniform"

    TITLE = "Finding wrong labels in the digits"
    FIGURE = "Two orders without replacement against independent draws, at equal step sizes, batches, seeds and steps."

    def __post_init__(self) -> None:
        if not 0 < round(self.rate * TRAIN_ROWS) < TRAIN_ROWS:
            raise ValueError(
                f"rate must leave some of {TRAIN_ROWS} labels right and make some wrong, got {self.rate!r}"
            )

    def settings(self, options: Options) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "step_sizes": STEP_SIZES,
            "batch_size": BATCH,
            "steps": QUICK_STEPS if options.quick else STEPS,
            "entrants": [entrant.describe() for entrant in ENTRANTS],
        }

    def count(self, options: Options) -> int:
        return len(ENTRANTS)

    def task(self, options: Options) -> Task:
        rows = digits(DATA_SEED, TRAIN_ROWS, CLEAN_ROWS)
        made = data_cleaning(*rows, sizes=NETWORK, rate=self.rate, noise=self.noise, l2=L2, seed=DATA_SEED)
        wrong = int(made.wrong.sum())
        right = TRAIN_ROWS - wrong
        return Task(
            name="demo",
            title=f"digits: {wrong} of {TRAIN_ROWS} labels wrong ({self.noise})",
            problem=made.problem,
            x0=made.x0,
            y0=made.y0(DATA_SEED),
            metrics=made.metrics,
            measures=MEASURES,
            judged_by="clean_loss",
            batch_size=BATCH,
            steps=QUICK_STEPS if options.quick else STEPS,
            grid=STEP_SIZES,
            facts={
                "data": "digits",
                "train_rows": TRAIN_ROWS,
                "clean_rows": CLEAN_ROWS,
                "test_rows": len(rows.test.labels),
                "rate": self.rate,
                "noise": self.noise,
                "wrong_labels": wrong,
                "f1_of_keeping_all": 2 * right / (right + TRAIN_ROWS),
                "network": list(NETWORK),
                "l2": L2,
            },
        )

    def run(self, options: Options, piece: Piece) -> Conclusion:
        task = self.task(options)
        outcomes = comparison.compare(task, ENTRANTS, How(options.seeds), piece)
        found = comparison.rows(task, outcomes)
        return Conclusion(
            [],
            {"task": dict(task.facts), "methods": found},
            f"{task.title}.\n\n{comparison.table(task, found)}\n\n![](comparison.png)\n",
            lambda folder: figures.save(contest.plot(task, outcomes), folder, "comparison"),
            lambda path: comparison.write_history(path, {self.TITLE: outcomes}),
        )


def tables(summary: Mapping[str, Any]) -> Group:
    """The summary for a terminal of 100 columns."""
    task, rows = summary["task"], summary["methods"]
    steps, seeds = rows[0]["steps"], len(rows[0]["f1"]["seeds"])
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    quality = _table(
        f"{task['wrong_labels']} of {task['train_rows']} labels wrong ({task['noise']}); after {steps} steps, {over}",
        tuple(f"{measure.label} {'↑' if measure.largest else '↓'}" for measure in MEASURES.values()),
        f"Loss on the {task['clean_rows']} clean rows, accuracy on {task['test_rows']} test rows. F1 of the rows kept "
        f"as clean, weight > ½ (keeping all: {task['f1_of_keeping_all']:.3f}). AUROC of the weight as a score for "
        "'this label is right'. Seeds are seeds of the order; the wrong labels and the starting network are the same "
        "in all runs.",
    )
    cost = _table(
        "Cost of one run",
        ("seconds", "∇f", "∇g", "JV", "HV", "backward passes"),
        "Seconds in steps of a run by itself, without compilation and metrics, at the pace of its fastest stretch. "
        "Calls in examples: gradients of f and g, Jacobian- and Hessian-vector products.",
    )
    for row in rows:
        pace = row["microseconds_a_step"]
        seconds = "–" if pace is None else f"{1e-6 * pace * steps:.3f}"
        quality.add_row(row["label"], *(_three_digits(row[name]) for name in MEASURES))
        cost.add_row(row["label"], seconds, *(f"{row[call]:,.0f}" for call in CALLS))
    return Group(quality, "", cost, "", f"Plot, curves and summary: {summary['folder']}/")


def _table(title: str, columns: tuple[str, ...], caption: str) -> Table:
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    made.title_style, made.caption_style = "bold", "dim"
    made.add_column("method", no_wrap=True)
    for name in columns:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def _three_digits(value: Mapping[str, Any]) -> str:
    if value["mean"] is None:
        return "diverged"
    return f"{value['mean']:.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")
