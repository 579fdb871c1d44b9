"""Data that stay on the host: the numbers are those of resident data, bit for bit, and what goes wrong is said."""

import dataclasses
import subprocess
import sys
import threading
import time
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import problems
import runs
import wior
from methods import CASE_OF, made
from wior.instruments.methods import classes
from wior.orders import BY_NAME, Incremental, Order, RandomReshuffling
from wior.running import blocks
from wior.running.setup import run_key

NAMES = ("outer_data", "inner_data", "data")


@pytest.fixture(autouse=True)
def windows_of_a_few_steps(monkeypatch):
    """Short enough that every run here goes through many, of a length that divides nothing."""
    monkeypatch.setattr(blocks, "BYTES_IN_WINDOW", 3 * 1024)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def assert_same_run(a, b):
    assert same(a.state, b.state)
    assert a.history.keys() == b.history.keys()
    for name in a.history:
        if name != "seconds":
            np.testing.assert_array_equal(a.history[name], b.history[name], err_msg=name)
    assert (a.steps, a.steps_per_epoch, a.stopped_by) == (b.steps, b.steps_per_epoch, b.stopped_by)


def streamed(problem, names=NAMES, mark=wior.Streamed):
    """The same problem with its data marked as streamed."""
    present = [name for name in names if hasattr(problem, name)]
    change = {name: jax.tree.map(lambda a: mark(np.asarray(a)), getattr(problem, name)) for name in present}
    return dataclasses.replace(problem, **change)


class Rows:
    """Any object with a length that takes row numbers; it goes wrong after so many reads."""

    def __init__(self, data, wrong=None, after=10**9):
        self.data = jax.tree.map(np.asarray, data)
        self.wrong, self.after = wrong, after
        self.reads = []

    def __len__(self):
        n = len(jax.tree.leaves(self.data)[0])
        return n - 1 if self.wrong == "shrinks" and len(self.reads) >= self.after else n

    def __getitem__(self, numbers):
        assert numbers.dtype == np.int64
        assert numbers.ndim == 1
        self.reads.append(numbers)
        rows = jax.tree.map(lambda a: a[numbers], self.data)
        if len(self.reads) <= self.after:
            return rows
        return {
            "short": lambda: jax.tree.map(lambda a: a[:-1], rows),
            "narrow": lambda: rows | {"features": rows["features"][:, 1:]},
            "whole numbers": lambda: rows | {"targets": rows["targets"].astype(np.int32)},
            "leaf missing": lambda: {name: rows[name] for name in ("features", "targets")},
            "raises": lambda: rows["nothing"],
            "shrinks": lambda: rows,
        }[self.wrong]()


def table(data, chunk=5):
    """An Arrow table in several chunks; more axes are lists of a fixed size."""

    def column(a):
        a = np.asarray(a)
        values = pa.array(a.reshape(-1))
        return values if a.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, a.shape[1])

    whole = pa.table({name: column(a) for name, a in data.items()})
    return pa.concat_tables([whole.slice(i, chunk) for i in range(0, whole.num_rows, chunk)])


def mapped(folder, data):
    def one(path, a):
        a = np.asarray(a)
        file = folder / f"{jax.tree_util.keystr(path)}.npy"
        np.save(file, a)
        return np.load(file, mmap_mode="r")

    return jax.tree_util.tree_map_with_path(one, data)


@pytest.fixture(scope="module")
def resident():
    return runs.solve()


# The same numbers.


@pytest.mark.parametrize(
    "order",
    [pytest.param(o, id=n, marks=() if n in ("random-reshuffling", "herding") else pytest.mark.slow) for n, o in BY_NAME.items()],
)  # fmt: skip
def test_streamed_is_resident_bit_for_bit_under_every_order(order):
    assert_same_run(runs.solve(order=order), runs.solve(order=order, problem=streamed(runs.problem())))


IN_EVERY_RUN = ("minimax", "conditional bilevel, ragged")


@pytest.mark.parametrize("name", IN_EVERY_RUN)
def test_streamed_is_resident_for_every_class_of_problems(name):
    _compare(problems.CASES[name](), RandomReshuffling())


