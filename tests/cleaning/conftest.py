"""The folder that the commands of cleaning run in."""

import pytest

from clean_runs import write_table


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("table.csv")
    return tmp_path
