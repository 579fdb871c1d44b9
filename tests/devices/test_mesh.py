"""A run on eight devices is the run on one, to rounding; the checks are in `on_eight_devices.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import on_eight_devices

SCRIPT = Path(on_eight_devices.__file__)


def keeping():
    """What makes another process keep its programs where this one does, as `conftest.py` says."""
    if jax.config.jax_compilation_cache_dir is None:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def reported(checks):
    names = [check.__name__ for check in checks]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *names], capture_output=True, text=True, check=False, env=os.environ | keeping()
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == names
    return found


@pytest.fixture(scope="module")
def quick():
    return reported(on_eight_devices.QUICK)


@pytest.mark.parametrize("check", [check.__name__ for check in on_eight_devices.QUICK])
def test_on_eight_devices(quick, check):
    assert quick[check] is None, quick[check]


@pytest.mark.slow
@pytest.mark.parametrize("check", on_eight_devices.SLOW, ids=lambda check: check.__name__)
def test_on_eight_devices_at_length(check):
    assert reported([check])[check.__name__] is None
