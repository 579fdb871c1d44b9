"""How `LabelCleaner` chooses its settings."""

import functools

import numpy as np
import pytest

import wior
from noisy_blobs import DATA, ONE, ROWS, VERIFIED, Blobs, asked, assert_same_findings, fit
from wior.cleaning import LabelCleaner, choosing
from wior.cleaning.choosing import TEMPERATURES, Trial, best_record, curve, finalists, fold_places, parts_of_rows
from wior.cleaning.designs import DESIGNS, Setting
from wior.orders import FlipFlop


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
        calls.append((material, arguments[5] if len(arguments) > 5 else None, result))
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


def test_a_setting_that_diverges_does_not_win(monkeypatch):
    alone = fit()
    good, bad = Setting("noise", "counted", 1.0, 0.1, 1.0), Setting("noise", "counted", 1e30, 1e20, 1.0)
    monkeypatch.setattr(choosing, "SETTINGS", (bad, good))
    found = LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=0).fit(*DATA[:4])
    assert_same_findings(found, alone)
    assert {trial.setting: bool(np.isfinite(trial.losses).all()) for trial in found.trials_} == {bad: False, good: True}


def test_where_all_diverge_it_is_said():
    with pytest.raises(ValueError, match="the model diverged on the held-out verified rows under every setting"):
        LabelCleaner(hidden=(6,), epochs=4, folds=2, parts=0, inner_lr=1e30).fit(*DATA[:4])


def test_where_the_last_run_diverges_it_is_said(monkeypatch):
    learn = choosing.learn
    monkeypatch.setattr(choosing, "learn", lambda *args: learn(*args) if len(args) == 7 else None)
    with pytest.raises(ValueError, match=r"diverged with all verified rows .*; set a smaller inner_lr or outer_lr"):
        fit()
