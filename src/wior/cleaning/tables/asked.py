"""What the user says of the files that `wior clean` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """The files, and which of their columns are what; a name in a message is the option of the command line."""

    train: Path
    label: str | None = None  # the column with the labels; of arrays its name
    verified: Path | tuple[Path, ...] | None = None  # a file of verified rows, or several
    verified_column: str | None = None  # a column of `train` that marks rows whose label is right
    verified_label: str | None = None  # a column of `train` with the right label, empty where nobody looked
    id_column: str | None = None
    ignore: tuple[str, ...] = ()
    embeddings: Path | None = None  # features of every row, in place of those made from its columns or pixels
    probabilities: Path | None = None  # of every row and class, by a model of the user's own, out of fold
    backbone: str | None = None  # what turns pictures into features; None: the best one that is installed
    progress: bool = False  # shown for what takes long

    @property
    def verified_files(self) -> tuple[Path, ...]:
        """All files of verified rows."""
        if self.verified is None:
            return ()
        return self.verified if isinstance(self.verified, tuple) else (self.verified,)
