"""Users' data: what becomes of tables, arrays and image folders, what is written of them, and what is said of wrong ones."""

import csv
import io
import json
import tempfile
import zipfile
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from wior.cleaning.tables import InputError, delimited, delimited_text, images, read
from wior.cleaning.tables import arrays as array_files
from wior.cleaning.tables.delimited import DelimitedFile
from wior.cleaning.tables.delimited_text import Delimited

ROWS = "age,city,label\n1,Rome,cat\n2,Oslo,dog\n3,Rome,cat\n4,Bonn,dog\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, so that messages have short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, text):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Path(name)


def table(name, **columns):
    """A Parquet file."""
    pq.write_table(pa.table(columns), name)
    return Path(name)


def marked(text="", name="train.csv", **options):
    """The rows of a CSV file in which the column `ok` marks those that are verified."""
    return read(write(name, text), **{"label": "label", "verified": None, "verified_column": "ok", **options})


def column(*cells, **options):
    """The features that a column of a CSV file becomes, beside a column of numbers."""
    lines = [f"{csv_cell(cell)},{i},{'ab'[i % 2]},{int(i == 0)}" for i, cell in enumerate(cells)]
    task = marked("\n".join(["it,n,label,ok", *lines]) + "\n", **options)
    return task.train.features[:, :-1].tolist(), task.train.report["it"]


def csv_cell(text):
    return Delimited(b",").quoted(text).decode()


def verified_by(train, verified, label="label", **options):
    return read(train, label=label, verified=verified, verified_column=None, **options)


def csv_rows(content):
    text = content.decode("utf-8-sig")
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


# delimited text


def test_a_table_of_numbers_and_categories(folder):
    task = verified_by(write("train.csv", ROWS), write("verified.csv", "age,city,label\n9,Oslo,dog\n9.5,Rome,cat\n"))
    train = task.train
    assert (train.path, train.kind, train.images) == (Path("train.csv"), "table", None)
    assert train.ids.tolist() == ["1", "2", "3", "4"]
    assert train.labels.tolist() == ["cat", "dog", "cat", "dog"]
    assert train.features.dtype == np.float32
    # Bonn, Oslo, Rome
    assert train.features.tolist() == [[1, 0, 0, 1], [2, 0, 1, 0], [3, 0, 0, 1], [4, 1, 0, 0]]
    assert train.columns == ["age", "city"]
    assert train.records(np.array([3, 0])) == [["4", "Bonn"], ["1", "Rome"]]
    assert train.report == {
        "age": {"kind": "number"},
        "city": {"kind": "category", "values": 3},
        "label": {"kind": "label", "values": 2},
    }
    assert task.rows.tolist() == [0, 1, 2, 3]
    assert task.verified_features.tolist() == [[9, 0, 1, 0], [9.5, 0, 0, 1]]
    assert task.verified_labels.tolist() == ["dog", "cat"]
    assert (task.known, task.notes) == ({}, [])


@pytest.mark.parametrize("suffix", [".tsv", ".tab", ".TSV"])
def test_tabs(folder, suffix):
    text = "a b\tlabel\tok\n1,5\tx y\t1\n2,5\tz\t0\n"
    train = marked(text, name=f"train{suffix}").train
    assert train.columns == ["a b", "ok"]
    assert train.labels.tolist() == ["x y", "z"]
    out = train.write(Path("out" + suffix), np.array([True, True]), np.array(["x y", "a\tb"]))
    assert out.read_text() == 'a b\tlabel\tok\n1,5\tx y\t1\n2,5\t"a\tb"\t0\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", [True, False])
def test_line_breaks_and_the_byte_order_mark(folder, mark, line_break, end):
    text = mark + ROWS.replace("label", '"la""bel"').replace("\n", line_break)
    path = write("train.csv", text if end else text.rstrip("\r\n"))
    file = DelimitedFile(path)
    assert (file.names, file.rows) == (["age", "city", 'la"bel'], 4)
    assert file.records(np.arange(4), file.names)[3] == ["4", "Bonn", "dog"]
    file.write(Path("out.csv"), 'la"bel', np.array([True, False, True, True]), {3: "cat"})
    assert Path("out.csv").read_bytes() == path.read_bytes().replace(f"2,Oslo,dog{line_break}".encode(), b"").replace(
        b"Bonn,dog", b"Bonn,cat"
    )


def test_a_header_is_used_as_it_stands(folder):
    text = '" a ","x ""y""",🙂,"new\nline",label,ok\n1,a,2,3,x,1\n2,b,1,4,z,0\n'
    train = marked(text).train
    assert train.columns == [" a ", 'x "y"', "🙂", "new\nline", "ok"]
    assert [entry["kind"] for entry in train.report.values()] == ["number", "category"] + ["number"] * 2 + [
        "label",
        "verified",
    ]


def test_empty_lines_are_no_rows(folder):
    task = marked("\n\na,label,ok\n\n1,x,1\n\r\n\n2,y,0\n\n\n")
    assert task.train.records(np.array([0, 1])) == [["1", "1"], ["2", "0"]]


