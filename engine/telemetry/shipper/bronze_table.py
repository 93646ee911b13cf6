"""Opens or creates bronze tables, appends rows exactly once and compacts the tables.

Place in the walk: the shipper's second step. Exactly once is decided here: a commit carries an
application transaction (emitter/table, last seq), and before a write the table is asked, through
the same handle, how far it already is. delta-rs records such a transaction without refusing an
older one, so asking is our part.

Invariant: after `append` returned, the rows are in the table once and on stable storage (local
lakes; an object store keeps that promise itself). After any error the outcome is unknown: the table
is opened anew and asked again.

delta-rs never syncs a file, so a power cut may tear what it wrote last. `synced_version` of each
table is therefore kept by the shipper, and `mend` sets aside what lies beyond it and is torn: those
rows are still in the spool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from engine.foundation.units import MIB, SECOND_US
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow, arrow_rows, arrow_schema
from engine.telemetry.shipper.local_files import LocalTableFiles
from engine.telemetry.shipper.short_logs import HELD_S, HOOKS, NoCommit, ShortLog
from engine.telemetry.tables import EVENT_DATE, Table

CHECKPOINT_COMMITS: Final = 100
"""A checkpoint each so many commits: a reader never replays more log entries than this."""

LOG_RETENTION_DAYS: Final = 2
"""Log entries below a checkpoint stay this long. At a commit a second a month of them, which is
Delta's default, would be 2.6 million files in one folder."""

COMPACT_COMMITS: Final = 24
"""Small files are merged after so many commits. delta-rs looks at every active file in each commit:
10 ms of CPU with few of them, 40 ms with 100; a merge of 24 takes about 50 ms."""

COMPACT_TARGET_BYTES: Final = MIB
"""A file of this size is left alone by most merges, so that no byte is rewritten for ever."""

LARGE_MERGES: Final = 40
"""Each so many merges one goes up to LARGE_TARGET_BYTES: after 16 to 40 minutes."""

LARGE_TARGET_BYTES: Final = 32 * MIB
"""A file of this size is not merged again."""

VACUUM_COMMITS: Final = 3_600
"""Replaced files are looked for after so many commits: each one to three hours."""

VACUUM_RETENTION_HOURS: Final = 24 * LOG_RETENTION_DAYS
"""Files that merging replaced stay as long as the log that names them: who follows the log finds
them. `tidemark lake maintain` knows how far its readers are, and removes them sooner."""

APPEND_ATTEMPTS_MAX: Final = 5
RETRY_PAUSE_S: Final = 0.2
"""Doubled after each attempt; together about 3 s, then the shipper gives up and the spool keeps the
rows."""

_log = logging.getLogger(__name__)


