"""Steps a second of `wior.solve` on data that stay in a memory-mapped file against the same data on the device.

Both are timed in turns within one run, and the ratio is of the medians, so that a busy machine slows both sides alike.
The files are written first and so lie in the disk's cache.

    python benchmarks/streaming.py [--json FILE] [--turns 7] [--rows 4e4 4e5]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import wior
from workloads import Workload, image_rows, mlp

RATES = {"outer_lr": 1e-3, "inner_lr": 1e-2, "adjoint_lr": 1e-2}
SECONDS_A_TURN = 2.0


def mapped(folder: Path, name: str, data: Any) -> Any:
    """The arrays of a tree as memory maps of files."""

    def one(path: Any, leaf: Any) -> np.ndarray:
        file = folder / f"{name}{jax.tree_util.keystr(path)}.npy"
        np.save(file, np.asarray(leaf))
        return np.load(file, mmap_mode="r")

    return jax.tree_util.tree_map_with_path(one, data)


def timed(work: Workload, problem: Any, steps: int) -> float:
    result = wior.solve(
        problem, wior.WiORBO(**RATES), work.x0, work.y0, batch_size=work.batch, steps=steps, record_every=steps
    )
    return float(result.history["seconds"][-1]) / steps


def measure(rows: int, turns: int) -> dict[str, Any]:
    work = mlp()
    outer, inner = work.problem.outer_data, image_rows(rows, 2)
    resident = wior.Bilevel(work.problem.outer, work.problem.inner, outer, inner)
    with tempfile.TemporaryDirectory() as folder:
        files = (mapped(Path(folder), "outer", outer), mapped(Path(folder), "inner", inner))
        streamed = {
            "both levels": wior.Bilevel(work.problem.outer, work.problem.inner, *files),
            "inner level": wior.Bilevel(work.problem.outer, work.problem.inner, outer, files[1]),
        }
        variants = {"resident": resident, **streamed}
        for problem in variants.values():
            timed(work, problem, 8)
        steps = max(40, int(SECONDS_A_TURN / timed(work, resident, 20)))
        for problem in variants.values():
            timed(work, problem, steps)
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(turns):
            for name, problem in variants.items():
                seconds[name].append(timed(work, problem, steps))
    speed = {name: 1 / statistics.median(values) for name, values in seconds.items()}
    return {
        "workload": work.name, "rows": rows, "steps": steps, "steps_a_second": speed,
        "ratio": {name: speed[name] / speed["resident"] for name in streamed},
        "file_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(inner)),
    }  # fmt: skip


def table(results: dict[str, Any]) -> str:
    lines = [
        f"{results['device']}, jax {results['jax']}. Steps a second; ratios are of medians within one run.", "",
        "| workload | inner rows | file | resident | inner level streamed | ratio | both streamed | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in results["streaming"]:
        speed, ratio = row["steps_a_second"], row["ratio"]
        lines.append(
            f"| {row['workload']} | {row['rows']:,} | {row['file_bytes'] / 1e6:,.0f} MB | {speed['resident']:.1f} "
            f"| {speed['inner level']:.1f} | {ratio['inner level']:.2f} | {speed['both levels']:.1f} | "
            f"{ratio['both levels']:.2f} |"
        )
    return "\n".join(lines)


def results(sizes: list[float], turns: int) -> dict[str, Any]:
    return {
        "device": f"{jax.devices()[0].device_kind} ({platform.machine()})",
        "jax": jax.__version__,
        "streaming": [measure(int(rows), turns) for rows in sizes],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rows", type=float, nargs="*", default=[4e4, 4e5])
    arguments = parser.parse_args()
    found = results(arguments.rows, arguments.turns)
    print(table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
