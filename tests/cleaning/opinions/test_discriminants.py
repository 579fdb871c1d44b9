"""Linear discriminants against matrices written out, and what a row's own label may not do."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from opinion_rows import opinion_rows
from wior.cleaning.opinions import discriminants, given
from wior.cleaning.opinions.discriminants import (
    TEMPERATURES,
    Discriminants,
    best_loss,
    best_temperature,
    log_normalized,
    lowest,
)
from wior.cleaning.opinions.expansion import Expansion
from wior.cleaning.opinions.given import of_given
from wior.cleaning.opinions.rows import members

ROWS = opinion_rows(beside=0)
SHARE = 0.3


@pytest.fixture(scope="module")
def made():
    found = Discriminants(Expansion.of(ROWS.features, None, 0, sums=20), ROWS.features, ROWS.parts)
    found.shrink(SHARE)
    return found


def naive(expanded, parts, memberships, share):
    """In float64, each part by all rows of the others, with the covariance within classes."""
    scores = np.empty((len(expanded), memberships.shape[1]))
    for part in range(parts.max() + 1):
        others = parts != part
        rows, taken = expanded[others], memberships[others].astype(float)
        mean = rows.mean(0)
        total = np.cov(rows.T, bias=True)
        total += share * np.trace(total) / len(total) * np.eye(len(total))
        sizes = taken.sum(0)
        shares = (sizes + 1e-3) / (sizes + 1e-3).sum()
        means = ((taken.T @ rows) / sizes[:, None] - mean) * (sizes / (sizes + 1))[:, None]
        within = total - sum(p * np.outer(one, one) for p, one in zip(shares, means, strict=True))
        for number, one in enumerate(means):
            weights = np.linalg.solve(within, one)
            place = expanded[parts == part]
            scores[parts == part, number] = (place - mean) @ weights - one @ weights / 2 + np.log(shares[number])
    return scores


@pytest.mark.parametrize("soft", [False, True])
def test_scores_are_those_of_matrices_written_out(made, soft):
    memberships = members(ROWS.given, 3)
    if soft:
        memberships = np.random.default_rng(1).dirichlet(np.ones(3), len(ROWS.given)).astype(np.float32)
        memberships[::7] = 0  # these teach nothing
    expanded = made.expansion(ROWS.features).astype(float)
    found = made.scores(*made.sums(memberships))
    np.testing.assert_allclose(found, naive(expanded, ROWS.parts, memberships, SHARE), rtol=2e-3, atol=2e-3)


def test_without_shrinkage_they_are_those_of_scikit_learn():
    """But for a mean that moves towards that of all by one row."""
    many = opinion_rows(count=4000, pairs=0, beside=0)
    made = Discriminants(Expansion.of(many.features, None, 0, sums=0), many.features, many.parts)
    made.shrink(1e-9)
    found = log_normalized(made.scores(*made.sums(members(many.given, 3))))
    for part in range(5):
        here = many.parts == part
        theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(many.features[~here], many.given[~here])
        np.testing.assert_allclose(np.exp(found[here]), theirs.predict_proba(many.features[here]), atol=3e-3)


def test_a_row_has_no_say_in_its_own_score(made):
    memberships = members(ROWS.given, 3)
    before = made.scores(*made.sums(memberships))
    for row in (0, 17, 63):
        changed = memberships.copy()
        changed[row] = np.roll(changed[row], 1)
        after = made.scores(*made.sums(changed))
        own = ROWS.parts == ROWS.parts[row]
        np.testing.assert_allclose(after[own], before[own], rtol=1e-4, atol=1e-4)
        assert np.abs(after[~own] - before[~own]).max() > 1e-2


def test_the_opinion_of_given_labels_does_not_know_the_label_of_a_row():
    """But for shrinkage and temperature, one number for all rows."""
    import dataclasses

    before = of_given(ROWS, None, 0).logs
    labels = ROWS.given.copy()
    labels[5] = (labels[5] + 1) % 3
    after = of_given(dataclasses.replace(ROWS, given=labels), None, 0).logs
    own = np.flatnonzero(ROWS.parts == ROWS.parts[5])
    centered = lambda logs: logs - logs.mean(1, keepdims=True)
    ratio = centered(after[own]) / centered(before[own])
    np.testing.assert_allclose(ratio, np.median(ratio), rtol=1e-2)


def test_the_rule_for_other_rows_learns_from_all_parts(made):
    memberships = members(ROWS.given, 3)
    rule = made.rule(*made.sums(memberships), 2.0)
    expanded = made.expansion(ROWS.features).astype(float)
    others = ROWS.parts != 0  # whose covariance it takes
    rows, mean = expanded[others], expanded[others].mean(0)
    total = np.cov(rows.T, bias=True)
    total += SHARE * np.trace(total) / len(total) * np.eye(len(total))
    sizes = memberships.sum(0)
    shares = (sizes + 1e-3) / (sizes + 1e-3).sum()
    means = ((memberships.T @ expanded) / sizes[:, None] - mean) * (sizes / (sizes + 1))[:, None]
    within = total - sum(p * np.outer(one, one) for p, one in zip(shares, means, strict=True))
    weights = np.linalg.solve(within, means.T)
    scores = (expanded - mean) @ weights - np.einsum("kd,dk->k", means, weights) / 2 + np.log(shares)
    np.testing.assert_allclose(rule(ROWS.features), log_normalized(scores / 2), rtol=5e-3, atol=5e-3)


def test_many_classes_are_told_apart_by_the_covariance_of_all_rows(made, monkeypatch):
    monkeypatch.setattr(discriminants, "MOST_CLASSES", 2)
    memberships = members(ROWS.given, 3)
    found = made.scores(*made.sums(memberships))
    expanded = made.expansion(ROWS.features).astype(float)
    others = ROWS.parts != 1
    rows, taken = expanded[others], memberships[others]
    mean, sizes = rows.mean(0), taken.sum(0)
    total = np.cov(rows.T, bias=True)
    total += SHARE * np.trace(total) / len(total) * np.eye(len(total))
    means = ((taken.T @ rows) / sizes[:, None] - mean) * (sizes / (sizes + 1))[:, None]
    weights = np.linalg.solve(total, means.T)
    place = expanded[~others] - mean
    shares = (sizes + 1e-3) / (sizes + 1e-3).sum()
    expected = place @ weights - np.einsum("kd,dk->k", means, weights) / 2 + np.log(shares)
    np.testing.assert_allclose(found[~others], expected, rtol=2e-3, atol=2e-3)


def test_rows_that_are_not_held_in_memory_have_the_same_scores(made, monkeypatch):
    monkeypatch.setattr(discriminants, "KEPT_IN_MEMORY", 0)
    monkeypatch.setattr(discriminants, "ROWS_AT_ONCE", 7)
    again = Discriminants(made.expansion, ROWS.features, ROWS.parts)
    again.shrink(SHARE)
    memberships = members(ROWS.given, 3)
    assert again._kept is None
    np.testing.assert_allclose(
        again.scores(*again.sums(memberships)), made.scores(*made.sums(memberships)), rtol=1e-3, atol=1e-3
    )


def test_the_best_temperature_makes_the_labels_likeliest():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 500)
    labels[::9] = -1
    scores = rng.normal(size=(500, 4)) + 2.5 * np.eye(4)[labels]
    labeled = labels >= 0

    def loss(temperature):
        p = np.exp(scores[labeled] / temperature)
        p /= p.sum(1, keepdims=True)
        return -np.log(p[np.arange(labeled.sum()), labels[labeled]]).mean()

    losses = [loss(temperature) for temperature in TEMPERATURES]
    found, least = best_temperature(scores, labels)
    assert found == TEMPERATURES[np.argmin(losses)]
    assert least == pytest.approx(min(losses))
    assert TEMPERATURES[0] < found < TEMPERATURES[-1]
    assert best_loss(scores[labeled], labels[labeled]) == pytest.approx(min(losses), abs=2e-3)


def test_of_very_many_classes_fewer_rows_are_looked_at():
    assert [discriminants.compared(classes) for classes in (2, 800, 5000, 2**25)] == [5000, 5000, 838, 1]


def test_a_label_that_was_thought_impossible_counts_as_hardly_likely():
    assert best_loss(np.array([[0.0, -1e6], [0.0, -1e6]]), np.array([1, 1])) == pytest.approx(-np.log(1e-4), rel=1e-6)


def test_rows_of_others_are_judged_with_the_covariances_of_these(made):
    some = np.sort(np.random.default_rng(3).permutation(len(ROWS.given))[:50])
    memberships = members(ROWS.given, 3)
    sums = made.sums(memberships)
    others = made.of_others(ROWS.features[some], ROWS.parts[some])
    np.testing.assert_allclose(others.scores(*sums), made.scores(*sums)[some], rtol=1e-4, atol=1e-4)
    own = others.sums(memberships[some])
    np.testing.assert_allclose(own[1].sum(0), memberships[some].sum(0))
    assert len(made.parts) == len(ROWS.given)  # and these are what they were


def test_models_side_by_side_say_what_each_says_alone(made):
    rng = np.random.default_rng(4)
    models = [rng.dirichlet(np.ones(3), len(ROWS.given)).astype(np.float32) for _ in range(2)]
    together = made.scores(*made.sums(np.hstack(models)), models=2)
    for number, one in enumerate(models):
        alone = made.scores(*made.sums(one))
        np.testing.assert_allclose(together[:, 3 * number : 3 * number + 3], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("where", [0, 1, 4, 5, 7, 29, 30])
def test_the_lowest_loss_is_found_wherever_it_lies(where):
    temperatures, asked = np.geomspace(0.3, 10, 31), []

    def loss(temperature):
        asked.append(temperature)
        return abs(np.log(temperature / temperatures[where]))

    assert lowest(temperatures, loss) == (temperatures[where], pytest.approx(0, abs=1e-12))
    assert len(asked) == len(set(asked)) <= 16


def test_log_p_of_few_classes_and_of_many():
    for classes in (3, 100):
        scores = np.random.default_rng(5).normal(size=(7, classes))
        expected = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        np.testing.assert_allclose(log_normalized(scores), expected, rtol=1e-12, atol=1e-12)


def test_of_very_many_rows_some_choose_and_all_that_are_verified(monkeypatch):
    monkeypatch.setattr(given, "CHOSEN_AMONG", 60)
    found = of_given(ROWS, None, 0)
    assert len(found.some) == 60 + ROWS.known.sum()
    assert set(np.flatnonzero(ROWS.known)) <= set(found.some)
    assert found.of_some.covariances is found.discriminants.covariances
    assert found.logs.shape == (len(ROWS.given), 3)
    np.testing.assert_allclose(np.exp(found.logs).sum(1), 1, rtol=1e-5)
