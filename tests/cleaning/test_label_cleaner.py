"""`LabelCleaner`: what it finds, the contract of scikit-learn, how it chooses, what it refuses, and that an interrupted fit goes on."""

import functools
import pickle
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import wior
from wior.cleaning import Custom, LabelCleaner, choosing, demo
from wior.cleaning.choosing import TEMPERATURES, Trial, best_record, curve, finalists, fold_places, parts_of_rows
from wior.cleaning.designs import DESIGNS, Setting
from wior.data import digits
from wior.orders import BY_NAME, FlipFlop, Incremental
from wior.saving.checkpoint import Checkpoint
from wior.tasks.data_cleaning import auroc, corrupt

ROWS, VERIFIED = 96, 24
# one setting and twelve steps: all tests that fit on the blobs share these programs
ONE = {"start": "counted", "outer_lr": 1.0, "inner_lr": 0.1, "verified_share": 1.0}
QUICK = {"hidden": (6,), "epochs": 4, "folds": 2, "parts": 0, **ONE}


class Blobs(NamedTuple):
    X: np.ndarray
    y: np.ndarray  # as given: 30% have the label of the next class
    X_verified: np.ndarray
    y_verified: np.ndarray
    true: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def blobs(seed=0):
    """Three classes of different sizes; numbers that float16 holds exactly."""
    X, true = make_blobs([90, 55, 35], 5, centers=None, cluster_std=1.5, random_state=seed)
    X = np.round(X * 8) / 8
    train, verified, test = np.split(np.arange(180), [ROWS, ROWS + VERIFIED])
    given = corrupt(true[train], 0.3, 3, "pairs", seed).labels
    return Blobs(X[train], given, X[verified], true[verified], true[train], X[test], true[test])


DATA = blobs()


def fit(data=DATA, **parameters):
    return LabelCleaner(**{**QUICK, **parameters}).fit(data.X, data.y, data.X_verified, data.y_verified)


def findings(cleaner):
    names = ("scores_", "weights_", "suggested_labels_", "confidence_", "flagged_", "noise_")
    return {name: getattr(cleaner, name) for name in names}


def assert_same_findings(one, other):
    for name, values in findings(one).items():
        np.testing.assert_array_equal(values, findings(other)[name], err_msg=name)


@pytest.fixture(scope="module")
def quick():
    return fit()


@pytest.fixture(scope="module")
def automatic():
    """All candidates, and every row judged by a model that did not learn from it."""
    return LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=2).fit(*DATA[:4])


# what is found


def test_it_is_wiors_own():
    assert wior.LabelCleaner is LabelCleaner


def test_attributes_are_what_the_documentation_says(automatic):
    for name in ("scores_", "weights_", "confidence_"):
        values = getattr(automatic, name)
        assert values.shape == (ROWS,)
        assert values.min() >= 0
        assert values.max() <= 1
    np.testing.assert_array_equal(automatic.classes_, [0, 1, 2])
    assert automatic.flagged_.dtype == bool
    np.testing.assert_array_equal(automatic.flagged_, automatic.scores_ < 0.5)
    assert set(automatic.suggested_labels_) <= {0, 1, 2}
    kept = automatic.suggested_labels_ == DATA.y
    np.testing.assert_array_equal(automatic.scores_[kept], automatic.confidence_[kept])
    assert np.all(automatic.scores_[~kept] < automatic.confidence_[~kept])
    np.testing.assert_allclose(automatic.noise_.sum(1), 1, rtol=1e-6)
    assert len(automatic.trusted_classes_) == 0
    assert automatic.n_features_in_ == 5


def test_wrong_labels_are_flagged_and_the_right_ones_suggested(automatic):
    wrong = DATA.y != DATA.true
    assert np.mean(automatic.flagged_ == wrong) > 0.97
    assert np.mean(automatic.suggested_labels_ == DATA.true) > 0.97
    assert automatic.scores_[wrong].max() < automatic.scores_[~wrong].min()
    assert automatic.score(DATA.X_test, DATA.y_test) > 0.97


def test_probabilities_are_in_the_order_of_the_classes(quick):
    p = quick.predict_proba(DATA.X_test)
    assert p.shape == (60, 3)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(quick.predict(DATA.X_test), p.argmax(1))


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(quick):
    again = fit()
    assert_same_findings(again, quick)
    np.testing.assert_array_equal(again.predict_proba(DATA.X_test), quick.predict_proba(DATA.X_test))
    assert again.choice_ == quick.choice_
    assert np.mean(fit(random_state=1).scores_ != quick.scores_) > 0.9  # both are sure of some rows


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ape", "bee", "cow"]),
        np.array(["ape", "bee", "cow"], object),
        np.array([-7, -2, 30]),
        np.array([0.0, 1.0, 2.0]),
        np.array([1, 2, 250], np.uint8),
    ],
    ids=["texts", "objects", "negative", "floats", "bytes"],
)
def test_labels_may_be_called_anything(quick, names):
    found = fit(DATA._replace(y=names[DATA.y], y_verified=names[DATA.y_verified]))
    np.testing.assert_array_equal(found.classes_, names)
    assert found.classes_.dtype == names.dtype
    np.testing.assert_array_equal(found.scores_, quick.scores_)
    np.testing.assert_array_equal(found.suggested_labels_, names[quick.suggested_labels_])
    np.testing.assert_array_equal(found.predict(DATA.X_test), names[quick.predict(DATA.X_test)])


