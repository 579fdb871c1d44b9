"""What the user asks of `wior clean`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wior.cleaning.tables import Asked

ROWS_TO_VERIFY = 100
# the options of the files, by the fields of `Asked`
OPTIONS = {
    "label": "--label",
    "verified": "--verified",
    "verified_column": "--verified-column",
    "verified_label": "--verified-label",
    "id_column": "--id",
    "embeddings": "--embeddings",
    "probabilities": "--probabilities",
    "backbone": "--backbone",
}
OF_BILEVEL_DESIGNS = ("outer_lr", "inner_lr", "l2", "epochs", "batch_size")


@dataclasses.dataclass(frozen=True)
class Request:
    """The files, the output folder, and how to learn."""

    asked: Asked
    out: Path
    relabel: bool = False
    # of `LabelCleaner`, where they are not its own
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    progress: bool = False
    checkpoint: Path | None = None
    resume: bool = False
    verify: int = ROWS_TO_VERIFY  # rows on the page to verify
    page_only: bool = False


def the_command(request: Request, verified: str) -> str:
    """The command line that cleans the same files, with one more file of verified rows."""
    asked = request.asked
    words = ["wior", "clean", str(asked.train)]
    for field, option in OPTIONS.items():
        value = getattr(asked, field)
        if value is not None and field != "verified":
            words += [option, str(value)]
    for file in (*asked.verified_files, verified):
        words += ["--verified", str(file)]
    if asked.ignore:
        words += ["--ignore", ",".join(asked.ignore)]
    # the folder of `wior verify` holds a page alone, and is not replaced by what is found
    return shlex.join(words if request.page_only else [*words, "--out", str(request.out)])


def unused(request: Request) -> list[str]:
    """The options that bilevel designs alone use, where the user has given them."""
    given = [name for name in OF_BILEVEL_DESIGNS if request.settings.get(name) is not None]
    return [f"--{name.replace('_', '-')}" for name in given] + (["--checkpoint"] if request.checkpoint else [])
