"""Features of many pictures: in blocks, from the cache, the same for the same content."""

import numpy as np
import pytest

from wior.cleaning.features import backbones, embedding_cache, pictures
from wior.cleaning.features.backbones import Backbone
from wior.cleaning.features.pictures import ArrayPictures, kept_as_pixels, picture_features


class Counted(ArrayPictures):
    """Notes which pictures are read."""

    def __init__(self, pixels):
        super().__init__(pixels)
        self.blocks = []

    def read(self, places, side):
        self.blocks.append(places.tolist())
        return super().read(places, side)

    @property
    def places(self):
        return sorted(place for block in self.blocks for place in block)


@pytest.fixture(autouse=True)
def means(tmp_path, monkeypatch):
    """A backbone whose embeddings are cached: means of the quarters."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def embed(given):
        return given.reshape(len(given), 2, 4, 2, 4, 3).mean((2, 4)).reshape(len(given), -1).astype(np.float32)

    monkeypatch.setattr(pictures, "open_backbone", lambda name: Backbone(name, 8, embed, f"{name} 1"))


def some(count, seed=0, shape=(8, 8, 3)):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def test_pictures_are_read_some_at_a_time_and_once(monkeypatch):
    monkeypatch.setattr(pictures, "SAMPLE", 50)
    given = Counted(some(200))
    made = picture_features(given, "means")
    assert made.backbone == "means"
    assert (made.values.dtype, made.values.shape) == (np.float32, (200, 12))
    assert given.places == list(range(200))
    assert max(map(len, given.blocks)) <= 64
    # the components are those of the sample: linear in the means of all
    expected = some(200).reshape(200, 2, 4, 2, 4, 3).mean((2, 4)).reshape(200, -1)
    fitted, *_ = np.linalg.lstsq(np.c_[expected, np.ones(200)], made.values, rcond=None)
    np.testing.assert_allclose(np.c_[expected, np.ones(200)] @ fitted, made.values, atol=0.02)
    deviations = made.values[pictures._spread(200, 50)].std(0)
    np.testing.assert_allclose(deviations, 1, rtol=1e-2)


def test_what_was_embedded_before_is_not_read_again():
    first, second = Counted(some(30)), Counted(np.concatenate([some(30), some(5, 1)]))
    before = picture_features(first, "means").values
    picture_features(second, "means")
    assert second.places == [30, 31, 32, 33, 34]
    again = Counted(some(30))
    np.testing.assert_array_equal(picture_features(again, "means").values, before)
    assert again.blocks == []
    picture_features(third := Counted(some(30)), "another")
    assert third.places == list(range(30))


def test_a_damaged_cache_changes_nothing():
    before = picture_features(Counted(some(30)), "means").values
    embedding_cache.EmbeddingCache("").path.write_bytes(b"damaged" * 1000)
    again = Counted(some(30))
    np.testing.assert_array_equal(picture_features(again, "means").values, before)
    assert again.places == list(range(30))


def test_the_same_content_has_the_same_features():
    pixels = some(20)
    pixels[[3, 17]] = pixels[5]
    given = Counted(pixels)
    made = picture_features(given, "means")
    np.testing.assert_array_equal(made.values[3], made.values[17])
    assert given.places == [place for place in range(20) if place not in (5, 17)]
    others = Counted(np.concatenate([pixels[[7, 5]], some(2, 9)]))
    like = made.like(others)
    np.testing.assert_array_equal(like[:2], made.values[[7, 5]])
    assert others.places == [2, 3]
    assert np.abs(like[2] - like[3]).max() > 0.1


def test_arrays_of_any_shape_become_squares_of_three_colors():
    gray = some(3, shape=(20, 10))
    for pixels in (gray, gray[..., None], np.stack([gray] * 3, 3)):
        read = ArrayPictures(pixels).read(np.array([2, 0]), 5)
        assert (read.dtype, read.shape) == (np.uint8, (2, 5, 5, 3))
        np.testing.assert_array_equal(read[..., 0], read[..., 2])
        np.testing.assert_array_equal(read, ArrayPictures(gray).read(np.array([2, 0]), 5))
    np.testing.assert_array_equal(ArrayPictures(some(3)).read(np.array([1]), 8), some(3)[[1]])


def test_which_pictures_are_features_as_they_are():
    shapes = [(8, 8), (28, 28), (32, 32), (33, 20), (8, 8, 3), (32, 32, 3)]
    assert [kept_as_pixels(shape) for shape in shapes] == [True, True, True, False, False, False]


def test_the_best_backbone_that_is_installed(tmp_path, monkeypatch):
    for name in backbones.NETWORKS:
        monkeypatch.setitem(backbones.NETWORKS, name, backbones.Package(name.replace("-", "_"), "models/weights.pth"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert backbones.best_installed() == "patches"
    for name in ("efficientnet_lite0", "efficientnet_lite2"):
        (tmp_path / name / "models").mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('the package was run')")
        (tmp_path / name / "models" / "weights.pth").write_bytes(b"no weights")
        assert backbones.best_installed() == name.replace("_", "-")
    with pytest.raises(
        backbones.BackboneError, match=r"lite2: .*weights.pth is truncated.*; install efficientnet-lite2 again"
    ):
        backbones.open_backbone("efficientnet-lite2")