@pytest.mark.slow
def test_labels_may_be_true_and_false():
    right, verified = DATA.true > 0, DATA.y_verified > 0
    given = corrupt(right.astype(int), 0.3, 2).labels.astype(bool)
    found = fit(DATA._replace(y=given, y_verified=verified))
    assert found.classes_.dtype == bool
    assert found.suggested_labels_.dtype == bool
    np.testing.assert_array_equal(found.suggested_labels_, right)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, list])
def test_numbers_may_come_in_any_form(quick, dtype):
    X, verified, test = (
        part.tolist() if dtype is list else part.astype(dtype) for part in (DATA.X, DATA.X_verified, DATA.X_test)
    )
    found = fit(DATA._replace(X=X, X_verified=verified, y=DATA.y.tolist(), y_verified=DATA.y_verified.tolist()))
    assert_same_findings(found, quick)
    np.testing.assert_array_equal(found.predict_proba(test), quick.predict_proba(DATA.X_test))


def test_tables_of_pandas_must_have_the_same_columns(quick):
    pandas = pytest.importorskip("pandas")
    columns = list("abcde")
    X, verified, test = (pandas.DataFrame(part, columns=columns) for part in (DATA.X, DATA.X_verified, DATA.X_test))
    found = fit(DATA._replace(X=X, X_verified=verified, y=pandas.Series(DATA.y)))
    assert_same_findings(found, quick)
    assert found.feature_names_in_.tolist() == columns
    np.testing.assert_array_equal(found.predict(test), quick.predict(DATA.X_test))
    with pytest.raises(ValueError, match="X_verified: The feature names should match"):
        fit(DATA._replace(X=X, X_verified=verified[columns[::-1]]))


@pytest.mark.slow
def test_bytes_stay_bytes_and_are_the_numbers_they_stand_for():
    low = min(part.min() for part in (DATA.X, DATA.X_verified))
    X, verified = (np.round((part - low) * 8).astype(np.uint8) for part in (DATA.X, DATA.X_verified))
    found = fit(DATA._replace(X=X, X_verified=verified))
    same = fit(DATA._replace(X=X.astype(float), X_verified=verified.astype(float)))
    np.testing.assert_allclose(found.scores_, same.scores_, rtol=1e-4)
    np.testing.assert_allclose(found.predict_proba(X), same.predict_proba(X.astype(float)), rtol=1e-4)


def test_nothing_that_is_given_is_changed(quick):
    own = [np.array(part) for part in DATA[:4]]
    own[0], own[2] = own[0].astype(np.float32), own[2].astype(np.float32)  # not converted, so not copied
    before = [part.copy() for part in own]
    for part in own:
        part.flags.writeable = False
    cleaner = LabelCleaner(**QUICK)
    parameters = cleaner.get_params()
    assert cleaner.fit(*own) is cleaner
    assert cleaner.get_params() == parameters
    for part, same in zip(own, before, strict=True):
        np.testing.assert_array_equal(part, same)
    assert_same_findings(cleaner, quick)


def test_a_class_without_verified_rows_is_trusted():
    """Its labels are taken as they are, and no other row gets it."""
    known = DATA.y_verified != 2
    few = DATA._replace(X_verified=DATA.X_verified[known], y_verified=DATA.y_verified[known])
    few = few._replace(
        X_verified=np.resize(few.X_verified, (VERIFIED, 5)), y_verified=np.resize(few.y_verified, VERIFIED)
    )
    with pytest.warns(UserWarning, match="no verified row of class '2': these labels are taken as they are"):
        found = fit(few)
    np.testing.assert_array_equal(found.trusted_classes_, [2])
    given = DATA.y == 2
    assert (given & (DATA.true != 2)).sum() > 5  # some of them are wrong
    np.testing.assert_array_equal(found.scores_[given], 1)
    assert not found.flagged_[given].any()
    np.testing.assert_array_equal(found.suggested_labels_[given], 2)
    assert 2 not in found.suggested_labels_[~given]
    np.testing.assert_array_equal(found.noise_[2], [0, 0, 1])
    np.testing.assert_array_equal(found.noise_[:, 2], [0, 0, 1])
    moved = given | (DATA.true == 2)
    np.testing.assert_array_equal(found.suggested_labels_[~moved], DATA.true[~moved])


def test_many_classes_without_verified_rows_are_not_all_listed(monkeypatch):
    y = np.arange(ROWS) % 12
    with pytest.warns(UserWarning, match="no verified row of classes '3', '4', '5', '6', '7' and others: "):
        asked(monkeypatch, DATA._replace(y=y))


def test_a_class_of_verified_rows_alone_can_be_suggested():
    """Every row of class 2 was given the label 0."""
    found = fit(DATA._replace(y=np.where(DATA.true == 2, 0, DATA.true)))
    np.testing.assert_array_equal(found.classes_, [0, 1, 2])
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95
    np.testing.assert_array_equal(found.flagged_[DATA.true == 2], True)


# what is chosen, and what is set by hand