NASTY = st.text(st.sampled_from("a,;\"\r\n\t é🙂='"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    cells=st.lists(st.tuples(NASTY, NASTY, NASTY), min_size=1, max_size=6),
    break_and_quoting=st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL), ("\r", csv.QUOTE_ALL)]),
    piece=st.sampled_from([1, 7, 1 << 20]),
    changes=st.dictionaries(st.integers(0, 5), NASTY, max_size=3),
    dropped=st.sets(st.integers(0, 5), max_size=2),
)
def test_a_copy_keeps_every_other_cell_as_pythons_csv_module_reads_it(
    cells, break_and_quoting, piece, changes, dropped
):
    line_break, quoting = break_and_quoting
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=line_break, quoting=quoting)
    writer.writerows([("one", "label", "three"), *cells])
    changes = {place: text for place, text in changes.items() if place < len(cells)}
    keep = np.array([place not in dropped for place in range(len(cells))])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "PIECE", piece)
        path, out = Path(folder, "in.csv"), Path(folder, "out.csv")
        path.write_bytes(buffer.getvalue().encode())
        file = DelimitedFile(path)
        read_cells = [
            texts
            for batch in file.batches(file.names)
            for texts in zip(*(batch[name].texts.to_pylist() for name in file.names), strict=True)
        ]
        assert read_cells == cells
        assert file.records(np.arange(len(cells)), file.names) == [list(row) for row in cells]
        file.write(out, "label", keep, changes)
        expected = [[a, changes.get(place, b), c] for place, (a, b, c) in enumerate(cells) if keep[place]]
        assert csv_rows(out.read_bytes()) == [["one", "label", "three"], *expected]
        if keep.all() and not changes:
            assert out.read_bytes() == path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.sampled_from('ab,"\r\n'), max_size=12), max_size=4), st.booleans())
