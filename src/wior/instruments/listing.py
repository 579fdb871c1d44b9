"""The table of `wior list`: as text for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wior.instruments.methods import BATCHES, REQUIRED, STEPS, Method

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

COSTS = (
    "With default hyper-parameters. Batches: those a step draws, outer + inner. Gc(f), Gc(g), JV, HV: gradients of f "
    "and g and products with second derivatives of g in a step, in batches. Passes: backward passes; a large batch "
    f"takes as many as a small one. ~: differs from step to step, the mean of {STEPS} steps. Memory: what a run "
    f"carries from step to step. The data have {BATCHES} batches at each level; for conditional problems, calls are "
    f"those for one outer example, whose inner set has {BATCHES} batches."
)
PARAMETERS = "Those without a default are required; those named *_lr are step sizes, numbers or schedules."

CALLS = {
    "Gc(f)": "outer_gradients",
    "Gc(g)": "inner_gradients",
    "JV": "jacobian_products",
    "HV": "hessian_products",
    "passes": "backward_passes",
}
NUMBERS = ("batches", *CALLS)
GAP = 2
MEMORY, PAPER = 11, 29  # the narrowest that these columns may be


def as_json(method: Method) -> dict[str, Any]:
    """All that is known of a method, and what it was measured on."""
    return {
        **{field.name: getattr(method, field.name) for field in dataclasses.fields(method)},
        "algorithm": f"{method.algorithm.__module__}.{method.algorithm.__qualname__}",
        # JSON has no infinity
        "parameters": {name: str(value) if value == math.inf else value for name, value in method.parameters.items()},
        "varies": method.varies,
        "measured_on": {"batches": BATCHES, "steps": STEPS},
    }


def costs(method: Method) -> dict[str, str]:
    outer, inner = method.batches
    return {
        "method": method.name,
        "solves": ", ".join(method.solves),
        "batches": f"{outer} + {inner}" if inner else str(outer),
        **{short: _number(method.calls[name], *method.bounds[name]) for short, name in CALLS.items()},
        "memory": method.memory,
        "paper": method.paper,
    }


def _number(mean: float, fewest: int, most: int) -> str:
    return str(most) if fewest == most else f"~{mean:.3g}" if mean < 100 else f"~{mean:.0f}"


def parameters(method: Method) -> dict[str, str]:
    shown = [
        name if value is REQUIRED else f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in method.parameters.items()
    ]
    return {"method": method.name, "solves": ", ".join(method.solves), "parameters": ", ".join(shown)}


def markdown(rows: list[dict[str, str]]) -> str:
    rule = {name: "---:" if name in NUMBERS else "---" for name in rows[0]}
    lines = ({name: name for name in rule}, rule, *rows)
    return "\n".join(f"| {' | '.join(line.values())} |" for line in lines)


def tables(found: list[Method], row: Callable[[Method], dict[str, str]], caption: str, width: int) -> Group:
    """One table for each group of methods that solve the same problems, all with the same columns."""
    from rich.console import Group
    from rich.text import Text

    rows = [{name: cell for name, cell in row(method).items() if name != "solves"} for method in found]
    rows = [
        {name: cell.replace(" + (", "\n+ (") for name, cell in cells.items()} for cells in rows
    ]  # tables of a memory
    widths = _widths(rows, width)
    parts: list[Any] = []
    for solves in dict.fromkeys(method.solves for method in found):
        restated = f", and {' and '.join(solves[1:])} problems restated" if solves[1:] else ""
        own = [cells for method, cells in zip(found, rows, strict=True) if method.solves == solves]
        parts += [Text(f"{solves[0]} problems{restated}", "bold"), _table(own, widths), ""]
    if "paper" in rows[0] and "paper" not in widths:
        papers = [{name: cells[name] for name in ("method", "paper")} for cells in rows]
        parts += [Text("Papers", "bold"), _table(papers, _widths(papers, width)), ""]
    return Group(*parts, Text(caption, "dim"))


def _table(rows: list[dict[str, str]], widths: dict[str, int]) -> Table:
    from rich.table import Table

    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for name, width in widths.items():
        made.add_column(name, justify="right" if name in NUMBERS else "left", width=width)
    for cells in rows:
        shortened = {"paper": _short(cells["paper"], widths["paper"])} if "paper" in widths else {}
        made.add_row(*((cells | shortened)[name] for name in widths))
    return made


def _widths(rows: list[dict[str, str]], width: int) -> dict[str, int]:
    """The width of each column; without the papers where there is no room for them beside the rest."""
    lines = {name: [line for cells in rows for line in cells[name].splitlines()] for name in rows[0]}
    widths = {name: max(map(len, [name, *lines[name]])) for name in lines}
    flexible = [name for name in ("memory", "paper", "parameters") if name in widths]
    room = width - sum(widths[name] + GAP for name in widths if name not in flexible)
    if flexible == ["memory", "paper"]:
        widths["paper"] = min(widths["paper"], room - GAP - MEMORY)
        if widths["paper"] < PAPER:
            del widths["paper"], flexible[1]
        else:
            room -= widths["paper"] + GAP
    widths[flexible[0]] = max(MEMORY, min(widths[flexible[0]], room))
    return widths


def _short(paper: str, width: int) -> str:
    """The paper, with its first author alone where all do not fit."""
    first, *others, venue = paper.split(", ")
    return f"{first} et al., {venue}" if others and len(paper) > width else paper
