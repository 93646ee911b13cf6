"""Packs state values into plain arrays in which one sentinel value means unknown.

Place in the walk: between Arrow's columns and the arithmetic of the judges. A null costs a mask
beside every array; inside a state, and only there, UNKNOWN takes its place.

Invariant: what leaves a judge as a row has a null where the state had UNKNOWN. Absent on purpose:
arithmetic. Who calculates with a number looks first whether it is known.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.mart import Positions

UNKNOWN: Final = int(np.iinfo(np.int64).min)
"""No offset, count or moment is as small as this."""
NEVER: Final = int(np.iinfo(np.int64).max)
"""A moment that does not come."""

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""A yes or no per row."""


def numbers(column: pa.ChunkedArray | pa.Array) -> Positions:
    """Whole numbers of a column; UNKNOWN where it is null."""
    if column.type != pa.int64():
        column = pc.cast(column, pa.int64())
    if column.null_count:
        column = pc.fill_null(column, UNKNOWN)
    return np.asarray(column)


def flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    """Yes or no per row; no where it is null."""
    return np.asarray(pc.fill_null(column, False)).astype(bool)


def places(rows: Positions, count: int) -> Positions | slice:
    """The rows to index columns of so many with; all of them as a slice, which copies nothing: what
    is read by it changes with the column.
    """
    return slice(None) if len(rows) == count else rows


def as_run(rows: Positions) -> Positions | slice:
    """Rows; as a slice where each lies right behind the one before, which copies nothing."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def as_column(values: Positions, kind: pa.DataType | None = None) -> pa.Array:
    """The numbers as a column; null where one is UNKNOWN."""
    unknown = values == UNKNOWN
    if unknown.any():
        column = pa.array(np.where(unknown, 0, values), mask=unknown)
    else:
        column = pa.array(values)
    return column if kind is None or column.type == kind else pc.cast(column, kind)


def truncated(dividend: Positions, divisor: Positions | int) -> Positions:
    """The quotient towards zero; the divisor is positive."""
    quotient = np.abs(dividend) // divisor
    return np.where(dividend < 0, -quotient, quotient)
