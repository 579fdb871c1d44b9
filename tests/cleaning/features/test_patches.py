"""Features of patches: their definition written out, and the same numbers every time."""

import numpy as np
import pytest

from wior.cleaning.features import patches


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(patches, "CENTERS", 7)
    monkeypatch.setattr(patches, "PATCHES", 4000)


def pictures(count=40):
    random = np.random.default_rng(2)
    base = random.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return base.repeat(4, 1).repeat(4, 2)


def even(patch):
    patch = patch / 255 - (patch / 255).mean()
    return patch / np.sqrt((patch**2).mean() + 0.01)


def test_the_features_are_their_definition(few):
    given = pictures()
    learned = patches.learn(given)
    found = learned.embed(given[:3])
    assert (found.dtype, found.shape) == (np.float32, (3, 13 * 7))
    picture = given[1].astype(np.float64)
    active = np.empty((27, 27, 7))
    for row in range(27):
        for column in range(27):
            patch = picture[row : row + 6, column : column + 6].transpose(2, 0, 1).ravel()
            patch = (even(patch) - learned.mean) @ learned.whitening
            distances = np.linalg.norm(patch[:, None] - learned.centers, axis=0)
            active[row, column] = np.maximum(0, distances.mean() - distances)
    thirds, halves = (slice(0, 9), slice(9, 18), slice(18, 27)), (slice(0, 14), slice(14, 27))
    expected = [np.sqrt(active[down, across].mean((0, 1))) for down in thirds for across in thirds]
    expected += [active[down, across].max((0, 1)) for down in halves for across in halves]
    np.testing.assert_allclose(found[1], np.concatenate(expected), atol=2e-3)


def test_the_whitening_is_the_root_of_the_inverse_covariance(few, monkeypatch):
    monkeypatch.setattr(patches, "PATCHES", 30_000)
    given = pictures()
    learned = patches.learn(given)
    windows = np.lib.stride_tricks.sliding_window_view(given, (6, 6), (1, 2))
    covariance = np.cov(np.array([even(patch) for patch in windows.reshape(-1, 108)]).T)
    np.testing.assert_allclose(learned.whitening, learned.whitening.T, atol=1e-5)
    found = np.linalg.inv(learned.whitening @ learned.whitening) - 0.1 * np.eye(108)
    assert np.linalg.norm(found - covariance) < 0.1 * np.linalg.norm(covariance)


def test_the_same_pictures_give_the_same_features(few):
    given = pictures()
    first, again = (patches.learn(given) for _ in range(2))
    np.testing.assert_array_equal(first.centers, again.centers)
    together = first.embed(given)
    np.testing.assert_allclose(first.embed(given[35:]), together[35:], atol=1e-5)
    assert first.embed(np.zeros((1, 32, 32, 3), np.uint8)).shape == (1, 91)
