"""Converts declared tables to Arrow schemas and spooled rows to Arrow columns.

Invariant: the schema comes from `engine.telemetry.tables` alone, meanings included, as column
comments. Timestamps are microseconds with time zone UTC: without a zone Delta would need a table
feature that not every reader knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from engine.foundation.errors import LakeError
from engine.foundation.units import SECOND_US
from engine.telemetry.frames import Values
from engine.telemetry.tables import EVENT_DATE, Column, ColumnType, Table

_RANGE: Final = pa.struct([("from_offset", pa.int64()), ("to_offset", pa.int64())])
_OWNED: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("committed", pa.int64()),
        ("pulled", pa.int64()),
    ]
)
_REPLICA: Final = pa.struct(
    [
        ("replica", pa.string()),
        ("replicated", pa.int64()),
        ("behind_bytes", pa.int64()),
        ("behind_ms", pa.int64()),
    ]
)
ARROW_TYPES: Final[Mapping[ColumnType, pa.DataType]] = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.LONG: pa.int64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.DATE: pa.date32(),
    ColumnType.STRINGS: pa.list_(pa.string()),
    ColumnType.LONGS: pa.list_(pa.int64()),
    ColumnType.RANGES: pa.list_(_RANGE),
    ColumnType.OWNED_QUEUES: pa.list_(_OWNED),
    ColumnType.TABLE_COUNTS: pa.list_(pa.struct([("table", pa.string()), ("rows", pa.int64())])),
    ColumnType.REPLICAS: pa.list_(_REPLICA),
}
"""Of each kind of column, in bronze and in gold."""
_DAY_US: Final = 24 * 60 * 60 * SECOND_US


class SpooledRow(NamedTuple):
    """A row as the spool had it, with what its place there says about it."""

    seq: int
    broker_epoch: int
    event_time: int
    values: Values


class Speaker(NamedTuple):
    """The common columns that are the same in every row of one emitter."""

    cluster: str
    broker: str
    emitter: str


def arrow_schema(table: Table) -> pa.Schema:
    """Columns of `table` with nullability and meaning."""
    return pa.schema([_field(column) for column in table.columns])


def _field(column: Column) -> pa.Field:
    return pa.field(
        column.name,
        ARROW_TYPES[column.type],
        nullable=column.nullable,
        metadata={"comment": column.meaning},
    )


def arrow_rows(table: Table, speaker: Speaker, rows: Sequence[SpooledRow]) -> pa.Table:
    """`rows` as the columns of `table`.

    Raises LakeError when a value does not fit its column: it names the row, because leaving it out
    would tear seq.
    """
    count = len(rows)
    columns: list[Iterable[Any]] = [
        [speaker.cluster] * count,
        [speaker.broker] * count,
        [row.broker_epoch for row in rows],
        [speaker.emitter] * count,
        [row.seq for row in rows],
        [row.event_time for row in rows],
        *_own_columns(table, rows),
        [row.event_time // _DAY_US for row in rows],
    ]
    schema = arrow_schema(table)
    assert table.columns[-1] is EVENT_DATE
    arrays = [
        _array(table, column, values, rows)
        for column, values in zip(table.columns, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _own_columns(table: Table, rows: Sequence[SpooledRow]) -> list[list[Any]]:
    """Values by column; a row that an older version spooled lacks the newest columns, which are
    then unknown."""
    width = len(table.own)
    return [
        [row.values[at] if at < len(row.values) else None for row in rows] for at in range(width)
    ]


def _in_its_type(column: Column, values: Iterable[Any]) -> pa.Array:
    """As the column's type; a count beyond the ends of 32 bits is the nearest that they hold: a
    client says how often its message has failed, and must not keep all rows from the lake.
    """
    try:
        return pa.array(values, ARROW_TYPES[column.type])
    except (pa.ArrowInvalid, OverflowError):
        if column.type is not ColumnType.INT:
            raise
        held = [None if one is None else min(max(one, -(1 << 31)), (1 << 31) - 1) for one in values]
        return pa.array(held, ARROW_TYPES[column.type])


def _array(
    table: Table, column: Column, values: Iterable[Any], rows: Sequence[SpooledRow]
) -> pa.Array:
    if column.type in _STRUCTS:
        values = [_named(value, _STRUCTS[column.type]) for value in values]
    try:
        array = _in_its_type(column, values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise LakeError(
            f"{table.name}.{column.name}: a value of rows {rows[0].seq} to {rows[-1].seq} is no "
            f"{column.type.value} ({error}); the spool keeps them for a repaired version"
        ) from error
    if array.null_count and not column.nullable:
        torn = next(
            row.seq for row, known in zip(rows, array.is_valid(), strict=True) if not known.as_py()
        )
        raise LakeError(
            f"{table.name}.{column.name} must be known, but is not in row {torn}; "
            "the spool keeps it until a repaired version ships it"
        )
    return array


_STRUCTS: Final = {
    kind: tuple(field.name for field in arrow_type.value_type)
    for kind, arrow_type in ARROW_TYPES.items()
    if pa.types.is_list(arrow_type) and pa.types.is_struct(arrow_type.value_type)
}


def _named(value: Sequence[Sequence[Any]] | None, names: tuple[str, ...]) -> Any:
    """A list of tuples as a list of structs; null stays null."""
    if value is None:
        return None
    return [dict(zip(names, part, strict=True)) for part in value]
