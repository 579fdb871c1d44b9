"""The counting of derivatives, while a step is traced.

Gradients and products are counted in examples (the paper's Gc(f), Gc(g), JV and HV), backward passes as passes.
A count that is known while tracing is a Python integer and costs nothing at run time;
one that depends on the data (ragged inner sets, say) is carried through the loop. `scan`, `repeat`, `cond` and `vmap`
below are jax's, and multiply what their bodies count, or count the side that was taken. They carry what `carried`
holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from wior.problems import carried

CALLS = ("outer_gradients", "inner_gradients", "jacobian_products", "hessian_products", "backward_passes")


class Tally:
    """What was called while this tally was open.

    `known` has the integers known while tracing, `traced` the numbers that only a run knows.
    """

    def __init__(self) -> None:
        self.known = dict.fromkeys(CALLS, 0)
        self.traced: dict[str, jax.Array] = {}

    def add(self, name: str, number: Any) -> None:
        if isinstance(number, int):
            self.known[name] += number
        else:
            self.traced[name] = self.traced.get(name, _zero()) + number.astype(jnp.uint32)

    def running(self) -> dict[str, jax.Array]:
        """The traced part with an entry for every name, as a loop carries it."""
        return {name: self.traced.get(name, _zero()) for name in CALLS}

    def everything(self) -> dict[str, jax.Array]:
        """Both parts together, as a loop or a branch returns them."""
        return {name: number + jnp.uint32(self.known[name]) for name, number in self.running().items()}


class _Open(threading.local):
    def __init__(self) -> None:
        self.tallies: list[Tally] = []


_open = _Open()


@contextlib.contextmanager
def counting() -> Iterator[Tally]:
    """Collects the calls made inside into a `Tally`."""
    tally = Tally()
    _open.tallies.append(tally)
    try:
        yield tally
    finally:
        _open.tallies.pop()


def count(passes: int, examples: Any, *names: str) -> None:
    if _open.tallies:
        _open.tallies[-1].add("backward_passes", passes)
        for name in names:
            _open.tallies[-1].add(name, examples)


def shapes(function: Callable[..., Any], *args: Any) -> Any:
    """`jax.eval_shape`; what the function calls is not counted."""
    with counting(), carried.carrying(carried.held()):
        return jax.eval_shape(function, *args)


def no_calls() -> dict[str, jax.Array]:
    """Counters at zero, for a loop that carries them."""
    return Tally().running()


def add_calls(running: dict[str, jax.Array]) -> None:
    """Counts what a loop or a branch returned."""
    _add(dict.fromkeys(CALLS, 0), running)


def scan(body: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any) -> tuple[Any, Any]:
    """`lax.scan` whose body's calls are counted once for each iteration."""
    length = jax.tree.leaves(xs)[0].shape[0]
    known: dict[str, int] = {}

    def counted(carry: Any, x: Any) -> tuple[Any, Any]:
        inside, running, held = carry
        with counting() as tally, carried.carrying(held) as now:
            inside, out = body(inside, x)
        known.update(tally.known)
        running = {
            name: running[name] + tally.traced[name] if name in tally.traced else running[name] for name in CALLS
        }
        return (inside, running, now), out

    (final, running, held), outs = lax.scan(counted, (init, Tally().running(), carried.held()), xs)
    carried.put_all(held)
    _add({name: number * length for name, number in known.items()}, running)
    return final, outs


def repeat(times: jax.Array, body: Callable[[jax.Array, Any], Any], init: Any) -> Any:
    """`body(i, carry)` for i = 0 … times − 1, where only a run knows `times`; the calls of every turn are counted."""

    def counted(i: jax.Array, carry: Any) -> Any:
        inside, running, held = carry
        with counting() as tally, carried.carrying(held) as now:
            inside = body(i, inside)
        return inside, jax.tree.map(jnp.add, running, tally.everything()), now

    start = (init, no_calls(), carried.held())
    final, running, held = lax.fori_loop(jnp.int32(0), times.astype(jnp.int32), counted, start)
    add_calls(running)
    carried.put_all(held)
    return final


def cond(condition: jax.Array, chosen: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`lax.cond` whose calls are those of the side that was taken."""

    def counted(side: Callable[..., Any]) -> Callable[..., Any]:
        def run(held: carried.Held, *operands: Any) -> Any:
            with counting() as tally, carried.carrying(held) as now:
                out = side(*operands)
            return out, tally.everything(), now

        return run

    out, running, held = lax.cond(condition, counted(chosen), counted(otherwise), carried.held(), *operands)
    add_calls(running)
    carried.put_all(held)
    return out


def vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap` over the first axis of every argument, whose calls are counted once for each row.

    Every row begins with what is carried, and its changes end with it: an inner problem that starts anew has optimizers
    that start anew.
    """

    def mapped(*args: Any) -> Any:
        rows = jax.tree.leaves(args)[0].shape[0]
        known: dict[str, int] = {}

        def one(*row: Any) -> Any:
            with counting() as tally, carried.carrying(carried.held()):
                out = function(*row)
            known.update(tally.known)
            return out, tally.running()

        out, running = jax.vmap(one)(*args)
        # one batched program is one pass, however many rows it has
        passes = known.pop("backward_passes")
        _add(
            {name: number * rows for name, number in known.items()} | {"backward_passes": passes},
            {
                name: jnp.max(number) if name == "backward_passes" else jnp.sum(number)
                for name, number in running.items()
            },
        )
        return out

    return mapped


def _add(known: dict[str, int], running: dict[str, jax.Array]) -> None:
    if _open.tallies:
        for name in CALLS:
            _open.tallies[-1].add(name, known[name])
            _open.tallies[-1].add(name, running[name])


def _zero() -> jax.Array:
    return jnp.zeros((), jnp.uint32)