class Asked(NamedTuple):
    material: object
    settings: list
    length: object
    folds: int
    order: object
    run: object


class Stop(Exception):
    pass


def asked(monkeypatch, data=DATA, **parameters):
    """What would be chosen from, for rows that are not learned from."""
    seen = []

    def stop(*arguments):
        seen.append(Asked(*arguments))
        raise Stop

    monkeypatch.setattr(choosing, "choose", stop)
    with pytest.raises(Stop):
        LabelCleaner(**parameters).fit(*data[:4])
    return seen[0]


def test_everything_is_chosen_by_default(monkeypatch):
    found = asked(monkeypatch)
    assert found.settings == [setting for setting in choosing.SETTINGS if setting.weighting == "noise"]
    assert (found.length.steps, found.length.batch) == (1500, 32)
    assert found.folds == 5
    assert found.order == choosing.DEFAULT_ORDER == wior.orders.RandomReshuffling()
    assert found.material.l2 == 0.01
    assert found.material.model.hidden == (64,)
    assert found.material.seed == 0


@pytest.mark.parametrize(
    ("rows", "columns", "hidden", "batch", "steps", "folds", "l2"),
    [
        (1000, 3, (64,), 32, 1500, 5, 1e-3),
        (6400, 3, (128,), 64, 1500, 3, 1 / 6400),
        (20_000, 200, (256, 128), 256, 1500, 3, 5e-5),
        (300_000, 1, (128,), 512, 6000, 3, 1e-5),
    ],
)
def test_larger_tables_have_wider_networks_and_longer_runs(monkeypatch, rows, columns, hidden, batch, steps, folds, l2):
    X = np.zeros((rows, columns), np.uint8)
    data = Blobs(X, np.arange(rows) % 2, X[:40], np.arange(40) % 2, None, None, None)
    found = asked(monkeypatch, data)
    assert found.material.model.hidden == hidden
    assert (found.length.steps, found.length.batch) == (steps, batch)
    assert (found.folds, found.material.l2) == (folds, l2)


def test_few_verified_rows_have_few_folds(monkeypatch):
    few = [np.flatnonzero(DATA.y_verified == label)[:3] for label in (0, 1)]
    for number, folds in ((4, 2), (6, 3)):
        places = np.sort(np.concatenate([some[: number // 2] for some in few]))
        with pytest.warns(UserWarning, match="class '2'"):
            found = asked(
                monkeypatch, DATA._replace(X_verified=DATA.X_verified[places], y_verified=DATA.y_verified[places])
            )
        assert found.folds == folds


def test_what_is_set_by_hand_is_taken(monkeypatch):
    order = FlipFlop()
    found = asked(
        monkeypatch,
        model="linear",
        hidden=(9,),
        l2=0,
        epochs=3,
        batch_size=20,
        folds=VERIFIED,
        order=order,
        random_state=7,
    )
    assert found.material.model.hidden == ()
    assert (found.material.l2, found.material.seed) == (0, 7)
    assert (found.length.steps, found.length.batch) == (15, 20)  # three times 96 rows by twenties
    assert found.folds == VERIFIED
    assert found.order is order


@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        (ONE, [Setting("noise", "counted", 1.0, 0.1, 1.0)]),
        ({"start": "trusting", "inner_lr": 0.2}, [("noise", "trusting", 2.0, 0.2, 0.0), ("noise", "trusting", 0.01, 0.2, 0.1)]),
        ({"weighting": "row", "outer_lr": 5}, [("row", "even", 5.0, 0.1, 0.0)]),
        ({"weighting": "row", "start": "counted", "outer_lr": 5}, [("row", "even", 5.0, 0.1, 0.0)]),
        ({"weighting": "noise", "outer_lr": 3, "inner_lr": 1, "start": "counted"}, [("noise", "counted", 3.0, 1.0, 1.0), ("noise", "counted", 3.0, 1.0, 0.0)]),
    ],
)  # fmt: skip
def test_candidates_have_what_is_set_by_hand_and_none_is_there_twice(monkeypatch, parameters, settings):
    assert asked(monkeypatch, **parameters).settings == settings


def test_the_choice_is_recorded(automatic, quick):
    by_hand = {"weighting": "noise", "start": "counted", "outer_lr": 1.0, "inner_lr": 0.1, "share": 1.0}
    assert quick.choice_.items() >= by_hand.items()
    made = {"steps_at_most": 12, "batch_size": 32, "folds": 2, "parts": 0, "l2": 0.01, "model": "mlp", "hidden": [6]}
    assert quick.choice_.items() >= made.items()
    assert automatic.choice_["parts"] == 2
    assert 0 <= quick.choice_["steps"] <= 12
    assert quick.choice_["epochs"] == pytest.approx(quick.choice_["steps"] * 32 / 96, abs=1e-3)
    assert [trial.fold for trial in quick.trials_] == [0, 1]


def test_the_choice_has_the_smallest_loss_on_rows_held_out(automatic):
    heat = automatic.trials_[:10]
    assert {trial.steps[-1] for trial in heat} == {3}  # a quarter of the steps
    assert len({trial.setting for trial in heat}) == 5
    last = automatic.trials_[10:]
    assert {trial.steps[-1] for trial in last} == {12}
    losses = {
        (setting, step): np.mean([trial.losses[step] for trial in last if trial.setting == setting], 0).min()
        for setting in {trial.setting for trial in last}
        for step in range(13)
    }
    (setting, step), loss = min(losses.items(), key=lambda item: item[1])
    assert automatic.choice_.items() >= {**setting._asdict(), "steps": step}.items()
    assert automatic.choice_["held_out_loss"] == pytest.approx(loss)


def test_a_higher_threshold_flags_more(quick):
    found = fit(threshold=0.999)
    np.testing.assert_array_equal(found.scores_, quick.scores_)
    np.testing.assert_array_equal(found.flagged_, quick.scores_ < 0.999)
    assert found.flagged_.sum() > quick.flagged_.sum()


@pytest.mark.parametrize("weighting", [pytest.param("function", marks=pytest.mark.slow), "row"])
def test_other_weightings_find_wrong_labels_too(weighting):
    found = LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=0, weighting=weighting).fit(*DATA[:4])
    assert found.choice_["weighting"] == weighting
    wrong = DATA.y != DATA.true
    assert np.mean(found.flagged_ == wrong) > 0.95
    assert np.all((found.weights_ >= 0) & (found.weights_ <= 1))
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("order", list(BY_NAME))
def test_every_order_can_be_used(order):
    found = fit(order=BY_NAME[order])
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95


@pytest.mark.slow
def test_a_linear_model_finds_them():
    found = fit(model="linear")
    assert found.choice_.items() >= {"model": "linear", "hidden": []}.items()
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95


def two_layers(params, features):
    hidden = jnp.tanh((features / 10) @ params["in"]["weights"] + params["in"]["shift"])
    return hidden @ params["out"]


def own_model():
    rng = np.random.default_rng(3)
    inside = {"weights": rng.normal(size=(5, 7)).astype(np.float32), "shift": np.zeros(7, np.float32)}
    return Custom(two_layers, {"in": inside, "out": np.zeros((7, 3), np.float32)})


def test_a_model_of_ones_own():
    model = own_model()
    found = fit(model=model)
    assert found.choice_.items() >= {"model": "custom", "hidden": []}.items()
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95
    assert set(found.params_) == {"in", "out"}
    np.testing.assert_array_equal(model.params["out"], 0)
    logits = np.asarray(two_layers(found.params_, DATA.X_test.astype(np.float32)))
    np.testing.assert_array_equal(found.predict(DATA.X_test), logits.argmax(1))
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(DATA.X_test), found.predict_proba(DATA.X_test))


