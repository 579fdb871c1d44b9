"""Which leaves of x0 and y0 no step can move, found in the traced losses before a long run.

A derivative is traced on shapes alone, and its program read for outputs that are zero whatever the inputs are. A
derivative that happens to be zero at the start is none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from wior import checks
from wior.problems.bilevel import Bilevel
from wior.problems.conditional_bilevel import ConditionalBilevel
from wior.problems.inner_sets import weighted_mean
from wior.problems.minimax import Minimax
from wior.problems.per_example import at_rows, is_per_example, without_rows
from wior.problems.problem import Batch
from wior.problems.restated import restated

Tree = Any
Loss = Callable[[Tree, Tree, Batch], jax.Array]

NAMED = 3  # leaves that a sentence names

# zero where their first operand is
_PASS_ON = frozenset(
    [
        "neg",
        "reshape",
        "broadcast_in_dim",
        "transpose",
        "squeeze",
        "expand_dims",
        "convert_element_type",
        "reduce_sum",
        "copy",
        "slice",
        "dynamic_slice",
        "gather",
        "cumsum",
        "rev",
        "reduce_precision",
        "div",
    ]
)
# zero where one operand is
_PRODUCTS = frozenset(["mul", "dot_general", "conv_general_dilated"])
# zero where all operands are
_SUMS = frozenset(["add", "add_any", "sub", "concatenate", "pad", "max", "min"])


def unmoved(problem: Any, x: Tree, y: Tree, batches: tuple[int, int]) -> list[str]:
    """A sentence for each leaf of x0 or y0 that no step can move, with the likely cause.

    Where no leaf can move, it is one sentence for all. `batches` is (outer, inner). The losses and their derivatives
    are traced and not compiled; a loss that cannot be traced gives no sentence.
    """
    try:
        return _sentences(problem, x, y, batches)
    except Exception:  # noqa: BLE001 - other checks say what is wrong with a loss
        return []


def two_losses(problem: Any) -> tuple[Loss, Loss]:
    """f and g as functions of all of x, of y and of a batch.

    For a conditional problem the batch is one outer example, or its inner set. A minimax problem has g = −f; a
    compositional one g = ½‖y − r(x)‖².
    """
    if isinstance(problem, Minimax):
        own = problem.objective
        return (
            lambda x, y, b: own(at_rows(x, b.examples), at_rows(y, b.examples), b.data),
            lambda x, y, b: -own(at_rows(x, b.examples), at_rows(y, b.examples), b.data),
        )
    problem = restated(problem, Bilevel, ConditionalBilevel)
    f, g = problem.outer, problem.inner
    if isinstance(problem, Bilevel):
        return (
            lambda x, y, b: f(without_rows(x), y, b.data),
            lambda x, y, b: g(at_rows(x, b.examples), y, b.data),
        )
    of_f, of_g = problem.represent_outer, problem.represent

    def outer(x: Tree, y: Tree, b: Batch) -> jax.Array:
        return f(at_rows(x, b.examples) if of_f is None else of_f(x, b.data), y, b.data)

    def inner(x: Tree, y: Tree, b: Any) -> jax.Array:
        def mean_of(rows: Tree) -> jax.Array:
            return g(at_rows(x, b.of) if of_g is None else of_g(x, rows), y, rows)

        weights = None if problem.counts is None else jnp.ones(b.examples.shape, jnp.int32)
        return weighted_mean(mean_of, weights, b.data)

    return outer, inner


class OfOneSet(NamedTuple):
    """Rows of the inner set of one outer example, as a `Batch`, and the number of this example, (1,)."""

    data: Tree
    examples: jax.Array
    of: jax.Array


def two_batches(problem: Any, outer: jax.Array, inner: jax.Array) -> tuple[Batch, Any]:
    """What `two_losses` take: the rows of these numbers.

    Of a conditional problem it is the first outer example and rows of its inner set.
    """
    if isinstance(problem, Minimax):
        return problem.outer_batch(outer), problem.inner_batch(outer if problem.ascent_data is None else inner)
    if not problem.conditional:
        return problem.outer_batch(outer), problem.inner_batch(inner)
    sets = problem.inner_sets(outer[:1])
    own = jax.tree.map(lambda leaf: leaf[0][inner], sets.rows)
    xi = problem.outer_batch(outer[:1])
    return xi, OfOneSet(own, inner, xi.examples)


@dataclasses.dataclass(frozen=True)
class _Traced:
    """What the derivatives and the losses of a problem read of x and y."""

    minimax: bool
    used: dict[str, Any]  # names of the leaves that f and g read
    crosses: dict[str, bool]  # whether the derivative of ∇_y g in a leaf of x is zero
    reaches_y: bool  # whether f has a derivative in y

    @property
    def outer(self) -> str:
        return "objective" if self.minimax else "outer"

    @property
    def inner(self) -> str:
        return "objective" if self.minimax else "inner"

    def cause_in_y(self, name: str) -> str:
        if name in self.used["g of y"]:
            return (
                f"{self.inner} uses it, but has no derivative in it: argmax, rounding, a comparison (as in an "
                "accuracy) or stop_gradient has none. Give a loss that is differentiable in it, or keep it outside of "
                "y0"
            )
        return (
            f"{self.inner} does not depend on it. What is not trained by {self.inner}, such as the running "
            "statistics of a batch norm, belongs outside of y0, in model_state; what should be trained must be used "
            "there"
        )

    def cause_in_x(self, name: str) -> str:
        if self.minimax or not (name in self.used["f"] or name in self.used["g"]):
            return self._not_read(name)
        if not self.crosses[name] and not self.reaches_y:
            seen = (
                "has no derivative in y (argmax, rounding, a comparison, as in an accuracy, has none): "
                "give a loss that is differentiable"
                if self.used["f of y"]
                else "does not depend on y: use y there"
            )
            return f"it acts through the inner problem alone, and {self.outer} {seen}"
        if name in self.used["g"]:
            return (
                f"{self.inner} depends on it, but its derivative in y does not, so that the inner solution does not "
                f"depend on it, and {self.outer} has no derivative in it either. Let it act on y, and through "
                "operations that have a derivative"
            )
        return (
            f"{self.outer} uses it, but has no derivative in it (argmax, rounding, a comparison or stop_gradient), and "
            f"{self.inner} does not depend on it"
        )

    def _not_read(self, name: str) -> str:
        where = self.outer if self.minimax else f"neither {self.outer} nor {self.inner}"
        if name in self.used["f"]:
            return (
                f"{where} uses it, but has no derivative in it: argmax, rounding, a comparison or "
                "stop_gradient has none"
            )
        return f"{where} does not depend on it" if self.minimax else f"{where} depends on it"


def _sentences(problem: Any, x: Tree, y: Tree, batches: tuple[int, int]) -> list[str]:
    f, g = two_losses(problem)
    if problem.conditional:
        batches = (batches[0], min(batches[1], problem.sizes()["inner"]))
    bare = problem.without_sources()
    indices = [jax.ShapeDtypeStruct((size,), jnp.int32) for size in batches]
    xi, zeta = jax.eval_shape(lambda *index: two_batches(bare, *index), *indices)
    minimax = isinstance(problem, Minimax)

    def derivatives(x: Tree, y: Tree, u: Tree, xi: Batch, zeta: Batch) -> tuple[Tree, Tree, Tree, Tree]:
        f_x, f_y = jax.grad(f, (0, 1))(x, y, xi)
        if minimax:
            return f_x, f_y, jax.grad(g, 1)(x, y, zeta), f_x
        g_y, pull = jax.vjp(lambda x: jax.grad(g, 1)(x, y, zeta), x)
        return f_x, f_y, g_y, pull(u)[0]

    f_x, f_y, g_y, cross = _zeros(derivatives, x, y, y, xi, zeta)
    reaches_y = not all(jax.tree.leaves(f_y))
    stuck_y = _stuck("y0", y, g_y)
    stuck_x = _stuck("x0", x, jax.tree.map(lambda direct, through: direct and (through or not reaches_y), f_x, cross))
    if not stuck_x and not stuck_y:
        return []
    used = {
        "f": _used(f, 0, x, y, xi),
        "g": _used(g, 0, x, y, zeta),
        "g of y": _used(g, 1, x, y, zeta),
        "f of y": _used(f, 1, x, y, xi),
    }
    crosses = dict(zip(_names("x0", x), jax.tree.leaves(cross), strict=True))
    traced = _Traced(minimax, used, crosses, reaches_y)
    return [
        *_said("x0", [(name, traced.cause_in_x(name)) for name in stuck_x], len(_names("x0", x))),
        *_said("y0", [(name, traced.cause_in_y(name)) for name in stuck_y], len(_names("y0", y))),
    ]


def _said(variable: str, stuck: list[tuple[str, str]], leaves: int) -> list[str]:
    causes = {cause for _, cause in stuck}
    if len(stuck) > 1 and len(stuck) == leaves and len(causes) == 1:
        named = ", ".join(name for name, _ in stuck[:NAMED]) + (f" and {leaves - NAMED} more" if leaves > NAMED else "")
        return [f"{variable} cannot move in any of its leaves ({named}): {causes.pop()}."]
    return [f"{name} cannot move: {cause}." for name, cause in stuck]


def _names(variable: str, values: Tree) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path(values, is_leaf=is_per_example)
    return [checks.path_name(variable, path) for path, _ in leaves]


def _stuck(variable: str, values: Tree, zero: Tree) -> list[str]:
    found = zip(_names(variable, values), jax.tree.leaves(values), jax.tree.leaves(zero), strict=True)
    return [name for name, leaf, is_zero in found if is_zero and leaf.size]


def _used(loss: Loss, argument: int, x: Tree, y: Tree, batch: Batch) -> set[str]:
    """The names of the leaves of x (0) or y (1) that the value of a loss depends on."""
    program = jax.make_jaxpr(loss)(x, y, batch).jaxpr
    before, values = (0, x) if argument == 0 else (len(jax.tree.leaves(x)), y)
    own = program.invars[before : before + len(jax.tree.leaves(values))]
    needed = _needed(program, [True] * len(program.outvars))
    names = _names("x0" if argument == 0 else "y0", values)
    return {name for name, var in zip(names, own, strict=True) if id(var) in needed}


def _needed(program: Any, outputs: Iterable[bool]) -> set[int]:
    """The identities of the variables of a program that some of its outputs depend on."""
    needed = {id(var) for var, asked in zip(program.outvars, outputs, strict=True) if asked and not _is_literal(var)}
    for equation in reversed(program.eqns):
        asked = [id(out) in needed for out in equation.outvars]
        if any(asked):
            inside, read = _inside(equation), [True] * len(equation.invars)
            if inside is not None:
                own = _needed(inside, asked)
                read = [id(var) in own for var in inside.invars]
            needed.update(id(var) for var, is_read in zip(equation.invars, read, strict=True) if is_read)
    return needed


def _inside(equation: Any) -> Any:
    """The program that an equation calls once, or None."""
    found = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    found = getattr(found, "jaxpr", found)
    calls_once = equation.primitive.name not in ("scan", "while") and found is not None
    fits = calls_once and len(found.invars) == len(equation.invars) and len(found.outvars) == len(equation.outvars)
    return found if fits else None


def _zeros(function: Callable[..., Any], *args: Any) -> Any:
    """For each leaf of the result of `function`, whether it is zero for all arguments."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    zero = _zero_outputs(program.jaxpr, [False] * len(program.jaxpr.invars))
    return jax.tree.unflatten(jax.tree.structure(shapes), zero)