@example(['5" pipe,a\n', '"x"y"z,b\n'], True)
def test_records_end_where_pythons_csv_module_ends_them(parts, final):
    text = "".join(parts)
    ends = Delimited(b",").record_ends(text.encode(), final=final).tolist()
    records = [text[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
    for record in records:
        assert len(csv_rows(record.encode())) <= 1
    if final and ends[-1:] == [len(text)]:
        assert [Delimited(b",").cells(r.encode()) for r in records if r.strip("\r\n")] == csv_rows(text.encode())


def test_a_long_line_break_in_quotes_lies_across_two_pieces(folder, monkeypatch):
    """Where Arrow, left to itself, loses the line feed."""
    monkeypatch.setattr(delimited, "PIECE", 64)
    for length in range(40, 80):
        file = DelimitedFile(write("train.csv", f'a,b\n"{"z" * length}\r\nend",x\n1,2\n'))
        (texts,) = [batch["a"].texts.to_pylist() for batch in file.batches(["a"]) if batch["a"].start == 0]
        assert texts[0] == "z" * length + "\r\nend"


def test_a_cell_of_megabytes(folder):
    long = "x" * (3 << 20)
    file = DelimitedFile(write("train.csv", f"a,b\n1,{long}\n2,y\n"))
    assert [row[1] for row in file.records(np.array([0, 1]), file.names)] == [long, "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"train.csv is empty"),
        (b"\xef\xbb\xbf", r"train.csv is empty"),
        (b"\n\n", r"train.csv is empty"),
        (b"a,label\n", r"train.csv has a header and no rows"),
        (b"a,label,ok\n1,x\n", r"train.csv, row 1: it has 2 cells, the header 3"),
        (b'a,label,ok\n1,x,1\n"2\n3",y,0,\n', r"train.csv, row 2: it has 4 cells, the header 3"),
        (b"a,label,a\n1,x,1\n", r"train.csv: columns 1 and 3 are both called 'a'"),
        (b"a,label,\n1,x,1\n", r"train.csv: column 3 has no name"),
        (b",label,ok\n1,x,1\n", r"column 1 has no name; give it one, or leave it out: pandas writes its index"),
        (b"a,label,ok\n1,x,1\n2,\xe9,0\n", r"train.csv, row 2: the byte e9 is not UTF-8"),
        (b"\xff\xfea,label,ok\n1,x,1\n", r"train.csv, header: the byte ff is not UTF-8"),
        (b'a,label,ok\n1,x,1\n2,"y,0\n3,z,1\n', r"train.csv, row 2: it has no end; a quotation mark in it is not"),
        (b'"a,label,ok\n1,x,1\n', r"train.csv, header: it has no end"),
    ],
)
def test_damaged_text_is_an_error_that_names_the_row(folder, text, message):
    with pytest.raises(InputError, match=message) as caught:
        marked(text)
    assert "\n" not in str(caught.value)


def test_a_row_without_end_is_not_read_to_the_end_of_the_file(folder, monkeypatch):
    monkeypatch.setattr(delimited, "PIECE", 1 << 18)
    monkeypatch.setattr(delimited, "LONGEST_ROW", 1 << 20)
    with pytest.raises(InputError, match="row 1: it is longer than 1 MB; a quotation mark in it is not closed"):
        marked('a,label,ok\n"' + "x" * (1 << 21))


def test_marks_inside_of_cells_are_letters(folder):
    assert marked('a,label,ok\n1,5" pipe,1\n2,"6"" pipe",0\n').train.labels.tolist() == ['5" pipe', '6" pipe']
    assert delimited_text.Delimited(b",").cells(b'"a"b"c,"",""""\n') == ['ab"c', "", '"']


def test_a_file_that_changes_is_not_read_on(folder):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n").train
    write("train.csv", "a,label,ok\n1,x,1\n2,y,0\n3,y,0\n")
    with pytest.raises(InputError, match=r"train.csv was changed while it was in use"):
        train.records(np.array([0]))
    with pytest.raises(InputError, match="was changed"):
        train.write(Path("out.csv"), np.ones(2, bool), train.labels)
    assert not Path("out.csv").exists()


# columns


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
    task = marked("a,b,c,label,ok\n1,7,x,x,1\n2,7,y,y,0\n", ignore=["c"])
    assert task.train.features.tolist() == [[1], [2]]
    assert task.train.columns == ["a", "b", "c", "ok"]
    assert task.notes[:2] == ["column 'b' is ignored: constant", "column 'c' is ignored: named by --ignore"]
    assert json.loads(json.dumps(task.train.report))["c"] == {"kind": "ignored", "why": "named by --ignore"}


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
        ({"verified": Path("verified.csv")}, r"give either --verified, .* not both"),
        ({"verified_column": None}, r"give one of --verified, a file"),
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


# labels, ids and marks


@pytest.mark.parametrize("text", ["", "  ", "NA", "nan", "?", "NULL"])
def test_a_missing_label_names_its_row(folder, text):
    with pytest.raises(InputError, match=r"train.csv, row 2, column 'label': the label is missing"):
        marked(f"a,label,ok\n1,x,1\n2,{text},0\n")


def test_labels_are_taken_as_they_stand_and_one_may_be_none(folder):
    labels = marked("a,label,ok\n1, big cat ,1\n2,None,0\n3,none,0\n").train.labels
    assert labels.tolist() == [" big cat ", "None", "none"]
    assert labels.dtype.kind == "U"


@pytest.mark.parametrize(
    ("label", "message"), [("x" * 300, "has 300 characters, more than 200"), ("x\0", "holds the character NUL")]
)
def test_odd_labels(folder, label, message):
    with pytest.raises(InputError, match=f"row 2, column 'label': the label .* {message}"):
        marked(f"a,label,ok\n1,x,1\n2,{label},0\n")


def test_ids(folder):
    task = marked("a,label,ok,no\n1,x,1,p 7\n2,y,0,p 8\n", id_column="no")
    assert task.train.ids.tolist() == ["p 7", "p 8"]
    assert task.train.report["no"] == {"kind": "id"}
    assert task.train.features.shape == (2, 1)
    assert task.train.columns == ["a", "ok", "no"]


@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_ids_must_be_there_and_differ(folder, monkeypatch, piece):
    monkeypatch.setattr(delimited, "PIECE", piece)
    with pytest.raises(InputError, match=r"train.csv, column 'no': rows 2 and 4 have the same id 'q'"):
        marked("a,label,ok,no\n1,x,1,p\n2,y,0,q\n3,y,0,r\n4,y,0,q\n5,y,0,p\n", id_column="no")
    with pytest.raises(InputError, match=r"train.csv, row 2, column 'no': the id is missing"):
        marked("a,label,ok,no\n1,x,1,p\n2,y,0,\n", id_column="no")


@pytest.mark.parametrize("yes", ["true", "TRUE", "1", "yes", "x", "X", " y "])
@pytest.mark.parametrize("no", ["false", "0", "No", "", " "])
def test_a_verified_column(folder, yes, no):
    task = marked(f"a,label,ok\n1,x,{no}\n2,y,{yes}\n3,x,{yes}\n4,y,{no}\n")
    assert task.rows.tolist() == [0, 3]
    assert task.known == {1: "y", 2: "x"}
    assert task.verified_features.tolist() == [[2], [3]]
    assert task.verified_labels.tolist() == ["y", "x"]


def test_marks_that_are_none(folder):
    with pytest.raises(InputError, match=r"train.csv, row 2, column 'ok': 'maybe' must be true, yes, 1 or x"):
        marked("a,label,ok\n1,x,1\n2,y,maybe\n")
    with pytest.raises(InputError, match=r"train.csv: no row is marked as verified in the column 'ok'"):
        marked("a,label,ok\n1,x,0\n2,y,\n")
    with pytest.raises(InputError, match=r"train.csv: every row is verified, none is left"):
        marked("a,label,ok\n1,x,1\n2,y,1\n")


def test_there_must_be_two_classes(folder):
    with pytest.raises(InputError, match=r"train.csv: all labels are 'x'; there must be two classes at least"):
        marked("a,label,ok\n1,x,1\n2,x,0\n")


# verified files


def test_verified_rows_are_found_among_the_training_rows_by_their_ids(folder):
    train = write("train.csv", "no,age,label\na,1,cat\nb,2,dog\nc,3,cat\n")
    verified = write("verified.csv", "label,more,age,no\ndog,9,1,a\ncat,9,7,z\n")
    task = verified_by(train, verified, id_column="no")
    assert task.known == {0: "dog"}
    assert task.rows.tolist() == [1, 2]
    assert task.verified_features.tolist() == [[1], [7]]
    assert task.notes == [
        "1 training row found among the verified rows and not judged; 1 with another label than the verified one"
    ]


@pytest.mark.parametrize("id_column", [None, "no"])
def test_or_by_all_their_features(folder, id_column):
    train = write("train.csv", "no,age,city,label\n1,1,Rome,cat\n2,1,Oslo,dog\n3,1.0,Rome,dog\n4,4,Rome,cat\n")
    verified = write("verified.csv", "age,city,label\n1.00,Rome,cat\n5,Oslo,dog\n")
    task = verified_by(train, verified, id_column=id_column, ignore=[] if id_column else ["no"])
    assert task.known == {0: "cat", 2: "cat"}
    assert "2 training rows found among the verified rows and not judged; 1 with another label" in task.notes[-1]


def test_verified_rows_that_contradict_each_other(folder):
    train = write("train.csv", "no,age,label\na,1,cat\nb,2,dog\nc,3,cat\n")
    same_id = write("id.csv", "no,age,label\nq,1,cat\nb,2,dog\nq,3,dog\n")
    with pytest.raises(
        InputError, match=r"id.csv: row 1 and row 3 have the same id and different labels, 'cat', 'dog'"
    ):
        verified_by(train, same_id, id_column="no")
    same_features = write("features.csv", "no,age,label\nq,1,cat\nr,1,dog\n")
    with pytest.raises(InputError, match=r"features.csv: row 1 and row 2 have the same features and different labels"):
        verified_by(train, same_features, ignore=["no"])
    assert verified_by(train, same_features, id_column="no").known == {}
    twice = write("twice.csv", "no,age,label\na,1,cat\na,1,cat\n")
    assert verified_by(train, twice, id_column="no").known == {0: "cat"}


def test_a_verified_file_must_have_the_columns_that_are_used(folder):
    train = write("train.csv", "a,b,c,label\n1,2,5,x\n2,1,5,y\n")
    with pytest.raises(
        InputError, match=r"verified.csv must have the columns of the training table; it lacks 'label', 'b'"
    ):
        verified_by(train, write("verified.csv", "a\n1\n"))
    assert verified_by(train, write("verified.csv", "a,b,label\n9,9,x\n")).rows.tolist() == [0, 1]


def test_verified_cells_that_the_training_table_lacks(folder):
    train = write("train.csv", "a,b,c,label\n1,Rome,yes,x\n2,Oslo,no,y\n")
    task = verified_by(train, write("verified.csv", "a,b,c,label\n,Bonn,true,x\n9,,maybe,x\n"))
    assert task.verified_features.tolist() == [[1.5, 0, 0, 1], [9, 0, 0, 0]]
    lacks = "hold what the training table lacks; they count as none of its values"
    assert f"verified.csv: 2 rows of column 'b' {lacks}" in task.notes
    assert f"verified.csv: 1 row of column 'c' {lacks}" in task.notes
    with pytest.raises(InputError, match=r"verified.csv, row 2, column 'a': 'old' is not a number"):
        verified_by(train, write("verified.csv", "a,b,c,label\n1,Rome,yes,x\nold,Oslo,no,x\n"))
    with pytest.raises(InputError, match=r"verified.csv, row 1, column 'a': 'inf' is infinite"):
        verified_by(train, write("verified.csv", "a,b,c,label\ninf,Rome,yes,x\n"))


def test_classes_that_only_some_have_are_noted(folder):
    train = write("train.csv", "a,label\n1,x\n2,y\n3,z\n")
    task = verified_by(train, write("verified.csv", "a,label\n9,x\n8,w\n"))
    assert task.notes == [
        "no verified row has the label 'y', 'z'",
        "no training row has the label 'w', which verified rows have",
    ]


def test_a_verified_file_of_another_format_or_kind(folder):
    train = write("train.csv", ROWS)
    task = verified_by(train, table("verified.parquet", age=[9], city=["Oslo"], label=["dog"]))
    assert task.verified_features.tolist() == [[9, 0, 1, 0]]
    np.savez("verified.npz", X=np.ones((2, 2)), y=[0, 1])
    with pytest.raises(
        InputError, match=r"verified.npz must be as the training rows are, a table: CSV, TSV or Parquet"
    ):
        verified_by(train, Path("verified.npz"))


def test_paths_that_cannot_be_read(folder):
    with pytest.raises(InputError, match=r"nothing.csv is not there"):
        verified_by(Path("nothing.csv"), Path("verified.csv"))
    with pytest.raises(InputError, match=r"nothing.csv is not there"):
        verified_by(write("train.csv", ROWS), Path("nothing.csv"))
    with pytest.raises(InputError, match=r"table.xlsx: files of the kind .xlsx are not read; give .csv, .tsv"):
        verified_by(write("table.xlsx", ""), Path("verified.csv"))
    with pytest.raises(InputError, match=r"table: files of the kind without a suffix are not read"):
        verified_by(write("table", ""), Path("verified.csv"))


# Parquet


def test_types_of_parquet(folder):
    path = table(
        "train.parquet",
        whole=pa.array([1, None, 4], pa.int8()),
        decimal=pa.array(["1", "2", "4"]).cast(pa.decimal128(5, 2)),
        half=pa.array(np.array([1, 2, 4], np.float16)),
        nans=pa.array([1.0, float("nan"), 2.0]),
        flag=pa.array([True, None, False]),
        code=pa.array(["b", "a", None]).dictionary_encode(),
        large=pa.array(["x", "y", "x"], pa.large_string()),
        digits=pa.array(["1", "2", "3"]),
        day=pa.array([1, 2, 3], pa.date32()),
        when=pa.array([1, 2, 3], pa.timestamp("us")),
        many=pa.array([[1], [2], [3]]),
        raw=pa.array([b"\xff", b"2", b"3"]),
        none=pa.nulls(3),
        __index_level_0__=pa.array([5, 6, 7]),
        label=pa.array([3, 4, 3], pa.int16()),
        ok=pa.array([True, False, None]),
    )
    task = read(path, label="label", verified=None, verified_column="ok")
    train = task.train
    kinds = {name: entry.get("why", entry["kind"]) for name, entry in train.report.items()}
    assert kinds == {
        **dict.fromkeys(["whole", "decimal", "half", "nans", "digits"], "number"),
        "flag": "boolean",
        **dict.fromkeys(["code", "large"], "category"),
        **dict.fromkeys(["day", "when"], "dates"),
        "many": "values of the type list<element: int64>",
        "raw": "values of the type binary",
        "none": "no values",
        "__index_level_0__": "the index of a pandas table",
        "label": "label",
        "ok": "verified",
    }
    assert train.features.tolist() == [
        [1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1],
        [2.5, 1, 2, 2, 1.5, 1, 0, 1, 1, 0, 0, 0, 1, 2],
        [4, 0, 4, 4, 2, 0, 0, 0, 0, 0, 1, 1, 0, 3],
    ]
    assert train.labels.tolist() == ["3", "4", "3"]
    assert task.known == {0: "3"}
    record = dict(zip(train.columns, train.records(np.array([2, 1]))[1], strict=True))
    assert record["whole"] == record["flag"] == ""
    assert (record["code"], record["many"], record["decimal"]) == ("a", "[2]", "2.00")


def test_parquet_of_many_batches(folder, monkeypatch):
    monkeypatch.setattr("wior.cleaning.tables.parquet.MOST_ROWS", 7)
    n = 100
    numbers = np.random.default_rng(0).normal(size=n)
    words = [f"w{i % 3}" for i in range(n)]
    pq.write_table(
        pa.table(
            {"a": numbers, "w": pa.array(words).dictionary_encode(), "label": ["x", "y"] * 50, "ok": [1] + [0] * 99}
        ),
        "train.parquet",
        row_group_size=33,
    )
    train = read(Path("train.parquet"), label="label", verified=None, verified_column="ok").train
    assert np.array_equal(train.features[:, 0], numbers.astype(np.float32))
    assert np.array_equal(train.features[:, 1:], np.eye(3)[np.arange(n) % 3])
    places = np.random.default_rng(1).permutation(n)[:40]
    assert train.records(places) == [[str(numbers[p]), words[p], "1" if p == 0 else "0"] for p in places]


@pytest.mark.parametrize(
    ("labels", "new", "kind"),
    [
        (pa.array(["a", "b", "a"]), "c", pa.string()),
        (pa.array(["a", "b", "a"], pa.large_string()), "c", pa.large_string()),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "c", pa.dictionary(pa.int32(), pa.string())),
        (pa.array([1, 2, 1], pa.int8()), "3", pa.int8()),
        (pa.array([1.0, 2.5, 1.0]), "3.5", pa.float64()),
        (pa.array([True, False, True]), "false", pa.bool_()),
        (pa.array([1, 2, 1], pa.int8()), "unknown", pa.string()),
        (pa.array([True, False, True]), "unknown", pa.string()),
    ],
)
def test_a_copy_of_parquet_has_labels_of_the_same_type_where_they_can_be(folder, labels, new, kind):
    schema = pa.schema([("a", pa.int32()), ("label", labels.type), ("ok", pa.bool_())], {"mine": "kept"})
    rows = pa.table([pa.array([1, None, 3], pa.int32()), labels, pa.array([True, False, False])], schema=schema)
    pq.write_table(rows, "train.parquet", compression="zstd")
    train = read(Path("train.parquet"), label="label", verified=None, verified_column="ok").train
    changed = np.array([train.labels[0], train.labels[1], new])
    out = train.write(folder, np.array([True, False, True]), changed)
    copy = pq.read_table(out)
    assert out == folder / "cleaned.parquet"
    assert copy.schema.field("label").type == kind
    assert copy.column("a").to_pylist() == [1, 3]
    assert copy.column("label").cast(pa.string()).to_pylist() == [train.labels[0], new]
    assert copy.schema.metadata[b"mine"] == b"kept"
    assert pq.ParquetFile(out).metadata.row_group(0).column(0).compression == "ZSTD"


