"""What a user is told of the findings."""

import numpy as np
import pytest

from wior.cleaning.estimates import Estimates, Interval
from wior.cleaning.findings import Findings, notes, sentence

NOTHING = np.zeros(8, bool)


def found(**changes):
    """Eight rows, of which two are flagged, and an estimate that fits."""
    scores = np.array([0.9, 0.9, 0.1, 0.9, 0.2, 0.9, 0.9, 0.9])
    made = {
        "given": np.array([0, 0, 0, 1, 1, 2, 2, 2]),
        "suggested": np.array([0, 0, 1, 1, 2, 2, 2, 2]),
        "scores": scores,
        "confidence": np.array([0.9, 0.9, 0.8, 0.9, 0.1, 0.9, 0.9, 0.9]),
        "weights": scores,
        "flagged": scores < 0.5,
        "known": NOTHING,
        "threshold": 0.5,
        "classes": ["ape", "bee", "cow"],
        "estimates": Estimates(Interval(1.2, 2.0, 3.4), Interval(0.6, 0.9, 1.0), None, 20),
        "disagreeing": 0.5,
        "paired": NOTHING,
        "drawn": NOTHING,
        "beside": 0,
    }
    return Findings(**{**made, **changes})


def some(*places):
    return np.isin(np.arange(8), places)


def test_where_all_agrees_nothing_is_noted():
    assert notes(found(), relabel=False) == []


def test_a_row_is_relabeled_where_another_label_is_likelier_than_its_own():
    """Not the fifth, whose suggested label is as unlikely as its own."""
    assert found().changed.tolist() == some(2).tolist()
    assert not found().corrected(relabel=False).any()
    assert found().corrected(relabel=True).tolist() == some(2).tolist()


def test_what_somebody_verified_is_corrected_in_any_case():
    known = found(known=some(2, 3), scores=np.array([0.9, 0.9, 0, 1, 0.2, 0.9, 0.9, 0.9]))
    for relabel in (False, True):
        assert known.corrected(relabel).tolist() == some(2).tolist()


def test_a_class_does_not_vanish_in_silence():
    every = found(flagged=some(3, 4), estimates=Estimates(Interval(1.2, 2.0, 3.4), None, None, 20))
    note = "every row labeled 'bee' is flagged: the cleaned copy has none of them"
    assert notes(every, relabel=False) == [note]
    into = every._replace(suggested=np.array([0, 0, 1, 0, 2, 2, 2, 2]), confidence=np.ones(8))
    assert notes(into, relabel=True) == [note]
    verified = into._replace(known=some(2), flagged=some(2, 3, 4))  # it becomes a bee
    assert notes(verified, relabel=False) == []


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "no row is verified, so the scores are a model's word alone; verify some rows: verify.html"),
        ({"beside": 5}, "the verified rows are not rows of the table, so they do not say how its labels are wrong; "
            "'wior verify' chooses some of the table"),
        ({"known": some(1)}, "the verified rows do not say how labels are wrong, since the labels given to them are not known"),
        ({"known": some(1), "paired": some(1)}, "the verified rows were looked at because of their scores, so they do not "
            "say how many labels are wrong; 'wior verify' chooses others"),
        ({"known": some(1), "paired": some(1), "drawn": some(1)}, "1 verified row cannot say how many labels are wrong; it "
            "takes 10 at least"),
        ({"known": some(1, 3), "paired": some(1, 3), "drawn": some(1, 3)}, "2 verified rows cannot say how many labels are "
            "wrong; it takes 10 at least"),
    ],
)  # fmt: skip
def test_why_nobody_knows_how_many_labels_are_wrong(changes, note):
    assert notes(found(estimates=None, **changes), relabel=False) == [note]


def test_scores_that_do_not_fit_the_verified_rows_are_named():
    off = Estimates(Interval(3000.2, 3500.0, 4000.4), Interval(0.1, 0.2, 0.3), None, 20)
    assert notes(found(estimates=off), relabel=False) == [
        "the scores say that 2 labels are wrong, the verified rows between 3,000 and 4,000: trust the verified rows, and "
        "verify more",
        "of flagged rows 85% are wrong by their scores, but 10% to 30% by 20 verified rows",
    ]


def test_flags_of_verified_rows_alone_are_no_flags_to_doubt():
    off = Estimates(Interval(1.2, 2.0, 3.4), Interval(0.1, 0.2, 0.3), None, 20)
    assert notes(found(estimates=off, known=some(2, 4)), relabel=False) == []


def test_how_many_labels_are_wrong_in_a_sentence():
    assert sentence(found()) == "between 1 and 3 of 8 labels are wrong"
    alone = found(estimates=None)
    assert sentence(alone) == "a first guess: between 2 and 4 of 8 labels are wrong; verified rows will tell"
    level = sentence(alone._replace(disagreeing=0.1))
    assert level == "a first guess: about 2 of 8 labels are wrong; verified rows will tell"
    assert sentence(alone._replace(disagreeing=float("nan"))) == "about 2 of 8 labels are wrong, by the models alone"
