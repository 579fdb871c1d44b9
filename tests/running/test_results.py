"""Results: printed, as a table, as a figure, in a folder."""

import io
import json
import re
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runs
import wior


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_result_is_a_few_lines():
    result = runs.solve()
    history = result.history
    assert repr(result).splitlines() == [
        f"Result: 60 steps (13.85 outer and 17.65 inner passes) in {history['seconds'][-1]:.3g} s, ended by steps",
        f"  first: {history['first'][0]:.5g} at step 0, {history['first'][-1]:.5g} at the end",
        f"  size: {history['size'][0]:.5g} at step 0, {history['size'][-1]:.5g} at the end",
        "  x: 2 arrays, 20 numbers, float64; y: 2 arrays, 5 numbers, float64",
    ]
    many = runs.solve(metrics=lambda x, y: {f"m{i}": jnp.float32(i) for i in range(9)})
    assert len(repr(many).splitlines()) == 9
    assert "  and 3 more metrics" in repr(many)


def test_a_result_without_records_is_printed_too():
    def wrong(x, y):
        raise RuntimeError("at once")

    calls = []
    metrics = lambda x, y: wrong(x, y) if calls else {"a": 1.0, **dict(calls.append(np.asarray(x["dense"])) or {})}
    with pytest.raises(RuntimeError, match="at once") as caught:
        runs.solve(metrics=metrics)
    assert repr(caught.value.result).startswith("Result: 0 steps, no records, ended by error")


def test_a_sweep_is_a_few_lines():
    found = wior.sweep(
        runs.problem(), runs.ALGORITHM, *runs.start(), grid={"outer_lr": [0.01, 0.02, 1e9]}, seeds=2, batch_size=3,
        steps=20, metrics=runs.metrics, best_by="size",
    )  # fmt: skip
    lines = repr(found).splitlines()
    assert lines[0] == "SweepResult: 3 settings × 2 seeds, 20 steps each"
    assert lines[1] == f"  best by size: outer_lr={found.best['outer_lr']:g}"
    sizes = found.final("size").mean(-1)
    assert (
        lines[3]
        == f"  size at the end: {np.nanmin(sizes):.5g} to {sizes[np.isfinite(sizes)].max():.5g} (means over seeds)"
    )
    assert len(lines) == 4


def test_a_frame_has_the_history():
    pandas = pytest.importorskip("pandas")
    result = runs.solve()
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(result.history)
    np.testing.assert_array_equal(frame["size"].to_numpy(), result.history["size"])


def test_without_pandas_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^to_frame needs the package pandas: pip install pandas$"):
        runs.solve().to_frame()


@pytest.mark.parametrize(("against", "column"), [("passes", "outer_passes"), ("seconds", "seconds"), ("steps", "step")])
def test_a_figure_has_every_metric(against, column):
    result = runs.solve()
    axes = [axis for axis in result.plot(against).axes if axis.get_visible()]
    assert [axis.get_ylabel() for axis in axes] == ["first", "size"]
    for axis in axes:
        (line,) = axis.get_lines()
        np.testing.assert_array_equal(line.get_xdata(), result.history[column])
        np.testing.assert_array_equal(line.get_ydata(), result.history[axis.get_ylabel()])


def test_a_metric_that_falls_far_has_a_logarithmic_axis():
    result = runs.solve(
        metrics=lambda x, y: {"a": 10.0 ** -jnp.sum(y["shift"] * 0), "b": jnp.exp(-30 * jnp.abs(x["dense"][0] - 0.345))}
    )
    assert [axis.get_yscale() for axis in result.plot().axes] == [
        "linear",
        "log" if np.ptp(np.log(result.history["b"])) > np.log(100) else "linear",
    ]


def test_a_metric_that_grows_to_the_end_of_float64_is_drawn():
    metrics = lambda x, y: {"huge": jnp.where(x["dense"][0] == runs.start()[0]["dense"][0], 1.0, 1e307)}
    result = runs.solve(metrics=metrics)
    assert result.history["huge"].max() == 1e307
    result.plot().savefig(io.BytesIO())  # matplotlib itself raises an OverflowError


def test_what_cannot_be_plotted():
    with pytest.raises(ValueError, match=re.escape("against must be one of 'passes', 'seconds', 'steps'; got 'time'")):
        runs.solve().plot("time")
    with pytest.raises(ValueError, match="there is nothing to plot: the run had no metrics"):
        runs.solve(metrics=None).plot()


