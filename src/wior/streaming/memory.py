"""Memory of the host that a CPU device takes over as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: what begins elsewhere is copied


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An empty array that `jax.device_put` does not copy on a CPU."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    begins = -raw.ctypes.data % ALIGNMENT
    return raw[begins : begins + size].view(dtype).reshape(shape)
