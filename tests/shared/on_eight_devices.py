"""What `test_mesh.py` asks of eight virtual devices, in a process of its own since jax counts its devices once.

Prints a JSON object: for each check its name and `null`, or the traceback of what went wrong.
"""

import dataclasses
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

import problems
import wior
from extensions import HeavyBall, LargestFirst, ridge
from wior.instruments.communication import communication, of_program, one_step
from wior.instruments.methods import classes
from wior.orders import Herding, RandomReshuffling
from wior.running import block
from wior.running.arguments import Arguments
from wior.running.plan import start_at, stream_keys
from wior.running.setup import prepare, run_key
from wior.saving.checkpoint import Store, split_checksum

D, CLASSES = 6, 8  # y is (D, CLASSES), x a number for each class and one for each inner example
M, N = 48, 80


def mesh(devices=8, name="batch"):
    return Mesh(np.array(jax.devices()[:devices]), (name,))


def two_axes():
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("batch", "model"))


def outer(x, y, batch):
    return jnp.mean((batch["a"] @ y["w"] - batch["t"]) ** 2) + 0.1 * jnp.sum(jnp.sin(y["w"]) @ x["d"])


def inner(x, y, batch):
    error = jnp.sum((batch["a"] @ y["w"] + x["d"] - batch["t"]) ** 2, 1)
    return jnp.mean(jax.nn.sigmoid(x["r"]) * error) + 0.1 * jnp.sum(y["w"] ** 2)


def rows(n, seed):
    rng = np.random.default_rng(seed)
    return {"a": rng.normal(size=(n, D)), "t": rng.normal(size=(n, CLASSES))}


def cleaning(n=N):
    rng = np.random.default_rng(2)
    x0 = {"d": rng.normal(size=CLASSES), "r": wior.PerExample(rng.normal(size=n))}
    return wior.Bilevel(outer, inner, rows(M, 0), rows(n, 1)), x0, {"w": rng.normal(size=(D, CLASSES))}


WIOR_BO = wior.WiORBO(0.05, 0.02, 0.02)


def metrics(x, y):
    return {"size": jnp.sum(y["w"] ** 2), "rows": jnp.sum(jnp.cos(x["r"].rows))}


@functools.cache
def alone(algorithm=WIOR_BO):
    return run(None, algorithm)


def run(mesh=None, algorithm=WIOR_BO, **options):
    options = {"batch_size": (8, 16), "steps": 30, "seed": 3, "record_every": 7, "metrics": metrics} | options
    return wior.solve(*_arguments(algorithm), mesh=mesh, **options)


def _arguments(algorithm):
    problem, x0, y0 = cleaning()
    return problem, algorithm, x0, y0


def close(a, b):
    """Equal to rounding, and not by having stood still."""
    for one, other in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-11, atol=1e-13)
    for name in a.history:
        if name != "seconds":
            np.testing.assert_allclose(a.history[name], b.history[name], rtol=1e-11, err_msg=name)
    assert a.steps == b.steps


def identical(a, b):
    for one, other in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(one, other)


def bilevel(folder):
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), (alone().x, alone().y), cleaning()[1:])
    assert min(jax.tree.leaves(moved)) > 1e-3
    close(run(mesh(8, "any name")), alone())


