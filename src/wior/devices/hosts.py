"""Many processes in one run: they join, agree before a step is made, decide alike, and end when one of them is lost.

Every process runs the same program on the same arguments, and jax joins them. What depends on a clock would differ
between them, so all use the clock of process 0. Process 0 alone prints and writes reports; checkpoints are written by
all.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

SECONDS_TO_MISS = 30.0  # a process that was not heard of for so long is lost
SECONDS_TO_ABORT = 50  # after which jax ends this process itself, should we not have
SECONDS_BETWEEN_SIGNS = 2.0
SIGNS, LEFT = "wior/alive/", "left"
BROKEN = ("gloo", "nccl", "unavailable", "deadline_exceeded")  # words of errors of the devices when a connection breaks
# how a message of the runtime begins
STATUS = ("UNAVAILABLE:", "DEADLINE_EXCEEDED:", "INTERNAL:", "ABORTED:", "CANCELLED:", "UNKNOWN:")
LOST = (
    "{who} of this run has ended or cannot be reached; see what it printed last. "
    "Start all processes again with the same arguments: a run with a checkpoint resumes from its last save"
)


class LostProcessError(RuntimeError):
    """Another process of the run has ended."""


def join(coordinator: str | None = None, processes: int | None = None, process_id: int | None = None) -> None:
    """Joins this process to a run of many, before anything else uses jax.

    Every process calls it, then runs the same program. SLURM, Open MPI, Kubernetes and cloud TPUs are found without
    arguments (by `jax.distributed.initialize`); elsewhere give all three. Where another process ends, this one does so
    too within a minute, with an error.

    Parameters
    ----------
    coordinator
        The address `host:port` of process 0.
    processes
        The number of processes.
    process_id
        The number of this one, from 0.

    Raises
    ------
    ValueError
        Where only some of the three are given, or none is and no cluster is found.

    Examples
    --------
    In each of two processes, with its own number:

    >>> from wior.devices import hosts
    >>> hosts.join("10.0.0.1:1234", processes=2, process_id=0)  # doctest: +SKIP

    >>> hosts.join("10.0.0.1:1234", processes=2)
    Traceback (most recent call last):
    ValueError: coordinator, processes and process_id go together; process_id is missing
    """
    given = {"coordinator": coordinator, "processes": processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(
            f"coordinator, processes and process_id go together; {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    if processes is not None and process_id is not None and not 0 <= process_id < processes:
        raise ValueError(f"process_id must be one of 0 … {processes - 1}, got {process_id}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # of use on CPUs alone
    known = inspect.signature(jax.distributed.initialize).parameters
    name = "heartbeat_timeout_seconds"
    timeout: dict[str, Any] = {name: SECONDS_TO_ABORT} if name in known else {}
    try:
        jax.distributed.initialize(coordinator, processes, process_id, **timeout)
    except ValueError as error:
        if missing:
            raise ValueError(
                "no cluster was found (SLURM, Open MPI, Kubernetes, cloud TPU); "
                f"give the coordinator's host:port, the number of processes and the number of this one ({error})"
            ) from error
        raise
    if jax.process_count() > 1:
        _Watch().start()


def is_first() -> bool:
    return jax.process_index() == 0


def agreed(number: float) -> float:
    """Process 0's number, to the last bit, in all processes."""
    from jax.experimental import multihost_utils

    sent = multihost_utils.broadcast_one_to_all(np.frombuffer(np.float64(number).tobytes(), np.uint8))
    return float(np.frombuffer(np.asarray(sent, np.uint8).tobytes(), np.float64)[0])


def demand_same(parts: Mapping[str, Any]) -> None:
    """Raises an error in all processes that names what differs between them; the names of the parts are the same
    everywhere.
    """
    from jax.experimental import multihost_utils

    digests = [hashlib.sha256(json.dumps(part, default=repr).encode()).digest()[:8] for part in parts.values()]
    own = np.frombuffer(b"".join(digests), np.uint8).reshape(len(parts), 8)
    with clear_lost_process(many=True):
        every = np.asarray(multihost_utils.process_allgather(own))
    every = every.reshape(-1, len(parts), 8)
    differing = [
        f"process {process} has another {name} than process 0"
        for process in range(len(every))
        for i, name in enumerate(parts)
        if not np.array_equal(every[process, i], every[0, i])
    ]
    if differing:
        more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ValueError(
            f"the processes of this run disagree: {'; '.join(differing[:3])}{more}. Start all of them with the same "
            "arguments and data"
        )


