"""What a column of a table becomes."""

import json
from pathlib import Path

import numpy as np
import pytest

from user_tables import column, marked
from wior.cleaning.tables import InputError, delimited


@pytest.mark.parametrize(
    ("cells", "features", "report"),
    [
        (["1", " 2.5 ", "-3e1", "+.5"], [[1], [2.5], [-30], [0.5]], {"kind": "number"}),
        (["0", "1", "1"], [[0], [1], [1]], {"kind": "number"}),
        (["1", "", "4", "NA"], [[1, 0], [2.5, 1], [4, 0], [2.5, 1]], {"kind": "number", "missing": 2}),
        (["-0", "1"], [[0], [1]], {"kind": "number"}),
        (["True", "FALSE", "true"], [[1], [0], [1]], {"kind": "boolean"}),
        (["yes", "No"], [[1], [0]], {"kind": "boolean"}),
        (["t", "f"], [[1], [0]], {"kind": "boolean"}),
        (["n", "Y", " "], [[0, 0], [1, 0], [0, 1]], {"kind": "boolean", "missing": 1}),
        # two pairs mixed are letters
        (["y", "f"], [[0, 1], [1, 0]], {"kind": "category", "values": 2}),
        (["b", " a", "b "], [[0, 1], [1, 0], [0, 1]], {"kind": "category", "values": 2}),
        (["b", "?", "a"], [[0, 1, 0], [0, 0, 1], [1, 0, 0]], {"kind": "category", "values": 2, "missing": 1}),
        (["x", ""], [[1, 0], [0, 1]], {"kind": "category", "values": 1, "missing": 1}),
        (["1", "2", "many"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], {"kind": "category", "values": 3}),
        (["2024", "-"], [[0, 1], [1, 0]], {"kind": "category", "values": 2}),
        (["7", "7", "7"], [[], [], []], {"kind": "ignored", "why": "constant"}),
        (["TRUE", "true"], [[], []], {"kind": "ignored", "why": "constant"}),
        (["x", "x "], [[], []], {"kind": "ignored", "why": "constant"}),
        (["", "NA", "null"], [[], [], []], {"kind": "ignored", "why": "no values"}),
        (["2024-01-02", "", "2024-1-3T10:00:00Z"], [[], [], []], {"kind": "ignored", "why": "dates"}),
        (["1.2.2024", "03/04/99"], [[], []], {"kind": "ignored", "why": "dates"}),
        (["10:30", "9:15 pm"], [[], []], {"kind": "ignored", "why": "dates"}),
    ],
)
def test_what_a_column_becomes(folder, cells, features, report):
    found, said = column(*cells)
    assert (found, said) == (features, report)


@pytest.mark.parametrize("text", ["", " ", "NA", "n/a", "N/A", "NaN", "nan", "null", "NULL", "None", "none", "?"])
def test_missing_cells(folder, text):
    assert column("1", text, "3")[0] == [[1, 0], [2, 1], [3, 0]]
    assert column("u", text, "v")[0] == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(("values", "why"), [(50, None), (51, "51"), (1000, "1000"), (1500, "more than 1000")])
def test_texts_with_many_values_are_ignored(folder, values, why):
    found, said = column(*(f"text {i}" for i in range(values)))
    if why is None:
        assert np.array_equal(found, np.eye(50)[np.argsort(np.argsort([f"text {i}" for i in range(50)]))])
    else:
        assert said == {"kind": "ignored", "why": f"text with {why} different values"}


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e39", "1e400"])
def test_a_number_must_be_finite(folder, text):
    with pytest.raises(InputError, match=rf"train.csv, row 3, column 'it': '{text}' is infinite or too large"):
        column("1", "2", text, "4")
    assert column("1", "2", text, "many")[1] == {"kind": "category", "values": 4}


def test_kinds_are_those_of_all_pieces(folder, monkeypatch):
    monkeypatch.setattr(delimited, "PIECE", 1)
    assert column("1", "", "2", "word", "2024-01-01")[1] == {"kind": "category", "values": 4, "missing": 1}
    assert column("1", "", "3", "4", "")[0] == [
        [1, 0],
        [pytest.approx(8 / 3), 1],
        [3, 0],
        [4, 0],
        [pytest.approx(8 / 3), 1],
    ]


def test_ignored_columns_are_reported_and_noted(folder):
    job = marked("a,b,c,label,ok\n1,7,x,x,1\n2,7,y,y,0\n", ignore=["c"])
    assert job.features.tolist() == [[1], [2]]
    assert job.fields == ["a", "b", "c", "ok"]
    assert job.notes[:2] == ["column 'b' is ignored: constant", "column 'c' is ignored: named by --ignore"]
    assert json.loads(json.dumps(job.fates))["c"] == {"kind": "ignored", "why": "named by --ignore"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": None}, r"train.csv: name the column with the labels by --label; the columns are 'a', 'label', 'ok'"),
        (
            {"label": "Label"},
            r"train.csv has no column 'Label', which --label names; its columns are 'a', 'label', 'ok'",
        ),
        ({"id_column": "id"}, r"has no column 'id', which --id names"),
        ({"verified_column": "good"}, r"has no column 'good', which --verified-column names"),
        ({"ignore": ["b"]}, r"has no column 'b', which --ignore names"),
        ({"ignore": ["label"]}, r"the column 'label' is named both by --label and by --ignore"),
        ({"id_column": "label"}, r"the column 'label' is named both by --label and by --id"),
        ({"ignore": ["a"]}, r"train.csv has no column to learn from \('a': named by --ignore\)"),
        ({"verified": Path("verified.csv")}, r"verified.csv is not there"),
        ({"verified_label": "good"}, r"has no column 'good', which --verified-label names"),
        ({"verified_label": "label"}, r"the column 'label' is named both by --label and by --verified-label"),
    ],
)
def test_columns_must_be_there_and_have_one_role(folder, options, message):
    with pytest.raises(InputError, match=message):
        marked("a,label,ok\n1,x,1\n2,y,0\n", **options)


def test_another_delimiter_is_guessed_at_in_the_message(folder):
    with pytest.raises(InputError, match=r"its columns are 'a;label;ok'; are its cells separated by something else\?"):
        marked("a;label;ok\n1;x;1\n")


def test_of_many_columns_twenty_are_listed(folder):
    with pytest.raises(InputError, match=r"'c0', .*'c19' and 11 more$"):
        marked(",".join(f"c{i}" for i in range(31)) + "\n" + ",".join("1" * 31) + "\n")
