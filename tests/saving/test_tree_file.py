"""Trees as JSON and arrays: what comes back, and in which order."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from wior.problems.per_example import PerExample
from wior.saving.tree_file import Written, read


def through(value):
    written = Written()
    described = json.loads(json.dumps(written.tree("x", value)))
    return read(described, written.arrays)


def test_builtin_trees_are_what_they_were():
    tree = {
        "b": [np.arange(3), (np.float32(2.5), None)], "a": {1: np.ones((2, 0)), 0: np.array(True)},
        "rows": PerExample(np.arange(4.0)), "empty": {}, "none": None,
    }  # fmt: skip
    found = through(tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.asarray(other).dtype
        assert one.shape == np.shape(other)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float8_e4m3fn, ml_dtypes.int4, np.complex64, np.uint8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_every_type_of_number(dtype, shape):
    value = np.ones(shape, dtype)
    found = through(value)
    assert (found.dtype, found.shape) == (value.dtype, shape)
    np.testing.assert_array_equal(found, value)


def test_a_key_of_random_numbers():
    key = jax.random.split(jax.random.key(3, impl="threefry2x32"), 2)
    found = through({"key": key})["key"]
    assert found.dtype == key.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(key))


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """Its parts are not in the order of their names."""

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias

    def tree_flatten_with_keys(self):
        names = ("weight", "bias")
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in names], None

    @classmethod
    def tree_unflatten(cls, about, parts):
        return cls(*parts)


def test_another_class_comes_back_by_its_parts_in_their_order():
    found = through([Module(np.ones(2), Module(np.zeros(1), np.full(3, 7.0)))])
    assert (type(found[0]).__name__, found[0]._fields) == ("Module", ("weight", "bias"))
    assert [leaf.tolist() for leaf in jax.tree.leaves(found)] == [[1, 1], [0], [7, 7, 7]]
    assert type(found[0]) is type(through(Module(1.0, 2.0)))


def test_what_is_no_array_is_refused():
    with pytest.raises(TypeError, match=r"^x holds <object object at .*>, which is no array of numbers$"):
        through({"a": object()})
