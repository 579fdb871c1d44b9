"""What holds in every test of streamed data."""

import pytest

from wior.running import plan as planning


@pytest.fixture(autouse=True)
def windows_of_a_few_steps(monkeypatch):
    """Short enough that every run here goes through many, of a length that divides nothing."""
    monkeypatch.setattr(planning, "BYTES_IN_WINDOW", 3 * 1024)
