"""Labels of a typed column replaced by texts: in the column's own type if the texts can be of it, else all as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def type_for(kind: pa.DataType, texts: Iterable[str]) -> pa.DataType:
    try:
        pc.cast(pa.array(sorted(set(texts)), pa.string()), _plain(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.string()
    return kind


def relabeled(column: pa.Array, kind: pa.DataType, places: np.ndarray, texts: Sequence[str]) -> pa.Array:
    """The column as the type `kind`, with the texts in `places`, which rise."""
    if not len(texts) and column.type == kind:
        return column
    old = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    replaced = np.zeros(len(column), bool)
    replaced[places] = True
    plain = _plain(kind)
    new = pc.replace_with_mask(pc.cast(old, plain), pa.array(replaced), pc.cast(pa.array(texts, pa.string()), plain))
    return pc.cast(new.dictionary_encode(), kind) if pa.types.is_dictionary(kind) else new


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