@pytest.mark.slow
@pytest.mark.parametrize("order", BY_NAME.values(), ids=BY_NAME)
@pytest.mark.parametrize("name", problems.CASES)
def test_streamed_is_resident_for_every_class_under_every_order(name, order):
    _compare(problems.CASES[name](), order)


REFUSED = ("SABA", "SPABA", "SRBA", "VRBO")
KINDS = [kind for kind in classes() if kind.__name__ not in REFUSED]


@pytest.mark.slow
@pytest.mark.parametrize("order", [RandomReshuffling(), BY_NAME["herding"]], ids=["reshuffling", "herding"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_streamed_is_resident_for_every_method(kind, order):
    case = problems.bilevel_per_example() if kind.solves is wior.Bilevel else CASE_OF[kind.solves]()
    _compare(case._replace(algorithm=made(kind)), order)


def _compare(case, order, **options):
    options = {"order": order, "batch_size": case.batch_size, "steps": 23, "record_every": 10, "seed": 2} | options
    solve = lambda problem: wior.solve(problem, case.algorithm, case.x0, case.y0, **options)
    assert_same_run(solve(case.problem), solve(streamed(case.problem)))


@pytest.mark.parametrize(
    "kind",
    [
        "memory map",
        "memory map beside an array",
        "object",
        "Arrow",
        pytest.param("one for both", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_source_gives_the_same_numbers(kind, resident, tmp_path):
    problem = runs.problem()
    outer, inner = problem.outer_data, problem.inner_data
    if kind == "memory map":
        outer, inner = (mapped(tmp_path, {name: data})[name] for name, data in (("outer", outer), ("inner", inner)))
    elif kind == "memory map beside an array":
        inner = inner | {"others": mapped(tmp_path, inner)["others"]}
    elif kind == "object":
        outer, inner = Rows(outer), {name: wior.Streamed(Rows(data), threads=3) for name, data in inner.items()}
    elif kind == "Arrow":
        outer, inner = table(outer), table(inner, 4)
    else:
        data = Rows(inner)
        outer, inner = wior.Streamed(data), data
        problem = wior.Bilevel(runs.outer, runs.inner, problem.inner_data, problem.inner_data)
        resident = runs.solve(problem=problem)
    assert_same_run(resident, runs.solve(problem=wior.Bilevel(runs.outer, runs.inner, outer, inner)))


@pytest.mark.parametrize("level", ["outer_data", "inner_data"])
def test_one_level_may_be_streamed_and_the_other_not(level, resident):
    problem = streamed(runs.problem(), [level])
    assert list(problem.streamed()) == [level.removesuffix("_data")]
    assert_same_run(resident, runs.solve(problem=problem))


def test_numbers_do_not_depend_on_windows_or_on_where_the_run_is_cut(resident, monkeypatch):
    for size, every in ((1, 60), (2**26, 1)):
        monkeypatch.setattr(blocks, "BYTES_IN_WINDOW", size)
        assert same(resident.state, runs.solve(problem=streamed(runs.problem()), record_every=every).state)


def test_reads_follow_the_order_and_no_row_is_read_past_the_end():
    source = Rows(runs.problem().inner_data)
    runs.solve(problem=wior.Bilevel(runs.outer, runs.inner, runs.problem().outer_data, source), order=Incremental())
    # one read to see what a row is
    np.testing.assert_array_equal(np.concatenate(source.reads[1:]), np.arange(60 * 5) % runs.N)


@pytest.mark.parametrize(
    "kind", ["whole", "some columns", "every other row", "not aligned", "big-endian", "other type"]
)
def test_a_mapped_array_is_never_read_as_a_whole(kind, tmp_path):
    n, numbers = 2**16, np.array([5, 0, 2**15 - 1, 5])
    offset, dtype = int(kind == "not aligned"), {"big-endian": ">f8", "other type": "i8"}.get(kind, "f8")
    file = np.memmap(tmp_path / "rows", dtype, "w+", offset, (n, 32))
    file[:] = np.arange(n)[:, None] + np.arange(32)
    source = {"some columns": file[:, 3:7], "every other row": file[::2]}.get(kind, file)
    with runs.enable_x64(kind != "other type"):
        streamed = wior.Streamed(source)
    into = streamed.empty(len(numbers))
    tracemalloc.start()
    streamed.read(numbers, into, "")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(into, source[numbers])
    assert into.dtype == (np.int32 if kind == "other type" else np.float64)
    assert peak < 2**16 < source.nbytes


def test_in_single_precision_a_source_is_rounded_as_an_array_is():
    with runs.enable_x64(False):
        problem = runs.problem()
        rng = np.random.default_rng(7)
        wide = {name: rng.normal(size=a.shape) for name, a in problem.inner_data.items()}
        x0, y0 = jax.tree.map(lambda a: a.astype(jnp.float32), runs.start())
        solve = lambda inner: wior.solve(
            wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner),
            runs.ALGORITHM,
            x0,
            y0,
            batch_size=4,
            steps=9,
        )
        one, other = solve(wide), solve(jax.tree.map(wior.Streamed, wide))
        assert other.y["slope"].dtype == jnp.float32
        assert_same_run(one, other)


def test_a_run_resumes_inside_a_pass_and_a_window(resident, tmp_path):
    options = {"problem": streamed(runs.problem()), "checkpoint": tmp_path / "run"}
    runs.solve(**options, steps=23)
    assert same(resident.state, runs.solve(**options, steps=60).state)
    # small data are known by all their rows, so that the same data as arrays are the same run
    assert same(runs.solve(steps=71).state, runs.solve(checkpoint=tmp_path / "run", steps=71).state)


def test_a_herded_run_resumes_inside_a_line(tmp_path):
    options = {"problem": streamed(runs.problem()), "checkpoint": tmp_path / "run", "order": BY_NAME["herding"]}
    runs.solve(**options, steps=23)
    assert same(runs.solve(order=BY_NAME["herding"]).state, runs.solve(**options).state)


def test_the_first_step_that_is_not_finite_is_found_again(monkeypatch):
    algorithm = wior.WiORBO(1e3, 1e3, 1e3)
    found = []
    for problem in (runs.problem(), streamed(runs.problem())):
        with pytest.raises(wior.NonFiniteError) as stopped:
            runs.solve(problem=problem, algorithm=algorithm, record_every=60)
        found.append((stopped.value.step, stopped.value.variables))
    assert found[0] == found[1]
    assert found[0][0] > 1


def test_large_data_are_known_by_a_sample(tmp_path):
    from wior.saving.checkpoint import describe_tree

    n = 50_000
    data = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float64, (n, 64))
    data[-1] = 7
    source = wior.Streamed(data)
    before = describe_tree({"a": source})
    assert before["['a']"][:2] == [[n, 64], "float64"]
    assert len(source.sample()) == 256
    data[0] = 1
    assert describe_tree({"a": source}) != before


# What stays as it was.


def test_arrays_are_not_streamed_and_their_programs_are_as_before():
    problem = runs.problem()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(problem))
    assert problem.streamed() == {}
    assert problem.without_sources() is problem
    plan = blocks.make_plan(problem, runs.ALGORITHM, (RandomReshuffling(),) * 2, (3, 5), 100)
    assert plan.window == 0
    assert blocks.start_at(plan, 5).window is None
    runs.solve(), runs.solve(problem=streamed(problem))
    compiled = blocks.block._cache_size()
    runs.solve(seed=5), runs.solve(problem=streamed(problem), seed=5, steps=31)
    assert blocks.block._cache_size() == compiled


# Past memory, and beside the computation.


MEMORY = """
import resource
import numpy as np
import jax.numpy as jnp
import wior
from wior.running import blocks

class Made:
    width = 1024
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, numbers):
        return np.repeat((numbers % 97).astype(np.float32)[:, None], self.width, 1)

outer = lambda x, y, b: jnp.mean((b @ y - 1) ** 2)
inner = lambda x, y, b: outer(x, y, b) + jnp.sum(jnp.exp(x) * y * y)

def run(n, steps):
    problem = wior.Bilevel(outer, inner, np.ones((8, 1024), np.float32), Made(n))
    return wior.solve(problem, wior.WiORBO(1e-9, 1e-9, 1e-9), jnp.zeros(1024), jnp.zeros(1024), batch_size=64, steps=steps, record_every=10**6)

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(2 * 10**3, 3)
run(10**7, 3)
before = peak()
result = run({n}, 900)
assert np.all(np.isfinite(result.y))
print(blocks.BYTES_IN_WINDOW, peak() - before)
"""


def test_memory_is_that_of_two_windows_whatever_the_number_of_rows():
    # 40 GB of rows, of which 240 MB are read
    code = MEMORY.replace("{n}", str(10**7))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    window, grown = map(int, ran.stdout.split())
    assert window == 2**26
    assert grown < 2.5 * window


def test_the_next_window_is_read_while_the_present_one_is_computed():
    problem = runs.problem()
    ahead, computed, in_time = threading.Event(), threading.Event(), []

    class Waits(Rows):
        def __getitem__(self, numbers):
            if len(self.reads) == 2:  # one for the shape of a row, one for the first window
                ahead.set()
                in_time.append(computed.wait(60))
            return super().__getitem__(numbers)

    def report(step, latest):
        if step == 2:
            in_time.append(ahead.wait(60))
            computed.set()

    inner = Waits(problem.inner_data)
    result = runs.solve(
        problem=wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner), record_every=1, progress=report
    )
    assert in_time == [True, True]
    assert same(result.state, runs.solve().state)


def test_a_slow_source_and_a_slow_computation_take_the_time_of_one():
    problem, pause, windows = runs.problem(), 0.1, 12

    class Slow(Rows):
        def __getitem__(self, numbers):
            time.sleep(pause if self.reads else 0)
            return super().__getitem__(numbers)

    inner = Slow(problem.inner_data)
    fed = wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner)
    steps = blocks.make_plan(fed, runs.ALGORITHM, (RandomReshuffling(),) * 2, (3, 5), 100).window
    slept = []

    def compute(step, latest):  # stands for the device, at the end of each window
        if step % steps == 0 and step not in slept:
            slept.append(step)
            time.sleep(pause)

    solve = lambda windows: runs.solve(
        problem=fed, progress=compute, steps=windows * steps, record_every=steps, metrics=None
    )
    solve(1)
    slept.clear(), inner.reads.clear()
    begun = time.perf_counter()
    solve(windows)
    taken = time.perf_counter() - begun
    assert len(slept) == len(inner.reads) == windows
    assert windows * pause < taken < 1.6 * windows * pause


