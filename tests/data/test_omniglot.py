"""Omniglot, as arrays and in the original files."""

import hashlib
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from real_data import real_data
from wior import data
from wior.data import omniglot_images
from wior.data.omniglot_images import BACKGROUND, EVALUATION, TEST_ALPHABETS, VALID_ALPHABETS, part_of, read_zip


def drawings(path, alphabets, images, folder="images_background"):
    """A zip file in the original layout, of (characters, 20, 105, 105) with True for paper."""
    images = iter(images)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{folder}/", "")
        for alphabet, n in alphabets.items():
            for character in range(1, n + 1):
                for drawer, image in enumerate(next(images), start=1):
                    file = io.BytesIO()
                    Image.fromarray(image).save(file, "PNG")
                    name = f"{folder}/{alphabet}/character{character:02}/0{character:03}_{drawer:02}.png"
                    archive.writestr(name, file.getvalue())
    return path


def test_the_split_of_omniglot_is_by_alphabets():
    alphabets = {**BACKGROUND, **EVALUATION}
    assert (len(BACKGROUND), len(EVALUATION), len(alphabets)) == (30, 20, 50)
    assert (sum(BACKGROUND.values()), sum(EVALUATION.values())) == (964, 659)
    assert set(alphabets) > VALID_ALPHABETS | TEST_ALPHABETS
    counted = [part_of(alphabet) for alphabet in alphabets]
    assert [counted.count(part) for part in ("train", "valid", "test")] == [33, 5, 12]


def test_omniglot():
    parts = data.omniglot(real_data("omniglot/omniglot_28.npz"))
    assert [part.images.shape for part in parts] == [(n, 20, 28, 28, 1) for n in (1032, 172, 419)]
    assert all(part.images.dtype == np.uint8 for part in parts)
    assert [len({name.split("/")[0] for name in part.names}) for part in parts] == [33, 5, 12]
    assert len({name for part in parts for name in part.names}) == 1623
    assert 0 < (parts.test.images > 127).mean() < 0.2  # ink is bright and rare


def test_the_tables_of_omniglot_are_those_of_the_files():
    folder = real_data("omniglot/characters.tsv") / "omniglot"
    rows = [line.split("\t") for line in (folder / "characters.tsv").read_text().splitlines()[1:]]
    for half, alphabets in (("images_background", BACKGROUND), ("images_evaluation", EVALUATION)):
        named = [tuple(row[2:]) for row in rows if row[1] == half]
        assert named == omniglot_images.character_names(alphabets)
    lists = {
        part: {tuple(line.split("/")[:2]) for line in (folder / "splits" / f"vinyals_{part}.txt").read_text().split()}
        for part in ("train", "val", "test")
    }
    parts = {"train": "train", "val": "valid", "test": "test"}
    moved = {name for part, names in lists.items() for name in names if part_of(name[0]) != parts[part]}
    assert moved == {("Gurmukhi", f"character{k:02}") for k in (42, 43, 44, 45)}  # the alphabet that Vinyals' lists cut


def test_converted_drawings_equal_the_arrays(tmp_path):
    folder = real_data("omniglot/images_evaluation.npz") / "omniglot"
    with np.load(folder / "images_evaluation.npz") as file:
        drawn = file["images"][:20]  # Angelic
    with np.load(folder / "omniglot_28.npz") as file:
        expected = file["images"][964 : 964 + 20]
    path = drawings(tmp_path / "a.zip", {"Angelic": 20}, drawn)
    np.testing.assert_array_equal(read_zip(path, {"Angelic": 20}), expected)


def test_the_original_files_of_omniglot(tmp_path, monkeypatch):
    halves = {"BACKGROUND": {"Greek": 2, "Hebrew": 1}, "EVALUATION": {"Keble": 1}}
    rng = np.random.default_rng(3)
    drawn = {half: rng.random((sum(alphabets.values()), 20, 105, 105)) < 0.9 for half, alphabets in halves.items()}
    for half, alphabets in halves.items():
        name = f"images_{half.lower()}"
        path = drawings(tmp_path / f"{name}.zip", alphabets, drawn[half], name)
        monkeypatch.setattr(omniglot_images, half, alphabets)
        checksum = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
        monkeypatch.setattr(
            omniglot_images, f"{half}_ZIP", replace(getattr(omniglot_images, f"{half}_ZIP"), checksum=checksum)
        )
    parts = data.omniglot(tmp_path)
    assert [part.names for part in parts] == [
        ("Greek/character01", "Greek/character02"),
        ("Hebrew/character01",),
        ("Keble/character01",),
    ]
    small = Image.fromarray(drawn["BACKGROUND"][1, 6]).convert("L").resize((28, 28), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(parts.train.images[1, 6, :, :, 0], 255 - np.asarray(small))
    monkeypatch.setattr(omniglot_images, "read_zip", None)  # the second time they come from the cache
    np.testing.assert_array_equal(data.omniglot(tmp_path).test.images, parts.test.images)


def test_other_zip_files_are_refused(tmp_path):
    drawn = np.ones((2, 20, 105, 105), bool)
    path = drawings(tmp_path / "a.zip", {"Greek": 2}, drawn)
    with pytest.raises(ValueError, match=r"20 drawings of each of 3 .* missing or too many is Greek/character03/1"):
        read_zip(path, {"Greek": 3})
    with pytest.raises(ValueError, match="1 alphabets, got 40 drawings"):
        read_zip(path, {"Latin": 2})
    drawings(path, {"Greek": 1}, drawn[:1, :, :100])
    with pytest.raises(ValueError, match=r"0001_01.png in .* 105 × 105 pixels, got 105 × 100"):
        read_zip(path, {"Greek": 1})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a zip file"):
        read_zip(path, {"Greek": 1})


def test_rotations_are_four_classes_of_each():
    images = np.random.default_rng(4).integers(0, 256, (3, 2, 5, 5, 1), np.uint8)
    found = data.with_rotations(data.ImageClasses(images, ("a", "b", "c")))
    assert found.images.shape == (12, 2, 5, 5, 1)
    assert found.names[4:8] == ("b/rot000", "b/rot090", "b/rot180", "b/rot270")
    for quarters in range(4):
        np.testing.assert_array_equal(found.images[4 + quarters, 1, :, :, 0], np.rot90(images[1, 1, :, :, 0], quarters))
    with pytest.raises(ValueError, match="images must be square"):
        data.with_rotations(data.ImageClasses(images[:, :, :4], ("a", "b", "c")))
