"""What a problem is: plain functions over trees, and the data they are averaged over.

A problem knows its losses and its data and nothing of algorithms or orders. Every problem is a tree whose leaves are
its data, so that it passes through `jit` with the data as arguments and the losses as part of the program.

Data that do not fit on the device, or should not be there, stay on the host (`streaming`). All data that one index
reads then stay there together, and inside a compiled block the problem has the rows of some steps in their place.

Losses are means over the rows of their batch, so that the mean over all equal batches is the full objective. A loss
that is itself a tree (a registered dataclass with `__call__`) may hold arrays that batches point into; they are
arguments too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from wior import checks
from wior.problems import constraints
from wior.problems.keys import Indices, Rows
from wior.problems.losses import LOSSES, given_what_they_ask, holds_arrays, start_of, takes_key
from wior.problems.per_example import has_rows, is_per_example, take
from wior.streaming import sources
from wior.streaming.gathered import Gathered, is_streamed, no_rows

Tree = Any
Calls = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]  # losses by name, and arguments to call them with
Batches = tuple[int, int] | None  # the rows of an outer and of an inner batch; None where they are not known
RULES = ("project_x", "project_y")
LARGEST = 2**31 - 1  # the largest number of a row on the device


class Batch(NamedTuple):
    """Rows of a data set, and where they stand in it.

    Attributes
    ----------
    data : tree of arrays
        The rows, as the losses of the problem receive them. Where a loss takes a key, that of the batch is with them.
    examples : jax.Array
        (rows,), their indices in the data set: those of their `PerExample` rows.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> loss = lambda x, y, batch: jnp.mean(batch)
    >>> problem = wior.Bilevel(loss, loss, np.arange(8.0), np.arange(8.0))
    >>> batch = problem.inner_batch(jnp.array([2, 5]))
    >>> batch.data.tolist(), batch.examples.tolist()
    ([2.0, 5.0], [2, 5])
    """

    data: Tree
    examples: jax.Array


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What all problems share: a tree whose leaves are the data, with the losses as its fixed part.

    Parameters
    ----------
    project_x, project_y : callable, str, tuple or None, default None
        Where x and y may lie: a function that is given the variable after each step that moved it, and returns what
        takes its place; a constraint of `wior.constraints`; or its name, "non_negative" say, or ("box", 0.0, 1.0). Of a
        variable with `PerExample` rows the function is given the shared leaves and the rows of the batch.

    A problem class of your own is a frozen dataclass (`eq=False`) that inherits from this class. It gives `name`, the
    names of its losses (`_losses`) and of its data (`_data`), `sizes` and `check`. If it is a special case of another
    class, it names that class in `special_case_of` and gives `restated`: all methods of the other class then take it.
    Otherwise it gives `loss_calls` and the batches that its methods read.

    Examples
    --------
    The strength exp(x) of a ridge regression as a class of problems:

    >>> import dataclasses
    >>> from typing import Any
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> def error(x, y, rows):
    ...     return jnp.mean((rows[0] @ y - rows[1]) ** 2)
    >>> def penalized(x, y, rows):
    ...     return error(x, y, rows) + jnp.exp(x) * jnp.sum(y**2)
    >>> @dataclasses.dataclass(frozen=True, eq=False)
    ... class Ridge(wior.Problem):
    ...     training: Any
    ...     validation: Any
    ...
    ...     name = "ridge"
    ...     special_case_of = wior.Bilevel
    ...     _losses = ()
    ...     _data = ("training", "validation")
    ...
    ...     def sizes(self):
    ...         return {"outer": len(self.validation[1]), "inner": len(self.training[1])}
    ...
    ...     def check(self, x, y, batches=None):
    ...         self.restated().check(x, y, batches)
    ...
    ...     def restated(self):
    ...         return wior.Bilevel(error, penalized, self.validation, self.training)
    >>> rng = np.random.default_rng(0)
    >>> problem = Ridge(*((rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (40, 20)))
    >>> problem.check(jnp.zeros(()), jnp.zeros(3))
    >>> problem.sizes()
    {'outer': 20, 'inner': 40}
    """

    project_x: Any = None
    project_y: Any = None

    model_state: ClassVar[Any] = None  # of a class that has one, a field
    update_state_by: ClassVar[str] = "inner"
    damping: ClassVar[Any] = None  # μ, inside of a step of a method that has one

    name: ClassVar[str]  # on the command line
    conditional: ClassVar[bool] = False  # whether every outer example has an inner data set of its own
    special_case_of: ClassVar[type[Problem] | None] = None  # the more general class that `restated` gives

    _losses: ClassVar[tuple[str, ...]]
    _data: ClassVar[tuple[str, ...]]
    _arguments: ClassVar[dict[str, tuple[str, ...]]] = {}  # what each loss is called with
    _read_by: ClassVar[dict[str, tuple[str, ...]]] = {}  # the data that an index of each level reads

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    def _flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        data = tuple(getattr(self, name) for name in self._data)
        losses = tuple(getattr(self, name) for name in (*self._losses, *RULES))
        # a loss that is a tree (of images that its batches point to, say) hands its arrays to the program as arguments
        return (*data, *(loss if holds_arrays(loss) else None for loss in losses)), tuple(
            None if holds_arrays(loss) else loss for loss in losses
        )

    @classmethod
    def _unflatten(cls, functions: tuple[Any, ...], leaves: tuple[Any, ...]) -> Self:
        new = object.__new__(cls)
        data, trees = leaves[: len(cls._data)], leaves[len(cls._data) :]
        losses = (tree if function is None else function for function, tree in zip(functions, trees, strict=True))
        names = (*cls._losses, *RULES)
        for name, value in (*zip(names, losses, strict=True), *zip(cls._data, data, strict=True)):
            object.__setattr__(new, name, value)
        for loss in (getattr(new, name) for name in cls._losses if name in LOSSES):
            if start_of(loss) is not None:
                object.__setattr__(new, "model_state", start_of(loss))
        return new

    def _stream(self) -> None:
        """Makes sources of all data of a level that has one; a resident leaf beside it is read with it."""
        for names in self._read_by.values():
            for name in names:
                checks.readable(name, getattr(self, name))
            if any(sources.any_source(getattr(self, name)) for name in names):
                for name in names:
                    object.__setattr__(self, name, sources.streamed(name, getattr(self, name)))

    def _prepare(self) -> None:
        """Checks the losses and puts the data on the device; the classes' `__post_init__`."""
        for name in RULES:
            object.__setattr__(self, name, constraints.named(name, getattr(self, name)))
        for name in self._losses:
            if getattr(self, name) is not None or name in LOSSES:
                checks.function(name, getattr(self, name))
                if name not in LOSSES:
                    checks.arity(name, getattr(self, name), self._arguments[name])
        own = {name: getattr(self, name) for name in self._losses if name in LOSSES}
        for name, loss in given_what_they_ask(self, own).items():
            object.__setattr__(self, name, loss)
        for name in self._data:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.arrays(name, getattr(self, name)))

    @property
    def lacks_outer_data(self) -> bool:
        """Whether the outer level is a single example, which every step reads once."""
        return False

    @property
    def takes_key(self) -> bool:
        """Whether a loss takes a key of `jax.random`, so that batches have one."""
        return any(takes_key(getattr(self, name)) for name in LOSSES if name in self._losses)

    def sizes(self) -> dict[str, int]:
        """The number of examples at each level.

        Returns
        -------
        dict
            The numbers by level, "outer" and "inner": what an order runs over. In a conditional problem "inner" is the
            size of the largest inner set.
        """
        raise NotImplementedError

    def streamed(self) -> dict[str, dict[str, Tree]]:
        """The data that stay on the host.

        Returns
        -------
        dict
            By level, then by name; empty where all data are on the device.
        """
        return {
            level: {name: getattr(self, name) for name in names}
            for level, names in self._read_by.items()
            if is_streamed([getattr(self, name) for name in names])
        }

    def demand_resident(self, user: str) -> None:
        """Raises where data are streamed: called by what reads all data on the device.

        Parameters
        ----------
        user
            What reads them, for the error message.
        """
        if self.streamed():
            raise ValueError(
                f"the {' and '.join(self.streamed())} data are streamed, and {user} reads all of them on the device; "
                "give arrays that fit on it"
            )

    def with_rows(self, gathered: dict[str, Gathered]) -> Self:
        """This problem with gathered rows in place of streamed data.

        Parameters
        ----------
        gathered
            The rows, by the names of the data.

        Returns
        -------
        Problem
        """
        new = self._unflatten(*reversed(self._flatten()))
        for name, rows in gathered.items():
            object.__setattr__(new, name, rows)
        return new

    def damped(self, damping: Any) -> Self:
        """This problem with μ I added to the Hessian ∇²_yy g, and to nothing else; a step of a method begins with it.

        Parameters
        ----------
        damping
            μ; None adds nothing.

        Returns
        -------
        Problem
            For use inside of the step alone: it is no part of the tree that a problem is.
        """
        if damping is None:
            return self
        new = copy.copy(self)
        object.__setattr__(new, "damping", damping)
        return new

    def with_losses(self, losses: dict[str, Any]) -> Self:
        """This problem with other losses, by name, which are taken as they are.

        Parameters
        ----------
        losses
            What takes their places.

        Returns
        -------
        Problem
        """
        new = copy.copy(self)
        for name, loss in losses.items():
            object.__setattr__(new, name, loss)
        return new

    def without_sources(self) -> Self:
        """This problem with one row of zeros in place of streamed data, from which shapes and dtypes are read.

        Returns
        -------
        Problem
        """
        names = {name: data for level in self.streamed().values() for name, data in level.items()}
        return self.with_rows({name: no_rows(data) for name, data in names.items()}) if names else self

    def restated(self) -> Problem:
        """The same problem as one of the class that this class is a special case of.

        Returns
        -------
        Problem
            Of the class `special_case_of`.
        """
        raise NotImplementedError

    def loss_calls(self, x: Tree, y: Tree, batches: Batches = None) -> Calls:
        """Each loss as a step calls it, and arguments to call it with.

        Parameters
        ----------
        x, y
            Where the losses are called.
        batches
            The batch sizes (outer, inner); two rows each where it is None.

        Returns
        -------
        dict
            By the name of the loss a pair: the function, and its arguments, of which batches are given as shapes.
        """
        raise NotImplementedError

    def check(self, x: Tree, y: Tree, batches: Batches = None) -> None:
        """Traces the losses on the shapes of batches, and raises where they or x and y are wrong.

        Parameters
        ----------
        x, y
            Where a run would start.
        batches
            The batch sizes (outer, inner); two rows each where it is None.
        """
        raise NotImplementedError


