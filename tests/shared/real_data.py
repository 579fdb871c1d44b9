"""Where the tests find real data files: in WIOR_DATA, or in shared/data beside the project."""

import os
from pathlib import Path

import pytest

VARIABLE = os.environ.get("WIOR_DATA")  # read before a test unsets it
BESIDE_THE_PROJECT = Path(__file__).parents[3] / "shared" / "data"


def real_data(name: str) -> Path:
    """A folder of data sets that has the file or folder `name`, for a loader's `folder`; the test is skipped without
    one.
    """
    for folder in (*([Path(VARIABLE)] if VARIABLE else []), BESIDE_THE_PROJECT):
        if (folder / name).exists():
            return folder
    pytest.skip(f"{name} is neither in WIOR_DATA ({VARIABLE or 'not set'}) nor in ../shared/data")