class BronzeTable:
    """One table of the lake, held open."""

    def __init__(
        self,
        declared: Table,
        uri: str,
        storage_options: Mapping[str, str],
        *,
        compact_commits: int = COMPACT_COMMITS,
    ) -> None:
        """Open the table, or make it. Raises LakeError when it is damaged or not ours."""
        self.declared: Final = declared
        self._compact_commits = compact_commits
        self._uri = uri
        self._storage_options = dict(storage_options)
        self._files = LocalTableFiles.of(uri)
        self._short_log = ShortLog(uri, storage_options)
        self._handle = self._open()
        self._followed_s = time.monotonic()
        """When the handle was last brought up to date, by a commit too."""
        self._small_files = len(self._handle.file_uris())
        self._merges = 0
        self._commits = 0
        self._dates: dict[date, None] = {}
        self._known: dict[str, int] = {}
        """What the table has said, or taken, per application."""

    def shipped_seq(self, app_id: str) -> int:
        """Version of the application's last transaction here; 0 when it has none."""
        self._known[app_id] = self._handle.transaction_version(app_id) or 0
        return self._known[app_id]

    def known_seq(self, app_id: str) -> int:
        """The same as far as this process knows: no other one ships what this one ships. To ask
        costs a millisecond, and there are many tables.
        """
        known = self._known.get(app_id)
        return self.shipped_seq(app_id) if known is None else known

    def append(
        self, speaker: Speaker, rows: Sequence[SpooledRow], also: Sequence[Transaction] = ()
    ) -> int:
        """Append those of `rows` that are not in the table yet; return how many that were.

        `also` are further transactions to record in the same commit. Raises LakeError after
        APPEND_ATTEMPTS_MAX tries.
        """
        app_id = f"{speaker.emitter}/{self.declared.name}"
        pause_s = RETRY_PAUSE_S
        for attempt in range(1, APPEND_ATTEMPTS_MAX + 1):
            try:
                self._follow(anew=attempt > 1)
                done = self.shipped_seq(app_id)
                fresh = [row for row in rows if row.seq > done]
                if fresh:
                    self._commit(speaker, fresh, [Transaction(app_id, fresh[-1].seq), *also])
                self._sync()
                self._known[app_id] = fresh[-1].seq if fresh else done
                if fresh:
                    self._known.update({one.app_id: one.version for one in also})
            except (
                DeltaError,
                NoCommit,
                OSError,
            ) as error:  # Also a conflict: perhaps it is in, perhaps not.
                if attempt == APPEND_ATTEMPTS_MAX:
                    raise LakeError(
                        f"table {self._uri} takes no rows ({_in_words(error)}); repair the lake, "
                        "then start the shipper again: the spool keeps everything until then"
                    ) from error
                _log.warning("%s: append failed (%s); asking again", self._uri, _in_words(error))
                time.sleep(pause_s)
                pause_s *= 2
            else:
                return len(fresh)
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, *, anew: bool) -> None:
        """What a handle knows of the log's entries holds as long as they are not moved aside."""
        if anew:
            self._handle = DeltaTable(self._uri, storage_options=self._storage_options)
        elif time.monotonic() - self._followed_s > HELD_S / 2:
            self._handle.update_incremental()
        else:
            return
        self._followed_s = time.monotonic()

    def tidy(self) -> None:
        """Shorten the log, merge small files and remove long replaced ones, now and then. A failure
        is logged: nothing is lost by it."""
        try:
            self._short_log.shorten()
            if self._small_files >= self._compact_commits:
                self._merge()
            if self._commits >= VACUUM_COMMITS:
                self._vacuum()
        except (DeltaError, OSError) as error:
            _log.warning("%s: not tidied (%s); trying again later", self._uri, _in_words(error))

    def _merge(self) -> None:
        """Merge, unless the table lies in an object store or another merges it now.

        delta-rs lets two merges of the same files pass, and each row is there twice then. So one at
        a time, from the newest version on; where no lock reaches, `tidemark lake maintain` merges.
        """
        if self._files is None:
            self._small_files = 0
            return
        with self._files.alone() as is_alone:
            if is_alone:
                self._handle.update_incremental()
                self._merge_alone()

    def _merge_alone(self) -> None:
        # What an earlier shipper left may be of any day.
        days = [("event_date", "in", [str(day) for day in self._dates])] if self._merges else None
        is_large = self._merges % LARGE_MERGES == 0
        self._merges += 1
        self._small_files = 0
        if is_large:
            self._dates.clear()
        self._handle.optimize.compact(
            partition_filters=days,
            target_size=LARGE_TARGET_BYTES if is_large else COMPACT_TARGET_BYTES,
            max_concurrent_tasks=1,
        )
        self._sync()

    def _vacuum(self) -> None:
        self._commits = 0
        self._handle.vacuum(
            retention_hours=VACUUM_RETENTION_HOURS, dry_run=False, enforce_retention_duration=False
        )
        self._sync()

    def life_and_time_of(self, emitter: str, seq: int) -> tuple[int, int] | None:
        """broker_epoch and event_time (µs since 1970) of a row; None when it is not there.

        For start-up: it may read a whole file.
        """
        # delta-rs's file system is Python called from Arrow's threads: a thread that is still at
        # work when the process ends aborts it (5 of 75 runs). Arrow's own has no Python in it.
        arrow = self._handle.to_pyarrow_table(
            columns=["broker_epoch", "event_time"],
            filters=[("emitter", "=", emitter), ("seq", "=", seq)],
            filesystem=None if self._files is None else self._files.arrow_files(),
        )
        if not arrow.num_rows:
            return None
        return arrow["broker_epoch"][0].as_py(), arrow["event_time"].cast("int64")[0].as_py()

    def begins_after(self, event_time: int) -> bool:
        """Has its retention dropped the rows of that moment's day?"""
        day = datetime.fromtimestamp(event_time // SECOND_US, UTC).date()
        days = [date.fromisoformat(one[EVENT_DATE.name]) for one in self._handle.partitions()]
        return day < min(days, default=date.max)

    def _commit(
        self, speaker: Speaker, fresh: Sequence[SpooledRow], transactions: list[Transaction]
    ) -> None:
        arrow = arrow_rows(self.declared, speaker, fresh)
        version = self._handle.version()
        write_deltalake(
            self._handle,
            arrow,
            mode="append",
            commit_properties=CommitProperties(app_transactions=transactions),
            post_commithook_properties=HOOKS,
        )
        self._short_log.committed(version)
        self._followed_s = time.monotonic()
        self._commits += 1
        self._small_files += 1
        self._dates.update(dict.fromkeys(pc.unique(arrow.column(EVENT_DATE.name)).to_pylist()))

    def _sync(self) -> None:
        if self._files is not None:
            self._files.sync_through(self._handle.version())

    def _open(self) -> DeltaTable:
        if self._files is not None:
            self._files.mend()
        try:
            if not DeltaTable.is_deltatable(self._uri, storage_options=self._storage_options):
                self._refuse_leftovers()
                self._create()
            # Before the table is opened: others write to it meanwhile.
            written = 0 if self._files is None else self._files.written_version()
            handle = DeltaTable(self._uri, storage_options=self._storage_options)
            self._adapt(handle)
            if self._files is not None:
                self._files.refuse_lost_commits(handle.version(), written=written)
                self._files.sync_through(handle.version())
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(
                f"{self._uri} cannot be used as table {self.declared.name}: {_in_words(error)}; "
                "repair it or put it back from a copy, then start the shipper again: "
                "the spool keeps everything"
            ) from error
        return handle

    def _refuse_leftovers(self) -> None:
        if self._files is not None and self._files.has_leftovers():
            raise LakeError(
                f"{self._uri} holds files but no Delta log: half-written or not ours. "
                "Put its _delta_log back or move the folder away, then start the shipper again"
            )

    def _create(self) -> None:
        DeltaTable.create(
            self._uri,
            schema=DeltaSchema.from_arrow(arrow_schema(self.declared)),
            mode="ignore",
            partition_by=["event_date"],
            name=self.declared.name,
            description=f"One row per {self.declared.grain}.",
            configuration={
                "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                "delta.logRetentionDuration": f"interval {LOG_RETENTION_DAYS} days",
            },
            storage_options=self._storage_options,
        )

    def _adapt(self, handle: DeltaTable) -> None:
        """Give the table the columns that were declared since it was made; LakeError when it is
        another table."""
        wanted = DeltaSchema.from_arrow(arrow_schema(self.declared))
        there = {field.name: field for field in handle.schema().fields}
        missing = [field for field in wanted.fields if field.name not in there]
        foreign = [
            field.name
            for field in wanted.fields
            if field.name in there and there[field.name].type != field.type
        ]
        if foreign or any(not field.nullable for field in missing):
            names = ", ".join(foreign or [field.name for field in missing])
            raise LakeError(
                f"{self._uri} is not our table {self.declared.name}: columns {names} differ. "
                "Give the shipper another lake, or move that folder away"
            )
        if missing:
            handle.alter.add_columns(missing)


def _in_words(error: BaseException | None) -> str:
    """The first line of a message: delta-rs sends its stack along."""
    return str(error).partition("\n")[0][:300]
