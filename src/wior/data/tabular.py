"""Tables: ijcnn1 (22 columns, two classes) and Forest Covertype (54 columns, seven classes)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wior.data.arrays import read_arrays
from wior.data.files import find
from wior.data.published_file import PublishedFile, contents, opened
from wior.data.rows import Parts, Rows

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
IJCNN1 = PublishedFile(
    "tabular",
    ("ijcnn1.bz2", "ijcnn1"),
    "sha256:16506cad788cf7c9607454150ed1994788204bac2ff4c9cb3b320036b6950d3f",
    f"{LIBSVM}/ijcnn1.bz2",
    of_contents=True,
)
IJCNN1_TEST = PublishedFile(
    "tabular",
    ("ijcnn1.t.bz2", "ijcnn1.t"),
    "sha256:e7b0bbd518641980dc322746c6bc59d019d3153934e6258e48f9d8cfae2c4bb8",
    f"{LIBSVM}/ijcnn1.t.bz2",
    of_contents=True,
)
IJCNN1_COLUMNS, IJCNN1_TRAIN, IJCNN1_ROWS, IJCNN1_TEST_ROWS = 22, 35000, 49990, 91701

COVTYPE_ARRAYS = PublishedFile(
    "tabular", ("covtype.npz",), "sha256:f0f54e0a09b136be200a5c7a9c3b8d5a80f2be9d7a7ea4bd5189ae1387888ccc"
)
COVTYPE_TEXT = PublishedFile(
    "tabular",
    ("covtype.data.gz",),
    "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    "https://ndownloader.figshare.com/files/5976039",
)
COVTYPE_ROWS, WILDERNESS_AREAS, SOILS, COVERS = 581012, 4, 40, 7
COVTYPE_COLUMNS = 10 + WILDERNESS_AREAS + SOILS


def ijcnn1(folder: str | Path | None = None, *, progress: bool = False) -> Parts:
    """ijcnn1: 22 features as published, labels 0 and 1 (published as −1 and 1).

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA`, in the cache, and at the public address.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    Parts
        35000, 14990 and 91701 rows.

    Examples
    --------
    >>> from wior.data import ijcnn1
    >>> ijcnn1().train.features.shape  # doctest: +SKIP
    (35000, 22)
    """
    path, test_path = (find(source, folder=folder, progress=progress) for source in (IJCNN1, IJCNN1_TEST))
    features, labels = read_libsvm(path, IJCNN1_ROWS, IJCNN1_COLUMNS)
    train, valid = (Rows(features[part], labels[part]) for part in (slice(IJCNN1_TRAIN), slice(IJCNN1_TRAIN, None)))
    return Parts(train, valid, read_libsvm(test_path, IJCNN1_TEST_ROWS, IJCNN1_COLUMNS))


def covtype(folder: str | Path | None = None, *, progress: bool = False) -> Rows:
    """Forest Covertype: 54 features as published, labels 0 to 6 (published as 1 to 7).

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA`, in the cache, and at the public address.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    Rows
        Features (581012, 54), not standardized, and labels. There is no published split.

    Examples
    --------
    >>> from wior.data import covtype
    >>> covtype().features.shape  # doctest: +SKIP
    (581012, 54)
    """
    path = find(COVTYPE_ARRAYS, COVTYPE_TEXT, folder=folder, progress=progress)
    return read_covtype_arrays(path) if path.suffix == ".npz" else read_covtype_text(path)


def standardize(rows: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Rows with zero mean and unit standard deviation in each column, as measured on other rows.

    Parameters
    ----------
    rows : ndarray
        (n, columns), to be standardized.
    by : ndarray
        (m, columns), whose means and standard deviations are used: those of the training rows.

    Returns
    -------
    ndarray
        (n, columns) of float32. A column that is constant in `by` is only centered.

    Examples
    --------
    >>> import numpy as np
    >>> from wior.data import standardize
    >>> standardize(np.array([[3.0, 7.0]]), by=np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[1.0, 2.0]]
    """
    mean, deviation = by.mean(0, dtype=np.float64), by.std(0, dtype=np.float64)
    constant = deviation < 1e-7 * np.maximum(np.abs(mean), 1)
    return ((rows - mean) / np.where(constant, 1, deviation)).astype(np.float32)


