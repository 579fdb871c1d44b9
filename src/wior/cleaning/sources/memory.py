"""Memory that the compiled program can use as it is."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64  # bytes: jax copies on a CPU what begins elsewhere


def aligned(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """An empty array that `jax.device_put` does not copy on a CPU; features may be most of the memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + size].view(dtype).reshape(shape)
