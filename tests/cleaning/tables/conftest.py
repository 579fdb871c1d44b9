"""The folder that tables are written to."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, so that messages have short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
