"""Appends rows to a Delta table, and keeps its log short: one door for every writer.

Place in the walk: plans and states of the driver, histories, checks, reports, retirements. A
cycle's gold files are committed by `pipelines.cycles.commit`, bronze by the shipper, by the same
rules; the maintainer looks at all logs once a round (docs/adr/0051).

Invariant: no commit makes delta-rs list the table's log (`HOOKS`), and whatever refuses a commit is
a LakeError that names the table. Absent on purpose: retries, and what shortening does
(`engine.telemetry.shipper.short_logs`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from engine.telemetry.shipper.short_logs import HOOKS, NoCommit, ShortLog
from pipelines.lake.lake import Lake, first_line

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
