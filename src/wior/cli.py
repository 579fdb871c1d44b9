"""The command line."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import json
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wior.instruments import listing
from wior.instruments.methods import methods
from wior.problems import CLASSES
from wior.running.interruption import as_ctrl_c, comes_from_interruption
from wior.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from wior.cleaning.tables import Asked

app = typer.Typer(
    help="Nested optimization in which the order of the examples is a choice.",
    epilog="Start with: wior clean. The paper: wior reproduce. All methods: wior list. All tasks: wior tasks.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

UsageError: Any = typer.BadParameter.__base__  # of click's errors typer exports the leaf alone


INTERRUPTED = 130
NOT_ALL_HOLD = 3


class Noise(enum.StrEnum):
    uniform = "uniform"
    pairs = "pairs"


class Figure(enum.StrEnum):
    irm = "irm"
    cleaning = "cleaning"
    omniglot = "omniglot"
    miniimagenet = "miniimagenet"
    rates = "rates"


# names on the command line are those of the classes themselves
ProblemClass = enum.StrEnum("ProblemClass", {kind.name.replace("-", "_"): kind.name for kind in CLASSES})  # type: ignore[misc]


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


class Weighting(enum.StrEnum):
    auto = "auto"
    noise = "noise"
    function = "function"
    row = "row"


class Learner(enum.StrEnum):
    auto = "auto"
    linear = "linear"
    mlp = "mlp"
    trees = "trees"


DATA = Annotated[
    Path | None, typer.Option(help="Folder with the data sets. Without it: WIOR_DATA, the cache, a download.")
]
SEEDS = Annotated[int, typer.Option(min=1, max=1000, help="Runs of each method, all in one program.")]
OUT = Annotated[
    Path | None, typer.Option(help="Folder for figures, report and numbers.  [default: named after the command]")
]
QUICK = Annotated[bool, typer.Option("--quick", help="Smaller, in under two minutes on two cores.")]
RESUME = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print the summary as JSON in place of the tables.")]
PROGRESS = Annotated[bool, typer.Option("--progress/--no-progress", help="Show progress and the time left.")]
DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
STEPS = Annotated[int | None, typer.Option(min=1, help="Steps of a run.  [default: the task's]")]
BATCH = Annotated[int | None, typer.Option(min=1, help="Batch size at both levels.  [default: the task's]")]

TASK = Annotated[str, typer.Argument(help="A task, see 'wior tasks'.")]
OUTER_LR = Annotated[str, typer.Option(help="Step sizes of x to try, with commas between.  [default: the task's]")]
INNER_LR = Annotated[str, typer.Option(help="Values of every other step size to try.  [default: the task's]")]

TRAIN_FORMATS = "CSV, TSV, JSON Lines, Excel, Parquet, .npz, a dataset folder, or a folder class/name.png."


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """The options that say what is in a table, of every command that reads one."""

    label: Annotated[str | None, typer.Option(help="The column with the labels.")] = None
    verified: Annotated[
        list[Path] | None,
        typer.Option(
            help="Rows whose labels are right: verified.csv, decisions.csv, or a table like this. May be repeated."
        ),
    ] = None
    verified_column: Annotated[str | None, typer.Option(help="A column that marks rows whose label is right.")] = None
    verified_label: Annotated[
        str | None, typer.Option(help="A column with the right label, empty where nobody has looked.")
    ] = None
    id_column: Annotated[str | None, typer.Option("--id", help="A column that names the rows.")] = None
    ignore: Annotated[str, typer.Option(help="Columns to leave out, with commas between.")] = ""
    embeddings: Annotated[
        Path | None, typer.Option(help="Features of every row: .npy, .npz or Parquet, by order or by id.")
    ] = None
    probabilities: Annotated[
        Path | None, typer.Option(help="Out-of-fold probabilities of every class by a model of your own.")
    ] = None
    backbone: Annotated[
        str | None, typer.Option(help="What makes features of pictures.  [default: the best one installed]")
    ] = None

    def asked(self, train: Path | None) -> Asked:
        """The files and columns that are named; without a table none may be."""
        from wior.cleaning.tables import Asked

        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given |= {"verified": tuple(self.verified or ()) or None, "ignore": _names(self.ignore)}
        asked = Asked(Path() if train is None else train, **given)
        if train is None:
            from wior.cleaning.request import OPTIONS

            options = {**OPTIONS, "ignore": "--ignore"}
            named = ", ".join(option for field, option in options.items() if getattr(asked, field))
            if named:
                raise typer.BadParameter(f"{named} needs a table: wior clean train.csv {named} …")
        return asked


def reads_a_table(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each of `TableOptions` as an option of its own, in place of its argument `table`."""
    own, hints = inspect.signature(command).parameters, typing.get_type_hints(command, include_extras=True)
    of_table = typing.get_type_hints(TableOptions, include_extras=True)
    kind, options = inspect.Parameter.KEYWORD_ONLY, dataclasses.fields(TableOptions)
    parameters = []
    for name, one in own.items():
        parameters += (
            [inspect.Parameter(o.name, kind, default=o.default, annotation=of_table[o.name]) for o in options]
            if name == "table"
            else [one.replace(kind=kind, annotation=hints[name])]
        )

    def with_table(**given: Any) -> None:
        table = TableOptions(**{option.name: given.pop(option.name) for option in options})
        command(table=table, **given)

    with_table.__name__, with_table.__doc__ = command.__name__, command.__doc__
    with_table.__annotations__ = {one.name: one.annotation for one in parameters}
    with_table.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_table


