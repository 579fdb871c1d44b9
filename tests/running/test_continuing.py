"""`state=`: a run in two calls is the run in one, bit for bit."""

import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
import runs
import wior
from wior.orders import BY_NAME


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def more(state, **options):
    """As `runs.solve`, without a start of its own."""
    options = {"batch_size": (3, 5), "steps": 60, "record_every": 7, "metrics": runs.metrics} | options
    return wior.solve(
        options.pop("problem", runs.problem()), options.pop("algorithm", runs.ALGORITHM), state=state, **options
    )


@pytest.mark.parametrize("order", sorted(BY_NAME))
@pytest.mark.parametrize("cut", [1, 57])
def test_two_parts_are_the_whole(order, cut):
    whole = runs.solve(order=order, steps=100)
    found = more(runs.solve(order=order, steps=cut).state, order=order, steps=100 - cut)
    assert same(found.state, whole.state)
    assert same(found.state.position.memories, whole.state.position.memories)
    assert found.steps == 100
    records = len(found.history["step"])
    assert found.history["step"][0] == cut
    for name in whole.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(found.history[name][1:], whole.history[name][1 - records :])
    assert found.history["seconds"][0] > 0


@pytest.mark.parametrize("case", sorted(problems.CASES))
def test_every_class_of_problem_continues(case):
    problem, algorithm, x, y, batch_size = problems.CASES[case]()
    options = {"order": "herding", "batch_size": batch_size, "record_every": 4}
    whole = wior.solve(problem, algorithm, x, y, steps=11, **options)
    first = wior.solve(problem, algorithm, x, y, steps=5, **options)
    assert same(wior.solve(problem, algorithm, state=first.state, steps=6, **options).state, whole.state)


def test_many_parts_epochs_and_a_state_that_is_used_twice():
    whole = runs.solve(steps=None, epochs=3, record_every=1000)
    state = runs.solve(steps=None, epochs=1, record_every=1000).state
    before = jax.tree.map(np.array, tuple(state))
    found = more(more(state, steps=None, epochs=1).state, steps=None, epochs=1)
    assert same(found.state, whole.state)
    assert same(tuple(state), before)
    assert same(more(state, steps=None, epochs=2).state, whole.state)


def test_a_state_goes_through_a_checkpoint(tmp_path):
    state = runs.solve(order="herding", steps=31).state
    whole = runs.solve(order="herding", steps=91)
    checkpoint = wior.Checkpoint(tmp_path / "run", every_steps=10)
    more(state, order="herding", steps=29, checkpoint=checkpoint)
    found = more(state, order="herding", steps=60, checkpoint=checkpoint)
    assert same(found.state, whole.state)
    assert found.history["step"][0] == 31
    with pytest.raises(wior.AnotherRunError, match="its start"):
        more(runs.solve(order="herding", steps=32).state, order="herding", steps=60, checkpoint=checkpoint)


def test_a_state_survives_pickle_and_what_was_interrupted_continues():
    whole = runs.solve()

    def pressed(step, latest):
        raise KeyboardInterrupt

    with pytest.raises(wior.Interrupted) as caught:
        runs.solve(progress=pressed)
    state = pickle.loads(pickle.dumps(caught.value.result.state))
    assert 0 < state.position.step < 60
    assert same(more(state, steps=60 - state.position.step).state, whole.state)


def test_step_sizes_and_losses_may_be_others():
    state = runs.solve(steps=20).state
    halved = wior.WiORBO(outer_lr=0.005, inner_lr=0.01, adjoint_lr=0.015, radius=2.0)
    found = more(state, algorithm=halved, steps=10)
    schedule = lambda before, after: lambda step: jnp.where(step < 20, before, after)
    decayed = wior.WiORBO(schedule(0.01, 0.005), schedule(0.02, 0.01), schedule(0.03, 0.015), radius=2.0)
    np.testing.assert_allclose(found.y["slope"], runs.solve(algorithm=decayed, steps=30).y["slope"], rtol=1e-6)


def test_seconds_and_conditions_count_from_there():
    state = runs.solve(steps=20).state
    found = more(state, steps=10**9, seconds=0.2, record_every=10**6)
    assert found.stopped_by == "seconds"
    assert found.history["seconds"][-1] - state.position.seconds >= 0.2
    assert more(state, stop=wior.stop.AtLeast("step", 35)).steps == 35


