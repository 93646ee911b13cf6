"""Upgrades older tables: adds columns declared since, and makes columns nullable.

Place in the walk: whoever opens a lake to write gold, before the first row. The shipper does the
same for bronze. Readers need neither: a column that a table lacks is null to them.

Invariant: only nullable columns are added, and a column only becomes nullable, so every row that is
there stays true; nothing is ever renamed, retyped or taken away. Absent on purpose: rewriting of
files.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from engine.telemetry.tables import Column
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.schemas import arrow_schema


def add_declared_columns(lake: Lake, address: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """Give the table the declared columns it lacks; return their names. Columns that are declared
    as nullable become so.

    Columns that nobody declares stay: a newer version has opened this lake before. Raises LakeError
    when a column has another type, or one that is missing may not be null.
    """
    handle = lake.table(address)
    there = {field.name: field for field in handle.schema().fields}
    wanted = DeltaSchema.from_arrow(arrow_schema(columns)).fields
    missing = [field for field in wanted if field.name not in there]
    foreign = [
        f"{field.name} ({there[field.name].type} instead of {field.type})"
        for field in wanted
        if field.name in there and there[field.name].type != field.type
    ] + [f"{field.name} (missing, never null)" for field in missing if not field.nullable]
    if foreign:
        raise LakeError(
            f"the Delta table at {address} is of another version: {', '.join(foreign)}; name "
            "another lake, or move that table away and let it be computed again"
        )
    if missing:
        try:
            handle.alter.add_columns(missing)
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"{address} does not take the columns {', '.join(one.name for one in missing)} "
                f"({first_line(error)}); try again when nobody else changes it"
            ) from error
    _let_be_null(handle, address, [field.name for field in wanted if field.nullable])
    return tuple(field.name for field in missing)


def _let_be_null(handle: DeltaTable, address: str, names: Sequence[str]) -> None:
    """Columns that were never null, and may be since."""
    strict = {field.name for field in handle.schema().fields if not field.nullable}
    try:
        for name in names:
            if name in strict:
                handle.alter.drop_column_not_null(name)
    except (DeltaError, OSError) as error:
        raise LakeError(
            f"{address} does not let its columns be null ({first_line(error)}); "
            "try again when nobody else changes it"
        ) from error
