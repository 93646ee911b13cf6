"""Commits gold: adds the files that executors wrote to their tables, exactly once.

Place in the walk: the end of a cycle, in the driver. Invariant: one commit a table and cycle, with
the transaction (mart/run id, cycle); a table that says it has that transaction already is passed
over, so a cycle that is repeated writes nothing twice; files that were written for nothing belong
to no table, and upkeep removes them. delta-rs is the only writer of gold
(docs/adr/0027-executors-judge-and-the-driver-commits.md). Absent on purpose: rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from engine.foundation.errors import LakeError
from pipelines.cycles.gold_files import PARTITION, NewFile
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import HOOKS, ShortLog, add_declared_columns, shorten
from pipelines.marts.mart import GoldTable

PROPERTIES: Final = {
    "delta.checkpointInterval": "50",
    "delta.enableDeletionVectors": "false",
    "delta.logRetentionDuration": "interval 2 days",
}


class GoldTables:
    """The gold tables of a lake, opened once."""

    def __init__(self, lake: Lake, tables: Sequence[GoldTable]) -> None:
        self._lake = lake
        self._declared = {table.name: table for table in tables}
        self._handles: dict[str, DeltaTable] = {}
        self._logs = {
            name: ShortLog(lake.gold(name), lake.storage_options) for name in self._declared
        }
        """To be kept short."""
        self._written: dict[str, int] = {}
        """Versions of the newest commits made here, at least: an open table knows its past alone.
        """

    def present(self) -> list[str]:
        """Names of those that exist."""
        return [name for name in self._declared if self._lake.exists(self._lake.gold(name))]

    def versions(self) -> dict[str, int]:
        """A version that each has by now: the newest, unless upkeep has made another."""
        return {name: handle.version() for name, handle in self._handles.items()} | self._written

    def newest_cycle(self, run_id: str) -> int:
        """The newest cycle of a run that any of them has; 0 without one."""
        cycles = (
            handle.transaction_version(f"{name}/{run_id}") or 0
            for name, handle in self._handles.items()
        )
        return max(cycles, default=0)

    def create(self) -> None:
        """Make those that do not exist yet, and give the others the columns that were declared
        since. LakeError when a table is of another version.
        """
        shorten(self.logs)  # Before they are opened: of a lake that stood still, or of old.
        for name, table in self._declared.items():
            address, schema = self._lake.gold(name), arrow_schema(table.columns)
            if self._lake.exists(address):
                add_declared_columns(self._lake, address, table.columns)
                self._handles[name] = self._lake.table(address)
                continue
            self._handles[name] = DeltaTable.create(
                address,
                Schema.from_arrow(schema),
                mode="ignore",
                partition_by=[PARTITION],
                description=table.grain,
                configuration=PROPERTIES,
                storage_options=self._lake.storage_options or None,
            )

    def commit(self, name: str, files: Sequence[NewFile], *, run_id: str, cycle: int) -> bool:
        """Make the files rows of a table; False when this cycle has done so before."""
        handle, app_id = self._handles[name], f"{name}/{run_id}"
        try:
            handle.update_incremental()
            if (handle.transaction_version(app_id) or 0) >= cycle:
                return False
            version = handle.version()
            handle.create_write_transaction(
                [_action(file) for file in files],
                mode="append",
                schema=handle.schema(),
                partition_by=[PARTITION],
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(app_id, cycle)],
                    custom_metadata={"cycle": str(cycle)},
                ),
                post_commithook_properties=HOOKS,
            )
            self._logs[name].committed(version)
        except (DeltaError, TableNotFoundError, OSError) as error:
            raise LakeError(
                f"{self._lake.gold(name)} takes no commit ({first_line(error)})"
            ) from error
        self._written[name] = version + 1
        return True

    @property
    def logs(self) -> tuple[ShortLog, ...]:
        """The logs of the tables, to be kept short."""
        return tuple(self._logs.values())


def _action(file: NewFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={PARTITION: file.partition},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.statistics,
    )