def rows_split(folder):
    split = run(wior.Layout(mesh(), rows="batch"))
    close(split, alone())
    assert split.x["r"].rows.sharding.spec == PartitionSpec("batch")
    assert {shard.data.shape for shard in split.x["r"].rows.addressable_shards} == {(N // 8,)}
    assert split.x["d"].sharding.is_fully_replicated


def rows_and_data_split(folder):
    close(run(wior.Layout(mesh(), rows="batch", data="batch")), alone())


def parameters_split(folder):
    """And nothing drifts: a run of many blocks compiles one, and ends where it began."""
    layout = wior.Layout(two_axes(), parameters="model", rows="batch")
    before = block.one_run._cache_size()
    split = run(layout)
    assert block.one_run._cache_size() == before + 1
    close(split, alone())
    assert split.y["w"].sharding.spec == PartitionSpec(None, "model")  # the longest of its dimensions
    assert split.state.u["w"].sharding.spec == PartitionSpec(None, "model")
    for leaf, sharding in zip(
        jax.tree.leaves(split.state), jax.tree.leaves(layout.shardings(split.state)), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def parameters_split_by_name(folder):
    asked = {}

    def rule(path, shape):
        asked[path] = shape
        return PartitionSpec(None, "model") if path in (".y['w']", ".u['w']") else PartitionSpec()

    close(run(wior.Layout(two_axes(), parameters=rule)), alone())
    assert asked == {".x['d']": (CLASSES,), ".y['w']": (D, CLASSES), ".u['w']": (D, CLASSES)}


def momentum(folder):
    algorithm = wior.baselines.MRBO(0.05, 0.02, 0.02)
    close(run(wior.Layout(mesh(), rows="batch"), algorithm), alone(algorithm))


def moving_average(folder):
    algorithm = wior.baselines.MASOBA(0.05, 0.02, 0.02)
    split = run(wior.Layout(mesh(), rows="batch"), algorithm)
    close(split, alone(algorithm))
    tables = [leaf.sharding.spec for leaf in jax.tree.leaves(split.state) if leaf.shape == (N,)]
    assert len(tables) > 1
    assert set(tables) == {PartitionSpec("batch")}  # the average of each row lies beside it


def fixed_batches(folder):
    algorithm = wior.baselines.SABA(0.05, 0.02, 0.02)
    close(run(mesh(), algorithm), alone(algorithm))


def optimizers(folder):
    """Those of x, whose rows are split, of y and of u; and a constraint."""
    algorithm = wior.WiORBO(optax.adam(0.05), optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.02)), 0.02)
    problem, x0, y0 = cleaning()
    held = wior.Bilevel(problem.outer, problem.inner, problem.outer_data, problem.inner_data, project_x=("box", -1, 1))
    one = lambda mesh: wior.solve(held, algorithm, x0, y0, batch_size=(8, 16), steps=30, seed=3, mesh=mesh)
    plain = one(None)
    close(one(mesh()), plain)
    close(one(wior.Layout(mesh(), rows="batch")), plain)


def herding(folder):
    close(run(mesh(), order=Herding()), run(order=Herding()))


def own(folder):
    """A method and a problem class of a user's own, under an order of their own that learns."""
    problem, x0, y0 = ridge(M, N, 8)
    arguments = problem, HeavyBall(0.01, 0.02, 0.02), x0, y0
    options = {"order": LargestFirst(), "batch_size": (8, 16), "steps": 30, "record_every": 7}
    on = wior.Layout(two_axes(), rows="batch", parameters="model")
    whole = wior.solve(*arguments, mesh=on, **options)
    close(whole, wior.solve(*arguments, **options))
    assert whole.x["weights"].rows.sharding.spec == PartitionSpec("batch")
    wior.solve(*arguments, mesh=on, checkpoint=folder, **options | {"steps": 14})
    identical(whole, wior.solve(*arguments, mesh=on, checkpoint=folder, **options))


def _case(name, order=RandomReshuffling(), **options):
    problems.M, problems.N, problems.COUNTS = 24, 40, np.arange(24) % 4 + 1
    case = problems.CASES[name]()
    options = {"order": order, "batch_size": (8, 3) if "conditional" in name else 8, "steps": 12, "seed": 1} | options
    arguments = case.problem, case.algorithm, case.x0, case.y0
    rows = "batch" if "per example" in name else None
    split = wior.solve(*arguments, mesh=wior.Layout(mesh(), rows=rows), **options)
    close(split, wior.solve(*arguments, **options))


def minimax(folder):
    _case("minimax, per example")


def conditional(folder):
    _case("conditional bilevel")


def every_problem(folder):
    for name in problems.CASES:
        for order in (RandomReshuffling(), Herding()):
            _case(name, order)


def every_method(folder):
    """All methods, with their defaults; none sends a table of rows, save those that read all data now and then."""
    problems.M, problems.N, problems.COUNTS = 24, 4000, np.arange(24) % 4 + 1
    names = {
        wior.Bilevel: "bilevel, per example",
        wior.Minimax: "minimax, per example",
        wior.Compositional: "compositional, per example",
        wior.ConditionalBilevel: "conditional bilevel, ragged",
        wior.ConditionalCompositional: "conditional compositional, ragged",
    }
    for kind in classes():
        name = names[kind.solves]
        case = problems.CASES[name]()
        algorithm = kind(**{field.name: 0.02 for field in dataclasses.fields(kind) if field.name.endswith("_lr")})
        layout = wior.Layout(mesh(), rows="batch" if "per example" in name else None)
        arguments = case.problem, algorithm, case.x0, case.y0
        batch = (8, 3) if "conditional" in name else 8
        split = wior.solve(*arguments, batch_size=batch, steps=5, mesh=layout)
        close(split, wior.solve(*arguments, batch_size=batch, steps=5))
        if kind.__name__ not in ("SPABA", "SRBA", "VRBO"):
            assert communication(*arguments, mesh=layout, batch_size=batch).largest < 300, kind


def each_device_has_its_share(folder):
    """The losses run on a share of the batch: no operation of a step has all of its rows and columns."""
    problem, x0, y0 = cleaning()
    setup = prepare(problem, WIOR_BO, x0, y0, Arguments(RandomReshuffling(), (24, 40), steps=1))
    whole = lambda text: (f"[24,{D}]" in text, f"[40,{D}]" in text)
    share = lambda text: (f"[3,{D}]" in text, f"[5,{D}]" in text)
    text = one_step(setup.on(wior.Layout(mesh()), {}, None)).as_text()
    assert share(text) == (True, True)
    assert whole(text) == (False, False)
    text = one_step(setup.on(wior.Layout(mesh(1)), {}, None)).as_text()
    assert whole(text) == (True, True)


def volume(folder):
    """What is sent is what the formula says: all directions summed once, and the rows of a batch; nothing grows with
    the table.
    """
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        y, number, batch, k = D * CLASSES, 8, 16, 8  # numbers of 8 bytes
        directions = 3 * y + CLASSES  # f_y, g_y, ∇²_yy g u; and ∇²_xy g u, since f_x here is of no example
        summed = 2 * (k - 1) / k * number * directions
        gathered = (k - 1) / k * number * batch
        problem, x0, y0 = cleaning(8000)  # of which the formula knows nothing
        volume = lambda layout: communication(problem, WIOR_BO, x0, y0, mesh=layout, batch_size=(8, batch))
        rows_too = volume(wior.Layout(mesh(), rows="batch"))
        if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 10):  # which adds up sums one by one
            assert rows_too.largest <= number * directions
            return
        assert volume(mesh()).bytes_a_step == round(summed + gathered)
        assert rows_too.bytes_a_step == round(summed + gathered + 2 * (k - 1) / k * number * batch)
        assert rows_too.largest <= number * directions
        assert volume(mesh(1)).bytes_a_step == 0
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


