"""Data that stay on the host: the numbers are those of resident data, bit for bit."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import problems
import runs
import wior
from methods import CASE_OF, made
from streamed import Rows, assert_same_run, mapped, same, streamed, table
from wior.instruments.methods import classes
from wior.orders import BY_NAME, Incremental, RandomReshuffling
from wior.running import block
from wior.running import plan as planning
from wior.running.plan import make_plan, start_at


@pytest.fixture(scope="module")
def resident():
    return runs.solve()


@pytest.mark.parametrize(
    "order",
    [pytest.param(o, id=n, marks=() if n in ("random-reshuffling", "herding") else pytest.mark.slow) for n, o in BY_NAME.items()],
)  # fmt: skip
def test_streamed_is_resident_bit_for_bit_under_every_order(order):
    assert_same_run(runs.solve(order=order), runs.solve(order=order, problem=streamed(runs.problem())))


def test_streamed_is_resident_with_optimizers_and_rows():
    algorithm = wior.WiORBO(optax.adam(0.01), optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.02)), 0.03)
    resident = runs.solve(algorithm=algorithm)
    assert_same_run(resident, runs.solve(algorithm=algorithm, problem=streamed(runs.problem())))


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
        monkeypatch.setattr(planning, "BYTES_IN_WINDOW", size)
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
    plan = make_plan(problem, runs.ALGORITHM, (RandomReshuffling(),) * 2, (3, 5), 100)
    assert plan.window == 0
    assert start_at(plan, 5).window is None
    runs.solve(), runs.solve(problem=streamed(problem))
    compiled = block.one_run._cache_size()
    runs.solve(seed=5), runs.solve(problem=streamed(problem), seed=5, steps=31)
    assert block.one_run._cache_size() == compiled


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