def test_damaged_parquet(folder):
    with pytest.raises(InputError, match=r"train.parquet is damaged or no Parquet file"):
        verified_by(write("train.parquet", b"PAR1 and no more"), Path("verified.csv"))
    with pytest.raises(InputError, match=r"empty.parquet has no rows"):
        verified_by(table("empty.parquet", a=pa.array([], pa.int64()), label=pa.array([], pa.string())), Path("v.csv"))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, "twice.pq")
    with pytest.raises(InputError, match=r"twice.pq: columns 1 and 2 are both called 'a'"):
        verified_by(Path("twice.pq"), Path("v.csv"))


# copies


def test_a_copy_is_named_cleaned_in_a_folder_and_never_replaces_a_file(folder):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n3,y,0\n").train
    Path("out").mkdir()
    out = train.write(Path("out"), np.array([True, True, False]), np.array(["x", "x, or y", "x"]))
    assert out == Path("out/cleaned.csv")
    assert out.read_text() == 'a,label,ok\n1,x,1\n2,"x, or y",0\n'
    assert [path.name for path in Path("out").iterdir()] == ["cleaned.csv"]
    everything = np.ones(3, bool), train.labels
    with pytest.raises(InputError, match=r"cleaned.csv is there already and was left as it is"):
        train.write(Path("out"), *everything)
    with pytest.raises(InputError, match=r"train.csv is the input"):
        train.write(Path("out/../train.csv"), *everything)
    with pytest.raises(InputError, match=r"cleaned.parquet must end in .csv"):
        train.write(Path("cleaned.parquet"), *everything)
    with pytest.raises(ValueError, match=r"keep must have shape \(3,\)"):
        train.write(Path("new.csv"), np.ones(2, bool), train.labels)
    assert train.write(Path("new/deep/copy.csv"), *everything).read_bytes() == Path("train.csv").read_bytes()


