"""Microseconds a step of `wior.solve` against the same mathematics written by hand as one `lax.scan`.

The hand-written scan runs over indices that were made beforehand; `solve` makes its own. All variants of a workload are
timed in turns within one run, and the ratio is of the medians, so that a busy machine slows both sides alike.

    python benchmarks/steps.py [--json FILE] [--turns 7] [--rows 4e4 4e7]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import wior
from wior.running.plan import make_plan
from wior.running.step_fingerprint import as_now
from workloads import Workload, cleaning, linear_softmax, logistic, mlp

RATES = {"outer_lr": 1e-3, "inner_lr": 1e-2, "adjoint_lr": 1e-2}
SECONDS_A_TURN = 0.8


def hand_written(work: Workload, steps: int) -> Any:
    """The three updates as anybody would write them for this problem alone."""
    outer, inner = work.problem.outer, work.problem.inner
    eta, gamma, rho = RATES.values()

    @jax.jit
    def run(state: Any, indices: Any, outer_data: Any, inner_data: Any) -> Any:
        def step(state: Any, index: Any) -> Any:
            x, y, u = state
            xi = jax.tree.map(lambda a: a[index[0]], outer_data)
            zeta = jax.tree.map(lambda a: a[index[1]], inner_data)
            f_x, f_y = jax.grad(outer, (0, 1))(x, y, xi)
            g_y, pullback = jax.vjp(lambda x, y: jax.grad(inner, 1)(x, y, zeta), x, y)
            g_xy_u, g_yy_u = pullback(u)
            x = jax.tree.map(lambda v, a, b: v - eta * (a - b), x, f_x, g_xy_u)
            new_y = jax.tree.map(lambda v, a: v - gamma * a, y, g_y)
            u = jax.tree.map(lambda v, a, b: v - rho * (a - b), u, g_yy_u, f_y)
            return (x, new_y, u), None

        return lax.scan(step, state, indices)[0]

    rng = np.random.default_rng(0)
    sizes = work.problem.sizes()
    indices = [jnp.asarray(rng.integers(0, sizes[s], (steps, work.batch)), jnp.int32) for s in ("outer", "inner")]
    state = (work.x0, work.y0, jax.tree.map(jnp.zeros_like, work.y0))
    arguments = (state, tuple(indices), work.problem.outer_data, work.problem.inner_data)
    jax.block_until_ready(run(*arguments))

    def once() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        return (time.perf_counter() - begun) / steps

    return once


def solved(work: Workload, order: wior.orders.Order, steps: int) -> tuple[Any, float]:
    """A function that runs `solve` once and gives its seconds a step; and the seconds of the very first call."""
    algorithm = wior.WiORBO(**RATES)

    def once() -> float:
        result = wior.solve(
            work.problem,
            algorithm,
            work.x0,
            work.y0,
            order=order,
            batch_size=work.batch,
            steps=steps,
            record_every=steps,
        )
        return float(result.history["seconds"][-1]) / steps

    begun = time.perf_counter()
    once()
    whole = time.perf_counter() - begun
    return once, whole - once() * steps


def repeated(work: Workload, turns: int) -> dict[str, float]:
    """Milliseconds of a call of `solve` for one step that compiles nothing, and of its check that no function has
    changed.
    """
    algorithm, orders = wior.WiORBO(**RATES), (wior.orders.RandomReshuffling(),) * 2
    batches = (work.batch, work.batch)
    plan = make_plan(work.problem, algorithm, orders, batches, 1)

    def call() -> None:
        wior.solve(work.problem, algorithm, work.x0, work.y0, batch_size=work.batch, steps=1, record_every=1)

    def check() -> None:
        as_now(plan, work.problem, algorithm, work.x0, work.y0, batches)

    found = {}
    for name, work_of in (("call_ms", call), ("check_ms", check)):
        work_of()
        seconds = []
        for _ in range(turns):
            begun = time.perf_counter()
            work_of()
            seconds.append(time.perf_counter() - begun)
        found[name] = 1e3 * statistics.median(seconds)
    return found


def measure(work: Workload, turns: int) -> dict[str, Any]:
    trial = hand_written(work, 50)
    trial()
    steps = int(min(max(SECONDS_A_TURN / trial(), 50), 60_000))
    variants = {"by hand": hand_written(work, steps)}
    first = {}
    for name, order in (("reshuffling", wior.orders.RandomReshuffling()), ("herding", wior.orders.Herding())):
        variants[name], first[name] = solved(work, order, steps)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(turns):
        for name, once in variants.items():
            times[name].append(once())
    micro = {name: 1e6 * statistics.median(values) for name, values in times.items()}
    return {
        "workload": work.name, "steps": steps, "microseconds": micro,
        "ratio": {name: micro[name] / micro["by hand"] for name in ("reshuffling", "herding")},
        "first_call_seconds": first["reshuffling"], "repeated": repeated(work, turns),
    }  # fmt: skip


def measure_cleaning(sizes: list[int], turns: int) -> list[dict[str, Any]]:
    """Time a step and peak memory against the number of rows, one weight a row."""
    rows, steps = [], 5_000
    for n in sorted(sizes):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        work = cleaning(n)
        once, _ = solved(work, wior.orders.RandomReshuffling(), steps)
        micro = 1e6 * statistics.median(once() for _ in range(turns))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        data = sum(leaf.nbytes for leaf in jax.tree.leaves((work.problem, work.x0)))
        rows.append({"n": n, "microseconds": micro, "data_bytes": data, "peak_growth_bytes": peak - before})
        del work, once
    return rows


def measure_sweep(runs: int = 40) -> dict[str, Any]:
    """Forty runs under `sweep` against one run, forty times."""
    work, steps = mlp(), 300 if jax.default_backend() == "gpu" else 8
    algorithm, options = wior.WiORBO(**RATES), {"batch_size": work.batch, "steps": steps, "record_every": steps}
    grid = {"outer_lr": list(np.geomspace(1e-4, 1e-2, 8))}

    def together() -> float:
        return float(
            wior.sweep(work.problem, algorithm, work.x0, work.y0, grid=grid, seeds=runs // 8, **options).history[
                "seconds"
            ][-1]
        )

    def alone() -> float:
        return float(wior.solve(work.problem, algorithm, work.x0, work.y0, **options).history["seconds"][-1])

    together(), alone()
    one, all_of_them = statistics.median(alone() for _ in range(5)), statistics.median(together() for _ in range(3))
    return {
        "runs": runs, "steps": steps, "one_run_us": 1e6 * one / steps, "together_us_a_run": 1e6 * all_of_them / steps / runs,
        "ratio_to_single_runs": all_of_them / (one * runs),
    }  # fmt: skip


def table(results: dict[str, Any]) -> str:
    lines = [
        f"{results['device']}, jax {results['jax']}. Microseconds a step; ratios are of medians within one run.", "",
        "| workload | by hand | random reshuffling | ratio | herding | ratio | first call | repeated call | its check "
        "of the functions |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in results["steps"]:
        micro, ratio = row["microseconds"], row["ratio"]
        lines.append(
            f"| {row['workload']} | {micro['by hand']:.1f} | {micro['reshuffling']:.1f} | {ratio['reshuffling']:.2f} "
            f"| {micro['herding']:.1f} | {ratio['herding']:.2f} | {row['first_call_seconds']:.1f} s "
            f"| {row['repeated']['call_ms']:.0f} ms | {row['repeated']['check_ms']:.0f} ms |"
        )
    if results["cleaning"]:
        lines += [
            "",
            "| rows with a weight each | µs a step | data | peak memory above the start |",
            "| --- | --- | --- | --- |",
        ]
        for row in results["cleaning"]:
            lines.append(
                f"| {row['n']:,} | {row['microseconds']:.1f} | {row['data_bytes'] / 1e6:,.0f} MB | "
                f"{row['peak_growth_bytes'] / 1e6:,.0f} MB |"
            )
    sweep = results["sweep"]
    lines += ["", f"{sweep['runs']} MLP runs under `sweep`: {sweep['together_us_a_run']:.1f} µs a step and run, against "
              f"{sweep['one_run_us']:.1f} µs alone: {sweep['ratio_to_single_runs']:.2f} of the time of single runs."]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rows", type=float, nargs="*", default=[4e4, 4e7])
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    works = [logistic(), linear_softmax(64), linear_softmax(256), mlp()]
    results = {
        "device": f"{jax.devices()[0].device_kind} ({platform.machine()})",
        "jax": jax.__version__,
        "steps": [measure(work, arguments.turns) for work in works if arguments.only in work.name],
        "cleaning": measure_cleaning([int(n) for n in arguments.rows], arguments.turns),
        "sweep": measure_sweep(),
    }
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
