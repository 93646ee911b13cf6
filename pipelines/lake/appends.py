"""Appends rows to a Delta table of the lake: one door for every writer.

Place in the walk: plans and states of the driver, histories, checks, reports, retirements. A
cycle's gold files are committed by `pipelines.cycles.commit`, bronze by the shipper, by the same
rules.

Invariant: no commit makes delta-rs list the table's log (`HOOKS`, docs/adr/0051), and whatever
refuses a commit is a LakeError that names the table. Absent on purpose: retries, and shortening of
the log, which the writer does after its commit (`table_logs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.table_logs import HOOKS


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
