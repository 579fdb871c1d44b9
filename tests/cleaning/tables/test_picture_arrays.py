"""Pictures in .npz files: small gray ones stay pixels, the others become features."""

from pathlib import Path

import numpy as np
import pytest

from user_tables import marked, verified_by
from wior.cleaning.features import backbones, patches
from wior.cleaning.tables import InputError
from wior.cleaning.tables.opening import open_rows


@pytest.fixture(autouse=True)
def few_patches(monkeypatch):
    monkeypatch.setattr(backbones, "weights_of", lambda name: None)
    monkeypatch.setattr(patches, "CENTERS", 8)
    monkeypatch.setattr(patches, "PATCHES", 5000)


def arrays(name, shape, count=12, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)
    np.savez(name, X=pixels, y=np.arange(count) % 2)
    return pixels


def read(**options):
    return verified_by(Path("train.npz"), Path("verified.npz"), label="y", **options)


@pytest.mark.parametrize("shape", [(12, 10, 3), (40, 33)])
def test_pictures_become_features(folder, shape):
    train = arrays("train.npz", shape)
    np.savez("verified.npz", X=np.concatenate([train[[4]], arrays("new.npz", shape, 2, 1)]), y=np.array([1, 0, 1]))
    job = read()
    assert (job.features.dtype, job.picture_shape) == (np.float32, None)
    assert job.fates["X"] == {
        "kind": "pictures",
        "shape": [12, *shape],
        "backbone": "patches",
        "features": job.features.shape[1],
    }
    np.testing.assert_array_equal(job.images(np.array([7, 2])), train[[7, 2]])
    assert np.flatnonzero(job.right != -1).tolist() == [4]
    assert job.right[4] == 1
    assert job.outside.tolist() == [0, 1]  # the two others, whose features are those that such pictures have here
    np.testing.assert_array_equal(job.outside_features, job.like(open_rows(Path("verified.npz"))).features[1:])
    assert any("pip install 'wior[images]'" in note for note in job.notes)


def test_small_gray_pictures_and_pixels_asked_for_stay(folder):
    for shape, options in (((28, 28), {}), ((8, 8), {}), ((12, 10, 3), {"backbone": "pixels"})):
        train = arrays("train.npz", shape)
        arrays("verified.npz", shape, 2, 1)
        job = read(**options)
        np.testing.assert_array_equal(job.features, train.reshape(12, -1))
        assert job.picture_shape == shape
    arrays("train.npz", (8, 8))
    arrays("verified.npz", (8, 8), 2, 1)
    assert read(backbone="patches").features.dtype == np.float32


def test_a_backbone_for_what_is_no_picture(folder):
    with pytest.raises(InputError, match=r"^train.csv: --backbone is for pictures, and its rows are none$"):
        marked("a,label,ok\n1,x,1\n2,y,0\n", backbone="patches")
    arrays("train.npz", (12, 10, 3))
    arrays("verified.npz", (12, 10, 3), 2, 1)
    with pytest.raises(InputError, match=r"--backbone 'resnet' is not known; give patches, pixels"):
        read(backbone="resnet")
