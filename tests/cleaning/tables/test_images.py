"""Folders of images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from user_tables import ROWS, known, names, verified_by, write
from wior.cleaning.tables import Asked, InputError, images, read


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
    job = gallery()
    assert (job.kind, job.path, job.fields) == ("images", Path("train"), [])
    assert job.ids.tolist() == ["cat/1.png", "cat/2.png", "dog/1.png", "dog/3.bmp"]
    assert names(job, job.given) == ["cat", "cat", "dog", "dog"]
    assert (job.features.dtype, job.features.shape) == (np.uint8, (4, 64))
    assert job.features[:, 0].tolist() == [0, 10, 20, 30]
    assert job.images(np.array([3, 1])).shape == (2, 8, 8)
    assert job.records(np.array([0, 1])) == [[], []]
    assert known(job) == {1: "dog"}
    assert job.judged.tolist() == [0, 2, 3]
    assert job.fates["image"] == {"kind": "pictures", "shape": [4, 8, 8]}


def test_modes_of_images(folder):
    picture("train/a/1.png", mode="RGB", value=(200, 0, 0))
    picture("train/a/2.jpeg", mode="L", value=100)
    picture("train/b/3.PNG", mode="RGBA", value=(0, 200, 0, 0))
    picture("train/b/4.gif", mode="P", value=0)
    picture("train/b/5.webp", mode="RGB", value=(0, 0, 0))
    picture("train/b/6.png", mode="LA", value=(50, 255))
    Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)).save("train/b/7.png")
    picture("verified/a/v.png", mode="RGB", value=(1, 2, 3))
    train = verified_by(Path("train"), Path("verified"), label=None)
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
    job = verified_by(Path("train"), Path("verified"), label=None)
    assert job.features[:, 0].tolist() == [0x10, 0xFF]
    assert known(job) == {1: "a"}  # the same picture


def test_pixels_of_different_sizes_get_the_commonest(folder):
    for name, size in (("a/1", (10, 6)), ("a/2", (10, 6)), ("b/3", (6, 6)), ("b/4", (20, 12)), ("b/5", (1, 500))):
        picture(f"train/{name}.png", size, value=0)
    picture("verified/a/v.png", (30, 12), value=0)
    job = verified_by(Path("train"), Path("verified"), label=None, backbone="pixels")
    shown = job.images(np.arange(5))
    assert shown.shape == (5, 6, 10)
    assert (shown[[0, 1, 3]] == 0).all()
    assert shown[2, 0].tolist() == [255, 255] + [0] * 6 + [255, 255]
    assert (shown[4, 3] == 0).sum() == 1
    assert (job.outside_features.reshape(6, 10)[[0, 5]] == 255).all()
    assert "3 images of 5 scaled to 10 × 6 pixels, with white beside those of another shape" in job.notes


def test_large_pixels_become_64_wide(folder):
    picture("train/a/1.jpg", (640, 480), "RGB", (5, 5, 5))
    picture("train/b/2.png", (480, 640), "RGB", (5, 5, 5))
    turned = Image.Exif()
    turned[0x0112] = 6
    picture("train/b/3.jpg", (640, 480), "RGB", (5, 5, 5), exif=turned)
    picture("verified/a/1.png", (640, 480), "RGB", (10, 10, 10))
    job = verified_by(Path("train"), Path("verified"), label=None, backbone="pixels")
    shown = job.images(np.arange(3))
    assert shown.shape == (3, 64, 64, 3)
    dark = (shown < 15).all(3)
    assert [(one.any(1).sum(), one.any(0).sum()) for one in dark] == [(48, 64), (64, 48), (64, 48)]
    assert "3 images of 3 scaled to 64 × 64" in job.notes[0]
    assert job.fates["image"] == {"kind": "pictures", "shape": [3, 64, 64, 3]}


def test_what_is_no_image_is_skipped_and_noted(folder):
    gallery()
    write("train/readme.txt", "")
    write("train/cat/Thumbs.db", "")
    write("train/.DS_Store", "")
    write("train/cat/.hidden.png", "")
    picture("train/cat/deep/1.png")
    Path("train/empty").mkdir()
    job = verified_by(Path("train"), Path("verified"), label=None)
    assert len(job.ids) == 4
    assert job.notes[:3] == [
        "train: no images, skipped: 'cat/Thumbs.db', 'readme.txt'",
        "train: folders inside of classes, skipped: 'cat/deep'",
        "train: folders without images, skipped: 'empty'",
    ]


def test_links_are_read_and_copied_as_files(folder):
    gallery()
    picture("elsewhere/real.png", value=77)
    Path("train/dog/link.png").symlink_to(folder / "elsewhere/real.png")
    Path("train/fox").symlink_to(folder / "elsewhere")
    train = verified_by(Path("train"), Path("verified"), label=None)
    assert train.ids[-2:].tolist() == ["dog/link.png", "fox/real.png"]
    out = train.write(Path("copy"), np.ones(6, bool))
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert (out / "dog/link.png").read_bytes() == Path("elsewhere/real.png").read_bytes()


def test_a_copy_of_images(folder):
    train = gallery()
    before = {path: path.read_bytes() for path in Path("train").rglob("*.*")}
    Path("out").mkdir()
    # cat/1.png becomes a dog, of which there is a 1.png
    out = train.write(Path("out"), np.array([True, True, True, False]), {0: "dog", 1: "new one"})
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
        train.write(Path("train/copy"), everything)
    for label in ("../up", "a\\b", ".hidden", " ", ".."):
        with pytest.raises(InputError, match="cannot be the name of a folder of images"):
            train.write(Path("new"), everything, {0: label})
    assert not Path("new").exists()
    assert list(train.write(Path("none"), ~everything).iterdir()) == []


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
        read(Asked(Path("train"), label=None, verified_column="ok"))
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