def volume_of_the_block(folder):
    """The program that runs sends in a step what one step by itself does."""
    layout = wior.Layout(mesh(), rows="batch")
    problem, x0, y0 = cleaning()
    setup = prepare(problem, WIOR_BO, x0, y0, Arguments(RandomReshuffling(), (8, 16), steps=9)).on(layout, {}, None)
    keys = layout.place(stream_keys(setup.plan, run_key(0)))
    carry = block.begin(setup.plan, setup.problem, setup.algorithm, keys, setup.x, setup.y)
    start = start_at(setup.plan, 0)
    lowered = block.one_run.lower(setup.plan, setup.problem, setup.algorithm, carry, keys, start, np.int32(1))
    # a loop whose length only the running program knows counts as one turn, so one step is what is counted
    one = communication(problem, WIOR_BO, x0, y0, mesh=layout, batch_size=(8, 16))
    assert one.bytes_a_step > 0
    text = lowered.compile().as_text()
    assert of_program(text, 8).bytes_a_step == one.bytes_a_step
    # a share of the table is written where it lies, and never copied
    assert re.search(rf"f64\[{N // 8}\]\S* scatter\(", text)
    assert not re.search(rf"f64\[{N // 8}\]\S* copy\(", text)


def layouts(folder):
    """A run that is saved on one layout goes on on another; on the same one with the same bits."""
    on = {
        "one": None,
        "eight": wior.Layout(mesh(), rows="batch", parameters="batch"),
        "four": wior.Layout(mesh(4), rows="batch"),
    }
    run(on["one"], steps=14, checkpoint=folder / "one")
    close(run(on["eight"], checkpoint=folder / "one"), alone())
    run(on["eight"], steps=14, checkpoint=folder / "eight")
    for other in ("one", "four"):
        shutil.copytree(folder / "eight", folder / f"eight-{other}")
        close(run(on[other], checkpoint=folder / f"eight-{other}"), alone())
    identical(run(on["eight"], checkpoint=folder / "eight"), run(on["eight"]))


