"""Table 1: how the error of WiOR-BO falls with the step size and with the oracle calls, order by order.

Closed-form bilevel problems, quadratic (h strongly convex) and with waves in f (h not convex), each with examples that
have Hessians of their own and with examples that share them. Constant step sizes η, γ = ρ = 2η, batches of one example,
every seed in one program, in float64. ‖∇h‖² is measured after every second epoch, since a pass of `FlipFlop` and its
reverse are two. Inside a pass the iterates are elsewhere, and further away: at the end of a run it is also measured
after each step of two more epochs, and both are reported.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import figures, oracle
from wior.algorithms import WiORBO
from wior.experiments.claims import Claim, verdict
from wior.experiments.comparison import Piece
from wior.experiments.experiment import Conclusion, Options
from wior.instruments.order_error import order_error
from wior.orders import FlipFlop, Herding, Independent, Order, RandomReshuffling, ShuffleOnce
from wior.running.progress import Progress
from wior.running.sweep import sweep
from wior.saving.checkpoint import Checkpoint
from wior.saving.folders import Arrays
from wior.tasks.quadratic import Quadratic, QuadraticWithWaves, quadratic, quadratic_with_waves, with_shared_hessians

TITLE = "Rates in the step size and in ε"
FIGURE = (
    "Table 1 of Li and Huang, NeurIPS 2024: oracle calls to an ε-stationary point, O(ε⁻⁴) with independent draws "
    "and O(ε⁻³) with permutations."
)

SIZES = {"p": 3, "d": 4, "m": 6, "n": 8}
NOISE, HEIGHT, DATA_SEED = 1.0, 0.4, 1
# every entry of x₀: so far away that the way matters at every step size, and leads through negative curvature
START = -10.0
LARGEST_STEP, FASTER = 0.04, 2.0  # η, and γ/η = ρ/η
HALVINGS, QUICK_HALVINGS = 6, 4
LENGTH = 40.0  # η × steps: past the transient of every problem by far
STEPS_BETWEEN_RECORDS = 48  # two epochs of lcm(6, 8) steps
SEEDS, QUICK_SEEDS = 64, 16
SMALL_STEPS = 3  # the slope is fitted to so many of the smallest step sizes, too
EPSILONS = np.geomspace(10, 1e-6, 141)
DENSE = 0.5  # calls are counted where records are no further apart than this in η × steps, or the way would be missed
RESAMPLES, RESAMPLING_SEED = 400, 0
ALPHA_PASSES, ALPHA_WARMUP, ALPHA_SEEDS = 128, 16, 3
ABOUT = 0.25  # what "about" a power means in the verdicts

ORDERS: dict[str, Order] = {
    "independent": Independent(),
    "shuffle once": ShuffleOnce(),
    "reshuffled": RandomReshuffling(),
    "flip-flop": FlipFlop(),
    "herding (pairs)": Herding("pair"),
    "herding (mean)": Herding("mean"),
}
QUICK_ORDERS = ("independent", "shuffle once", "reshuffled")
QUICK_PROBLEMS, QUICK_ALPHA = ("convex, shared", "convex, own", "waves, own"), ("convex, own",)
PROBLEMS = {
    "convex, shared": "strongly convex h, shared Hessians",
    "convex, own": "strongly convex h, own Hessians",
    "waves, shared": "non-convex h, shared Hessians",
    "waves, own": "non-convex h, own Hessians",
}
CRITERIA = {
    "last": "‖∇h‖² falls below ε² and stays there",
    "mean": "the mean of ‖∇h‖² over the run so far does",
}
DERIVATIVES = ("outer_gradient", "inner_gradient", "inner_products")

Task = Quadratic | QuadraticWithWaves


class StepSizeRuns(NamedTuple):
    """The runs of one step size."""

    eta: float
    squared: np.ndarray  # ‖∇h‖² (seeds, records)
    within: np.ndarray  # (seeds,), its mean over all steps of two epochs at the end
    calls: np.ndarray  # (records,), all four kinds, in examples


class Fit(NamedTuple):
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "–" if np.isnan(self.value) else f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def settings(options: Options) -> dict[str, Any]:
    return {
        **SIZES,
        "noise": NOISE,
        "height": HEIGHT,
        "data_seed": DATA_SEED,
        "start": START,
        "step_sizes": step_sizes(options.quick).tolist(),
        "faster": FASTER,
        "length": LENGTH,
        "steps_between_records": STEPS_BETWEEN_RECORDS,
        "seeds": seeds_of(options),
        "orders": {name: repr(ORDERS[name]) for name in orders_of(options.quick)},
        "problems": {problem: PROBLEMS[problem] for problem in problems_of(options.quick)},
        "criteria": CRITERIA,
        "resamples": RESAMPLES,
        "resampling_seed": RESAMPLING_SEED,
        "alpha_passes": ALPHA_PASSES,
        "alpha_warmup": ALPHA_WARMUP,
    }


def count(options: Options) -> int:
    return len(problems_of(options.quick)) * len(orders_of(options.quick))


def run(options: Options, piece: Piece) -> Conclusion:
    results = measure(options.quick, seeds_of(options), piece)
    found = summary(results)
    return Conclusion(
        judged(found), found, report(found), lambda folder: plot(results, folder), lambda path: write(results, path)
    )


def seeds_of(options: Options) -> int:
    """Never fewer than the fits need: runs side by side cost next to nothing."""
    return max(options.seeds, QUICK_SEEDS if options.quick else SEEDS)


def orders_of(quick: bool) -> tuple[str, ...]:
    return QUICK_ORDERS if quick else tuple(ORDERS)


def problems_of(quick: bool) -> tuple[str, ...]:
    return QUICK_PROBLEMS if quick else tuple(PROBLEMS)


def step_sizes(quick: bool) -> np.ndarray:
    return LARGEST_STEP * 0.5 ** np.arange(1 + (QUICK_HALVINGS if quick else HALVINGS))


# The runs.


def measure(quick: bool, seeds: int | None, piece: Piece) -> dict[str, dict[str, Arrays]]:
    """The arrays of every problem and order; a piece for each."""
    etas = step_sizes(quick)
    steps = sum(steps_of(eta) for eta in etas)
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    results: dict[str, dict[str, Arrays]] = {}
    with double_precision():
        for problem in problems_of(quick):
            alpha_seeds = ALPHA_SEEDS if not quick else int(problem in QUICK_ALPHA)
            task = make_task(problem)
            metrics = metrics_of(task)
            results[problem] = {}
            for name in orders_of(quick):
                work = functools.partial(_piece, task, metrics, ORDERS[name], etas, (seeds, alpha_seeds))
                results[problem][name] = piece(f"{problem} {name}", steps, work)
    return results


def double_precision() -> Any:
    """A context in which arrays are float64: errors below 1e-7 are measured."""
    enable = getattr(jax, "enable_x64", None)
    if enable is None:  # jax before 0.8
        enable = __import__("jax.experimental", fromlist=["enable_x64"]).enable_x64
    return enable(True)


def make_task(problem: str) -> Task:
    kind, hessians = problem.split(", ")
    options: dict[str, Any] = {**SIZES, "noise": NOISE, "seed": DATA_SEED}
    if kind == "waves":
        waves = quadratic_with_waves(**options, height=HEIGHT)
        return with_shared_hessians(waves) if hessians == "shared" else waves
    plain = quadratic(**options)
    return with_shared_hessians(plain) if hessians == "shared" else plain


def metrics_of(task: Task) -> Any:
    """‖∇h‖², and the smallest eigenvalue of ∇²h: where it is negative, h is not convex."""

    def metrics(x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        curvature = jnp.linalg.eigvalsh(jax.hessian(task.objective)(x))[0]
        return {"squared": jnp.sum(task.hypergradient(x) ** 2), "curvature": curvature}

    return metrics


def steps_of(eta: float) -> int:
    return int(np.ceil(LENGTH / eta / STEPS_BETWEEN_RECORDS)) * STEPS_BETWEEN_RECORDS


def _piece(
    task: Task,
    metrics: Any,
    order: Order,
    etas: np.ndarray,
    seeds: tuple[int, int],
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Arrays:
    """The runs and the order's α, which have numbers of seeds of their own."""
    runs = _runs(task, metrics, order, etas, seeds[0], progress, checkpoint)
    return {**runs, "alpha": _alphas(task, order, seeds[1])}


