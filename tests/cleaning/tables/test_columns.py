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
    ],
)
def test_what_a_column_becomes(folder, cells, features, report):
    found, said = column(*cells)
    assert (found, said) == (features, report)


@pytest.mark.parametrize("text", ["", " ", "NA", "n/a", "N/A", "NaN", "nan", "null", "NULL", "None", "none", "?"])
def test_missing_cells(folder, text):
    assert column("1", text, "3")[0] == [[1, 0], [2, 1], [3, 0]]
    assert column("u", text, "v")[0] == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_up_to_fifty_values_have_a_feature_each(folder):
    texts = [f"text {i % 50}" for i in range(100)]
    found, said = column(*texts)
    assert said == {"kind": "category", "values": 50}
    assert np.array_equal(found, np.eye(50)[np.unique(texts, return_inverse=True)[1]])


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e39", "1e400"])
def test_a_number_must_be_finite(folder, text):
    with pytest.raises(InputError, match=rf"train.csv, row 3, column 'it': '{text}' is infinite or too large"):
        column("1", "2", text, "4")
    assert column("1", "2", text, "many")[1] == {"kind": "category", "values": 4}
    with pytest.raises(InputError, match="is infinite or too large"):
        column(*map(str, range(20)), text, "n.d.")


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


@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_one_cell_in_a_hundred_may_be_no_number(folder, monkeypatch, piece):
    monkeypatch.setattr(delimited, "PIECE", piece)
    cells = ["1", "n.d.", "", *["4"] * 9]
    found, said = column(*cells)
    assert said == {"kind": "number", "missing": 2, "no_numbers": 1}
    mean = pytest.approx(3.7)
    assert found == [[1, 0], [mean, 1], [mean, 1], *[[4, 0]] * 9]
    assert column(*["1"] * 198, "low", "high")[1] == {"kind": "number", "missing": 2, "no_numbers": 2}
    assert column(*["1"] * 197, "low", "?", "low", "high")[1]["kind"] == "category"


def test_what_is_no_number_is_said(folder):
    job = marked("a,n,label,ok\n" + "".join(f"{'n.d.' if i == 7 else i},{i},{'xy'[i % 2]},\n" for i in range(30)))
    assert job.notes[0] == "column 'a': 1 cell is no number and counts as missing, the first of them 'n.d.' in row 8"
    assert job.fates["a"]["kind"] == "number"


def test_a_number_far_from_the_others_is_noted(folder):
    lines = [f"{'1e37' if i == 70 else i / 7},{'xy'[i % 2]},{i % 3}" for i in range(150)]
    job = marked("a,label,b\n" + "\n".join(lines) + "\n", verified_column=None)
    assert job.notes == [
        "train.csv, row 71, column 'a': 1e+37 is far from the others, which lie between 0 and 21.29; is it right?"
    ]
    skewed = np.exp(np.random.default_rng(0).normal(0, 2, 150))
    lines = [f"{x},{'xy'[i % 2]}" for i, x in enumerate(skewed)]
    assert marked("a,label\n" + "\n".join(lines) + "\n", verified_column=None).notes == []


def test_ignored_columns_are_reported_and_noted(folder):
    job = marked("a,b,c,label,ok\n1,7,x,x,1\n2,7,y,y,0\n", ignore=["c"])
    assert job.features.tolist() == [[1], [2]]
    assert job.fields == ["a", "b", "c", "ok"]
    assert job.notes[:2] == ["column 'b' is ignored: constant", "column 'c' is ignored: named by --ignore"]
    assert json.loads(json.dumps(job.fates))["c"] == {"kind": "ignored", "width": 0, "why": "named by --ignore"}


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


def test_of_many_columns_twenty_are_listed(folder):
    with pytest.raises(InputError, match=r"'c0', .*'c19' and 11 more$"):
        marked(",".join(f"c{i}" for i in range(31)) + "\n" + ",".join("1" * 31) + "\n")
