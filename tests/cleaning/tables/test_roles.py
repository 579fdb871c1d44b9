"""Labels, ids, marks and verified files."""

from pathlib import Path

import numpy as np
import pytest

from user_tables import ROWS, known, marked, names, table, verified_by, write
from wior.cleaning.tables import InputError, delimited

# labels, ids and marks


@pytest.mark.parametrize("text", ["", "  ", "NA", "nan", "?", "NULL"])
def test_a_missing_label_names_its_row(folder, text):
    with pytest.raises(InputError, match=r"train.csv, row 2, column 'label': the label is missing"):
        marked(f"a,label,ok\n1,x,1\n2,{text},0\n")


def test_labels_are_taken_as_they_stand_and_one_may_be_none(folder):
    job = marked("a,label,ok\n1, big cat ,1\n2,None,0\n3,none,0\n")
    assert names(job, job.given) == [" big cat ", "None", "none"]


@pytest.mark.parametrize(
    ("label", "message"), [("x" * 300, "has 300 characters, more than 200"), ("x\0", "holds the character NUL")]
)
def test_odd_labels(folder, label, message):
    with pytest.raises(InputError, match=f"row 2, column 'label': the label .* {message}"):
        marked(f"a,label,ok\n1,x,1\n2,{label},0\n")


def test_ids(folder):
    job = marked("a,label,ok,no\n1,x,1,p 7\n2,y,0,p 8\n", id_column="no")
    assert job.ids.tolist() == ["p 7", "p 8"]
    assert job.fates["no"] == {"kind": "id"}
    assert job.features.shape == (2, 1)
    assert job.fields == ["a", "ok", "no"]


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
    job = marked(f"a,label,ok\n1,x,{no}\n2,y,{yes}\n3,x,{yes}\n4,y,{no}\n")
    assert job.judged.tolist() == [0, 3]
    assert known(job) == {1: "y", 2: "x"}
    assert (job.paired.any(), len(job.outside)) == (False, 0)


def test_marks_that_are_none(folder):
    with pytest.raises(InputError, match=r"train.csv, row 2, column 'ok': 'maybe' must be true, yes, 1 or x"):
        marked("a,label,ok\n1,x,1\n2,y,maybe\n")
    job = marked("a,label,ok\n1,x,0\n2,y,\n")
    assert (known(job), job.notes) == ({}, ["no row is marked as verified in the column 'ok'"])
    with pytest.raises(InputError, match=r"train.csv: every row is verified, none is left"):
        marked("a,label,ok\n1,x,1\n2,y,1\n")


def test_there_must_be_two_classes(folder):
    with pytest.raises(InputError, match=r"train.csv: all labels are 'x'; there must be two classes at least"):
        marked("a,label,ok\n1,x,1\n2,x,0\n")


# verified files


def test_verified_rows_are_found_among_the_training_rows_by_their_ids(folder):
    train = write("train.csv", "no,age,label\na,1,cat\nb,2,dog\nc,3,cat\n")
    verified = write("verified.csv", "label,more,age,no\ndog,9,1,a\ncat,9,7,z\n")
    job = verified_by(train, verified, id_column="no")
    assert known(job) == {0: "dog"}
    assert job.judged.tolist() == [1, 2]
    assert job.paired.tolist() == [True, False, False]
    assert np.isnan(job.chances).all()
    assert (job.outside_features.tolist(), names(job, job.outside)) == ([[7]], ["cat"])
    assert job.notes == ["1 row of the table is verified; 1 of them with another label than the given one"]


@pytest.mark.parametrize("id_column", [None, "no"])
def test_or_by_all_their_features(folder, id_column):
    train = write("train.csv", "no,age,city,label\n1,1,Rome,cat\n2,1,Oslo,dog\n3,1.0,Rome,dog\n4,4,Rome,cat\n")
    verified = write("verified.csv", "age,city,label\n1.00,Rome,cat\n5,Oslo,dog\n")
    job = verified_by(train, verified, id_column=id_column, ignore=[] if id_column else ["no"])
    assert known(job) == {0: "cat", 2: "cat"}
    assert (job.paired.tolist(), names(job, job.outside)) == ([True, False, True, False], ["dog"])
    assert job.notes[-1] == "2 rows of the table are verified; 1 of them with another label than the given one"


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
    assert known(verified_by(train, same_features, id_column="no")) == {}
    twice = write("twice.csv", "no,age,label\na,1,cat\na,1,cat\n")
    assert known(verified_by(train, twice, id_column="no")) == {0: "cat"}


def test_a_verified_file_must_have_the_columns_that_are_used(folder):
    train = write("train.csv", "a,b,c,label\n1,2,5,x\n2,1,5,y\n")
    with pytest.raises(
        InputError, match=r"verified.csv must have the columns of the training table; it lacks 'label', 'b'"
    ):
        verified_by(train, write("verified.csv", "a\n1\n"))
    assert verified_by(train, write("verified.csv", "a,b,label\n9,9,x\n")).judged.tolist() == [0, 1]


def test_verified_cells_that_the_training_table_lacks(folder):
    train = write("train.csv", "a,b,c,label\n1,Rome,yes,x\n2,Oslo,no,y\n")
    job = verified_by(train, write("verified.csv", "a,b,c,label\n,Bonn,true,x\n9,,maybe,x\n"))
    assert job.outside_features.tolist() == [[1.5, 0, 0, 1], [9, 0, 0, 0]]
    lacks = "hold what the training table lacks; they count as none of its values"
    assert f"verified.csv: 2 rows of column 'b' {lacks}" in job.notes
    assert f"verified.csv: 1 row of column 'c' {lacks}" in job.notes
    with pytest.raises(InputError, match=r"verified.csv, row 2, column 'a': 'old' is not a number"):
        verified_by(train, write("verified.csv", "a,b,c,label\n1,Rome,yes,x\nold,Oslo,no,x\n"))
    with pytest.raises(InputError, match=r"verified.csv, row 1, column 'a': 'inf' is infinite"):
        verified_by(train, write("verified.csv", "a,b,c,label\ninf,Rome,yes,x\n"))


def test_classes_that_only_some_have_are_noted(folder):
    train = write("train.csv", "a,label\n1,x\n2,y\n3,z\n")
    job = verified_by(train, write("verified.csv", "a,label\n9,x\n8,w\n"))
    assert job.notes == [
        "no verified row has the label 'y', 'z'",
        "no row of the table has the label 'w', which verified rows have",
    ]


def test_a_verified_file_of_another_format_or_kind(folder):
    train = write("train.csv", ROWS)
    job = verified_by(train, table("verified.parquet", age=[9], city=["Oslo"], label=["dog"]))
    assert job.outside_features.tolist() == [[9, 0, 1, 0]]
    np.savez("verified.npz", X=np.ones((2, 2)), y=[0, 1])
    with pytest.raises(InputError, match=r"verified.npz must be as the training rows are, a table$"):
        verified_by(train, Path("verified.npz"))


def test_paths_that_cannot_be_read(folder):
    with pytest.raises(InputError, match=r"nothing.csv is not there"):
        verified_by(Path("nothing.csv"), Path("verified.csv"))
    with pytest.raises(InputError, match=r"nothing.csv is not there"):
        verified_by(write("train.csv", ROWS), Path("nothing.csv"))
    with pytest.raises(InputError, match=r"table.ods: files of the kind .ods are not read; give .csv, .txt, .tsv"):
        verified_by(write("table.ods", ""), Path("verified.csv"))
    with pytest.raises(InputError, match=r"table: files of the kind without a suffix are not read"):
        verified_by(write("table", ""), Path("verified.csv"))