def test_a_model_of_ones_own_must_have_a_logit_for_each_class():
    model = own_model()
    small = Custom(two_layers, {**model.params, "out": np.zeros((7, 4), np.float32)})
    with pytest.raises(ValueError, match=r"model must return logits \(rows, 3\), .* got shape \(1, 4\) for one row"):
        fit(model=small)


@pytest.mark.slow
def test_a_model_of_ones_own_may_take_pictures():
    """Rows of any shape."""

    def flat(params, pictures):
        return pictures.reshape(len(pictures), -1) @ params / 10

    X, verified = (np.stack([part, part], 2) for part in (DATA.X, DATA.X_verified))
    found = fit(DATA._replace(X=X, X_verified=verified), model=Custom(flat, np.zeros((10, 3), np.float32)))
    assert np.mean(found.suggested_labels_ == DATA.true) > 0.95


# how it is chosen


def assert_complement(kept, others, rows):
    """All rows but the others, repeated until they are as many as there are rows, each as often as any."""
    times = np.bincount(kept, minlength=rows)
    assert len(kept) == rows
    np.testing.assert_array_equal(np.flatnonzero(times == 0), np.sort(others))
    assert np.ptp(times[times > 0]) <= 1


@pytest.mark.parametrize(("rows", "folds"), [(4, 2), (23, 2), (24, 5), (100, 3), (7, 7)])
def test_folds_are_disjoint_and_equal_and_spread_the_classes(rows, folds):
    labels = np.random.default_rng(0).choice([0, 0, 0, 1, 1, 5], rows)
    found = fold_places(labels, folds, seed=1)
    size = rows // folds
    held = np.concatenate([part for _, part in found])
    assert len(found) == folds
    assert [len(part) for _, part in found] == [size] * folds
    assert len(np.unique(held)) == size * folds  # all but what is left over
    for kept, part in found:
        assert_complement(kept, part, rows)
        for label in set(labels):
            share = (labels[held] == label).sum() / folds
            assert abs((labels[part] == label).sum() - share) < 1
    again, other = fold_places(labels, folds, seed=1), fold_places(labels, folds, seed=2)
    np.testing.assert_array_equal(held, np.concatenate([part for _, part in again]))
    assert rows == folds or (held != np.concatenate([part for _, part in other])).any()


@pytest.mark.parametrize(("rows", "parts"), [(2, 2), (7, 2), (7, 5), (100, 5), (9, 9)])
def test_every_row_is_judged_by_a_model_that_did_not_learn_from_it(rows, parts):
    found = parts_of_rows(rows, parts, seed=1)
    assert len(found) == parts
    assert len({(len(learned), len(judged)) for learned, judged in found}) == 1  # one program
    for learned, judged in found:
        assert_complement(learned, judged, rows)
        assert len(set(judged)) == len(judged)
    assert set(np.concatenate([judged for _, judged in found])) == set(range(rows))