def test_a_copy_that_fails_leaves_nothing(folder, monkeypatch):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n").train

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Delimited, "with_cell", fail)
    with pytest.raises(InputError, match=r"out/cleaned.csv cannot be written: No space left on device"):
        train.write(Path("out/cleaned.csv"), np.ones(2, bool), np.array(["x", "z"]))
    assert list(Path("out").iterdir()) == []


# arrays


def arrays(name="train.npz", save=np.savez, **changed):
    save(
        name,
        **{
            "X": np.array([[1, 2], [3, 4], [5, 7]], float),
            "y": np.array([0, 1, 1]),
            "ok": [True, False, False],
            **changed,
        },
    )
    return Path(name)


def read_marked(path, label=None, **options):
    return read(path, label=label, verified=None, verified_column="ok", **options)


def test_arrays_of_numbers(folder):
    task = read_marked(arrays(name_of_row=np.array(["p", "q", "r"]), classes=np.arange(10)), id_column="name_of_row")
    train = task.train
    assert (train.kind, train.images, train.features.dtype) == ("arrays", None, np.float32)
    assert train.features.tolist() == [[1, 2], [3, 4], [5, 7]]
    assert (train.labels.tolist(), train.ids.tolist()) == (["0", "1", "1"], ["p", "q", "r"])
    assert train.columns == ["ok", "name_of_row", "X 1", "X 2"]
    assert train.records(np.array([2, 0])) == [["false", "r", "5.0", "7.0"], ["true", "p", "1.0", "2.0"]]
    assert task.known == {0: "0"}
    assert task.notes == ["array 'classes' is ignored: not asked for", "no verified row has the label '1'"]
    assert train.report["X"] == {"kind": "numbers", "shape": [3, 2]}
    assert json.loads(json.dumps(train.report))["y"] == {"kind": "label", "values": 2}


