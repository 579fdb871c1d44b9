"""What the summary, the pictures and the terminal make of a cleaning."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from wior.cleaning import output, plots, summary, terminal
from wior.cleaning.choosing import TEMPERATURES, Trial
from wior.cleaning.designs import Setting


class Fitted(NamedTuple):
    """What the summary asks of a cleaner."""

    trials_: list
    choice_: dict


A, B = Setting("noise", "counted", 1.0, 0.1, 1.0), Setting("noise", "trusting", 2.0, 0.1, 0.0)


def trial(setting, fold, *losses, end=10):
    steps = np.linspace(0, end, len(losses)).astype(int)
    return Trial(setting, fold, steps, np.outer(losses, np.ones(len(TEMPERATURES))))


def diverged(setting, fold, end):
    return Trial(setting, fold, np.full(1, end), np.full((1, len(TEMPERATURES)), np.inf))


def test_candidates_that_diverged_are_listed_without_a_loss():
    heat = [trial(A, 0, 3, 2, end=4), trial(A, 1, 3, 4, end=4), trial(B, 0, 1, 1, end=4), diverged(B, 1, 4)]
    last = [trial(A, 0, 3, 2, 1), trial(A, 1, 3, 4, 1)]
    found = summary.trials(Fitted(heat + last, {}))
    assert [(one["start"], one["steps"], one["best_steps"], one["held_out_loss"]) for one in found] == [
        ("counted", 4, 0, 3.0),
        ("trusting", 4, None, None),
        ("counted", 10, 10, 1.0),
    ]
    json.dumps(found, allow_nan=False)


def test_learning_curves_are_those_that_ran_to_the_end_on_every_fold():
    heat = [trial(B, fold, 1, 1, end=4) for fold in (0, 1)]
    last = [trial(A, 0, 3, 2, 1), trial(A, 1, 3, 4, 1), trial(B, 0, 3, 2, 1), diverged(B, 1, 10)]
    (found,) = output.learning_curves(Fitted(heat + last, {"steps_at_most": 10}))
    assert found.name == "loss on held-out verified rows (noise, counted start, η 1, γ 0.1, λ 1)"
    assert (found.steps, found.values) == ([0, 5, 10], [3.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("cat", "cat"),
        ("$x_1$ and $", r"\$x_1\$ and \$"),
        ("Katze: schön, Größe", "Katze: schön,…"),
        ("猫", "?"),
        ("a\tb\x1b[31m\n", "a?b?[31m?"),
        ("", ""),
    ],
)
def test_names_in_plots_are_drawn_as_they_stand(name, drawn):
    assert plots.plain(name) == drawn


def test_plots_of_many_classes_without_anything_flagged(tmp_path):
    plots.save(tmp_path, np.ones(40), 0.5, [], np.eye(21), [f"class {number}" for number in range(21)])
    assert {path.name for path in tmp_path.iterdir()} == {"overview.png", "overview.pdf"}


def test_the_classes_with_the_most_mistakes_are_shown_and_the_others_as_one():
    table = np.eye(40) * 0.9 + np.eye(40)[:, [*range(1, 40), 0]] * 0.1
    for place in (3, 17, 39):  # a half of each of them is labeled 5
        table[place] = 0
        table[place, [place, 5]] = 0.5
    shown, names = plots.busiest(table, [f"class {number}" for number in range(40)])
    assert shown.shape == (16, 16)
    assert names[-1] == "25 others"
    assert {"class 3", "class 5", "class 17", "class 39"} < set(names)
    np.testing.assert_allclose(shown.sum(1), 1)
    assert shown[names.index("class 17"), names.index("class 5")] == 0.5
    places = [int(name.split()[1]) for name in names[:-1]]
    rest = [place for place in range(40) if place not in places]
    np.testing.assert_allclose(shown[-1, :-1], table[np.ix_(rest, places)].mean(0))
    np.testing.assert_allclose(shown[:-1, -1], table[np.ix_(places, rest)].sum(1))
    same, few = plots.busiest(table[:15, :15], names[:15])
    assert (len(same), few) == (15, names[:15])


@pytest.mark.parametrize(
    ("label", "shown"),
    [("cat", "cat"), ("a\n b", "a b"), (" ", "' '"), ("[bold]x", "[bold]x"), ("\x1b[31mred", "?[31mred"), ("x" * 40, "x" * 29 + "…")],
)  # fmt: skip
def test_labels_in_the_terminal_are_one_line_and_no_orders_to_it(label, shown):
    assert terminal.short(label).plain == shown


@pytest.mark.parametrize(
    ("kept", "relabeled", "text"),
    [(10, 0, "10 rows"), (7, 0, "7 rows, 3 left out"), (10, 3, "10 rows, 3 relabeled"), (9, 2, "9 rows, 2 relabeled, 1 left out")],
)  # fmt: skip
def test_the_terminal_says_what_became_of_the_rows(kept, relabeled, text):
    cleaned = {"file": "cleaned.csv", "rows": kept, "relabeled": relabeled}
    table = terminal.files({"rows": 10, "cleaned": cleaned, "to_verify": 0}, Path("out"))
    names, whats = (list(column.cells) for column in table.columns)
    assert [name.plain for name in names] == [
        f"out/{name}" for name in ("review.html", "rows.csv", "cleaned.csv", "overview.png")
    ]
    assert whats[2] == text
    first = terminal.files({"rows": 10, "cleaned": cleaned, "to_verify": 1200}, Path("out"))
    assert next(iter(first.columns[0].cells)).plain == "out/verify.html"
    assert next(iter(first.columns[1].cells)) == ("open it first: verify 1,200 rows, and run the command that it shows")