def batch_of(data: Tree, index: Any) -> Batch:
    if isinstance(index, Indices):
        batch = batch_of(data, index.examples)
        return Batch(Rows(batch.data, index.key), batch.examples)
    if isinstance(data, Gathered):
        return Batch(batch_of(data.rows, index).data, take(data.examples, index))
    return Batch(jax.tree.map(lambda rows: take(rows, index), data), index)


def shapes_of(problem: Any, batches: Batches, *draws: str) -> tuple[Any, ...]:
    problem, (outer, inner) = problem.without_sources(), batches or (2, 2)
    # the inner sets of conditional problems are drawn with their outer examples
    sizes = {"outer_batch": outer, "inner_batch": inner, "inner_sets": outer}
    return tuple(
        jax.eval_shape(getattr(problem, draw), jax.ShapeDtypeStruct((sizes[draw],), jnp.int32)) for draw in draws
    )


def check_scalars(calls: Calls) -> None:
    for name, (loss, args) in calls.items():
        checks.scalar_loss(name, loss, *args)


def check_map_and_scalar(calls: Calls, y: Tree) -> None:
    inner, args = calls["inner"]
    checks.mean_of_rows("inner", jax.eval_shape(inner, *args), args[-1], y)
    checks.same_structure("inner(x, batch)", jax.eval_shape(inner, *args), "y0", y)
    check_scalars({"outer": calls["outer"]})


def check_rows_fit(x: Tree, y: Tree, n: int) -> None:
    if has_rows(y):
        raise TypeError(
            "y0 has a PerExample leaf; only x may have one row for each example, and y of a Minimax problem under its "
            "own methods: those of Bilevel problems solve for all of y at once"
        )
    check_rows_of("x0", x, n, "inner")


def check_rows_of(name: str, variable: Tree, n: int, level: str) -> None:
    """Demands a row for each of the n examples of a level in every `PerExample` leaf of a variable."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(variable, is_leaf=is_per_example):
        if is_per_example(leaf) and n > LARGEST:
            raise ValueError(
                f"{checks.path_name(name, path)} is PerExample, and there are {n} examples; on the device at most "
                f"{LARGEST} can have a row each"
            )
        if is_per_example(leaf) and (jnp.ndim(leaf.rows) == 0 or jnp.shape(leaf.rows)[0] != n):
            raise ValueError(
                f"{checks.path_name(name, path)} is PerExample with shape {jnp.shape(leaf.rows)}; "
                f"its first axis must be {n}, one row for each {level} example"
            )