@pytest.fixture
def learned(monkeypatch):
    """All that is learned: from what, judged by what, with which result."""
    calls, learn = [], choosing.learn

    def recorded(material, *arguments):
        result = learn(material, *arguments)
        calls.append((material, arguments[6] if len(arguments) > 6 else None, result))
        return result

    monkeypatch.setattr(choosing, "learn", recorded)
    return calls


def test_candidates_do_not_learn_from_the_rows_held_out(learned):
    found = fit()
    for (material, metrics, result), trial in zip(learned, found.trials_, strict=False):
        kept, held = (np.asarray(rows) for rows in (material.verified[0], metrics.rows[0]))
        together = np.concatenate([np.unique(kept, axis=0), np.unique(held, axis=0)])
        np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(DATA.X_verified, axis=0))
        assert len(together) == len(np.unique(DATA.X_verified, axis=0))
        # and the losses are those of the logits divided by each temperature
        logits, labels = np.asarray(material.model.logits(result.y, held)), np.asarray(metrics.rows[1])
        for temperature, loss in zip(TEMPERATURES, trial.losses[-1], strict=True):
            p = np.exp(logits / temperature) / np.exp(logits / temperature).sum(1, keepdims=True)
            np.testing.assert_allclose(loss, -np.log(p[np.arange(len(p)), labels]).mean(), rtol=1e-3)


def test_a_label_is_judged_by_the_model_of_all_rows_and_by_one_that_did_not_learn_from_it(learned):
    """The geometric mean of what the two say."""
    found = fit(parts=2, rounds=0)
    (material, _, whole), *others = (call for call in learned if call[1] is None)
    read = functools.partial(DESIGNS["noise"].read, temperature=found.temperature_)
    posterior, given = read(material, whole.x, whole.y).posterior, DATA.y
    unseen = np.full_like(posterior, np.nan)
    for own, _, result in others:
        judged = np.setdiff1d(np.arange(ROWS), own.rows)
        assert len(judged) == ROWS / 2
        unseen[judged] = read(material, result.x, result.y).posterior[judged]
        np.testing.assert_array_equal(own.verified[0], DATA.X_verified)
    both = np.sqrt(posterior * unseen)
    both /= both.sum(1, keepdims=True)
    np.testing.assert_allclose(found.scores_, both[np.arange(ROWS), given], rtol=1e-4, atol=1e-12)
    np.testing.assert_array_equal(found.suggested_labels_, both.argmax(1))


A, B, C = (Setting("noise", "counted", rate, 0.1, 1.0) for rate in (1.0, 2.0, 3.0))


def trials_of(setting, *folds, records=(0, 5, 10)):
    """Trials with these losses, one for each record, on each fold; worse at every temperature but the second."""
    worse = 1.0 + np.abs(np.arange(len(TEMPERATURES)) - 1)
    return [
        Trial(setting, fold, np.array(records[: len(losses)]), np.outer(losses, worse))
        for fold, losses in enumerate(folds)
    ]


def diverged(setting, fold, steps=10):
    return Trial(setting, fold, np.full(1, steps), np.full((1, len(TEMPERATURES)), np.inf))


def test_a_curve_is_the_mean_over_folds_at_the_best_temperature():
    trials = [*trials_of(A, (3, 2, 4), (5, 4, 1)), *trials_of(B, (1, 1, 1), (1, 1, 1))]
    steps, losses = curve(A, trials)
    np.testing.assert_array_equal(steps, [0, 5, 10])
    np.testing.assert_allclose(losses, [4, 3, 2.5])
    assert best_record(A, trials) == (2.5, 10, TEMPERATURES[1])
    # one temperature for all folds: the mean comes before the minimum
    hot = Trial(A, 0, np.array([0]), np.eye(len(TEMPERATURES))[:1])
    cold = Trial(A, 1, np.array([0]), np.eye(len(TEMPERATURES))[1:2])
    np.testing.assert_allclose(curve(A, [hot, cold])[1], [0])
    two = [Trial(A, fold, np.array([0]), 1 - np.eye(len(TEMPERATURES))[[fold]]) for fold in (0, 1)]
    np.testing.assert_allclose(curve(A, two)[1], [0.5])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_records_that_are_no_numbers_are_not_the_best(bad):
    assert best_record(A, trials_of(A, (3, bad, bad), (5, 1, 1))) == (4, 0, TEMPERATURES[1])
    loss, *_ = best_record(A, trials_of(A, (bad, bad), (1, 1)))
    assert loss == np.inf
    assert best_record(A, [*trials_of(A, (3, 2, 1)), diverged(A, 1)])[0] == np.inf
    assert best_record(A, [diverged(A, 0), diverged(A, 1)])[0] == np.inf


def test_the_second_goes_on_where_it_is_not_clearly_behind():
    best = trials_of(A, (2.0, 1.0), (2.0, 1.2), (2.0, 0.8))
    close = trials_of(B, (2.0, 1.3), (2.0, 1.1), (2.0, 0.9))
    behind = trials_of(B, (2.0, 1.5), (2.0, 1.7), (2.0, 1.3))
    third = trials_of(C, (2.0, 1.8), (2.0, 1.8), (2.0, 1.8))
    assert finalists([A, B, C], [*best, *close, *third]) == [A, B]
    assert finalists([B, A, C], [*best, *close, *third]) == [A, B]  # the best is the first, whatever the order
    assert finalists([A, B, C], [*best, *behind, *third]) == [A]
    assert finalists([A], best) == [A]


