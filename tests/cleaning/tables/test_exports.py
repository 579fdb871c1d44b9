"""What the pages export, read as verified rows."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from user_tables import known, verified_by, write
from wior.cleaning.tables import Asked, InputError, read

PLAIN = "no,a,label\np,1,x\nq,2,y\nr,3,x\n=s,4,y\n"


def looked_at(text, table=PLAIN, id_column="no"):
    return read(Asked(write("train.csv", table), "label", verified=write("export.csv", text), id_column=id_column))


def test_the_export_of_the_verifying_page(folder):
    job = looked_at("id,given,verified,chance\nq,y,x,0.25\n'=s,y,y,1\np,x,,0.5\nr,x,x,\n")
    assert known(job) == {1: "x", 2: "x", 3: "y"}
    assert job.paired.tolist() == [False, True, True, True]
    assert np.array_equal(job.chances, [np.nan, 0.25, np.nan, 1], equal_nan=True)
    assert len(job.outside) == 0


def test_rows_without_ids_are_named_by_their_numbers(folder):
    job = looked_at("id,given,verified,chance\n2,y,x,0.5\n", "a,label\n1,x\n2,y\n3,x\n", None)
    assert known(job) == {1: "x"}
    with pytest.raises(
        InputError,
        match=r"export.csv, row 1, column 'id': train.csv has no row 'q'; its rows are named by their numbers, or by "
        r"the column that --id names$",
    ):
        looked_at("id,given,verified,chance\nq,y,x,0.5\n", id_column=None)


def test_a_spreadsheet_may_have_saved_it_again(folder):
    table = "a,label\n1,0.0\n2,1.0\n3,1.0\n"
    job = looked_at("id;given;verified;chance\r\n2;1;0;0.5\r\n", table, None)
    assert known(job) == {1: "0.0"}
    assert "1 spelling of verified labels was matched: '0' as '0.0'" in job.notes
    assert "export.csv: its cells are separated by ';'" in job.notes


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("z,y,x,1\n", r"export.csv, row 1, column 'id': train.csv has no row 'z'$"),
        ("p,x,x,1\nq,x,y,1\n", r"export.csv, row 2, column 'given': 'x' was given, but row 2 of train.csv has 'y'; the table has changed since"),
        ("q,y,x,1\nq,y,y,1\n", r"export.csv, row 1 and export.csv, row 2 have the same id and different labels, 'x', 'y'"),
        ("q,y,x,0\n", r"export.csv, row 1, column 'chance': '0' must be a number above 0 and at most 1"),
        ("q,y,x,1.5\n", r"column 'chance': '1.5' must be"),
        ("q,y,x,often\n", r"column 'chance': 'often' must be"),
        ("q,y,x,nan\n", r"column 'chance': 'nan' must be"),
        ("q,y,,1\n", r"export.csv: nothing is decided in it"),
    ],
)  # fmt: skip
def test_wrong_exports(folder, lines, message):
    with pytest.raises(InputError, match=message):
        looked_at("id,given,verified,chance\n" + lines)


def test_decisions_of_the_review_page(folder):
    job = looked_at("id,given,decision,label,note\nq,y,fix,x,sure\np,x,keep,x,\nr,x,skip,,\n'=s,y,fix,new,\n")
    assert known(job) == {0: "x", 1: "x", 3: "new"}
    assert job.paired.tolist() == [True, True, False, True]
    assert np.array_equal(job.chances, [0, 0, np.nan, 0], equal_nan=True)
    with pytest.raises(
        InputError, match=r"export.csv, row 1, column 'decision': 'drop' must be one of keep, fix, skip, ambiguous$"
    ):
        looked_at("id,given,decision,label\nq,y,drop,x\n")
    with pytest.raises(InputError, match=r"export.csv, row 1, column 'label': a fix must have a label"):
        looked_at("id,given,decision,label\nq,y,fix,\n")


def test_a_new_label_may_be_the_only_verified_one(folder):
    assert known(looked_at("id,given,decision,label\nq,y,fix,new\n")) == {1: "new"}


def test_exports_about_images_and_arrays(folder):
    for name, value in (("cat/1", 1), ("dog/1", 2), ("dog/2", 3)):
        Path("train", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), value).save(f"train/{name}.png")
    export = write("export.csv", "id,given,verified,chance\ndog/2.png,dog,cat,0.5\n")
    assert known(verified_by(Path("train"), export, label=None)) == {2: "cat"}
    ids = write("ids.csv", "class,image\ncat,dog/1.png\n")
    assert known(verified_by(Path("train"), ids, label=None)) == {1: "cat"}
    changed = write("export.csv", "id,given,verified,chance\ndog/2.png,cat,cat,0.5\n")
    with pytest.raises(InputError, match=r"'cat' was given, but dog/2.png of train has 'dog'; the table has changed"):
        verified_by(Path("train"), changed, label=None)
    np.savez("train.npz", X=np.eye(3), y=[0, 1, 0])
    export = write("export.csv", "id,given,verified,chance\n3,0,1,0.5\n")
    assert known(verified_by(Path("train.npz"), export, label=None)) == {2: "1"}
    with pytest.raises(InputError, match=r"train: --verified-label is for tables"):
        read(Asked(Path("train"), verified_label="right"))
