"""Data made from a seed."""

import numpy as np
import pytest

from wior.data import blobs, glyphs


def test_blobs_and_glyphs_follow_from_their_seed_and_tell_their_classes_apart():
    made, again, other = blobs(seed=1), blobs(seed=1), blobs(seed=2)
    assert [len(part.labels) for part in made] == [2000, 500, 1000]
    np.testing.assert_array_equal(made.test.features, again.test.features)
    assert np.abs(made.train.features - other.train.features).max() > 0.1
    centers = np.stack([made.train.features[made.train.labels == label].mean(0) for label in range(4)])
    nearest = ((made.test.features[:, None] - centers) ** 2).sum(-1).argmin(1)
    assert (nearest == made.test.labels).mean() > 0.9
    parts = glyphs(train=6, valid=2, test=3, per_class=5, side=20)
    assert [part.images.shape for part in parts] == [(n, 5, 20, 20, 1) for n in (6, 2, 3)]
    assert parts.train.images.dtype == np.uint8
    assert set(np.unique(parts.train.images)) == {0, 255}
    flat = parts.train.images.reshape(6, 5, -1) > 0
    within = (flat[:, 0] & flat[:, 1]).sum(-1).mean()
    between = (flat[:-1, 0] & flat[1:, 1]).sum(-1).mean()
    assert within > 2 * between  # two tries at one glyph share more ink than two glyphs
    with pytest.raises(ValueError, match="classes is too small"):
        blobs(classes=1)
