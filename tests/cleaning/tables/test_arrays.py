"""Arrays in NPZ files."""

import json
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from user_tables import known, names, verified_by, write
from wior.cleaning.tables import Asked, InputError, read
from wior.cleaning.tables import arrays as array_files


def arrays(name="train.npz", save=np.savez, **changed):
    save(
        name,
        **{
            "X": np.array([[1, 2], [3, 4], [5, 7]], float),
            "y": np.array([0, 1, 1]),
            "ok": [True, False, False],
            **changed,
        },
    )
    return Path(name)


def read_marked(path, label=None, **options):
    return read(Asked(path, label=label, verified_column="ok", **options))


def test_arrays_of_numbers(folder):
    job = read_marked(arrays(name_of_row=np.array(["p", "q", "r"]), classes=np.arange(10)), id_column="name_of_row")
    assert (job.kind, job.images, job.features.dtype) == ("arrays", None, np.float32)
    assert job.features.tolist() == [[1, 2], [3, 4], [5, 7]]
    assert (names(job, job.given), job.ids.tolist()) == (["0", "1", "1"], ["p", "q", "r"])
    assert job.fields == ["ok", "name_of_row", "X 1", "X 2"]
    assert job.records(np.array([2, 0])) == [["false", "r", "5.0", "7.0"], ["true", "p", "1.0", "2.0"]]
    assert known(job) == {0: "0"}
    assert job.notes == [
        "array 'classes' is ignored: not asked for",
        "1 row of the table is verified; 0 of them with another label than the given one",
        "no verified row has the label '1'",
    ]
    assert job.fates["X"] == {"kind": "numbers", "shape": [3, 2]}
    assert json.loads(json.dumps(job.fates))["y"] == {"kind": "label", "values": 2}


def test_bytes_stay_bytes_and_labels_may_be_named(folder):
    path = arrays(X=np.array([[1, 2], [3, 255], [0, 7]], np.uint8), target=np.array([b"a", b"b", b"\xc3\xa9"]))
    train = read_marked(path, label="target")
    assert (train.features.dtype, train.images) == (np.uint8, None)
    assert names(train, train.given) == ["a", "b", "é"]


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 5, 3), (3, 4, 5, 1)])
def test_arrays_of_pictures(folder, shape):
    pictures = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    train = read_marked(arrays(X=pictures), backbone="pixels")
    assert train.features.shape == (3, np.prod(shape[1:]))
    assert train.features.dtype == np.uint8
    places = np.array([2, 0])
    assert np.array_equal(
        train.images(places), pictures[places].reshape(2, *(shape[1:3] if shape[3:] == (1,) else shape[1:]))
    )
    assert train.fields == ["ok"]
    assert train.fates["X"]["kind"] == "pictures"


def test_verified_arrays(folder):
    train = arrays()
    verified = arrays("verified.npz", X=np.array([[3, 4], [9, 9]], np.uint8), y=[0, 1], ok=0)
    job = verified_by(train, verified, label=None)
    assert known(job) == {1: "0"}
    assert job.outside_features.tolist() == [[9, 9]]
    assert job.outside_features.dtype == np.float32
    assert job.notes[-1] == "1 row of the table is verified; 1 of them with another label than the given one"
    with_ids = arrays("ids.npz", who=[1, 2, 3])
    verified = arrays("verified-ids.npz", X=np.array([[3.5, 4], [9, 9]]), y=[0, 1], who=[3, 4], ok=0)
    assert known(verified_by(with_ids, verified, label=None, id_column="who")) == {2: "0"}


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        (
            {"X": np.array([[1, 2], [3, np.nan], [5, 6]])},
            {},
            r"train.npz, row 2, column 'X 2': nan must be a finite number",
        ),
        ({"X": np.array([[1, 2], [3, 4], [-np.inf, 6]])}, {}, r"train.npz, row 3, column 'X 1': -inf must be"),
        ({"X": np.array([[1, 2], [3, 4], [1e300, 6]])}, {}, r"row 3, column 'X 1': 1e\+300 must be"),
        ({"X": np.ones(3)}, {}, r"train.npz: X must be numbers \(n, d\), or pictures .* got float64 \(3,\)"),
        ({"X": np.ones((3, 2, 2))}, {}, r"X must be numbers"),
        ({"X": np.array([["a"], ["b"], ["c"]])}, {}, r"X must be numbers"),
        ({"X": np.ones((3, 0))}, {}, r"has the shape \(3, 0\), and no features"),
        ({"X": np.ones((0, 3))}, {}, r"train.npz: X has no rows"),
        ({"y": np.array([0, 1])}, {}, r"train.npz: 'y' must have one label for each of 3 rows, got the shape \(2,\)"),
        ({"y": np.array([0, 1, np.nan])}, {}, r"train.npz, row 3, column 'y': the label is missing"),
        ({"y": np.array([1, 1, 1])}, {}, r"all labels are '1'"),
        ({"ok": [0, 1, 7]}, {}, r"train.npz, row 3, column 'ok': '7' must be true"),
        ({}, {"label": "z"}, r"train.npz has no column 'z', which --label names; its columns are 'y', 'ok'"),
        ({}, {"id_column": "y"}, r"the column 'y' is named both by --label and by --id"),
        ({"who": [1, 2, 2]}, {"id_column": "who"}, r"train.npz, column 'who': rows 2 and 3 have the same id '2'"),
        ({}, {"ignore": ["X 1"]}, r"--ignore is for the columns of tables"),
    ],
)
def test_wrong_arrays(folder, changed, options, message):
    with pytest.raises(InputError, match=message):
        read_marked(arrays(**changed), **options)