# What goes wrong.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("short", r"expected at \['features'\] float64\[\d+, 4\], got float64\[\d+, 4\]"),
        ("narrow", r"expected at \['features'\] float64\[\d+, 4\], got float64\[\d+, 3\]"),
        ("whole numbers", r"expected at \['targets'\] float64\[\d+\], got int32\[\d+\]"),
        ("leaf missing", r"expected a tree .*others.*, got "),
        ("raises", r"\d+ rows were asked for, and reading them failed \(KeyError: 'nothing'\)"),
        ("shrinks", r"it had 17 rows when the run was set up, and has 16 now"),
    ],
)
def test_a_source_that_goes_wrong_is_named(wrong, message):
    # one read is for the shape of a row, the others for a window each
    inner = Rows(runs.problem().inner_data, wrong, after=4)
    with pytest.raises(wior.SourceError, match=r"^inner_data, read for steps \d+ to \d+: " + message):
        runs.solve(problem=wior.Bilevel(runs.outer, runs.inner, runs.problem().outer_data, inner))


def test_a_source_that_goes_wrong_leaves_the_last_checkpoint_good(resident, tmp_path):
    problem = runs.problem()
    reached = []
    solve = lambda inner: runs.solve(
        problem=wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner),
        checkpoint=wior.Checkpoint(tmp_path / "run", every_steps=20, every_seconds=float("inf")),
        progress=lambda step, latest: reached.append(step),
    )
    # one more read is for the description of the run
    with pytest.raises(wior.SourceError, match="inner_data, read for steps 28 to 36: it had 17 rows"):
        solve(Rows(problem.inner_data, "shrinks", after=5))
    # the steps whose rows were there were taken
    assert reached[-1] == 27
    assert_same_run(resident, solve(Rows(problem.inner_data)))
    assert min(reached[reached.index(27) + 1 :]) > 20


