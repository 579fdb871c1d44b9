"""Loaders: on real files where these are there, on small generated ones for every way in which files can be wrong."""

import bz2
import gzip
import hashlib
import http.server
import io
import os
import pickle
import re
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from real_data import real_data
from wior import data
from wior.data import blobs, download, files, glyphs
from wior.data.arrays import read_arrays, remembered, write_arrays
from wior.data.mini_imagenet import CLASSES, read_list, read_lists, read_pickle
from wior.data.mnist import FILES, read_idx, read_part
from wior.data.omniglot import BACKGROUND, EVALUATION, TEST_ALPHABETS, VALID_ALPHABETS, part_of, read_zip
from wior.data.pickles import read_plain_pickle
from wior.data.source import Source, contents
from wior.data.tabular import COVTYPE_TEXT, read_covtype_arrays, read_covtype_text, read_libsvm
from wior.data.tiny_imagenet_fs import read_part as read_tiny_part

CONTENT = bytes(range(256)) * 2000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network: the loopback alone, and no proxy to it."""
    monkeypatch.delenv("WIOR_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    return tmp_path / "cache" / "wior"


# downloads


class Server:
    """Serves CONTENT and notes the ranges asked for; can ignore ranges, break off or answer with an error."""

    def __init__(self, *, content=CONTENT, ranges=True, break_after=None, breaks=10**6, status=None):
        self.asked = []
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                nonlocal breaks
                asked = self.headers.get("Range")
                served.asked.append(asked)
                if status:
                    self.send_error(status)
                    return
                start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and ranges else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                stop = len(content)
                if break_after is not None and breaks > 0:
                    breaks, stop = breaks - 1, start + break_after
                self.wfile.write(content[start:stop])

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def source(self, name="numbers.bin", content=CONTENT):
        url = f"http://127.0.0.1:{self.server.server_port}/{name}"
        return Source("set", (name,), f"sha256:{hashlib.sha256(content).hexdigest()}", url)


def visible(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


@pytest.mark.parametrize("progress", [False, True])
def test_a_file_is_downloaded_once_and_found_in_the_cache_afterwards(cache, progress):
    with Server() as server:
        for _ in range(2):
            path = files.find(server.source(), progress=progress)
            assert path == cache / "set" / "numbers.bin"
            assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert visible(cache) == ["numbers.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on_where_it_ended(cache, ranges):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(CONTENT[:1000])
    with Server(ranges=ranges) as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]
    assert visible(cache) == ["numbers.bin"]


def test_a_part_that_lacks_nothing_becomes_the_file(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(CONTENT)
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert visible(cache) == ["numbers.bin"]


def test_a_part_of_another_file_is_thrown_away_and_all_is_fetched(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(b"other" * 100)
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == ["bytes=500-", None]


def test_a_dropped_connection_is_taken_up_again(cache):
    with Server(break_after=200_000, breaks=2) as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=200000-", "bytes=400000-"]


def test_a_truncated_download_is_an_error_and_kept_as_a_part_alone(cache):
    kept = r"ended after 1,000 of 512,000 bytes; they are kept"
    with Server(break_after=1000, ranges=False) as server, pytest.raises(FileNotFoundError, match=kept):
        files.find(server.source())
    assert visible(cache) == ["numbers.bin.part"]


def test_a_wrong_checksum_is_an_error_and_nothing_is_kept(cache):
    with (
        Server(content=CONTENT[::-1]) as server,
        pytest.raises(ValueError, match="does not have the published file") as error,
    ):
        files.find(server.source())
    assert hashlib.sha256(CONTENT).hexdigest() in str(error.value)
    assert visible(cache) == []


@pytest.mark.parametrize("absent", ["404", "refused"])
def test_without_a_network_the_error_says_what_to_do(cache, absent):
    with Server(status=404) as server:
        source = server.source()
        if absent == "404":
            with pytest.raises(FileNotFoundError, match="HTTP 404 Not Found") as error:
                files.find(source)
    if absent == "refused":
        with pytest.raises(FileNotFoundError, match="refused") as error:
            files.find(source)
    for needed in (source.url, source.checksum.split(":")[1], str(cache / "set"), "WIOR_DATA", "--data DIR"):
        assert needed in str(error.value)
    assert visible(cache) == []


def test_a_file_damaged_in_the_cache_is_replaced(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin").write_bytes(CONTENT[:-1])
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT


def test_processes_that_want_the_same_file_do_not_disturb_each_other(cache):
    with Server() as server:
        source, folder, found = server.source(), cache / "set", []
        fetch = lambda: found.append(download.download(source, folder).read_bytes() == CONTENT)
        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 4
    assert server.asked == [None]  # the others waited and found it


# where files are looked for


def test_the_places_in_their_order(tmp_path, cache, monkeypatch):
    source = Source("set", ("a.bin", "b.bin"), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
    for place in ("given/set", "variable", "cache/wior/set"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "b.bin").write_bytes(CONTENT)
    assert files.find(source, folder=tmp_path / "given") == tmp_path / "given" / "set" / "b.bin"
    monkeypatch.setenv("WIOR_DATA", str(tmp_path / "variable"))
    assert files.find(source) == tmp_path / "variable" / "b.bin"
    (tmp_path / "variable" / "b.bin").unlink()
    assert files.find(source) == cache / "set" / "b.bin"
    (cache / "set" / "b.bin").unlink()
    with pytest.raises(FileNotFoundError, match="not to be had at a public address"):
        files.find(source)


def test_a_given_folder_without_the_file_is_named_among_the_places(tmp_path):
    source = Source("set", ("a.bin",), "sha256:0", "http://127.0.0.1:9/a.bin")
    with pytest.raises(FileNotFoundError, match=f"a.bin is not in {re.escape(str(tmp_path))}, WIOR_DATA"):
        files.find(source, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        files.find(source, folder=tmp_path / "nowhere")


def test_a_damaged_file_of_the_user_is_an_error_and_left_as_it_is(tmp_path):
    source = Source("set", ("a.bin",), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", "http://127.0.0.1:9/a.bin")
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"a.bin \(511,999 bytes\) is truncated, .* replace it \(from http"):
        files.find(source, folder=tmp_path)
    assert (tmp_path / "a.bin").exists()
    (tmp_path / "a.bin").write_bytes(CONTENT)
    assert files.find(source, folder=tmp_path) == tmp_path / "a.bin"


def test_a_checksum_of_contents_does_not_depend_on_the_compression(tmp_path):
    source = Source("set", ("a.gz", "a"), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", of_contents=True)
    for name, packed in (("a.gz", gzip.compress(CONTENT, 1)), ("a.gz", gzip.compress(CONTENT, 9)), ("a", CONTENT)):
        (tmp_path / name).write_bytes(packed)
        assert files.find(source, folder=tmp_path).name == name
        (tmp_path / name).unlink()
    (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT)[:-20])
    with pytest.raises(ValueError, match=r"a.gz \(.* bytes\) cannot be read to its end"):
        files.find(source, folder=tmp_path)


def test_the_cache_is_where_the_system_has_its_caches(tmp_path, monkeypatch):
    assert files.cache_folder() == tmp_path / "cache" / "wior"
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable)
    assert files.cache_folder().name == "wior"
    assert files.cache_folder().is_relative_to(files.Path.home())


def test_importing_the_loaders_needs_numpy_alone():
    code = "import sys; sys.modules['wior'] = type(sys)('wior'); sys.modules['wior'].__path__ = [sys.argv[1]]; import wior.data; "
    code += "print([name for name in ('PIL', 'sklearn', 'rich', 'jax') if name in sys.modules])"
    folder = os.path.dirname(os.path.dirname(data.__file__))
    found = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]"]


def published():
    """Every source that a loader knows."""
    names = ("mnist", "omniglot", "tabular", "tiny_imagenet_fs")
    values = [value for name in names for value in vars(sys.modules[f"wior.data.{name}"]).values()]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    return [value for value in values if isinstance(value, Source)]


def test_every_published_file_has_a_checksum_of_full_length_and_a_secure_home():
    assert len(published()) == 4 + 3 + 4 + 3
    for source in published():
        algorithm, value = source.checksum.split(":")
        assert len(value) == {"sha256": 64, "md5": 32}[algorithm]
        assert source.url is None or source.url.startswith("https://")


# arrays


def test_arrays_of_other_names_types_or_shapes_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.zeros((3, 2), np.uint8))
    assert read_arrays(path, {"a": ((None, 2), "u")})["a"].shape == (3, 2)
    for expected, message in (
        ({"b": ((3, 2), "uint8")}, "not an .npz file with the arrays b"),
        ({"a": ((3, 3), "uint8")}, r"a must be uint8 \(3, 3\), got uint8 \(3, 2\)"),
        ({"a": ((3, 2), "int16")}, "a must be int16"),
        ({"a": ((3,), "uint8")}, "a must be"),
    ):
        with pytest.raises(ValueError, match=message):
            read_arrays(path, expected)
    for broken in (path.read_bytes()[:-30], b"", b"\x93NUMPY"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"truncated, damaged or not an \.npz"):
            read_arrays(path, {"a": ((3, 2), "uint8")})
    np.savez(path, a=np.array([print]))  # a pickled object
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(path, {"a": ((1,), "O")})


def test_decoded_arrays_are_remembered_until_their_origin_changes(cache):
    made, expected = [], {"a": ((2,), "uint8")}

    def make():
        made.append(1)
        return {"a": np.array([1, len(made)], np.uint8)}

    for origin, times in (("one", 1), ("one", 1), ("two", 2), ("two", 2)):
        assert remembered("set", origin, expected, make)["a"].tolist() == [1, times]
    (path,) = (cache / "decoded").iterdir()
    path.write_bytes(path.read_bytes()[:-50])
    assert remembered("set", "two", expected, make)["a"].tolist() == [1, 3]
    assert visible(cache) == ["set.npz"]


def test_arrays_that_cannot_be_written_leave_nothing(tmp_path, monkeypatch):
    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        write_arrays(tmp_path / "a.npz", {})
    assert visible(tmp_path) == []
    assert remembered("a", "", {}, lambda: {"b": np.ones(1)})["b"] == 1


# MNIST


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def test_idx_files_are_read_plain_and_compressed(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), np.array([3, 0, 9, 1, 1], np.uint8)
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "labels").write_bytes(idx(labels))
    rows = read_part(tmp_path / "images.gz", tmp_path / "labels", 5)
    np.testing.assert_allclose(rows.features, images.reshape(5, 784) / 255, rtol=1e-6)
    assert rows.features.dtype == np.float32
    assert rows.labels.dtype == np.int32
    assert rows.labels.tolist() == [3, 0, 9, 1, 1]
    (tmp_path / "labels").write_bytes(idx(labels + 1))
    with pytest.raises(ValueError, match="labels from 0 to 9, got 10"):
        read_part(tmp_path / "images.gz", tmp_path / "labels", 5)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda whole: gzip.compress(whole)[:-9], "cannot be read to its end"),
        (lambda whole: whole, "cannot be read to its end"),  # not compressed
        (lambda whole: gzip.compress(b"\x89PNG" + whole[4:]), "begins with 89 50 4e 47"),
        (lambda whole: gzip.compress(b""), "begins with nothing"),
        (lambda whole: gzip.compress(idx(np.zeros((4, 3), np.uint8))), r"shape \(3, 4\), its header says \(4, 3\)"),
        (lambda whole: gzip.compress(idx(np.zeros(12, np.uint8))), r"its header says \(12,\)"),
        (lambda whole: gzip.compress(whole[:-1]), "truncated or damaged: 11 values"),
    ],
)
def test_other_idx_files_are_refused(tmp_path, broken, message):
    path = tmp_path / "a.gz"
    path.write_bytes(broken(idx(np.arange(12, dtype=np.uint8).reshape(3, 4))))
    with pytest.raises(ValueError, match=message):
        read_idx(path, (3, 4))


def test_mnist():
    rows = data.mnist(real_data("mnist/t10k-images-idx3-ubyte.gz"))
    assert [part.features.shape for part in rows] == [(60000, 784), (10000, 784)]
    assert rows.train.features.dtype == np.float32
    assert (rows.train.features.min(), rows.train.features.max()) == (0, 1)
    np.testing.assert_allclose(rows.train.features.mean(dtype=np.float64), 0.1307, atol=1e-4)
    assert rows.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(rows.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_a_truncated_file_of_mnist_is_refused_by_its_checksum(tmp_path):
    folder = real_data("mnist/t10k-labels-idx1-ubyte.gz")
    whole = contents(folder / "mnist" / "t10k-labels-idx1-ubyte.gz")
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"\(10,007 bytes\) is truncated, .* published file ff7bcfd4"):
        files.find(FILES["t10k-labels-idx1-ubyte"], folder=tmp_path)


# tables


def test_libsvm_text_is_read_as_scikit_learn_reads_it(tmp_path):
    from sklearn.datasets import load_svmlight_file

    text = b"-1 1:0.5 3:-2e-3\n1\n1 2:1 4:.25 \n-1 4:7"
    (tmp_path / "a.bz2").write_bytes(bz2.compress(text))
    rows = read_libsvm(tmp_path / "a.bz2", 4, 4)
    features, labels = load_svmlight_file(io.BytesIO(text), n_features=4)
    np.testing.assert_array_equal(rows.features, features.toarray().astype(np.float32))
    np.testing.assert_array_equal(rows.labels, labels > 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:1\n", "must have 2 lines, got 1"),
        (b"1 1:1\n1 x:1\n", "is not LIBSVM text"),
        (b"1 1:1\n1 1:1 2\n", "is not LIBSVM text"),
        (b"1 1:1\n1 4:1\n", "columns 1 to 3"),
        (b"1 1:1\n2 3:1\n", "labels -1 and 1"),
    ],
)
def test_other_text_is_refused(tmp_path, text, message):
    (tmp_path / "a").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        read_libsvm(tmp_path / "a", 2, 3)


def test_ijcnn1():
    parts = data.ijcnn1(real_data("tabular/ijcnn1.bz2"))
    assert [part.features.shape for part in parts] == [(35000, 22), (14990, 22), (91701, 22)]
    assert [part.labels.sum() for part in parts] == [3415, 4853 - 3415, 8712]
    assert set(parts.test.labels) == {0, 1}
    expected = np.zeros(22, np.float32)
    expected[5], expected[10:14] = 1, (-0.731854, 0.173431, 0.0, 0.00027)
    np.testing.assert_array_equal(parts.train.features[0, :14], expected[:14])


def covtype_arrays(n):
    rng = np.random.default_rng(1)
    return {
        "numeric": rng.integers(-100, 7000, (n, 10)).astype(np.int16),
        "wilderness": rng.integers(0, 4, n).astype(np.uint8),
        "soil": rng.integers(0, 40, n).astype(np.uint8),
        "y": rng.integers(1, 8, n).astype(np.uint8),
    }


def test_both_layouts_of_covtype_are_the_same_table(tmp_path):
    arrays = covtype_arrays(9)
    np.savez(tmp_path / "a.npz", **arrays)
    lines = [
        [*numeric, *(area == np.arange(4)), *(soil == np.arange(40)), y]
        for numeric, area, soil, y in zip(*arrays.values(), strict=True)
    ]
    text = "\n".join(",".join(str(int(value)) for value in line) for line in lines).encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    one, other = read_covtype_arrays(tmp_path / "a.npz", 9), read_covtype_text(tmp_path / "a.gz", 9)
    for rows in (one, other):
        np.testing.assert_array_equal(rows.features, np.array(lines)[:, :-1])
        np.testing.assert_array_equal(rows.labels, arrays["y"] - 1)
        assert (rows.features.dtype, rows.labels.dtype) == (np.float32, np.int32)
    for broken, message in (
        (gzip.compress(text)[:-9], "truncated, damaged"),
        (gzip.compress(text[:-3]), "truncated, damaged"),
        (gzip.compress(b"\n".join(text.split(b"\n")[:-1])), r"9 lines of 55 numbers, got \(8, 55\)"),
        (gzip.compress(text[:-1] + b"8"), "classes from 1 to 7"),
    ):
        (tmp_path / "a.gz").write_bytes(broken)
        with pytest.raises(ValueError, match=message):
            read_covtype_text(tmp_path / "a.gz", 9)
    for name, value, message in (("soil", 40, "from 0 to 39, got 40"), ("y", 0, "classes from 1 to 7, got 0")):
        np.savez(
            tmp_path / "a.npz", **{**arrays, name: np.where(np.arange(9) == 4, value, arrays[name]).astype(np.uint8)}
        )
        with pytest.raises(ValueError, match=message):
            read_covtype_arrays(tmp_path / "a.npz", 9)


def test_covtype():
    rows = data.covtype(real_data("tabular/covtype.npz"))
    assert rows.features.shape == (581012, 54)
    assert np.bincount(rows.labels).tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    assert rows.features[0, :10].tolist() == [2596, 51, 3, 258, 0, 510, 221, 232, 148, 6279]
    assert (rows.features[:, 10:14].sum(1) == 1).all()
    assert (rows.features[:, 14:].sum(1) == 1).all()


def test_the_home_of_covtype_is_scikit_learns():
    from sklearn.datasets import _covtype

    assert COVTYPE_TEXT.url == _covtype.ARCHIVE.url
    assert COVTYPE_TEXT.checksum == f"sha256:{_covtype.ARCHIVE.checksum}"


def test_standardized_columns_have_mean_zero_and_deviation_one():
    rng = np.random.default_rng(2)
    by = (rng.normal(size=(500, 3)) * (1, 1000, 0) + (5, -3000, 2.7)).astype(np.float32)
    found = data.standardize(by, by)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(0), (1, 1, 0), atol=1e-5)
    np.testing.assert_allclose(data.standardize(by[:7], by), found[:7])


# Omniglot


def drawings(path, alphabets, images, folder="images_background"):
    """A zip file in the original layout, of (characters, 20, 105, 105) with True for paper."""
    images = iter(images)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{folder}/", "")
        for alphabet, n in alphabets.items():
            for character in range(1, n + 1):
                for drawer, image in enumerate(next(images), start=1):
                    file = io.BytesIO()
                    Image.fromarray(image).save(file, "PNG")
                    name = f"{folder}/{alphabet}/character{character:02}/0{character:03}_{drawer:02}.png"
                    archive.writestr(name, file.getvalue())
    return path


def test_the_split_of_omniglot_is_by_alphabets():
    alphabets = {**BACKGROUND, **EVALUATION}
    assert (len(BACKGROUND), len(EVALUATION), len(alphabets)) == (30, 20, 50)
    assert (sum(BACKGROUND.values()), sum(EVALUATION.values())) == (964, 659)
    assert set(alphabets) > VALID_ALPHABETS | TEST_ALPHABETS
    counted = [part_of(alphabet) for alphabet in alphabets]
    assert [counted.count(part) for part in ("train", "valid", "test")] == [33, 5, 12]


def test_omniglot():
    parts = data.omniglot(real_data("omniglot/omniglot_28.npz"))
    assert [part.images.shape for part in parts] == [(n, 20, 28, 28, 1) for n in (1032, 172, 419)]
    assert all(part.images.dtype == np.uint8 for part in parts)
    assert [len({name.split("/")[0] for name in part.names}) for part in parts] == [33, 5, 12]
    assert len({name for part in parts for name in part.names}) == 1623
    assert 0 < (parts.test.images > 127).mean() < 0.2  # ink is bright and rare


def test_the_tables_of_omniglot_are_those_of_the_files():
    folder = real_data("omniglot/characters.tsv") / "omniglot"
    rows = [line.split("\t") for line in (folder / "characters.tsv").read_text().splitlines()[1:]]
    for half, alphabets in (("images_background", BACKGROUND), ("images_evaluation", EVALUATION)):
        named = [tuple(row[2:]) for row in rows if row[1] == half]
        assert named == sys.modules["wior.data.omniglot"].character_names(alphabets)
    lists = {
        part: {tuple(line.split("/")[:2]) for line in (folder / "splits" / f"vinyals_{part}.txt").read_text().split()}
        for part in ("train", "val", "test")
    }
    parts = {"train": "train", "val": "valid", "test": "test"}
    moved = {name for part, names in lists.items() for name in names if part_of(name[0]) != parts[part]}
    assert moved == {("Gurmukhi", f"character{k:02}") for k in (42, 43, 44, 45)}  # the alphabet that Vinyals' lists cut


def test_converted_drawings_equal_the_arrays(tmp_path):
    folder = real_data("omniglot/images_evaluation.npz") / "omniglot"
    with np.load(folder / "images_evaluation.npz") as file:
        drawn = file["images"][:20]  # Angelic
    with np.load(folder / "omniglot_28.npz") as file:
        expected = file["images"][964 : 964 + 20]
    path = drawings(tmp_path / "a.zip", {"Angelic": 20}, drawn)
    np.testing.assert_array_equal(read_zip(path, {"Angelic": 20}), expected)


def test_the_original_files_of_omniglot(tmp_path, monkeypatch):
    module = sys.modules["wior.data.omniglot"]
    halves = {"BACKGROUND": {"Greek": 2, "Hebrew": 1}, "EVALUATION": {"Keble": 1}}
    rng = np.random.default_rng(3)
    drawn = {half: rng.random((sum(alphabets.values()), 20, 105, 105)) < 0.9 for half, alphabets in halves.items()}
    for half, alphabets in halves.items():
        name = f"images_{half.lower()}"
        path = drawings(tmp_path / f"{name}.zip", alphabets, drawn[half], name)
        monkeypatch.setattr(module, half, alphabets)
        checksum = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
        monkeypatch.setattr(module, f"{half}_ZIP", replace(getattr(module, f"{half}_ZIP"), checksum=checksum))
    parts = data.omniglot(tmp_path)
    assert [part.names for part in parts] == [
        ("Greek/character01", "Greek/character02"),
        ("Hebrew/character01",),
        ("Keble/character01",),
    ]
    small = Image.fromarray(drawn["BACKGROUND"][1, 6]).convert("L").resize((28, 28), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(parts.train.images[1, 6, :, :, 0], 255 - np.asarray(small))
    monkeypatch.setattr(module, "read_zip", None)  # the second time they come from the cache
    np.testing.assert_array_equal(data.omniglot(tmp_path).test.images, parts.test.images)


def test_other_zip_files_are_refused(tmp_path):
    drawn = np.ones((2, 20, 105, 105), bool)
    path = drawings(tmp_path / "a.zip", {"Greek": 2}, drawn)
    with pytest.raises(ValueError, match=r"20 drawings of each of 3 .* missing or too many is Greek/character03/1"):
        read_zip(path, {"Greek": 3})
    with pytest.raises(ValueError, match="1 alphabets, got 40 drawings"):
        read_zip(path, {"Latin": 2})
    drawings(path, {"Greek": 1}, drawn[:1, :, :100])
    with pytest.raises(ValueError, match=r"0001_01.png in .* 105 × 105 pixels, got 105 × 100"):
        read_zip(path, {"Greek": 1})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a zip file"):
        read_zip(path, {"Greek": 1})


def test_rotations_are_four_classes_of_each():
    images = np.random.default_rng(4).integers(0, 256, (3, 2, 5, 5, 1), np.uint8)
    found = data.with_rotations(data.ImageClasses(images, ("a", "b", "c")))
    assert found.images.shape == (12, 2, 5, 5, 1)
    assert found.names[4:8] == ("b/rot000", "b/rot090", "b/rot180", "b/rot270")
    for quarters in range(4):
        np.testing.assert_array_equal(found.images[4 + quarters, 1, :, :, 0], np.rot90(images[1, 1, :, :, 0], quarters))
    with pytest.raises(ValueError, match="images must be square"):
        data.with_rotations(data.ImageClasses(images[:, :, :4], ("a", "b", "c")))


# MiniImageNet


def jpeg(rng, size=(84, 84), mode="RGB"):
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (*size[::-1], 3), np.uint8)).convert(mode).save(file, "JPEG")
    return file.getvalue()


SPLIT = {"train": ("n03", "n01"), "val": ("n04",), "test": ("n02", "n05")}


def in_ravis_layout(folder, ending=".csv", per_class=3):
    """Small lists and images as MiniImageNet has them; one image is larger, one is gray."""
    rng = np.random.default_rng(5)
    (folder / "images").mkdir(parents=True)
    for part, names in SPLIT.items():
        lines = ["filename,label"]
        for name in names:
            for k in range(per_class):
                file = f"{name}{k:08}.jpg"
                size = (120, 90) if (name, k) == ("n01", 1) else (84, 84)
                (folder / "images" / file).write_bytes(jpeg(rng, size, "L" if name == "n04" else "RGB"))
                lines.append(f"{file},{name}")
        text = "\n".join(lines).encode() + b"\n"
        (folder / f"{part}{ending}").write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    if ending.endswith(".gz"):
        for part in SPLIT:
            (folder / f"{part}{ending}").rename(folder / f"ravi_{part}{ending}")


@pytest.mark.parametrize(("below", "ending"), [("mini_imagenet", ".csv"), (".", ".csv.gz")])
def test_lists_with_an_image_folder(tmp_path, monkeypatch, below, ending):
    folder = tmp_path / "data" / below
    in_ravis_layout(folder, ending)
    parts = data.mini_imagenet(tmp_path / "data", strict=False)
    assert [part.names for part in parts] == [("n01", "n03"), ("n04",), ("n02", "n05")]
    assert [part.images.shape for part in parts] == [(n, 3, 84, 84, 3) for n in (2, 1, 2)]
    for images, file in ((parts.train.images[1, 2], "n0300000002.jpg"), (parts.valid.images[0, 1], "n0400000001.jpg")):
        np.testing.assert_array_equal(images, np.asarray(Image.open(folder / "images" / file).convert("RGB")))
    large = Image.open(folder / "images" / "n0100000001.jpg").resize((84, 84), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(parts.train.images[0, 1], np.asarray(large))
    with monkeypatch.context() as patch:  # the second time they come from the cache
        patch.setattr(sys.modules["wior.data.mini_imagenet"], "color", None)
        again = data.mini_imagenet(tmp_path / "data", strict=False)
    np.testing.assert_array_equal(again.test.images, parts.test.images)
    (folder / "images" / "n0200000000.jpg").write_bytes(jpeg(np.random.default_rng(6)))
    changed = data.mini_imagenet(tmp_path / "data", strict=False).test.images != parts.test.images
    assert changed.any(axis=(2, 3, 4)).tolist() == [[True, False, False], [False, False, False]]


def test_lists_that_are_not_ravis_are_refused(tmp_path):
    in_ravis_layout(tmp_path)
    with pytest.raises(ValueError, match="train must have 64 classes of 600 images, got 2 of 3; strict=False"):
        data.mini_imagenet(tmp_path)
    train, val = (tmp_path / f"{part}.csv" for part in ("train", "val"))
    whole = val.read_text()
    for text, message in (
        (train.read_text(), "train and val must have no class in common, got n01, n03"),
        (whole + "n0400000000.jpg,n04\n", "must name each image once, got 1 twice"),
        (whole + "n0300000000.jpg,n09\n", r"of val must have as many images each, got \[1, 3\]"),
        (whole.replace(",n04", ",n06").replace("n04", "n03"), "an image must be in one list alone, got 3 in two"),
        (whole.replace("n0400000000", "n0400000009"), "lacks 1 of 15 images in the lists, first n0400000009.jpg"),
        (whole.replace("n0400000000", "../n04"), "line 2: must be a file in images and its class"),
        (whole.replace("filename", "image"), "must begin with the line filename,label, got image,label"),
        ("", "must begin with the line filename,label, got nothing"),
        (whole[:-4], "line 4: must be a file"),
    ):
        val.write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            data.mini_imagenet(tmp_path, strict=False)
    val.write_text(whole)
    image = tmp_path / "images" / "n0400000002.jpg"
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"n0400000002.jpg \(300 bytes\) is truncated, damaged or not an image"):
        data.mini_imagenet(tmp_path, strict=False)
    assert visible(tmp_path / "cache") == []


def test_ravis_lists_are_known_and_another_split_of_their_classes_is_refused(tmp_path):
    folder = real_data("mini_imagenet/ravi_train.csv.gz") / "mini_imagenet"
    lists = {part: folder / f"ravi_{part}.csv.gz" for part in CLASSES}
    assert [len(read_list(path)) for path in lists.values()] == [64, 16, 20]
    with pytest.raises(FileNotFoundError, match=r"lacks 60,000 of 60,000 images"):  # the split itself was accepted
        read_lists(lists, tmp_path)
    swapped = {part: tmp_path / f"{part}.csv" for part in CLASSES}
    exchange = {"n01532829": "n01855672", "n01855672": "n01532829"}  # a class of train and one of val
    for part, path in lists.items():
        text = re.sub("|".join(exchange), lambda found: exchange[found[0]], contents(path).decode())
        swapped[part].write_text(text)
    with pytest.raises(ValueError, match="classes of train are not those of Ravi's split"):
        read_lists(swapped, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ravi_test\.csv\.gz alone"):
        data.mini_imagenet(folder)


def test_without_mini_imagenet_the_error_says_what_to_put_where(cache):
    with pytest.raises(FileNotFoundError, match="no public download") as error:
        data.mini_imagenet()
    for needed in (str(cache / "mini_imagenet"), "train.csv", "images", "mini-imagenet-cache-train.pkl", "--data DIR"):
        assert needed in str(error.value)


def pickled_parts(folder, protocol):
    rng, images = np.random.default_rng(7), {}
    for part, names in SPLIT.items():
        images[part] = rng.integers(0, 256, (3 * len(names), 84, 84, 3), np.uint8)
        classes = {name: list(range(k, 3 * len(names), len(names))) for k, name in enumerate(names)}
        found = {"image_data": images[part], "class_dict": classes}
        (folder / f"mini-imagenet-cache-{part}.pkl").write_bytes(pickle.dumps(found, protocol))
    return images


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_three_pickles(tmp_path, protocol):
    images = pickled_parts(tmp_path, protocol)
    parts = data.mini_imagenet(tmp_path, strict=False)
    assert [part.names for part in parts] == [("n01", "n03"), ("n04",), ("n02", "n05")]
    np.testing.assert_array_equal(parts.train.images, np.stack([images["train"][1::2], images["train"][0::2]]))
    with pytest.raises(ValueError, match="train must have 64 classes of 600 images, got 2 of 3"):
        data.mini_imagenet(tmp_path)


def test_wrong_pickles_are_refused(tmp_path):
    images, path = np.zeros((4, 84, 84, 3), np.uint8), tmp_path / "a.pkl"
    for found, message in (
        ([1, 2], "must have image_data and class_dict"),
        ({"image_data": images}, "must have image_data and class_dict"),
        (
            {"image_data": images[:, :80], "class_dict": {}},
            r"image_data must be uint8 \(images, 84, 84, 3\), got uint8",
        ),
        ({"image_data": images.astype(float), "class_dict": {}}, "got float64"),
        ({"image_data": images, "class_dict": {}}, "as many images of each class"),
        ({"image_data": images, "class_dict": {"a": [0], "b": [1, 2, 3]}}, "as many images of each class"),
        ({"image_data": images, "class_dict": {"a": [0, 1], "b": [1, 3]}}, "each of the 4 images to one class"),
        ({"image_data": images, "class_dict": {"a": [0, 1], "b": [2, 4]}}, "each of the 4 images to one class"),
    ):
        path.write_bytes(pickle.dumps(found))
        with pytest.raises(ValueError, match=message):
            read_pickle(path)
    path.write_bytes(pickle.dumps({"image_data": images})[:-1000])
    with pytest.raises(ValueError, match="truncated, damaged or not plain data"):
        read_pickle(path)


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_file_cannot_run_anything(tmp_path, protocol):
    path, trace = tmp_path / "a.pkl", tmp_path / "trace"
    for call in (
        Calls(os.system, f"touch {trace}"),
        Calls(eval, f"open({str(trace)!r}, 'w')"),
        Calls(__import__, "os"),
        Calls(np.load, str(trace)),
        Calls(np.dtype, "O"),
        np.array([Calls(os.system, f"touch {trace}")]),
    ):
        path.write_bytes(pickle.dumps({"image_data": call}, protocol))
        with pytest.raises(ValueError, match=r"nothing was run|numbers alone"):
            read_plain_pickle(path)
    assert not trace.exists()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_plain_pickles_are_read_as_they_were_written(tmp_path, protocol):
    arrays = [np.arange(6).reshape(2, 3).astype(kind) for kind in ("u1", "i8", ">i4", "f4", "f8", "?")]
    arrays += [np.asfortranarray(arrays[0]), arrays[1][:, 1:], np.zeros((0, 4))]
    written = {
        "arrays": arrays,
        "one": np.int64(7),
        "text": "é",
        b"raw": b"\xff\x00",
        "none": None,
        "nested": {"a": [1.5]},
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(written, protocol))
    found = read_plain_pickle(tmp_path / "a.pkl")
    for one, other in zip(found.pop("arrays"), written.pop("arrays"), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert found == written


def test_a_pickle_of_python_2_is_read(tmp_path):
    """Written by hand: protocol 2 with byte strings, as old copies of MiniImageNet have them."""
    array = b"\x80\x02}U\nimage_datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    array += (
        b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array += b"\x89U\x03\x00\x80\xfftbs."
    (tmp_path / "a.pkl").write_bytes(array)
    assert read_plain_pickle(tmp_path / "a.pkl")["image_data"].tolist() == [0, 128, 255]


# the stand-in


def tiny_arrays(classes, per_class):
    rng = np.random.default_rng(8)
    jpegs = [jpeg(rng, (64, 64), "L" if k == 3 else "RGB") for k in range(classes * per_class)]
    return {
        "jpeg": np.frombuffer(b"".join(jpegs), np.uint8),
        "offsets": np.cumsum([0, *map(len, jpegs)]),
        "labels": np.tile(np.arange(classes, dtype=np.int16), per_class),
        "wnids": np.array([f"n{k}" for k in range(classes)]),
    }, jpegs


def test_the_stand_ins_files_are_decoded_class_by_class(tmp_path):
    arrays, jpegs = tiny_arrays(2, 3)
    path = tmp_path / "val.npz"
    np.savez(path, **arrays)
    images, names = read_tiny_part(path, 2, 3)
    assert images.shape == (2, 3, 64, 64, 3)
    assert names == ("n0", "n1")
    np.testing.assert_array_equal(images[1, 1], np.asarray(Image.open(io.BytesIO(jpegs[3])).convert("RGB")))
    for name, value, message in (
        ("labels", np.zeros(6, np.int16), "3 images of each of 2 classes"),
        ("offsets", arrays["offsets"] + 1, "offsets must rise from 0"),
        ("wnids", np.array(["n0"]), r"wnids must be U \(2,\)"),
        (
            "jpeg",
            np.zeros_like(arrays["jpeg"]),
            r"image 0 of .*val.npz \(.* bytes\) is truncated, damaged or not an image",
        ),
    ):
        np.savez(path, **{**arrays, name: value})
        with pytest.raises(ValueError, match=message):
            read_tiny_part(path, 2, 3)


def test_tiny_imagenet_fs():
    folder = real_data("tiny_imagenet_fs/val.npz")
    module = sys.modules["wior.data.tiny_imagenet_fs"]
    found = read_tiny_part(files.find(module.FILES["val"], folder=folder), 16, 250)  # the others take seconds more
    assert found.images.shape == (16, 250, 64, 64, 3)
    assert found.images.std() > 50
    rows = [line.split("\t") for line in (folder / "tiny_imagenet_fs" / "classes.tsv").read_text().splitlines()]
    assert found.names == tuple(row[2] for row in rows if row[0] == "val")


# the documentation


def test_the_documented_checksums_are_those_of_the_code():
    page = (files.Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for source in published():
        assert f"| `{source.subfolder}/{source.name}` | {source.checksum.replace(':', ' ')}" in page


def test_blobs_and_glyphs_follow_from_their_seed_and_tell_their_classes_apart():
    made, again, other = blobs(seed=1), blobs(seed=1), blobs(seed=2)
    assert [len(part.labels) for part in made] == [2000, 500, 1000]
    np.testing.assert_array_equal(made.test.features, again.test.features)
    assert np.abs(made.train.features - other.train.features).max() > 0.1
    centers = np.stack([made.train.features[made.train.labels == label].mean(0) for label in range(4)])
    nearest = ((made.test.features[:, None] - centers) ** 2).sum(-1).argmin(1)
    assert (nearest == made.test.labels).mean() > 0.9
    parts = glyphs(train=6, valid=2, test=3, per_class=5, side=20)
    assert [part.images.shape for part in parts] == [(n, 5, 20, 20, 1) for n in (6, 2, 3)]
    assert parts.train.images.dtype == np.uint8
    assert set(np.unique(parts.train.images)) == {0, 255}
    flat = parts.train.images.reshape(6, 5, -1) > 0
    within = (flat[:, 0] & flat[:, 1]).sum(-1).mean()
    between = (flat[:-1, 0] & flat[1:, 1]).sum(-1).mean()
    assert within > 2 * between  # two tries at one glyph share more ink than two glyphs
    with pytest.raises(ValueError, match="classes is too small"):
        blobs(classes=1)
