"""Data that stay on the host: what a source of rows is, and the rows that were gathered from it."""

from wior.streaming.sources import SourceError, Streamed, from_parquet

__all__ = ["SourceError", "Streamed", "from_parquet"]
