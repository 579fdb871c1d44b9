"""`Layout`: how a run lies on many devices.

A mesh splits every batch along one of its axes: each device computes the losses of its share, and the compiler adds the
sums that join them. The state and the data lie whole on every device unless a layout says otherwise; then parameters,
`PerExample` rows or the rows of the data are split too, and a step moves the rows of its batch and never a table. The
program is the one of a single device with sharding constraints, so that the numbers agree to rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from wior import checks
from wior.devices import hosts
from wior.problems import Batch, Problem
from wior.problems.fixed_batches import InFixedBatches
from wior.problems.inner_sets import InnerSet
from wior.problems.losses import evaluate
from wior.problems.per_example import PerExample, has_rows, is_per_example
from wior.streaming.gathered import Gathered
from wior.streaming.sources import Streamed

Tree = Any
Rule = Callable[[str, tuple[int, ...]], PartitionSpec]

BATCH = "batch"
BYTES_IN_PIECE = 2**28  # of a table that no process has whole


class Point(NamedTuple):
    """x and y, by the names that they have in a state."""

    x: Tree
    y: Tree


class RowsToSplit(NamedTuple):
    """A number of rows that a device axis has to divide."""

    what: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh of devices, and what is split along which of its axes; given as `mesh` to `wior.solve`.

    What is not split lies whole on every device.

    Parameters
    ----------
    mesh
        The devices, a `jax.sharding.Mesh` with named axes.
    batch
        The axis that splits the batches. Without it, the one called "batch", or else the first.
    parameters
        What splits x, y and what a method keeps beside them: an axis, along which every array is cut at the longest of
        its dimensions that divides; or a function of an array's path in the state (`.y['w']`) and its shape that
        returns a `PartitionSpec`.
    rows
        The axis that splits the rows of `PerExample` leaves.
    data
        The axis that splits the rows of the problem's data.

    Raises
    ------
    TypeError, ValueError
        Where `mesh` is no mesh, an axis is none of its axes, or this process has no device in it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> algorithm = wior.WiORBO(outer_lr=0.05, inner_lr=0.1, adjoint_lr=0.1)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> layout = wior.Layout(jax.sharding.Mesh(jax.devices()[:1], ("batch",)), data="batch")
    >>> result = wior.solve(problem, algorithm, x0, y0, batch_size=8, steps=4, mesh=layout)
    >>> tuple(result.y.sharding.spec)  # y lies whole on every device
    ()
    """

    mesh: Mesh
    batch: str = ""
    parameters: str | Rule | None = None
    rows: str | None = None
    data: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh):
            raise TypeError(
                f"mesh must be a jax.sharding.Mesh or a wior.Layout, got {self.mesh!r} of type "
                f"{type(self.mesh).__name__}"
            )
        own = automatic(self.mesh)
        object.__setattr__(self, "mesh", own)
        names = own.axis_names
        if not self.batch:
            object.__setattr__(self, "batch", BATCH if BATCH in names else names[0])
        for field in ("batch", "rows", "data", "parameters"):
            axis = getattr(self, field)
            if axis is None or (field == "parameters" and callable(axis)):
                continue
            if axis not in names:
                raise ValueError(f"{field}={axis!r} is not an axis of the mesh; it has {_axes(own)}")
        here = jax.process_index()
        if not any(device.process_index == here for device in own.devices.flat):
            raise ValueError(
                f"the mesh has no device of process {here}; every process of a run needs a part in it: "
                "build it from jax.devices(), which lists those of all processes"
            )

    @property
    def spans_processes(self) -> bool:
        """Whether the devices of the mesh belong to more than one process."""
        return len({device.process_index for device in self.mesh.devices.flat}) > 1

    def describe(self) -> list[Any]:
        """What must be the same in all processes."""
        rule = "a function" if callable(self.parameters) else self.parameters
        ids = [device.id for device in self.mesh.devices.flat]
        return [list(self.mesh.shape.items()), ids, self.batch, rule, self.rows, self.data]

    def demand_fit(self, batches: Sequence[RowsToSplit], problem: Problem, x: Tree, y: Tree) -> None:
        """Raises where an axis does not divide what it splits; the error says which one."""
        for what, rows in batches:
            self._demand_divides("batch", what, rows)
        if self.rows is not None:
            if not has_rows((x, y)):
                raise ValueError(f"rows={self.rows!r} splits PerExample leaves, and x0 has none")
            self.demand_rows_fit(x, y)
        if self.data is not None:
            if problem.streamed():
                raise ValueError(
                    f"data={self.data!r} splits data that lie on the devices; those of the "
                    f"{' and '.join(problem.streamed())} level are streamed"
                )
            posed = problem.problem if isinstance(problem, InFixedBatches) else problem
            for name in posed._data:
                for path, leaf in jax.tree_util.tree_leaves_with_path(getattr(posed, name)):
                    self._demand_divides("data", f"{checks.path_name(name, path)}, whose rows are", np.shape(leaf)[0])
        self.shardings(Point(x, y))

    def demand_rows_fit(self, x: Tree, y: Tree) -> None:
        """Raises where the axis of `rows` does not divide the rows of a `PerExample` leaf."""
        if self.rows is None:
            return
        for name, variable in (("x0", x), ("y0", y)):
            for path, leaf in jax.tree_util.tree_leaves_with_path(variable, is_leaf=is_per_example):
                if is_per_example(leaf) and np.ndim(leaf.rows) > 0:  # a single number is left to the checks of x0
                    what = f"{checks.path_name(name, path)}, whose rows are"
                    self._demand_divides("rows", what, np.shape(leaf.rows)[0])

    def shardings(self, carried: Tree) -> Tree:
        """For every array of a state, or of a tree of them, where it lies."""

        def one(path: Any, leaf: Any) -> Any:
            if is_per_example(leaf):
                return PerExample(self._sharding(PartitionSpec() if self.rows is None else PartitionSpec(self.rows)))
            return self._sharding(self._parameter(jax.tree_util.keystr(path), np.shape(leaf)))

        return jax.tree_util.tree_map_with_path(one, carried, is_leaf=is_per_example)

    def kept(self, carry: Any) -> Any:
        """The carry of a run, told to stay where it lies. What orders remember lies whole on every device."""
        return carry._replace(
            state=jax.tree.map(jax.lax.with_sharding_constraint, carry.state, self.shardings(carry.state)),
            memories=self.whole(carry.memories),
            visit_orders=self.whole(carry.visit_orders),
        )

    def whole(self, values: Tree) -> Tree:
        """Values that every device is to have."""
        return jax.tree.map(
            lambda leaf: jax.lax.with_sharding_constraint(leaf, self._sharding(PartitionSpec())), values
        )

    def split(self, batch: Tree) -> Tree:
        """A batch told to lie in equal shares; one that does not divide (what is left of a large batch) lies whole on
        every device.
        """

        def one(leaf: jax.Array) -> jax.Array:
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return leaf
            along = PartitionSpec(self.batch) if leaf.shape[0] % self.mesh.shape[self.batch] == 0 else PartitionSpec()
            return jax.lax.with_sharding_constraint(leaf, self._sharding(along))

        return jax.tree.map(one, batch)

    def received(self, problem: Problem, x: Tree, y: Tree) -> tuple[Problem, Tree, Tree]:
        """What the user gave, ready to be looked at: the rows of `PerExample` leaves are on their devices, since a
        table may not fit on one.
        """
        if self.spans_processes:  # before any array is, which takes all of them
            hosts.demand_same({"mesh": self.describe(), "shapes of x0": [str(np.shape(a)) for a in jax.tree.leaves(x)]})
        self.demand_rows_fit(x, y)
        problem, x, y = with_automatic_axes((problem, x, y))

        def one(leaf: Any) -> Any:
            array = is_per_example(leaf) and isinstance(leaf.rows, (np.ndarray, jax.Array)) and np.ndim(leaf.rows) > 0
            if not array or not np.issubdtype(leaf.rows.dtype, np.floating):
                return leaf  # left to the checks of x0, which say what is wrong with it
            axis = PartitionSpec() if self.rows is None else PartitionSpec(self.rows)
            return PerExample(place(leaf.rows, self._sharding(axis)))

        x, y = (jax.tree.map(one, variable, is_leaf=is_per_example) for variable in (x, y))
        return problem, x, y

    def place(self, values: Tree) -> Tree:
        """Values on every device."""
        return jax.tree.map(lambda leaf: place(leaf, self._sharding(PartitionSpec())), values)

    def place_problem(self, problem: Problem, x: Tree, y: Tree) -> Spread:
        """A problem whose data are on the devices and whose batches are split."""
        of_x, of_y = (
            tuple(is_per_example(leaf) for leaf in jax.tree.leaves(variable, is_leaf=is_per_example))
            for variable in (x, y)
        )
        return Spread(self._placed(problem), Sharing(self, of_x, of_y))

    def _placed(self, problem: Any) -> Any:
        if isinstance(problem, InFixedBatches):
            return InFixedBatches(self._placed(problem.problem), problem.batch_sizes)

        def one(path: Any, leaf: Any) -> Any:
            if isinstance(leaf, Streamed):
                return leaf  # its rows go to the devices as they are gathered
            is_data = path[0].key < len(
                problem._data
            )  # the arrays of losses come after them, and all batches point into these
            return place(leaf, self._sharding(PartitionSpec(self.data) if is_data and self.data else PartitionSpec()))

        return jax.tree_util.tree_map_with_path(one, problem)

    def _parameter(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        if self.parameters is None:
            return PartitionSpec()
        if isinstance(self.parameters, str):
            size = self.mesh.shape[self.parameters]
            lengths = [(length, -i) for i, length in enumerate(shape) if length % size == 0 and length > 0]
            if not lengths:
                return PartitionSpec()
            return PartitionSpec(*[None] * -max(lengths)[1], self.parameters)
        spec = self.parameters(path, shape)
        self._demand_spec(path, shape, spec)
        return spec

    def _demand_spec(self, path: str, shape: tuple[int, ...], spec: Any) -> None:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"parameters({path!r}, {shape}) must return a PartitionSpec, got {spec!r}")
        if len(spec) > len(shape):
            raise ValueError(
                f"parameters({path!r}, {shape}) has {len(spec)} entries, {spec}, for {len(shape)} dimensions"
            )
        for length, entry in zip(shape, spec, strict=False):
            axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
            unknown = [axis for axis in axes if axis not in self.mesh.shape]
            if unknown:
                raise ValueError(f"parameters({path!r}, {shape}) names {unknown[0]!r}; the mesh has {_axes(self.mesh)}")
            if length % math.prod(self.mesh.shape[axis] for axis in axes):
                raise ValueError(
                    f"parameters({path!r}, {shape}) is {spec}, which cuts a dimension of {length} into "
                    f"{math.prod(self.mesh.shape[a] for a in axes)} parts"
                )

    def _demand_divides(self, field: str, what: str, rows: int) -> None:
        axis = getattr(self, field)
        size = self.mesh.shape[axis]
        if rows % size:
            near = sorted({max(size, rows // size * size), (rows // size + 1) * size})
            raise ValueError(
                f"the mesh axis {axis!r} has {size} devices, which do not divide {what} {rows}; "
                f"give a multiple of {size}, for example {' or '.join(map(str, near))}, or a mesh whose axis divides "
                f"{rows}"
            )

    def _sharding(self, spec: PartitionSpec) -> NamedSharding:
        return NamedSharding(self.mesh, spec)


class Sharing(NamedTuple):
    """A layout, and which leaves of x and y, as a loss sees them, are the rows of its batch."""

    layout: Layout
    rows: tuple[bool, ...]
    rows_of_y: tuple[bool, ...] = ()

    def seen(self, x: Tree, rows: tuple[bool, ...]) -> Tree:
        """x or y as a loss sees it, with the rows of its batch whole on every device, and so the derivative at them.

        Rows are then written where the table lies. Shares of them would be written into a table of zeros on each
        device, and these added up.
        """
        leaves, structure = jax.tree.flatten(x)
        return jax.tree.unflatten(
            structure,
            [self.layout.whole(leaf) if mark else leaf for leaf, mark in zip(leaves, rows, strict=True)],
        )


class _AtRows(NamedTuple):
    """A loss that sees x, and y where it has rows too, with the rows of its batch as `Sharing` says."""

    loss: Any
    sharing: Sharing

    def __call__(self, *args: Any) -> Any:
        return self.loss(*self._seen(args))

    def with_state(self, state: Tree, *args: Any) -> Any:
        return evaluate(self.loss, state, *self._seen(args))

    def _seen(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        sharing, found = self.sharing, list(args)
        if any(sharing.rows):
            found[0] = sharing.seen(args[0], sharing.rows)
        if any(sharing.rows_of_y):
            found[1] = sharing.seen(args[1], sharing.rows_of_y)
        return tuple(found)


class Spread(Problem):
    """A problem whose batches lie in equal shares on the devices of a layout."""

    _losses = ("sharing",)
    _data = ("problem",)

    def __init__(self, problem: Any, sharing: Sharing):
        self.problem, self.sharing = problem, sharing

    def __getattr__(self, name: str) -> Any:
        if name in ("problem", "sharing"):  # not there yet: a tree is being built
            raise AttributeError(name)
        found = getattr(self.problem, name)
        if name in ("inner", "objective") and any((*self.sharing.rows, *self.sharing.rows_of_y)):
            return _AtRows(found, self.sharing)
        return found

    @property
    def model_state(self) -> Any:
        return self.problem.model_state

    @property
    def takes_key(self) -> bool:
        return bool(self.problem.takes_key)

    def sizes(self) -> dict[str, int]:
        return dict(self.problem.sizes())

    def streamed(self) -> dict[str, dict[str, Tree]]:
        return dict(self.problem.streamed())

    def with_rows(self, gathered: dict[str, Gathered]) -> Spread:
        return Spread(self.problem.with_rows(gathered), self.sharing)

    def without_sources(self) -> Spread:
        return Spread(self.sharing.layout._placed(self.problem.without_sources()), self.sharing)

    def outer_batch(self, index: jax.Array) -> Batch:
        return self._split(self.problem.outer_batch(index))

    def inner_batch(self, index: jax.Array) -> Batch:
        return self._split(self.problem.inner_batch(index))

    def inner_sets(self, index: jax.Array) -> InnerSet:
        sets: InnerSet = self.problem.inner_sets(index)
        return self.sharing.layout.split(sets)

    def _split(self, batch: Batch) -> Batch:
        layout = self.sharing.layout
        return Batch(layout.split(batch.data), layout.whole(batch.examples))


def as_layout(mesh: Mesh | Layout | None) -> Layout | None:
    return mesh if mesh is None or isinstance(mesh, Layout) else Layout(mesh)


def place(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """An array, the same in every process, on the devices of a sharding that may be those of many processes."""
    if sharding.is_fully_addressable or (isinstance(leaf, jax.Array) and not leaf.is_fully_addressable):
        return jax.device_put(leaf, sharding)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(place(jax.random.key_data(leaf), sharding), impl=jax.random.key_impl(leaf))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def automatic(mesh: Any) -> Mesh:
    """The mesh with automatic axes: the compiler derives how values lie from the constraints. Explicit axes would have
    to be named in every operation.
    """
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def with_automatic_axes(values: Tree) -> Tree:
    """Arrays that the user has spread by a mesh of explicit axes, as jax.make_mesh gives, where they are, by one of
    automatic axes.
    """

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not isinstance(leaf.sharding, NamedSharding):
            return leaf
        return jax.device_put(leaf, NamedSharding(automatic(leaf.sharding.mesh), leaf.sharding.spec))

    return jax.tree.map(one, values)


def in_pieces(leaf: Any) -> Iterator[np.ndarray]:
    """The values of an array on the host, whole; or rows at a time where no process has all of them."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        yield np.asarray(leaf)
        return
    assert isinstance(leaf.sharding, NamedSharding)
    everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    size = max(1, BYTES_IN_PIECE // max(1, leaf.nbytes // leaf.shape[0]))
    take = jax.jit(jax.lax.dynamic_slice_in_dim, static_argnums=(2, 3), out_shardings=everywhere)
    for start in range(0, leaf.shape[0], size):
        yield np.asarray(take(leaf, start, min(size, leaf.shape[0] - start), 0))


def _axes(mesh: Mesh) -> str:
    return ", ".join(f"{name!r} ({size} device{'s' if size > 1 else ''})" for name, size in mesh.shape.items())
