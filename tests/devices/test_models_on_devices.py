"""Keys, model states, micro batches and modules on four devices: the numbers of one, to rounding."""

import json
import subprocess
import sys

import pytest

import models_on_devices


@pytest.fixture(scope="module")
def differences():
    done = subprocess.run(
        [sys.executable, models_on_devices.__file__], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_numbers_are_those_of_one_device(differences):
    assert len(differences) == 7
    assert {name: found for name, found in differences.items() if not found < 1e-14} == {}
