"""How a run grows: with the number of examples, past memory, over devices, and with its checkpoints.

    python benchmarks/scale.py [--only rows devices streaming checkpoints orders] [--json FILE]

rows         microseconds a step for n from 10⁴ to 10⁹ (10¹² on request): resident bytes, one for each example, and a
streamed source that makes its rows up. devices      a step split over 1 to 8 virtual devices of one processor, against
the same step without a mesh. They share its cores: what is
             measured is the overhead of splitting, not a speed-up. And what each device sends in a step, from the
             compiled program.
streaming    memory-mapped files against the same rows on the device (`benchmarks/streaming.py`).
checkpoints  seconds of a save, and its share of a run (`benchmarks/checkpoint_cost.py`).
orders       milliseconds for a million examples on the host (`benchmarks/orders.py`).

Ratios are of medians of turns within one run, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import checkpoint_cost
import orders
import streaming
import wior
from workloads import linear_softmax, mlp

RATES = {"outer_lr": 1e-3, "inner_lr": 1e-2, "adjoint_lr": 1e-2}
TURNS = 5
RESIDENT, STREAMED = (10**4, 10**6, 10**8, 10**9), (10**4, 10**6, 10**9, 10**12)
DEVICES = (1, 2, 4, 8)
FEATURES, BATCH, STEPS = 64, 64, 4000


class MadeUp:
    """n rows that are nowhere: each is one of a few thousand."""

    def __init__(self, n: int):
        self.n = n
        self.table = np.random.default_rng(0).normal(size=(4096, FEATURES)).astype(np.float32)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        return self.table[numbers % len(self.table)]


def loss_of_rows(x: Any, y: Any, rows: Any) -> Any:
    return jnp.mean((rows @ y - rows[:, 0]) ** 2) + jnp.sum(jnp.exp(x) * y**2)


class LossOfBytes:
    """The same loss on a table that each byte points into: 10⁹ examples are a gigabyte."""

    def __init__(self, table: np.ndarray):
        self.table = jnp.asarray(table)

    def __call__(self, x: Any, y: Any, numbers: Any) -> Any:
        return loss_of_rows(x, y, self.table[numbers])


def microseconds(problem: Any, x0: Any, y0: Any, batch: Any, steps: int, **options: Any) -> float:
    result = wior.solve(
        problem, wior.WiORBO(**RATES), x0, y0, batch_size=batch, steps=steps, record_every=steps, **options
    )
    return 1e6 * float(result.history["seconds"][-1]) / steps


def in_turns(variants: dict[Any, Callable[[], float]], turns: int = TURNS) -> dict[Any, float]:
    """The median of every variant, all of them once in each turn; a first turn compiles."""
    times: dict[Any, list[float]] = {name: [] for name in variants}
    for turn in range(turns + 1):
        for name, variant in variants.items():
            spent = variant()
            if turn:
                times[name].append(spent)
    return {name: statistics.median(values) for name, values in times.items()}


def rows() -> list[dict[str, Any]]:
    table = np.random.default_rng(0).normal(size=(256, FEATURES)).astype(np.float32)
    of_bytes, outer = LossOfBytes(table), MadeUp(5000)[np.arange(5000)]
    start = (jnp.zeros(FEATURES), jnp.zeros(FEATURES))

    def resident(n: int) -> Callable[[], float]:
        numbers = np.arange(n, dtype=np.uint8)
        problem = wior.Bilevel(loss_of_rows, of_bytes, outer, numbers)
        return lambda: microseconds(problem, *start, BATCH, STEPS)

    def streamed(n: int) -> Callable[[], float]:
        problem = wior.Bilevel(loss_of_rows, loss_of_rows, outer, MadeUp(n))
        return lambda: microseconds(problem, *start, BATCH, STEPS)

    found = []
    for kind, make, sizes in (("resident", resident, RESIDENT), ("streamed", streamed, STREAMED)):
        times = in_turns({n: make(n) for n in sizes})
        found += [{"kind": kind, "n": n, "microseconds": spent, "ratio": spent / times[sizes[0]]} for n, spent in times.items()]  # fmt: skip
    return found


def devices() -> list[dict[str, Any]]:
    """In a process of its own: the number of virtual devices is fixed when jax starts."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={max(DEVICES)}"
    done = subprocess.run(
        [sys.executable, __file__, "--devices-here"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def devices_here() -> list[dict[str, Any]]:
    found = []
    for work, steps in ((linear_softmax(256), 400), (mlp(), 60)):
        arguments = (work.problem, work.x0, work.y0, work.batch, steps)
        meshes = {k: jax.sharding.Mesh(np.array(jax.devices()[:k]), ("batch",)) for k in DEVICES}
        variants: dict[Any, Callable[[], float]] = {0: lambda arguments=arguments: microseconds(*arguments)}
        for k, mesh in meshes.items():
            variants[k] = lambda mesh=mesh, arguments=arguments: microseconds(*arguments, mesh=mesh)
        times = in_turns(variants, 3)
        for k, spent in times.items():
            sent = 0
            if k:
                exchange = wior.communication(
                    work.problem, wior.WiORBO(**RATES), work.x0, work.y0, mesh=meshes[k], batch_size=work.batch
                )
                sent = exchange.bytes_a_step
            found.append({"workload": work.name, "devices": k, "microseconds": spent, "ratio": spent / times[0], "bytes_sent": sent})  # fmt: skip
    return found


def checkpoints() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return checkpoint_cost.measured([10**4, 10**6, 10**8], Path(folder))


def orders_table() -> list[dict[str, Any]]:
    return [
        {"order": type(order).__name__, "n": n, "milliseconds": orders.milliseconds(order, n)}
        for order in orders.ORDERS
        for n in orders.LENGTHS
    ]


def shown(name: str, found: Any) -> str:
    lines: list[str]
    if name == "rows":
        lines = ["| data | n | µs a step | against the smallest |", "| --- | --- | --- | --- |"]
        lines += [f"| {r['kind']} | {r['n']:.0e} | {r['microseconds']:.1f} | {r['ratio']:.2f} |" for r in found]
    elif name == "devices":
        lines = ["| workload | devices | µs a step | against no mesh | each sends |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {r['workload']} | {r['devices'] or 'no mesh'} | {r['microseconds']:.0f} | {r['ratio']:.2f} | "
            f"{r['bytes_sent'] / 1e3:,.0f} kB |"
            for r in found
        ]
    elif name == "streaming":
        return streaming.table(found)
    elif name == "checkpoints":
        return checkpoint_cost.shown(found)
    else:
        lines = ["| order | n | ms for a million examples |", "| --- | --- | --- |"]
        lines += [f"| {r['order']} | {r['n']:.0e} | {r['milliseconds']:.1f} |" for r in found]
    return "\n".join(lines)


PARTS: dict[str, Callable[[], Any]] = {
    "rows": rows,
    "devices": devices,
    "streaming": lambda: streaming.results([4e4, 4e5], TURNS),
    "checkpoints": checkpoints,
    "orders": orders_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--devices-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.devices_here:
        print(json.dumps(devices_here()))
        return
    found: dict[str, Any] = {"device": f"{jax.devices()[0].device_kind} ({platform.machine()})", "jax": jax.__version__}
    for name in options.only:
        found[name] = PARTS[name]()
        print(f"\n{name}\n\n{shown(name, found[name])}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