def test_what_diverged_does_not_go_on():
    best = trials_of(B, (2.0, 1.0), (2.0, 1.2))
    assert finalists([A, B], [diverged(A, 0), diverged(A, 1), *best]) == [B]
    half = [diverged(A, 0), *trials_of(A, (2.0, 1.0), (2.0, 0.1))[1:]]
    assert finalists([A, B], [*half, *best]) == [B]
    # all of them: what comes of it is said after the last heat
    assert len(finalists([A, B], [diverged(one, fold) for one in (A, B) for fold in (0, 1)])) == 1


def test_a_setting_that_diverges_does_not_win(monkeypatch, quick):
    good, bad = Setting("noise", "counted", 1.0, 0.1, 1.0), Setting("noise", "counted", 1e30, 1e20, 1.0)
    monkeypatch.setattr(choosing, "SETTINGS", (bad, good))
    found = LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=0).fit(*DATA[:4])
    assert_same_findings(found, quick)
    assert {trial.setting: bool(np.isfinite(trial.losses).all()) for trial in found.trials_} == {bad: False, good: True}


def test_where_all_diverge_it_is_said():
    with pytest.raises(ValueError, match="the model diverged on the held-out verified rows under every setting"):
        LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=0, inner_lr=1e30).fit(*DATA[:4])


def test_where_the_last_run_diverges_it_is_said(monkeypatch):
    learn = choosing.learn
    monkeypatch.setattr(choosing, "learn", lambda *args: learn(*args) if len(args) == 8 else None)
    with pytest.raises(ValueError, match=r"diverged with all verified rows .*; set a smaller inner_lr or outer_lr"):
        fit()


# what is refused


def changed(name, value):
    return lambda: fit(DATA._replace(**{name: value}))


def with_value(array, place, value):
    array = array.astype(float)
    array[place] = value
    return array


