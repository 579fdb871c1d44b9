"""Which rows are verified, and by whom: columns of the table, files of rows, and what they say together."""

from pathlib import Path

import numpy as np
import pytest

from user_tables import known, names, verified_by, write
from wior.cleaning.tables import UNKNOWN, Asked, InputError, read

TABLE = "no,a,label,right,ok\np,1,x,,\nq,2,y,x,\nr,3,x,NA,\ns,4,y,y,\nt,5,x,,1\n"
PLAIN = "no,a,label\np,1,x\nq,2,y\nr,3,x\ns,4,y\n"


def rows(text=PLAIN, **options):
    return read(Asked(write("train.csv", text), "label", **options))


def rows_by(verified, text=PLAIN, **options):
    return rows(text, verified=write("verified.csv", verified), **options)


def test_nothing_need_be_verified(folder):
    job = rows(ignore=("no",))
    assert job.right.tolist() == [UNKNOWN] * 4
    assert (job.paired.tolist(), len(job.outside), job.judged.tolist()) == ([False] * 4, 0, [0, 1, 2, 3])
    assert np.isnan(job.chances).tolist() == [True] * 4
    assert job.notes == ["column 'no' is ignored: named by --ignore"]


def test_a_column_of_right_labels(folder):
    job = rows(TABLE, verified_label="right", id_column="no", ignore=("ok",))
    assert known(job) == {1: "x", 3: "y"}
    assert job.paired.tolist() == [False, True, False, True, False]
    assert np.isnan(job.chances).all()
    assert len(job.outside) == 0
    assert job.features.shape[1] == 1
    assert job.fates["right"] == {"kind": "verified label"}
    assert "2 rows of the table are verified; 1 of them with another label than the given one" in job.notes


def test_a_column_of_right_labels_may_have_none_and_may_say_none(folder):
    assert rows("a,label,right\n1,x,\n2,y,\n", verified_label="right").notes == [
        "the column 'right' has no verified label"
    ]
    assert known(rows("a,label,right\n1,none,\n2,y,None\n", verified_label="right")) == {1: "none"}


def test_whole_numbers_say_that_nobody_looked_by_minus_one(folder):
    np.savez("train.npz", X=np.eye(3), y=[0, 1, 1], right=[-1, 0, -1])
    job = read(Asked(Path("train.npz"), verified_label="right"))
    assert known(job) == {1: "0"}
    assert "-1 in the column 'right' means that nobody looked" in job.notes
    np.savez("train.npz", X=np.eye(3), y=[-1, 1, 1], right=[np.nan, -1, np.nan])
    assert known(read(Asked(Path("train.npz"), verified_label="right"))) == {1: "-1"}


def test_marks_and_right_labels_together(folder):
    job = rows(TABLE, verified_label="right", verified_column="ok", id_column="no")
    assert known(job) == {1: "x", 3: "y", 4: "x"}
    assert job.paired.tolist() == [False, True, False, True, False]
    both = "a,label,right,ok\n1,x,x,1\n2,y,,\n"
    assert rows(both, verified_label="right", verified_column="ok").paired.tolist() == [False, False]
    with pytest.raises(
        InputError,
        match=r"train.csv, row 1, column 'ok' and train.csv, row 1, column 'right' say different right labels of the "
        r"same row, 'x', 'y'$",
    ):
        rows(both.replace("x,x,1", "x,y,1"), verified_label="right", verified_column="ok")


def test_a_file_and_a_column_of_right_labels(folder):
    table = "no,a,label,right\np,1,x,\nq,2,y,x\nr,3,x,\n"
    job = rows_by("no,a,label\nr,3,y\nq,2,x\nz,9,x\n", table, verified_label="right", id_column="no")
    assert known(job) == {1: "x", 2: "y"}
    assert job.outside_features.tolist() == [[9]]
    with pytest.raises(
        InputError,
        match=r"train.csv, row 2, column 'right' and verified.csv, row 1 say different right labels .* 'x', 'y'",
    ):
        rows_by("no,a,label\nq,2,y\n", table, verified_label="right", id_column="no")


