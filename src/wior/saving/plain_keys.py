"""Keys of `jax.random` as arrays of numbers, which files hold, and as keys again."""

from __future__ import annotations

from typing import Any

import jax


def is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """The numbers of a key; any other array as it is."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def as_before(numbers: Any, leaf: Any) -> Any:
    """The numbers of `plain(leaf)` as what `leaf` is."""
    return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf)) if is_key(leaf) else numbers
