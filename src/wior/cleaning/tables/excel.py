"""Excel workbooks (.xlsx), through openpyxl: the first sheet, and of formulas the values that Excel saved."""

from __future__ import annotations

import contextlib
import datetime
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wior.cleaning.tables.arrow_rows import ArrowRows
from wior.cleaning.tables.errors import InputError, listed, shown
from wior.cleaning.tables.row_file import Stamp, with_index

MOMENTS = (datetime.datetime, datetime.date, datetime.time)


class ExcelFile(ArrowRows):
    """A copy has the values of that sheet, not its formulas and colors."""

    suffix = ".xlsx"

    def __init__(self, path: Path):
        self._stamp = Stamp(path)
        sheets, self._sheet, lines = _read(path)
        if not lines:
            raise InputError(f"{path}: its first sheet {shown(self._sheet)} is empty")
        width = max(len(line) for line in lines)
        names = ["" if cell is None else str(cell) for cell in lines[0]] + [""] * (width - len(lines[0]))
        filled = [
            number
            for number, name in enumerate(names)
            if name or any(_cell(line, number) is not None for line in lines)
        ]
        if len(lines) == 1:
            raise InputError(f"{path} has a header and no rows")
        self._cells = [[_cell(line, number) for number in filled] for line in lines[1:]]
        self._header = [names[number] for number in filled]
        names = with_index(self._header)
        columns = [pa.array([_text(line[at]) for line in self._cells], pa.string()) for at in range(len(names))]
        notes = (
            [f"{path}: only its first sheet {shown(self._sheet)} is read, not {listed(sheets[1:])}"]
            if sheets[1:]
            else []
        )
        super().__init__(path, pa.Table.from_arrays(columns, names), notes)

    def write(self, path: Path, label: str, keep: np.ndarray, changes: Mapping[int, str]) -> None:
        openpyxl = _openpyxl(self.path)
        self._stamp.check()
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet(self._sheet)
        sheet.append([name or None for name in self._header])
        column = self.names.index(label)
        for place in np.flatnonzero(keep).tolist():
            line = list(self._cells[place])
            if place in changes:
                line[column] = _as(line[column], changes[place])
            sheet.append([_literal(openpyxl, sheet, value) for value in line])
        with path.open("xb") as out:
            book.save(out)


def _read(path: Path) -> tuple[list[str], str, list[tuple[Any, ...]]]:
    """The names of the sheets, the first one, and its lines without empty ones."""
    openpyxl = _openpyxl(path)
    with _damaged(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that are left out, such as drop-down lists
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            sheet = book.worksheets[0]
            lines = [line for line in sheet.iter_rows(values_only=True) if any(cell is not None for cell in line)]
            return list(book.sheetnames), sheet.title, lines
        finally:
            book.close()


def _openpyxl(path: Path) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise InputError(
            f"{path}: Excel files are read by openpyxl, which is missing: pip install 'wior[excel]'"
        ) from error
    return openpyxl


@contextlib.contextmanager
def _damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is damaged or no Excel file: {reason}") from error


def _cell(line: tuple[Any, ...], number: int) -> Any:
    return line[number] if number < len(line) else None


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, MOMENTS):
        return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else value.isoformat()
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _as(old: Any, text: str) -> Any:
    """A new label, a number where the old one is."""
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(text)
    return text


def _literal(openpyxl: Any, sheet: Any, value: Any) -> Any:
    """A text that begins with = must not become a formula."""
    if not isinstance(value, str) or not value.startswith("="):
        return value
    cell = openpyxl.cell.WriteOnlyCell(sheet, value)
    cell.data_type = "s"
    return cell