SEED = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
FAST = Annotated[bool, typer.Option("--fast", help="Closed-form models alone.")]
ROWS_TO_VERIFY = Annotated[int, typer.Option("--rows", min=1, help="Rows to verify on verify.html.")]


@app.command()
@reads_a_table
def clean(
    train: Annotated[Path | None, typer.Argument(help=TRAIN_FORMATS + "  [default: a demonstration]")] = None,
    *,
    table: TableOptions,
    out: Annotated[Path, typer.Option(help="Folder for all that is found.")] = Path("wior-clean"),
    relabel: Annotated[
        bool,
        typer.Option("--relabel", help="In the cleaned copy, correct flagged rows where another label is likelier."),
    ] = False,
    threshold: Annotated[
        float | None, typer.Option(help="Flag labels that are right with a smaller probability.  [default: best F1]")
    ] = None,
    fast: FAST = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="Models of kept rows learn twice.")] = False,
    rows: ROWS_TO_VERIFY = 100,
    seed: SEED = 0,
    weighting: Annotated[Weighting, typer.Option(help="What is learned of the labels.")] = Weighting.auto,
    model: Annotated[Learner, typer.Option(help="What learns from the rows.")] = Learner.auto,
    hidden: Annotated[str, typer.Option(help="Widths of its hidden layers, with commas between.")] = "",
    outer_lr: Annotated[float | None, typer.Option(help="The outer step size.  [default: chosen]")] = None,
    inner_lr: Annotated[float | None, typer.Option(help="The inner step size.  [default: chosen]")] = None,
    l2: Annotated[float | None, typer.Option(help="The penalty of the model's weights.  [default: by rows]")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the rows, at most.  [default: by rows]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows in a step.  [default: by rows]")] = None,
    order: Annotated[str, typer.Option(help="The order in which rows are visited.")] = "random-reshuffling",
    checkpoint: Annotated[Path | None, typer.Option(help="Folder in which the run saves itself.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the checkpoint folder.")] = False,
    as_json: AS_JSON = False,
    progress: PROGRESS = True,
    debug: DEBUG = False,
) -> None:
    """Find the wrong labels in your own data.

    Without verified rows it gives a first estimate and writes verify.html, a page with the rows that are most worth a
    look; with its export, the same command with --verified finds the wrong labels and says how many there are. Writes a
    folder: review.html to look at the flagged rows and decide, rows.csv with a score for every row, a cleaned copy,
    plots and a summary. Without an argument it runs on the embedded digits, of which 40% get a wrong label.
    """
    from wior.cleaning import terminal
    from wior.cleaning.command import clean as clean_files
    from wior.cleaning.demo import demo as clean_digits
    from wior.cleaning.request import Request

    settings = {
        "threshold": threshold,
        "effort": _effort(fast, thorough),
        "random_state": seed,
        "weighting": weighting.value,
        "hidden": _widths(hidden) or None,
        "outer_lr": outer_lr,
        "inner_lr": inner_lr,
        "l2": l2,
        "epochs": epochs,
        "batch_size": batch_size,
        **_learned_by(model, order),
    }
    asked = table.asked(train)
    with _one_line(debug, "" if checkpoint is None else "the same command with --resume continues"):
        request = Request(asked, out, relabel, settings, progress, checkpoint, resume, rows)
        summary = clean_digits(request) if train is None else clean_files(request)
    if as_json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    _console().print(terminal.shown(summary, out), highlight=False, markup=False)


