"""Summaries for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from wior.experiments.comparison import in_microseconds, with_deviation

COLORS = {"holds": "green", "partly": "yellow", "does not hold": "red"}
SHOWN = 2  # measures in a table of 100 columns


def shown(summary: Mapping[str, Any]) -> Group:
    """Verdicts, a table for each comparison, and where everything is."""
    parts: list[Any] = []
    for claim in summary["claims"]:
        row = Table.grid(padding=(0, 2))
        row.add_column(justify="right", width=13)
        row.add_column()
        row.add_row(Text(claim["verdict"], f"bold {COLORS[claim['verdict']]}"), claim["text"])
        row.add_row("", Text(claim["evidence"], "dim"))
        parts += [row, ""]
    for title, rows in _groups(summary).items():
        parts += [_table(title, rows), ""]
    return Group(*parts, Text(f"Report, figures and numbers: {summary['folder']}/"))


def _groups(summary: Mapping[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    if "methods" in summary:
        return {"": summary["methods"]}
    if "panels" in summary:
        return {name: panel["methods"] for name, panel in summary["panels"].items()}
    return dict(summary.get("regimes", {}))


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    measures = [name for name, value in rows[0].items() if isinstance(value, Mapping) and "mean" in value][:SHOWN]
    table.add_column("method", no_wrap=True)
    for name in (*measures, "µs"):
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    table.add_column("step sizes")
    for row in rows:
        sizes = "diverged" if row["diverged"] else ", ".join(f"{value:g}" for value in row["setting"].values())
        table.add_row(row["label"], *(with_deviation(row[name], 1) for name in measures), in_microseconds(row), sizes)
    return table