def damage_of_what_is_split(folder):
    """A changed number in a table that no device has whole is found; the save before it is gone on from."""
    on = wior.Layout(mesh(), rows="batch")
    run(on, steps=14, checkpoint=wior.Checkpoint(folder, every_steps=7))
    store = Store(wior.Checkpoint(folder), {})
    about = json.loads((folder / "14" / "about" / "metadata").read_text())
    (name,) = about["split"]
    changed = store._writer.restore(
        folder / "14", args=store._ocp.args.Composite(split=store._ocp.args.StandardRestore())
    )
    table = np.array(changed["split"][name])
    assert split_checksum(jnp.asarray(table)) == about["arrays"][name]
    table.view(np.uint64)[33] ^= np.uint64(1)  # the last bit of one number
    shutil.rmtree(folder / "14" / "split")
    writer = store._ocp.Checkpointer(store._ocp.StandardCheckpointHandler())
    writer.save(folder / "14" / "split", args=store._ocp.args.StandardSave({name: table}))
    writer.close()
    store.close()
    with pytest.warns(UserWarning, match=r"step 14 is damaged \(its numbers are not those.*resuming from step 7"):
        close(run(on, checkpoint=folder), alone())


def checksums_of_split_arrays(folder):
    """The same however an array is split, and another one for every other array."""
    values = np.random.default_rng(0).normal(size=(16, 6))
    found = set()
    for kind in (jnp.float64, jnp.float32, jnp.bfloat16, jnp.int8, bool):
        array = jnp.asarray(values > 0 if kind is bool else 10 * values, kind)
        sums = {
            split_checksum(jax.device_put(array, jax.sharding.NamedSharding(mesh(), spec)))
            for spec in (PartitionSpec(), PartitionSpec("batch"))
        }
        assert len(sums) == 1
        found |= sums | {split_checksum(array[::-1]), split_checksum(array.T)}
    assert len(found) == 15


def streamed(folder):
    """Rows that are gathered on the host go to all devices; what is resident lies there already."""
    for level in ("outer", "inner"):
        problem, x0, y0 = cleaning()
        data = {"outer_data": problem.outer_data, "inner_data": problem.inner_data}
        data[f"{level}_data"] = jax.tree.map(lambda leaf: wior.Streamed(np.asarray(leaf)), data[f"{level}_data"])
        fed = wior.Bilevel(outer, inner, **data)
        options = {"batch_size": (8, 16), "steps": 30, "seed": 3, "record_every": 7, "metrics": metrics}
        close(wior.solve(fed, WIOR_BO, x0, y0, mesh=wior.Layout(mesh(), rows="batch"), **options), alone())
    with pytest.raises(
        ValueError, match=r"data='batch' splits data that lie on the devices; those of the inner level are streamed"
    ):
        wior.solve(fed, WIOR_BO, x0, y0, mesh=wior.Layout(mesh(), data="batch"), **options)


def another_run_is_refused(folder):
    run(mesh(), steps=4, checkpoint=folder)
    with pytest.raises(ValueError, match=r"belongs to another run: its seed is 3, here it is 4"):
        run(mesh(4), steps=4, checkpoint=folder, seed=4)


def a_table_made_on_its_devices(folder):
    """x0 and data may be split before they are given, here by a mesh of explicit axes; no process needs room for all of
    them.
    """
    explicit = jax.make_mesh((8,), ("batch",))
    spread = lambda values: jax.device_put(values, jax.sharding.NamedSharding(explicit, PartitionSpec("batch")))
    problem, x0, y0 = cleaning()
    problem = wior.Bilevel(outer, inner, spread(rows(M, 0)), spread(rows(N, 1)))
    layout = wior.Layout(explicit, rows="batch", data="batch")
    table = spread(x0["r"].rows)
    given = wior.solve(
        problem, WIOR_BO, {**x0, "r": wior.PerExample(table)}, y0, batch_size=(8, 16), steps=30, seed=3,
        record_every=7, metrics=metrics, mesh=layout,
    )  # fmt: skip
    close(given, alone())
    bad = wior.PerExample(spread(np.where(np.arange(N) == 5, np.nan, x0["r"].rows)))
    with pytest.raises(ValueError, match=r"x0\['r'\].rows has values that are not finite"):
        wior.solve(problem, WIOR_BO, {**x0, "r": bad}, y0, batch_size=8, steps=1, mesh=layout)


