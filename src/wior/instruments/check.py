"""`check`: looks for mistakes in a problem on real batches, in seconds, that nothing else would find."""

from __future__ import annotations

import dataclasses
import math
import textwrap
import warnings
from typing import Any

import jax
import numpy as np

from wior import checks
from wior.instruments.checking import curvature, data, rows, sample, values
from wior.instruments.checking.finding import Finding
from wior.instruments.checking.first_steps import first_steps
from wior.instruments.checking.short_runs import Settings, made, method_for
from wior.problems import CLASSES, Problem
from wior.problems.modules import parted, with_whole_variables
from wior.problems.movement import unmoved
from wior.problems.restated import restated
from wior.running.arguments import both
from wior.running.loop import NonFiniteError
from wior.running.solve import solve

Tree = Any

WIDTH = 96
ABOUT = 14  # columns for the name of what a finding is about
TIMED_STEPS = 20
TIMED_RECORDS = 5
TIMED_SECONDS = 2.0
RETRIES = 4
UNKNOWN = (math.nan, math.nan)


@dataclasses.dataclass(frozen=True)
class Report:
    """What `wior.check` found and measured. `str(report)` is the text that it prints.

    Parameters
    ----------
    findings : tuple of Finding
        What was found.
    step_sizes : dict
        Suggested first step sizes, by the fields of `method`; also `inner_epochs` where it should be more than one.
        Empty where none could be found.
    inner_curvature : (float, float)
        The smallest and the largest eigenvalue of the inner Hessian at x0, y0; NaN where they are not known.
    seconds_per_step : float or None
        The time of one step; None where it was not measured.
    memory_bytes : int or None
        The memory of one step; None where the compiler does not tell.
    method : str
        The algorithm that was timed, and that the step sizes are for.
    heading : str
        What was looked at, in one line.

    Examples
    --------
    >>> import wior
    >>> found = wior.Finding("note", "outer_lr", "no step size tried lowers the outer loss")
    >>> report = wior.Report((found,), {}, (0.5, 2.0), None, None, "WiORBO", "Bilevel: 8 outer and 8 inner examples")
    >>> report.ok
    True
    """

    findings: tuple[Finding, ...]
    step_sizes: dict[str, Any]
    inner_curvature: tuple[float, float]
    seconds_per_step: float | None
    memory_bytes: int | None
    method: str
    heading: str

    @property
    def ok(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return all(finding.severity == "note" for finding in self.findings)

    def __str__(self) -> str:
        lines = [self.heading, ""]
        for finding in sorted(self.findings, key=lambda one: ("error", "warning", "note").index(one.severity)):
            lines += _paragraph(finding)
        if not self.findings:
            lines.append("nothing found")
        return "\n".join([*lines, "", *self._measured()])

    def _measured(self) -> list[str]:
        smallest, largest = self.inner_curvature
        lines = []
        if math.isfinite(smallest):
            lines.append(f"inner Hessian   eigenvalues from {smallest:.3g} to {largest:.3g} at x0, y0")
        if self.seconds_per_step is not None:
            memory = "" if self.memory_bytes is None else f", {_bytes(self.memory_bytes)} of memory"
            lines.append(f"a step          {_seconds(self.seconds_per_step)}{memory} ({self.method})")
        sizes = ", ".join(f"{name}={size:g}" for name, size in self.step_sizes.items())
        if sizes:
            lines.append(f"first steps     wior.{self.method}({sizes})")
        return lines


def check(
    problem: Problem,
    x0: Tree,
    y0: Tree,
    *,
    batch_size: int | tuple[int, int] = 64,
    seed: int = 0,
    show: bool = True,
) -> Report:
    """Looks at a problem for mistakes, measures a step and suggests first step sizes.

    It looks for indices out of range inside the losses, losses that are sums and not means over rows, rows that depend
    on each other, NaN and infinity in the data, dtypes that disagree, leaves that cannot move, and an inner problem
    that is not convex. It reads real batches: of streamed data a few hundred rows; of other data all rows to find NaN,
    and as many as some seconds allow to find wrong indices. It takes every class of problem; one of your own is looked
    at as the class that it is restated as. An error that a loss raises is passed on.

    Parameters
    ----------
    problem
        The problem, one of wior's classes.
    x0, y0
        The start, as given to `wior.solve`.
    batch_size
        The rows of a batch, or a pair (outer, inner), as given to `wior.solve`.
    seed
        Chooses the rows that are looked at.
    show
        Whether to print the report.

    Returns
    -------
    Report
        The findings, `ok`, step sizes, curvature, time and memory. `wior.WiORBO(**report.step_sizes)` is the algorithm
        with the suggested step sizes for a `Bilevel` problem; `report.method` names the one for the problem given.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    >>> inner = lambda x, y, batch: jnp.sum((batch @ y - 1) ** 2) + jnp.exp(x) * jnp.sum(y**2)
    >>> outer = lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2)
    >>> problem = wior.Bilevel(outer, inner, rows, rows)
    >>> report = wior.check(problem, jnp.zeros(()), jnp.zeros(3), show=False)
    >>> report.ok, [finding.about for finding in report.findings if finding.severity == "error"]
    (False, ['inner'])
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be one of wior's problems, for example wior.Bilevel, got {problem!r} of type "
            f"{type(problem).__name__}"
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise TypeError(f"seed must be an integer that is not negative, got {seed!r}")
    checks.boolean("show", show)
    (x, x_rest), (y, y_rest) = parted("x0", x0), parted("y0", y0)
    problem = with_whole_variables(problem, x_rest, y_rest)
    batches = both("batch_size", batch_size, problem, checks.positive_integer)
    problem.check(x, y, batches)
    problem = restated(problem, *CLASSES)  # a class of the user's own is looked at as the one that it stands for
    findings = [
        *(data.rounded_leaves("x0", x0, x) if x_rest is None else []),
        *(data.rounded_leaves("y0", y0, y) if y_rest is None else []),
        *data.type_findings(problem, x, y, batches),
        *_movement_findings(problem, x, y, batches),
    ]
    report = _looked_at(problem, x, y, batches, int(seed), findings)
    if show:
        print(report)
    return report


def _looked_at(
    problem: Problem, x: Tree, y: Tree, batches: tuple[int, int], seed: int, findings: list[Finding]
) -> Report:
    """The report on real batches, with what was found before."""
    found = sample.at_hand(problem, batches, np.random.default_rng(seed))
    seen = data.not_finite(found)
    broken = data.broken_places(found, seen)
    drawn = sample.draw(found, broken, batches)
    heading = _heading(problem, batches)
    name = method_for(problem).__name__
    if drawn is None:
        findings = [*findings, *data.data_findings(found, seen, harmful=True)]
        return Report(tuple(findings), {}, UNKNOWN, None, None, name, heading)
    losses = values.Losses(drawn, x, y)
    own = sample.losses_of(problem)
    ranges = {loss.name: values.out_of_range(losses, loss) for loss in own}
    at_start = {loss.name: values.not_finite_at_start(losses, loss) for loss in own}
    # a loss that is not finite anyway says nothing of rows that are not
    not_finite = any(at_start.values())
    harmful = not_finite or _harmful(losses, own, broken)
    findings += data.data_findings(found, seen, harmful)
    for loss in own:
        # NaN is what JAX reads out of range, and is said there
        findings += ranges[loss.name] or at_start[loss.name]
        findings += [] if not_finite else rows.row_findings(drawn, loss, x, y)
    if not_finite:
        return Report(tuple(findings), {}, UNKNOWN, None, None, name, heading)
    findings += rows.representation_findings(drawn, x)
    curved = curvature.inner_curvature(drawn, x, y)
    findings += curvature.curvature_findings(drawn, curved, y)
    first = first_steps(drawn, curved, x, y)
    findings += first.findings
    ends, settings, seconds = (curved.smallest, curved.largest), first.settings, None
    if not (seen and harmful):  # a run would meet those rows
        seconds, settings, failed = _timed(problem, settings, x, y, batches)
        findings += failed
    return Report(tuple(findings), settings, ends, seconds, first.memory_bytes, name, heading)


def _movement_findings(problem: Problem, x: Tree, y: Tree, batches: tuple[int, int]) -> list[Finding]:
    """A warning for each leaf that cannot move, an error where none of x or of y can."""
    findings = []
    for sentence in unmoved(problem, x, y, batches):
        name, _, rest = sentence.partition(" cannot move")
        whole = rest.startswith(" in any") or len(jax.tree.leaves(x if name.startswith("x0") else y)) == 1
        findings.append(Finding("error" if whole else "warning", name, f"cannot move{rest}"))
    return findings


def _harmful(losses: values.Losses, own: tuple[sample.Loss, ...], broken: dict[str, np.ndarray]) -> bool:
    """Whether some loss is not finite on rows with NaN or infinity."""
    for loss in own:
        places = np.flatnonzero(broken["outer" if losses.sample.conditional else loss.level]).astype(np.int32)
        if len(places) and values.harmful(losses, loss, places):
            return True
    return False


def _timed(
    problem: Problem, settings: Settings, x: Tree, y: Tree, batches: tuple[int, int]
) -> tuple[float | None, Settings, list[Finding]]:
    """Seconds of a step of `wior.solve`, the settings with which a run stays finite, and a finding where none does."""
    size: Any = batches[0] if len(problem.sizes()) == 1 else batches
    size = batches[1] if problem.lacks_outer_data else size
    length = {"steps": TIMED_STEPS * TIMED_RECORDS, "record_every": TIMED_STEPS, "seconds": TIMED_SECONDS}
    message = ""
    for _ in range(RETRIES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what solve warns of is in the findings
                run = solve(problem, made(problem, settings), x, y, batch_size=size, **length)  # type: ignore[arg-type]
        except NonFiniteError as error:
            message = str(error)
            settings = {name: value / 4 if name.endswith("_lr") else value for name, value in settings.items()}
            continue
        seconds, steps = np.diff(run.history["seconds"]), np.diff(run.history["step"])
        return float(np.median(seconds / steps)), settings, []
    return None, {}, [Finding("warning", "step sizes", f"even with small ones no run stays finite: {message}")]


def _heading(problem: Problem, batches: tuple[int, int]) -> str:
    sizes = problem.sizes()
    examples = " and ".join(f"{n} {level}" for level, n in sizes.items())
    rows_of = f"{batches[0]}" if len(sizes) == 1 else f"{batches[0]} and {batches[1]}"
    streamed = ", streamed" if problem.streamed() else ""
    return f"{type(problem).__name__}: {examples} examples{streamed}, batches of {rows_of}"


def _paragraph(finding: Finding) -> list[str]:
    """A finding as lines: severity, name and, beside them, the message."""
    lead = f"{finding.severity:<9}{finding.about}"
    indent = " " * (9 + 2)
    if len(finding.about) < ABOUT:
        lead = f"{finding.severity:<9}{finding.about:<{ABOUT}}"
        indent = " " * len(lead)
        return textwrap.wrap(finding.message, WIDTH, initial_indent=lead, subsequent_indent=indent)
    return [lead, *textwrap.wrap(finding.message, WIDTH, initial_indent=indent, subsequent_indent=indent)]


def _seconds(value: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _bytes(number: int) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number} bytes"
