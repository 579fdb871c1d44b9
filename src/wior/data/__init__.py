"""Data sets, as rows of features and labels."""

from wior.data.digits import Rows, Split, digits, split

__all__ = ["Rows", "Split", "digits", "split"]
