"""`order_error`: how far the averages over k consecutive batches are from the full derivatives, measured.

The paper's assumption on an order is that there are α and C with

    ‖(1/k) Σ_{τ=t}^{t+k−1} v_τ − v‖² ≤ C² k^{−α}      for every start t and every interval k,

for v = ∇f, ∇g and ∇²g at a fixed point (Assumption 4.5). Independent draws have α = 1, permutations α = 2 with a C that
grows with the number of examples, herded ones α = 2 with a smaller C. Here the left side is measured for many k, and its largest
and its mean value over t are reported. α is fitted to the mean over the intervals of at least one pass, where it is decided
(the largest of few independent stretches is too noisy for that), and C is the smallest constant for which the bound holds
with that α at every t and k measured.

∇²g is measured by its action on a fixed vector u: the products that a step uses. For conditional problems the outer order is
measured, on the exact hyper-gradients ∇h(x; ξ).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import blocks, checks, tree
from wior.algorithms.algorithm import Algorithm, Draws, Seen, Streams, one
from wior.algorithms.wior_bo import State, directions
from wior.hypergradient import default_tolerance, one_hypergradient
from wior.orders import Order
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax, Problem
from wior.solve import both, run_key

Tree = Any

INTERVALS = 40
LARGEST_RECORD = 2**29  # numbers


@dataclasses.dataclass(frozen=True)
class OrderError:
    """Squared errors of averages over `k` batches, by the name of the derivative, and the fitted α and C."""

    k: np.ndarray
    largest: dict[str, np.ndarray]  # over all starts t
    mean: dict[str, np.ndarray]
    alpha: dict[str, float]
    C: dict[str, float]
    batches_in_pass: dict[str, float]
    order: str

    def plot(self, path: str | Path | None = None) -> Any:
        """Draws the errors against k with the slopes of α = 1 and 2; saves to `path`, and returns the figure."""
        return plot_order_errors([self], path)


def order_error(
    problem: Problem,
    order: Order | tuple[Order, Order],
    x: Tree,
    y: Tree,
    batch_size: int | tuple[int, int],
    passes: int = 20,
    seed: int = 0,
    *,
    u: Tree | None = None,
    warmup: int = 0,
) -> OrderError:
    """Measures the order error at (x, y) over `passes` passes of the longer level, after `warmup` passes.

    `u` is the vector that stands in for the second derivatives; a random one of unit norm where not given. `warmup` lets
    `Herding` sort before it is judged.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be one of wior's problems, got {problem!r} of type {type(problem).__name__}")
    problem.demand_resident("order_error")
    passes = checks.positive_integer("passes", passes)
    if isinstance(warmup, bool) or not isinstance(warmup, (int, np.integer)) or warmup < 0:
        raise ValueError(f"warmup must be a number of passes, zero or more, got {warmup!r}")
    orders = both("order", order, problem, Order, "one of wior.orders")
    batches = both("batch_size", batch_size, problem, object, "a positive integer")
    for batch in batches:
        checks.positive_integer("batch_size", batch)
    x, y = checks.floating("x", x), checks.floating("y", y)
    problem.check(x, y)
    if isinstance(problem, (Minimax, Compositional)):
        problem = problem.as_bilevel()
    if isinstance(problem, ConditionalCompositional):
        problem = problem.as_conditional_bilevel()
    if u is None:
        key = jax.random.key(int(seed))
        u = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, leaf.dtype), y)
        u = jax.tree.map(lambda leaf, length=tree.norm(u): leaf / length, u)
    watch = _WatchBilevel() if isinstance(problem, Bilevel) else _WatchConditional()
    plan = blocks.make_plan(problem, watch, orders, batches, 2**31)
    in_pass = {s.level: s.n / s.batch for s in plan.streams}
    skip, steps = (int(np.ceil(max(in_pass.values()) * number)) for number in (warmup, passes))
    vectors = _watched(problem, watch, plan, int(seed), State(x, y, u), skip, steps)
    level = {"outer_gradient": "outer", "hypergradient": "outer", "inner_gradient": "inner", "inner_products": "inner"}
    # powers of two of a pass are looked at exactly: there the average of one permutation has no error
    whole = np.outer(np.fromiter(in_pass.values(), float), 2 ** np.arange(20)).ravel()
    intervals = np.concatenate([np.geomspace(1, max(2, steps // 4), INTERVALS), whole]).astype(int)
    intervals = np.unique(intervals[(intervals >= 1) & (intervals <= max(2, steps // 4))])
    largest, mean, alpha, constant = {}, {}, {}, {}
    for name, (record, full) in vectors.items():
        largest[name], mean[name] = _errors(record, full, intervals)
        alpha[name], constant[name] = fit(intervals, mean[name], largest[name], in_pass[level[name]])
    per_pass = {name: in_pass[level[name]] for name in vectors}
    return OrderError(intervals, largest, mean, alpha, constant, per_pass, repr(order))


def fit(k: np.ndarray, mean: np.ndarray, largest: np.ndarray, batches_in_pass: float) -> tuple[float, float]:
    """α from the slope of the mean error over intervals of at least a pass, and the C that then bounds every error."""
    used = (k >= batches_in_pass) & (mean > 0)
    if used.sum() < 3:
        return float("nan"), float("nan")
    alpha = -float(np.polyfit(np.log(k[used]), np.log(mean[used]), 1)[0])
    return alpha, float(np.sqrt(np.max(largest * k.astype(float) ** alpha)))


def plot_order_errors(measured: list[OrderError], path: str | Path | None = None) -> Any:
    """One panel for each derivative, one line for each order."""
    from matplotlib.figure import Figure

    names = list(measured[0].largest)
    figure = Figure(figsize=(4.6 * len(names), 5.2), layout="constrained")
    for axis, name in zip(np.atleast_1d(figure.subplots(1, len(names), sharey=False)), names, strict=True):
        for error in measured:
            label = f"{error.order}: α = {error.alpha[name]:.2f}, C = {error.C[name]:.2g}"
            shown = np.where(
                error.largest[name] > 0, error.largest[name], np.nan
            )  # no error has no place on a log axis
            axis.loglog(error.k, shown, marker=".", label=label)
        k, start = measured[0].k.astype(float), float(measured[0].largest[name][0])
        if start > 0:
            for slope, style in ((1, ":"), (2, "--")):
                axis.loglog(k, start * k**-slope, style, color="grey", linewidth=1, label=f"slope −{slope}")
        axis.axvline(measured[0].batches_in_pass[name], color="grey", linewidth=0.6)
        axis.set(title=name.replace("_", " "), xlabel="batches in the interval, k (the line: one pass)")
        axis.set_ylabel("largest squared error of the average")
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


class _Watched(NamedTuple):
    """The point, which stays where it is, and what was seen of each step."""

    x: Tree
    y: Tree
    u: Tree
    records: dict[str, jax.Array]  # (steps, width)


@dataclasses.dataclass(frozen=True)
class _Watch(Algorithm):
    """An algorithm that computes what a step would and does not move."""

    step_sizes = {}

    def seen(self, problem: Any, state: _Watched, draws: Draws) -> tuple[dict[str, Tree], Seen]:
        raise NotImplementedError

    def step(self, problem: Any, state: _Watched, draws: Draws) -> tuple[_Watched, Seen]:
        vectors, seen = self.seen(problem, state, draws)
        records = {
            name: state.records[name].at[draws.step.astype(jnp.int32)].set(tree.flat(vector), mode="drop")
            for name, vector in vectors.items()
            if name in state.records
        }
        return state._replace(records=records), seen

    def init(self, problem: Any, x: Tree, y: Tree) -> _Watched:
        return _Watched(x, y, tree.zeros_like(y), {})


@dataclasses.dataclass(frozen=True)
class _WatchBilevel(_Watch):
    solves = Bilevel

    @property
    def streams(self) -> Streams:
        return Streams(outer=(1,), inner=(1,))

    def seen(self, problem: Bilevel, state: _Watched, draws: Draws) -> tuple[dict[str, Tree], Seen]:
        xi, zeta = problem.outer_batch(draws.outer[0][0]), problem.inner_batch(draws.inner[0][0])
        seen = directions(problem, State(state.x, state.y, state.u), xi, zeta).seen
        f_y, f_x = seen.outer[0]
        g_y, g_yy_u, g_xy_u = seen.inner[0]
        return {"outer_gradient": (f_x, f_y), "inner_gradient": g_y, "inner_products": (g_yy_u, g_xy_u)}, seen


@dataclasses.dataclass(frozen=True)
class _WatchConditional(_Watch):
    inner_epochs: int = dataclasses.field(default=1, metadata={"static": True})
    solves = ConditionalBilevel

    @property
    def streams(self) -> Streams:
        return Streams(outer=(1,), inner=())

    def seen(self, problem: ConditionalBilevel, state: _Watched, draws: Draws) -> tuple[dict[str, Tree], Seen]:
        tolerance = default_tolerance(state.y)

        def exact(example: jax.Array) -> Tree:
            return one_hypergradient(problem, state.x, state.y, example, tolerance, 1000)[0]

        direction = tree.mean(jax.vmap(exact)(draws.outer[0][0]))
        return {"hypergradient": direction}, Seen(outer=(one(direction),), inner=(one(state.y),))


def _watched(
    problem: Any, watch: _Watch, plan: blocks.Plan, seed: int, point: State, skip: int, steps: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The vectors of every step after the first `skip`, and the full ones, by name."""
    keys = blocks.stream_keys(plan, run_key(seed))
    shapes = jax.eval_shape(
        lambda problem: watch.seen(problem, _Watched(*point, {}), blocks.any_draws(plan, problem, watch))[0], problem
    )
    widths = {name: sum(leaf.size for leaf in jax.tree.leaves(shape)) for name, shape in shapes.items()}
    if steps * sum(widths.values()) > LARGEST_RECORD:
        raise ValueError(
            f"passes={steps} steps of {sum(widths.values())} numbers would take {4 * steps * sum(widths.values()) / 2**30:.1f} GiB; "
            "measure fewer passes or larger batches"
        )
    carry = blocks.begin(plan, problem, watch, keys, point.x, point.y)
    dtype = jnp.result_type(*jax.tree.leaves(point.y))
    records = {name: jnp.zeros((skip + steps, width), dtype) for name, width in widths.items() if width}
    carry = carry._replace(state=carry.state._replace(u=jax.tree.map(jnp.copy, point.u), records=records))
    done = 0
    while done < skip + steps:
        count = min(plan.length, skip + steps - done)
        carry, *_ = blocks.block(plan, problem, watch, carry, keys, blocks.start_at(plan, done), np.int32(count))
        done += count
    full = _full(problem, watch, point, plan)
    return {name: (np.asarray(record[skip:]), full[name]) for name, record in carry.state.records.items()}


def _full(problem: Any, watch: _Watch, point: State, plan: blocks.Plan) -> dict[str, np.ndarray]:
    """The full derivatives: the mean over every example once, a batch at a time."""
    totals: dict[str, np.ndarray] = {}
    sizes = {s.level: s.n for s in plan.streams}
    seen = jax.jit(lambda problem, draws: watch.seen(problem, _Watched(*point, {}), draws)[0])
    for level, n in sizes.items():
        size = min(n, 1024)
        for start in range(0, n, size):
            rows = jnp.arange(start, min(start + size, n), dtype=jnp.int32)[None]
            other = jnp.zeros((1, 1), jnp.int32)
            outer, inner = (rows, other) if level == "outer" else (other, rows)
            draws = Draws((outer,), (inner,), None, jnp.uint32(0), jnp.asarray(False))
            for name, vector in seen(problem, draws).items():
                if (name in ("outer_gradient", "hypergradient")) == (level == "outer"):
                    totals[name] = totals.get(name, 0) + np.asarray(tree.flat(vector), np.float64) * rows.size / n
    return totals


def _errors(record: np.ndarray, full: np.ndarray, intervals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the mean over all starts of ‖average over k − full‖², for each k."""
    sums = np.concatenate([np.zeros((1, record.shape[1])), np.cumsum(record.astype(np.float64) - full, 0)])
    each = [np.sum((sums[k:] - sums[:-k]) ** 2, 1) / k**2 for k in intervals]
    # below rounding an error is none: the average of whole passes of one permutation is the full derivative
    floor = (16 * np.finfo(record.dtype).eps) ** 2 * float(np.mean(np.sum(record.astype(np.float64) ** 2, 1)))
    clean = lambda value: value if value > floor else 0.0
    return np.array([clean(errors.max()) for errors in each]), np.array([clean(errors.mean()) for errors in each])
