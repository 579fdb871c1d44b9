"""The stand-in for MiniImageNet."""

import io

import numpy as np
import pytest
from PIL import Image

from real_data import real_data
from small_files import jpeg
from wior.data import files, tiny_imagenet_images
from wior.data.tiny_imagenet_images import read_part as read_tiny_part


def tiny_arrays(classes, per_class):
    rng = np.random.default_rng(8)
    jpegs = [jpeg(rng, (64, 64), "L" if k == 3 else "RGB") for k in range(classes * per_class)]
    return {
        "jpeg": np.frombuffer(b"".join(jpegs), np.uint8),
        "offsets": np.cumsum([0, *map(len, jpegs)]),
        "labels": np.tile(np.arange(classes, dtype=np.int16), per_class),
        "wnids": np.array([f"n{k}" for k in range(classes)]),
    }, jpegs


def test_the_stand_ins_files_are_decoded_class_by_class(tmp_path):
    arrays, jpegs = tiny_arrays(2, 3)
    path = tmp_path / "val.npz"
    np.savez(path, **arrays)
    images, names = read_tiny_part(path, 2, 3)
    assert images.shape == (2, 3, 64, 64, 3)
    assert names == ("n0", "n1")
    np.testing.assert_array_equal(images[1, 1], np.asarray(Image.open(io.BytesIO(jpegs[3])).convert("RGB")))
    for name, value, message in (
        ("labels", np.zeros(6, np.int16), "3 images of each of 2 classes"),
        ("offsets", arrays["offsets"] + 1, "offsets must rise from 0"),
        ("wnids", np.array(["n0"]), r"wnids must be U \(2,\)"),
        (
            "jpeg",
            np.zeros_like(arrays["jpeg"]),
            r"image 0 of .*val.npz \(.* bytes\) is truncated, damaged or not an image",
        ),
    ):
        np.savez(path, **{**arrays, name: value})
        with pytest.raises(ValueError, match=message):
            read_tiny_part(path, 2, 3)


def test_tiny_imagenet_fs():
    folder = real_data("tiny_imagenet_fs/val.npz")
    found = read_tiny_part(
        files.find(tiny_imagenet_images.FILES["val"], folder=folder), 16, 250
    )  # the others take seconds more
    assert found.images.shape == (16, 250, 64, 64, 3)
    assert found.images.std() > 50
    rows = [line.split("\t") for line in (folder / "tiny_imagenet_fs" / "classes.tsv").read_text().splitlines()]
    assert found.names == tuple(row[2] for row in rows if row[0] == "val")
