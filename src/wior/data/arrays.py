"""Arrays in .npz files: read with a check of their shapes, and kept in the cache where it takes long to make them."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from wior.data.files import cache_folder
from wior.saving.whole import write_arrays

Shape = tuple[int | None, ...]  # None: any length


def read_arrays(path: Path, expected: Mapping[str, tuple[Shape, str]]) -> dict[str, np.ndarray]:
    """The arrays of the names in `expected`, each with the shape and the dtype (or its kind alone) that stand there."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in expected}
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is truncated, damaged or not an .npz file with the arrays {', '.join(expected)}: {error}"
        ) from error
    for name, (shape, dtype) in expected.items():
        found = arrays[name]
        fits = found.ndim == len(shape) and all(
            want in (None, have) for want, have in zip(shape, found.shape, strict=True)
        )
        if not fits or dtype not in (found.dtype.name, found.dtype.kind):
            wanted = str(shape).replace("None", "any")
            raise ValueError(f"{path}: {name} must be {dtype} {wanted}, got {found.dtype.name} {found.shape}")
    return arrays


def remembered(
    name: str, made_from: str, expected: Mapping[str, tuple[Shape, str]], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What `make` returns, from the cache if it was made from the same before.

    Without a cache it is made every time.
    """
    path = cache_folder() / "decoded" / f"{name}.npz"
    if path.is_file():
        with contextlib.suppress(ValueError, OSError):
            arrays = read_arrays(path, {**expected, "made_from": ((), "U")})
            if arrays.pop("made_from") == made_from:
                return arrays
    arrays = make()
    with contextlib.suppress(OSError):
        write_arrays(path, {**arrays, "made_from": np.array(made_from)})
    return arrays
