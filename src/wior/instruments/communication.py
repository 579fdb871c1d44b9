"""What a step sends between devices, read from the compiled program.

The collectives of one step are listed with their sizes, and each is charged what its ring algorithm sends from every
device: for k devices and an array of b bytes, 2 (k − 1)/k · b to sum it everywhere (all-reduce), (k − 1)/k · b to
gather it or to leave each device its share of a sum, b to pass it on.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from wior.algorithms.algorithm import Algorithm
from wior.devices.layout import Layout, as_layout
from wior.orders import RandomReshuffling
from wior.problems import Problem
from wior.running import block
from wior.running.arguments import Arguments, Orders
from wior.running.draws import any_draws
from wior.running.plan import stream_keys
from wior.running.setup import prepare, run_key

Tree = Any

BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}  # others end in their number
SENT = {
    "all-reduce": lambda k: 2 * (k - 1) / k,
    "all-gather": lambda k: (k - 1) / k,
    "reduce-scatter": lambda k: float(k - 1),  # of what each device is left with
    "all-to-all": lambda k: (k - 1) / k,
    "collective-permute": lambda k: 1.0,
    "collective-broadcast": lambda k: 1.0,
}
COLLECTIVE = re.compile(rf"= (\(.*?\)|\S+) ({'|'.join(SENT)})(?:-start)?\(")
ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")


class Collective(NamedTuple):
    """One exchange between devices.

    Attributes
    ----------
    kind
        What XLA calls it, for example "all-reduce".
    result_bytes
        The bytes of its result on each device.
    devices
        How many devices take part.
    times
        How often it happens in one step.
    """

    kind: str
    result_bytes: int
    devices: int
    times: int

    @property
    def sent(self) -> float:
        """The bytes that each device sends for it in one step."""
        return SENT[self.kind](self.devices) * self.result_bytes * self.times


@dataclasses.dataclass(frozen=True)
class Communication:
    """The exchanges of one step between devices.

    Parameters
    ----------
    collectives : tuple of Collective
        Each with its kind, the bytes of its result, the devices that take part, and how often it happens.

    Examples
    --------
    >>> import wior
    >>> from wior.instruments.communication import Collective
    >>> wior.Communication((Collective("all-reduce", result_bytes=4000, devices=4, times=1),)).bytes_a_step
    6000
    """

    collectives: tuple[Collective, ...]

    @property
    def bytes_a_step(self) -> int:
        """The bytes that each device sends in one step."""
        return round(sum(one.sent for one in self.collectives))

    @property
    def largest(self) -> int:
        """The bytes of the largest array that is exchanged at once."""
        return max((one.result_bytes for one in self.collectives), default=0)


def communication(
    problem: Problem,
    algorithm: Algorithm,
    x0: Tree,
    y0: Tree,
    *,
    mesh: Mesh | Layout,
    order: Orders = RandomReshuffling(),
    batch_size: int | tuple[int, int] = 64,
) -> Communication:
    """What a step of `wior.solve` sends between devices. It compiles one step and runs none.

    Parameters
    ----------
    problem, algorithm, x0, y0
        As given to `wior.solve`.
    mesh : jax.sharding.Mesh or Layout
        The devices, and how the run is split between them.
    order
        An order, its name, or a pair (outer, inner), as given to `wior.solve`.
    batch_size
        The rows of a batch, or a pair (outer, inner), as given to `wior.solve`.

    Returns
    -------
    Communication
        Every exchange of a step, and `bytes_a_step`, what each device sends.

    Examples
    --------
    One device has nothing to send:

    >>> import jax
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> outer = lambda x, y, batch: jnp.mean((y - batch) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    >>> problem = wior.Bilevel(outer, inner, np.arange(1.0, 9.0), np.arange(8.0))
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> start = jnp.zeros(())
    >>> wior.communication(problem, wior.WiORBO(0.1, 0.1, 0.1), start, start, mesh=mesh, batch_size=4).bytes_a_step
    0
    """
    layout = as_layout(mesh)
    if layout is None:
        raise TypeError("mesh must be a jax.sharding.Mesh or a wior.Layout, got None")
    problem, x0, y0 = layout.received(problem, x0, y0)
    alone = prepare(problem, algorithm, x0, y0, Arguments(order, batch_size, steps=1))
    setup = alone.on(layout, {}, None)
    return of_program(one_step(setup).as_text(), layout.mesh.devices.size)


def one_step(setup: Any) -> Any:
    """One step as a compiled program."""
    plan, layout = setup.plan, setup.plan.layout
    keys = plan.placed(stream_keys(plan, run_key(0)))
    carry = block.begin(plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
    draws = plan.placed(any_draws(plan, setup.problem, setup.algorithm))

    def step(problem: Any, algorithm: Any, carry: Any, draws: Any) -> Any:
        state, seen = algorithm.step(problem, carry.state, draws)
        shown = seen if any(s.adaptive for s in plan.streams) else None
        return layout.kept(carry._replace(state=state)), shown

    return jax.jit(step, donate_argnums=2).lower(setup.problem, setup.algorithm, carry, draws).compile()


def of_program(text: str, devices: int) -> Communication:
    """The collectives of a compiled program, those in loops as often as the loops turn."""
    bodies = _computations(text)
    times = dict.fromkeys(bodies, 0)

    def visit(name: str, turns: int) -> None:
        times[name] += turns
        for line in bodies[name]:
            within = turns * (_turns(line) if re.search(r"\bwhile\(", line) else 1)
            for callee in _called(line):
                if callee in bodies:
                    visit(callee, within)

    entry = next(name for name in bodies if re.search(rf"^ENTRY %?{re.escape(name)}\b", text, re.M))
    visit(entry, 1)
    found = []
    for name, lines in bodies.items():
        for line in lines:
            match = COLLECTIVE.search(line)
            if match and times[name]:
                result, kind = match.groups()
                found.append(Collective(kind, _bytes(result), _group_size(line, devices), times[name]))
    return Communication(tuple(found))


def _computations(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            lines = found.setdefault(head.group(1), [])
        elif line.startswith("  "):
            lines.append(line)
    return found


def _called(line: str) -> list[str]:
    names = re.findall(r"(?:to_apply|body|condition|calls|true_computation|false_computation)=%?([\w.\-]+)", line)
    for group in re.findall(r"branch_computations=\{([^}]*)\}", line):
        names += [name.strip().lstrip("%") for name in group.split(",")]
    return names


def _turns(line: str) -> int:
    """How often a loop turns; once where only the running program knows."""
    known = re.search(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)', line)
    return int(known.group(1)) if known else 1


def _bytes(result: str) -> int:
    total = 0
    for kind, lengths in ARRAY.findall(result):
        bits = BITS.get(kind) or int(re.sub(r"\D", "", kind) or 8)
        size = 1
        for length in filter(None, lengths.split(",")):
            size *= int(length)
        total += size * bits // 8
    return total


def _group_size(line: str, devices: int) -> int:
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed:
        return len(listed.group(1).split(","))
    counted = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if counted:
        return int(counted.group(2))
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line)
    if named:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named.group(1)))
        size = 1
        for axis in re.findall(r"'(\w+)'", named.group(2)):
            size *= int(sizes[axis])
        return size
    return devices
