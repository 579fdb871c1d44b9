"""One of two processes of a run, two virtual devices each, for `test_hosts.py`: `on_two_hosts.py process port what
folder`.

Prints JSON lines: what the process found, or the error it ended with.
"""

import json
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.sharding import Mesh

import on_eight_devices as eight
import wior
from wior.devices import hosts

STEPS = 30


def layout():
    return wior.Layout(Mesh(np.array(jax.devices()), ("batch",)), rows="batch")


def run(**options):
    return eight.run(layout(), **{"steps": STEPS} | options)


def values(tree):
    """Every array in full: one that is split between the processes is put together."""
    return [
        np.concatenate(list(wior.devices.layout.in_pieces(leaf))).tolist()
        for leaf in jax.tree.leaves(tree)
        if leaf.ndim
    ]


class Told(wior.loggers.Logger):
    def __init__(self, told):
        self.told = told

    def record(self, record):
        self.told.append(record)


def say(**found):
    print(json.dumps(found), flush=True)


def whole_run(folder):
    """A run with saves, one that goes on from them, and what both came to; the seconds are everybody's."""
    first = run(steps=14, checkpoint=folder / "run")
    told = []
    parts = eight.continued(run(steps=13, callback=told.append, loggers=[Told(told)]).state, layout(), STEPS - 13)
    resumed = run(checkpoint=folder / "run")
    say(
        x=values(resumed.x), u=values(resumed.state.u), again=values(run().x), steps=first.steps,
        parts=values(parts.x), told=len(told),
        seconds=resumed.history["seconds"].tolist(), size=resumed.history["size"].tolist(),
        shares=[shard.data.shape for shard in resumed.x["r"].rows.addressable_shards],
    )  # fmt: skip


def disagreements(folder):
    """Each process its own seed, step size or data: an error in both, before a step is made."""
    own = jax.process_index()
    other = wior.WiORBO(0.05 + 0.01 * own, 0.02, 0.02)
    problem, x0, y0 = eight.cleaning()
    changed = wior.Bilevel(eight.outer, eight.inner, eight.rows(eight.M, own), eight.rows(eight.N, 1))
    shorter = {**x0, "d": x0["d"][: 8 - own]}
    options = {"batch_size": (8, 16), "steps": 3, "mesh": layout()}
    for name, call in {
        "seed": lambda: run(seed=own),
        "algorithm": lambda: run(algorithm=other),
        "data": lambda: wior.solve(changed, eight.WIOR_BO, x0, y0, **options),
        "shapes of x0": lambda: wior.solve(problem, eight.WIOR_BO, shorter, y0, **options),
        "length and records": lambda: run(steps=3 + own),
    }.items():
        try:
            call()
            say(**{name: "ran"})
        except ValueError as error:
            say(**{name: str(error)})


def by_the_clock(folder):
    """A run that a time limit ends stops everywhere after the same step."""
    done = run(steps=10**9, seconds=0.3, record_every=10**6)
    say(steps=done.steps, stopped_by=done.stopped_by)


def killed(folder):
    """Process 1 is killed in the middle of a run that saves itself."""

    def report(step, latest):
        say(step=step)

    checkpoint = wior.Checkpoint(folder / "run", every_steps=7)
    if jax.process_index() == 1:
        kill_at(14)
    run(steps=10**9, record_every=7, checkpoint=checkpoint, progress=report)


def kill_at(step, how=signal.SIGKILL):
    save = wior.saving.checkpoint.Store.save

    def saving(store, saved):
        save(store, saved)
        if saved.step >= step:
            os.kill(os.getpid(), how)

    wior.saving.checkpoint.Store.save = saving


def after_the_kill(folder):
    resumed = run(steps=21, record_every=7, checkpoint=wior.Checkpoint(folder / "run", every_steps=7))
    say(x=values(resumed.x), whole=values(run(steps=21, record_every=7).x), seconds=resumed.history["seconds"].tolist())


def frozen(folder, who=1):
    """One process stops in the middle of a run without ending: no connection breaks, and nobody hears of it."""
    if jax.process_index() == who:
        kill_at(7, signal.SIGSTOP)
    run(steps=10**9, record_every=7, checkpoint=wior.Checkpoint(folder / "run", every_steps=7))


def frozen_first(folder):
    """The process that keeps the store in which the others look."""
    frozen(folder, who=0)


def failing(folder):
    """Process 1 ends with an error of its own."""
    if jax.process_index() == 1:
        raise RuntimeError("of its own")
    run(steps=10**9)


if __name__ == "__main__":
    process, port, what, folder = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    hosts.join(f"127.0.0.1:{port}", 2, int(process))
    for one in what.split(","):
        globals()[one](Path(folder))