@contextlib.contextmanager
def clear_lost_process(many: bool) -> Iterator[None]:
    """What the devices say when a connection breaks becomes `LostProcessError`."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if not many or not _of_runtime(error) or not any(word in str(error).lower() for word in BROKEN):
            raise
        raise LostProcessError(LOST.format(who="another process")) from error


def _of_runtime(error: BaseException) -> bool:
    """Whether an error comes from the runtime. Sometimes that is a ValueError; other ValueErrors are the user's."""
    if isinstance(error, jax.errors.JaxRuntimeError) or str(error).startswith(STATUS):
        return True
    return isinstance(error.__cause__ or error.__context__, jax.errors.JaxRuntimeError)


def leave(code: int) -> None:
    """Ends this process at once: after an error of its own it would wait for others that will not come."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _store() -> Any:
    """The store of keys and values that process 0 keeps for all.

    jax has no public name for it, from 0.6.2 to 0.10.2, and no other public function will do: `jax.distributed` says
    only whether this process has joined; the collectives of `jax.experimental.multihost_utils` wait for the process
    that is lost, and its `live_devices` for every process that stands still. `multihost_utils` itself takes the store
    from here. A server of our own would need one more open port on every host.
    """
    try:
        from jax._src import distributed

        client = distributed.global_state.client
    except (ImportError, AttributeError):
        client = None
    if not all(hasattr(client, name) for name in ("key_value_set", "key_value_dir_get")):
        raise RuntimeError(
            f"jax {jax.__version__} keeps its store of keys and values where wior does not find it, so that a lost "
            "process would not be "
            "noticed; take a version of jax that wior's pyproject.toml names, or run in one process"
        )
    return client


class _Watch:
    """Gives signs of life and looks for those of the others, in the store that process 0 keeps; ends this process where
    one is missing.
    """

    def __init__(self) -> None:
        self.store = _store()
        self.own = f"{SIGNS}{jax.process_index()}"
        self.answered = time.monotonic()
        self.leaving = threading.Event()

    def start(self) -> None:
        for work in (self._look, self._wait_for_answers):
            threading.Thread(target=work, daemon=True).start()
        atexit.register(self._leave)  # before jax's own, which waits for the others

    def _look(self) -> None:
        heard: dict[str, tuple[str, float]] = {}
        for number in range(sys.maxsize):
            try:
                self._give(str(number))
                signs = dict(self.store.key_value_dir_get(SIGNS))
            except Exception:  # noqa: BLE001 - whatever it is, process 0 does not answer
                self._end("0")
            self.answered = time.monotonic()
            for name, sign in signs.items():
                if name not in heard or heard[name][0] != sign:
                    heard[name] = sign, self.answered
            for name, (sign, since) in heard.items():
                if sign != LEFT and self.answered - since > SECONDS_TO_MISS:
                    self._end(name.removeprefix(SIGNS))
            if self.leaving.wait(SECONDS_BETWEEN_SIGNS):
                return

    def _wait_for_answers(self) -> None:
        """Ends this process where process 0 stands still: a question to it is then never answered."""
        while not self.leaving.wait(SECONDS_BETWEEN_SIGNS):
            if time.monotonic() - self.answered > SECONDS_TO_MISS:
                self._end("0")

    def _give(self, sign: str) -> None:
        self.store.key_value_set(self.own, sign, allow_overwrite=True)

    def _leave(self) -> None:
        self.leaving.set()
        if hasattr(sys, "last_type"):  # it ends with an error that nobody caught, and the others would wait for it
            leave(1)
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._give(LEFT)

    def _end(self, process: str) -> None:
        if not self.leaving.is_set():
            print(f"wior: {LOST.format(who=f'process {process}')}.", file=sys.stderr)
            leave(1)
        sys.exit()  # this thread
