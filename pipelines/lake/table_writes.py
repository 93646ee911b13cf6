"""Appends rows to Delta tables, keeping their logs short and adding new columns.

Place in the walk: the one door of plans, states, histories, checks, reports, retirements. A cycle's
gold files are committed by `pipelines.cycles.gold_files`, bronze by the shipper, by the same rules;
the maintainer looks at all logs once a round (docs/adr/0051).

Invariant: no commit makes delta-rs list the table's log (`HOOKS`), and whatever refuses a commit is
a LakeError that names the table. Only nullable columns are added, and a column only becomes
nullable; nothing is ever renamed, retyped or taken away. Absent on purpose: retries, rewriting of
files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from engine.telemetry.shipper.short_logs import HOOKS, NoCommit, ShortLog
from engine.telemetry.tables import Column
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.schemas import arrow_schema

__all__ = ["HOOKS", "TOLD_FROM", "LogsTidied", "NoCommit", "ShortLog", "shorten", "shorten_log"]

SHORTENED_FOR_S: Final = 0.5
"""CPU seconds a cycle: the logs of an earlier version, with two days of entries, are worked off
cycle by cycle."""

TOLD_FROM: Final = 1_000
"""Entries of one look that are worth a line: a log that was short before has fewer."""


def append(
    lake: Lake,
    table: str | DeltaTable,
    rows: pa.Table,
    *,
    transaction: tuple[str, int] | None = None,
    partition_by: Sequence[str] = (),
    description: str | None = None,
    writer: WriterProperties | None = None,
    is_new: bool = False,
    refusal: str = "takes no row",
    advice: str = "",
) -> None:
    """Append rows as one commit to the table at an address, or to an open one.

    `transaction` is the application and the version that the commit reaches. `is_new`: a table that
    is there already refuses. Raises LakeError, in the words of `refusal` and `advice`; the rows may
    be in the table nevertheless when the answer of an object store was lost.
    """
    # What is left out is delta-rs's own choice; an empty one would not be.
    how: dict[str, Any] = {} if writer is None else {"writer_properties": writer}
    try:
        write_deltalake(
            table,
            rows,
            mode="error" if is_new else "append",
            partition_by=list(partition_by) or None,
            description=description,
            storage_options=lake.storage_options or None,
            commit_properties=_commit(transaction),
            post_commithook_properties=HOOKS,
            **how,
        )
    except (DeltaError, OSError) as error:
        raise _refused(table, refusal, error, advice) from error


def write_anew(
    lake: Lake,
    table: DeltaTable,
    rows: pa.Table,
    *,
    transaction: tuple[str, int],
    partition_by: Sequence[str],
    refusal: str,
) -> None:
    """Put rows and their schema in the place of all that an open table holds; raises LakeError."""
    try:
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=list(partition_by),
            storage_options=lake.storage_options or None,
            commit_properties=_commit(transaction),
            post_commithook_properties=HOOKS,
        )
    except (DeltaError, OSError) as error:
        raise _refused(table, refusal, error) from error


def _commit(transaction: tuple[str, int] | None) -> CommitProperties | None:
    if transaction is None:
        return None
    return CommitProperties(app_transactions=[Transaction(*transaction)])


def _refused(
    table: str | DeltaTable, refusal: str, error: BaseException, advice: str = ""
) -> LakeError:
    address = table if isinstance(table, str) else table.table_uri
    return LakeError(f"{address} {refusal} ({first_line(error)}){advice}")


@dataclass(frozen=True, slots=True)
class LogsTidied:
    """What looks at several logs have done."""

    moved: int = 0
    left: int = 0
    """Entries of these logs that the next looks move; there may be more in others."""
    trouble: str = ""
    """Why one could not be shortened; nothing is lost by it."""

    def __str__(self) -> str:
        """Empty for what is done in every minute."""
        if self.trouble:
            return f"a table's log is not shortened: {self.trouble}"
        if self.moved < TOLD_FROM and not self.left:
            return ""
        return f"{self.moved} old log entries moved aside, {self.left} or more are left for later"


def shorten(logs: Iterable[ShortLog], *, for_s: float = SHORTENED_FOR_S) -> LogsTidied:
    """Shorten the logs that are due, one at least, and no further one after so many CPU seconds:
    what is left waits for the next call."""
    moved, left, trouble = 0, 0, ""
    ends_s = time.thread_time() + for_s
    for log in logs:
        if moved and time.thread_time() >= ends_s:
            break
        try:
            done = log.shorten()
        except (OSError, DeltaError) as error:
            trouble = first_line(error)
            continue
        moved, left = moved + done.moved, left + done.left
    return LogsTidied(moved, left, trouble)


def shorten_log(lake: Lake, address: str) -> LogsTidied:
    """Look at the log of one table now; nothing is done where there is none."""
    assert address.startswith(lake.root), f"{address} is not in {lake.root}"
    return shorten([ShortLog(address, lake.storage_options)])


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
