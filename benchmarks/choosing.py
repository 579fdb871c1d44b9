"""Which method to take when: what each reaches with the same number of oracle calls, every one tuned over the same grid.

Calls are counted in examples, Gc(f) + Gc(g) + JV + HV. A method runs as many steps as its budget of calls allows, for every outer and inner
step size of the grid (the adjoint, Neumann and penalized rates are the inner one) and three seeds, under two orders; the setting with the
best mean at the end is reported. Everything else is at its default.

    python benchmarks/choosing.py ridge     ijcnn1 from WIOR_DATA: a ridge for each feature of a logistic regression
    python benchmarks/choosing.py cleaning  MNIST from WIOR_DATA: a weight for each of 20000 rows of which half are mislabeled
    python benchmarks/choosing.py others    closed-form problems of the other four classes
    python benchmarks/choosing.py plot A.json B.json … --png FILE   the results of runs with --json as a picture
    options: [--json FILE] [--only METHOD ...] [--budget BATCHES]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wior
from wior import oracle
from wior.data import ijcnn1, mnist
from wior.instruments.methods import classes
from wior.orders import Independent, RandomReshuffling
from wior.tasks import quadratic
from wior.tasks.ridge import exact_objective, minimum, ridge_per_feature
from workloads import cross_entropy

ORDERS = {"independent": Independent(), "random reshuffling": RandomReshuffling()}
SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Task:
    """A problem, where runs start, the grid, the budget in batches, and how an end is judged: smaller is better."""

    name: str
    problem: Any
    x0: Any
    y0: Any
    batch: Any
    outer_lr: tuple[float, ...]
    inner_lr: tuple[float, ...]
    budget: int
    score: Callable[[Any, Any], dict[str, Any]]
    judged_by: str


def ridge(folder: Path | None, budget: int = 40_000) -> Task:
    """x is the logarithm of a ridge for each of 22 features; the score is h(x) at the exact inner solution, above the best known."""
    train, valid, test = ijcnn1(folder)
    # cut to whole batches, for SABA
    cut = lambda rows, n: (rows.features[:n], rows.labels[:n])
    task = ridge_per_feature(cut(train, 34_944), cut(valid, 14_976), test)
    objective = jax.jit(jax.value_and_grad(functools.partial(exact_objective, task.problem)))
    best = minimum(objective, task.x0)
    first = float(objective(task.x0)[0]) - best

    def score(x: Any, y: Any) -> dict[str, Any]:
        return {"gap": (objective(x)[0] - best) / first}

    return Task(
        "ridge on ijcnn1", task.problem, task.x0, task.y0, 64, (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0), (0.3, 1.0, 3.0), budget, score, "gap"
    )  # fmt: skip


def cleaning(folder: Path | None, budget: int = 40_000) -> Task:
    """Softmax regression; the score is the loss on the 10000 test images, with the share of wrongly kept or dropped rows beside it."""
    (images, labels), test = mnist(folder)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(60_000)[:25_000]
    noisy, clean = chosen[:20_000], chosen[20_000:]
    given = labels[noisy].copy()
    wrong = rng.random(20_000) < 0.5
    given[wrong] = (given[wrong] + rng.integers(1, 10, wrong.sum())) % 10

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(cross_entropy(batch[0] @ y, batch[1]))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(batch[0] @ y, batch[1])) + 5e-4 * jnp.sum(y * y)

    def score(x: Any, y: Any) -> dict[str, Any]:
        kept = jax.nn.sigmoid(x.rows) > 0.5
        return {
            "test_loss": outer(None, y, tuple(map(jnp.asarray, test))),
            "wrongly_weighted": jnp.mean(kept == jnp.asarray(wrong)),
        }

    problem = wior.Bilevel(outer, inner, (images[clean], labels[clean]), (images[noisy], given))
    x0, y0 = wior.PerExample(jnp.zeros(20_000)), jnp.zeros((784, 10))
    return Task(
        "cleaning MNIST", problem, x0, y0, 250, (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5), (0.1, 0.3, 1.0), budget, score, "test_loss"
    )  # fmt: skip


def others(budget: int = 20_000) -> list[Task]:
    """Closed forms, noisy: the score is ‖x − x*‖² against the start's."""
    made = {
        "minimax": (quadratic.quadratic_minimax(p=5, d=8, m=256, noise=1.0), 8),
        "compositional": (quadratic.quadratic_compositional(p=5, d=8, m=256, n=256, noise=1.0), (8, 8)),
        "conditional bilevel": (quadratic.quadratic_conditional(p=5, d=8, m=128, n=16, noise=1.0), (8, 4)),
        "conditional compositional": (
            quadratic.quadratic_conditional_compositional(p=5, d=8, m=128, n=16, noise=1.0),
            (8, 4),
        ),
    }
    tasks = []
    for name, (problem, batch) in made.items():
        target, x0 = problem.minimizer(), jnp.zeros(5)
        score = lambda x, y, target=target: {"gap": jnp.sum((x - target) ** 2) / jnp.sum(target**2)}
        rates = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), (0.1, 0.3, 0.6)
        tasks.append(Task(name, problem.problem, x0, jnp.zeros(8), batch, *rates, budget, score, "gap"))
    return tasks