def test_a_mapped_file_that_is_cut_is_an_error_and_not_a_crash(tmp_path):
    problem = runs.problem()
    inner = mapped(tmp_path, problem.inner_data)
    file = inner["features"].filename
    fed = wior.Bilevel(runs.outer, runs.inner, problem.outer_data, inner)

    def cut(step, latest):
        with open(file, "r+b") as opened:
            opened.truncate(100)

    with pytest.raises(
        wior.SourceError,
        match=r"inner_data\['features'\], read for steps .* bytes when the run was set up, and has 100 now",
    ):
        runs.solve(problem=fed, progress=cut, record_every=1)


@dataclasses.dataclass(frozen=True)
class Backwards(Order):
    """Counts below zero, as a mistake in an order of one's own might."""

    def run(self, key, first_pass, offset, length, n):
        return -((offset + jnp.arange(length)) % n).astype(jnp.int32)

    def examples(self, key, position, length, n):
        return -((position + np.arange(length)) % n)


def test_examples_that_are_not_there_are_an_error():
    with pytest.raises(
        wior.SourceError, match=r"Backwards\(\) gave example -1 in step 1; the outer data have examples 0 to 12"
    ):
        runs.solve(problem=streamed(runs.problem()), order=Backwards())


def test_a_source_that_is_none_is_refused_when_the_problem_is_made():
    make = lambda data: wior.Minimax(problems.objective, data)

    class OneByOne(Rows):
        def __getitem__(self, number):
            return self.data[int(number)] if number.ndim == 0 else self.data[[0, 0]]

    class Raises(Rows):
        def __getitem__(self, number):
            raise IndexError("only integers")

    floats = np.zeros((4, 3))
    for data, kind, message in [
        ({"a": OneByOne(floats)}, ValueError, r"data\['a'\] must have one row for each row number; for one number it has shape \(2, 3\)"),
        ({"a": Raises(floats)}, TypeError, r"data\['a'\], Raises, must take an array of row numbers, .* IndexError: only integers"),
        (Rows(np.array(["a", "b"])), TypeError, r"data must hold numbers, got dtype <U1"),
        (Rows(floats[:0]), ValueError, "data is empty: its length is 0"),
        ({"a": Rows(floats), "b": np.zeros(5)}, ValueError, r"must have one length, the number of examples: data\['a'\] has 4, data\['b'\] has 5"),
        ({"a": Rows(floats), "b": 1.0}, ValueError, r"data\['b'\] is a single number"),
        (pa.table({"a": ["x"]}), TypeError, r"data\['a'\] has the type string"),
        (pa.table({"a": [1.0, None]}), ValueError, r"data\['a'\] has 1 missing values"),
        (pa.table({"a": [True]}), TypeError, r"data\['a'\] has the type bool"),
        (pa.table({}), ValueError, "data has no arrays"),
        (pa.schema([]), TypeError, r"data must be an Arrow table, got Schema; wior.streaming.from_parquet"),
    ]:  # fmt: skip
        with pytest.raises(kind, match=message):
            make(data)
    with pytest.raises(TypeError, match="must have a length and take an array of row numbers, got dict"):
        wior.Streamed({"a": floats})
    with pytest.raises(ValueError, match="threads must be a positive integer, got 0"):
        wior.Streamed(floats, threads=0)


