"""MiniImageNet, in Ravi's lists and in three pickles."""

import gzip
import pickle
import re

import numpy as np
import pytest
from PIL import Image

from real_data import real_data
from small_files import jpeg, visible
from wior import data
from wior.data import mini_imagenet_images
from wior.data.mini_imagenet_images import CLASSES, read_list, read_lists, read_pickle
from wior.data.published_file import contents

SPLIT = {"train": ("n03", "n01"), "val": ("n04",), "test": ("n02", "n05")}


def in_ravis_layout(folder, ending=".csv", per_class=3):
    """Small lists and images as MiniImageNet has them; one image is larger, one is gray."""
    rng = np.random.default_rng(5)
    (folder / "images").mkdir(parents=True)
    for part, names in SPLIT.items():
        lines = ["filename,label"]
        for name in names:
            for k in range(per_class):
                file = f"{name}{k:08}.jpg"
                size = (120, 90) if (name, k) == ("n01", 1) else (84, 84)
                (folder / "images" / file).write_bytes(jpeg(rng, size, "L" if name == "n04" else "RGB"))
                lines.append(f"{file},{name}")
        text = "\n".join(lines).encode() + b"\n"
        (folder / f"{part}{ending}").write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    if ending.endswith(".gz"):
        for part in SPLIT:
            (folder / f"{part}{ending}").rename(folder / f"ravi_{part}{ending}")


@pytest.mark.parametrize(("below", "ending"), [("mini_imagenet", ".csv"), (".", ".csv.gz")])
def test_lists_with_an_image_folder(tmp_path, monkeypatch, below, ending):
    folder = tmp_path / "data" / below
    in_ravis_layout(folder, ending)
    parts = data.mini_imagenet(tmp_path / "data", strict=False)
    assert [part.names for part in parts] == [("n01", "n03"), ("n04",), ("n02", "n05")]
    assert [part.images.shape for part in parts] == [(n, 3, 84, 84, 3) for n in (2, 1, 2)]
    for images, file in ((parts.train.images[1, 2], "n0300000002.jpg"), (parts.valid.images[0, 1], "n0400000001.jpg")):
        np.testing.assert_array_equal(images, np.asarray(Image.open(folder / "images" / file).convert("RGB")))
    large = Image.open(folder / "images" / "n0100000001.jpg").resize((84, 84), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(parts.train.images[0, 1], np.asarray(large))
    with monkeypatch.context() as patch:  # the second time they come from the cache
        patch.setattr(mini_imagenet_images, "color", None)
        again = data.mini_imagenet(tmp_path / "data", strict=False)
    np.testing.assert_array_equal(again.test.images, parts.test.images)
    (folder / "images" / "n0200000000.jpg").write_bytes(jpeg(np.random.default_rng(6)))
    changed = data.mini_imagenet(tmp_path / "data", strict=False).test.images != parts.test.images
    assert changed.any(axis=(2, 3, 4)).tolist() == [[True, False, False], [False, False, False]]


def test_lists_that_are_not_ravis_are_refused(tmp_path):
    in_ravis_layout(tmp_path)
    with pytest.raises(ValueError, match="train must have 64 classes of 600 images, got 2 of 3; strict=False"):
        data.mini_imagenet(tmp_path)
    train, val = (tmp_path / f"{part}.csv" for part in ("train", "val"))
    whole = val.read_text()
    for text, message in (
        (train.read_text(), "train and val must have no class in common, got n01, n03"),
        (whole + "n0400000000.jpg,n04\n", "must name each image once, got 1 twice"),
        (whole + "n0300000000.jpg,n09\n", r"of val must have as many images each, got \[1, 3\]"),
        (whole.replace(",n04", ",n06").replace("n04", "n03"), "an image must be in one list alone, got 3 in two"),
        (whole.replace("n0400000000", "n0400000009"), "lacks 1 of 15 images in the lists, first n0400000009.jpg"),
        (whole.replace("n0400000000", "../n04"), "line 2: must be a file in images and its class"),
        (whole.replace("filename", "image"), "must begin with the line filename,label, got image,label"),
        ("", "must begin with the line filename,label, got nothing"),
        (whole[:-4], "line 4: must be a file"),
    ):
        val.write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            data.mini_imagenet(tmp_path, strict=False)
    val.write_text(whole)
    image = tmp_path / "images" / "n0400000002.jpg"
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"n0400000002.jpg \(300 bytes\) is truncated, damaged or not an image"):
        data.mini_imagenet(tmp_path, strict=False)
    assert visible(tmp_path / "cache") == []


