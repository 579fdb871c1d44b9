"""`wior apply`: decisions made in copies of tables, arrays and image folders."""

import csv
import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from wior.cleaning.apply import Applied, apply_decisions
from wior.cleaning.review.guard import guard
from wior.cleaning.tables import InputError

TABLE = "no,age,label\n7,31,cat\n5,32,dog\n9,33,big dog\n2,34,cat\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, text):
    Path(name).write_bytes(text.encode())
    return Path(name)


def decide(*rows, name="decisions.csv"):
    """Decisions as the review page writes them."""
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(["id", "given", "decision", "label"])
        writer.writerows([guard(text) for text in row] for row in rows)
    return Path(name)


def applied(decisions, table="train.csv", out="out.csv", label=None, id_column=None):
    return apply_decisions(decisions, Path(table), Path(out), label=label, id_column=id_column)


def test_decisions_by_row_number(folder):
    write("train.csv", TABLE)
    done = applied(decide(("3", "big dog", "fix", "cat, or dog"), ("1", "cat", "keep", ""), ("4", "cat", "skip", "")))
    assert done == Applied(1, 1, 1, Path("out.csv"), "label", None)
    assert Path("out.csv").read_text() == TABLE.replace("big dog", '"cat, or dog"')
    assert sorted(path.name for path in folder.iterdir()) == ["decisions.csv", "out.csv", "train.csv"]


def test_ambiguous_rows_stay_and_notes_are_read_over(folder):
    write("train.csv", TABLE)
    lines = [
        "id,given,decision,label,note",
        "7,cat,ambiguous,,'=both",
        '9,big dog,fix,wolf,"a new label, of nobody else"',
    ]
    write("decisions.csv", "\n".join(lines) + "\n")
    done = applied(Path("decisions.csv"))
    assert done == Applied(1, 0, 0, Path("out.csv"), "label", "no", ambiguous=1)
    assert Path("out.csv").read_text() == TABLE.replace("big dog", "wolf")
    write("decisions.csv", "\n".join([*lines, "5,dog,keep,dog"]) + "\n")
    with pytest.raises(InputError, match=r"decisions.csv, row 3: it has 4 cells, the header 5"):
        applied(Path("decisions.csv"), out="again.csv")


def test_a_new_label_of_images_is_a_new_folder(folder):
    for name in ("cat/1.png", "dog/1.png"):
        Path("train", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), len(name)).save(Path("train", name))
    applied(decide(("cat/1.png", "cat", "fix", "wolf"), ("dog/1.png", "dog", "ambiguous", "")), "train", "out")
    assert sorted(str(path.relative_to("out")) for path in Path("out").rglob("*.png")) == ["dog/1.png", "wolf/1.png"]


def test_decisions_by_a_column_of_ids(folder):
    write("train.csv", TABLE)
    done = applied(decide(("9", "big dog", "fix", "dog"), ("7", "cat", "keep", "")))
    assert (done.label, done.id_column) == ("label", "no")
    assert Path("out.csv").read_text() == TABLE.replace("big dog", "dog")
    done = applied(decide(("2", "cat", "fix", "dog")), out="named.csv", label="label", id_column="no")
    assert Path("named.csv").read_text() == TABLE.replace("34,cat", "34,dog")
    assert done.id_column == "no"


def test_ids_that_may_be_two_things(folder):
    write("train.csv", "no,age,label\n2,31,cat\n1,32,cat\n3,33,dog\n")
    decisions = decide(("2", "cat", "fix", "dog"))
    with pytest.raises(InputError, match=r"decisions.csv: its ids may be row numbers or column 'no' of train.csv"):
        applied(decisions)
    applied(decisions, out="by-number.csv", id_column="")
    assert Path("by-number.csv").read_text() == "no,age,label\n2,31,cat\n1,32,dog\n3,33,dog\n"
    applied(decisions, out="by-id.csv", id_column="no")
    assert Path("by-id.csv").read_text() == "no,age,label\n2,31,dog\n1,32,cat\n3,33,dog\n"
    # the given label tells: row 3 is no cat
    write("train.csv", "no,age,label\n3,31,cat\n1,32,cat\n2,33,dog\n")
    assert applied(decide(("3", "cat", "fix", "dog"))).id_column == "no"


def test_a_column_of_ids_must_have_different_ones(folder):
    write("train.csv", "no,age,label\na,31,cat\nb,32,dog\nb,33,cat\n")
    decisions = decide(("a", "cat", "fix", "dog"))
    with pytest.raises(InputError, match=r"decisions.csv, row 1, column 'id': train.csv has no row 'a'"):
        applied(decisions)
    with pytest.raises(InputError, match=r"train.csv, column 'no': rows 2 and 3 have the same id 'b'"):
        applied(decisions, id_column="no")