@app.command()
@reads_a_table
def verify(
    train: Annotated[Path, typer.Argument(help=TRAIN_FORMATS)],
    table: TableOptions,
    out: Annotated[Path, typer.Option(help="Folder for verify.html.")] = Path("wior-verify"),
    rows: ROWS_TO_VERIFY = 100,
    fast: FAST = False,
    seed: SEED = 0,
    progress: PROGRESS = True,
    debug: DEBUG = False,
) -> None:
    """Choose rows to verify, or more of them, where they matter most, and write a page to do it."""
    from wior.cleaning.command import verify as verify_rows
    from wior.cleaning.request import Request

    asked = table.asked(train)
    settings = {"random_state": seed, "effort": _effort(fast, False)}
    with _one_line(debug):
        page = verify_rows(Request(asked, out, settings=settings, progress=progress, verify=rows, page_only=True))
    print(f"open {page} in a browser, verify its rows, and run the command that it shows")


def _effort(fast: bool, thorough: bool) -> str:
    if fast and thorough:
        raise typer.BadParameter("give --fast or --thorough, not both")
    return "fast" if fast else "thorough" if thorough else "usual"


def _learned_by(model: Learner, order: str) -> dict[str, Any]:
    """What learns, and in which order it sees the rows."""
    from wior.orders import BY_NAME

    if order not in BY_NAME:
        raise typer.BadParameter(f"--order must be one of {', '.join(BY_NAME)}; got {order!r}")
    learner: Any = model.value
    if model is Learner.trees:
        from sklearn.ensemble import HistGradientBoostingClassifier

        learner = HistGradientBoostingClassifier(max_iter=100, early_stopping=True)
    return {"model": learner, "order": BY_NAME[order]}


@app.command()
def apply(
    decisions: Annotated[Path, typer.Argument(help="The decisions exported from the review page.")],
    table: Annotated[Path, typer.Argument(help="What they are about: the input of wior clean.")],
    out: Annotated[Path | None, typer.Option(help="The corrected copy.  [default: NAME.corrected beside it]")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the labels.  [default: found]")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="The column with the ids.  [default: found]")] = None,
    as_json: AS_JSON = False,
    debug: DEBUG = False,
) -> None:
    """Write a copy of a table with the labels corrected as decided on the review page."""
    from wior.cleaning.apply import apply_decisions

    with _one_line(debug):
        done = apply_decisions(decisions, table, out, label=label, id_column=id_column)
    if as_json:
        print(
            json.dumps(
                {
                    "out": str(done.path),
                    "fixed": done.fixed,
                    "kept": done.kept,
                    "skipped": done.skipped,
                    "ambiguous": done.ambiguous,
                }
            )
        )
        return
    ambiguous = f", {done.ambiguous} ambiguous, which stay as they are" if done.ambiguous else ""
    print(f"{done.fixed} labels corrected, {done.kept} kept, {done.skipped} left open{ambiguous}: {done.path}")


@app.command()
def demo(
    rate: Annotated[float, typer.Option(help="Share of training labels made wrong.", callback=_rate)] = 0.5,
    noise: Annotated[Noise, typer.Option(help="A wrong label is any other class, or the next one.")] = Noise.uniform,
    seeds: SEEDS = 5,
    out: Annotated[Path, typer.Option(help="Folder for plot, curves and summary.")] = Path("wior-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the steps.")] = False,
    resume: RESUME = False,
    as_json: AS_JSON = False,
    progress: PROGRESS = True,
    debug: DEBUG = False,
) -> None:
    """Find wrong labels in the embedded digits under three orders.

    WiOR-BO under random reshuffling and shuffle once against WiR-BO with independent draws, at equal step sizes, batch
    size and steps. Takes about half a minute on two cores. An earlier demo's folder is replaced, any other one is
    refused.
    """
    from wior.experiments.demo import Demo, tables

    with _one_line(debug):
        experiment = Demo(rate, noise.value)
    summary = _perform(experiment, "demo", out, (None, seeds, quick, progress), resume, debug)
    if as_json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    _console().print(tables(summary), highlight=False)