def test_ravis_lists_are_known_and_another_split_of_their_classes_is_refused(tmp_path):
    folder = real_data("mini_imagenet/ravi_train.csv.gz") / "mini_imagenet"
    lists = {part: folder / f"ravi_{part}.csv.gz" for part in CLASSES}
    assert [len(read_list(path)) for path in lists.values()] == [64, 16, 20]
    with pytest.raises(FileNotFoundError, match=r"lacks 60,000 of 60,000 images"):  # the split itself was accepted
        read_lists(lists, tmp_path)
    swapped = {part: tmp_path / f"{part}.csv" for part in CLASSES}
    exchange = {"n01532829": "n01855672", "n01855672": "n01532829"}  # a class of train and one of val
    for part, path in lists.items():
        text = re.sub("|".join(exchange), lambda found: exchange[found[0]], contents(path).decode())
        swapped[part].write_text(text)
    with pytest.raises(ValueError, match="classes of train are not those of Ravi's split"):
        read_lists(swapped, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ravi_test\.csv\.gz alone"):
        data.mini_imagenet(folder)


def test_without_mini_imagenet_the_error_says_what_to_put_where(cache):
    with pytest.raises(FileNotFoundError, match="no public download") as error:
        data.mini_imagenet()
    for needed in (str(cache / "mini_imagenet"), "train.csv", "images", "mini-imagenet-cache-train.pkl", "--data DIR"):
        assert needed in str(error.value)


def pickled_parts(folder, protocol):
    rng, images = np.random.default_rng(7), {}
    for part, names in SPLIT.items():
        images[part] = rng.integers(0, 256, (3 * len(names), 84, 84, 3), np.uint8)
        classes = {name: list(range(k, 3 * len(names), len(names))) for k, name in enumerate(names)}
        found = {"image_data": images[part], "class_dict": classes}
        (folder / f"mini-imagenet-cache-{part}.pkl").write_bytes(pickle.dumps(found, protocol))
    return images


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_three_pickles(tmp_path, protocol):
    images = pickled_parts(tmp_path, protocol)
    parts = data.mini_imagenet(tmp_path, strict=False)
    assert [part.names for part in parts] == [("n01", "n03"), ("n04",), ("n02", "n05")]
    np.testing.assert_array_equal(parts.train.images, np.stack([images["train"][1::2], images["train"][0::2]]))
    with pytest.raises(ValueError, match="train must have 64 classes of 600 images, got 2 of 3"):
        data.mini_imagenet(tmp_path)


def test_wrong_pickles_are_refused(tmp_path):
    images, path = np.zeros((4, 84, 84, 3), np.uint8), tmp_path / "a.pkl"
    for found, message in (
        ([1, 2], "must have image_data and class_dict"),
        ({"image_data": images}, "must have image_data and class_dict"),
        (
            {"image_data": images[:, :80], "class_dict": {}},
            r"image_data must be uint8 \(images, 84, 84, 3\), got uint8",
        ),
        ({"image_data": images.astype(float), "class_dict": {}}, "got float64"),
        ({"image_data": images, "class_dict": {}}, "as many images of each class"),
        ({"image_data": images, "class_dict": {"a": [0], "b": [1, 2, 3]}}, "as many images of each class"),
        ({"image_data": images, "class_dict": {"a": [0, 1], "b": [1, 3]}}, "each of the 4 images to one class"),
        ({"image_data": images, "class_dict": {"a": [0, 1], "b": [2, 4]}}, "each of the 4 images to one class"),
    ):
        path.write_bytes(pickle.dumps(found))
        with pytest.raises(ValueError, match=message):
            read_pickle(path)
    path.write_bytes(pickle.dumps({"image_data": images})[:-1000])
    with pytest.raises(ValueError, match="truncated, damaged or not plain data"):
        read_pickle(path)