MIXED = np.array(["a", None, "b", *"abc" * 7], object)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", with_value(DATA.X, (3, 1), np.nan), "X contains NaN"),
        ("X", with_value(DATA.X, (3, 1), np.inf), "X contains infinity"),
        ("X_verified", with_value(DATA.X_verified, (3, 1), np.nan), "X_verified: .* contains NaN"),
        ("X", DATA.X[:, 0], "Expected 2D array, got 1D array"),
        ("X_verified", DATA.X_verified[:, 0], "X_verified: Expected 2D array"),
        ("X", DATA.X[:0], r"0 sample\(s\)"),
        ("X_verified", DATA.X_verified[:0], r"X_verified: .* 0 sample\(s\)"),
        ("X_verified", DATA.X_verified[:, :3], "X_verified: X has 3 features, .* expecting 5"),
        ("X", np.full((ROWS, 5), "word"), "could not convert string to float"),
        ("y", DATA.y[:-1], "y must have one label for each row of X, got 95 for 96"),
        ("y_verified", DATA.y_verified[:-1], "y_verified must have one label for each row of X_verified, got 23 for 24"),
        ("y", np.stack([DATA.y] * 2, 1), r"y should be a 1d array, got an array of shape \(96, 2\)"),
        ("y_verified", np.stack([DATA.y_verified] * 2, 1), r"y_verified: .* 1d array"),
        ("y", DATA.y + 0.5, "Unknown label type: continuous"),
        ("y_verified", DATA.y_verified + 0.5, "y_verified: Unknown label type: continuous"),
        ("y_verified", MIXED, "y_verified: y must be texts or numbers alone, got None in row 1"),
        ("y", np.resize(MIXED, ROWS), "y must be texts or numbers alone, got None in row 1"),
        ("y_verified", np.full(VERIFIED, "1"), "y and y_verified must both be texts or both be numbers, got the dtypes int64 and <U1"),
        ("y_verified", np.full(VERIFIED, 1), "y_verified must have at least two classes, got one class only: '1'; verify some rows"),
        ("y", None, "y should be a 1d array"),
        ("y_verified", None, "y_verified must be given: a small set of rows whose labels are known to be right"),
        ("X_verified", None, "X_verified must be given"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_are_named(name, value, message):
    with pytest.raises(ValueError, match=message):
        fit(DATA._replace(**{name: value}))


def test_there_must_be_two_classes():
    with pytest.raises(ValueError, match="y must have at least two classes, got one class only: 'a'"):
        fit(DATA._replace(y=np.full(ROWS, "a"), y_verified=np.full(VERIFIED, "a")))


def test_there_must_be_four_verified_rows():
    few = np.array([np.flatnonzero(DATA.y_verified == label)[0] for label in range(3)])
    with pytest.raises(ValueError, match="X_verified must have at least 4 rows, got 3"):
        fit(DATA._replace(X_verified=DATA.X_verified[few], y_verified=DATA.y_verified[few]))


def test_labels_in_a_column_are_used_with_a_warning(monkeypatch):
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        asked(monkeypatch, DATA._replace(y=DATA.y[:, None]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"weighting": "rows"}, "weighting must be one of auto, noise, function, row; got 'rows'"),
        ({"model": "tree"}, "model must be one of auto, linear, mlp or a wior.cleaning.Custom; got 'tree'"),
        ({"model": ["mlp"]}, r"model must be one of .*; got \['mlp'\]"),
        ({"start": "even"}, "start must be one of None, trusting, counted; got 'even'"),
        ({"hidden": (64, 0)}, r"hidden must be widths of layers, positive integers such as \(64,\), got \(64, 0\)"),
        ({"hidden": 64}, "hidden must be widths of layers, .* got 64"),
        ({"hidden": (64.5,)}, r"hidden must be widths of layers, .* got \(64.5,\)"),
        ({"outer_lr": 0}, "outer_lr must be a positive finite number, got 0"),
        ({"inner_lr": float("nan")}, "inner_lr must be a positive finite number, got nan"),
        ({"inner_lr": "0.1"}, "inner_lr must be a positive finite number, got '0.1'"),
        ({"l2": -1}, "l2 must be a finite number that is not negative, got -1"),
        ({"l2": True}, "l2 must be a number that is not negative, got True"),
        ({"verified_share": float("inf")}, "verified_share must be a finite number that is not negative, got inf"),
        ({"epochs": 0}, "epochs must be a positive integer, got 0"),
        ({"epochs": 2.5}, "epochs must be a positive integer, got 2.5"),
        ({"batch_size": -3}, "batch_size must be a positive integer, got -3"),
        ({"folds": 1}, "folds must lie between 2 and the number of verified rows, 24; got 1"),
        ({"folds": 25}, "folds must lie between 2 and the number of verified rows, 24; got 25"),
        ({"folds": "two"}, "folds must be a positive integer, got 'two'"),
        ({"parts": 1}, "parts must be 0 or an integer of at least 2, got 1"),
        ({"parts": -2}, "parts must be 0 or an integer of at least 2, got -2"),
        ({"threshold": 1.5}, "threshold must lie between 0 and 1, got 1.5"),
        ({"threshold": float("nan")}, "threshold must lie between 0 and 1, got nan"),
        ({"order": "random"}, "order must be one of wior.orders, got 'random'"),
        ({"order": Incremental}, "order must be one of wior.orders, got <class"),
        ({"random_state": None}, "random_state must be an integer, got None"),
        ({"random_state": -1}, r"random_state must lie between 0 and 2\*\*63 - 1, got -1"),
        ({"random_state": 2**63}, "random_state must lie between 0 and"),
        ({"checkpoint": 5}, "checkpoint must be a folder or None, got 5"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit(**parameters)


def test_before_a_fit_and_after_a_failed_one_nothing_is_predicted():
    cleaner = LabelCleaner(**QUICK)
    with pytest.raises(NotFittedError):
        cleaner.predict(DATA.X)
    with pytest.raises(ValueError, match="got one class only: '1'"):
        cleaner.fit(DATA.X, DATA.y, DATA.X_verified, np.ones(VERIFIED, int))
    with pytest.raises(NotFittedError):
        cleaner.predict_proba(DATA.X)


# scikit-learn


def test_a_clone_has_the_parameters_and_nothing_else(quick):
    copy = clone(quick)
    assert copy.get_params() == quick.get_params()
    assert not hasattr(copy, "scores_")
    copy.set_params(threshold=0.7, hidden=None)
    assert (copy.threshold, copy.hidden, quick.threshold) == (0.7, None, 0.5)
    with pytest.raises(ValueError, match="Invalid parameter 'treshold'"):
        copy.set_params(treshold=0.7)
    own = clone(LabelCleaner(model=own_model()))
    assert own.model.function is two_layers


def test_a_fitted_cleaner_survives_a_pickle(quick):
    again = pickle.loads(pickle.dumps(quick))
    assert_same_findings(again, quick)
    assert again.choice_ == quick.choice_
    np.testing.assert_array_equal(again.predict_proba(DATA.X_test), quick.predict_proba(DATA.X_test))


def test_the_last_step_of_a_pipeline(quick):
    scaler = StandardScaler().fit(DATA.X)
    pipeline = make_pipeline(StandardScaler(), LabelCleaner(**QUICK))
    pipeline.fit(
        DATA.X,
        DATA.y,
        labelcleaner__X_verified=scaler.transform(DATA.X_verified),
        labelcleaner__y_verified=DATA.y_verified,
    )
    np.testing.assert_allclose(pipeline[-1].scores_, quick.scores_, atol=1e-3)
    assert pipeline.score(DATA.X_test, DATA.y_test) > 0.97


def test_a_pipeline_can_prepare_the_verified_rows_too(quick):
    with sklearn.config_context(enable_metadata_routing=True):
        cleaner = LabelCleaner(**QUICK).set_fit_request(X_verified=True, y_verified=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("clean", cleaner)], transform_input=["X_verified"])
        pipeline.fit(DATA.X, DATA.y, X_verified=DATA.X_verified, y_verified=DATA.y_verified)
    np.testing.assert_allclose(pipeline[-1].scores_, quick.scores_, atol=1e-3)


@pytest.mark.slow
def test_cross_validation():
    verified = {"X_verified": DATA.X_verified, "y_verified": DATA.y_verified}
    scores = cross_val_score(LabelCleaner(**QUICK), DATA.X, DATA.true, cv=3, params=verified)
    assert scores.min() > 0.95


class SelfVerified(LabelCleaner):
    """Fits as every classifier does: all rows are taken for verified ones, too."""

    def fit(self, X, y):
        return super().fit(X, y, X, () if y is None else y)  # of two that are missing y is named


CHEAP = SelfVerified(hidden=(8,), epochs=30, folds=2, parts=0)
CHECKED = [(check, getattr(check, "func", check).__name__) for _, check in estimator_checks_generator(CHEAP)]
WITHOUT_A_FIT = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimator_sparse_array",
    "check_classifiers_regression_target",
    "check_supervised_y_no_nan",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_fit1d",
    "check_requires_y_none",
)


