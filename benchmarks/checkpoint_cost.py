"""What checkpoints cost: the seconds for which a save stops a run, and the share of a run at the default interval.

    python benchmarks/checkpoint_cost.py [--floats 1e4 1e6 1e8] [--folder FOLDER] [--json FILE]

A save is measured by itself, on a state of so many float32 numbers from a device, fetched, checksummed and written. A
whole run is measured too, on the first of the states, told to save as often as it may.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wior
from wior.running.loop import SHARE_OF_SAVES
from wior.saving.checkpoint import Checkpoint, Saved, Store, checksum

SAVES = 5


def state_of(floats: int) -> list[jax.Array]:
    """Random numbers, which no compression makes smaller, in three leaves like x, y and u."""
    sizes = (floats - 2 * (floats // 3), floats // 3, floats // 3)
    return [jax.random.normal(jax.random.key(i), (size,)) for i, size in enumerate(sizes)]


def save_cost(floats: int, folder: Path, saves: int = SAVES) -> dict[str, float]:
    """Medians of the seconds of a save, of the checksums in it and of a load, and what follows for the share of a run."""
    state = jax.block_until_ready(state_of(floats))
    history = {"step": np.arange(100), "seconds": np.linspace(0, 1, 100)}
    store = Store(Checkpoint(folder / "run"), {"seed": 0})
    saving, summing = [], []
    try:
        for step in range(saves + 1):
            begun = time.perf_counter()
            leaves = [np.asarray(leaf + step) for leaf in state]  # a new array, or jax would hand out the copy it kept
            store.save(Saved(step, leaves, history, {"seconds": 0.0}))
            saving.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            for leaf in leaves:
                checksum(leaf)
            summing.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        found = store.load(leaves)
        loading = time.perf_counter() - begun
        assert found is not None
        assert found.step == saves
    finally:
        store.close()
        shutil.rmtree(folder / "run", ignore_errors=True)
    save = statistics.median(saving[1:])  # the first one starts orbax's threads
    interval = max(Checkpoint(folder).every_seconds, save / SHARE_OF_SAVES)
    return {
        "floats": floats,
        "megabytes": 4 * floats / 1e6,
        "save_seconds": save,
        "slowest_save_seconds": max(saving[1:]),
        "checksum_seconds": statistics.median(summing[1:]),
        "load_seconds": loading,
        "interval_seconds": interval,
        "share": save / interval,
    }


def run_cost(floats: int, folder: Path, seconds: float, every_seconds: float) -> dict[str, float]:
    """A run of that many seconds in steps that saves itself by the clock: its saves, and their share of the time."""
    times: list[float] = []
    save = Store.save

    def timed(store: Store, saved: Saved) -> None:
        begun = time.perf_counter()
        save(store, saved)
        times.append(time.perf_counter() - begun)

    size = floats // 3
    rows = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    problem = wior.Bilevel(
        lambda x, y, batch: jnp.mean((batch @ y[:8] - 1) ** 2) + jnp.mean(y**2),
        lambda x, y, batch: jnp.mean((batch @ y[:8] - x[0]) ** 2) + jnp.mean((y - x) ** 2),
        rows,
        rows,
    )
    Store.save = timed  # type: ignore[method-assign]
    begun = time.perf_counter()
    try:
        result = wior.solve(
            problem,
            wior.WiORBO(1e-3, 1e-3, 1e-3),
            jnp.zeros(size),
            jnp.zeros(size),
            batch_size=8,
            steps=10**9,
            seconds=seconds,
            record_every=10**9,
            checkpoint=Checkpoint(folder / "run", every_seconds=every_seconds, at_end=False),
        )
        whole = time.perf_counter() - begun - result.compile_seconds
    finally:
        Store.save = save  # type: ignore[method-assign]
        shutil.rmtree(folder / "run", ignore_errors=True)
    return {
        "floats": floats,
        "run_seconds": whole,
        "every_seconds": every_seconds,
        "saves": len(times),
        "saving_seconds": sum(times),
        "share": sum(times) / whole,
    }


def table(costs: Sequence[dict[str, float]]) -> str:
    lines = [
        "| numbers | MB | a save | the slowest | of it checksums | a load | next save after | share of the run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {cost['floats']:.0e} | {cost['megabytes']:.2f} | {cost['save_seconds']:.3f} s | "
        f"{cost['slowest_save_seconds']:.3f} s | "
        f"{cost['checksum_seconds']:.4f} s | {cost['load_seconds']:.3f} s | {cost['interval_seconds']:.0f} s | "
        f"{cost['share']:.2%} |"
        for cost in costs
    ]
    return "\n".join(lines)


def measured(floats: Sequence[int], folder: Path, seconds: float = 30.0) -> dict[str, Any]:
    """Everything that the command prints."""
    saves = [save_cost(size, folder) for size in floats]
    return {"saves": saves, "run": run_cost(floats[0], folder, seconds, every_seconds=0.1), "most": SHARE_OF_SAVES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--floats", nargs="+", type=float, default=[1e4, 1e6, 1e8])
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a temporary one if not given")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the run")
    parser.add_argument("--json", type=Path, dest="file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measured([int(size) for size in options.floats], Path(folder), options.seconds)
    print(shown(found))
    if options.file is not None:
        options.file.write_text(json.dumps(found, indent=2) + "\n")


def shown(found: dict[str, Any]) -> str:
    run = found["run"]
    return (
        f"{table(found['saves'])}\n\nA run of {run['run_seconds']:.0f} s on {run['floats']:.0e} numbers, told to save "
        f"every {run['every_seconds']} s, made {run['saves']} saves, "
        f"which took {run['share']:.2%} of its time; the most by the clock is {found['most']:.0%}."
    )


if __name__ == "__main__":
    main()
