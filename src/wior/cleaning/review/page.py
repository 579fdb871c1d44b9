"""A page: one HTML file that needs no server, no network and nothing beside it.

Its content security policy allows its own script and style, by their hashes, and nothing else. Its scripts share one
scope. What it shows are blocks of data, which `blocks.py` makes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from wior.saving.whole import whole

# what both pages have; other scripts of a page come after these
SCRIPTS = (
    "csv.js",
    "blocks.js",
    "elements.js",
    "numbers.js",
    "texts.js",
    "messages.js",
    "storage.js",
    "files.js",
    "pictures.js",
    "marks.js",
    "labelsearch.js",
    "letterkeys.js",
)
STYLE = "page.css"
SKELETON = "page.html"


class Parts(NamedTuple):
    """The files that make a page, beside those that every page has."""

    title: str
    body: str
    style: str
    scripts: Sequence[str]


def write_page(path: Path, parts: Parts, blocks: Iterable[str]) -> None:
    """All of it or nothing."""
    with whole(path) as unfinished, unfinished.open("x", encoding="utf-8", newline="\n") as file:
        _write(file, parts, blocks)


def _write(file: TextIO, parts: Parts, blocks: Iterable[str]) -> None:
    style = _resource(STYLE) + _resource(parts.style)
    script = "(() => {\n'use strict';\n" + "\n".join(map(_resource, (*SCRIPTS, *parts.scripts))) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_hash_source(script)}; style-src {_hash_source(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    before, after = _resource(SKELETON).split("$data")
    before = before.replace("$policy", policy).replace("$style", style).replace("$title", parts.title)
    file.write(before.replace("$body", _resource(parts.body)))
    file.writelines(blocks)
    file.write(after.replace("$script", script))


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return importlib.resources.files("wior.cleaning.review").joinpath(name).read_text(encoding="utf-8")