def many_runs(folder):
    def swept(mesh, together):
        return wior.sweep(
            *_arguments(WIOR_BO), grid={"outer_lr": [0.02, 0.05]}, seeds=2, batch_size=8, steps=9, mesh=mesh,
            metrics=metrics, side_by_side=together,
        )  # fmt: skip

    for together in (True, False):
        alone, split = swept(None, together), swept(mesh(), together)
        for one, other in zip(jax.tree.leaves((alone.x, alone.y)), jax.tree.leaves((split.x, split.y)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11)
    with pytest.raises(ValueError, match="sweep splits only batches"):
        swept(wior.Layout(mesh(), rows="batch"), True)


def bad_input(folder):
    """Each before anything is compiled."""
    before = block.one_run._cache_size(), block.begin._cache_size()
    two = two_axes()
    spec = lambda *entries: wior.Layout(two, parameters=lambda path, shape: PartitionSpec(*entries))
    for options, kind, words in (
        ({"batch_size": (8, 12)}, ValueError, r"axis 'batch' has 8 devices, which do not divide the inner batch of 12; give a multiple of 8, for example 8 or 16"),
        ({"batch_size": (4, 16)}, ValueError, r"do not divide the outer batch of 4; give a multiple of 8, for example 8, or a mesh"),
        ({"mesh": jax.devices()}, TypeError, r"mesh must be a jax.sharding.Mesh or a wior.Layout, got \[CpuDevice"),
        ({"mesh": "batch"}, TypeError, r"mesh must be a jax.sharding.Mesh or a wior.Layout, got 'batch' of type str"),
        ({"mesh": wior.Layout(mesh(3), rows="batch"), "batch_size": 9}, ValueError, r"axis 'batch' has 3 devices, which do not divide x0\['r'\], whose rows are 80"),
        ({"mesh": wior.Layout(mesh(5), data="batch"), "batch_size": 10}, ValueError, r"has 5 devices, which do not divide outer_data\['a'\], whose rows are 48"),
        ({"mesh": spec("model", "model", "model")}, ValueError, r"parameters\(.*\) has 3 entries"),
        ({"mesh": spec("nowhere")}, ValueError, r"names 'nowhere'; the mesh has 'batch' \(4 devices\), 'model' \(2 devices\)"),
        ({"mesh": wior.Layout(two, parameters=lambda path, shape: "model")}, TypeError, r"must return a PartitionSpec, got 'model'"),
        ({"mesh": wior.Layout(mesh(5), parameters=lambda path, shape: PartitionSpec("batch")), "batch_size": 5}, ValueError, r"cuts a dimension of 8 into 5 parts"),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            run(**{"mesh": mesh(), "batch_size": 8} | options)
    with pytest.raises(ValueError, match=r"rows='model' is not an axis of the mesh; it has 'batch' \(8 devices\)"):
        wior.Layout(mesh(), rows="model")
    problem, x0, y0 = cleaning()
    with pytest.raises(ValueError, match=r"x0\['r'\] is PerExample with shape \(\); its first axis must be 80"):
        wior.solve(
            problem, WIOR_BO, {**x0, "r": wior.PerExample(np.array(1.0))}, y0, steps=1, mesh=wior.Layout(mesh(), rows="batch")
        )  # fmt: skip
    case = problems.CASES["minimax"]()
    with pytest.raises(ValueError, match="rows='batch' splits PerExample leaves, and x0 has none"):
        wior.solve(case.problem, case.algorithm, case.x0, case.y0, steps=1, mesh=wior.Layout(mesh(), rows="batch"))
    assert (block.one_run._cache_size(), block.begin._cache_size()) == before


QUICK = (
    bilevel, rows_split, parameters_split, minimax, conditional, own, volume,
    layouts, damage_of_what_is_split, checksums_of_split_arrays, streamed, another_run_is_refused, bad_input,
)  # fmt: skip
SLOW = (
    momentum, each_device_has_its_share, a_table_made_on_its_devices,
    volume_of_the_block, rows_and_data_split, parameters_split_by_name, moving_average, fixed_batches, herding, many_runs,
    every_problem, every_method, optimizers,
)  # fmt: skip


def report(checks):
    found = {}
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Path(folder))
                found[check.__name__] = None
            except BaseException:  # noqa: BLE001 - a check may fail in any way, and each is reported
                found[check.__name__] = traceback.format_exc()
    return found


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    wanted = sys.argv[1:]
    print(json.dumps(report([check for check in (*QUICK, *SLOW) if check.__name__ in wanted])))