def test_a_result_comes_back_from_its_folder(tmp_path):
    result = runs.solve(order="herding", steps=23)
    result.save(tmp_path / "deep" / "run")
    found = wior.load(tmp_path / "deep" / "run")
    assert jax.tree.structure((found.x, found.y)) == jax.tree.structure((result.x, result.y))
    assert same((found.x, found.y, tuple(found.state)), (result.x, result.y, tuple(result.state)))
    assert {leaf.dtype for leaf in jax.tree.leaves(found.x)} == {np.dtype("float64")}
    assert list(found.history) == list(result.history)
    assert same(found.history, result.history)
    assert repr(found) == repr(result)
    for name in ("steps", "steps_per_epoch", "stopped_by", "compile_seconds", "metric_seconds"):
        assert getattr(found, name) == getattr(result, name)
    options = {"order": "herding", "batch_size": (3, 5), "steps": 37}
    longer = wior.solve(runs.problem(), runs.ALGORITHM, state=found.state, **options)
    assert same(longer.state, runs.solve(order="herding").state)
    found.save(tmp_path / "deep" / "run")  # replaces it
    assert same(wior.load(tmp_path / "deep" / "run").x, result.x)


class Own(NamedTuple):
    weight: object
    rest: object


def test_other_types_and_trees_come_back(tmp_path):
    outer = lambda x, y, batch: jnp.mean(batch) * jnp.sum(y) + jnp.sum(x.weight**2) + x.rest[0] + x.rest[1]["a"]
    inner = lambda x, y, batch: 0.5 * jnp.sum((y - jnp.sum(x.weight).astype(y.dtype)) ** 2) + 0 * jnp.mean(batch)
    x0 = Own(jnp.ones(3, jnp.bfloat16), [jnp.float32(1), {"a": jnp.float32(2)}])
    problem = wior.Bilevel(outer, inner, np.ones(8, np.float32), np.ones(8, np.float32))
    with pytest.warns(UserWarning, match="bfloat16"):
        result = wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), x0, jnp.zeros(2, jnp.float32), batch_size=4, steps=3)
    result.save(tmp_path / "run")
    found = wior.load(tmp_path / "run")
    assert type(found.x).__name__ == "Own"
    assert found.x._fields == ("weight", "rest")
    assert found.x.weight.dtype == jnp.bfloat16
    assert same(found.x, result.x)
    assert found.x.rest[1]["a"].dtype == np.float32


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something other than an earlier run and was left as it is"):
        runs.solve().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(
        FileNotFoundError, match=r"holds no result: it has no result\.json; result\.save\(folder\) writes one"
    ):
        wior.load(tmp_path)


def changed(text):
    about = json.loads(text)
    about["steps"] += 1
    return json.dumps(about)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("result.json", lambda data: data[:-20], "cannot be read"),
        ("result.json", lambda data: changed(data).encode(), "cannot be read: result.json is not what was written"),
        (
            "result.json",
            lambda data: data.replace(b"wior result", b"somebody"),
            "it is 'somebody' of format 1, not 'wior result' of 1",
        ),
        ("result.json", lambda data: b'{"made_by": "wior result"}', "cannot be read: it has no 'format'"),
        ("result.json", lambda data: b"[" * 100_000, "cannot be read: maximum recursion depth exceeded"),
        ("arrays.npz", lambda data: data[: len(data) // 2], "cannot be read"),
        ("arrays.npz", lambda data: data.replace(data[300:302], b"\x01\x02"), "cannot be read"),
    ],
)
def test_a_damaged_folder_is_an_error_in_one_line(tmp_path, file, change, message):
    runs.solve().save(tmp_path / "run")
    path = tmp_path / "run" / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        wior.load(tmp_path / "run")
    assert str(tmp_path / "run") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_arrays_of_another_result_are_an_error(tmp_path):
    for seed in (0, 1):
        runs.solve(seed=seed).save(tmp_path / f"{seed}")
    (tmp_path / "1" / "arrays.npz").replace(tmp_path / "0" / "arrays.npz")
    with pytest.raises(ValueError, match=r"cannot be read: arrays\.npz is that of another result"):
        wior.load(tmp_path / "0")


def test_a_save_that_fails_leaves_the_earlier_one(tmp_path, monkeypatch):
    runs.solve(steps=20).save(tmp_path / "run")

    def full(file, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left on device"):
        runs.solve().save(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert wior.load(tmp_path / "run").steps == 20


def test_a_folder_must_be_a_path():
    with pytest.raises(TypeError, match="folder must be a path, got None of type NoneType"):
        runs.solve().save(None)
    with pytest.raises(TypeError, match="folder must be the path of a saved result, got 3 of type int"):
        wior.load(3)
