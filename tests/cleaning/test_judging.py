"""Which opinions are formed, in which order, and by what verified rows judge them."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from opinion_rows import opinion_rows
from wior.cleaning import judging
from wior.cleaning.judging import LEARNERS, How, judge
from wior.cleaning.models import Network
from wior.cleaning.opinions.corrected import ENOUGH, without
from wior.cleaning.opinions.discriminants import log_normalized
from wior.cleaning.opinions.taught import TaughtClassifier, TaughtNetwork

ROWS, TRUE = opinion_rows(count=300, pairs=60), opinion_rows(count=300, pairs=300).right
NETWORK = TaughtNetwork(Network.standardizing(ROWS.features, (), 3), jnp.asarray(ROWS.features), 20)


def opinion(good):
    """An opinion that knows all, or nothing."""
    logs = log_normalized(9.0 * np.eye(3, dtype=np.float32)[TRUE]) if good else np.full((len(TRUE), 3), -np.log(3.0))
    return lambda rows: (logs[rows.parts == part] for part in range(5))


@pytest.fixture
def formed(monkeypatch):
    """The opinions that were begun; `good` of them know the right labels."""
    begun, good = [], set()

    def stands_in(name, rows):
        begun.append(name)
        return opinion(name in good)(rows)

    monkeypatch.setattr(judging, "of_forward", lambda learner, rows, *_: stands_in("forward", rows))
    monkeypatch.setattr(judging, "of_bilevel", lambda learner, rows, *_: stands_in("bilevel", rows))
    monkeypatch.setattr(judging, "of_taught", lambda learner, rows, *_: stands_in("taught", rows))
    return begun, good


def judged(learners, rows=ROWS, learner=NETWORK):
    return judge(rows, How(learner, learners, None, 0), None, lambda _: None)


@pytest.mark.parametrize("effort", ["usual", "thorough"])
def test_a_network_is_never_taught_by_kept_rows_which_verified_rows_would_judge_too_kindly(formed, effort):
    begun, good = formed
    found = judged(LEARNERS[effort])
    assert begun == [name for name in LEARNERS[effort] if name in ("forward", "bilevel")]
    assert found.combined.weights.keys() == {"corrected", "verified", "given", "neighbors"}
    begun.clear()
    good.add("forward")
    found = judged(LEARNERS[effort])
    assert begun == [name for name in LEARNERS[effort] if name in ("forward", "bilevel")]
    assert list(found.combined.weights)[:5] == ["corrected", "verified", "given", "forward", "neighbors"]


def test_few_verified_rows_do_not_judge_a_network_under_forward_correction(formed):
    begun, _ = formed
    judged(LEARNERS["usual"], without(ROWS, np.flatnonzero(ROWS.known)[: ROWS.known.sum() - ENOUGH + 1]))
    assert begun == []


def test_a_classifier_is_taught_by_kept_rows(formed):
    begun, good = formed
    learner = TaughtClassifier(LogisticRegression(), ROWS.features, 3)
    judged(LEARNERS["thorough"], learner=learner)
    assert begun == ["taught"]
    begun.clear()
    good.add("taught")
    assert "taught" in judged(LEARNERS["thorough"], learner=learner).combined.weights
    assert begun == ["taught", "taught"]


def test_verified_rows_are_judged_by_a_model_that_did_not_know_them(monkeypatch):
    """What the corrected model says of them counts with the word that was held out."""
    asked = []
    combine = judging.combine
    monkeypatch.setattr(judging, "combine", lambda rows, opinions, counts: asked.append(opinions) or combine(rows, opinions, counts))  # fmt: skip
    held = log_normalized(np.random.default_rng(0).normal(size=(int(ROWS.known.sum()), 3)).astype(np.float32))
    chosen = judging.chosen
    monkeypatch.setattr(judging, "chosen", lambda *given: chosen(*given)._replace(held_out=held))
    judged((), learner=None)
    np.testing.assert_array_equal(asked[0][0].logs[ROWS.known], held)
    assert asked[0][0].name == "corrected"