def checked(without_a_fit):
    return [
        pytest.param(check, id=f"{name} {len(CHECKED[:place])}")
        for place, (check, name) in enumerate(CHECKED)
        if (name in WITHOUT_A_FIT) == without_a_fit
    ]


def test_the_checks_of_scikit_learn_are_found():
    assert {name for _, name in CHECKED} > set(WITHOUT_A_FIT)


@pytest.mark.filterwarnings("ignore")  # they call estimators in ways that warn
@pytest.mark.parametrize("check", checked(without_a_fit=True))
def test_checks_of_scikit_learn(check):
    check(clone(CHEAP))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", checked(without_a_fit=False))
def test_all_other_checks_of_scikit_learn(check):
    check(clone(CHEAP))


# interruption


class Interrupting:
    """A report that interrupts after so many calls."""

    def __init__(self, after=np.inf):
        self.after, self.calls = after, 0

    def __call__(self, step, latest):
        self.calls += 1
        if self.calls > self.after:
            raise KeyboardInterrupt


def test_an_interrupted_fit_goes_on_and_ends_with_the_same_bits(monkeypatch, tmp_path, quick):
    """In the middle of the second run of three, which saved itself some steps before."""
    monkeypatch.setattr(choosing, "Checkpoint", functools.partial(Checkpoint, every_steps=5))
    undisturbed = Interrupting()
    fit(progress=undisturbed)
    half = Interrupting(undisturbed.calls // 2)
    with pytest.raises(KeyboardInterrupt):
        fit(progress=half, checkpoint=tmp_path / "saved")
    rest = Interrupting()
    found = fit(progress=rest, checkpoint=str(tmp_path / "saved"))
    assert_same_findings(found, quick)
    assert {**found.choice_, "steps": 0} == {**quick.choice_, "steps": 0}
    assert found.choice_["steps"] == quick.choice_["steps"]
    assert rest.calls < undisturbed.calls - half.calls / 2  # what was done is not done again
    with pytest.raises(ValueError, match="belongs to another run"):
        fit(checkpoint=tmp_path / "saved", random_state=1)


def test_progress_is_told_on_stderr(capsys, quick):
    assert_same_findings(fit(progress=True), quick)
    assert capsys.readouterr().out == ""


# the digits


class Digits(NamedTuple):
    cleaner: LabelCleaner
    wrong: np.ndarray
    split: object

    @property
    def auroc(self):
        return float(auroc(jnp.asarray(self.cleaner.scores_), jnp.asarray(~self.wrong)))

    @property
    def accuracy(self):
        return self.cleaner.score(*self.split.test)


def cleaned_digits(noise, rate, **parameters):
    split = digits(0, 1297, 100)
    given = corrupt(split.train.labels, rate, 10, noise)
    return Digits(LabelCleaner(**parameters).fit(split.train.features, given.labels, *split.clean), given.wrong, split)


def test_systematic_errors_of_the_digits_are_found_from_a_hundred_verified_rows():
    """45% of every class has the label of the next one. One candidate and a short run; the rest is in the slow tests."""
    found = cleaned_digits("pairs", 0.45, epochs=4, folds=2, parts=0, **{**ONE, "inner_lr": 0.3})
    assert found.auroc > 0.98
    assert np.mean(found.cleaner.flagged_ == found.wrong) > 0.97
    assert np.mean(found.cleaner.suggested_labels_ == found.split.train.labels) > 0.96
    assert found.accuracy > 0.95
    others = found.cleaner.noise_ * (1 - np.eye(10))
    np.testing.assert_array_equal(others.argmax(1), (np.arange(10) + 1) % 10)
    assert others.max(1).min() > 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rate"), [("pairs", 0.45), ("pairs", 0.6), ("uniform", 0.6)])
def test_wrong_labels_of_the_digits_are_found_with_nothing_set(noise, rate):
    found = cleaned_digits(noise, rate)
    assert found.auroc > 0.98
    assert np.mean(found.cleaner.flagged_ == found.wrong) > 0.94
    assert found.accuracy > 0.95


@pytest.mark.slow
def test_clean_digits_are_left_alone():
    found = cleaned_digits("pairs", 0.0)
    assert found.cleaner.flagged_.mean() < 0.02
    assert found.accuracy >= demo.accuracy(found.split.train, found.split.test) - 0.005