def _runs(
    task: Task,
    metrics: Any,
    order: Order,
    etas: np.ndarray,
    seeds: int,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> Arrays:
    arrays: Arrays = {"etas": etas}
    done, curvatures = 0, []
    with tempfile.TemporaryDirectory() as own:
        folder = Checkpoint(own) if checkpoint is None else checkpoint
        for i, eta in enumerate(map(float, etas)):
            run = functools.partial(
                sweep,
                task.problem,
                WiORBO(outer_lr=eta, inner_lr=FASTER * eta, adjoint_lr=FASTER * eta),
                jnp.full(SIZES["p"], START),
                jnp.zeros(SIZES["d"]),
                grid={},
                seeds=seeds,
                order=order,
                batch_size=1,
                metrics=metrics,
                progress=functools.partial(_further, progress, done),
            )
            here = _of_step_size(folder, i)
            result = run(steps=steps_of(eta), record_every=STEPS_BETWEEN_RECORDS, checkpoint=here)
            done += result.steps
            arrays[f"squared_{i}"] = result.history["squared"][0]
            arrays[f"within_{i}"] = _within(run, result.steps, here)
            kinds = [name for name in oracle.CALLS if name != "backward_passes"]
            arrays[f"calls_{i}"] = sum(result.history[name][0, 0] for name in kinds)
            curvature = result.history["curvature"][0]
            curvatures.append((curvature.min(), curvature[:, -1].min()))
    arrays["curvature"] = np.array(curvatures)  # (step sizes, 2): the smallest on the way, and at the end
    return arrays


def _within(run: Any, steps: int, there: Checkpoint) -> np.ndarray:
    """The mean of ‖∇h‖² over the steps of two epochs after the end of a run, (seeds,)."""
    further = Path(f"{there.folder}-within")
    shutil.rmtree(further, ignore_errors=True)
    shutil.copytree(there.folder, further)
    longer = run(
        steps=steps + STEPS_BETWEEN_RECORDS,
        record_every=1,
        checkpoint=dataclasses.replace(there, folder=further),
        progress=False,
    )
    shutil.rmtree(further)
    return longer.history["squared"][0][:, -STEPS_BETWEEN_RECORDS:].mean(1)


def _of_step_size(checkpoint: Checkpoint, number: int) -> Checkpoint:
    """Each step size is a run of its own, saved at its end too: a piece that goes on does not make it again."""
    return dataclasses.replace(checkpoint, folder=Path(checkpoint.folder) / f"step-size-{number}", at_end=True)


def _further(progress: Progress, done: int, step: int, latest: dict[str, Any]) -> None:
    progress(done + step, latest)


def _alphas(task: Task, order: Order, seeds: int) -> np.ndarray:
    """α of each derivative (seeds, derivatives) at x = 0 and y = 1, away from the solution.

    NaN where averages have no error.
    """
    x, y = jnp.zeros(SIZES["p"]), jnp.ones(SIZES["d"])
    measured = [
        order_error(task.problem, order, x, y, 1, passes=ALPHA_PASSES, seed=seed, warmup=ALPHA_WARMUP)
        for seed in range(seeds)
    ]
    found = [[error.alpha[name] for name in DERIVATIVES] for error in measured]
    return np.array(found).reshape(seeds, len(DERIVATIVES))


# The fits. Means over seeds are taken with many sets of weights at once: equal ones first, then those of resampled
# seeds.


def curves(arrays: Arrays) -> list[StepSizeRuns]:
    return [
        StepSizeRuns(float(eta), arrays[f"squared_{i}"], arrays[f"within_{i}"], arrays[f"calls_{i}"])
        for i, eta in enumerate(arrays["etas"])
    ]


def weights(seeds: int, resamples: int = RESAMPLES) -> np.ndarray:
    """(1 + resamples, seeds): 1/seeds each, then how often bootstrap samples have each seed, divided by seeds."""
    rng = np.random.default_rng(RESAMPLING_SEED)
    drawn = rng.integers(0, seeds, (resamples, seeds))
    often = np.array([np.bincount(row, minlength=seeds) for row in drawn]).reshape(resamples, seeds)
    return np.concatenate([np.ones((1, seeds)), often]) / seeds


def fit_of(values: np.ndarray) -> Fit:
    """The first value, and the interval that the others span."""
    others = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or not others.size:
        return Fit(float(values[0]) if np.isfinite(values[0]) else np.nan, np.nan, np.nan)
    low, high = np.quantile(others, (0.025, 0.975))
    return Fit(float(values[0]), float(low), float(high))


def slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The slope of the line through (x, y_r) for every row r of y.

    Entries that are not finite do not count, NaN below three.
    """
    used = np.isfinite(y)
    number = used.sum(1)
    enough = number >= 3
    divisor = np.maximum(number, 1)
    dx = np.where(used, x - (used * x).sum(1, keepdims=True) / divisor[:, None], 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (dx * np.where(used, y, 0)).sum(1) / (dx**2).sum(1)
    return np.where(enough, slope, np.nan)


def step_size_slopes(runs: Sequence[StepSizeRuns], mixed: np.ndarray) -> np.ndarray:
    """The power of η with which the mean of ‖∇h‖² at the end falls, for every set of weights."""
    ends = np.stack([mixed @ one.squared[:, -1] for one in runs], 1)
    return slopes(np.log([one.eta for one in runs]), np.log(ends))


def slopes_within(runs: Sequence[StepSizeRuns], mixed: np.ndarray) -> np.ndarray:
    """The power of η with which the mean of ‖∇h‖² over all steps of a pass falls, for every set of weights."""
    return slopes(np.log([one.eta for one in runs]), np.log(np.stack([mixed @ one.within for one in runs], 1)))


def first_below(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(rows, levels): the first record from which on every value of a row is below the level.

    Their number where none is.
    """
    from_here = np.maximum.accumulate(values[:, ::-1], 1)  # the largest of the last, the last two, ...
    return np.stack([values.shape[1] - np.searchsorted(row, levels, side="left") for row in from_here])


def calls_to_reach(run: StepSizeRuns, mixed: np.ndarray, epsilons: np.ndarray, criterion: str) -> np.ndarray:
    """(weights, epsilons): the oracle calls to ε with this step size, infinite where it does not get there.

    "last": the mean over seeds of ‖∇h‖² falls below ε² and stays there until the end. "mean", as in the paper's
    theorem: its mean over the run so far does, between records by straight lines. That falls no faster than 1/steps, so
    it is followed past the end, where ‖∇h‖² is taken to stay as it is in the last quarter.
    """
    values, records = mixed @ run.squared, run.squared.shape[1]
    arrived = lambda at: np.where(at < records, run.calls[np.minimum(at, records - 1)], np.inf)
    if criterion == "last":
        return arrived(first_below(values, epsilons**2))
    areas = np.cumsum((values[:, 1:] + values[:, :-1]) / 2, 1)
    means = np.concatenate([values[:, :1], areas / np.arange(1, records)], 1)
    floor = settled(values)[:, None]
    above = epsilons**2 - floor
    excess = areas[:, -1:] - (records - 1) * floor
    stretches = np.where(above > 0, excess / np.where(above > 0, above, 1), np.inf)
    later = np.maximum(stretches, records - 1) * run.calls[-1] / (records - 1)
    return np.minimum(arrived(first_below(means, epsilons**2)), later)


def settled(values: np.ndarray) -> np.ndarray:
    """The mean over the last quarter of the records."""
    return values[:, -(values.shape[1] // 4) - 1 :].mean(1)


def fewest_calls(runs: Sequence[StepSizeRuns], mixed: np.ndarray, epsilons: np.ndarray, criterion: str) -> np.ndarray:
    """(weights, epsilons): the fewest calls over the step sizes; NaN where the grid decides and not the order.

    It does where the largest step size is the best, and below √2 times the ‖∇h‖ in which the smallest one ends, where a
    still smaller one might be better.
    """
    runs = [one for one in runs if one.eta * STEPS_BETWEEN_RECORDS <= DENSE]
    each = np.stack([calls_to_reach(one, mixed, epsilons, criterion) for one in runs])
    floor = settled(mixed @ runs[-1].squared)[:, None]
    fewest = each.min(0)
    return np.where(np.isfinite(fewest) & (each.argmin(0) > 0) & (epsilons**2 >= 2 * floor), fewest, np.nan)


def powers(epsilons: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """The power of 1/ε with which the calls grow, for every set of weights."""
    return slopes(np.log(1 / epsilons), np.log(calls))


# What is said of them.


def summary(results: Mapping[str, Mapping[str, Arrays]]) -> dict[str, Any]:
    """Every fitted number, as JSON: {problem: {order: ...}} with fits [value, low, high]."""
    found: dict[str, Any] = {}
    for problem, orders in results.items():
        found[problem] = {}
        reference: dict[str, np.ndarray] = {}
        common = np.nan  # the smallest ε of independent draws, at which the others are compared with them
        for name, arrays in orders.items():
            runs = curves(arrays)
            mixed = weights(len(runs[0].squared))
            row: dict[str, Any] = {
                "slope": _json(fit_of(step_size_slopes(runs, mixed))),
                "slope_of_small_steps": _json(fit_of(step_size_slopes(runs[-SMALL_STEPS:], mixed))),
                "ends": [float(one.squared[:, -1].mean()) for one in runs],
                "slope_within": _json(fit_of(slopes_within(runs, mixed))),
                "within": [float(one.within.mean()) for one in runs],
                "curvature": [float(arrays["curvature"][:, 0].min()), float(arrays["curvature"][-1, 1])],
            }
            for criterion in CRITERIA:
                calls = fewest_calls(runs, mixed, EPSILONS, criterion)
                power = powers(EPSILONS, calls)
                reference.setdefault(criterion, power)  # independent draws are the first
                reached = EPSILONS[np.isfinite(calls[0])]
                row[criterion] = {
                    "power": _json(fit_of(power)),
                    "saved": _json(fit_of(reference[criterion] - power)),
                    "epsilons": [float(reached.max()), float(reached.min())] if reached.size else None,
                }
                if criterion == "last":
                    common = reached.min(initial=np.inf) if np.isnan(common) else common
            plain, there = mixed[:1], np.array([common])
            fewest = min(float(calls_to_reach(one, plain, there, "last").item()) for one in runs)
            row["at_common_epsilon"] = {"epsilon": _number(common), "calls": _number(fewest)}
            seen = [column[np.isfinite(column)] for column in arrays["alpha"].T]
            row["alpha"] = {
                derivative: _json(Fit(values.mean(), values.min(), values.max())) if values.size else None
                for derivative, values in zip(DERIVATIVES, seen, strict=True)
            }
            found[problem][name] = row
    etas = next(iter(next(iter(results.values())).values()))["etas"]
    return {"step_sizes": [float(eta) for eta in etas], "fits": found}


def claims(results: Mapping[str, Mapping[str, Arrays]]) -> list[Claim]:
    return judged(summary(results))


def judged(found: Mapping[str, Any]) -> list[Claim]:
    """The paper's claims, from a `summary`."""
    fits = found["fits"]
    saved = {
        (problem, criterion): _fit(orders["reshuffled"][criterion]["saved"])
        for problem, orders in fits.items()
        for criterion in CRITERIA
    }
    bounds = {
        (problem, name): (_fit(row["mean"]["power"]), 4 if name == "independent" else 3)
        for problem, orders in fits.items()
        for name, row in orders.items()
    }
    alphas = {
        (problem, name): (float(np.mean(measured)), 1 if name == "independent" else 2)
        for problem, orders in fits.items()
        for name, row in orders.items()
        if (measured := [value[0] for value in row["alpha"].values() if value is not None])
    }
    calls = [
        [orders[name]["at_common_epsilon"]["calls"] for name in ("independent", "reshuffled")]
        for orders in fits.values()
    ]
    fewer = [f"{independent / reshuffled:.0f}" for independent, reshuffled in calls if independent and reshuffled]
    worst: dict[int, Fit] = {
        limit: max((fit for fit, own in bounds.values() if own == limit), key=lambda fit: fit.value) for limit in (4, 3)
    }
    ranges = {alpha: [value for value, expected in alphas.values() if expected == alpha] for alpha in (1, 2)}
    return [
        Claim(
            "Random reshuffling needs fewer oracle calls than independent draws by about one power of ε, or more.",
            verdict([fit.value >= 1 - ABOUT and fit.low > 0 for fit in saved.values()]),
            "Powers saved, each order over its own range of ε: "
            + "; ".join(f"{PROBLEMS[problem]}, {criterion} {fit}" for (problem, criterion), fit in saved.items())
            + f". At the smallest ε that independent draws reach it needs {', '.join(fewer)} times fewer.",
        ),
        Claim(
            "To a mean of ‖∇h‖² below ε² no more than about ε⁻⁴ calls lead with independent draws, and ε⁻³ with "
            "permutations (worst cases).",
            verdict([fit.value <= limit + ABOUT for fit, limit in bounds.values()]),
            f"The largest power of 1/ε is {worst[4]} with independent draws and {worst[3]} with permutations. That "
            "mean is followed far past the runs, where its power is 2 + 2/slope: this says what the measured slopes "
            "come to by the theorem's criterion.",
        ),
        Claim(
            "The order error has α = 1 for independent draws and α = 2 for permutations.",
            verdict([abs(value - expected) <= ABOUT for value, expected in alphas.values()]),
            "; ".join(
                f"{who}: between {min(ranges[alpha]):.2f} and {max(ranges[alpha]):.2f}"
                for alpha, who in ((1, "independent draws"), (2, "permutations"))
            )
            + ".",
        ),
    ]


def _explained(largest: float, smallest: float) -> str:
    """What the columns of the tables are."""
    return (
        "Slope: the power of η with which the mean over seeds of ‖∇h‖² at the end, which is the end of a pass, goes to "
        f"zero, for η from {largest:g} to {smallest:g}, and for the {SMALL_STEPS} smallest; within: the same of its "
        "mean over all steps of two epochs at the end, in the middle of which a permutation is further away. Powers of "
        "1/ε: of the fewest oracle calls (gradients of f and g, Jacobian and Hessian products, in examples) over the "
        "step sizes until the mean over seeds of ‖∇h‖² falls below ε² and stays there (last), and until its mean over "
        "the run so far does, the criterion of the paper's theorem (mean; followed past the end of a run as if "
        f"‖∇h‖² stayed as in its last quarter); step sizes up to {DENSE / STEPS_BETWEEN_RECORDS:.2g}, and only ε "
        "for which neither the largest of them is the best nor a smaller one than all might be, so that every order "
        "has a range of its own (the one of last is given). Far past the runs the mean has the power 2 + 2/slope by "
        "arithmetic. Calls: the fewest (last) to the smallest ε of independent draws, with any of the step sizes. 95% "
        "bootstrap intervals over seeds. α: of ∇f, ∇g and the products with ∇²g, means over seeds."
    )


def report(found: Mapping[str, Any]) -> str:
    """Tables in Markdown, from a `summary`."""
    largest, smallest = found["step_sizes"][0], found["step_sizes"][-1]
    parts = [_explained(largest, smallest)]
    for problem, orders in found["fits"].items():
        titles = [
            "order",
            "slope",
            "smallest steps",
            "slope within",
            f"at η = {largest:g}",
            f"at η = {smallest:g}",
            f"within, at η = {smallest:g}",
            "1/ε, last",
            "1/ε, mean",
            "saved, last",
            "saved, mean",
            "ε",
            "calls at ε = "
            + (
                "–"
                if (common := next(iter(orders.values()))["at_common_epsilon"]["epsilon"]) is None
                else f"{common:.2g}"
            ),
            "α ∇f",
            "α ∇g",
            "α ∇²g",
        ]
        lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
        for name, row in orders.items():
            cells = [
                name,
                *(str(_fit(row[key])) for key in ("slope", "slope_of_small_steps", "slope_within")),
                f"{row['ends'][0]:.1e}",
                f"{row['ends'][-1]:.1e}",
                f"{row['within'][-1]:.1e}",
                *(str(_fit(row[criterion]["power"])) for criterion in CRITERIA),
                *("" if name == "independent" else str(_fit(row[criterion]["saved"])) for criterion in CRITERIA),
                "–" if row["last"]["epsilons"] is None else "{:.1e} to {:.1e}".format(*row["last"]["epsilons"]),
                "–" if row["at_common_epsilon"]["calls"] is None else f"{row['at_common_epsilon']['calls']:.0f}",
                *("–" if row["alpha"][key] is None else f"{row['alpha'][key][0]:.2f}" for key in DERIVATIVES),
            ]
            lines.append("| " + " | ".join(cells) + " |")
        way, ends = ([row["curvature"][i] for row in orders.values()] for i in range(2))
        bent = (
            f"The smallest eigenvalue of ∇²h on the way is between {min(way):.2f} and {max(way):.2f}, by order; at the "
            f"ends of the runs with the smallest step it is {min(ends):.2f} or more."
        )
        parts.append(f"## {PROBLEMS[problem][0].upper()}{PROBLEMS[problem][1:]}\n\n{bent}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def plot(results: Mapping[str, Mapping[str, Arrays]], folder: Path) -> None:
    """‖∇h‖² against η with the fitted lines, and calls against 1/ε by both criteria."""
    styles = figures.styles(tuple(ORDERS))
    columns = len(results)
    figure = figures.new_figure(columns, 1)
    for axis, (problem, orders) in zip(figure.subplots(1, columns, squeeze=False).flat, results.items(), strict=True):
        for name, arrays in orders.items():
            ends = np.array([one.squared[:, -1].mean() for one in curves(arrays)])
            slope, height = np.polyfit(np.log(arrays["etas"]), np.log(ends), 1)
            style = styles[name]
            axis.loglog(arrays["etas"], ends, "o", color=style.color, markersize=4)
            line = np.exp(height) * arrays["etas"] ** slope
            axis.loglog(arrays["etas"], line, color=style.color, linestyle=style.line, label=f"{name}: {slope:.2f}")
        axis.set(title=PROBLEMS[problem], xlabel="step size η", ylabel="mean of ‖∇h‖² at the end")
        axis.legend(fontsize=7, frameon=False)
        figures.tidy(axis)
    figures.save(figure, folder, "step_sizes")

    figure = figures.new_figure(columns, 2)
    rows = figure.subplots(2, columns, sharey="row", squeeze=False)
    for row, (criterion, meaning) in zip(rows, CRITERIA.items(), strict=True):
        for axis, (problem, orders) in zip(row, results.items(), strict=True):
            for name, arrays in orders.items():
                runs = curves(arrays)
                fewest = fewest_calls(runs, weights(len(runs[0].squared), 0), EPSILONS, criterion)
                power, style = powers(EPSILONS, fewest)[0], styles[name]
                label = name if np.isnan(power) else f"{name}: {power:.2f}"
                axis.loglog(1 / EPSILONS, fewest[0], color=style.color, linestyle=style.line, label=label)
            axis.set(title=f"{PROBLEMS[problem]}\n{meaning}", xlabel="1/ε", ylabel="oracle calls")
            axis.title.set_fontsize(8)
            axis.legend(fontsize=6, frameon=False)
            figures.tidy(axis)
    figures.save(figure, folder, "calls")


def write(results: Mapping[str, Mapping[str, Arrays]], path: Path) -> None:
    """One line of JSON for each problem, order, step size and record: the mean over seeds and its standard error."""
    with path.open("w") as file:
        for problem, orders in results.items():
            for name, arrays in orders.items():
                for one in curves(arrays):
                    mean = one.squared.mean(0)
                    error = one.squared.std(0) / np.sqrt(len(one.squared))
                    for calls, value, spread in zip(one.calls, mean, error, strict=True):
                        line = {"problem": problem, "order": name, "step_size": one.eta, "calls": int(calls)}
                        file.write(json.dumps({**line, "squared": float(value), "error": float(spread)}) + "\n")


def _json(fit: Fit) -> list[float | None]:
    return [_number(number) for number in fit]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _fit(numbers: Sequence[float | None]) -> Fit:
    return Fit(*(np.nan if number is None else number for number in numbers))
