"""Users' data for `wior clean`: tables, arrays and image folders, and what is written of them."""

from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.reading import read
from wior.cleaning.tables.row_file import RowFile
from wior.cleaning.tables.source import Source, Task

__all__ = ["InputError", "RowFile", "Source", "Task", "open_rows", "read"]
