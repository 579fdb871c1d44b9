"""Users' data for `wior clean`: tables, arrays and image folders, and what is written of them."""

from wior.cleaning.sources.errors import InputError
from wior.cleaning.sources.opening import open_rows
from wior.cleaning.sources.reading import read
from wior.cleaning.sources.row_file import RowFile
from wior.cleaning.sources.source import Source, Task

__all__ = ["InputError", "RowFile", "Source", "Task", "open_rows", "read"]
