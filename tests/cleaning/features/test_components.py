"""Principal components: of standardized features, with the variance 1."""

import numpy as np
import pytest

from wior.cleaning.features import components
from wior.cleaning.features.components import Components


def features(rows, columns, seed=0):
    random = np.random.default_rng(seed)
    strengths = 0.95 ** np.arange(min(rows, columns))
    mixed = random.normal(size=(rows, len(strengths))) * strengths @ random.normal(size=(len(strengths), columns))
    return (mixed * random.uniform(0.1, 9, columns) + random.normal(size=columns)).astype(np.float32)


@pytest.mark.parametrize("exact", [2000, 10])
@pytest.mark.parametrize(("rows", "columns"), [(300, 40), (200, 290)])
def test_components_are_those_of_a_singular_value_decomposition(monkeypatch, rows, columns, exact):
    monkeypatch.setattr(components, "EXACT", exact)
    given = features(rows, columns)
    made = Components.of(given, rows).apply(given)
    assert (made.dtype, made.shape) == (np.float32, (rows, components.wanted(rows)))
    made = made[:, :5]
    standardized = (given - given.mean(0)) / given.std(0)
    left = np.linalg.svd(standardized.astype(np.float64), full_matrices=False)[0][:, :5] * np.sqrt(rows)
    np.testing.assert_allclose(np.abs((made * left).mean(0)), 1, atol=2e-4)  # up to the sign
    np.testing.assert_allclose(made.T @ made / rows, np.eye(5), atol=2e-3)


def test_few_rows_give_few_components():
    assert [components.wanted(rows) for rows in (2, 64, 100, 6000, 10**6)] == [16, 16, 20, 155, 256]
    assert Components.of(features(8, 400), 8).axes.shape == (400, 7)
    assert Components.of(features(50, 400), 400).axes.shape == (400, 40)


def test_columns_that_do_not_vary_count_nothing():
    given = features(50, 6)
    given[:, 2] = 3
    made = Components.of(given, 50)
    assert made.axes.shape == (6, 5)
    assert (made.axes[2] == 0).all()
    np.testing.assert_array_equal(
        Components.of(np.ones((9, 4), np.float32), 9).apply(np.eye(4, dtype=np.float32)), np.zeros((4, 1))
    )
