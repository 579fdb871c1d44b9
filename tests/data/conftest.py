"""What holds in every test of a loader."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network: the loopback alone, and no proxy to it."""
    monkeypatch.delenv("WIOR_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    return tmp_path / "cache" / "wior"
