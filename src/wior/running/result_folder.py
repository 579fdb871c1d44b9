"""A result in a folder: `result.json` and `arrays.npz`, written whole or not at all. `wior.load` reads it."""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from wior.running import position
from wior.running.position import Position
from wior.running.results import Result
from wior.saving.folders import whole_folder
from wior.saving.tree_file import Written, read
from wior.saving.whole import write_arrays, write_json
from wior.version import __version__

RESULT, ARRAYS = "result.json", "arrays.npz"
MADE_BY = "wior result"
FORMAT = 1
# what damaged files make json, numpy and zipfile raise: RuntimeError is an unknown compression, or JSON without end
UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
NUMBERS = ("steps", "steps_per_epoch", "stopped_by", "compile_seconds", "metric_seconds")


def save(result: Result, folder: str | Path) -> None:
    """Writes a result; one that lies there is replaced, anything else is left as it is."""
    if not isinstance(folder, (str, Path)):
        raise TypeError(f"folder must be a path, got {folder!r:.80} of type {type(folder).__name__}")
    written = Written()
    about: dict[str, Any] = {"made_by": MADE_BY, "format": FORMAT, "version": __version__}
    about |= {name: getattr(result, name) for name in NUMBERS}
    stands = position.position_of(result.state)
    # of a module the arrays alone: functions cannot be written
    x, y = (
        arrays if rest is not None else given
        for given, arrays, rest in zip(
            (result.x, result.y), (result.state.x, result.state.y), stands.rests, strict=True
        )
    )
    about["x"], about["y"] = written.tree("x", x), written.tree("y", y)
    about["state"] = written.tree("state", result.state)
    about["history"] = {name: written.tree(f"history.{name}", values) for name, values in result.history.items()}
    bare = dataclasses.asdict(dataclasses.replace(stands, rests=(None, None)))
    about["position"] = bare | {"memories": written.tree("memories", stands.memories)}
    del about["position"]["rests"]
    about["arrays"] = _checksum_of(written.arrays)
    about["checksum"] = _checksum(about)
    with whole_folder(Path(folder), _is_ours) as unfinished:
        write_arrays(unfinished / ARRAYS, written.arrays)
        write_json(unfinished / RESULT, about)


def load(folder: str | Path) -> Result:
    """The result that `result.save(folder)` wrote; the problem is not needed.

    Nothing is unpickled. Arrays are numpy's, in the types that they had. Dictionaries, lists, tuples and `PerExample`
    leaves come back as they were, other classes as named tuples with the same parts; of a module that holds functions
    too, the arrays. The state continues the run as that of the result does; where x or y was such a module, give it as
    x0 or y0 with the arrays of the result.

    Parameters
    ----------
    folder : str or pathlib.Path
        The folder.

    Returns
    -------
    Result

    Raises
    ------
    FileNotFoundError, ValueError
        Where the folder holds no result, or a damaged one.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, numpy as np, wior
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> result = wior.solve(problem, wior.WiORMinimax(0.1, 0.1), 0.0, 0.0, batch_size=4, steps=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/run")
    ...     found = wior.load(f"{folder}/run")
    >>> bool(found.x == result.x), found.steps, found.state._fields
    (True, 4, ('x', 'y'))
    """
    if not isinstance(folder, (str, Path)):
        raise TypeError(
            f"folder must be the path of a saved result, got {folder!r:.80} of type {type(folder).__name__}"
        )
    place = Path(folder)
    if not (place / RESULT).is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no result: it has no {RESULT}; result.save(folder) writes one")
    try:
        about = json.loads((place / RESULT).read_text(encoding="utf-8"))
        if about["made_by"] != MADE_BY or about["format"] != FORMAT:
            raise ValueError(f"it is {about['made_by']!r} of format {about['format']!r}, not {MADE_BY!r} of {FORMAT}")
        if about.pop("checksum") != _checksum(about):
            raise ValueError(f"{RESULT} is not what was written")
        with (place / ARRAYS).open("rb") as file:
            saved = np.load(file, allow_pickle=False)
            arrays = {name: saved[name] for name in saved.files}
        if about["arrays"] != _checksum_of(arrays):
            raise ValueError(f"{ARRAYS} is that of another result")
        stands = Position(**about["position"] | {"memories": read(about["position"]["memories"], arrays)})
        return Result(
            x=read(about["x"], arrays),
            y=read(about["y"], arrays),
            state=position.at(read(about["state"], arrays), stands),
            history={name: read(values, arrays) for name, values in about["history"].items()},
            **{name: about[name] for name in NUMBERS},
        )
    except UNREADABLE as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        said = f"it has no {said}" if isinstance(error, KeyError) else said
        raise ValueError(f"the result in {str(folder)!r} cannot be read: {said}") from error


def _checksum(about: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def _checksum_of(arrays: dict[str, np.ndarray]) -> int:
    found = 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), found)
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return found


def _is_ours(folder: Path) -> bool:
    try:
        about = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        return about["made_by"] == MADE_BY and {path.name for path in folder.iterdir()} <= {RESULT, ARRAYS}
    except (OSError, ValueError, TypeError, KeyError):
        return False
