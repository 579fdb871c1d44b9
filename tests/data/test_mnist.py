"""MNIST, and the IDX files it comes in."""

import gzip

import numpy as np
import pytest

from real_data import real_data
from wior import data
from wior.data import files
from wior.data.mnist_images import FILES, read_idx, read_part
from wior.data.published_file import contents


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def test_idx_files_are_read_plain_and_compressed(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), np.array([3, 0, 9, 1, 1], np.uint8)
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "labels").write_bytes(idx(labels))
    rows = read_part(tmp_path / "images.gz", tmp_path / "labels", 5)
    np.testing.assert_allclose(rows.features, images.reshape(5, 784) / 255, rtol=1e-6)
    assert rows.features.dtype == np.float32
    assert rows.labels.dtype == np.int32
    assert rows.labels.tolist() == [3, 0, 9, 1, 1]
    (tmp_path / "labels").write_bytes(idx(labels + 1))
    with pytest.raises(ValueError, match="labels from 0 to 9, got 10"):
        read_part(tmp_path / "images.gz", tmp_path / "labels", 5)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda whole: gzip.compress(whole)[:-9], "cannot be read to its end"),
        (lambda whole: whole, "cannot be read to its end"),  # not compressed
        (lambda whole: gzip.compress(b"\x89PNG" + whole[4:]), "begins with 89 50 4e 47"),
        (lambda whole: gzip.compress(b""), "begins with nothing"),
        (lambda whole: gzip.compress(idx(np.zeros((4, 3), np.uint8))), r"shape \(3, 4\), its header says \(4, 3\)"),
        (lambda whole: gzip.compress(idx(np.zeros(12, np.uint8))), r"its header says \(12,\)"),
        (lambda whole: gzip.compress(whole[:-1]), "truncated or damaged: 11 values"),
    ],
)
def test_other_idx_files_are_refused(tmp_path, broken, message):
    path = tmp_path / "a.gz"
    path.write_bytes(broken(idx(np.arange(12, dtype=np.uint8).reshape(3, 4))))
    with pytest.raises(ValueError, match=message):
        read_idx(path, (3, 4))


def test_mnist():
    rows = data.mnist(real_data("mnist/t10k-images-idx3-ubyte.gz"))
    assert [part.features.shape for part in rows] == [(60000, 784), (10000, 784)]
    assert rows.train.features.dtype == np.float32
    assert (rows.train.features.min(), rows.train.features.max()) == (0, 1)
    np.testing.assert_allclose(rows.train.features.mean(dtype=np.float64), 0.1307, atol=1e-4)
    assert rows.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(rows.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_a_truncated_file_of_mnist_is_refused_by_its_checksum(tmp_path):
    folder = real_data("mnist/t10k-labels-idx1-ubyte.gz")
    whole = contents(folder / "mnist" / "t10k-labels-idx1-ubyte.gz")
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"\(10,007 bytes\) is truncated, .* published file ff7bcfd4"):
        files.find(FILES["t10k-labels-idx1-ubyte"], folder=tmp_path)
