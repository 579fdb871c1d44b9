"""`LabelCleaner` with the right labels of some of its own rows, with probabilities, and with nothing verified."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from noisy_blobs import own_model
from wior.cleaning import LabelCleaner
from wior.tasks.data_cleaning import corrupt

ROWS, PAIRS = 600, 60
FINDINGS = ("scores_", "flagged_", "suggested_codes_", "confidence_", "likely_", "likelihoods_", "noise_")


def made(rows=ROWS, pairs=PAIRS, seed=0):
    """Three classes of different sizes, 30% of each with the label of the next one; pairs drawn at random."""
    X, true = make_blobs([rows // 2, rows * 3 // 10, rows // 5], 5, cluster_std=2.8, random_state=seed)
    given = corrupt(true, 0.3, 3, "pairs", seed).labels
    known = np.zeros(len(X), bool)
    known[np.random.default_rng(seed + 1000).permutation(len(X))[:pairs]] = True  # not those that are corrupt
    return X, given, true, known


X, GIVEN, TRUE, KNOWN = made()
RIGHT = np.where(KNOWN, TRUE, np.nan)
WRONG = GIVEN != TRUE


def fit(y=GIVEN, y_verified=RIGHT, rows=X, parameters=None, **more):
    return LabelCleaner(**{"effort": "fast", **(parameters or {})}).fit(rows, y, y_verified=y_verified, **more)


def f1(flagged, wrong):
    return 2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum())


def assert_same(one, other):
    for name in FINDINGS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.fixture(scope="module")
def fast():
    return fit()


@pytest.fixture(scope="module")
def usual():
    return fit(parameters={"effort": "usual", "hidden": (8,)})


# what is found


@pytest.mark.parametrize("name", ["fast", "usual"])
def test_wrong_labels_are_flagged_and_their_number_is_known(name, request):
    found = request.getfixturevalue(name)
    hidden = ~KNOWN
    assert f1(found.flagged_[hidden], WRONG[hidden]) >= 0.9
    assert found.estimates_.wrong.low <= WRONG.sum() <= found.estimates_.wrong.high
    assert found.estimates_.wrong.high - found.estimates_.wrong.low < 120
    precision, recall = found.estimates_.precision, found.estimates_.recall
    flagged = found.flagged_ & hidden
    assert precision.low <= WRONG[flagged].mean() <= precision.high
    assert recall.low <= found.flagged_[WRONG & hidden].mean() <= recall.high
    assert found.estimates_.pairs == PAIRS
    assert found.helpful_
    assert np.mean(found.suggested_labels_ == TRUE) > 0.95
    assert found.score(X, TRUE) > 0.95


def test_the_table_of_which_class_is_labeled_how_is_found(fast):
    expected = 0.7 * np.eye(3) + 0.3 * np.roll(np.eye(3), 1, 1)
    np.testing.assert_allclose(fast.noise_, expected, atol=0.08)
    np.testing.assert_allclose(fast.noise_.sum(1), 1)


def test_scores_are_probabilities(fast):
    hidden = ~KNOWN
    wrong = 1 - fast.scores_
    error = 0.0
    for low in np.arange(0, 1, 0.1):
        here = hidden & (wrong >= low) & (wrong < low + 0.1)
        error += abs((wrong - WRONG)[here].sum())
    assert error / hidden.sum() < 0.05
    assert abs(wrong[hidden].sum() - WRONG[hidden].sum()) < 0.04 * hidden.sum()


def test_verified_rows_are_known(fast):
    np.testing.assert_array_equal(fast.scores_[KNOWN], ~WRONG[KNOWN])
    np.testing.assert_array_equal(fast.flagged_[KNOWN], WRONG[KNOWN])
    np.testing.assert_array_equal(fast.suggested_labels_[KNOWN], TRUE[KNOWN])
    np.testing.assert_array_equal(fast.confidence_[KNOWN], 1)


def test_what_is_flagged_has_another_label_suggested_and_what_is_not_has_its_own(fast):
    flagged = fast.flagged_
    assert 0 < flagged.sum() < ROWS
    assert (fast.suggested_labels_[flagged] != GIVEN[flagged]).all()
    np.testing.assert_array_equal(fast.suggested_labels_[~flagged], GIVEN[~flagged])
    np.testing.assert_array_equal(fast.confidence_[~flagged & ~KNOWN], fast.scores_[~flagged & ~KNOWN])
    np.testing.assert_array_equal(flagged, fast.scores_ < fast.threshold_)
    assert (fast.confidence_[flagged & ~KNOWN] <= 1 - fast.scores_[flagged & ~KNOWN] + 1e-9).all()


def test_the_likeliest_labels_are_the_given_one_with_its_score_and_others_with_the_rest(fast):
    labels, likelihoods = fast.likeliest(3)
    assert labels.shape == likelihoods.shape == (ROWS, 3)
    assert (np.sort(labels, 1) == np.arange(3)).all()
    assert (np.diff(likelihoods, axis=1) <= 0).all()
    np.testing.assert_allclose(likelihoods.sum(1), 1, atol=1e-5)
    own = likelihoods[labels == GIVEN[:, None]]
    np.testing.assert_allclose(own, fast.scores_, atol=1e-6)
    few, _ = fast.likeliest(1)
    np.testing.assert_array_equal(few, labels[:, :1])


def test_the_choice_is_recorded(fast, usual):
    assert fast.choice_.items() >= {"weighting": "opinions", "effort": "fast", "parts": 5, "rounds": 0}.items()
    assert fast.choice_["model"] == "closed forms"
    assert fast.choice_["opinions"].keys() == {"corrected", "verified", "given", "neighbors"}
    assert fast.choice_["start"] in ("the pairs", "the verified rows")
    assert 1 <= fast.choice_["passes"] <= 4
    assert 0 < fast.choice_["held_out_loss"] < np.log(3)
    assert fast.choice_["held_out_gain"] > 0.3
    assert usual.choice_.items() >= {"effort": "usual", "rounds": 1, "model": "mlp 8"}.items()
    assert fast.trials_ == []


# the same


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(fast, usual):
    assert_same(fit(), fast)
    assert_same(fit(parameters={"effort": "usual", "hidden": (8,)}), usual)
    assert np.mean(fit(parameters={"random_state": 1}).scores_ != fast.scores_) > 0.5


@pytest.mark.parametrize(
    "missing",
    [
        np.where(KNOWN, TRUE, None),
        [int(label) if known else None for label, known in zip(TRUE, KNOWN, strict=True)],
        [float(label) if known else float("nan") for label, known in zip(TRUE, KNOWN, strict=True)],
        [int(label) if known else float("nan") for label, known in zip(TRUE, KNOWN, strict=True)],
        np.where(KNOWN, TRUE, np.nan).astype(np.float32),
    ],
    ids=["objects", "integers-and-none", "floats", "integers-and-nan", "float32"],
)
def test_missing_right_labels_come_in_any_form(fast, missing):
    found = fit(y_verified=missing)
    assert_same(found, fast)
    assert found.classes_.dtype == GIVEN.dtype


def test_texts_may_be_missing_too(fast):
    names = np.array(["ape", "bee", "cow"])
    for missing in (None, float("nan")):
        column = [names[label] if known else missing for label, known in zip(TRUE, KNOWN, strict=True)]
        for given in (column, np.array([*column, None], object)[:-1]):
            found = fit(names[GIVEN], given)
            np.testing.assert_array_equal(found.classes_, names)
            np.testing.assert_array_equal(found.scores_, fast.scores_)
            np.testing.assert_array_equal(found.suggested_labels_, names[fast.suggested_codes_])


def test_columns_of_pandas_may_be_missing_too(fast):
    pandas = pytest.importorskip("pandas")
    names = np.array(["ape", "bee", "cow"])
    right = pandas.Series(RIGHT)
    assert_same(fit(y_verified=right), fast)
    assert_same(fit(y_verified=right.astype("Int64")), fast)
    texts = pandas.Series(names[TRUE]).where(KNOWN)
    for column in (texts, texts.astype("string"), texts.astype("category")):
        np.testing.assert_array_equal(fit(names[GIVEN], column).scores_, fast.scores_)


@pytest.mark.parametrize(
    "names", [np.array([-7, -2, 30]), np.array([0.0, 1.0, 2.0]), np.array([1, 2, 250], np.uint8)],
    ids=["negative", "floats", "bytes"],
)  # fmt: skip
def test_labels_may_be_called_anything(fast, names):
    found = fit(names[GIVEN], np.where(KNOWN, names[TRUE].astype(float), np.nan))
    np.testing.assert_array_equal(found.classes_, names)
    np.testing.assert_array_equal(found.scores_, fast.scores_)
    np.testing.assert_array_equal(found.suggested_labels_, names[fast.suggested_codes_])


def test_a_right_label_that_no_row_was_given_is_a_class():
    """Beyond what the numbers of the given labels can hold."""
    right = RIGHT.copy()
    right[np.flatnonzero(KNOWN)[:12]] = 300
    found = fit(GIVEN.astype(np.uint8), right)
    np.testing.assert_array_equal(found.classes_, [0, 1, 2, 300])


def test_labels_may_be_true_and_false():
    found = fit(GIVEN > 0, np.where(KNOWN, (TRUE > 0).astype(object), None))
    assert found.classes_.dtype == bool
    assert found.suggested_labels_.dtype == bool
    assert f1(found.flagged_, (GIVEN > 0) != (TRUE > 0)) > 0.9


def test_equal_chances_are_no_news(fast):
    for chance in (0.1, 0.001, 1.0):
        found = fit(chances=np.where(KNOWN, chance, np.nan))
        np.testing.assert_allclose(found.scores_, fast.scores_, atol=1e-6)
    np.testing.assert_allclose(found.estimates_.recall, fast.estimates_.recall)


def test_a_clone_and_a_pickle(fast, usual):
    for found in (fast, usual):
        again = pickle.loads(pickle.dumps(found))
        assert_same(again, found)
        np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
        copy = clone(found)
        assert copy.get_params() == found.get_params()
        assert not hasattr(copy, "scores_")


def test_a_second_fit_forgets_the_first():
    """The model that predicts is that of the last fit, however it was learned."""
    quick = {"hidden": (6,), "epochs": 4, "folds": 2, "parts": 0, "start": "counted", "outer_lr": 1.0, "inner_lr": 0.1, "verified_share": 1.0}  # fmt: skip
    cleaner = LabelCleaner(**quick)
    cleaner.fit(X[~KNOWN], GIVEN[~KNOWN], X[KNOWN], TRUE[KNOWN])
    bilevel = cleaner.predict_proba(X)
    cleaner.set_params(effort="fast").fit(X, GIVEN, y_verified=RIGHT)
    assert np.abs(cleaner.predict_proba(X) - bilevel).max() > 0.01
    cleaner.set_params(effort="usual").fit(X[~KNOWN], GIVEN[~KNOWN], X[KNOWN], TRUE[KNOWN])
    np.testing.assert_array_equal(cleaner.predict_proba(X), bilevel)


# other models


@pytest.mark.parametrize(
    "model", [LogisticRegression(max_iter=500), HistGradientBoostingClassifier(max_iter=10)], ids=["linear", "trees"]
)
def test_a_classifier_of_scikit_learn(model):
    found = fit(parameters={"model": model, "effort": "usual"})
    assert found.choice_["model"] == type(model).__name__
    assert f1(found.flagged_, WRONG) >= 0.88
    assert not hasattr(model, "classes_")  # a copy of it learned
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    np.testing.assert_allclose(found.predict_proba(X).sum(1), 1, rtol=1e-5)


def test_a_model_of_ones_own():
    found = fit(parameters={"model": own_model(), "effort": "usual"})
    assert found.choice_["model"] == "custom"
    assert f1(found.flagged_, WRONG) >= 0.88


def test_more_effort_is_more_rounds():
    found = fit(parameters={"effort": "thorough", "hidden": (8,)})
    assert found.choice_["rounds"] == 2
    assert f1(found.flagged_[~KNOWN], WRONG[~KNOWN]) >= 0.9


def test_probabilities_of_ones_own_model():
    p = 0.9 * np.eye(3)[TRUE] + 0.1 / 3
    alone, beside = (LabelCleaner(effort="fast").fit(x, GIVEN, y_verified=RIGHT, pred_probs=p) for x in (None, X))
    for found in (alone, beside):
        assert f1(found.flagged_, WRONG) >= 0.9
        assert found.estimates_.wrong.low <= WRONG.sum() <= found.estimates_.wrong.high
    nobody = LabelCleaner(effort="fast").fit(None, GIVEN, pred_probs=p)
    assert f1(nobody.flagged_, WRONG) >= 0.85
    assert nobody.estimates_ is None


def test_verified_rows_beside_the_table_may_judge_by_opinions_too():
    hidden = ~KNOWN
    found = LabelCleaner(effort="fast").fit(X[hidden], GIVEN[hidden], X[KNOWN], TRUE[KNOWN])
    assert found.scores_.shape == (hidden.sum(),)
    assert found.estimates_ is None
    assert f1(found.flagged_, WRONG[hidden]) >= 0.88


# nothing verified


@pytest.fixture(scope="module")
def nothing():
    return LabelCleaner().fit(X, GIVEN)


def test_without_verified_rows_there_is_a_first_estimate(nothing):
    assert nothing.estimates_ is None
    assert nothing.choice_["model"] == "closed forms"  # nothing says that another model knows more
    assert f1(nothing.flagged_, WRONG) >= 0.85
    assert 0.2 < nothing.disagreeing_ < 0.45
    assert nothing.score(X, TRUE) > 0.9
    assert (nothing.suggested_labels_[nothing.flagged_] != GIVEN[nothing.flagged_]).all()


def test_no_right_label_at_all_is_nothing_verified(nothing):
    for column in (np.full(ROWS, np.nan), np.full(ROWS, None), [None] * ROWS):
        assert_same(LabelCleaner().fit(X, GIVEN, y_verified=column), nothing)


def test_of_right_labels_hardly_any_is_flagged():
    found = LabelCleaner().fit(X, TRUE)
    assert found.flagged_.mean() <= 0.02
