"""Microseconds and oracle calls a step for every method on the linear-softmax workload, in one run.

All bilevel methods take batches of the same size in the same order. They are timed in turns, beside the single-loop
step written by hand as one `lax.scan`, and ratios are of medians. A step of one method does more than a step of
another: the column of backward passes says how much more. Memory is what the compiled block needs beside its arguments,
at few and at many inner steps. Methods for the other classes run on softmax regressions of the same size, restated for
their class, and are compared with the paper's own method there.

    python benchmarks/methods.py [--json FILE] [--turns 5] [--batch 250] [--seconds 0.4] [--only METHOD ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import wior
from steps import RATES, hand_written
from wior import baselines, oracle
from wior.instruments.methods import classes
from wior.running import block
from wior.running.arguments import Arguments
from wior.running.plan import start_at, stream_keys
from wior.running.setup import prepare, run_key
from workloads import (
    Workload,
    compositional_softmax,
    conditional_compositional_softmax,
    conditional_softmax,
    linear_softmax,
    minimax_softmax,
)

FEW, MANY = 4, 64
NEVER = 10**9  # a record later than any end: the block keeps its own length, and every run is the same program
FURTHER_RATES = {"neumann_lr": 1e-2, "penalized_lr": 1e-2}
LIMIT = 1.1  # of WiORBO and SOBA against the hand-written scan


def methods_for(problem: Any) -> dict[str, wior.algorithms.Algorithm]:
    """Every method for problems of this class, with the same step sizes and its own defaults otherwise."""
    rates = RATES | FURTHER_RATES
    found = {}
    for kind in classes():
        if kind.solves is type(problem):
            names = {field.name for field in dataclasses.fields(kind)}
            found[kind.__name__] = kind(**{rate: value for rate, value in rates.items() if rate in names})
    return found


def run(work: Workload, algorithm: Any, steps: int) -> Any:
    return wior.solve(work.problem, algorithm, work.x0, work.y0, batch_size=work.batch, steps=steps, record_every=NEVER)


def measure(work: Workload, turns: int, seconds: float, only: list[str] | None) -> dict[str, Any]:
    methods = {name: method for name, method in methods_for(work.problem).items() if not only or name in only}
    steps, first, programs = {}, {}, {}
    for name, algorithm in methods.items():
        begun = time.perf_counter()
        run(work, algorithm, 16)
        first[name] = time.perf_counter() - begun
        before = block.one_run._cache_size()
        trial = float(run(work, algorithm, 48).history["seconds"][-1]) / 48
        steps[name] = int(min(max(seconds / trial, 64), 60_000))
        programs[name] = block.one_run._cache_size() - before
    bilevel = isinstance(work.problem, wior.Bilevel)
    reference = "by hand" if bilevel else next(iter(methods))
    times: dict[str, list[float]] = {name: [] for name in (reference, *methods)}
    if bilevel:
        trial = hand_written(work, 50)
        trial()
        by_hand = hand_written(work, int(min(max(seconds / trial(), 64), 60_000)))
    calls = {}
    before = block.one_run._cache_size()
    for _ in range(turns):
        if bilevel:
            times["by hand"].append(by_hand())
        for name, algorithm in methods.items():
            history = run(work, algorithm, steps[name]).history
            times[name].append(float(history["seconds"][-1]) / steps[name])
            calls[name] = {call: float(history[call][-1]) / steps[name] for call in oracle.CALLS}
    compiled_later = block.one_run._cache_size() - before
    micro = {name: 1e6 * statistics.median(values) for name, values in times.items()}
    rows = [
        {
            "method": name,
            "microseconds": micro[name],
            "ratio": micro[name] / micro[reference],
            "first_call_seconds": first[name],
            "steps": steps[name],
            "calls": calls[name],
            "memory_bytes": memory(work, methods[name]),
        }
        for name in methods
    ]
    return {
        "workload": work.name,
        "batch": work.batch,
        "reference": reference,
        "reference_microseconds": micro[reference],
        "rows": rows,
        "compiled_after_the_first_block": compiled_later + sum(programs.values()),
    }


def memory(work: Workload, algorithm: Any) -> dict[str, int]:
    """Bytes that the compiled block needs beside its arguments, at its own number of inner steps or at few and many."""
    if not any(field.name == "inner_steps" for field in dataclasses.fields(algorithm)):
        return {"own": _temporary(work, algorithm)}
    at = {str(k): _temporary(work, dataclasses.replace(algorithm, inner_steps=k)) for k in (FEW, MANY)}
    if isinstance(algorithm, baselines.Reverse):
        few = dataclasses.replace(algorithm, checkpoints=4)
        at |= {f"{k}, checkpointed": _temporary(work, dataclasses.replace(few, inner_steps=k)) for k in (FEW, MANY)}
    return at


def _temporary(work: Workload, algorithm: Any) -> int:
    orders = wior.orders.RandomReshuffling()
    given = Arguments(orders, work.batch, steps=NEVER, record_every=NEVER)
    setup = prepare(work.problem, algorithm, work.x0, work.y0, given)
    keys = stream_keys(setup.plan, run_key(0))
    carry = block.begin(setup.plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
    arguments = (setup.problem, setup.algorithm, carry, keys, start_at(setup.plan, 0), np.int32(1))
    return int(block.one_run.lower(setup.plan, *arguments).compile().memory_analysis().temp_size_in_bytes)


def table(results: dict[str, Any]) -> str:
    """The rows of one workload; calls in inner batches, and for conditional problems for one outer example."""
    reference = results["reference"]
    per = results["batch"] if isinstance(results["batch"], int) else results["batch"][0] * results["batch"][1]
    lines = [
        f"**{results['workload']}**, random reshuffling; {reference}: {results['reference_microseconds']:.0f} µs a "
        "step.", "",
        f"| method | µs a step | to {reference} | µs a pass | passes | Gc(f) | Gc(g) | JV | HV | first call | memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in sorted(results["rows"], key=lambda row: row["microseconds"]):
        calls = row["calls"]
        outer = per if isinstance(results["batch"], int) else results["batch"][0]
        counted = " | ".join(
            f"{calls[name] / (outer if name == 'outer_gradients' else per):.1f}" for name in oracle.CALLS[:-1]
        )
        at = row["memory_bytes"]
        memory = f"{at['own'] / 1e6:.1f} MB" if "own" in at else " → ".join(f"{at[str(k)] / 1e6:.1f}" for k in (FEW, MANY)) + " MB"  # fmt: skip
        if f"{FEW}, checkpointed" in at:
            memory += ", checkpointed " + " → ".join(f"{at[f'{k}, checkpointed'] / 1e6:.1f}" for k in (FEW, MANY))
        lines.append(
            f"| {row['method']} | {row['microseconds']:.0f} | {row['ratio']:.2f} "
            f"| {row['microseconds'] / calls['backward_passes']:.0f} | {calls['backward_passes']:.1f} | {counted} "
            f"| {row['first_call_seconds']:.1f} s | {memory} |"
        )
    return "\n".join(lines)


def verdicts(measured: list[dict[str, Any]]) -> str:
    ratios = {row["method"]: row["ratio"] for results in measured for row in results["rows"]}
    held = {name: ratios[name] <= LIMIT for name in ("WiORBO", "SOBA") if name in ratios}
    within = ", ".join(f"{name} {'yes' if held[name] else 'no'}" for name in held) or "not measured"
    later = sum(results["compiled_after_the_first_block"] for results in measured)
    return "\n".join(
        [
            f"Calls are in batches. Memory is that of the compiled block, at {FEW} → {MANY} inner steps where there "
            "are any.",
            f"Programs compiled after a method's first block: {later}.",
            f"Within {LIMIT} of the hand-written scan: {within}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batch", type=int, default=250, help="must divide 5000 and 40000, for SABA")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one method in one turn")
    parser.add_argument("--only", nargs="*", help="names of methods")
    arguments = parser.parse_args()
    print(f"{jax.devices()[0].device_kind} ({platform.machine()}), jax {jax.__version__}", flush=True)
    works = [
        linear_softmax(arguments.batch),
        conditional_softmax(),
        compositional_softmax(arguments.batch),
        conditional_compositional_softmax(),
        minimax_softmax(arguments.batch),
    ]
    measured = []
    for work in works:
        if arguments.only and not set(arguments.only) & set(methods_for(work.problem)):
            continue
        measured.append(measure(work, arguments.turns, arguments.seconds, arguments.only))
        print(f"\n{table(measured[-1])}", flush=True)
    print(f"\n{verdicts(measured)}")
    if arguments.json:
        results = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "measured": measured}
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