def test_a_start_is_left_out_or_equal():
    first = runs.solve(steps=20)
    given = wior.solve(runs.problem(), runs.ALGORITHM, first.x, first.y, state=first.state, batch_size=(3, 5), steps=5)
    assert same(given.state, more(first.state, steps=5).state)
    x0, _ = runs.start()
    with pytest.raises(
        ValueError, match=r"^x0 is not the x of state, from which the run continues; leave out x0 and y0$"
    ):
        wior.solve(runs.problem(), runs.ALGORITHM, x0, first.y, state=first.state, batch_size=(3, 5), steps=5)
    with pytest.raises(TypeError, match=r"^y0 must be given: arrays, or trees of arrays, to start from$"):
        wior.solve(runs.problem(), runs.ALGORITHM, x0, steps=5)


def test_streamed_data_continue_as_arrays_do():
    data = runs.problem()
    streamed = wior.Bilevel(
        runs.outer, runs.inner, data.outer_data, {k: wior.Streamed(np.asarray(v)) for k, v in data.inner_data.items()}
    )
    whole = runs.solve(order="herding", steps=60)
    first = runs.solve(order="herding", steps=23, problem=streamed)
    assert same(more(first.state, order="herding", steps=37, problem=streamed).state, whole.state)
    assert same(more(first.state, order="herding", steps=37).state, whole.state)


def test_a_mesh_of_one_device_continues():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    whole, first = runs.solve(order="herding", mesh=mesh), runs.solve(order="herding", steps=23, mesh=mesh)
    assert same(more(first.state, order="herding", steps=37, mesh=mesh).state, whole.state)


def test_a_sweep_continues_from_one_state():
    state = runs.solve(order="herding", steps=23).state
    problem, options = runs.problem(), {"order": "herding", "batch_size": (3, 5), "steps": 37, "metrics": runs.metrics}
    found = wior.sweep(problem, runs.ALGORITHM, state=state, grid={"outer_lr": [0.01, 0.02]}, record_every=7, **options)
    assert (found.seeds, found.steps, found.history["step"][0]) == ([3], 60, 23)
    for place, rate in enumerate((0.01, 0.02)):
        alone = more(state, order="herding", steps=37, algorithm=wior.WiORBO(rate, 0.02, 0.03, radius=2.0))
        np.testing.assert_allclose(found.x["dense"][place, 0], alone.x["dense"], rtol=1e-12)
        np.testing.assert_array_equal(found.history["outer_gradients"][place, 0], alone.history["outer_gradients"])
    with pytest.raises(
        ValueError,
        match=re.escape(
            "seeds is 2, and state was reached with seed 3: its place in the order is that of no other seed; leave out seeds"
        ),
    ):
        wior.sweep(problem, runs.ALGORITHM, state=state, grid={"outer_lr": [0.01]}, seeds=2, **options)


def twisted(state):
    return jax.tree.map(lambda leaf: leaf + 1, state)


BAD = {
    "a result": (lambda r: r, {}, TypeError, "state is a Result; give its state: state=result.state"),
    "a copy": (lambda r: twisted(r.state), {}, ValueError, "state is a copy of the state of a result (by jax.tree.map or _replace), which does not say where the run stands"),
    "x alone": (lambda r: r.x, {}, TypeError, "state must be the .state of a Result, got"),
    "another order": (lambda r: r.state, {"order": "herding"}, ValueError, "state was reached with order ['RandomReshuffling()', 'RandomReshuffling()'], here it is"),
    "another batch size": (lambda r: r.state, {"batch_size": 4}, ValueError, "state was reached with batch_size [3, 5], here it is [4, 4]: its place in the order means nothing there; give the same batch_size, or start anew with x0=state.x and y0=state.y"),
    "another method": (lambda r: r.state, {"algorithm": wior.baselines.SOBA(0.1, 0.1, 0.1)}, ValueError, "state was reached with algorithm 'WiORBO', here it is 'SOBA'"),
    "another seed": (lambda r: r.state, {"seed": 4}, ValueError, "seed is 4, and state was reached with seed 3; leave out seed"),
}  # fmt: skip


@pytest.mark.parametrize(("taken", "options", "kind", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_continued_is_refused(taken, options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        more(taken(runs.solve(steps=20)), **options)


def test_data_of_another_size_have_another_order():
    data = runs.problem()
    shorter = wior.Bilevel(
        runs.outer, runs.inner, jax.tree.map(lambda leaf: leaf[:-1], data.outer_data), data.inner_data
    )
    with pytest.raises(ValueError, match=re.escape("state was reached with examples [13, 17], here it is [12, 17]")):
        more(runs.solve(steps=20).state, problem=shorter)
