"""Users' data for `wior clean`: tables, arrays and image folders, and what is written of them."""

from wior.cleaning.tables.asked import Asked
from wior.cleaning.tables.errors import InputError
from wior.cleaning.tables.frames import job_of
from wior.cleaning.tables.job import UNKNOWN, Job
from wior.cleaning.tables.opening import open_rows
from wior.cleaning.tables.reading import read
from wior.cleaning.tables.row_file import RowFile

__all__ = ["UNKNOWN", "Asked", "InputError", "Job", "RowFile", "job_of", "open_rows", "read"]