def test_the_label_column_must_be_clear(folder):
    write("train.csv", "no,first,second\na,cat,cat\nb,dog,cat\n")
    with pytest.raises(
        InputError, match=r"the given labels stand in the columns 'first', 'second'; say which by --label"
    ):
        applied(decide(("a", "cat", "fix", "dog")))
    assert applied(decide(("a", "cat", "fix", "dog"), ("b", "dog", "skip", ""))).label == "first"
    assert applied(decide(("a", "cat", "fix", "dog")), out="two.csv", label="second").label == "second"
    with pytest.raises(InputError, match=r"no column of train.csv holds the given labels of decisions.csv"):
        applied(decide(("a", "fox", "fix", "dog")), out="three.csv")


def test_a_table_that_has_changed(folder):
    write("train.csv", TABLE)
    decisions = decide(("1", "cat", "keep", ""), ("2", "cat", "fix", "fox"))
    message = r"decisions.csv, row 2, column 'given': 'cat' was given, but train.csv, row 2, column 'label' has 'dog'"
    with pytest.raises(InputError, match=message):
        applied(decisions, label="label", id_column="")
    with pytest.raises(InputError, match=r"the table has changed"):
        applied(decisions)
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("1", "cat", "fix", "dog"), ("17", "cat", "keep", "")],
            r"decisions.csv, row 2, column 'id': train.csv has no row '17'",
        ),
        ([("01", "cat", "fix", "dog")], r"row 1, column 'id': train.csv has no row '01': it is no row number up to 4"),
        ([("", "cat", "fix", "dog")], r"row 1, column 'id': train.csv has no row ''"),
        (
            [("1", "cat", "drop", "")],
            r"decisions.csv, row 1, column 'decision': 'drop' must be one of keep, fix, skip, ambiguous",
        ),
        ([("1", "cat", "keep", ""), ("2", "dog", "fix", " ")], r"row 2, column 'label': a fix must have a label"),
        (
            [("1", "cat", "keep", ""), ("1", "cat", "fix", "x")],
            r"row 2, column 'id': the row '1' was decided on in row 1",
        ),
        ([("1", "cat", "keep")], r"decisions.csv, row 1: it has 3 cells, the header 4"),
        ([], r"decisions.csv has a header and no rows"),
    ],
)
def test_wrong_decisions(folder, rows, message):
    write("train.csv", TABLE)
    with pytest.raises(InputError, match=message):
        applied(decide(*rows))
    assert not Path("out.csv").exists()


def test_an_unknown_id_in_a_named_column(folder):
    write("train.csv", TABLE)
    with pytest.raises(InputError, match=r"decisions.csv, row 2, column 'id': train.csv has no row '1'$"):
        applied(decide(("7", "cat", "keep", ""), ("1", "cat", "keep", "")), id_column="no")
    for options in ({"id_column": "who"}, {"label": "who"}):
        with pytest.raises(InputError, match=r"train.csv has no column 'who', which --(id|label) names"):
            applied(decide(("7", "cat", "keep", "")), **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (
            "id,given,label\n1,cat,dog\n",
            "must be decisions with the columns id,given,decision,label, got 'id', 'given'",
        ),
        ('id,given,decision,label\n"1,cat', "row 1: it has no end; a quotation mark in it is not closed"),
    ],
)
def test_files_that_are_no_decisions(folder, text, message):
    write("train.csv", TABLE)
    write("decisions.csv", text)
    with pytest.raises(InputError, match=f"^decisions.csv,? {message}"):
        applied(Path("decisions.csv"))
    with pytest.raises(InputError, match=r"nothing.csv"):
        applied(Path("nothing.csv"))


def test_decisions_with_a_byte_order_mark_and_empty_lines(folder):
    write("train.csv", TABLE)
    write("decisions.csv", "\ufeffid,given,decision,label\n\n2,dog,fix,fox\n\n")
    assert applied(Path("decisions.csv")).fixed == 1


def test_decisions_that_a_spreadsheet_saved_again(folder):
    write("train.csv", TABLE)
    Path("decisions.csv").write_bytes("id;given;decision;label;note\r\n3;big dog;fix;Füchse;\r\n".encode("cp1252"))
    assert applied(Path("decisions.csv")).fixed == 1
    assert Path("out.csv").read_text() == TABLE.replace("big dog", "Füchse")


def test_nothing_is_overwritten(folder):
    write("train.csv", TABLE)
    decisions = decide(("2", "dog", "fix", "fox"))
    write("out.csv", "mine")
    with pytest.raises(InputError, match=r"out.csv is there already and was left as it is"):
        applied(decisions)
    with pytest.raises(InputError, match=r"train.csv is there already"):
        applied(decisions, out="train.csv")
    with pytest.raises(InputError, match=r"copy.parquet must end in .csv"):
        applied(decisions, out="copy.parquet")
    assert (Path("out.csv").read_text(), Path("train.csv").read_text()) == ("mine", TABLE)


