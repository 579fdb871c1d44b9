"""`order_error`: how far the averages over k consecutive batches are from the full derivatives, measured.

The paper's assumption on an order is that there are α and C with

    ‖(1/k) Σ_{τ=t}^{t+k−1} v_τ − v‖² ≤ C² k^{−α}      for every start t and every interval k,

for v = ∇f, ∇g and ∇²g at a fixed point (Assumption 4.5). Independent draws have α = 1, permutations α = 2 with a C that
grows with the number of examples, herded ones α = 2 with a smaller C. Here the left side is measured for many k, and
its largest and its mean value over t are reported.

α is decided by intervals of at least one pass, and fitted to means over t (the largest of few independent stretches is
too noisy). The error of one fixed permutation is S(k mod P)/k² for a pass of P batches: it comes and goes with k,
and single k say little. So k² times the mean error is averaged over k from jP to (j+1)P, with starts t that make whole
passes; it is level for α = 2 and grows as k for α = 1, and α is 2 less its power of k.

C is the smallest constant for which the bound holds with that α at every t and k measured, and `C_at` the one for α = 1
and for α = 2: constants of the same α can be compared between orders. A is the bound on a single error (Assumptions
4.3, 4.4 and 4.7), the largest ‖v_τ − v‖ measured, which is C at k = 1; the paper's is that of single examples, so of
batches of one.

∇²g is measured by its action on a fixed vector u: the products that a step uses. For conditional problems the outer
order is measured, on the exact hyper-gradients ∇h(x; ξ).
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks, tree
from wior.algorithms.algorithm import Algorithm, BatchKinds, Draws, Seen, one
from wior.algorithms.wior_bo import State, directions
from wior.instruments.hypergradient import default_tolerance, one_hypergradient
from wior.orders import Order, named
from wior.problems import Bilevel, ConditionalBilevel, Minimax, Problem
from wior.problems.modules import parted, with_whole_variables
from wior.problems.per_example import has_rows, mean_direction, shared_part
from wior.problems.restated import restated
from wior.running import block
from wior.running.arguments import both
from wior.running.draws import any_draws
from wior.running.plan import Plan, make_plan, start_at, stream_keys
from wior.running.setup import run_key
from wior.running.step_fingerprint import as_now

Tree = Any

INTERVALS = 40
WINDOWS, IN_WINDOW = 8, 8  # stretches of k, one pass long each, that α is fitted to; the k looked at in one
FEWEST_PASSES = 12  # for two such stretches
ALPHAS = (1, 2)
LARGEST_RECORD = 2**29  # numbers
LEVEL = {"outer_gradient": "outer", "hypergradient": "outer", "inner_gradient": "inner", "inner_products": "inner"}


@dataclasses.dataclass(frozen=True)
class OrderError:
    """The error of an order at a point; `wior.order_error` returns it.

    All but `k` and `order` are dictionaries by the name of the derivative, for example "inner_gradient".

    Parameters
    ----------
    k : numpy.ndarray
        The numbers of batches that were averaged.
    largest, mean : dict of numpy.ndarray
        For each k the largest and the mean squared error of the average, over all batches to start from.
    alpha : dict of float
        α, how fast the error falls with k: 1 for independent draws, 2 for permutations.
    C : dict of float
        The smallest C with error ≤ C² k^−α at every k, for the fitted α.
    C_at : dict of dict
        The same for α = 1 and for α = 2: constants at one α can be compared between orders.
    A : dict of float
        The largest error of a single batch, not squared.
    batches_in_pass : dict of float
        How many batches make a pass.
    order : str
        The order that was measured.

    Examples
    --------
    >>> import numpy as np, wior
    >>> measured = wior.OrderError(
    ...     k=np.array([1, 2, 4]),
    ...     largest={"inner_gradient": np.array([4.0, 1.0, 0.25])},
    ...     mean={"inner_gradient": np.array([2.0, 0.5, 0.125])},
    ...     alpha={"inner_gradient": 2.0},
    ...     C={"inner_gradient": 2.0},
    ...     C_at={"inner_gradient": {1: 2.0, 2: 2.0}},
    ...     A={"inner_gradient": 2.0},
    ...     batches_in_pass={"inner_gradient": 4.0},
    ...     order="random-reshuffling",
    ... )
    >>> measured.alpha["inner_gradient"]
    2.0
    """

    k: np.ndarray
    largest: dict[str, np.ndarray]
    mean: dict[str, np.ndarray]
    alpha: dict[str, float]
    C: dict[str, float]
    C_at: dict[str, dict[int, float]]
    A: dict[str, float]
    batches_in_pass: dict[str, float]
    order: str

    def plot(self, path: str | Path | None = None) -> Any:
        """Draws the errors against k, with the slopes of α = 1 and 2.

        Parameters
        ----------
        path : str or Path or None, default None
            Where to save the figure, if given.

        Returns
        -------
        matplotlib.figure.Figure
        """
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
    """How far averages over k consecutive batches are from the full derivatives, for many k.

    Parameters
    ----------
    problem : Problem
        One of wior's problems, with data on the device. In conditional problems the outer order is measured.
    order : Order or str or tuple
        The order to measure, its name, or a pair (outer, inner).
    x, y : tree
        The point at which the derivatives are taken; it does not move.
    batch_size : int or (int, int)
        The rows of a batch, or a pair (outer, inner).
    passes : int, default 20
        How many passes over the longer level are measured. Below twelve, α and C are NaN, with a warning.
    seed : int, default 0
        Chooses the order's permutations.
    u : tree or None, default None
        The vector, like y, that second derivatives are multiplied with. None: a random one of unit norm.
    warmup : int, default 0
        The passes before the measurement. Orders that learn, such as `Herding`, need some to sort.

    Returns
    -------
    OrderError
        The errors for each k, and the fitted α and C.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> start = jnp.zeros(())
    >>> measured = wior.order_error(problem, "random-reshuffling", start, start, batch_size=2, passes=40)
    >>> round(measured.alpha["inner_gradient"])
    2
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be one of wior's problems, got {problem!r} of type {type(problem).__name__}")
    problem.demand_resident("order_error")
    passes = checks.positive_integer("passes", passes)
    if isinstance(warmup, bool) or not isinstance(warmup, (int, np.integer)) or warmup < 0:
        raise ValueError(f"warmup must be a number of passes, zero or more, got {warmup!r}")
    orders = both("order", order, problem, named)
    batches = both("batch_size", batch_size, problem, checks.positive_integer)
    (x, x_rest), (y, y_rest) = parted("x", x), parted("y", y)
    problem = with_whole_variables(problem, x_rest, y_rest)
    problem.check(x, y, batches)
    if isinstance(problem, Minimax) and has_rows((x, y)):
        raise TypeError(
            "x or y has a PerExample leaf, and order_error compares derivatives that all examples of a Minimax problem "
            "share; leave the rows out of x and y, or measure the problem without them"
        )
    problem = restated(problem, Bilevel, ConditionalBilevel)
    point = State(x, y, _random_direction(y, int(seed)) if u is None else u)
    watch = _WatchBilevel() if isinstance(problem, Bilevel) else _WatchConditional()
    plan = as_now(make_plan(problem, watch, orders, batches, 2**31), problem, watch, x, y, batches)
    in_pass = {s.level: s.n / s.batch for s in plan.streams}
    skip, steps = (int(np.ceil(max(in_pass.values()) * number)) for number in (warmup, passes))
    vectors = _watched(problem, watch, plan, int(seed), point, skip, steps)
    longest = max(2, steps // 4)
    windows = {level: windows_of(longest, number) for level, number in in_pass.items()}
    if min(map(len, windows.values())) < 2:
        warnings.warn(
            f"passes={passes} are too few to fit α and C, which are NaN; give passes={FEWEST_PASSES} or more",
            stacklevel=2,
        )
    k = _intervals(longest, in_pass, windows)
    measured = {
        name: _measured(record, full, k, windows[LEVEL[name]], in_pass[LEVEL[name]])
        for name, (record, full) in vectors.items()
    }
    return OrderError(
        k=k,
        largest={name: one.largest for name, one in measured.items()},
        mean={name: one.mean for name, one in measured.items()},
        alpha={name: one.alpha for name, one in measured.items()},
        C={name: bound(k, one.largest, one.alpha) for name, one in measured.items()},
        C_at={name: {power: bound(k, one.largest, power) for power in ALPHAS} for name, one in measured.items()},
        A={name: float(np.sqrt(one.largest[0])) for name, one in measured.items()},
        batches_in_pass={name: in_pass[LEVEL[name]] for name in measured},
        order=repr(order),
    )


class _Measured(NamedTuple):
    """The errors of one derivative for every interval, and α."""

    largest: np.ndarray
    mean: np.ndarray
    alpha: float


def _measured(
    record: np.ndarray, full: np.ndarray, intervals: np.ndarray, windows: list[np.ndarray], in_pass: float
) -> _Measured:
    largest, mean = _errors(record, full, intervals)
    return _Measured(largest, mean, fit(windows, [_errors(record, full, k, in_pass)[1] for k in windows]))


def _random_direction(y: Tree, seed: int) -> Tree:
    """A random tree like y, of unit norm."""
    key = jax.random.key(seed)
    leaves, structure = jax.tree.flatten(y)
    keys = list(jax.random.split(key, len(leaves))) if len(leaves) > 1 else [key]
    drawn = [jax.random.normal(own, leaf.shape, leaf.dtype) for own, leaf in zip(keys, leaves, strict=True)]
    u = jax.tree.unflatten(structure, drawn)
    return jax.tree.map(lambda leaf, length=tree.norm(u): leaf / length, u)


def _intervals(longest: int, in_pass: dict[str, float], windows: dict[str, list[np.ndarray]]) -> np.ndarray:
    """The intervals that are looked at, up to `longest`."""
    # powers of two of a pass are looked at exactly: there the average of one permutation has no error
    whole = np.outer(np.fromiter(in_pass.values(), float), 2 ** np.arange(20)).ravel()
    looked_at = [k for level in windows.values() for k in level]
    intervals = np.concatenate([np.geomspace(1, longest, INTERVALS), whole, *looked_at]).astype(int)
    return np.unique(intervals[(intervals >= 1) & (intervals <= longest)])


def windows_of(longest: int, batches_in_pass: float) -> list[np.ndarray]:
    """Intervals k to fit α to: some of every stretch jP … (j+1)P, for j in a geometric row, up to `longest`.

    They lie at the same places of every stretch, where a fixed permutation has the same S(k mod P).
    """
    places, in_pass = np.arange(IN_WINDOW) / IN_WINDOW, max(batches_in_pass, 1.0)
    last = int(longest / in_pass)
    while last and int((last + places[-1]) * in_pass) > longest:
        last -= 1
    if not last:
        return []
    numbers = np.unique(np.round(np.geomspace(1, last, WINDOWS)).astype(int))
    return [np.unique(((number + places) * in_pass).astype(int)) for number in numbers]


def fit(windows: list[np.ndarray], means: list[np.ndarray]) -> float:
    """α from how k² times the mean error grows from window to window; NaN for fewer than two, or without error."""
    k = np.array([np.mean(window) for window in windows])
    scaled = np.array([np.mean(window.astype(float) ** 2 * mean) for window, mean in zip(windows, means, strict=True)])
    used = scaled > 0
    if used.sum() < 2:
        return float("nan")
    return 2 - float(np.polyfit(np.log(k[used]), np.log(scaled[used]), 1)[0])


def bound(k: np.ndarray, largest: np.ndarray, alpha: float) -> float:
    """The smallest C with largest ≤ C² k^−α for every k."""
    return float(np.sqrt(np.max(largest * k.astype(float) ** alpha)))


def plot_order_errors(measured: list[OrderError], path: str | Path | None = None) -> Any:
    """Draws measured order errors: one panel for each derivative, one line for each order.

    Parameters
    ----------
    measured : list of OrderError
        The errors of some orders, of the same problem.
    path : str or Path or None, default None
        Where to save the figure, if given.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np, wior
    >>> measured = wior.OrderError(
    ...     k=np.array([1, 2, 4]),
    ...     largest={"inner_gradient": np.array([4.0, 1.0, 0.25])},
    ...     mean={"inner_gradient": np.array([2.0, 0.5, 0.125])},
    ...     alpha={"inner_gradient": 2.0},
    ...     C={"inner_gradient": 2.0},
    ...     C_at={"inner_gradient": {1: 2.0, 2: 2.0}},
    ...     A={"inner_gradient": 2.0},
    ...     batches_in_pass={"inner_gradient": 4.0},
    ...     order="random-reshuffling",
    ... )
    >>> figure = wior.plot_order_errors([measured])
    >>> len(figure.axes)
    1
    """
    from matplotlib.figure import Figure

    names = list(measured[0].largest)
    figure = Figure(figsize=(4.6 * len(names), 5.2), layout="constrained")
    for axis, name in zip(np.atleast_1d(figure.subplots(1, len(names), sharey=False)), names, strict=True):
        for error in measured:
            at = ", ".join(f"{value:.2g} at α = {power}" for power, value in error.C_at[name].items())
            label = f"{error.order}: α = {error.alpha[name]:.2f}, A = {error.A[name]:.2g}, C = {at}"
            shown = np.where(
                error.largest[name] > 0, error.largest[name], np.nan
            )  # no error has no place on a log axis
            axis.loglog(error.k, shown, marker=".", label=label)
        k, start = measured[0].k.astype(float), float(measured[0].largest[name][0])
        if start > 0:
            for slope, style in ((1, ":"), (2, "--")):
                axis.loglog(k, start * k**-slope, style, color="gray", linewidth=1, label=f"slope −{slope}")
        axis.axvline(measured[0].batches_in_pass[name], color="gray", linewidth=0.6)
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
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=(1,))

    def seen(self, problem: Bilevel, state: _Watched, draws: Draws) -> tuple[dict[str, Tree], Seen]:
        xi, zeta = problem.outer_batch(draws.outer_index), problem.inner_batch(draws.inner_index)
        seen = directions(problem, State(state.x, state.y, state.u), xi, zeta).seen
        f_y, f_x = seen.outer[0]
        g_y, g_yy_u, g_xy_u = seen.inner[0]
        return {"outer_gradient": (f_x, f_y), "inner_gradient": g_y, "inner_products": (g_yy_u, g_xy_u)}, seen