def test_files_that_are_no_arrays(folder):
    np.savez("none.npz", y=[0, 1])
    with pytest.raises(InputError, match=r"none.npz must have features under X or features; its arrays are 'y'"):
        read_marked(Path("none.npz"))
    np.savez("none.npz", features=np.ones((2, 2)), ok=[0, 1])
    with pytest.raises(InputError, match=r"none.npz must have labels under y or labels, or name them by --label"):
        read_marked(Path("none.npz"))
    with pytest.raises(InputError, match=r"damaged or no .npz file"):
        read_marked(write("bad.npz", b"PK and no more"))
    np.savez("objects.npz", X=np.ones((2, 2)), y=np.array(["a", None], object))
    with pytest.raises(InputError, match=r"objects.npz: the array 'y' holds Python objects, which are not read"):
        read_marked(Path("objects.npz"))


def test_verified_arrays_of_another_layout(folder):
    with pytest.raises(
        InputError, match=r"v.npz: X must be as in the training rows, float32 \(n, 2\), got float32 \(n, 3\)"
    ):
        verified_by(arrays(), arrays("v.npz", X=np.ones((3, 3))), label=None)
    with pytest.raises(InputError, match=r"must be as in the training rows, uint8 \(n, 2\), got float32 \(n, 2\)"):
        verified_by(arrays(X=np.array([[1, 2], [3, 4], [5, 6]], np.uint8)), arrays("v.npz"), label=None)


@pytest.mark.parametrize(
    ("labels", "new", "expected"),
    [
        (np.array([0, 1, 1]), "2", np.array([0, 2])),
        (np.array([0, 1, 1], np.uint8), "2", np.array([0, 2], np.uint8)),
        (np.array([0.5, 1, 1]), "2.5", np.array([0.5, 2.5])),
        (np.array([True, False, False]), "true", np.array([True, True])),
        (np.array(["a", "b", "b"]), "longer", np.array(["a", "longer"])),
        (np.array([b"a", b"b", b"b"]), "é", np.array([b"a", "é".encode()])),
        (np.array([0, 1, 1], np.uint8), "300", np.array(["0", "300"])),
        (np.array([0, 1, 1]), "unknown", np.array(["0", "unknown"])),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_copy_of_arrays(folder, labels, new, expected, save):
    train = read_marked(
        arrays(save=save, y=labels, more=np.arange(6).reshape(3, 2), other=np.arange(2), one=np.array(5))
    )
    out = train.write(folder, np.array([True, False, True]), {2: new})
    with np.load(out, allow_pickle=False) as copy:
        assert copy.files == ["X", "y", "ok", "more", "other", "one"]
        assert np.array_equal(copy["X"], [[1, 2], [5, 7]])
        assert np.array_equal(copy["more"], [[0, 1], [4, 5]])
        assert (copy["ok"].tolist(), copy["other"].tolist(), copy["one"].tolist()) == ([True, False], [0, 1], 5)
        assert copy["y"].dtype.kind == expected.dtype.kind
        assert copy["y"].tolist() == expected.tolist()
    with zipfile.ZipFile(out) as archive, zipfile.ZipFile("train.npz") as original:
        assert archive.infolist()[0].compress_type == original.infolist()[0].compress_type


@pytest.mark.parametrize(
    "features",
    [
        np.arange(14, dtype=np.float32).reshape(7, 2),
        np.asfortranarray(np.arange(14.0).reshape(7, 2)),
        np.arange(14, dtype=">i4").reshape(7, 2),
        np.arange(7 * 12, dtype=np.uint8).reshape(7, 3, 4),
    ],
    ids=["rows", "by columns", "another byte order", "pictures"],
)
def test_arrays_are_read_and_copied_some_rows_at_a_time(folder, monkeypatch, features):
    """In pieces that end within the rows, and into memory that jax takes as it is."""
    monkeypatch.setattr(array_files, "ROWS_AT_ONCE", 3)
    train = read_marked(arrays(X=features, y=np.arange(7) % 2, ok=np.arange(7) < 2))
    assert np.array_equal(train.features, features.reshape(7, -1))
    assert jax.device_put(train.features).unsafe_buffer_pointer() == train.features.ctypes.data
    keep = np.array([True, False, False, True, True, False, True])
    with np.load(train.write(folder, keep), allow_pickle=False) as copy:
        assert copy["X"].dtype == features.dtype
        assert np.array_equal(copy["X"], features[keep])
        assert copy["y"].tolist() == [0, 1, 0, 0]
