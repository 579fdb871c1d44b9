"""Delimited text, to the byte, and its copies."""

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from user_tables import ROWS, csv_rows, known, marked, names, verified_by, write
from wior.cleaning.tables import InputError, delimited, delimited_text
from wior.cleaning.tables.delimited import DelimitedFile
from wior.cleaning.tables.delimited_text import Delimited

# delimited text


def test_a_table_of_numbers_and_categories(folder):
    job = verified_by(write("train.csv", ROWS), write("verified.csv", "age,city,label\n9,Oslo,dog\n9.5,Rome,cat\n"))
    assert (job.path, job.kind, job.images) == (Path("train.csv"), "table", None)
    assert job.ids.tolist() == ["1", "2", "3", "4"]
    assert names(job, job.given) == ["cat", "dog", "cat", "dog"]
    assert job.features.dtype == np.float32
    # Bonn, Oslo, Rome
    assert job.features.tolist() == [[1, 0, 0, 1], [2, 0, 1, 0], [3, 0, 0, 1], [4, 1, 0, 0]]
    assert job.fields == ["age", "city"]
    assert job.records(np.array([3, 0])) == [["4", "Bonn"], ["1", "Rome"]]
    assert job.fates == {
        "age": {"kind": "number", "width": 1},
        "city": {"kind": "category", "width": 3, "values": 3},
        "label": {"kind": "label", "values": 2},
    }
    assert job.judged.tolist() == [0, 1, 2, 3]
    assert job.outside_features.tolist() == [[9, 0, 1, 0], [9.5, 0, 0, 1]]
    assert names(job, job.outside) == ["dog", "cat"]
    assert (known(job), job.notes) == ({}, [])


@pytest.mark.parametrize("suffix", [".tsv", ".tab", ".TSV"])
def test_tabs(folder, suffix):
    text = "a b\tlabel\tok\n1,5\tx y\t1\n2,5\tz\t0\n"
    train = marked(text, name=f"train{suffix}")
    assert train.fields == ["a b", "ok"]
    assert names(train, train.given) == ["x y", "z"]
    out = train.write(Path("out" + suffix), np.array([True, True]), {1: "a\tb"})
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
    train = marked(text)
    assert train.fields == [" a ", 'x "y"', "🙂", "new\nline", "ok"]
    assert [entry["kind"] for entry in train.fates.values()] == ["number", "category"] + ["number"] * 2 + [
        "label",
        "verified",
    ]


def test_the_index_that_pandas_writes_numbers_the_rows(folder):
    job = marked(",a,label,ok\n0,1,x,1\n1,2,y,0\n")
    assert job.features.tolist() == [[1], [2]]
    assert job.fates["Unnamed: 0"] == {
        "kind": "ignored",
        "width": 0,
        "why": "the index of a pandas table, which numbers its rows",
    }
    assert job.notes[0] == "column 'Unnamed: 0' is ignored: the index of a pandas table, which numbers its rows"
    assert job.records(np.array([1])) == [["1", "2", "0"]]
    out = job.write(Path("out.csv"), np.array([True, True]), {1: "x"})
    assert out.read_text() == ",a,label,ok\n0,1,x,1\n1,2,x,0\n"
    assert marked(",a,label,ok\n7,1,x,1\n9,2,y,0\n", id_column="Unnamed: 0").ids.tolist() == ["7", "9"]


def test_empty_lines_are_no_rows(folder):
    job = marked("\n\na,label,ok\n\n1,x,1\n\r\n\n2,y,0\n\n\n")
    assert job.records(np.array([0, 1])) == [["1", "1"], ["2", "0"]]


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
        (b"a,label,ok\n\xc3\xa9,\xc3\xa9,1\n2,\xe9,0\n", r"train.csv, row 2: the byte e9 is not UTF-8"),
        (b"\xff\xfea,label,ok\n1,x,1\n", r"train.csv begins as utf-16 and cannot be read so"),
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
    job = marked('a,label,ok\n1,5" pipe,1\n2,"6"" pipe",0\n')
    assert names(job, job.given) == ['5" pipe', '6" pipe']
    assert delimited_text.Delimited(b",").cells(b'"a"b"c,"",""""\n') == ['ab"c', "", '"']


def test_a_file_that_changes_is_not_read_on(folder):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n")
    write("train.csv", "a,label,ok\n1,x,1\n2,y,0\n3,y,0\n")
    with pytest.raises(InputError, match=r"train.csv was changed while it was in use"):
        train.records(np.array([0]))
    with pytest.raises(InputError, match="was changed"):
        train.write(Path("out.csv"), np.ones(2, bool))
    assert not Path("out.csv").exists()


# copies


def test_a_copy_is_named_cleaned_in_a_folder_and_never_replaces_a_file(folder):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n3,y,0\n")
    Path("out").mkdir()
    out = train.write(Path("out"), np.array([True, True, False]), {1: "x, or y"})
    assert out == Path("out/cleaned.csv")
    assert out.read_text() == 'a,label,ok\n1,x,1\n2,"x, or y",0\n'
    assert [path.name for path in Path("out").iterdir()] == ["cleaned.csv"]
    everything = (np.ones(3, bool),)
    with pytest.raises(InputError, match=r"cleaned.csv is there already and was left as it is"):
        train.write(Path("out"), *everything)
    with pytest.raises(InputError, match=r"train.csv is the input"):
        train.write(Path("out/../train.csv"), *everything)
    with pytest.raises(InputError, match=r"cleaned.parquet must end in .csv, the format"):
        train.write(Path("cleaned.parquet"), *everything)
    with pytest.raises(ValueError, match=r"keep must have shape \(3,\)"):
        train.write(Path("new.csv"), np.ones(2, bool))
    assert train.write(Path("new/deep/copy.csv"), *everything).read_bytes() == Path("train.csv").read_bytes()


def test_a_copy_that_fails_leaves_nothing(folder, monkeypatch):
    train = marked("a,label,ok\n1,x,1\n2,y,0\n")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Delimited, "with_cell", fail)
    with pytest.raises(InputError, match=r"out/cleaned.csv cannot be written: No space left on device"):
        train.write(Path("out/cleaned.csv"), np.ones(2, bool), {1: "z"})
    assert not Path("out").exists()