def test_ids_and_labels_are_enough(folder):
    job = rows_by("label,no\nx,q\ny,s\n", id_column="no")
    assert known(job) == {1: "x", 3: "y"}
    assert (job.paired.tolist(), len(job.outside)) == ([False, True, False, True], 0)
    with pytest.raises(InputError, match=r"verified.csv, row 2, column 'no': train.csv has no row 'z'$"):
        rows_by("label,no\nx,q\ny,z\n", id_column="no")
    with pytest.raises(InputError, match=r"row 1 and row 2 have the same id and different labels, 'x', 'y'"):
        rows_by("label,no\nx,q\ny,q\n", id_column="no")
    with pytest.raises(
        InputError,
        match=r"must have the columns of the training table, or its labels and the ids in 'no'; it lacks 'label'",
    ):
        rows_by("no,Label\nq,x\n", id_column="no")


def test_ids_and_labels_of_arrays(folder):
    np.savez("train.npz", X=np.eye(3), y=["x", "y", "x"], key=[7, 8, 9])
    job = verified_by(Path("train.npz"), write("v.csv", "key,y\n9,y\n"), label=None, id_column="key")
    assert known(job) == {2: "y"}
    with pytest.raises(
        InputError, match=r"v.csv must be as the training rows are, arrays: .npz, or a table of ids and"
    ):
        verified_by(Path("train.npz"), write("v.csv", "no,y\n9,y\n"), label=None, id_column="key")


def test_every_row_verified(folder):
    with pytest.raises(InputError, match=r"train.csv: every row is verified, none is left to be judged"):
        rows("a,label,right\n1,x,x\n2,y,x\n", verified_label="right")


def test_labels_that_are_all_the_same(folder):
    for right in ("", "x", "y"):
        with pytest.raises(InputError, match=r"train.csv: all labels are 'x'; there must be two classes at least"):
            rows(f"a,label,right\n1,x,{right}\n2,x,\n3,x,\n", verified_label="right")


@pytest.mark.parametrize(
    ("table", "verified", "note"),
    [
        (("Sports", "World"), ("sports ", "World"), "1 spelling of verified labels was matched: 'sports ' as 'Sports'"),
        (("0.0", "1.0"), ("0", "1"), "2 spellings of verified labels were matched: '0' as '0.0', '1' as '1.0'"),
        (("01", "10"), ("1", "10.0"), "2 spellings of verified labels were matched: '1' as '01', '10.0' as '10'"),
        (("é", "STRASSE"), ("e\u0301", "straße"), "2 spellings of verified labels were matched: 'e\u0301' as 'é', 'straße' as 'STRASSE'"),
    ],
)  # fmt: skip
def test_other_spellings_are_matched_and_said(folder, table, verified, note):
    job = rows_by(
        f"no,label\n1,{verified[0]}\n4,{verified[1]}\n",
        f"no,label\n1,{table[1]}\n2,{table[0]}\n3,{table[1]}\n4,{table[1]}\n",
        id_column=None,
    )
    assert list(job.classes) == sorted(table)
    assert known(job) == {0: table[0], 3: table[1]}
    assert note in job.notes


def test_an_ambiguous_spelling_is_an_error(folder):
    with pytest.raises(InputError, match=r"verified.csv: the verified label 'X' may be 'x' or 'x '; write it as one"):
        rows_by("a,label\n1,X\n", "a,label\n1,x\n2,x \n3,y\n")


def test_labels_that_differ_in_spelling_are_noted_and_not_merged(folder):
    job = rows("a,label\n1,x\n2,x \n3,X\n4,1\n5,1.0\n6,z\n")
    assert len(job.classes) == 6
    assert job.notes == [
        "the labels '1', '1.0' differ only in case, blanks or the form of a number; they count as different classes",
        "the labels 'X', 'x', 'x ' differ only in case, blanks or the form of a number; they count as different classes",
    ]


def test_vocabularies_that_share_nothing(folder):
    with pytest.raises(
        InputError,
        match=r"verified.csv: no verified label is a label of train.csv: verified are 'cat', 'dog', the table has 'x', 'y'$",
    ):
        rows_by("a,label\n1,cat\n9,dog\n", "a,label\n1,x\n2,y\n")
    with pytest.raises(InputError, match=r"train.csv: no verified label is a label of train.csv: verified are 'cat'"):
        rows("a,label,right\n1,x,cat\n2,y,\n", verified_label="right")
    assert names(rows_by("a,label\n8,x\n9,dog\n", "a,label\n1,x\n2,y\n"), [0]) == ["dog"]
