"""What holds in every test of streamed data."""

import pytest

from wior.running import blocks


@pytest.fixture(autouse=True)
def windows_of_a_few_steps(monkeypatch):
    """Short enough that every run here goes through many, of a length that divides nothing."""
    monkeypatch.setattr(blocks, "BYTES_IN_WINDOW", 3 * 1024)