@dataclasses.dataclass(frozen=True)
class _WatchConditional(_Watch):
    inner_epochs: int = dataclasses.field(default=1, metadata={"static": True})
    solves = ConditionalBilevel

    @property
    def batch_kinds(self) -> BatchKinds:
        return BatchKinds(outer=(1,), inner=())

    def seen(self, problem: ConditionalBilevel, state: _Watched, draws: Draws) -> tuple[dict[str, Tree], Seen]:
        tolerance = default_tolerance(state.y)

        def exact(example: jax.Array) -> Tree:
            return one_hypergradient(problem, state.x, state.y, example, tolerance, 1000)[0]

        each = jax.vmap(exact)(draws.outer_index)
        direction = shared_part(state.x, mean_direction(state.x, each))
        return {"hypergradient": direction}, Seen(outer=(one(direction),), inner=(one(state.y),))


def _watched(
    problem: Any, watch: _Watch, plan: Plan, seed: int, point: State, skip: int, steps: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The vectors of every step after the first `skip`, and the full ones, by name."""
    keys = stream_keys(plan, run_key(seed))
    shapes = jax.eval_shape(
        lambda problem: watch.seen(problem, _Watched(*point, {}), any_draws(plan, problem, watch))[0], problem
    )
    widths = {name: sum(leaf.size for leaf in jax.tree.leaves(shape)) for name, shape in shapes.items()}
    if steps * sum(widths.values()) > LARGEST_RECORD:
        raise ValueError(
            f"passes={steps} steps of {sum(widths.values())} numbers would take "
            f"{4 * steps * sum(widths.values()) / 2**30:.1f} GiB; measure fewer passes or larger batches"
        )
    carry = block.begin(plan, problem, watch, keys, point.x, point.y)
    dtype = jnp.result_type(*jax.tree.leaves(point.y))
    records = {name: jnp.zeros((skip + steps, width), dtype) for name, width in widths.items() if width}
    carry = carry._replace(state=carry.state._replace(u=jax.tree.map(jnp.copy, point.u), records=records))
    done = 0
    while done < skip + steps:
        count = min(plan.length, skip + steps - done)
        carry, *_ = block.one_run(plan, problem, watch, carry, keys, start_at(plan, done), np.int32(count))
        done += count
    full = _full(problem, watch, point, plan)
    return {name: (np.asarray(record[skip:]), full[name]) for name, record in carry.state.records.items()}


def _full(problem: Any, watch: _Watch, point: State, plan: Plan) -> dict[str, np.ndarray]:
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
                if LEVEL[name] == level:
                    totals[name] = totals.get(name, 0) + np.asarray(tree.flat(vector), np.float64) * rows.size / n
    return totals


def _errors(
    record: np.ndarray, full: np.ndarray, intervals: np.ndarray, batches_in_pass: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the mean of ‖average over k − full‖² for each k.

    They are taken over all starts or, given a pass, over as many as make whole passes.
    """
    sums = np.concatenate([np.zeros((1, record.shape[1])), np.cumsum(record.astype(np.float64) - full, 0)])
    each = [np.sum((sums[k:] - sums[:-k]) ** 2, 1) / k**2 for k in intervals]
    if batches_in_pass is not None:
        each = [errors[: round(len(errors) // batches_in_pass * batches_in_pass)] for errors in each]
    # below rounding an error is none: the average of whole passes of one permutation is the full derivative
    floor = (16 * np.finfo(record.dtype).eps) ** 2 * float(np.mean(np.sum(record.astype(np.float64) ** 2, 1)))
    clean = lambda value: value if value > floor else 0.0
    return np.array([clean(errors.max()) for errors in each]), np.array([clean(errors.mean()) for errors in each])