def test_bytes_stay_bytes_and_labels_may_be_named(folder):
    path = arrays(X=np.array([[1, 2], [3, 255], [0, 7]], np.uint8), target=np.array([b"a", b"b", b"\xc3\xa9"]))
    train = read_marked(path, label="target").train
    assert (train.features.dtype, train.images) == (np.uint8, None)
    assert train.labels.tolist() == ["a", "b", "é"]


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 5, 3), (3, 4, 5, 1)])
def test_arrays_of_pictures(folder, shape):
    pictures = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    train = read_marked(arrays(X=pictures)).train
    assert train.features.shape == (3, np.prod(shape[1:]))
    assert train.features.dtype == np.uint8
    places = np.array([2, 0])
    assert np.array_equal(
        train.images(places), pictures[places].reshape(2, *(shape[1:3] if shape[3:] == (1,) else shape[1:]))
    )
    assert train.columns == ["ok"]
    assert train.report["X"]["kind"] == "pictures"


def test_verified_arrays(folder):
    train = arrays()
    verified = arrays("verified.npz", X=np.array([[3, 4], [9, 9]], np.uint8), y=[0, 1], ok=0)
    task = verified_by(train, verified, label=None)
    assert task.known == {1: "0"}
    assert task.verified_features.tolist() == [[3, 4], [9, 9]]
    assert task.verified_features.dtype == np.float32
    assert "1 training row found among the verified rows and not judged; 1 with" in task.notes[-1]
    with_ids = arrays("ids.npz", who=[1, 2, 3])
    verified = arrays("verified-ids.npz", X=np.array([[3.5, 4], [9, 9]]), y=[0, 1], who=[3, 4], ok=0)
    assert verified_by(with_ids, verified, label=None, id_column="who").known == {2: "0"}


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        (
            {"X": np.array([[1, 2], [3, np.nan], [5, 6]])},
            {},
            r"train.npz, row 2, column 'X 2': nan must be a finite number",
        ),
        ({"X": np.array([[1, 2], [3, 4], [-np.inf, 6]])}, {}, r"train.npz, row 3, column 'X 1': -inf must be"),
        ({"X": np.array([[1, 2], [3, 4], [1e300, 6]])}, {}, r"row 3, column 'X 1': 1e\+300 must be"),
        ({"X": np.ones(3)}, {}, r"train.npz: X must be numbers \(n, d\), or pictures .* got float64 \(3,\)"),
        ({"X": np.ones((3, 2, 2))}, {}, r"X must be numbers"),
        ({"X": np.array([["a"], ["b"], ["c"]])}, {}, r"X must be numbers"),
        ({"X": np.ones((3, 0))}, {}, r"has the shape \(3, 0\), and no features"),
        ({"X": np.ones((0, 3))}, {}, r"train.npz: X has no rows"),
        ({"y": np.array([0, 1])}, {}, r"train.npz: 'y' must have one label for each of 3 rows, got the shape \(2,\)"),
        ({"y": np.array([0, 1, np.nan])}, {}, r"train.npz, row 3, column 'y': the label is missing"),
        ({"y": np.array([1, 1, 1])}, {}, r"all labels are '1'"),
        ({"ok": [0, 1, 7]}, {}, r"train.npz, row 3, column 'ok': '7' must be true"),
        ({}, {"label": "z"}, r"train.npz has no column 'z', which --label names; its columns are 'y', 'ok'"),
        ({}, {"id_column": "y"}, r"the column 'y' is named both by --label and by --id"),
        ({"who": [1, 2, 2]}, {"id_column": "who"}, r"train.npz, column 'who': rows 2 and 3 have the same id '2'"),
        ({}, {"ignore": ["X 1"]}, r"--ignore is for the columns of tables"),
    ],
)
def test_wrong_arrays(folder, changed, options, message):
    with pytest.raises(InputError, match=message):
        read_marked(arrays(**changed), **options)


def test_files_that_are_no_arrays(folder):
    np.savez("none.npz", y=[0, 1])
    with pytest.raises(InputError, match=r"none.npz must have features under X or features; its arrays are 'y'"):
        read_marked(Path("none.npz"))
    np.savez("none.npz", features=np.ones((2, 2)), ok=[0, 1])
    with pytest.raises(InputError, match=r"none.npz must have labels under y or labels, or name them by --label"):
        read_marked(Path("none.npz"))
    with pytest.raises(InputError, match=r"damaged or no .npz file"):
        read_marked(write("bad.npz", b"PK and no more"))
    np.savez("objects.npz", X=np.ones((2, 2)), y=np.array(["a", None], object))
    with pytest.raises(InputError, match=r"objects.npz: the array 'y' holds Python objects, which are not read"):
        read_marked(Path("objects.npz"))


def test_verified_arrays_of_another_layout(folder):
    with pytest.raises(
        InputError, match=r"v.npz: X must be as in the training rows, float32 \(n, 2\), got float32 \(n, 3\)"
    ):
        verified_by(arrays(), arrays("v.npz", X=np.ones((3, 3))), label=None)
    with pytest.raises(InputError, match=r"must be as in the training rows, uint8 \(n, 2\), got float32 \(n, 2\)"):
        verified_by(arrays(X=np.array([[1, 2], [3, 4], [5, 6]], np.uint8)), arrays("v.npz"), label=None)


