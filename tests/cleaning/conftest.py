"""The folder that the commands of cleaning run in, and closed-form models that are quick."""

import pytest

from clean_runs import write_table
from wior.cleaning.opinions.expansion import Expansion


@pytest.fixture(scope="session", autouse=True)
def few_sums():
    """Rows are expanded by 60 random sums in place of a thousand: the tests have no time for more."""
    of = Expansion.of.__func__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Expansion, "of", classmethod(lambda kind, *given, **named: of(kind, *given, **{"sums": 60, **named}))
        )
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("table.csv")
    return tmp_path
