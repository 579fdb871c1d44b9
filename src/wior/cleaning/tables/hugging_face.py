"""Datasets of Hugging Face as `save_to_disk` leaves them: folders of Arrow files; a copy is a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from wior.cleaning.tables.arrow_rows import ArrowRows
from wior.cleaning.tables.errors import InputError, listed, shown

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
TRAIN = "train"


def is_hugging_face(path: Path) -> bool:
    return (path / STATE).is_file() or (path / SPLITS).is_file()


class HuggingFaceFolder(ArrowRows):
    """A dataset, or of several splits the one called train."""

    def __init__(self, path: Path):
        notes = [f"{path}: a copy of a Hugging Face dataset is a Parquet file"]
        folder = path
        if (path / SPLITS).is_file():
            splits = _json(path / SPLITS).get("splits", [])
            if TRAIN not in splits and len(splits) != 1:
                raise InputError(f"{path} has the splits {listed(splits)}; give the folder of one of them")
            split = TRAIN if TRAIN in splits else splits[0]
            folder = path / split
            if len(splits) > 1:
                notes.append(f"{path}: of its splits {listed(splits)}, {shown(split)} is read")
        table = _table(folder)
        names = _class_names(folder)
        for column, labels in names.items():
            if column in table.column_names:
                table = _named(path, table, column, labels)
        super().__init__(path, table, notes)


def _table(folder: Path) -> pa.Table:
    state = _json(folder / STATE)
    if state.get("_indices_data_files"):
        raise InputError(f"{folder}: its rows are chosen by an index; call flatten_indices() before save_to_disk()")
    try:
        files = [folder / Path(entry["filename"]).name for entry in state["_data_files"]]
        # the maps are not closed: the table lies in them
        return pa.concat_tables([pyarrow.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in files])
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise InputError(f"{folder} is damaged or no Hugging Face dataset: {' '.join(str(error).split())}") from error


def _class_names(folder: Path) -> dict[str, list[str]]:
    features = _json(folder / INFO).get("features") or {} if (folder / INFO).is_file() else {}
    return {
        name: [str(text) for text in feature["names"]]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _named(path: Path, table: pa.Table, column: str, names: list[str]) -> pa.Table:
    """The names in place of the numbers of a class label; -1 is a label that nobody knows."""
    codes = pc.cast(table.column(column), pa.int64())
    codes = pc.if_else(pc.equal(codes, -1), pa.scalar(None, pa.int64()), codes)
    wrong = pc.or_(pc.less(codes, 0), pc.greater_equal(codes, len(names)))
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py() + 1
        raise InputError(
            f"{path}, row {row}, column {shown(column)}: it has {len(names)} names and no number {codes[row - 1]}"
        )
    return table.set_column(table.column_names.index(column), column, pc.take(pa.array(names), codes))


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold an object")
    return found
