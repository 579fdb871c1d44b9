"""Losses that take a key: what they are given, and what a method may do with indices that have keys."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior.problems.keys import Indices, Rows, fold_each, rows_at
from wior.problems.losses import Asking, fixed_key, takes_key
from wior.problems.problem import batch_of

ROWS = np.arange(24.0).reshape(8, 3)
KEYS = fold_each(jax.random.key(3), 4)


def data(key):
    return jax.random.key_data(key).tolist()


def plain(x, y, batch):
    return jnp.mean((batch @ y - x) ** 2)


def noisy(x, y, batch, key):
    return jnp.mean((batch @ y - x) ** 2) + jax.random.normal(key)


def test_indices_are_taken_apart_as_an_array_of_indices_is():
    many = Indices(jnp.arange(12).reshape(4, 3), KEYS)
    assert (len(many), many.shape) == (4, (4, 3))
    first, *others = many
    assert first.examples.tolist() == [0, 1, 2]
    assert data(first.key) == data(KEYS[0])
    assert [one.examples.tolist() for one in others] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert data(many[1:3].key) == data(KEYS[1:3])
    assert data(many.reshape(2, 2, 3).key) == data(KEYS.reshape(2, 2))
    assert first[1] == 1
    _, taken = jax.lax.scan(lambda carry, one: (carry, jax.random.key_data(one.key)), 0, many)
    assert taken.tolist() == data(KEYS)


def test_the_pieces_of_a_large_batch_have_keys_of_their_own():
    large = Indices(jnp.arange(7), KEYS[0])
    pieces = large[:6].reshape(3, 2)
    found = [*(data(piece.key) for piece in pieces), data(large[6:].key)]
    assert len({tuple(key) for key in found}) == 4
    assert pieces.examples.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_rows_carry_the_key_of_their_indices():
    batch = batch_of(jnp.asarray(ROWS), Indices(jnp.array([1, 2]), KEYS[1]))
    assert isinstance(batch.data, Rows)
    assert batch.examples.tolist() == [1, 2]
    some = rows_at(batch.data, Indices(jnp.array([1]), KEYS[2]))
    np.testing.assert_array_equal(some.rows, ROWS[[2]])
    assert data(some.key) == data(KEYS[2])
    np.testing.assert_array_equal(rows_at(jnp.asarray(ROWS), jnp.array([4])), ROWS[[4]])


def test_only_a_loss_that_asks_is_wrapped():
    problem = wior.Bilevel(plain, plain, ROWS, ROWS)
    assert problem.inner is plain
    assert not problem.takes_key
    problem = wior.Bilevel(plain, noisy, ROWS, ROWS)
    assert problem.takes_key
    assert isinstance(problem.inner, Asking)
    value = problem.inner(0.0, jnp.ones(3), Rows(jnp.asarray(ROWS), KEYS[1]))
    assert value == noisy(0.0, jnp.ones(3), ROWS, KEYS[1])
    assert problem.inner(0.0, jnp.ones(3), jnp.asarray(ROWS)) == noisy(0.0, jnp.ones(3), ROWS, fixed_key())
    assert problem.outer(0.0, jnp.ones(3), Rows(jnp.asarray(ROWS), KEYS[1])) == plain(0.0, jnp.ones(3), ROWS)


def test_a_restated_problem_hands_the_key_on():
    problem = wior.Compositional(lambda y, b: jnp.sum(y), lambda x, b, key: x + jax.random.normal(key), ROWS, ROWS)
    restated = problem.restated()
    assert takes_key(restated.inner)
    value = restated.inner(jnp.ones(()), jnp.ones(()), Rows(jnp.asarray(ROWS), KEYS[0]))
    np.testing.assert_allclose(value, jax.random.normal(KEYS[0]) ** 2 / 2, rtol=1e-12)


def test_a_key_that_is_bound_or_positional_is_not_asked_for():
    bound = functools.partial(noisy, key=jax.random.key(1))
    assert not wior.Bilevel(plain, bound, ROWS, ROWS).takes_key
    assert not wior.Bilevel(plain, lambda x, key, state: jnp.sum(key), ROWS, ROWS).takes_key


def test_a_loss_that_cannot_be_called():
    def bad(x, y, *, key): ...

    with pytest.raises(TypeError, match=r"inner is called as inner\(x, y, batch, key\), and the function given is bad"):
        wior.Bilevel(plain, bad, ROWS, ROWS)
    with pytest.raises(TypeError, match="inner has a parameter `state`, and the problem has no model_state: give the"):
        wior.Bilevel(plain, lambda x, y, b, state: 0.0, ROWS, ROWS)
    with pytest.raises(TypeError, match="a Minimax problem carries none: of the classes of problems only Bilevel"):
        wior.Minimax(lambda x, y, b, state: 0.0, ROWS)
    with pytest.raises(ValueError, match="model_state is given, but neither outer nor inner has a parameter `state`"):
        wior.Bilevel(plain, plain, ROWS, ROWS, model_state=0.0)
    with pytest.raises(ValueError, match='update_state_by must be "inner" or "both", got \'outer\''):
        wior.Bilevel(plain, plain, ROWS, ROWS, update_state_by="outer")
