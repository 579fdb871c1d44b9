"""Which kind of file or folder a path is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from wior.cleaning.tables.arrays import ArrayFile
from wior.cleaning.tables.delimited import DelimitedFile
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.excel import ExcelFile
from wior.cleaning.tables.hugging_face import HuggingFaceFolder, is_hugging_face
from wior.cleaning.tables.images import ImageFolder
from wior.cleaning.tables.json_lines import JsonLinesFile
from wior.cleaning.tables.parquet import ParquetFile
from wior.cleaning.tables.parquet_folder import ParquetFolder, has_parquet
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.text_source import text_suffix

FILES: Mapping[str, Callable[[Path], RowFile]] = {
    ".csv": DelimitedFile,
    ".txt": DelimitedFile,
    ".tsv": lambda path: DelimitedFile(path, b"\t"),
    ".tab": lambda path: DelimitedFile(path, b"\t"),
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
    ".xlsx": ExcelFile,
    ".npz": ArrayFile,
}
FOLDERS: tuple[tuple[Callable[[Path], bool], Callable[[Path], RowFile]], ...] = (
    (is_hugging_face, HuggingFaceFolder),
    (has_parquet, ParquetFolder),
    (lambda _: True, ImageFolder),
)
TEXTS = (".csv", ".txt", ".tsv", ".tab", ".jsonl", ".ndjson")  # these may be compressed


def open_rows(path: Path) -> RowFile:
    path = path.expanduser()
    if path.is_dir():
        return next(opened(path) for fits, opened in FOLDERS if fits(path))
    if not path.exists():
        raise InputError(f"{path} is not there")
    suffix = path.suffix.lower()
    inner = text_suffix(path)
    if suffix not in FILES and inner in TEXTS:
        suffix = inner
    if suffix not in FILES:
        raise InputError(
            f"{path}: files of the kind {path.suffix.lower() or 'without a suffix'} are not read; give "
            f"{', '.join(FILES)}, the texts also compressed (.gz, .bz2, .xz, .zip, .zst), or a folder of images, of "
            "Parquet files or of a Hugging Face dataset"
        )
    return FILES[suffix](path)
