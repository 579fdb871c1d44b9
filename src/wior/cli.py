"""The command line: `wior demo`, `wior list`."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wior import __version__, listing
from wior.methods import methods

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Nested optimization in which the order of the examples is a choice.",
    epilog="Start with: wior demo. All methods: wior list",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

UsageError: Any = typer.BadParameter.__base__  # of click's errors typer exports the leaf alone


INTERRUPTED = 130


class Noise(enum.StrEnum):
    uniform = "uniform"
    pairs = "pairs"


class ProblemClass(enum.StrEnum):
    bilevel = "bilevel"
    conditional_bilevel = "conditional-bilevel"
    compositional = "compositional"
    conditional_compositional = "conditional-compositional"
    minimax = "minimax"

    @property
    def class_name(self) -> str:
        return self.value.title().replace("-", "")


def _version(asked: bool) -> None:
    if asked:
        print(f"wior {__version__}")
        raise typer.Exit


def _rate(rate: float) -> float:
    if not 0 < rate < 1:
        raise typer.BadParameter(f"{rate} is not between 0 and 1 (both excluded).")
    return rate


@app.callback(invoke_without_command=True)
def wior(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def demo(
    rate: Annotated[float, typer.Option(help="Share of training labels made wrong.", callback=_rate)] = 0.5,
    noise: Annotated[Noise, typer.Option(help="A wrong label is any other class, or the next one.")] = Noise.uniform,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each method, all in one program.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for plot, curves and summary.")] = Path("wior-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the steps.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON in place of the tables.")] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")] = True,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find wrong labels in the embedded digits under three orders.

    WiOR-BO under random reshuffling and shuffle once against WiR-BO with independent draws, at equal step sizes, batch size
    and steps. Takes about half a minute on two cores. An earlier demo's folder is replaced, any other one is refused.
    """
    from wior.experiments import demo as experiment

    try:
        summary = experiment.demo(out, rate=rate, noise=noise.value, seeds=seeds, quick=quick, progress=progress)
    except Exception as error:
        if debug:
            raise
        _say(_readable(error))
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    _console().print(experiment.tables(summary, out), highlight=False)


@app.command("list")
def list_methods(
    problem: Annotated[ProblemClass | None, typer.Option(help="Only the methods that solve these problems.")] = None,
    parameters: Annotated[bool, typer.Option("--parameters", help="Hyper-parameters in place of the costs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known of the methods as JSON.")] = False,
) -> None:
    """List all methods, what they solve and what they cost.

    Problem classes, calls of a step, memory and paper. The calls are counted in the code as it runs, with default
    hyper-parameters. Takes some seconds.
    """
    if markdown and as_json:
        raise typer.BadParameter("give either --markdown or --json, not both")
    found = methods()
    if problem is not None:
        name = problem.class_name
        # those made for the problem come before those that it is restated for
        found = sorted((m for m in found if name in m.solves), key=lambda m: m.solves[0] != name)
    if as_json:
        print(json.dumps([listing.as_json(method) for method in found], indent=2, ensure_ascii=False))
        return
    row, caption = (listing.parameters, listing.PARAMETERS) if parameters else (listing.costs, listing.COSTS)
    if markdown:
        print(listing.markdown([row(method) for method in found]), caption, sep="\n\n")
        return
    console = _console()
    console.print(listing.tables(found, row, caption, console.width), highlight=False)


def _console() -> Console:
    """The terminal, or 100 columns of a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=100)


def _readable(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:  # raised by the system, without a sentence of ours
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _say(message: str) -> None:
    print(f"wior: {' '.join(message.split())}", file=sys.stderr)


def main() -> None:
    """The entry point: bad usage is one line and exit code 2."""
    try:
        code = app(standalone_mode=False, prog_name="wior")
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "wior"
        _say(f"{error.format_message().rstrip('.')}. See '{command} --help'.")
        code = 2
    except typer.Abort:
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