def read_libsvm(path: Path, n: int, columns: int) -> Rows:
    """Lines `label column:value ...` with labels −1 and 1 and columns counted from 1."""
    text = contents(path)
    if not text.endswith(b"\n"):
        text += b"\n"
    letters = np.frombuffer(text, np.uint8)
    ends, colons = np.flatnonzero(letters == ord("\n")), np.flatnonzero(letters == ord(":"))
    if len(ends) != n:
        raise ValueError(f"{path} must have {n:,} lines, got {len(ends):,}")
    row = np.searchsorted(ends, colons)
    try:
        numbers = np.array(text.replace(b":", b" ").split(), np.float64)
    except ValueError as error:
        raise ValueError(f"{path} is not LIBSVM text, lines of `label column:value ...`: {error}") from None
    if len(numbers) != n + 2 * len(colons):
        raise ValueError(
            f"{path} is not LIBSVM text: {len(numbers):,} numbers in {n:,} lines with {len(colons):,} colons"
        )
    firsts = np.arange(n) + 2 * np.searchsorted(row, np.arange(n))  # where each line begins among the numbers
    labels, column = numbers[firsts], np.delete(numbers, firsts)[::2]
    if not np.isin(labels, (-1, 1)).all() or not np.isin(column, np.arange(1, columns + 1)).all():
        raise ValueError(f"{path} must have labels -1 and 1 and columns 1 to {columns}")
    features = np.zeros((n, columns), np.float32)
    features[row, column.astype(int) - 1] = np.delete(numbers, firsts)[1::2]
    return Rows(features, (labels > 0).astype(np.int32))


def read_covtype_arrays(path: Path, n: int = COVTYPE_ROWS) -> Rows:
    """Ten columns of numbers, and which of the areas and soils, of which the published table has a column each."""
    arrays = read_arrays(
        path, {"numeric": ((n, 10), "int16"), "wilderness": ((n,), "u"), "soil": ((n,), "u"), "y": ((n,), "u")}
    )
    features = np.zeros((n, COVTYPE_COLUMNS), np.float32)
    features[:, :10] = arrays["numeric"]
    for name, first, number in (("wilderness", 10, WILDERNESS_AREAS), ("soil", 10 + WILDERNESS_AREAS, SOILS)):
        if arrays[name].max() >= number:
            raise ValueError(f"{path}: {name} must be from 0 to {number - 1}, got {arrays[name].max()}")
        features[np.arange(n), first + arrays[name]] = 1
    return Rows(features, covers(path, arrays["y"]))


def read_covtype_text(path: Path, n: int = COVTYPE_ROWS) -> Rows:
    """The published table: lines of 54 numbers and the class."""
    with opened(path) as file:
        try:
            table = np.loadtxt(file, np.int16, delimiter=",", ndmin=2)
        except (ValueError, EOFError, OSError) as error:
            raise ValueError(f"{path} is truncated, damaged or not lines of whole numbers: {error}") from error
    if table.shape != (n, COVTYPE_COLUMNS + 1):
        raise ValueError(f"{path} must have {n:,} lines of {COVTYPE_COLUMNS + 1} numbers, got {table.shape}")
    return Rows(table[:, :-1].astype(np.float32), covers(path, table[:, -1]))


def covers(path: Path, labels: np.ndarray) -> np.ndarray:
    if labels.min() < 1 or labels.max() > COVERS:
        raise ValueError(f"{path} must have classes from 1 to {COVERS}, got {labels.min()} to {labels.max()}")
    return labels.astype(np.int32) - 1
