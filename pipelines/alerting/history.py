"""Moves every alert change from SQL to the Delta table `alerts` exactly once.

Place in the walk: behind each step, beside the outbox. The order is the proof: the table says how
far it is, what lies beyond is appended with its last number as a Delta transaction, the number is
marked in SQL, and what it covers is dropped there; whoever is killed between asks the table and
repeats the rest.

Invariant: `append` writes through the handle that `taken` has asked, so that delta-rs refuses the
second of two processes that append the same rows. Absent on purpose: retries, other writers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.alerting.alerts import Entry
from pipelines.alerting.store import changes
from pipelines.alerting.store.changes import Waiting
from pipelines.base.time_units import moment_at
from pipelines.cycles.plan import PLANS
from pipelines.database.database import Database
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import ShortLog, add_declared_columns, append, shorten
from pipelines.reading.catalogue import ALERTS

PARTITION: Final = "observed_date"
CHECKPOINT_COMMITS: Final = 100
LOG_RETENTION_DAYS: Final = 2
"""As the tables of facts have it: a commit each few seconds would leave a folder full of entries.
"""
QUEUE_MAX: Final = 2**31 - 1
ROWS_A_COMMIT: Final = 10_000
COMMITS_A_TURN: Final = 4
"""After so many the process looks at gold again; what is left goes with the next turn."""

_log = logging.getLogger(__name__)


class HistoryTable:
    """The history table of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._address = lake.gold(ALERTS.name)
        self._handle: DeltaTable | None = None
        self._log = ShortLog(self._address, lake.storage_options)

    def taken(self, history: str, *, was_there: bool = False) -> int:
        """The number of the newest change of this history that the table has; 0: none. LakeError
        for a table that cannot be read, and for one that is gone with all gold though it was there:
        a lake that comes back must not find another table in its place.
        """
        try:
            if self._handle is None:
                self._handle = self._opened(was_there=was_there)
            try:
                self._handle.update_incremental()
            except (DeltaError, OSError):  # Replaced by another one, or its log was cut meanwhile.
                self._handle = None
                self._handle = self._opened(was_there=was_there)
            return self._handle.transaction_version(_application(history)) or 0
        except (DeltaError, OSError) as error:
            self._handle = None
            raise LakeError(f"{self._address} cannot be read ({first_line(error)})") from error

    def append(self, history: str, entries: Sequence[tuple[int, Entry]]) -> None:
        """Append changes, with their numbers in order, as one commit. LakeError: perhaps they are
        in, perhaps not."""
        assert self._handle is not None, "the table is asked before it is written to"
        assert entries, "a commit has rows"
        last = entries[-1][0]
        version = self._handle.version()
        try:
            append(
                self._lake,
                self._handle,
                rows_of(history, entries),
                transaction=(_application(history), last),
                refusal="takes no changes of alerts",
                advice=": they wait in the database",
            )
            self._log.committed(version)
        except LakeError:
            self._handle = None
            raise
        except (DeltaError, OSError) as error:
            self._handle = None
            raise LakeError(
                f"{self._address} takes no changes of alerts ({first_line(error)}): they wait in "
                "the database"
            ) from error
        shorten([self._log])  # A failure here loses nothing: the maintainer tries, and reports it.

    def _opened(self, *, was_there: bool) -> DeltaTable:
        if not self._lake.exists(self._address):
            if was_there and not self._lake.exists(self._lake.state(PLANS)):
                raise LakeError(f"{self._address} is gone, and all gold: changes of alerts wait")
            self._create()
        add_declared_columns(self._lake, self._address, ALERTS.columns)
        return self._lake.table(self._address)

    def _create(self) -> None:
        self._lake.demand_folder()
        try:
            DeltaTable.create(
                self._address,
                schema=Schema.from_arrow(arrow_schema(ALERTS.columns)),
                mode="ignore",
                partition_by=[PARTITION],
                name=ALERTS.name,
                description=f"One row per {ALERTS.grain}.",
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                    "delta.logRetentionDuration": f"interval {LOG_RETENTION_DAYS} days",
                },
                storage_options=self._lake.storage_options or None,
            )
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self._address} cannot be made ({first_line(error)})") from error