@pytest.mark.parametrize(
    ("labels", "new", "expected"),
    [
        (np.array([0, 1, 1]), "2", np.array([0, 2])),
        (np.array([0, 1, 1], np.uint8), "2", np.array([0, 2], np.uint8)),
        (np.array([0.5, 1, 1]), "2.5", np.array([0.5, 2.5])),
        (np.array([True, False, False]), "true", np.array([True, True])),
        (np.array(["a", "b", "b"]), "longer", np.array(["a", "longer"])),
        (np.array([b"a", b"b", b"b"]), "é", np.array([b"a", "é".encode()])),
        (np.array([0, 1, 1], np.uint8), "300", np.array(["0", "300"])),
        (np.array([0, 1, 1]), "unknown", np.array(["0", "unknown"])),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_copy_of_arrays(folder, labels, new, expected, save):
    train = read_marked(
        arrays(save=save, y=labels, more=np.arange(6).reshape(3, 2), other=np.arange(2), one=np.array(5))
    ).train
    out = train.write(folder, np.array([True, False, True]), np.array([*train.labels[:2], new]))
    with np.load(out, allow_pickle=False) as copy:
        assert copy.files == ["X", "y", "ok", "more", "other", "one"]
        assert np.array_equal(copy["X"], [[1, 2], [5, 7]])
        assert np.array_equal(copy["more"], [[0, 1], [4, 5]])
        assert (copy["ok"].tolist(), copy["other"].tolist(), copy["one"].tolist()) == ([True, False], [0, 1], 5)
        assert copy["y"].dtype.kind == expected.dtype.kind
        assert copy["y"].tolist() == expected.tolist()
    with zipfile.ZipFile(out) as archive, zipfile.ZipFile("train.npz") as original:
        assert archive.infolist()[0].compress_type == original.infolist()[0].compress_type


@pytest.mark.parametrize(
    "features",
    [
        np.arange(14, dtype=np.float32).reshape(7, 2),
        np.asfortranarray(np.arange(14.0).reshape(7, 2)),
        np.arange(14, dtype=">i4").reshape(7, 2),
        np.arange(7 * 12, dtype=np.uint8).reshape(7, 3, 4),
    ],
    ids=["rows", "by columns", "another byte order", "pictures"],
)
def test_arrays_are_read_and_copied_some_rows_at_a_time(folder, monkeypatch, features):
    """In pieces that end within the rows, and into memory that jax takes as it is."""
    monkeypatch.setattr(array_files, "ROWS_AT_ONCE", 3)
    train = read_marked(arrays(X=features, y=np.arange(7) % 2, ok=np.arange(7) < 2)).train
    assert np.array_equal(train.features, features.reshape(7, -1))
    assert jax.device_put(train.features).unsafe_buffer_pointer() == train.features.ctypes.data
    keep = np.array([True, False, False, True, True, False, True])
    with np.load(train.write(folder, keep, train.labels), allow_pickle=False) as copy:
        assert copy["X"].dtype == features.dtype
        assert np.array_equal(copy["X"], features[keep])
        assert copy["y"].tolist() == [0, 1, 0, 0]


# images


def picture(name, size=(8, 8), mode="L", value=0, **options):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **options)
    return path


def gallery():
    """Two classes of gray images."""
    for place, name in enumerate(["cat/1.png", "cat/2.png", "dog/1.png", "dog/3.bmp"]):
        picture(f"train/{name}", value=10 * place)
    picture("verified/cat/x.png", value=200)
    picture("verified/dog/y.png", value=10)
    return verified_by(Path("train"), Path("verified"), label=None)


def test_a_folder_of_gray_images(folder):
    task = gallery()
    train = task.train
    assert (train.kind, train.path, train.columns) == ("images", Path("train"), [])
    assert train.ids.tolist() == ["cat/1.png", "cat/2.png", "dog/1.png", "dog/3.bmp"]
    assert train.labels.tolist() == ["cat", "cat", "dog", "dog"]
    assert (train.features.dtype, train.features.shape) == (np.uint8, (4, 64))
    assert train.features[:, 0].tolist() == [0, 10, 20, 30]
    assert train.images(np.array([3, 1])).shape == (2, 8, 8)
    assert train.records(np.array([0, 1])) == [[], []]
    assert task.known == {1: "dog"}
    assert task.rows.tolist() == [0, 2, 3]
    assert train.report["image"] == {"kind": "pictures", "shape": [4, 8, 8]}


def test_modes_of_images(folder):
    picture("train/a/1.png", mode="RGB", value=(200, 0, 0))
    picture("train/a/2.jpeg", mode="L", value=100)
    picture("train/b/3.PNG", mode="RGBA", value=(0, 200, 0, 0))
    picture("train/b/4.gif", mode="P", value=0)
    picture("train/b/5.webp", mode="RGB", value=(0, 0, 0))
    picture("train/b/6.png", mode="LA", value=(50, 255))
    Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)).save("train/b/7.png")
    picture("verified/a/v.png", mode="RGB", value=(1, 2, 3))
    train = verified_by(Path("train"), Path("verified"), label=None).train
    pixels = train.images(np.arange(7))[:, 4, 4]
    assert train.images(np.arange(7)).shape == (7, 8, 8, 3)
    # what is transparent is white
    expected = [[200, 0, 0], [100] * 3, [255] * 3, [0] * 3, [0] * 3, [50] * 3, [128] * 3]
    assert np.abs(pixels.astype(int) - expected).max() <= 2


def test_sixteen_bits_alone_are_gray(folder):
    for name, value in (("a/1", 0x1000), ("b/2", 0xFF00)):
        Path("train", name).parent.mkdir(parents=True)
        Image.fromarray(np.full((8, 8), value, np.uint16)).save(f"train/{name}.png")
    picture("verified/a/v.png", mode="RGB", value=(255, 255, 255))
    task = verified_by(Path("train"), Path("verified"), label=None)
    assert task.train.features[:, 0].tolist() == [0x10, 0xFF]
    assert task.verified_features[0, 0] == 255


def test_images_of_different_sizes_get_the_commonest(folder):
    for name, size in (("a/1", (10, 6)), ("a/2", (10, 6)), ("b/3", (6, 6)), ("b/4", (20, 12)), ("b/5", (1, 500))):
        picture(f"train/{name}.png", size, value=255)
    picture("verified/a/v.png", (30, 18), value=255)
    task = verified_by(Path("train"), Path("verified"), label=None)
    shown = task.train.images(np.arange(5))
    assert shown.shape == (5, 6, 10)
    assert (shown[[0, 1, 3]] == 255).all()
    assert shown[2, 0].tolist() == [0, 0] + [255] * 6 + [0, 0]
    assert (shown[4, 3] == 255).sum() == 1
    assert "3 images of 5 scaled to 10 × 6 pixels, with black beside those of another shape" in task.notes


