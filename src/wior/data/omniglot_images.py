"""Omniglot: 1623 characters of 50 alphabets, each drawn by 20 people, as 28 × 28 pixels.

The parts are split by alphabets, 33/5/12: characters of one alphabet resemble each other, so a split of shuffled
characters tests on what was nearly trained on. The split is that of Vinyals et al. (2016) with one change. Theirs has
1028, 172 and 423 characters and cuts through Gurmukhi, 41 characters to train and 4 to test; here the whole alphabet is
in the training part, which makes 1032, 172 and 419.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wior.data.arrays import read_arrays, remembered
from wior.data.few_shot import FewShotParts, ImageClasses
from wior.data.files import find
from wior.data.images import ink
from wior.data.published_file import PublishedFile
from wior.running.progress import counter

# alphabets in the order of omniglot_28.npz, with their numbers of characters
BACKGROUND = {
    "Arcadian": 26,
    "Armenian": 41,
    "Asomtavruli_(Georgian)": 40,
    "Balinese": 24,
    "Bengali": 46,
    "Blackfoot_(Canadian_Aboriginal_Syllabics)": 14,
    "Braille": 26,
    "Cyrillic": 33,
    "Early_Aramaic": 22,
    "Syriac_(Estrangelo)": 23,
    "Anglo-Saxon_Futhorc": 29,
    "Futurama": 26,
    "Grantha": 43,
    "Greek": 24,
    "Gujarati": 48,
    "Hebrew": 22,
    "Japanese_(hiragana)": 52,
    "Inuktitut_(Canadian_Aboriginal_Syllabics)": 16,
    "Malay_(Jawi_-_Arabic)": 40,
    "Japanese_(katakana)": 47,
    "Korean": 40,
    "Latin": 26,
    "Alphabet_of_the_Magi": 20,
    "Mkhedruli_(Georgian)": 41,
    "Burmese_(Myanmar)": 34,
    "N_Ko": 33,
    "Ojibwe_(Canadian_Aboriginal_Syllabics)": 14,
    "Sanskrit": 42,
    "Tagalog": 17,
    "Tifinagh": 55,
}
EVALUATION = {
    "Angelic": 20,
    "Atemayar_Qelisayer": 26,
    "Atlantean": 26,
    "Aurek-Besh": 26,
    "Avesta": 26,
    "Ge_ez": 26,
    "Glagolitic": 45,
    "Gurmukhi": 45,
    "Kannada": 41,
    "Keble": 26,
    "Malayalam": 47,
    "Manipuri": 40,
    "Mongolian": 30,
    "Old_Church_Slavonic_(Cyrillic)": 45,
    "Oriya": 46,
    "Syriac_(Serto)": 23,
    "Sylheti": 28,
    "Tengwar": 25,
    "Tibetan": 42,
    "ULOG": 26,
}
VALID_ALPHABETS = frozenset({"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"})
TEST_ALPHABETS = frozenset(
    {
        "Kannada",
        "Keble",
        "Malayalam",
        "Manipuri",
        "Mongolian",
        "Old_Church_Slavonic_(Cyrillic)",
        "Oriya",
        "Sylheti",
        "Syriac_(Serto)",
        "Tengwar",
        "Tibetan",
        "ULOG",
    }
)
DRAWERS, DRAWN, SIDE = 20, 105, 28

HOME = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
ARRAYS = PublishedFile(
    "omniglot", ("omniglot_28.npz",), "sha256:ec5ff9be97534b5913d2b8312c58ebbf930aefa1a9bd8bfd5aea1c138e08c97d"
)
BACKGROUND_ZIP, EVALUATION_ZIP = (
    PublishedFile("omniglot", (f"{name}.zip",), f"md5:{md5}", f"{HOME}/{name}.zip")
    for name, md5 in (
        ("images_background", "68d2efa1b9178cc56df9314c21c6e718"),
        ("images_evaluation", "6b91aef0f799c5bb55b94e3f2daec811"),
    )
)


def omniglot(folder: str | Path | None = None, *, progress: bool = False) -> FewShotParts:
    """Omniglot's drawings, 28 × 28 × 1, ink 255 on 0, not rotated.

    Parameters
    ----------
    folder : str or Path, optional
        Where to look first; then in `WIOR_DATA`, in the cache, and at the public address.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    FewShotParts
        1032, 172 and 419 characters of 33, 5 and 12 alphabets, 20 drawings each.

    Examples
    --------
    >>> from wior.data import omniglot
    >>> omniglot().train.images.shape  # doctest: +SKIP
    (1032, 20, 28, 28, 1)
    """
    characters = sum(BACKGROUND.values()) + sum(EVALUATION.values())
    expected = {"images": ((characters, DRAWERS, SIDE, SIDE), "uint8")}
    path = find(ARRAYS, BACKGROUND_ZIP, folder=folder, progress=progress)
    if path.suffix == ".npz":
        return by_alphabets(read_arrays(path, expected)["images"])
    other = find(EVALUATION_ZIP, folder=folder, progress=progress)

    def convert() -> dict[str, np.ndarray]:
        halves = (read_zip(path, BACKGROUND, progress), read_zip(other, EVALUATION, progress))
        return {"images": np.concatenate(halves)}

    made_from = f"{BACKGROUND_ZIP.checksum} {EVALUATION_ZIP.checksum}"
    return by_alphabets(remembered("omniglot_28", made_from, expected, convert)["images"])


def by_alphabets(images: np.ndarray) -> FewShotParts:
    """All characters, in the order of the tables above, cut into the three parts."""
    names = [f"{alphabet}/{name}" for alphabet, name in character_names({**BACKGROUND, **EVALUATION})]
    parts = np.array([part_of(name.partition("/")[0]) for name in names])

    def part(wanted: str) -> ImageClasses:
        rows = np.flatnonzero(parts == wanted)
        return ImageClasses(images[rows, ..., None], tuple(names[row] for row in rows))

    return FewShotParts(part("train"), part("valid"), part("test"))


def part_of(alphabet: str) -> str:
    return "valid" if alphabet in VALID_ALPHABETS else "test" if alphabet in TEST_ALPHABETS else "train"


def character_names(alphabets: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(alphabet, f"character{k:02}") for alphabet, n in alphabets.items() for k in range(1, n + 1)]


def read_zip(path: Path, alphabets: Mapping[str, int], progress: bool = False) -> np.ndarray:
    """The drawings of a file, (characters, 20, 28, 28): `.../character01/0123_07.png` is that of drawer 7."""
    characters = character_names(alphabets)
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is truncated, damaged or not a zip file: {error}") from error
    with archive, counter(progress, f"converting {path.name}") as at:
        drawings = {}
        for entry in archive.namelist():
            *_, alphabet, character, file = ("", "", *entry.split("/"))
            if file.endswith(".png"):
                drawings[alphabet, character, int(file[-len("07.png") : -len(".png")])] = entry
        wanted = [(*character, drawer) for character, drawer in itertools.product(characters, range(1, DRAWERS + 1))]
        if set(drawings) != set(wanted):
            first = min(set(drawings) ^ set(wanted))
            raise ValueError(
                f"{path} must have {DRAWERS} drawings of each of {len(characters)} characters of {len(alphabets)} "
                f"alphabets, got {len(drawings)} drawings; the first that is missing or too many is "
                f"{'/'.join(map(str, first))}"
            )
        images = np.empty((len(wanted), SIDE, SIDE), np.uint8)
        for place, key in enumerate(wanted):
            images[place] = ink(archive.read(drawings[key]), f"{drawings[key]} in {path}", DRAWN, SIDE)
            at(place + 1, len(wanted))
    return images.reshape(len(characters), DRAWERS, SIDE, SIDE)