@app.command()
def reproduce(
    figure: Annotated[
        Figure, typer.Argument(help="irm, cleaning, omniglot, miniimagenet: figures 1 to 4; rates: table 1.")
    ],
    out: OUT = None,
    data: DATA = None,
    seeds: SEEDS = 5,
    quick: QUICK = False,
    only: Annotated[str, typer.Option(help="Of omniglot and miniimagenet: some panels, for example 5x1,5x5.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 3 unless every claim holds.")] = False,
    resume: RESUME = False,
    as_json: AS_JSON = False,
    progress: PROGRESS = True,
    debug: DEBUG = False,
) -> None:
    """Run one of the paper's experiments and judge its claims.

    Writes figures (PNG, PDF), report.md with the verdicts, summary.json, history.jsonl and config.json into a folder.
    The full versions of cleaning, omniglot and miniimagenet want a GPU.
    """
    from wior.experiments.experiment import Options
    from wior.experiments.reproduce import EXPERIMENTS

    given = (data, seeds, quick, progress, _names(only))
    if only:
        panels = getattr(EXPERIMENTS[figure.value], "panels", None)
        if panels is None:
            raise typer.BadParameter(
                f"--only is for figures with panels, omniglot and miniimagenet, not for {figure.value}"
            )
        try:
            panels(Options(*given))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    summary = _perform(EXPERIMENTS[figure.value], f"reproduce {figure.value}", out, given, resume, debug)
    _show(summary, as_json)
    if strict and any(claim["verdict"] != "holds" for claim in summary["claims"]):
        raise typer.Exit(NOT_ALL_HOLD)


@app.command()
def run(
    task: TASK,
    method: Annotated[
        str, typer.Option(help="A method, see 'wior list'.  [default: the paper's for the problem]")
    ] = "",
    order: Annotated[str, typer.Option(help="The order of the examples.")] = "random-reshuffling",
    outer_lr: OUTER_LR = "",
    inner_lr: INNER_LR = "",
    steps: STEPS = None,
    batch_size: BATCH = None,
    seeds: SEEDS = 1,
    out: OUT = None,
    data: DATA = None,
    quick: QUICK = False,
    resume: RESUME = False,
    as_json: AS_JSON = False,
    progress: PROGRESS = True,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="This is one process of many, joined by SLURM, Open MPI, Kubernetes or a cloud TPU."
        ),
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="With --distributed anywhere else: host:port of process 0.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="The number of processes.")] = None,
    process_id: Annotated[int | None, typer.Option(min=0, help="The number of this process, from 0.")] = None,
    debug: DEBUG = False,
) -> None:
    """Run one method under one order on a task.

    Where several step sizes are given, or none, the best of them is chosen and reported. With --distributed each device
    of all processes computes its share of every batch; --out is a folder that all processes see, and process 0 writes
    and prints.
    """
    contest = _contest(task, method, order, steps, batch_size, outer_lr, inner_lr)
    given = (data, seeds, quick, progress, (), distributed)
    with _in_company(distributed, (coordinator, processes, process_id), debug) as is_first:
        summary = _perform(contest, f"run {task}", out, given, resume, debug)
        if is_first:
            _show(summary, as_json)


@app.command()
def compare(
    task: TASK,
    methods: Annotated[
        str, typer.Option(help="Methods with commas between, see 'wior list'.  [default: the paper's]")
    ] = "",
    orders: Annotated[
        str, typer.Option(help="Orders with commas between.")
    ] = "independent,shuffle-once,random-reshuffling",
    outer_lr: OUTER_LR = "",
    inner_lr: INNER_LR = "",
    steps: STEPS = None,
    batch_size: BATCH = None,
    seeds: SEEDS = 5,
    out: OUT = None,
    data: DATA = None,
    quick: QUICK = False,
    resume: RESUME = False,
    as_json: AS_JSON = False,
    progress: PROGRESS = True,
    debug: DEBUG = False,
) -> None:
    """Compare methods and orders on a task.

    Every method under every order, each tuned over the same grid of step sizes, with the same batches and seeds.
    """
    contest = _contest(task, methods, orders, steps, batch_size, outer_lr, inner_lr)
    _show(_perform(contest, f"compare {task}", out, (data, seeds, quick, progress), resume, debug), as_json)


