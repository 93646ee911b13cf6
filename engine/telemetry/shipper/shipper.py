"""Ships one broker's spool to the lake, one run of rows at a time.

It reads a run, appends it to its tables, states the shipment and drops what is done.

Place in the walk: between the spool and the bronze tables. The order is the proof: data tables
(each synced), then the shipments row, then the shipped mark in the spool, then whole segments are
dropped. Killed between any two of these, the next shipper asks every table how far it is and
repeats the rest.

Invariant: one shipper per spool (an exclusive lock, held by the process: SIGKILL frees it). Rows at
or below shipments.seq_to are all in their tables.

A store may be emptied, or put back from an older copy: each life of a broker has seqs of its own,
so its rows lie beyond what is in the lake, and the numbers between are stated as passed over. That
holds as long as no clock goes back by more than a life has lasted; a spool of whose rows another
store's are in the lake is refused.

The shipments rows are the shipper's own statements, so they carry an emitter of their own,
`<emitter>/shipper`, with its own gapless seq; otherwise each would tear a hole into the broker's.
Their horizon is a second transaction of the same commit: `<emitter>/shipments`, version seq_to.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from deltalake import Transaction

from engine.foundation.errors import ConfigError, LakeError
from engine.foundation.limits import SHIP_ROWS_MAX
from engine.foundation.units import MILLISECOND_US
from engine.runtime import Runtime
from engine.telemetry.segments import ShippedMark, read_shipped_mark, write_shipped_mark
from engine.telemetry.shipper.arrow_schemas import SpooledRow
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.shipper.spool_reader import Run, SpoolReader, speaker_of
from engine.telemetry.tables import BRONZE_FOLDER, SHIPMENTS, TABLES

LOCK_NAME: Final = "shipper.lock"

SHIP_INTERVAL_S: Final = 1.0
"""At most one commit a second and table: each costs 10 ms of CPU or more and makes a file."""

SHIP_INTERVAL_MAX_S: Final = 2.5
"""A shipment that took long is followed by a longer pause, but by no longer one than this: what is
reported of the broker must stay fresh."""

SHIP_CPU_SHARE: Final = 0.03
"""What the shipper may take of one processor, as far as those intervals allow it."""

SHIP_AT_ONCE_ROWS: Final = 5_000
"""A run of so many rows is not followed by a pause."""

IDLE_SHIPMENT_S: Final = 5.0
"""Without rows, a shipments row says at most this often that time went on."""

_log = logging.getLogger(__name__)


class Shipper:
    """One spool, one lake."""

    def __init__(
        self, runtime: Runtime, directory: str, lake: str, storage_options: Mapping[str, str]
    ) -> None:
        """Open every bronze table, making those that are missing. Raises LakeError."""
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._directory = directory
        self._lake = lake
        self._tables = [
            BronzeTable(table, f"{lake.rstrip('/')}/{BRONZE_FOLDER}/{table.name}", storage_options)
            for table in TABLES
        ]
        self._shipments = self._tables[TABLES.index(SHIPMENTS)]
        self._reader = SpoolReader(runtime.disk, directory)
        self._settled = False
        self._own_seq = 0
        self._passed = 0
        """Seqs behind the horizon that are passed over, until a shipment says so."""
        self._idle_run: Run | None = None
        self._last_shipment_ms: int | None = None

    def run(self, stop: threading.Event) -> None:
        """Ship until `stop`, then what is there by then. Raises LakeError, StorageError."""
        while not stop.is_set():
            began, cpu_before = time.monotonic(), time.process_time()
            if self.ship() < SHIP_AT_ONCE_ROWS:
                interval_s = interval_after(time.process_time() - cpu_before)
                stop.wait(max(0.0, began + interval_s - time.monotonic()))
        self.ship_all()

    def ship_all(self) -> int:
        """Ship everything the spool holds now; return how many rows that were.

        What is reported meanwhile is left: a spool that somebody writes to never ends.
        """
        extent = self._reader.extent()
        last_seq = 0 if extent is None else extent.last_seq
        total = 0
        while row_count := self.ship():
            total += row_count
            if self._reader.next_seq > last_seq:
                total += self.ship()  # Once more, for the last sign of life.
                break
        if self._idle_run is not None:
            self._ship_run(self._idle_run)
        return total

    def ship(self) -> int:
        """Ship one run, if there is one; return how many rows it has.

        Raises LakeError when the lake takes nothing or is not the one this spool was shipped to.
        """
        if not self._settled and not self._settle():
            return 0
        run = self._reader.read(SHIP_ROWS_MAX)
        self._settled = not self._reader.is_replaced
        if run is None:
            return 0
        if not run.rows and not self._is_idle_long_enough():
            self._idle_run = run
            return 0
        self._ship_run(run)
        return run.row_count

    def _is_idle_long_enough(self) -> bool:
        last_ms = self._last_shipment_ms
        return last_ms is None or self._clock.steady_ms() - last_ms >= IDLE_SHIPMENT_S * 1000

    def _ship_run(self, run: Run) -> None:
        self._idle_run = None
        for table_number in sorted(run.rows):
            self._tables[table_number].append(run.speaker, run.rows[table_number])
        self._state_shipment(run)
        self._mark(run)
        self._reader.drop_shipped(run.seq_to)
        for table in self._tables:
            table.tidy()

    def _mark(self, run: Run) -> None:
        emitter = run.speaker.emitter
        tables = {
            table.declared.name: seq
            for table in self._tables
            if (seq := table.known_seq(_app_id(emitter, table)))
        }
        mark = ShippedMark(emitter, run.seq_to, run.as_of, self._lake, tables)
        write_shipped_mark(self._disk, self._directory, mark)

    def _state_shipment(self, run: Run) -> None:
        """Append the shipments row of `run`: from now on readers may rely on its rows."""
        counts = [(TABLES[number].name, len(run.rows[number])) for number in sorted(run.rows)]
        row = SpooledRow(
            self._own_seq + 1,
            run.broker_epoch,
            self._clock.now_us(),
            (
                *(run.seq_from, run.seq_to, run.as_of, counts),
                *(self._clock.wall_ms() * MILLISECOND_US, self._passed + run.skipped),
            ),
        )
        speaker = run.speaker._replace(emitter=_own_emitter(run.speaker.emitter))
        horizon = Transaction(_horizon_id(run.speaker.emitter), run.seq_to)
        self._shipments.append(speaker, [row], also=[horizon])
        self._own_seq += 1
        self._passed = 0
        self._last_shipment_ms = self._clock.steady_ms()

    def _settle(self) -> bool:
        """Find the place where lake and spool meet; False while no broker has written into the
        spool, or none since an older copy of it was put back.

        Raises LakeError when they do not meet: then this is another lake, or another spool.
        """
        extent = self._reader.extent()
        if extent is None:
            return False
        emitter = speaker_of(extent.life).emitter
        horizon = self._shipments.shipped_seq(_horizon_id(emitter))
        ends = [max(horizon, table.shipped_seq(_app_id(emitter, table))) for table in self._tables]
        furthest = max(ends)
        if horizon < extent.before_seq:
            raise LakeError(
                f"lake {self._lake} has rows of {emitter} up to seq {horizon}, spool "
                f"{self._directory} begins behind {extent.before_seq}: the rows between were "
                "shipped elsewhere. Put that lake back, or rename this broker"
            )
        mark = read_shipped_mark(self._disk, self._directory)
        if mark is not None and mark.seq <= horizon:
            self._refuse_lost_rows(emitter, mark)
        is_marked = mark is not None and mark.lake == self._lake
        known = min(mark.seq, horizon) if mark and is_marked else 0
        foreign = self._not_there(emitter, known, ends)
        if foreign is not None:
            self._pass_over(emitter, foreign, is_behind=(extent.life.life_seq or 0) <= furthest)
        if extent.next_seq <= furthest:
            return False  # An older copy, before a life begins with it.
        self._own_seq = self._shipments.shipped_seq(f"{_own_emitter(emitter)}/{SHIPMENTS.name}")
        as_of = mark.as_of if mark and is_marked and mark.seq == horizon else 0
        self._passed = 0 if foreign is None else furthest - horizon
        self._reader.seek(horizon + self._passed + 1, as_of=as_of)
        self._reader.drop_shipped(horizon)  # The shipper before may have died before it did so.
        self._settled = True
        return True

    def _refuse_lost_rows(self, emitter: str, mark: ShippedMark) -> None:
        """The shipments say that rows are there: then every table must still know of its own."""
        for table in self._tables:
            known = table.shipped_seq(_app_id(emitter, table))
            shipped = mark.tables.get(table.declared.name, 0)
            if known < shipped:
                raise LakeError(
                    f"table {table.declared.name} of lake {self._lake} knows rows of {emitter} up "
                    f"to seq {known}, but {shipped} was shipped. Put that table back from a copy"
                )

    def _not_there(self, emitter: str, begin: int, ends: Sequence[int]) -> int | None:
        """The newest row of the spool that the lake does not have, although each table has rows up
        to its end; those up to `begin` are known to be there. None: all are."""
        for written in reversed(self._reader.newest_rows(begin, ends)):
            table_number, event_time, _ = written.row
            table = self._tables[table_number]
            there = table.life_and_time_of(emitter, written.seq)
            is_gone = there is None and table.begins_after(event_time)
            if there != (written.life.broker_epoch, event_time) and not is_gone:
                return written.seq
        return None

    def _pass_over(self, emitter: str, seq: int, *, is_behind: bool) -> None:
        """Rows up to `seq` come too late. LakeError if those of the present life do, too."""
        sentence = (
            f"row {seq} of {emitter} in lake {self._lake} is not the one in spool "
            f"{self._directory}: another store of that name was shipped there"
        )
        if is_behind:
            raise LakeError(
                f"{sentence}, by a clock that was ahead. See to this broker's clock and start it "
                "again, or give it another name or another lake"
            )
        _log.error("%s since; rows up to that one that are not in the lake are lost", sentence)


def interval_after(cpu_s: float) -> float:
    """How long after the begin of a shipment that took `cpu_s` seconds of CPU the next one begins:
    a broker under full load should not feel it."""
    return min(SHIP_INTERVAL_MAX_S, max(SHIP_INTERVAL_S, cpu_s / SHIP_CPU_SHARE))


def _app_id(emitter: str, table: BronzeTable) -> str:
    return f"{emitter}/{table.declared.name}"


def _own_emitter(emitter: str) -> str:
    return f"{emitter}/shipper"


def _horizon_id(emitter: str) -> str:
    return f"{emitter}/{SHIPMENTS.name}"


@contextmanager
def sole_shipper(directory: str) -> Iterator[None]:
    """Hold the spool's lock.

    Raises ConfigError when another process holds it; SIGKILL frees it by itself.
    """
    path = f"{directory}/{LOCK_NAME}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
            raise ConfigError(
                "store",
                directory,
                f"one shipper per spool; process {holder} ships this one, stop it first",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