def test_what_cannot_be_streamed_is_refused_before_anything_is_compiled():
    problem, (x0, y0) = streamed(runs.problem()), runs.start()
    compiled = blocks.block._cache_size()
    for algorithm, why in [
        (wior.baselines.SABA(0.1, 0.1, 0.1), "remembers every batch"),
        (wior.baselines.SPABA(0.1, 0.1, 0.1), "takes large batches"),
        (wior.baselines.SRBA(0.1, 0.1, 0.1), "takes large batches"),
        (wior.baselines.VRBO(0.1, 0.1, 0.1), "takes large batches"),
    ]:
        message = f"the outer and inner data are streamed, and {type(algorithm).__name__} {why}"
        with pytest.raises(ValueError, match=message):
            runs.solve(problem=problem, algorithm=algorithm)
    with pytest.raises(ValueError, match="streamed, and every seed reads them in an order of its own"):
        wior.sweep(problem, runs.ALGORITHM, x0, y0, grid={"outer_lr": [0.1]}, steps=3)
    with pytest.raises(ValueError, match="streamed, and hypergradient reads all of them"):
        wior.hypergradient(problem, x0, y0)
    with pytest.raises(ValueError, match="streamed, and order_error reads all of them"):
        wior.order_error(problem, RandomReshuffling(), x0, y0, 4)
    assert blocks.block._cache_size() == compiled