@app.command()
def tasks() -> None:
    """List the tasks for run and compare."""
    from rich import box
    from rich.table import Table

    from wior.experiments.named_tasks import TASKS

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("task", "what it is", "problem", "data"):
        table.add_column(title)
    for name, task in TASKS.items():
        table.add_row(name, task.about, task.problem.__name__, task.data)
    _console().print(table, highlight=False)


@contextlib.contextmanager
def _in_company(distributed: bool, where: tuple[str | None, int | None, int | None], debug: bool) -> Iterator[bool]:
    """Joins this process to the others of a run; yields whether it is the one that prints."""
    if not distributed:
        if any(value is not None for value in where):
            raise typer.BadParameter("--coordinator, --processes and --process-id are for --distributed")
        yield True
        return
    from wior.devices import hosts

    # what collectives on a CPU have to say would stand in the output
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding="utf-8")
    with _one_line(debug):
        hosts.join(*where)
    try:
        yield hosts.is_first()
    except typer.Exit as ended:
        hosts.leave(ended.exit_code)  # the others would wait for this process, and it for them


def _contest(
    task: str, methods: str, orders: str, steps: int | None, batch_size: int | None, outer_lr: str, inner_lr: str
) -> Any:
    from wior.experiments.contest import Contest

    rates = _numbers("--outer-lr", outer_lr), _numbers("--inner-lr", inner_lr)
    try:
        return Contest(task, _names(methods), _names(orders), steps, batch_size, *rates)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _perform(
    experiment: Any, command: str, out: Path | None, given: tuple[Any, ...], resume: bool, debug: bool
) -> dict[str, Any]:
    """The summary of an experiment, or one readable line and an exit code."""
    from wior.experiments.experiment import Options, perform

    folder = out or Path("wior-" + command.replace(" ", "-"))
    with _one_line(debug, f"'wior {command} --resume' with the same options continues"):
        return {**perform(experiment, command, folder, Options(*given), resume=resume), "folder": str(folder)}


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    from wior.experiments.terminal import shown

    _console().print(shown(summary), highlight=False)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _widths(text: str) -> tuple[int, ...]:
    if not all(name.isdecimal() and int(name) > 0 for name in _names(text)):
        raise typer.BadParameter(f"--hidden must be positive whole numbers with commas between, got {text!r}")
    return tuple(int(name) for name in _names(text))


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(name) for name in _names(text))
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, got {text!r}") from None
    if any(not 0 < number < float("inf") for number in numbers):
        raise typer.BadParameter(f"{option} must be positive, got {text!r}")
    return numbers


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
        name = next(kind.__name__ for kind in CLASSES if kind.name == problem)
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


@contextlib.contextmanager
def _one_line(debug: bool, interrupted: str = "") -> Iterator[None]:
    """An error is one readable line and exit code 1, or a traceback if that is asked for.

    What ends the program is one line as well, with `interrupted`, how to go on, and the exit code of the signal.
    """
    with as_ctrl_c() as ending, _warnings_in_a_line():
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if comes_from_interruption(error):
                _say("; ".join(filter(None, ("interrupted", interrupted))))
                raise typer.Exit(ending.code) from None
            if debug:
                raise
            _say(_readable(error))
            raise typer.Exit(1) from None


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """A warning is one line without the code that it comes from; what is said of many steps is said once."""
    before, said = warnings.showwarning, set()

    def show(message: Warning | str, *about: Any, **more: Any) -> None:
        text = str(message)
        kind = re.sub(r"\d+", "", text)
        if kind not in said:
            said.add(kind)
            _say(f"warning: {text}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _readable(error: BaseException) -> str:
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
    except typer.Abort:  # Ctrl-C before the work began
        _say("interrupted")
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
