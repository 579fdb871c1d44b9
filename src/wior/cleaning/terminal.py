"""The summary of `wior clean` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from wior.cleaning.summary import COMMONEST

SHOWN = 5  # pairs of labels
WIDEST = 30  # of a label


def shown(summary: Mapping[str, Any], folder: Path) -> Group:
    """What was found, where to look, and what to do next."""
    flagged, rows = summary["flagged"], summary["rows"]
    parts: list[Any] = [
        Text(f"{flagged:,} of {rows:,} labels are probably wrong ({flagged / rows:.1%})", "bold"),
        Text(f"judged with {summary['verified_rows']:,} verified rows", "dim"),
    ]
    if summary["estimates"] is not None or not summary["verified_rows"]:
        parts.insert(1, Text(summary["estimate"]))
    if summary["estimates"] is not None:
        parts.append(Text(expected(summary["estimates"]), "dim"))
    if summary["commonest_changes"]:
        parts += ["", changes(summary)]
    if "demo" in summary:
        parts += [against_the_truth(summary["demo"])]
    parts += [
        Text(chosen(summary["choice"]), "dim"),
        *(Text(f"Note: {note}", "yellow") for note in summary["notes"]),
        "",
        files(summary, folder),
    ]
    return Group(*parts)


def expected(found: Mapping[str, Any]) -> str:
    """How good the flags are by the verified rows."""
    said = [
        f"{name} {found[key]['low']:.0%} to {found[key]['high']:.0%}"
        for name, key in (("of flagged rows are wrong:", "precision"), ("of wrong rows are flagged:", "recall"))
        if found[key] is not None
    ]
    return f"by {found['pairs']:,} verified rows, with 95% confidence: " + ", ".join(said) if said else ""


def chosen(choice: Mapping[str, Any]) -> str:
    if choice["weighting"] == "opinions":
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in choice["opinions"].items() if weight > 0.005)
        by = "Models and their weights, chosen by verified rows" if len(choice["opinions"]) > 1 else "Model"
        return f"{by}: {weights} ({choice['model']})"
    return (
        f"Chosen by verified rows that were held out: {choice['weighting']} model, {choice['start']} start, "
        f"step sizes {choice['outer_lr']:g} and {choice['inner_lr']:g}, {choice['steps']} steps of "
        f"{choice['batch_size']} rows, {choice['model']} {'-'.join(map(str, choice['hidden']))}".rstrip()
    )


def changes(summary: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("given")
    table.add_column("suggested")
    table.add_column("rows", justify="right")
    for change in summary["commonest_changes"][:SHOWN]:
        table.add_row(short(change["given"]), short(change["suggested"]), f"{change['rows']:,}")
    more = sum(change["rows"] for change in summary["commonest_changes"][SHOWN:])
    if more:
        table.add_row(
            Text("others", "dim"), "", f"{more:,}" + ("+" if len(summary["commonest_changes"]) == COMMONEST else "")
        )
    return table


def against_the_truth(demo: Mapping[str, Any]) -> Group:
    found = Table(box=box.SIMPLE_HEAD, title=f"Against the truth: {demo['wrong']} of {demo['rows']} labels are wrong")
    gained = Table(box=box.SIMPLE_HEAD, title=f"What a model gains, on {demo['test_rows']} test rows")
    for table in (found, gained):
        table.title_justify, table.title_style = "left", "bold"
    for name in ("precision", "recall", "F1", "AUROC", "right after --relabel"):
        found.add_column(name, justify="right")
    values = (demo["precision"], demo["recall"], demo["f1"], demo["auroc"], demo["right_after_relabeling"])
    found.add_row(*(f"{value:.3f}" for value in values))
    gained.add_column("trained on")
    gained.add_column("accuracy", justify="right")
    for name, value in demo["test_accuracy"].items():
        gained.add_row(name, f"{value:.3f}")
    return Group(found, gained)


def files(summary: Mapping[str, Any], folder: Path) -> Table:
    table = Table.grid(padding=(0, 2))
    cleaned = summary["cleaned"]
    left_out = summary["rows"] - cleaned["rows"]
    copied = (
        (True, f"{cleaned['rows']:,} rows"),
        (cleaned["relabeled"], f"{cleaned['relabeled']:,} relabeled"),
        (left_out, f"{left_out:,} left out"),
    )
    to_verify = summary["to_verify"]
    first = [("verify.html", f"open it first: verify {to_verify:,} rows, and run the command that it shows")]
    for name, what in (
        *(first if to_verify else []),
        ("review.html", "open it in a browser: look at the flagged rows, keep, fix or skip, export the decisions"),
        ("rows.csv", "score, weight and suggested label of every row"),
        (cleaned["file"], ", ".join(text for count, text in copied if count)),
        ("overview.png", "scores, learning curves, how a class is labeled"),
    ):
        table.add_row(Text(str(folder / name), "bold"), what)
    return table


def short(label: str) -> Text:
    text = " ".join(label.split()) or repr(label)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)  # a terminal obeys what is not
    return Text(text if len(text) <= WIDEST else text[: WIDEST - 1] + "…")
