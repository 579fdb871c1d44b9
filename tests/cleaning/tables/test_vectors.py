"""Embeddings and probabilities that come in files of their own."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from user_tables import known, table, write
from wior.cleaning.tables import Asked, InputError, read

PLAIN = "no,say,label\np,hello you,x\nq,go,y\nr,stay there,x\n"
VECTORS = np.array([[1, 2], [3, 4], [5.5, 6]])


def job_with(embeddings=None, probabilities=None, text=PLAIN, **options):
    path = write("train.csv", text)
    return read(
        Asked(path, "label", embeddings=embeddings, probabilities=probabilities, **{"id_column": "no", **options})
    )


def saved(name, array=VECTORS, **arrays):
    if name.endswith(".npy"):
        np.save(name, array)
    else:
        np.savez(name, **arrays)
    return Path(name)


# embeddings


@pytest.mark.parametrize(
    "path",
    [
        lambda: saved("e.npy"),
        lambda: saved("e.npz", vectors=VECTORS),
        lambda: saved("e.npz", embeddings=VECTORS, more=np.eye(2)),
        lambda: saved("e.npz", X=VECTORS[::-1], ids=np.array(["r", "q", "p"])),
        lambda: write("e.csv", "one,two\n1,2\n3,4\n5.5,6\n"),
        lambda: write("e.csv", "one,no,two,label\n5.5,r,6,x\n9,z,9,x\n1,p,2,x\n3,q,4,y\n"),
        lambda: table("e.parquet", no=["q", "p", "r"], vector=[[3.0, 4.0], [1.0, 2.0], [5.5, 6.0]]),
        lambda: table("e.parquet", v=pa.array([[1, 2], [3, 4], [5.5, 6]], pa.list_(pa.float32(), 2))),
    ],
)
def test_embeddings_take_the_place_of_the_columns(folder, path):
    job = job_with(path())
    assert job.features.tolist() == VECTORS.tolist()
    assert job.features.dtype == np.float32
    assert job.fields == ["no", "say"]
    assert job.records(np.array([0])) == [["p", "hello you"]]
    assert job.fates["say"] == {"kind": "shown", "width": 0, "why": "the embeddings stand for it"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (lambda: saved("e.npy", VECTORS[:2]), r"e.npy has 2 rows and train.csv 3; give one for each, in the same order"),
        (lambda: saved("e.npy", VECTORS[:, 0]), r"e.npy must be numbers, a row of them for each row; got float64 \(3,\)$"),
        (lambda: saved("e.npy", np.array([["a"]] * 3)), r"e.npy must be numbers"),
        (lambda: saved("e.npy", np.array([[{}]] * 3)), r"e.npy cannot be read: Object arrays cannot be loaded"),
        (lambda: saved("e.npy", np.array([[1, 2], [3, np.nan], [5, 6]])), r"e.npy, row 2, column '2': nan must be a finite number"),
        (lambda: saved("e.npy", np.array([[1, 2], [3, 4], [1e300, 6]])), r"e.npy, row 3, column '1': 1e\+300 must be a finite"),
        (lambda: saved("e.npz", a=VECTORS, b=VECTORS), r"e.npz must hold one array, or one called X or embeddings; it has 'a', 'b'"),
        (lambda: saved("e.npz", a=VECTORS, ids=np.arange(3)), r"e.npz has no row for the id 'p' of train.csv"),
        (lambda: write("e.csv", "no,a\np,1\nq,2\n"), r"e.csv has no row for the id 'r' of train.csv"),
        (lambda: write("e.csv", "no,a\np,1\nq,2\np,3\n"), r"e.csv, column 'no': rows 1 and 3 have the same id 'p'"),
        (lambda: write("e.csv", "a\n1\nbig\n3\n"), r"e.csv, row 2, column 'a': 'big' is not a number"),
        (lambda: write("e.csv", "a\n1\n\n3\n"), r"e.csv has 2 rows and train.csv 3"),
        (lambda: write("e.csv", "a,b\n1,\n2,2\n3,3\n"), r"e.csv, row 1, column 'b': nan must be a finite number"),
        (lambda: table("e.parquet", v=[[1.0], [2.0, 3.0], [4.0]]), r"e.parquet, row 2, column 'v': it has 2 numbers, row 1 has 1"),
        (lambda: write("e.npy", "no"), r"e.npy cannot be read"),
        (lambda: write("e.txt", "no"), r"e.txt must be .npy, .npz or a table \(.csv, .tsv, .parquet, .pq\)"),
        (lambda: Path("none.npy"), r"none.npy is not there"),
    ],
)  # fmt: skip
def test_wrong_embeddings(folder, path, message):
    with pytest.raises(InputError, match=message) as caught:
        job_with(path())
    assert "\n" not in str(caught.value)


def test_embeddings_beside_pictures_keep_the_pictures(folder):
    for name, value in (("cat/1", 10), ("dog/1", 200), ("dog/2", 30)):
        Path("train", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), value).save(f"train/{name}.png")
    job = read(Asked(Path("train"), embeddings=write("e.csv", "id,a\ndog/2.png,3\ncat/1.png,1\ndog/1.png,2\n")))
    assert job.features.tolist() == [[1], [2], [3]]
    assert job.images(np.array([1]))[0, 0, 0] == 200


def test_verified_rows_beside_embeddings(folder):
    verified = write("v.csv", "say,label\nstay there,y\nno more,x\n")
    job = job_with(saved("e.npy"), verified=verified, ignore=("no",), id_column=None)
    assert (known(job), len(job.outside)) == ({2: "y"}, 0)
    assert "v.csv: 1 row of it, without embeddings, are none of train.csv and left out" in job.notes
    with pytest.raises(
        InputError, match=r"v.csv: none of its rows is a row of train.csv, and others have no embeddings"
    ):
        job_with(saved("e.npy"), verified=write("v.csv", "say,label\nno,y\n"), ignore=("no",), id_column=None)
    assert known(job_with(saved("e.npy"), verified=write("v.csv", "no,label\nq,x\n"))) == {1: "x"}


# probabilities

SURE = np.array([[0.9, 0.1], [0.25, 0.75], [1, 0]])


@pytest.mark.parametrize(
    "path",
    [
        lambda: saved("p.npy", SURE),
        lambda: saved("p.npz", pred_probs=SURE[:, ::-1], classes=np.array(["y", "x"])),
        lambda: saved("p.npz", X=SURE[[1, 0, 2]], id=np.array(["q", "p", "r"])),
        lambda: write("p.csv", "y,X\n0.1,0.9\n0.75,0.25\n0,1\n"),
        lambda: table("p.parquet", no=["r", "q", "p"], x=[1, 0.25, 0.9], y=[0, 0.75, 0.1]),
    ],
)
def test_probabilities(folder, path):
    job = job_with(probabilities=path())
    assert np.abs(job.probabilities - SURE).max() < 1e-6
    assert job.probabilities.dtype == np.float32
    assert job.fates["say"]["kind"] == "category"


def test_classes_that_are_numbers_come_in_their_order(folder):
    text = "no,a,label\n" + "".join(f"p{i},{i},{i}\n" for i in range(11))
    job = job_with(probabilities=saved("p.npy", np.eye(11)), text=text)
    assert [job.classes[code] for code in job.probabilities.argmax(1)] == [str(i) for i in range(11)]
    assert job.notes[-1].startswith("p.npy: its columns are taken as the classes '0', '1', '2', '3'")


def test_a_class_of_verified_rows_alone_has_no_probability(folder):
    job = job_with(probabilities=saved("p.npy", SURE), verified=write("v.csv", "no,label\np,new\nq,x\n"))
    assert job.classes == ["new", "x", "y"]
    assert job.probabilities.tolist() == np.hstack([np.zeros((3, 1)), SURE]).astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (lambda: saved("p.npy", SURE[:2]), r"p.npy has 2 rows and train.csv 3"),
        (lambda: saved("p.npy", np.eye(3)), r"p.npy must have a column for each of 2 classes, 'x', 'y'; it has the shape \(3, 3\)"),
        (lambda: saved("p.npy", SURE * 0.9), r"p.npy, row 1: its probabilities sum to 0.9, and must to 1$"),
        (lambda: saved("p.npy", SURE * [[1], [1], [1.002]]), r"p.npy, row 3: its probabilities sum to 1.002, and must to 1; these look like logits"),
        (lambda: saved("p.npy", SURE - 0.2), r"p.npy, row 1: -0.1 is negative; these look like logits, give their softmax"),
        (lambda: saved("p.npy", SURE * 7), r"row 1: its probabilities sum to 7, and must to 1; these look like logits"),
        (lambda: saved("p.npy", SURE * np.nan), r"p.npy, row 1, column '1': nan must be a finite number"),
        (lambda: write("p.csv", "x,z\n1,0\n1,0\n1,0\n"), r"p.csv must have one column for each class, named as the labels are; it lacks 'y'"),
        (lambda: write("p.csv", "x,y,z\n1,0,0\n1,0,0\n1,0,0\n"), r"p.csv must have one column for each class, .* it has 'z' too"),
        (lambda: write("p.csv", "x,y,X\n1,0,0\n1,0,0\n1,0,0\n"), r"p.csv has two columns of one class: 'x', 'y', 'X'"),
    ],
)  # fmt: skip
def test_wrong_probabilities(folder, path, message):
    with pytest.raises(InputError, match=message):
        job_with(probabilities=path())


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("id,label\np,x\nq,y\nr,x\n", "pqr"),
        ("id,label\n2,x\n3,y\n1,x\n", "231"),  # the column, and not the numbers of the rows
        ("id,label\n7,x\n7,y\n8,x\n", "123"),  # which they are where the column holds one twice
        ("label\nx\ny\nx\n", "123"),
    ],
)
def test_without_an_id_column_ids_are_found(folder, text, ids):
    lines = "".join(f"{ids[row]},{SURE[row, 0]},{SURE[row, 1]}\n" for row in (2, 0, 1))
    job = job_with(probabilities=write("p.csv", "id,x,y\n" + lines), text=text, id_column=None)
    assert np.abs(job.probabilities - SURE).max() < 1e-6
    other = write("p.csv", "id,x,y\nz,1,0\n")
    if ids == "pqr":
        with pytest.raises(InputError, match=r"^p.csv has no row for the id 'p' of train.csv$"):
            job_with(probabilities=other, text=text, id_column=None)


def test_verified_rows_of_a_table_without_columns_are_known_by_ids(folder):
    bare, options = "no,label\np,x\nq,y\nr,x\n", {"probabilities": saved("p.npy", SURE)}
    job = job_with(text=bare, verified=write("v.csv", "no,label\nq,x\n"), **options)
    assert (known(job), job.features.shape) == ({1: "x"}, (3, 0))
    with pytest.raises(InputError, match=r"^v.csv, row 1, column 'no': train.csv has no row 'z'$"):
        job_with(text=bare, verified=write("v.csv", "no,label\nz,x\n"), **options)
    with pytest.raises(
        InputError, match=r"^v.csv has no columns by which its rows are known; name the ids of both files by --id$"
    ):
        job_with(text=bare, verified=write("v.csv", "label\nx\n"), **options)
    with pytest.raises(InputError, match=r"^train.csv has no column to learn from$"):
        job_with(text=bare)