NASTY = st.text(st.sampled_from("a0,;\"\r\n\t é🙂=+-@'"), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(NASTY, NASTY, NASTY), min_size=1, max_size=5, unique_by=lambda row: row[0]),
    new=NASTY.filter(str.strip),
    break_and_quoting=st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
)
def test_any_text_survives_the_page_and_the_table(rows, new, break_and_quoting):
    rows = [(f"{i} {key}", label, other) for i, (key, label, other) in enumerate(rows)]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=break_and_quoting[0], quoting=break_and_quoting[1])
    writer.writerows([("key", "label", "other"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder, "train.csv"), Path(folder, "out.csv")
        table.write_bytes(buffer.getvalue().encode())
        made = [(key, label, "fix" if i % 2 == 0 else "keep", new) for i, (key, label, _) in enumerate(rows)]
        decisions = decide(*made, name=Path(folder, "decisions.csv"))
        done = applied(decisions, table, out, label="label", id_column="key")
        assert (done.fixed, done.kept) == (len(rows) - len(rows) // 2, len(rows) // 2)
        with out.open(encoding="utf-8", newline="") as file:
            found = list(csv.reader(file))
        expected = [[key, new if i % 2 == 0 else label, other] for i, (key, label, other) in enumerate(rows)]
        assert found == [["key", "label", "other"], *expected]


def test_labels_that_look_like_formulas(folder):
    write("train.csv", "a,label\n1,=1+1\n2,'quoted'\n3,-7\n")
    decisions = decide(("1", "=1+1", "fix", "@home"), ("2", "'quoted'", "fix", "-x"), ("3", "-7", "fix", "+8"))
    assert "'=1+1" in decisions.read_text()
    applied(decisions, label="label", id_column="")
    assert Path("out.csv").read_text() == "a,label\n1,@home\n2,-x\n3,+8\n"


def test_decisions_in_many_pieces(folder, monkeypatch):
    monkeypatch.setattr("wior.cleaning.tables.delimited.PIECE", 50)
    rows = [f"p{i},{i % 7},{'ab'[i % 2]}" for i in range(200)]
    write("train.csv", "\n".join(["who,n,label", *rows]) + "\n")
    decisions = decide(*((f"p{i}", "ab"[i % 2], "fix", "c") for i in range(199, 0, -3)))
    assert applied(decisions).id_column == "who"
    expected = [row[:-1] + "c" if i % 3 == 1 else row for i, row in enumerate(rows)]
    assert Path("out.csv").read_text().splitlines() == ["who,n,label", *expected]


def test_parquet(folder):
    pq.write_table(pa.table({"no": [7, 5, 9], "label": pa.array([1, 2, 1], pa.int8())}), "train.parquet")
    done = applied(decide(("9", "1", "fix", "2"), ("7", "1", "keep", "")), "train.parquet", "out.parquet")
    assert (done.label, done.id_column) == ("label", "no")
    copy = pq.read_table("out.parquet")
    assert copy.schema.field("label").type == pa.int8()
    assert copy.to_pydict() == {"no": [7, 5, 9], "label": [1, 2, 2]}


def test_arrays(folder):
    np.savez("train.npz", X=np.eye(3), y=np.array(["a", "b", "c"]), who=np.array(["p", "q", "r"]), rate=np.array(0.5))
    done = applied(decide(("q", "b", "fix", "long"), ("r", "c", "skip", "")), "train.npz", "out.npz")
    assert (done.label, done.id_column) == ("y", "who")
    with np.load("out.npz") as copy:
        assert copy["y"].tolist() == ["a", "long", "c"]
        assert np.array_equal(copy["X"], np.eye(3))
        assert copy["rate"] == 0.5
    assert applied(decide(("1", "a", "fix", "b")), "train.npz", "numbers.npz").id_column is None


def test_images(folder):
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        Path("train", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), len(name)).save(Path("train", name))
    decisions = decide(("cat/1.png", "cat", "fix", "dog"), ("dog/1.png", "dog", "keep", ""))
    done = applied(decisions, "train", "out")
    assert (done.fixed, done.path) == (1, Path("out"))
    assert sorted(str(path.relative_to("out")) for path in Path("out").rglob("*.png")) == [
        "cat/2.png",
        "dog/1-2.png",
        "dog/1.png",
    ]
    assert len(list(Path("train").rglob("*.png"))) == 3
    with pytest.raises(InputError, match=r"train/out is the input or lies in it"):
        applied(decisions, "train", "train/out")
    with pytest.raises(InputError, match=r"the label '../up' cannot be the name of a folder"):
        applied(decide(("cat/1.png", "cat", "fix", "../up")), "train", "new")
    with pytest.raises(InputError, match=r"decisions.csv, row 1, column 'id': train has no row 'cat/9.png'"):
        applied(decide(("cat/9.png", "cat", "fix", "dog")), "train", "new")
    assert not Path("new").exists()


def test_the_copy_of_a_compressed_table_is_named_beside_it(folder):
    Path("table.csv.gz").write_bytes(gzip.compress(b"name,label\na,x\nb,y\n"))
    done = apply_decisions(decide(("2", "y", "fix", "x")), Path("table.csv.gz"), None)
    assert done.path == Path("table.corrected.csv.gz")
    assert gzip.decompress(done.path.read_bytes()) == b"name,label\na,x\nb,x\n"
