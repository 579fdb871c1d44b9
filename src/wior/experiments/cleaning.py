"""Figure 2: hyper-data cleaning on MNIST, every method of the paper and the newer ones.

40000 training rows of which 60% have a wrong label, 5000 clean rows, a network of three fully connected layers. The
quick version is the same on scikit-learn's digits with a smaller network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wior import baselines, figures
from wior.algorithms import WiORBO
from wior.data import Rows, digits, mnist
from wior.experiments import comparison
from wior.experiments.claims import Claim, ahead, level, verdict
from wior.experiments.comparison import Entrant, How, Outcome, Piece
from wior.experiments.experiment import Conclusion, Options
from wior.instruments.methods import classes
from wior.orders import Herding, Independent, RandomReshuffling, ShuffleOnce
from wior.problems import Bilevel
from wior.tasks.data_cleaning import data_cleaning
from wior.tasks.task import Measure, Task

TITLE = "Hyper-data cleaning"
FIGURE = (
    "Figure 2 of Li and Huang, NeurIPS 2024: loss on the clean rows and F1 of the rows kept as clean, against steps "
    "and seconds. Positive means kept, weight > ½; a corrupted label always differs from the true one."
)

NETWORK, QUICK_NETWORK = (784, 300, 100, 10), (64, 32, 10)
TRAIN_ROWS, CLEAN_ROWS = 40_000, 5_000
NOISE_RATE = 0.6
L2 = 1e-3
BATCH, QUICK_BATCH = 250, 25
STEPS, QUICK_STEPS = 2000, 400
DATA_SEED = 0

# the paper's γ = ρ = 0.1 and η = 1000 are among them
GRID = {"outer_lr": (100.0, 1000.0, 10_000.0), "inner_lr": (0.1, 0.3, 1.0)}
QUICK_GRID = {"outer_lr": (30.0, 100.0, 300.0), "inner_lr": (0.1, 0.3)}

SO, RR, WIR = "WiOR-BO (SO)", "WiOR-BO (RR)", "WiR-BO"
OURS = (
    Entrant(RR, WiORBO, RandomReshuffling()),
    Entrant(SO, WiORBO, ShuffleOnce()),
    Entrant(WIR, baselines.WiRBO, Independent()),
)
PAPERS = (
    Entrant("reverse", baselines.Reverse, Independent()),
    Entrant("stocBiO", baselines.StocBiO, Independent()),
    Entrant("BSA", baselines.BSA, Independent()),
    Entrant("AID-CG", baselines.AIDCG, Independent()),
    Entrant("MRBO", baselines.MRBO, Independent()),
    Entrant("VRBO", baselines.VRBO, Independent()),
)
HERDING = Entrant("WiOR-BO (herding)", WiORBO, Herding())
# as they are published they decay from the first step on; at this length that leaves them near the start
CONSTANT = ("BSA", "TTSA", "SOBA", "FSLA", "F2SA")


def newer() -> tuple[Entrant, ...]:
    """Every bilevel method of the library that the paper does not compare with, as published.

    With independent draws.
    """
    known = {entrant.kind for entrant in (*OURS, *PAPERS)}
    return tuple(
        Entrant(kind.__name__, kind, Independent())
        for kind in classes()
        if kind.solves is Bilevel and kind not in known
    )


# What the paper leaves open, changed one thing at a time.
VARIANTS: dict[str, dict[str, Any]] = {
    "weights clipped to [0, 1]": {"weights": "clipped", "outer_scale": 1 / 16},
    "batches of 100": {"batch": 100},
    "batches of 1000": {"batch": 1000},
    "labels redrawn from all classes": {"noise": "redrawn"},
}


def make_task(
    options: Options,
    *,
    weights: str = "sigmoid",
    noise: str = "uniform",
    batch: int | None = None,
    outer_scale: float = 1.0,
) -> Task:
    if options.quick:
        rows = digits(DATA_SEED, 1000, 300)
        # half of what is left judges step sizes, the other half the network
        half = len(rows.test.labels) // 2
        held_out, test = _cut(rows.test, slice(half)), _cut(rows.test, slice(half, None))
        train, clean, name = rows.train, rows.clean, "digits"
    else:
        images, tested = mnist(options.data, progress=options.progress)
        shuffled = np.random.default_rng(DATA_SEED).permutation(len(images.labels))
        train, clean, held_out = (
            _cut(images, part) for part in np.split(shuffled, [TRAIN_ROWS, TRAIN_ROWS + CLEAN_ROWS])
        )
        test, name = tested, "MNIST"
    sizes = QUICK_NETWORK if options.quick else NETWORK
    made = data_cleaning(
        train, clean, test,
        sizes=sizes, rate=NOISE_RATE, noise=noise, l2=L2, seed=DATA_SEED, held_out=held_out, weights=weights,
    )  # fmt: skip
    grid = QUICK_GRID if options.quick else GRID
    return Task(
        name="cleaning",
        title=f"{name}: {int(made.wrong.sum())} of {len(made.wrong)} labels wrong",
        problem=made.problem,
        x0=made.x0,
        y0=made.y0(DATA_SEED),
        metrics=made.metrics,
        measures={
            "clean_loss": Measure("loss on the clean rows", log=True),
            "f1": Measure("F1 of the rows kept", largest=True),
            "auroc": Measure("AUROC of the weights", largest=True),
            "accuracy": Measure("test accuracy", largest=True),
            "held_out_loss": Measure("loss on held-out rows", log=True),
        },
        judged_by="held_out_loss",
        batch_size=batch or (QUICK_BATCH if options.quick else BATCH),
        steps=QUICK_STEPS if options.quick else STEPS,
        grid={**grid, "outer_lr": tuple(outer_scale * rate for rate in grid["outer_lr"])},
        facts={
            "data": name,
            "train_rows": len(made.wrong),
            "wrong_labels": int(made.wrong.sum()),
            "clean_rows": len(clean[1]),
            "held_out_rows": len(held_out[1]),
            "network": list(sizes),
            "l2": L2,
            "weights": weights,
            "noise": noise,
            "data_seed": DATA_SEED,
        },
    )


def _cut(rows: Rows, part: Any) -> Rows:
    return Rows(rows.features[part], rows.labels[part])


def entrants(options: Options) -> tuple[Entrant, ...]:
    if options.quick:
        return (*OURS, *(one for one in PAPERS if one.label in ("stocBiO", "AID-CG", "MRBO")))
    found = (*OURS, *PAPERS, HERDING, *newer())
    return tuple(undecayed(one) if one.label in CONSTANT else one for one in found)


def undecayed(entrant: Entrant) -> Entrant:
    names = [field.name for field in dataclasses.fields(entrant.kind) if field.name.endswith("decay")]
    return dataclasses.replace(entrant, fixed={**entrant.fixed, **dict.fromkeys(names, 0.0)})


def variants(options: Options) -> dict[str, dict[str, Any]]:
    return {} if options.quick else VARIANTS


def settings(options: Options) -> dict[str, Any]:
    return {
        "grid": QUICK_GRID if options.quick else GRID,
        "judged_by": "held_out_loss",
        "steps": QUICK_STEPS if options.quick else STEPS,
        "entrants": [entrant.describe() for entrant in entrants(options)],
        "variants": variants(options),
    }


def count(options: Options) -> int:
    return len(entrants(options)) + len(OURS) * len(variants(options))


def run(options: Options, piece: Piece) -> Conclusion:
    task = make_task(options)
    outcomes = comparison.compare(task, entrants(options), How(options.seeds), piece)
    judged = claims(task, outcomes)
    changed: dict[str, tuple[Task, list[Outcome]]] = {}
    for name, change in variants(options).items():
        own = make_task(options, **change)
        changed[name] = (own, comparison.compare(own, OURS, How(options.seeds, timed=False), piece, name))
    judged += [_sensitivity(changed)] if changed else []
    found = comparison.rows(task, outcomes)
    others = {name: comparison.rows(own, each) for name, (own, each) in changed.items()}
    text = (
        f"## {task.title}\n\n{_protocol(task, options)}\n\n{comparison.table(task, found)}\n\n"
        "![](cleaning.png)\n\n![](all_methods.png)\n"
        + "".join(f"\n## {name}\n\n{comparison.table(own, others[name])}\n" for name, (own, _) in changed.items())
    )
    summary = {
        "task": dict(task.facts),
        "judged_by": task.judged_by,
        "methods": found,
        "variants": others,
    }
    groups = {"figure": outcomes, **{name: each for name, (_, each) in changed.items()}}

    def draw(folder: Path) -> None:
        shown = [one for one in outcomes if one.label in {entrant.label for entrant in (*OURS, *PAPERS)}]
        figures.save(plot(task, shown), folder, "cleaning")
        figures.save(plot_all(task, outcomes), folder, "all_methods")

    return Conclusion(judged, summary, text, draw, lambda path: comparison.write_history(path, groups))


def claims(task: Task, outcomes: Sequence[Outcome]) -> list[Claim]:
    of = {one.label: one for one in outcomes}
    ours, papers = (of[SO], of[RR]), {WIR, *(entrant.label for entrant in PAPERS)}
    rivals = [one for one in outcomes if one.label in papers]
    others = [one for one in outcomes if one.label not in (SO, RR, HERDING.label, *papers)]
    metrics = ("clean_loss", "f1")
    same = [level(ours[0].end(metric, task), ours[1].end(metric, task)) for metric in metrics]
    similar = Claim(
        "Shuffle once and random reshuffling perform alike.",
        verdict(same),
        "; ".join(
            f"{task.measures[metric].label} {of[SO].end(metric, task)} (SO), {of[RR].end(metric, task)} (RR)"
            for metric in metrics
        ),
    )
    every = "every method that the paper compares with"
    against_all = [_against(task, ours, rivals, every, by_time) for by_time in (False, True)]
    found = [similar, *against_all, _time_and_steps(task, of)]
    if others:
        newer = "the newer methods, which the paper does not have,"
        found += [_against(task, ours, others, newer, False), _against(task, ours, others, newer, True)]
    return found


def _against(task: Task, ours: Sequence[Outcome], rest: Sequence[Outcome], whom: str, by_time: bool) -> Claim:
    """Whether both orders are ahead of all the rest; none of it must be level with them either."""
    parts, sentences = [], []
    seconds = float(min(one.seconds[-1] for one in ours))
    for metric in ("clean_loss", "f1"):
        at = lambda one, metric=metric: one.after_seconds(metric, seconds, task) if by_time else one.end(metric, task)
        better = [one.label for one in rest if any(ahead(at(one), at(own)) for own in ours)]
        close = [
            one.label for one in rest if one.label not in better and not all(ahead(at(own), at(one)) for own in ours)
        ]
        parts.append(not better and not close)
        sentences.append(
            f"{task.measures[metric].label}: ahead of both {', '.join(better) or 'none'}; within the noise of one "
            f"{', '.join(close) or 'none'}; behind both {len(rest) - len(better) - len(close)} of {len(rest)}"
        )
    when = (
        f"after {seconds:.3g} seconds, when the slower of the two ends" if by_time else "after the same number of steps"
    )
    return Claim(f"Both are ahead of {whom} {when}.", verdict(parts), ". ".join(sentences) + ".")


def _time_and_steps(task: Task, of: dict[str, Outcome]) -> Claim:
    wir = of[WIR]
    target = wir.end("clean_loss", task).mean

    def share(label: str, along: str) -> float:
        """Infinite where the loss is never reached, NaN where WiR-BO ends no better than it began."""
        own, its = (one.first_at("clean_loss", target, task, along) for one in (of[label], wir))
        return own / its if its > 0 else np.nan

    shares = [(share(label, "step"), share(label, "seconds")) for label in (SO, RR)]
    parts = [seconds < steps for steps, seconds in shares] + [seconds < 1 for _, seconds in shares]
    numbers = "; ".join(
        f"{label} needs {steps:.2f} of its steps and {seconds:.2f} of its seconds"
        if np.isfinite(steps)
        else f"{label} does not come there"
        for label, (steps, seconds) in zip((SO, RR), shares, strict=True)
    )
    return Claim(
        "The lead over WiR-BO is larger in time than in steps.",
        verdict(parts),
        f"To the clean loss that WiR-BO ends at: {numbers}. A step of WiR-BO has "
        f"{wir.history['backward_passes'][-1] / wir.history['step'][-1]:.0f} backward passes and takes "
        f"{wir.pace / of[RR].pace:.2f} times as long as one of WiOR-BO.",
    )


def _sensitivity(changed: dict[str, tuple[Task, list[Outcome]]]) -> Claim:
    same, sentences = [], []
    for name, (task, outcomes) in changed.items():
        of = {one.label: one.end("clean_loss", task) for one in outcomes}
        same.append(level(of[SO], of[RR]) and not ahead(of[WIR], of[RR]))
        sentences.append(f"{name}: {of[SO]} (SO), {of[RR]} (RR), {of[WIR]} (WiR-BO)")
    return Claim(
        "(ours) The order of the three does not hang on what the paper leaves open.",
        verdict(same),
        "Loss on the clean rows. " + "; ".join(sentences) + ".",
    )


def _protocol(task: Task, options: Options) -> str:
    return (
        f"Every method has the same grid, {dict(task.grid)}, the same batches of {task.batch_size} rows at both "
        f"levels, {task.steps} steps and {options.seeds} seeds; its step sizes are those with the smallest mean "
        f"{task.measures[task.judged_by].label} at the end, rows that no loss saw. The rates of adjoint, Neumann and "
        "penalty are the inner one; BSA, TTSA, SOBA, FSLA and F2SA run without their decay, which at this length would "
        "leave them near the start (FSLA is then SOBA). The y of F2SA and MEHA, penalty methods, learns from the clean "
        "rows as well: their loss there is a training loss. Labels were corrupted once; seeds are seeds of the order. "
        "Mean ± standard deviation. The paper leaves open the weights (here σ(x)), the batch size, the widths and the "
        "number of steps."
    )


def plot(task: Task, outcomes: Sequence[Outcome]) -> Any:
    """Loss and F1 against steps and seconds."""
    figure = figures.new_figure(2, 2, 5.0, 3.2)
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    looks = figures.styles([one.label for one in outcomes])
    last = min(one.seconds[-1] for one in outcomes if one.label in (SO, RR, WIR))
    for row, metric in zip(axes, ("clean_loss", "f1"), strict=True):
        measure = task.measures[metric]
        for axis, along in zip(row, ("steps", "seconds"), strict=True):
            for one in outcomes:
                places = one.seconds if along == "seconds" else one.history["step"]
                figures.curve(axis, places, one.history[metric], looks[one.label], one.label, measure.log)
            figures.tidy(axis)
        row[0].set(ylabel=measure.label + (" (log scale)" if measure.log else ""))
        if measure.log:
            row[0].set_yscale("log")
        else:
            low, high = figures.limits(
                [one.history[metric] for one in outcomes if one.label in (SO, RR, WIR)], 0.08, 0.3
            )
            row[0].set_ylim(low, min(high, 1.0))
    axes[1, 0].set(xlabel="steps")
    axes[1, 1].set(xlabel="seconds of one run", xlim=(0, 1.5 * last))
    figure.suptitle(f"Hyper-data cleaning, {task.title}")
    figures.legend(figure, axes[0, 0], 5)
    return figure


def plot_all(task: Task, outcomes: Sequence[Outcome]) -> Any:
    """Where every method ends, and what a step of it costs."""
    from matplotlib.ticker import NullFormatter

    alive = [one for one in outcomes if one.best is not None and np.isfinite(one.history["clean_loss"][:, -1]).all()]
    ranked = sorted(alive, key=lambda one: -one.history["clean_loss"][:, -1].mean())
    figure = figures.new_figure(3, 1, 4.0, 0.24 * len(ranked) + 0.8)
    axes = figure.subplots(1, 3, sharey=True)
    panels = (
        ("clean_loss", [one.history["clean_loss"][:, -1] for one in ranked], "loss on the clean rows"),
        ("f1", [one.history["f1"][:, -1] for one in ranked], "F1 of the rows kept"),
        ("pace", [np.array([1e6 * one.pace]) for one in ranked], "µs a step of one run"),
    )
    for axis, (name, values, title) in zip(axes, panels, strict=True):
        for place, (one, own) in enumerate(zip(ranked, values, strict=True)):
            color = "#0072B2" if one.label in (RR, SO, HERDING.label) else "#404040"
            spread = own.std(ddof=1) if len(own) > 1 else 0.0
            axis.errorbar(own.mean(), place, xerr=spread, fmt="o", color=color, markersize=4)
        figures.tidy(axis)
        axis.set(xlabel=title, xscale="linear" if name == "f1" else "log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_yticks(range(len(ranked)), [one.label for one in ranked])
    figure.suptitle(f"All methods after {task.steps} steps, {task.title}")
    return figure
