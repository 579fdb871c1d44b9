"""Conditional bilevel problems: an inner problem for each outer example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from wior import checks
from wior.problems.inner_sets import (
    InnerSet,
    all_visits,
    check_conditional,
    check_no_rows,
    conditional_sizes,
    first_axis,
    inner_sets_of,
    one_visit,
)
from wior.problems.problem import Batch, Batches, Calls, Problem, batch_of, check_scalars

Tree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalBilevel(Problem):
    """min over x of mean f(x, y_i; ξ_i) where each y_i minimizes g over the inner data set of its own example ξ_i.

    The leaves of `inner_data` are shaped (m, n_max, ...); `counts` (m,) says how many of the n_max rows belong to each
    example, all of them where it is `None`. Rows past the count are never read into a loss.

    Where g depends on x only through a representation, `represent(x, rows)` returns it with one row for each row, and
    `inner(representation, y, rows)` is g. It is then evaluated once for each outer step, and the hyper-gradient pulls
    back through it once; each row by itself, since the rows of all examples of a batch are given together.
    `represent_outer(x, rows)` does the same for `outer(representation, y, rows)`.
    """

    outer: Callable[[Tree, Tree, Tree], jax.Array]
    inner: Callable[[Tree, Tree, Tree], jax.Array]
    outer_data: Tree
    inner_data: Tree
    counts: Any = None
    represent: Callable[[Tree, Tree], Tree] | None = None
    represent_outer: Callable[[Tree, Tree], Tree] | None = None

    name = "conditional-bilevel"
    conditional = True
    _losses = ("outer", "inner", "represent", "represent_outer")
    _arguments = {
        **dict.fromkeys(("outer", "inner"), ("x", "y", "batch")),
        **dict.fromkeys(("represent", "represent_outer"), ("x", "rows")),
    }
    _data = ("outer_data", "inner_data", "counts")
    _read_by = {"outer": ("outer_data", "inner_data")}

    def __post_init__(self) -> None:
        self._stream()
        check_conditional(self)
        self._prepare()

    def sizes(self) -> dict[str, int]:
        return conditional_sizes(self.outer_data, self.inner_data)

    def outer_batch(self, index: jax.Array) -> Batch:
        return batch_of(self.outer_data, index)

    def inner_sets(self, index: jax.Array) -> InnerSet:
        return inner_sets_of(self, index)

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        visit, together = one_visit(self, batches), all_visits(self, batches)
        calls: Calls = {}
        for name, loss, represent, rows, given in (
            ("outer", self.outer, self.represent_outer, visit[0], together[0]),
            ("inner", self.inner, self.represent, visit[1], together[1]),
        ):
            point = x
            if represent is not None:
                point = first_axis(jax.eval_shape(represent, x, given), checks.rows("rows", rows))
                calls["represent_outer" if name == "outer" else "represent"] = (represent, (x, given))
            calls[name] = (loss, (point, y, rows))
        return calls

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        check_no_rows(x, y)
        calls = self.loss_calls(x, y, batches)
        for name in ("represent", "represent_outer"):
            if name in calls:
                represent, args = calls.pop(name)
                found, given = (
                    checks.rows(f"{name}(x, rows)", jax.eval_shape(represent, *args)),
                    checks.rows("rows", args[1]),
                )
                if found != given:
                    raise ValueError(
                        f"{name} must return one row for each row it is given, here {given}; it returns {found}"
                    )
        check_scalars(calls)
