"""What the figures conclude, on curves made by hand."""

import dataclasses

import numpy as np
import pytest

from small_comparisons import named, outcome, small_task
from wior.experiments import cleaning, few_shot, irm
from wior.tasks.task import Measure


def cleaning_outcomes(**last):
    """Clean losses that fall on straight lines from 4 to the given ends, F1 from 0.1 to one less a tenth of the loss."""
    task = dataclasses.replace(
        small_task(),
        measures={"clean_loss": Measure("loss"), "f1": Measure("F1", largest=True)},
        judged_by="clean_loss",
    )
    found = []
    for label, end in ({cleaning.SO: 1.0, cleaning.RR: 1.0, cleaning.WIR: 2.0, "MRBO": 3.0} | last).items():
        loss = np.linspace(4.0, end, 5) + np.array([[0.01], [-0.01]])
        one = outcome(loss, label=label)
        history = {**one.history, "clean_loss": loss, "f1": 1 - loss / 10}
        found.append(dataclasses.replace(one, history=history))
    return task, found


@pytest.mark.parametrize(
    ("last", "verdicts"),
    [
        ({}, ["holds", "holds", "holds", "partly"]),
        ({"MRBO": 0.5}, ["holds", "does not hold", "does not hold", "partly"]),
        ({cleaning.SO: 3.0}, ["does not hold", "does not hold", "does not hold", "partly"]),
        ({cleaning.WIR: 0.5}, ["holds", "does not hold", "does not hold", "does not hold"]),
        ({cleaning.WIR: 5.0}, None),
        ({cleaning.WIR: np.nan}, None),
        ({cleaning.RR: np.nan}, None),
    ],
    ids=["as the paper", "another is better", "orders differ", "WiR is better", "WiR goes up", "WiR diverged", "RR diverged"],
)  # fmt: skip
def test_cleaning_judges_its_claims(last, verdicts):
    found = cleaning.claims(*cleaning_outcomes(**last))
    assert verdicts is None or [claim.verdict for claim in found] == verdicts
    assert all(claim.evidence for claim in found)


def few_shot_outcomes(**last):
    task = dataclasses.replace(
        small_task(), measures={"accuracy": Measure("accuracy", largest=True)}, judged_by="accuracy"
    )
    found = []
    for label, end in ({few_shot.SO: 0.9, few_shot.RR: 0.9, few_shot.DLSGD: 0.7, few_shot.RTMLMC: 0.9} | last).items():
        accuracy = np.linspace(0.2, end, 5) + np.array([[0.001], [-0.001]])
        one = outcome(accuracy, label=label)
        found.append(dataclasses.replace(one, history={**one.history, "accuracy": accuracy}))
    panel = few_shot.PANELS[0]
    return {panel: task}, {panel: found}


@pytest.mark.parametrize(
    ("last", "verdicts"),
    [
        ({}, ["holds", "holds", "holds"]),
        ({few_shot.DLSGD: 0.95}, ["does not hold", "holds", "holds"]),
        ({few_shot.SO: 0.8}, ["holds", "partly", "partly"]),
        ({few_shot.RTMLMC: np.nan}, ["holds", "holds", "holds"]),
        ({few_shot.WIR: 0.7}, ["holds", "holds", "holds", "holds"]),
        ({few_shot.WIR: 0.75}, ["holds", "holds", "holds", "does not hold"]),
    ],
)
def test_few_shot_judges_its_claims(last, verdicts):
    assert [claim.verdict for claim in few_shot.claims(*few_shot_outcomes(**last))] == verdicts


def irm_outcomes(wir, so, rr):
    found = []
    for label, end in {irm.WIR: wir, irm.SO: so, irm.RR: rr, irm.HERDING: so}.items():
        gap = np.geomspace(100.0, end, 5) * np.array([[1.01], [0.99]])
        found.append(outcome(gap, label=label))
    return {"regime": (named(), found)}


@pytest.mark.parametrize(
    ("last", "expected", "transient"),
    [
        ((1.0, 0.1, 0.1), "holds", False),
        ((1.0, 0.1, 2.0), "partly", False),
        ((1.0, 2.0, 2.0), "does not hold", False),
        ((50.0, 50.0, 50.0), "does not hold", True),
    ],
)
def test_irm_judges_its_claim_and_says_where_it_is_too_early(last, expected, transient):
    (claim,) = irm.claims(irm_outcomes(*last))
    assert claim.verdict == expected
    assert ("transient" in claim.evidence) == transient
