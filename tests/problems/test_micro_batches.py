"""Losses evaluated on pieces of their batch: the same numbers as on all of it, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines
from wior.problems.keys import Rows, fold_each
from wior.problems.losses import evaluate
from wior.problems.micro_batches import InPieces

ROWS = np.random.default_rng(0).normal(size=(24, 3))
Y0 = jnp.ones(3)


def outer(x, y, batch):
    return jnp.mean((batch @ y - 1) ** 2)


def inner(x, y, batch):
    weights = jax.nn.sigmoid(x["rows"]) * jnp.exp(x["shared"])
    return jnp.mean(weights * jnp.cos(batch @ y - 1)) + jnp.sum(y**2)


PROBLEM = wior.Bilevel(outer, inner, ROWS, ROWS)
X0 = {"rows": wior.PerExample(jnp.linspace(-1, 1, 24)), "shared": jnp.zeros(())}
METHODS = [
    wior.WiORBO(1.0, 0.1, 0.1),
    baselines.AmIGO(1.0, 0.1, 0.1, inner_steps=2, adjoint_steps=2),
    baselines.SABA(1.0, 0.1, 0.1),
    baselines.VRBO(1.0, 0.1, 0.1, large_batch=10),
    baselines.Reverse(1.0, 0.1, inner_steps=3),
    baselines.F2SA(1.0, 0.1, 0.1),
]


@pytest.mark.parametrize("order", ["random-reshuffling", "herding"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_run_has_the_same_numbers(method, order):
    run = lambda micro: wior.solve(PROBLEM, method, X0, Y0, order=order, batch_size=8, steps=7, micro_batch=micro)
    whole, pieces = run(None), run((4, 2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), whole.state.x, pieces.state.x)
    np.testing.assert_allclose(whole.y, pieces.y, rtol=1e-9)
    assert {name: value[-1] for name, value in whole.history.items() if "gradients" in name} == {
        name: value[-1] for name, value in pieces.history.items() if "gradients" in name
    }


def test_maps_and_games():
    compositional = wior.Compositional(lambda y, b: jnp.mean((b @ y) ** 2), lambda x, b: x * jnp.mean(b, 0), ROWS, ROWS)
    minimax = wior.Minimax(lambda x, y, b: jnp.mean(b @ y) * x + x**2 - y @ y, ROWS)
    for problem, method, x0 in (
        (compositional, wior.WiORComp(0.1, 0.1, 0.1), jnp.ones(())),
        (compositional, wior.WiORBO(0.1, 0.1, 0.1), jnp.ones(())),  # restated after it is cut into pieces
        (minimax, wior.WiORMinimax(0.1, 0.1), jnp.ones(())),
        (minimax, wior.WiORBO(0.1, 0.1, 0.1), jnp.ones(())),
    ):
        run = lambda micro, p=problem, m=method, x=x0: wior.solve(p, m, x, Y0, batch_size=8, steps=5, micro_batch=micro)
        np.testing.assert_allclose(run(2).x, run(None).x, rtol=1e-10)


def test_a_sweep():
    run = lambda micro: wior.sweep(
        PROBLEM, METHODS[0], X0, Y0, grid={"inner_lr": [0.1, 0.2]}, seeds=2, batch_size=8, steps=5, micro_batch=micro
    )
    np.testing.assert_allclose(run(2).y, run(None).y, rtol=1e-9)


def test_a_rest_of_a_large_batch_counts_by_its_rows():
    pieces = InPieces(lambda x, y, b: jnp.mean((b @ y - x) ** 3), 4, ((False,), (False,)))
    value, slope = jax.value_and_grad(pieces, 1)(0.5, Y0, jnp.asarray(ROWS[:10]))
    expected = jax.value_and_grad(pieces.loss, 1)(0.5, Y0, ROWS[:10])
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-12)


def test_each_piece_has_a_key_and_the_state_of_the_piece_before():
    key, seen = jax.random.key(5), jnp.asarray(ROWS[:8])
    asks = wior.Bilevel(
        outer,
        lambda x, y, b, key, state: (jnp.mean(b @ y) * jax.random.normal(key), 0.5 * state + jnp.sum(b)),
        ROWS, ROWS, model_state=jnp.zeros(()),
    ).inner  # fmt: skip
    value, state = evaluate(InPieces(asks, 2, ((False,), (False,))), jnp.ones(()), 0.0, Y0, Rows(seen, key))
    keys, expected, mean = fold_each(key, 5), 1.0, 0.0
    for k in range(4):  # rows k and k + 4
        mean += jnp.mean(seen[k::4] @ Y0) * jax.random.normal(keys[k]) / 4
        expected = 0.5 * expected + jnp.sum(seen[k::4])
    np.testing.assert_allclose(value, mean, rtol=1e-12)
    np.testing.assert_allclose(state, expected, rtol=1e-12)


def test_a_step_needs_the_memory_of_a_piece():
    """The activations of a deep loss: 2048 rows at a time, or 32."""

    def deep(x, y, batch):
        out = batch
        for _ in range(8):
            out = jnp.tanh(out @ y)
        return jnp.mean(out**2)

    y, rows = jnp.eye(64), jnp.ones((2048, 64))
    memory = []
    for loss in (deep, InPieces(deep, 32, ((False,), (False,)))):
        program = jax.jit(jax.grad(loss, 1)).lower(0.0, y, rows).compile()
        memory.append(program.memory_analysis().temp_size_in_bytes)
    assert memory[1] < memory[0] / 4


@pytest.mark.parametrize(
    ("micro", "message"),
    [
        (3, r"micro_batch \(outer\) must divide the batch of 8 rows, got 3; for example 1, 2, 4"),
        ((4, 5), r"micro_batch \(inner\) must divide the batch of 8 rows, got 5; for example 2, 4, 8"),
        (0, "micro_batch must be"),
    ],
)
def test_what_does_not_divide(micro, message):
    with pytest.raises(ValueError, match=message):
        wior.solve(PROBLEM, METHODS[0], X0, Y0, batch_size=8, steps=5, micro_batch=micro)


def test_conditional_problems_have_no_large_batches():
    problem = wior.ConditionalBilevel(outer, lambda x, y, b: x * outer(x, y, b), ROWS, np.ones((24, 2, 3)))
    with pytest.raises(
        ValueError, match=r"micro_batch=\(2, 2\) is for problems with one inner data set; a Conditional"
    ):
        wior.solve(problem, wior.WiORCBO(0.1, 0.1, 0.1), jnp.ones(()), Y0, batch_size=8, steps=5, micro_batch=2)
