"""Sources of rows: memory, reading ahead, sources that go wrong, more rows than an int32 counts."""

import dataclasses
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import problems
import runs
import wior
from streamed import Rows, mapped, same, streamed
from wior.orders import BY_NAME, Incremental, Order, RandomReshuffling
from wior.running import block
from wior.running.plan import make_plan
from wior.running.setup import run_key

# Past memory, and beside the computation.


MEMORY = """
import resource
import numpy as np
import jax.numpy as jnp
import wior
from wior.running import block, plan as planning
from wior.running.plan import make_plan

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
    return wior.solve(problem, wior.WiORBO(1e-9, 1e-9, 1e-9), jnp.zeros(1024), jnp.zeros(1024), batch_size=64,
    steps=steps, record_every=10**6)

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(2 * 10**3, 3)
run(10**7, 3)
before = peak()
result = run({n}, 900)
assert np.all(np.isfinite(result.y))
print(planning.BYTES_IN_WINDOW, peak() - before)
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
    steps = make_plan(fed, runs.ALGORITHM, (RandomReshuffling(),) * 2, (3, 5), 100).window
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
            return self.data[int(number)] if number.ndim == 0 else self.data[[0, 0, 0]]

    class Raises(Rows):
        def __getitem__(self, number):
            raise IndexError("only integers")

    floats = np.zeros((4, 3))
    for data, kind, message in [
        ({"a": OneByOne(floats)}, TypeError, r"data\['a'\], OneByOne, .* the first returned the shape \(3, 3\) for two numbers, and the second raised AttributeError"),
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
    with pytest.raises(
        TypeError, match="must have a length and take the number of a row or an array of row numbers, got dict"
    ):
        wior.Streamed({"a": floats})
    with pytest.raises(ValueError, match="threads must be a positive integer, got 0"):
        wior.Streamed(floats, threads=0)


def test_what_cannot_be_streamed_is_refused_before_anything_is_compiled():
    problem, (x0, y0) = streamed(runs.problem()), runs.start()
    compiled = block.one_run._cache_size()
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
    assert block.one_run._cache_size() == compiled


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