# More rows than an int32 counts.


class Counting:
    def __init__(self, n):
        self.n, self.largest = n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, numbers):
        self.largest = max(self.largest, int(numbers.max()))
        return np.stack([np.sin(numbers), np.cos(numbers)], 1)


@pytest.mark.parametrize("order", [BY_NAME["independent"], RandomReshuffling(), BY_NAME["flip-flop"]], ids=repr)
def test_rows_past_two_to_the_31_are_read_and_have_no_weights(order):
    source = Counting(10**12)
    outer = lambda x, y, b: jnp.mean((b @ y - 1) ** 2)
    inner = lambda x, y, b: jnp.mean((b @ y - jnp.sum(x)) ** 2) + jnp.sum(y * y)
    problem = wior.Bilevel(outer, inner, np.ones((3, 2)), source)
    steps, batch, rate = 7, 3, 0.05
    result = wior.solve(
        problem, wior.WiORBO(1e-9, rate, rate), jnp.ones(1), jnp.zeros(2),
        order=(Incremental(), order), batch_size=batch, steps=steps,
    )  # fmt: skip
    y, key = np.zeros(2), jax.random.fold_in(jax.random.fold_in(run_key(0), 1), 0)
    for step in range(steps):
        rows = source[order.examples(key, step * batch, batch, source.n)]
        y = y - rate * (2 * rows.T @ (rows @ y - 1) / batch + 2 * y)
    np.testing.assert_allclose(result.y, y, rtol=1e-6)
    assert source.largest > 2**31
    with pytest.raises(ValueError, match=r"x0 is PerExample, and there are 1000000000000 examples"):
        wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), wior.PerExample(jnp.zeros(3)), jnp.zeros(2), steps=1)
    with pytest.raises(
        ValueError, match=r"the inner data have 1000000000000 examples; at most 2147483647 can be ordered on the device"
    ):
        wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), jnp.zeros(1), jnp.zeros(2), order=BY_NAME["herding"], steps=1)


# Parquet.


def test_a_parquet_file_is_mapped_and_written_again_when_it_changes(tmp_path, resident):
    problem = runs.problem()
    file = tmp_path / "rows.parquet"
    more = table(problem.inner_data).append_column("name", pa.array(["a"] * runs.N))
    pq.write_table(more, file, row_group_size=4)
    names = ["features", "others", "targets"]
    read = wior.streaming.from_parquet(file, names)
    assert read.column_names == names
    assert_same_run(resident, runs.solve(problem=wior.Bilevel(runs.outer, runs.inner, problem.outer_data, read)))
    beside = tmp_path / "rows.parquet.arrow"
    written = beside.stat().st_mtime_ns
    assert wior.streaming.from_parquet(file, names).equals(read)
    assert beside.stat().st_mtime_ns == written
    assert wior.streaming.from_parquet(file, ["targets"]).column_names == ["targets"]
    pq.write_table(more.slice(0, 3), file)
    assert wior.streaming.from_parquet(file, names).num_rows == 3
    assert not [path for path in tmp_path.iterdir() if path not in (file, beside)]
    with pytest.raises(ValueError, match=r"columns has \['label'\], which .* does not have"):
        wior.streaming.from_parquet(file, ["label"])
