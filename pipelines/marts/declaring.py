"""Shapes rows as their table declares them: the last step of every mart.

Place in the walk: what a mart has computed → rows with exactly the declared columns, in order, in
the declared types. Invariant: a mart that lacks a column, or has a null where none may be, fails
here, with the column's name; never later, in somebody's page. Absent on purpose: repairs of values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT, arrow_schema
from pipelines.marts.mart import GoldTable

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
