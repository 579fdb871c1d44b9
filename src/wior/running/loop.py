"""The host's side of a run: cuts it into blocks, keeps the clock and the history, saves, and stops.

It knows nothing of formulas. What it drives is a program (`program.py`), of one run or of many at once.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from wior import oracle
from wior.devices import hosts
from wior.running.block import Carry
from wior.running.interruption import Interrupt, Interrupted, held_back
from wior.running.listeners import CALLBACK, Listeners
from wior.running.measuring import ALWAYS
from wior.running.position import put
from wior.running.program import ManyRuns, OneRun
from wior.running.progress import Progress, bar
from wior.running.results import Finished
from wior.saving.checkpoint import Checkpoint, Saved, SaveError, Store
from wior.saving.plain_keys import as_before, plain

Program = OneRun | ManyRuns

SECONDS_IN_BLOCK = 0.25  # a longer block would make progress, time limits and interruption coarse
SECONDS_BETWEEN_SNAPSHOTS = 5.0
FIRST_STEPS = 4
SHARE_OF_SAVES = 0.02  # the most of a run's time that saves by the clock may take


class NonFiniteError(FloatingPointError):
    """A variable became infinite or NaN.

    Parameters
    ----------
    step : int
        The step whose update made it so.
    variables : list of str
        Which variables.
    hint : str
        The likely cause, for the message.

    Attributes
    ----------
    result : Result
        The state before that step, the last finite one, and the history up to it.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> inner = lambda x, y, batch: jnp.mean((batch @ y - x) ** 2) + jnp.sum(y**2)
    >>> problem, x0, y0 = wior.Bilevel(outer, inner, rows, rows), jnp.zeros(()), jnp.zeros(3)
    >>> try:
    ...     wior.solve(problem, wior.WiORBO(1e9, 1e9, 1e9), x0, y0, batch_size=8, steps=200)
    ... except wior.NonFiniteError as error:
    ...     print(bool(jnp.isfinite(error.result.y).all()), error.result.steps == error.step - 1)
    True True
    """

    result: Any = None

    def __init__(self, step: int, variables: list[str], hint: str):
        self.step, self.variables, self.hint = step, variables, hint
        super().__init__(f"{' and '.join(variables)} became non-finite in step {step}; {hint}")


class _Clock:
    """Adds up the seconds of its uses."""

    def __init__(self, agreed: Callable[[float], float]):
        self.seconds, self.agreed = 0.0, agreed

    def time(self, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = jax.block_until_ready(work())
        self.last = self.agreed(time.perf_counter() - begun)
        self.seconds += self.last
        return result


class _Run:
    """A run in progress."""

    def __init__(self, program: Program, store: Store | None, progress: Progress):
        self.program, self.setup, self.store, self.progress = program, program.setup, store, progress
        self.limits = self.setup.limits
        # what depends on a clock must be the same in all processes of a run
        self.agreed: Callable[[float], float] = hosts.agreed if self.setup.plan.spans_processes else float
        self.carry = program.begin()
        start = self.setup.start
        self.step = self.begun = self.first = 0 if start is None else start.step
        self.steps_clock, self.metrics_clock, self.compile_clock = (_Clock(self.agreed) for _ in range(3))
        self.calls: dict[str, Any] = {name: np.zeros(program.runs, np.int64) for name in oracle.CALLS}
        if start is not None:
            self.calls = {name: np.full(program.runs, start.calls[name], np.int64) for name in oracle.CALLS}
            self.steps_clock.seconds = start.seconds
        self.history: dict[str, list[Any]] = {name: [] for name in (*ALWAYS, *self.setup.metric_names)}
        given, first = self.setup.given, not self.setup.plan.spans_processes or hosts.is_first()
        self.listeners = Listeners(dict(self.limits.stop), given.callback, given.loggers if first else ())
        self.verdict = ""  # what ends the run at the last record, if anything does
        self.snapshot: tuple[int, Any] = (self.first, None)  # None stands for what `begin` gives
        self.snapshot_at = self.begun_at = self.saved_at = self.now()
        self.save_seconds: list[float] = []

    def resume(self) -> None:
        if self.store is None:
            return
        own, structure = jax.tree.flatten(self.carry)
        leaves = [plain(leaf) for leaf in own]
        saved = self.store.load(leaves)
        if saved is None:
            return
        if saved.step > self.limits.steps:
            raise ValueError(
                f"the checkpoint in {str(self.store.checkpoint.folder)!r} is at step {saved.step}, past the "
                f"{self.limits.steps} steps asked for; "
                "ask for more steps or give another folder"
            )
        placed = [put(value, leaf) for value, leaf in zip(saved.leaves, leaves, strict=True)]
        self.carry = jax.tree.unflatten(structure, map(as_before, placed, own))
        self.step = self.begun = saved.step
        self.history = {name: list(saved.history[name]) for name in self.history}
        about = saved.about
        self.steps_clock.seconds, self.metrics_clock.seconds = about["seconds"], about["metric_seconds"]
        self.calls = {name: np.asarray(number, np.int64) for name, number in about["calls"].items()}
        self.snapshot = (self.step, jax.tree.map(jnp.copy, self.carry))

    def compile(self) -> None:
        # a block of no steps compiles the program and leaves the carry as it is; another one shows what a block costs
        # by itself
        self.carry, *_ = self.compile_clock.time(lambda: self._advanced(0))
        overhead = _Clock(self.agreed)
        self.carry, *_ = overhead.time(lambda: self._advanced(0))
        self.overhead = overhead.seconds
        if self.setup.metrics_program is not None:
            self.compile_clock.time(lambda: self.program.measure(self.carry))

    def now(self) -> float:
        return self.agreed(time.perf_counter())

    def steps_in_time(self, seconds: float) -> int:
        """How many steps fit, by the pace of the last block; a few before there was one."""
        if self.step == self.begun:
            return FIRST_STEPS
        pace = max(self.steps_clock.last - self.overhead, 1e-9) / self.last_count
        return int(min(max(seconds / pace, 1), self.setup.plan.length))

    def advance(self, count: int) -> None:
        carry, known, varying = self.steps_clock.time(lambda: self._advanced(count))
        self.carry = carry
        self.step += count
        self.last_count = count
        for name in oracle.CALLS:
            self.calls[name] = (
                self.calls[name] + np.asarray(known[name], np.int64) * count + np.asarray(varying[name], np.int64)
            )

    def record(self) -> None:
        measured = self.metrics_clock.time(lambda: self.program.measure(self.carry))
        outer, inner = self.setup.drawn(self.step)
        values = {
            "step": self.step,
            "outer_passes": outer,
            "inner_passes": inner,
            "seconds": self.steps_clock.seconds,
            **{name: np.array(number) for name, number in self.calls.items()},
            **{name: np.asarray(value) for name, value in measured.items()},
        }
        for name, value in values.items():
            self.history[name].append(value)
        self.verdict = self._in_one_voice(self.listeners.told(values))

    def begin_telling(self) -> None:
        """The listeners hear of the run, before its first step."""
        verdict = self.listeners.begin(tuple(self.history), self.first, self.history, self.step)
        self.verdict = self._in_one_voice(verdict)

    def latest(self) -> dict[str, Any]:
        """The last value of each metric, the mean over the runs where it is a number."""
        last = {name: np.ravel(self.history[name][-1]) for name in self.setup.metric_names if self.history[name]}
        return {name: float(np.mean(v[np.isfinite(v)])) if np.isfinite(v).any() else np.nan for name, v in last.items()}

    def save(self, then: str) -> None:
        """Saves the run, and warns where that fails: its numbers are right without it, and to stop would lose them."""
        if self.store is None:
            return
        begun = self.now()
        about = {
            "seconds": self.steps_clock.seconds,
            "metric_seconds": self.metrics_clock.seconds,
            "calls": {name: np.asarray(number).tolist() for name, number in self.calls.items()},
        }
        leaves = [plain(leaf) for leaf in jax.tree.leaves(self.carry)]
        leaves = [np.asarray(leaf) if leaf.is_fully_replicated else leaf for leaf in leaves]
        try:
            self.store.save(Saved(self.step, leaves, arrays(self.history), about))
        except SaveError as error:
            warnings.warn(f"{error}; {then}", stacklevel=4)
        self.saved_at = self.now()
        self.save_seconds.append(self.saved_at - begun)

    def time_to_save(self) -> bool:
        if self.store is None:
            return False
        every = self.store.checkpoint.every_steps
        if every is not None and self.step % every == 0:
            return True
        now = self.now()
        with_another = sum(self.save_seconds) + sum(self.save_seconds[-1:])  # which will take as long as the last
        return now - self.saved_at > self.store.checkpoint.every_seconds and with_another <= SHARE_OF_SAVES * (
            now - self.begun_at
        )

    def demand_finite(self) -> None:
        if self.program.may_diverge:
            return
        if not self.program.non_finite(self.carry):
            self._keep_snapshot()
            return
        step, carry, variables = self._find_first_non_finite()
        kept = ""
        if self.store is not None and self.store.has_saves():
            kept = f" The last finite checkpoint in {str(self.store.checkpoint.folder)!r} can be resumed."
        hint = self.program.why_non_finite(variables, jax.tree.map(jnp.copy, carry), step)
        error = NonFiniteError(step + 1, variables, hint + kept)
        error.result = self.program.result(self.finished("divergence", step, carry))
        raise error

    def finished(self, stopped_by: str, step: int | None = None, carry: Carry | None = None) -> Finished:
        """Where the run stands, or stood after an earlier step with its carry."""
        history = arrays(self.history)
        if carry is not None:
            records = int(np.sum(history["step"] <= step))
            history = {name: values[:records] for name, values in history.items()}
        seconds, calls = self.steps_clock.seconds, self.calls
        if carry is not None and records:  # as far as they are known
            seconds, calls = history["seconds"][-1], {name: history[name][-1] for name in self.calls}
        return Finished(
            self.carry if carry is None else carry,
            self.step if step is None else step,
            history,
            stopped_by,
            self.compile_clock.seconds,
            self.metrics_clock.seconds,
            seconds,
            calls,
        )

    def reached(self) -> Finished:
        """The last state that exists after an error; the error may have come while a block had taken over the carry."""
        if not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.carry)):
            return self.finished("error")
        step, carry = self.snapshot
        return self.finished("error", step, self.program.begin() if carry is None else carry)

    def _in_one_voice(self, verdict: str) -> str:
        """Of many processes, what the first one says."""
        if not self.listeners.may_end or not self.setup.plan.spans_processes:
            return verdict
        voices = ["", *dict(self.limits.stop), CALLBACK]
        return voices[int(self.agreed(voices.index(verdict)))]

    def _advanced(self, count: int) -> Any:
        return self.program.advance(self.carry, self.step, np.int32(count))

    def _keep_snapshot(self) -> None:
        if self.now() - self.snapshot_at > SECONDS_BETWEEN_SNAPSHOTS:
            self.snapshot = (self.step, jax.tree.map(jnp.copy, self.carry))
            self.snapshot_at = self.now()

    def _find_first_non_finite(self) -> tuple[int, Carry, list[str]]:
        """Runs again from the last snapshot, in ever smaller blocks: the last finite step, its carry, and what the next
        one broke.
        """
        end = self.step
        step, carry = self.snapshot
        carry = self.program.begin() if carry is None else carry
        count = max(1, end - step)
        while True:
            count = min(count, self.program.room(step, carry))
            here = jax.tree.map(jnp.copy, carry)
            moved, *_ = self.program.advance(carry, step, np.int32(count))
            wrong = self.program.non_finite(moved)
            if not wrong:
                step, carry = step + count, moved
                count = max(1, min(count, end - step))
            elif count > 1:
                carry, count = here, count // 2
            else:
                return step, here, wrong


def run(program: Program, checkpoint: Checkpoint | None, progress: bool | Progress, heading: str) -> Finished:
    """Drives a program in its checkpoint folder, where there is one, and shows how far it is."""
    plan, limits = program.setup.plan, program.setup.limits
    if plan.spans_processes and not hosts.is_first():
        progress = False
    with hosts.clear_lost_process(plan.spans_processes), contextlib.ExitStack() as open_ones:
        store = None
        if checkpoint is not None:
            store = Store(checkpoint, program.describe())
            open_ones.callback(store.close)
        told = open_ones.enter_context(bar(progress, heading, limits.steps))
        return drive(program, store, told)


def drive(program: Program, store: Store | None, progress: Progress) -> Finished:
    """Runs a program to its limits, from the beginning or from where its checkpoint folder stands.

    What ends it early carries `.result`, what the run had reached, and the run is saved where it has a folder: Ctrl-C
    becomes `Interrupted`, an error of a callback stays what it is.
    """
    run = _Run(program, store, progress)
    with held_back() as interrupt, contextlib.ExitStack() as ending:
        run.resume()
        run.begin_telling()
        said = ["error"]
        ending.callback(lambda: run.listeners.end(said[0]))
        run.compile()
        try:
            stopped_by = said[0] = _to_the_end(run, interrupt)
        except NonFiniteError:
            said[0] = "divergence"
            raise
        except (Exception, KeyboardInterrupt) as error:
            second = type(error) is KeyboardInterrupt and interrupt.asked
            if second or program.setup.plan.spans_processes:  # of many processes, the others would wait in a save
                raise
            _hand_over(run, error)
        if stopped_by == "interrupt" or (store is not None and store.checkpoint.at_end):
            run.save("the run has ended and its result is complete, but the same call would resume from there")
        if run.agreed(interrupt.asked):
            raise Interrupted(_interrupted(run), program.result(run.finished(stopped_by)))
    progress(run.step, run.latest())
    return run.finished(stopped_by)


def _to_the_end(run: _Run, interrupt: Interrupt) -> str:
    """Steps and records until something stops the run, and what that is."""
    limits, recorded = run.limits, run.history["step"]
    due = run.step % limits.record_every == 0 or run.step == limits.steps
    if not recorded or (due and recorded[-1] != run.step):
        run.record()
    stopped_by = _reached(run)
    run.begun_at = run.saved_at = run.now()
    while not stopped_by:
        run.advance(min(run.steps_in_time(SECONDS_IN_BLOCK), _steps_to_event(run)))
        run.demand_finite()
        if run.step % limits.record_every == 0 or run.step == limits.steps:
            run.record()
        stopped_by = _reached(run)
        if stopped_by and run.history["step"][-1] != run.step:
            run.record()
        run.progress(run.step, run.latest())
        if not stopped_by and run.agreed(interrupt.asked):
            return "interrupt"
        if not stopped_by and run.time_to_save():
            run.save("the run continues and tries again later")
    return stopped_by


def _hand_over(run: _Run, error: BaseException) -> NoReturn:
    """Raises an error again, with what the run had reached."""
    reached = run.reached()
    if reached.carry is run.carry:
        run.save("the run ends here with an error")
    result = run.program.result(reached)
    if isinstance(error, KeyboardInterrupt):
        raise Interrupted(_interrupted(run), result) from error
    with contextlib.suppress(AttributeError):  # of a class that takes no attributes
        error.result = result  # type: ignore[attr-defined]
        error.add_note(f"the run had reached step {reached.step}; .result of this error holds its x, y and history")
    raise error


def _interrupted(run: _Run) -> str:
    where = f"interrupted after step {run.step} of {run.limits.steps}; .result holds x, y, state and history so far"
    if run.store is not None and run.store.has_saves():
        return f"{where}. The same call resumes from the checkpoint in {str(run.store.checkpoint.folder)!r}"
    return f"{where}. Nothing was saved: a run with checkpoint= can be resumed"


def arrays(history: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values) for name, values in history.items()}


def _steps_to_event(run: _Run) -> int:
    limits, store = run.limits, run.store
    events = [limits.steps - run.step, limits.record_every - run.step % limits.record_every]
    events.append(run.program.room(run.step, run.carry))
    if store is not None and store.checkpoint.every_steps is not None:
        events.append(store.checkpoint.every_steps - run.step % store.checkpoint.every_steps)
    if limits.seconds is not None:
        events.append(run.steps_in_time(limits.seconds - run.steps_clock.seconds))
    return min(events)


def _reached(run: _Run) -> str:
    limits = run.limits
    if run.verdict:
        return run.verdict
    if run.step >= limits.steps:
        return "steps"
    if limits.seconds is not None and run.steps_clock.seconds >= limits.seconds:
        return "seconds"
    return ""