def test_large_images_become_64_pixels_wide(folder):
    picture("train/a/1.jpg", (640, 480), "RGB", (250, 250, 250))
    picture("train/b/2.png", (480, 640), "RGB", (250, 250, 250))
    turned = Image.Exif()
    turned[0x0112] = 6
    picture("train/b/3.jpg", (640, 480), "RGB", (250, 250, 250), exif=turned)
    picture("verified/a/1.png", (640, 480), "RGB", (10, 10, 10))
    task = verified_by(Path("train"), Path("verified"), label=None)
    shown = task.train.images(np.arange(3))
    assert shown.shape == (3, 64, 64, 3)
    lit = (shown > 240).all(3)
    assert [(one.any(1).sum(), one.any(0).sum()) for one in lit] == [(48, 64), (64, 48), (64, 48)]
    assert "3 images of 3 scaled to 64 × 64" in task.notes[0]


def test_what_is_no_image_is_skipped_and_noted(folder):
    gallery()
    write("train/readme.txt", "")
    write("train/cat/Thumbs.db", "")
    write("train/.DS_Store", "")
    write("train/cat/.hidden.png", "")
    picture("train/cat/deep/1.png")
    Path("train/empty").mkdir()
    task = verified_by(Path("train"), Path("verified"), label=None)
    assert len(task.train.ids) == 4
    assert task.notes[:3] == [
        "train: no images, skipped: 'cat/Thumbs.db', 'readme.txt'",
        "train: folders inside of classes, skipped: 'cat/deep'",
        "train: folders without images, skipped: 'empty'",
    ]


def test_links_are_read_and_copied_as_files(folder):
    gallery()
    picture("elsewhere/real.png", value=77)
    Path("train/dog/link.png").symlink_to(folder / "elsewhere/real.png")
    Path("train/fox").symlink_to(folder / "elsewhere")
    train = verified_by(Path("train"), Path("verified"), label=None).train
    assert train.ids[-2:].tolist() == ["dog/link.png", "fox/real.png"]
    out = train.write(Path("copy"), np.ones(6, bool), train.labels)
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert (out / "dog/link.png").read_bytes() == Path("elsewhere/real.png").read_bytes()


def test_a_copy_of_images(folder):
    train = gallery().train
    before = {path: path.read_bytes() for path in Path("train").rglob("*.*")}
    Path("out").mkdir()
    # cat/1.png becomes a dog, of which there is a 1.png
    out = train.write(Path("out"), np.array([True, True, True, False]), np.array(["dog", "new one", "dog", "dog"]))
    assert out == Path("out/cleaned")
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.*")) == [
        "dog/1-2.png",
        "dog/1.png",
        "new one/2.png",
    ]
    assert (out / "dog/1-2.png").read_bytes() == before[Path("train/cat/1.png")]
    assert (out / "dog/1.png").read_bytes() == before[Path("train/dog/1.png")]
    assert {path: path.read_bytes() for path in Path("train").rglob("*.*")} == before
    everything = np.ones(4, bool)
    with pytest.raises(InputError, match=r"train/copy is the input or lies in it"):
        train.write(Path("train/copy"), everything, train.labels)
    for label in ("../up", "a\\b", ".hidden", " ", ".."):
        with pytest.raises(InputError, match="cannot be the name of a folder of images"):
            train.write(Path("new"), everything, np.array([label, "cat", "dog", "dog"]))
    assert not Path("new").exists()
    assert list(train.write(Path("none"), ~everything, train.labels).iterdir()) == []


def test_wrong_image_folders(folder, monkeypatch):
    Path("none").mkdir()
    with pytest.raises(InputError, match=r"none has no images in folders named by classes"):
        verified_by(Path("none"), Path("verified"), label=None)
    gallery()
    for options, message in (
        ({"label": "x"}, r"train: --label is for tables"),
        ({"label": None, "id_column": "x"}, r"train: --id is for tables"),
        ({"label": None, "ignore": ["x"]}, r"train: --ignore is for tables"),
    ):
        with pytest.raises(InputError, match=message):
            verified_by(Path("train"), Path("verified"), **options)
    with pytest.raises(InputError, match=r"train: images have no verified column; give a folder"):
        read(Path("train"), label=None, verified=None, verified_column="ok")
    with pytest.raises(InputError, match=r"must be as the training rows are, a folder of images"):
        verified_by(Path("train"), write("train.csv", ROWS), label=None)
    picture("verified/cat/z.png", value=200)
    picture("verified/dog/z.png", value=200)
    with pytest.raises(InputError, match=r"verified: cat/x.png and dog/z.png have the same features and different"):
        verified_by(Path("train"), Path("verified"), label=None)
    whole = Path("train/dog/3.bmp").read_bytes()
    for damaged in (b"", b"text", whole[:100]):
        write("train/dog/3.bmp", damaged)
        with pytest.raises(InputError, match=r"train/dog/3.bmp cannot be decoded"):
            verified_by(Path("train"), Path("verified"), label=None)
    write("train/dog/3.bmp", whole)
    with monkeypatch.context() as patch:
        patch.setattr(images.Image, "MAX_IMAGE_PIXELS", 50)
        with pytest.raises(InputError, match=r"train/cat/1.png cannot be decoded: Image size \(64 pixels\) exceeds"):
            verified_by(Path("train"), Path("verified"), label=None)
    picture("train/lost.png")
    with pytest.raises(InputError, match=r"train/lost.png lies in no class; .* train/class/lost.png"):
        verified_by(Path("train"), Path("verified"), label=None)
