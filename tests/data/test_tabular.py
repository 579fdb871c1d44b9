"""Tables: LIBSVM text and covtype in both of its layouts."""

import bz2
import gzip
import io

import numpy as np
import pytest

from real_data import real_data
from wior import data
from wior.data.tabular import COVTYPE_TEXT, read_covtype_arrays, read_covtype_text, read_libsvm


def test_libsvm_text_is_read_as_scikit_learn_reads_it(tmp_path):
    from sklearn.datasets import load_svmlight_file

    text = b"-1 1:0.5 3:-2e-3\n1\n1 2:1 4:.25 \n-1 4:7"
    (tmp_path / "a.bz2").write_bytes(bz2.compress(text))
    rows = read_libsvm(tmp_path / "a.bz2", 4, 4)
    features, labels = load_svmlight_file(io.BytesIO(text), n_features=4)
    np.testing.assert_array_equal(rows.features, features.toarray().astype(np.float32))
    np.testing.assert_array_equal(rows.labels, labels > 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:1\n", "must have 2 lines, got 1"),
        (b"1 1:1\n1 x:1\n", "is not LIBSVM text"),
        (b"1 1:1\n1 1:1 2\n", "is not LIBSVM text"),
        (b"1 1:1\n1 4:1\n", "columns 1 to 3"),
        (b"1 1:1\n2 3:1\n", "labels -1 and 1"),
    ],
)
def test_other_text_is_refused(tmp_path, text, message):
    (tmp_path / "a").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        read_libsvm(tmp_path / "a", 2, 3)


def test_ijcnn1():
    parts = data.ijcnn1(real_data("tabular/ijcnn1.bz2"))
    assert [part.features.shape for part in parts] == [(35000, 22), (14990, 22), (91701, 22)]
    assert [part.labels.sum() for part in parts] == [3415, 4853 - 3415, 8712]
    assert set(parts.test.labels) == {0, 1}
    expected = np.zeros(22, np.float32)
    expected[5], expected[10:14] = 1, (-0.731854, 0.173431, 0.0, 0.00027)
    np.testing.assert_array_equal(parts.train.features[0, :14], expected[:14])


def covtype_arrays(n):
    rng = np.random.default_rng(1)
    return {
        "numeric": rng.integers(-100, 7000, (n, 10)).astype(np.int16),
        "wilderness": rng.integers(0, 4, n).astype(np.uint8),
        "soil": rng.integers(0, 40, n).astype(np.uint8),
        "y": rng.integers(1, 8, n).astype(np.uint8),
    }


def test_both_layouts_of_covtype_are_the_same_table(tmp_path):
    arrays = covtype_arrays(9)
    np.savez(tmp_path / "a.npz", **arrays)
    lines = [
        [*numeric, *(area == np.arange(4)), *(soil == np.arange(40)), y]
        for numeric, area, soil, y in zip(*arrays.values(), strict=True)
    ]
    text = "\n".join(",".join(str(int(value)) for value in line) for line in lines).encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    one, other = read_covtype_arrays(tmp_path / "a.npz", 9), read_covtype_text(tmp_path / "a.gz", 9)
    for rows in (one, other):
        np.testing.assert_array_equal(rows.features, np.array(lines)[:, :-1])
        np.testing.assert_array_equal(rows.labels, arrays["y"] - 1)
        assert (rows.features.dtype, rows.labels.dtype) == (np.float32, np.int32)
    for broken, message in (
        (gzip.compress(text)[:-9], "truncated, damaged"),
        (gzip.compress(text[:-3]), "truncated, damaged"),
        (gzip.compress(b"\n".join(text.split(b"\n")[:-1])), r"9 lines of 55 numbers, got \(8, 55\)"),
        (gzip.compress(text[:-1] + b"8"), "classes from 1 to 7"),
    ):
        (tmp_path / "a.gz").write_bytes(broken)
        with pytest.raises(ValueError, match=message):
            read_covtype_text(tmp_path / "a.gz", 9)
    for name, value, message in (("soil", 40, "from 0 to 39, got 40"), ("y", 0, "classes from 1 to 7, got 0")):
        np.savez(
            tmp_path / "a.npz", **{**arrays, name: np.where(np.arange(9) == 4, value, arrays[name]).astype(np.uint8)}
        )
        with pytest.raises(ValueError, match=message):
            read_covtype_arrays(tmp_path / "a.npz", 9)


def test_covtype():
    rows = data.covtype(real_data("tabular/covtype.npz"))
    assert rows.features.shape == (581012, 54)
    assert np.bincount(rows.labels).tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    assert rows.features[0, :10].tolist() == [2596, 51, 3, 258, 0, 510, 221, 232, 148, 6279]
    assert (rows.features[:, 10:14].sum(1) == 1).all()
    assert (rows.features[:, 14:].sum(1) == 1).all()


def test_the_home_of_covtype_is_scikit_learns():
    from sklearn.datasets import _covtype

    assert COVTYPE_TEXT.url == _covtype.ARCHIVE.url
    assert COVTYPE_TEXT.checksum == f"sha256:{_covtype.ARCHIVE.checksum}"


def test_standardized_columns_have_mean_zero_and_deviation_one():
    rng = np.random.default_rng(2)
    by = (rng.normal(size=(500, 3)) * (1, 1000, 0) + (5, -3000, 2.7)).astype(np.float32)
    found = data.standardize(by, by)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(0), (1, 1, 0), atol=1e-5)
    np.testing.assert_allclose(data.standardize(by[:7], by), found[:7])