def _zero_outputs(program: Any, inputs: Iterable[bool]) -> list[bool]:
    """Which outputs of a program are zero, where some of its inputs are known to be."""
    known = {id(var) for var, zero in zip(program.invars, inputs, strict=True) if zero}

    def zero(var: Any) -> bool:
        if _is_literal(var):
            return bool(jnp.ndim(var.val) == 0 and var.val == 0)
        return id(var) in known

    for equation in program.eqns:
        for out, is_zero in zip(
            equation.outvars, _zero_results(equation, [zero(v) for v in equation.invars]), strict=True
        ):
            if is_zero:
                known.add(id(out))
    return [zero(var) for var in program.outvars]


def _zero_results(equation: Any, zero: list[bool]) -> list[bool]:
    name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
    if name in _PASS_ON:
        return [zero[0]] * count
    if name in _PRODUCTS:
        return [any(zero)] * count
    if name in _SUMS:
        return [all(zero)] * count
    if name == "select_n":
        return [all(zero[1:])]
    if name in ("scatter-add", "scatter", "dynamic_update_slice"):
        updates = zero[2] if name != "dynamic_update_slice" else zero[1]
        return [zero[0] and updates]
    if name == "scan":
        return _zero_in_scan(params, zero)
    if name == "cond":
        branches = [_zero_outputs(branch.jaxpr, zero[1:]) for branch in params["branches"]]
        return [all(each) for each in zip(*branches, strict=True)]
    inside = _inside(equation)
    return [False] * count if inside is None else _zero_outputs(inside, zero)


def _zero_in_scan(params: Any, zero: list[bool]) -> list[bool]:
    consts, carried = params["num_consts"], params["num_carry"]
    body, first = params["jaxpr"].jaxpr, zero[consts : consts + carried]
    while True:
        outputs = _zero_outputs(body, [*zero[:consts], *first, *zero[consts + carried :]])
        after = [before and now for before, now in zip(first, outputs[:carried], strict=True)]
        if after == first:
            return [*first, *outputs[carried:]]
        first = after


def _is_literal(var: Any) -> bool:
    return hasattr(var, "val")
