"""A small task, curves made by hand, and what is asked of every table and picture."""

import dataclasses
import functools
import itertools

import matplotlib.image
import numpy as np

import wior
from wior.experiments.comparison import CALLS, Entrant, Outcome
from wior.orders import RandomReshuffling
from wior.tasks.portfolio import portfolio
from wior.tasks.task import Measure


def entrant(kind=wior.WiORComp, order=RandomReshuffling(), **fixed):
    return Entrant(f"{kind.__name__}, {type(order).__name__}", kind, order, fixed)


def outcome(metric, pace=0.5, settings=({"outer_lr": 1.0},), best=0, label="one"):
    metric = np.asarray(metric, float)
    steps = 10 * np.arange(metric.shape[1])
    history = {"gap": metric, "step": steps, **dict.fromkeys(CALLS, 3.0 * steps)}
    scores = np.array([float(i) for i in range(len(settings))])
    return Outcome(label, list(settings), scores, best, list(range(len(metric))), history, pace, 1.0)


def named(largest=False):
    return dataclasses.replace(small_task(), measures={"gap": Measure("gap", largest=largest)})


@functools.cache
def small_task():
    task = portfolio(assets=3, periods=20, factors=2, batch_size=4, steps=STEPS)
    return dataclasses.replace(task, grid={"outer_lr": (0.003, 0.03), "inner_lr": (0.5,)})


SEEDS, STEPS = 2, 40


def assert_tables(text, columns=None):
    """Every row of a Markdown table has as many cells as its title."""
    tables = [
        list(rows) for is_row, rows in itertools.groupby(text.splitlines(), lambda line: line.startswith("|")) if is_row
    ]
    assert tables
    for rows in tables:
        assert {row.count("|") for row in rows} == {rows[0].count("|") if columns is None else columns + 1}


def assert_pictures(folder, name):
    picture = matplotlib.image.imread(folder / f"{name}.png")
    assert picture.shape[0] > 200
    assert picture.shape[1] > 400
    assert picture[..., :3].std() > 0.02
    pdf = (folder / f"{name}.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert b"%%EOF" in pdf[-32:]
    assert len(pdf) > 4000
