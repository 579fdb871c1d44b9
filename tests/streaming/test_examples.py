"""Sources that give one row at a time: the numbers are those of arrays, and a row that differs is named."""

import collections
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import runs
import wior
from streamed import Rows, assert_same_run, same
from wior.streaming import sources

LENGTHS = [1, 3, 2, 5, 4, 2, 3, 1, 5, 2, 4]
UNEQUAL = [np.arange(1.0, 1 + length) * (1 + i) for i, length in enumerate(LENGTHS)]


class ByNumber:
    """As the data sets of torch: one number in, one example out."""

    def __init__(self, data, as_row=lambda row: row):
        self.data, self.as_row = jax.tree.map(np.asarray, data), as_row
        self.threads = set()

    def __len__(self):
        return len(jax.tree.leaves(self.data)[0])

    def __getitem__(self, number):
        if type(number) is not int or not 0 <= number < len(self):
            raise IndexError(f"no row {number!r}")
        self.threads.add(threading.current_thread().name)
        return self.as_row(jax.tree.map(lambda a: a[number], self.data))


class Tensor:
    """As one of torch, of which numpy makes an array."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def numpy(self):
        return self.values


class Elsewhere:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


Tensor.__module__ = "torch"
Encoding = type("Encoding", (collections.UserDict,), {})  # a mapping that is no tree of jax
Row = collections.namedtuple("Row", ["features", "others", "targets"])

FORMS = {
    "dictionaries": lambda row: row,
    "tensors": lambda row: {name: Tensor(values) for name, values in row.items()},
    "numbers": lambda row: row | {"targets": float(row["targets"])},
    "lists of numbers": lambda row: row | {"others": row["others"].tolist()},
    "mappings": lambda row: Encoding(row),
}


@pytest.fixture(scope="module")
def resident():
    return runs.solve()


def posed(inner):
    problem = runs.problem()
    return wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner)


@pytest.mark.parametrize("form", FORMS)
def test_rows_read_one_by_one_are_those_of_arrays(form, resident):
    data = runs.problem().inner_data
    assert_same_run(resident, runs.solve(problem=posed(ByNumber(data, FORMS[form]))))


def test_rows_may_be_tuples_and_named_tuples():
    data = runs.problem().inner_data
    for make, kind in ((lambda row: tuple(row.values()), tuple), (lambda row: Row(**row), Row)):
        rows = wior.Streamed(ByNumber(data, make)).shapes()
        assert type(rows) is kind
        assert [leaf.shape for leaf in rows] == [leaf.shape for leaf in data.values()]


def test_a_list_of_rows_is_read_as_its_arrays(resident):
    data = runs.problem().inner_data
    rows = [{name: np.asarray(a[i]) for name, a in data.items()} for i in range(runs.N)]
    assert_same_run(resident, runs.solve(problem=posed(wior.Streamed(rows))))


def test_rows_are_read_by_as_many_threads_as_are_asked_for(resident, monkeypatch):
    monkeypatch.setattr("wior.running.feed.BYTES_IN_PIECE", 200)
    source = ByNumber(runs.problem().inner_data)
    assert_same_run(resident, runs.solve(problem=posed(wior.Streamed(source, threads=3))))
    assert len([name for name in source.threads if name.startswith("wior-read")]) > 1
    alone = ByNumber(runs.problem().inner_data)
    runs.solve(problem=posed(alone))
    assert len([name for name in alone.threads if name.startswith("wior-read")]) == 1


def test_an_object_that_takes_both_is_read_by_arrays_where_these_are_its_rows():
    class Both(ByNumber):
        normalized = False

        def __getitem__(self, number):
            self.asked.append(number)
            rows = self.data[number]
            return rows - rows.mean() if self.normalized else rows

    source = Both(np.random.default_rng(0).normal(size=(6, 3)))
    source.asked = []
    streamed = wior.Streamed(source)
    into = streamed.empty(2)
    streamed.read(np.array([3, 1]), into, "")
    np.testing.assert_array_equal(into, source.data[[3, 1]])
    assert isinstance(source.asked[-1], np.ndarray)
    # two rows that are normalized as if they were one are not those that it gives alone
    source.normalized = True
    streamed = wior.Streamed(source)
    streamed.read(np.array([3, 1]), into, "")
    np.testing.assert_array_equal(into, source.data[[3, 1]] - source.data[[3, 1]].mean(1)[:, None])
    assert source.asked[-2:] == [3, 1]


def test_pictures_are_rows():
    pictures = np.random.default_rng(0).integers(0, 255, (5, 4, 6), np.uint8)
    streamed = wior.Streamed(ByNumber(pictures, lambda row: (Image.fromarray(row), 3)))
    into = streamed.empty(3)
    streamed.read(np.array([4, 0, 4]), into, "")
    np.testing.assert_array_equal(into[0], pictures[[4, 0, 4]])
    np.testing.assert_array_equal(into[1], [3, 3, 3])
    assert into[0].dtype == np.uint8


def padded(rows):
    """Rows of up to five numbers, and how many of them are real."""
    return {
        "row": np.stack([np.pad(row, (0, 5 - len(row))) for row in rows]),
        "length": np.array([len(row) for row in rows]),
    }


def loss(x, y, batch):
    real = jnp.arange(5) < batch["length"][:, None]
    return jnp.mean(jnp.sum(real * (batch["row"] - y) ** 2, 1)) + jnp.sum((y - x) ** 2)


def test_unequal_rows_are_collated_and_are_then_those_of_padded_arrays():
    run = lambda data: wior.solve(
        wior.Bilevel(loss, loss, data, data), wior.WiORBO(1e-3, 1e-2, 1e-2), jnp.ones(5), jnp.zeros(5),
        batch_size=3, steps=11,
    )  # fmt: skip
    assert_same_run(run(padded(UNEQUAL)), run(wior.Streamed(UNEQUAL, collate=padded)))


def longest(rows):
    length = max(map(len, rows))
    return np.stack([np.pad(row, (0, length - len(row))) for row in rows])


@pytest.mark.parametrize(
    ("source", "collate", "message"),
    [
        (UNEQUAL, None, "source: row 1 is float64[3], and row 0 is float64[1]; where shapes differ, wior.Streamed(source, collate=...) takes"),
        (UNEQUAL, longest, "source: row 1 is float64[3], and row 0 is float64[1]; collate must give every row one shape: pad to a length of your own"),
        (UNEQUAL, lambda rows: padded(rows)["row"].sum(0), "source: collate must return arrays with one row for each row of the list that it is given; for 1 of them it returned the shape (5,)"),
        (UNEQUAL, lambda rows: padded(rows)["row"] / len(rows), "source: collate must treat each row by itself, since rows are read many at a time; row 0 in a list of its own differs from row 0 among 4"),
        (UNEQUAL, lambda rows: {}[0], "source: collate failed on a list of 1 (KeyError: 0)"),
        (UNEQUAL, lambda rows: None, "source: row 0 has no arrays in what collate made of it"),
        ([1.0, 2], None, "source: row 1 is int64[], and row 0 is float64[]"),
        ([{"a": 1.0}, {"b": 1.0}], None, "source: row 1 is {b: float64[]}, and row 0 is {a: float64[]}"),
        ([(), ()], None, "source: row 0 has no arrays: ()"),
        ([{"a": 1.0, "name": "x"}], None, "source['name'] must hold numbers, got dtype <U1"),
        ([], None, "source is empty: its length is 0"),
        ([Elsewhere()], None, "source: row 0 is no tree of arrays (TypeError: can't convert cuda:0 device type tensor to numpy)"),
    ],
)  # fmt: skip
def test_rows_that_make_no_arrays_are_refused_when_the_source_is_marked(source, collate, message):
    with pytest.raises((TypeError, ValueError)) as error:
        wior.Streamed(source, collate=collate)
    assert message in str(error.value)


def test_a_list_of_unequal_rows_that_is_not_marked_is_told_how():
    with pytest.raises(ValueError, match="must have one length") as error:
        wior.Bilevel(loss, loss, 1000 * UNEQUAL, UNEQUAL)
    assert str(error.value).endswith(
        "outer_data[7] has 1 and so on for 11000 arrays; a list of examples is wior.Streamed(examples), and where their "
        "shapes differ wior.Streamed(examples, collate=...)"
    )


def test_an_error_of_many_lines_is_one_line():
    class Broken(ByNumber):
        def __getitem__(self, number):
            if number == 5:
                raise OSError("the disk\nis away")
            return super().__getitem__(number)

    problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - y**2), Broken(np.arange(8.0)))
    with pytest.raises(sources.SourceError) as error:
        wior.solve(problem, wior.WiORMinimax(0.1, 0.1), 0.0, 0.0, batch_size=4, steps=4)
    assert str(error.value).endswith("reading row 5 failed (OSError: the disk is away)")


def test_collate_must_be_a_function():
    with pytest.raises(TypeError, match=r"collate must be a function of a list of rows, got 'pad'"):
        wior.Streamed(UNEQUAL, collate="pad")


def test_a_row_that_differs_in_mid_run_is_named():
    data = runs.problem().inner_data
    wide = lambda row: row if row["targets"] != data["targets"][11] else row | {"features": np.zeros(7)}
    message = r"^inner_data, read for steps \d+ to \d+: row 11 is float64\[7\] at \['features'\], and row 0 is float64\[4\] at"
    with pytest.raises(wior.SourceError, match=message):
        runs.solve(problem=posed(ByNumber(data, wide)))

    def broken(row):
        if row["targets"] == data["targets"][9]:
            raise OSError("the disk is gone")
        return row

    message = r"inner_data, read for steps \d+ to \d+: reading row 9 failed \(OSError: the disk is gone\)"
    with pytest.raises(wior.SourceError, match=message):
        runs.solve(problem=posed(ByNumber(data, broken)))


def test_a_collated_row_that_differs_in_mid_run_is_named():
    rows = [np.ones(2)] * 6 + [np.ones(9)]
    streamed = wior.Streamed(
        rows, collate=lambda rows: np.stack([np.resize(row, max(2, len(row) - 5)) for row in rows])
    )
    into = streamed.empty(1)
    with pytest.raises(
        wior.SourceError, match=r"here: row 6 is float64\[4\], and row 0 is float64\[2\]; collate must give"
    ):
        streamed.read(np.array([6]), into, "here")
    by_number = wior.Streamed(rows, collate=lambda rows: np.zeros((len(rows), 2 if len(rows) < 5 else 3)))
    with pytest.raises(wior.SourceError, match=r"collate gave 5 rows together as float64\[5, 3\], and each by itself"):
        by_number.read(np.arange(5), by_number.empty(5), "here")


def test_an_object_that_gives_a_row_of_another_shape_names_it():
    class Ragged(Rows):
        def __getitem__(self, numbers):
            rows = [self.data[i] if i != 4 else np.ones(2) for i in numbers.tolist()]
            return np.array([*rows, None], object)[:-1] if 4 in numbers else np.stack(rows)

    streamed = wior.Streamed(Ragged(np.ones((6, 3))))
    with pytest.raises(wior.SourceError, match=r"expected float64\[2, 3\], got object\[2\]; row 4 is"):
        streamed.read(np.array([2, 4]), streamed.empty(2), "here")


class Columns:
    """As a data set of Hugging Face: its format says what rows are, and of which columns."""

    def __init__(self, data, kind=None, columns=None):
        self.data, self.column_names = data, list(data)
        self.format = {"type": kind, "columns": list(columns or data), "format_kwargs": {}}

    def with_format(self, kind=None, columns=None):
        return Columns(self.data, kind, columns)

    def __len__(self):
        return len(next(iter(self.data.values())))

    def __getitem__(self, numbers):
        rows = {name: np.asarray(self.data[name])[numbers] for name in self.format["columns"]}
        as_given = {None: lambda a: a.tolist(), "numpy": np.asarray, "torch": Tensor, "arrow": lambda a: "a table"}
        return {name: as_given[self.format["type"]](a) for name, a in rows.items()}


@pytest.mark.parametrize("kind", [None, "numpy", "torch", "arrow"])
def test_a_data_set_of_hugging_face_has_any_format(kind, resident):
    data = dict(runs.problem().inner_data)
    columns = Columns(data | {"name": ["a"] * runs.N}, kind, columns=list(data))
    assert_same_run(resident, runs.solve(problem=posed(columns)))
    with pytest.raises(
        TypeError, match=r"inner_data is a Columns whose columns \['name'\] are no numbers of one shape"
    ):
        posed(columns.with_format(kind))


def test_a_run_on_examples_resumes_and_is_the_run_on_arrays(resident, tmp_path):
    options = {"problem": posed(ByNumber(runs.problem().inner_data)), "checkpoint": tmp_path / "run"}
    runs.solve(**options, steps=23)
    assert same(resident.state, runs.solve(**options).state)
