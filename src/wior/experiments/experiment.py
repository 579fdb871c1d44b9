"""What every experiment gives: its settings before it starts, and its findings at the end."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh

from wior.devices import hosts
from wior.devices.layout import BATCH
from wior.experiments import claims
from wior.experiments.claims import Claim
from wior.experiments.comparison import Piece
from wior.running.progress import Progress, pieces
from wior.saving.checkpoint import Checkpoint
from wior.saving.folders import (
    CONFIG,
    SUMMARY,
    Arrays,
    RunFolder,
    piece_checkpoint,
    read_piece,
    work_folder,
)
from wior.saving.whole import write_json
from wior.version import __version__

HISTORY, REPORT = "history.jsonl", "report.md"


class Options(NamedTuple):
    """What the user may say about any experiment."""

    data: Path | None = None
    seeds: int = 5
    quick: bool = False
    progress: bool = False
    only: tuple[str, ...] = ()  # panels of a figure, where it has several
    distributed: bool = False  # one run of many processes, which have joined

    @property
    def mesh(self) -> Mesh | None:
        """The devices that a batch is split over."""
        return Mesh(np.array(jax.devices()), (BATCH,)) if self.distributed else None


class Conclusion(NamedTuple):
    """The end of an experiment, before it is written down."""

    claims: Sequence[Claim]
    summary: Mapping[str, Any]
    text: str  # Markdown: tables and what was left open by the paper
    draw: Callable[[Path], None]  # writes the figures
    write_history: Callable[[Path], None]


class Experiment(Protocol):
    """A module of this folder, or an object like one."""

    @property
    def TITLE(self) -> str: ...

    @property
    def FIGURE(self) -> str: ...

    def settings(self, options: Options) -> dict[str, Any]:
        """All that the figures follow from, as JSON."""

    def count(self, options: Options) -> int:
        """The number of pieces of work."""

    def run(self, options: Options, piece: Piece) -> Conclusion: ...


def perform(
    experiment: Experiment,
    command: str,
    out: Path,
    options: Options,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Runs an experiment into the folder `out` and returns its summary."""
    config = {
        "made_by": f"wior {command}",
        "version": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "options": {"seeds": options.seeds, "quick": options.quick, "only": list(options.only)},
        "settings": experiment.settings(options),
    }
    if options.distributed:
        hosts.demand_same({"version": config["version"], **config["settings"], **config["options"]})
        if not hosts.is_first():
            return follow(experiment, out, options)
    folder = RunFolder(out, config, resume)
    config = folder.config
    with folder.in_use(), pieces(options.progress, command, experiment.count(options)) as begin:

        def piece(name: str, steps: int, make: Callable[[Progress, Checkpoint | None], Arrays]) -> Arrays:
            progress = begin(name, steps)
            if options.distributed:
                hosts.agreed(folder.has(name))
            return folder.piece(name, functools.partial(make, progress, folder.checkpoint(name)))

        found = experiment.run(options, piece)
    found.draw(folder.work)
    found.write_history(folder.work / HISTORY)
    (folder.work / REPORT).write_text(report_of(experiment, command, config, found))
    files = sorted(path.name for path in folder.work.iterdir() if path.is_file() and path.name != SUMMARY)
    summary = {
        "made_by": config["made_by"],
        "version": config["version"],
        "device": config["device"],
        "claims": claims.as_json(found.claims),
        **found.summary,
        "files": [*files, SUMMARY],
    }
    write_json(folder.work / SUMMARY, summary)
    folder.finish()
    return summary


def follow(experiment: Experiment, out: Path, options: Options) -> dict[str, Any]:
    """What the other processes do of `perform`: their share of every run.

    Process 0 says which are to be made, and writes.
    """
    work = work_folder(out)

    def piece(name: str, steps: int, make: Callable[[Progress, Checkpoint | None], Arrays]) -> Arrays:
        if hosts.agreed(False):
            return read_piece(work, name)
        return make(lambda step, latest: None, piece_checkpoint(work, name))

    experiment.run(options, piece)
    return {}


def report_of(experiment: Experiment, command: str, config: Mapping[str, Any], found: Conclusion) -> str:
    """The findings for people, verdicts first."""
    options = config["options"]
    seeds = config["settings"].get("seeds", options["seeds"])
    quick = " A quick version: fewer steps and settings than the figure." if options["quick"] else ""
    verdicts = f"## Verdicts\n\n{claims.markdown(found.claims)}\n\n" if found.claims else ""
    return (
        f"# {experiment.TITLE}\n\n{experiment.FIGURE}\n\n`wior {command}`, {seeds} seed{'s' if seeds > 1 else ''}, on "
        f"{config['device']} ({config['machine']}), wior {config['version']}, jax {config['jax']}.{quick} Every "
        f"setting is in `{CONFIG}`, every record in `{HISTORY}`.\n\n{verdicts}{found.text}\n"
    )