def rows_of(history: str, entries: Sequence[tuple[int, Entry]]) -> pa.Table:
    """Changes as rows, in declared types."""
    schema = arrow_schema(ALERTS.columns)
    rows = [_row(history, seq, entry) for seq, entry in entries]
    arrays = [pa.array([row[one.name] for row in rows], one.type) for one in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _row(history: str, seq: int, entry: Entry) -> dict[str, Any]:
    observed = moment_at(entry.observed_us)
    labels = {_text(name): _text(value) for name, value in entry.labels.items()}
    return {
        "observed_at": observed,
        "history": history,
        "seq": seq,
        "kind": entry.kind,
        "fingerprint": entry.fingerprint,
        "rule": entry.rule,
        "severity": entry.severity,
        "owner": _text(entry.owner),
        "state": entry.state,
        **{name: labels.get(name) for name in ("cluster", "broker", "group", "topic")},
        "queue_id": _queue(labels),
        "labels": json.dumps(labels, ensure_ascii=False, sort_keys=True),
        "summary": _text(entry.summary),
        "evidence": _text(entry.evidence),
        "reason": _text(entry.reason),
        "muted": _text(entry.muted) or None,
        "is_flapping": entry.is_flapping,
        "active_at": moment_at(entry.active_at_us),
        "fired_at": None if entry.fired_at_us is None else moment_at(entry.fired_at_us),
        "resolved_at": None if entry.resolved_at_us is None else moment_at(entry.resolved_at_us),
        "author": _text(entry.author) or None,
        "comment": _text(entry.comment) or None,
        "recorded_at": moment_at(entry.recorded_us),
        "observed_date": observed.date(),
    }


def _queue(labels: Mapping[str, str]) -> int | None:
    queue_id = labels.get("queue_id", "")
    return (
        int(queue_id)
        if queue_id.isascii() and queue_id.isdigit() and int(queue_id) <= QUEUE_MAX
        else None
    )


def _text(text: str) -> str:
    """A text of somebody else's, with what no encoding has as a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _application(history: str) -> str:
    return f"{ALERTS.name}/{history}"


class Table(Protocol):
    """Where history is kept, as `HistoryTable` has it in the lake."""

    def taken(self, history: str, *, was_there: bool = False) -> int:
        """The number of the newest change of this history that it has; 0: none."""
        ...

    def append(self, history: str, entries: list[tuple[int, Entry]]) -> None:
        """Take these changes as one, or none of them."""
        ...


class Carrier:
    """Carries the changes of one lake's alerts."""

    def __init__(self, database: Database, lake: str, table: Table) -> None:
        self._database = database
        self._lake = lake
        self._table = table
        self._settled = False
        """Table and database are known to speak of the same history."""

    def carry(self) -> int:
        """Carry what waits; how many changes. Raises LakeError and StoreUnavailable: then it is
        unknown whether the last ones are in the table, and the next call finds out."""
        total = 0
        for _ in range(COMMITS_A_TURN):
            waits = changes.waiting(self._database, self._lake, rows_max=ROWS_A_COMMIT)
            if waits is None or (self._settled and not waits.entries):
                break
            count = self._carried(waits)
            total += count
            if count < ROWS_A_COMMIT:
                break
        return total

    def _carried(self, waits: Waiting) -> int:
        taken = self._table.taken(waits.history, was_there=waits.carried_seq > 0)
        if taken > waits.last_seq:
            _log.warning(
                "the lake has %d changes of this database's alerts, which knows of %d: it was put "
                "back from a copy, and goes on as another history",
                taken,
                waits.last_seq,
            )
            changes.begin_anew(self._database, self._lake, waits.history)
            return 0
        if taken < waits.carried_seq:
            self._say_lost(taken, waits.carried_seq)
        fresh = [(seq, entry) for seq, entry in waits.entries if seq > taken]
        if fresh:
            self._table.append(waits.history, fresh)
        seq = fresh[-1][0] if fresh else taken
        if seq > waits.carried_seq:
            changes.carried(self._database, self._lake, waits.history, seq=seq)
        self._settled = True
        return len(fresh)

    def _say_lost(self, taken: int, carried_seq: int) -> None:
        if not self._settled:
            _log.warning(
                "the lake has %d changes of alerts where it once had %d: its table was replaced or "
                "put back from a copy, and what is missing is gone",
                taken,
                carried_seq,
            )
