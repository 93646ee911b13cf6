"""Defines columns common to gold tables and shapes rows to match their declarations.

Place in the walk: marts declare their tables with them; the last step of every mart. Invariant: one
name, one meaning, in all tables. A mart that lacks a column, or has a null where none may be, fails
here, with the column's name; never later, in somebody's page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.lake.schemas import KEY_TEXT, arrow_schema
from pipelines.marts.mart import GoldTable

STRING, INT, LONG, BOOLEAN, TIMESTAMP, DATE = (
    ColumnType.STRING,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.BOOLEAN,
    ColumnType.TIMESTAMP,
    ColumnType.DATE,
)

OBSERVED_AT: Final = must("observed_at", TIMESTAMP, "moment of data time this row speaks of")
OBSERVED_DATE: Final = must(
    "observed_date",
    DATE,
    "UTC date of observed_at; the partition. Of an interval that is open since before what is "
    "stored: the oldest day that is",
)
CLUSTER: Final = must("cluster", STRING, "cluster name")
BROKER: Final = must("broker", STRING, "broker name")
GROUP: Final = must("group", STRING, "consumer group")
TOPIC: Final = must("topic", STRING, "topic")
QUEUE: Final = must("queue_id", INT, "queue number inside topic and broker")
EMITTER: Final = must("emitter", STRING, "who reported the evidence")
SEQ: Final = must("seq", LONG, "newest bronze row (of that emitter) this row rests on")
BROKER_AT: Final = (OBSERVED_AT, CLUSTER, BROKER)
GROUP_AT: Final = (*BROKER_AT, GROUP)
QUEUE_AT: Final = (*GROUP_AT, TOPIC, QUEUE)
"""The columns with which a table of queues of groups begins."""
STAMP: Final = (EMITTER, SEQ, OBSERVED_DATE)
"""What each row rests on, and its partition."""

INTERVAL: Final = (
    must("window_id", STRING, "hash of rule, key and opened_at; the same over all revisions"),
    must("revision", INT, "1 for the first; the highest is the present truth"),
    must("state", STRING, "OPEN or CLOSED"),
    OBSERVED_AT,
    must(
        "valid_from",
        TIMESTAMP,
        "data time from which this revision is the truth; equals observed_at",
    ),
    must("opened_at", TIMESTAMP, "when the interval began"),
    Column("closed_at", TIMESTAMP, "when it ended; null while OPEN"),
)
QUEUE_INTERVAL: Final = (*INTERVAL, CLUSTER, BROKER, GROUP, TOPIC, QUEUE)
"""The columns with which a table of intervals of queues of groups begins."""
MICROS = pa.timestamp("us", tz="UTC")
MOMENTS = ("observed_at", "valid_from")
"""Columns that are the moment `observed_us`, unless the mart has made them itself."""


def as_declared(
    columns: Mapping[str, pa.ChunkedArray | pa.Array],
    table: GoldTable,
    *,
    keeps_dictionaries: bool = False,
) -> pa.Table:
    """The declared columns of `table`, taken by name; `observed_us` becomes observed_at,
    observed_date (and valid_from). Whole numbers become moments where one is declared.

    keeps_dictionaries: texts stay as they are distinguished already, for a table of many rows that
    no other mart reads: a file holds them so anyway.
    """
    schema = arrow_schema(table.columns)
    fields = []
    moment = pc.cast(columns["observed_us"], MICROS)
    made = []
    for field in schema:
        if field.name in columns:
            column = columns[field.name]
        elif field.name in MOMENTS:
            column = moment
        elif field.name == "observed_date":
            column = pc.cast(moment, pa.date32())
        else:
            raise KeyError(f"{table.name}: the mart has made no {field.name}")
        if pa.types.is_dictionary(column.type) and not (
            keeps_dictionaries and column.type == KEY_TEXT and pa.types.is_string(field.type)
        ):
            column = pc.cast(column, column.type.value_type)
        if column.type not in (field.type, KEY_TEXT):
            column = pc.cast(column, field.type)
        if not field.nullable and column.null_count:
            raise ValueError(f"{table.name}: {field.name} is null in {column.null_count} rows")
        made.append(column)
        fields.append(field.with_type(column.type))
    return pa.table(made, schema=pa.schema(fields))


def rows_as_declared(rows: Sequence[Mapping[str, Any]], table: GoldTable) -> pa.Table:
    """The same for rows made one by one; moments are whole µs. KeyError for a column they lack."""
    made_elsewhere = {*MOMENTS, "observed_date"}
    names = [name for name in table.column_names if rows and name in rows[0]]
    lacking = set(table.column_names) - set(names) - made_elsewhere
    if rows and lacking:
        raise KeyError(f"{table.name}: the mart has made no {', '.join(sorted(lacking))}")
    if not rows:
        return no_rows(table)
    schema = arrow_schema(table.columns)
    columns = {name: _column([row[name] for row in rows], schema.field(name)) for name in names}
    columns["observed_us"] = pa.array([row["observed_us"] for row in rows], pa.int64())
    return as_declared(columns, table)


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    return pa.array(values, pa.int64() if pa.types.is_timestamp(field.type) else field.type)


def no_rows(table: GoldTable) -> pa.Table:
    """None of its rows."""
    return arrow_schema(table.columns).empty_table()


def window_id(mart: str, *parts: object) -> str:
    """Name of an interval: the same for the same opening, in every run."""
    text = "|".join((mart, *(str(part) for part in parts)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
