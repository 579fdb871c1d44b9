"""Which kind of file or folder a path is."""

from __future__ import annotations

from pathlib import Path

from wior.cleaning.tables.arrays import ArrayFile
from wior.cleaning.tables.delimited import DelimitedFile
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.images import ImageFolder
from wior.cleaning.tables.parquet import ParquetFile
from wior.cleaning.tables.row_file import RowFile


def open_rows(path: Path) -> RowFile:
    path = path.expanduser()
    if path.is_dir():
        return ImageFolder(path)
    if not path.exists():
        raise InputError(f"{path} is not there")
    match path.suffix.lower():
        case ".csv":
            return DelimitedFile(path, b",")
        case ".tsv" | ".tab":
            return DelimitedFile(path, b"\t")
        case ".parquet" | ".pq":
            return ParquetFile(path)
        case ".npz":
            return ArrayFile(path)
        case other:
            known = ".csv, .tsv, .tab, .parquet, .pq, .npz, or a folder of images"
            raise InputError(f"{path}: files of the kind {other or 'without a suffix'} are not read; give {known}")