def methods_for(problem: Any) -> dict[str, type]:
    return {kind.__name__: kind for kind in classes() if kind.solves is type(problem)}


def measure(task: Task, name: str, kind: type, order: str) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(kind)}
    rates = [field for field in fields if field.endswith("_lr") and field != "outer_lr"]
    # a record longer than any run leaves the block's own length, so that a trial and the runs are one program
    options = {"batch_size": task.batch, "order": ORDERS[order], "record_every": 10**9}
    batch = task.batch if isinstance(task.batch, int) else max(task.batch)
    best: dict[str, Any] = {"score": np.inf}
    for inner_lr in task.inner_lr if rates else task.inner_lr[:1]:
        algorithm = kind(outer_lr=task.outer_lr[0], **dict.fromkeys(rates, inner_lr))
        if "steps" not in best:
            begun = time.perf_counter()
            # two passes, so that what happens once in a pass has its share
            length = 2 * max(-(-n // batch) for n in task.problem.sizes().values())
            trial = wior.solve(task.problem, algorithm, task.x0, task.y0, steps=length, **options)
            cost = sum(float(trial.history[call][-1]) for call in oracle.CALLS[:-1]) / length
            best |= {"steps": max(64, int(task.budget * batch / cost)), "trial_seconds": time.perf_counter() - begun}
        found = wior.sweep(
            task.problem, algorithm, task.x0, task.y0, grid={"outer_lr": list(task.outer_lr)}, seeds=SEEDS,
            metrics=task.score, steps=best["steps"], **options,
        )  # fmt: skip
        scores = np.nan_to_num(found.final(task.judged_by), nan=np.inf)
        for setting, own in zip(found.settings, scores, strict=True):
            if own.mean() < best["score"]:
                index = found.settings.index(setting)
                beside = {
                    key: float(found.final(key)[index].mean()) for key in jax.eval_shape(task.score, task.x0, task.y0)
                }
                best |= {
                    "score": float(own.mean()),
                    "spread": float(own.std()),
                    "inner_lr": inner_lr,
                    **setting,
                    **beside,
                }
        best["microseconds"] = 1e6 * float(found.history["seconds"][-1]) / best["steps"] / len(scores) / SEEDS
    return {"task": task.name, "method": name, "order": order, **best}


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        by = {(row["method"], row["order"]): row for row in own}
        names = sorted({row["method"] for row in own}, key=lambda name: by[name, "random reshuffling"]["score"])
        extra = "wrongly_weighted" in own[0]
        lines += ["", f"**{task}**", "", "| method | steps | independent | random reshuffling | ratio | best η, γ |" + (" rows weighted wrongly |" if extra else ""),
                  "| --- | --- | --- | --- | --- | --- |" + (" --- |" if extra else "")]  # fmt: skip
        for name in names:
            plain, shuffled = (by[name, order] for order in ORDERS)
            lines.append(
                f"| {name} | {shuffled['steps']} | {plain['score']:.3g} ± {plain['spread']:.1g} | {shuffled['score']:.3g} ± {shuffled['spread']:.1g} "
                f"| {plain['score'] / shuffled['score']:.2f} | {shuffled['outer_lr']:g}, {shuffled['inner_lr']:g} |"
                + (f" {plain['wrongly_weighted']:.3f} / {shuffled['wrongly_weighted']:.3f} |" if extra else "")
            )
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """What each method reaches under both orders, a panel for each task."""
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    of = {task: [row for row in rows if row["task"] == task] for task in tasks}
    heights = [len(of[task]) / 2 for task in tasks]
    columns = [tasks[: len(tasks) // 3 or 1], tasks[len(tasks) // 3 or 1 : 2], tasks[2:]]
    columns = [column for column in columns if column]
    figure = plt.figure(figsize=(4.6 * len(columns), 0.26 * max(heights) + 1.6), layout="constrained")
    grid = figure.add_gridspec(1, len(columns))
    for place, column in zip(grid, columns, strict=True):
        counts = [len(of[task]) / 2 + 2 for task in column]
        for panel, task in zip(place.subgridspec(len(column), 1, height_ratios=counts), column, strict=True):
            _panel(figure.add_subplot(panel), task, of[task])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    figure.savefig(path, dpi=110)


def _panel(axes: Any, task: str, rows: list[dict[str, Any]]) -> None:
    by = {(row["method"], row["order"]): row for row in rows}
    names = sorted({row["method"] for row in rows}, key=lambda name: -by[name, "random reshuffling"]["score"])
    for order, color, marker in (("independent", "#404040", "o"), ("random reshuffling", "#0072B2", "D")):
        scores = [by[name, order]["score"] for name in names]
        axes.plot(scores, range(len(names)), marker, color=color, label=order, markersize=5, alpha=0.85)
    for i, name in enumerate(names):
        ends = [by[name, order]["score"] for order in ORDERS]
        axes.plot(ends, [i, i], "-", color="#b0b0b0", linewidth=1, zorder=0)
    every = [row["score"] for row in rows]
    axes.set(yticks=range(len(names)), xscale="log" if max(every) > 5 * min(every) else "linear", title=task)
    axes.xaxis.set_minor_formatter("")
    axes.tick_params(labelsize=8)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_yticklabels(names, fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("test loss" if "wrongly_weighted" in rows[0] else "relative gap", fontsize=8)
    axes.title.set_fontsize(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["ridge", "cleaning", "others", "plot"])
    parser.add_argument("results", type=Path, nargs="*", help="of earlier runs, to plot")
    parser.add_argument("--png", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--budget", type=int, help="of calls, in batches")
    arguments = parser.parse_args()
    if arguments.task == "plot":
        plot([row for path in arguments.results for row in json.loads(path.read_text())], arguments.png)
        return
    budget = {} if arguments.budget is None else {"budget": arguments.budget}
    made = {"ridge": lambda: [ridge(None, **budget)], "cleaning": lambda: [cleaning(None, **budget)], "others": lambda: others(**budget)}  # fmt: skip
    rows = []
    print(f"{jax.devices()[0].device_kind} ({platform.machine()}), jax {jax.__version__}", flush=True)
    for task in made[arguments.task]():
        for name, kind in methods_for(task.problem).items():
            if arguments.only and name not in arguments.only:
                continue
            for order in ORDERS:
                begun = time.perf_counter()
                rows.append(measure(task, name, kind, order))
                row = rows[-1]
                print(f"{task.name}, {name}, {order}: {row['score']:.3g} in {row['steps']} steps ({time.perf_counter() - begun:.0f} s)", flush=True)  # fmt: skip
                if arguments.json:
                    arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
