"""`LabelCleaner`: what it finds, what may be set by hand, and how it gets on with pipelines, pickles and interruptions."""

import functools
import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import wior
from noisy_blobs import DATA, QUICK, ROWS, VERIFIED, asked, assert_same_findings, fit, own_model, two_layers
from wior.cleaning import Custom, LabelCleaner, choosing
from wior.orders import BY_NAME
from wior.saving.checkpoint import Checkpoint
from wior.tasks.data_cleaning import corrupt


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


# scikit-learn


def test_a_clone_has_the_parameters_and_nothing_else(quick):
    copy = clone(quick)
    assert copy.get_params() == quick.get_params()
    assert not hasattr(copy, "scores_")
    copy.set_params(threshold=0.7, hidden=None)
    assert (copy.threshold, copy.hidden, quick.threshold) == (0.7, None, None)
    assert quick.threshold_ == 0.5
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
