"""A broker's observer, which writes facts as rows once per event-loop iteration.

Every second it gives a sign of life.

Place in the walk: the rooms below call `observe`; the remoting server calls `write_turn` once per
turn, before that turn's answers leave. So a broker killed by SIGKILL loses no row of what it
answered.

Invariant: seq is gapless over all tables of a life: a row gets its seq when it is written, so a row
that could not be written never had one. A life begins with the time in µs as its seq: no other life
of this emitter has used it, in another store or another copy of this one either, for rows come more
slowly than microseconds. event_time never goes back, and a row emitted after a frame was written is
later than its `as_of`.

What goes wrong here never harms messages: a full or failing disk costs rows, which are counted and
reported as SPOOL_LOSS. Only what happened to the broker itself waits for room: that its disk was
full must not be lost for lack of room. That a snapshot is complete is said by no row whose turn
lost another. Absent on purpose: Delta, and any wait of the broker. Syncing is a task of its own,
once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

from engine.foundation.errors import ConfigError, DiskFull, StorageError
from engine.foundation.limits import (
    PULLED_MARKS_MAX,
    SPOOL_BYTES_MAX,
    SPOOL_FRAME_ROWS_MAX,
    SPOOL_ROWS_KEPT_MAX,
    SPOOL_SEGMENT_BYTES,
)
from engine.foundation.observing import EmittedUpTo, Fact, FlushDone, HandedTail, LifecycleEvent
from engine.foundation.units import MILLISECOND_US, SECOND_MS
from engine.runtime import Disk, File, Runtime
from engine.runtime.durable import make_durable
from engine.telemetry.events import IMMEDIATE_CAUSES, FlushSums, row_of, rows_of, stamped
from engine.telemetry.frames import Life, Mark, Row, Tail, Turn, encodable, encode_frame
from engine.telemetry.progress import MarkKey, NextLife, PulledMark
from engine.telemetry.segments import read_shipped_mark, restore
from engine.telemetry.spool import Spool
from engine.telemetry.tables import BY_NAME, TABLES

SPOOL_DIRECTORY: Final = "spool"
"""Folder of the spool inside a broker's store folder."""

WRITER_LOCK_NAME: Final = "writer.lock"

LAST_WORDS_HEARD_US: Final = 8 * SECOND_MS * MILLISECOND_US
"""Ends are judged at ticks, 5 s apart unless a run has others; nothing can change behind them."""

LAST_LIFE: Final = -1
"""As `broker_epoch`: the life that wrote the spool last."""

RESUME_RATIO: Final = 0.9
"""Telemetry that stopped because the spool was full resumes below this share of its limit: no
flapping at the edge."""

_LIFECYCLE: Final = TABLES.index(BY_NAME["lifecycle"])
_KIND: Final = BY_NAME["lifecycle"].own_names.index("kind")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmitterIdentity:
    """Who reports: a node of a broker, by a number that stays whatever its role is; who observes a
    broker has a name in its place.
    """

    cluster: str
    broker: str
    broker_id: int | str

    @property
    def emitter(self) -> str:
        """The identity in one word, as every row carries it."""
        return f"{self.cluster}/{self.broker}/{self.broker_id}"

    def of_spool(self, earlier: str | None) -> EmitterIdentity:
        """The node that a spool is of, when it is one of this broker; else this one."""
        place, _, number = (earlier or "").rpartition("/")
        is_node = isinstance(self.broker_id, int) and number.isdecimal()
        if not is_node or place != f"{self.cluster}/{self.broker}":
            return self
        return replace(self, broker_id=int(number))


class Telemetry:
    """An `Observer` that writes into a spool. Made by `open`."""

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        identity: EmitterIdentity,
        *,
        lock_file: File,
        segment_bytes: int,
        bytes_max: int,
        broker_epoch: int | None,
    ) -> None:
        self._clock = runtime.clock
        self._lock_file = lock_file
        self._bytes_max = bytes_max
        shipped = read_shipped_mark(runtime.disk, directory)
        restored = restore(runtime.disk, directory, shipped_seq=shipped.seq if shipped else 0)
        self._identity = identity = identity.of_spool(restored.emitter)
        _refuse_other_emitter(directory, identity, restored.emitter)
        self.earlier_until_us: Final = max(restored.as_of, shipped.as_of if shipped else 0)
        """Up to when it was written before, by the clock of its rows; 0 before the first life."""
        self._event_time = 1 + self.earlier_until_us
        self.earlier_epoch: Final = restored.broker_epoch
        """The last life that wrote this spool; 0 before the first."""
        self.earlier_next_seq: Final = restored.next_seq
        """Seq behind the last row that was found."""
        self._progress = restored.progress
        self._earlier_marks = restored.progress.pulled_marks()
        self._earlier_offsets = restored.progress.reported_offsets()
        self._earlier_tails = restored.progress.handed_tails()
        self._follows_seq = restored.last_seq
        now_us = self._stamp()
        self.next_seq = self._life_seq = max(now_us, restored.next_seq)
        """Seq of the next row to be written."""
        epoch = max(now_us, restored.broker_epoch + 1)
        if broker_epoch == LAST_LIFE:
            broker_epoch = restored.broker_epoch or None
        self.broker_epoch: Final = epoch if broker_epoch is None else broker_epoch
        self._rows: list[Row] = []
        self._moved: dict[MarkKey, tuple[int, str | None]] = {}
        self._tails: dict[tuple[str, int], Tail] = {}
        self._sums = FlushSums()
        self._lost_count = 0
        self._losses = 0
        """Rows that were lost, and other SPOOL_LOSSes, in this life."""
        self._loss_reason = ""
        self._failing = False
        self._stopped = False
        self._follows = self._awaits_role = self._end_is_due = False
        """Does another node report on the broker? Does nobody know yet who does? Has this one still
        to report that nothing is there?"""
        self._late_role: Fact | None = None
        """The last role that the node took while nothing was written."""
        self._roll_due = False
        """Does the segment begin with more than is known now?"""
        self._next_life: NextLife | None = None
        """What the next segment begins with, while it is encoded."""
        self._spool = Spool(runtime.disk, directory, restored, segment_bytes=segment_bytes)
        self._closing = asyncio.Event()
        self._syncing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        try:
            self._spool.begin(self._life())
        except DiskFull as error:
            self._write_failed([], error)
        else:
            self._spool.sync_at_once()
        for loss in restored.losses:
            _log.warning("spool %s: %s", directory, loss)
            self._report_loss(loss, clean=False)

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        directory: str,
        identity: EmitterIdentity,
        *,
        segment_bytes: int = SPOOL_SEGMENT_BYTES,
        bytes_max: int = SPOOL_BYTES_MAX,
        broker_epoch: int | None = None,
    ) -> Telemetry:
        """Go on with the spool in `directory` (`<store>/spool`), or begin one. `broker_epoch`: the
        life that is reported on, µs since 1970, or LAST_LIFE; None: the one that begins now.

        Raises ConfigError when the spool is of another broker, StorageError when another process
        writes it or the folder cannot be written, CorruptRecord when a newer version wrote it. A
        disk without room is no reason: rows are lost until there is some, and that is reported
        then.
        """
        make_durable(runtime.disk, directory)
        lock_file = _take_spool(runtime.disk, directory)
        try:
            return cls(
                runtime,
                directory,
                identity,
                lock_file=lock_file,
                segment_bytes=segment_bytes,
                bytes_max=bytes_max,
                broker_epoch=broker_epoch,
            )
        except BaseException:
            lock_file.close()
            raise

    def pulled_marks(self) -> dict[MarkKey, PulledMark]:
        """Pulled marks of earlier lives by (group, topic, queue_id), as the spool had them when it
        was opened."""
        return dict(self._earlier_marks)

    def reported_offsets(self) -> dict[MarkKey, int]:
        """What each group had reported last, as `pulled_marks`; none of before a lost report."""
        return dict(self._earlier_offsets)

    def handed_tails(self) -> list[HandedTail]:
        """What was pulled before it was synced, as `pulled_marks`."""
        return list(self._earlier_tails)

    def observe(self, fact: Fact) -> None:
        """See `Observer.observe`. Flushes are summed by the second, shutdown and recovery apart."""
        if self._stopped:
            self._lost_count += 1
            self._losses += 1
            if isinstance(fact, LifecycleEvent) and fact.kind == "ROLE_CHANGE":
                self._late_role = fact
        elif self._follows and not _is_of_node(fact):
            return
        elif isinstance(fact, FlushDone) and fact.cause not in IMMEDIATE_CAUSES:
            self._sums.add(fact)
        else:
            self._rows.append(stamped(row_of(fact), self._stamp()))
            if len(self._rows) >= SPOOL_FRAME_ROWS_MAX:
                self.write_turn()

    def last_words(self, facts: Iterable[Fact]) -> None:
        """Report what ends all that was reported, as of the moment at which it was reported last:
        nobody knows what was later. Then the horizon is now, or so much later that it is judged.
        Never raises.
        """
        self.write_turn()
        self._event_time += 1
        ended = self._event_time
        self._rows += [stamped(row_of(fact), ended) for fact in facts]
        self.write_turn()
        self._event_time = max(self._event_time, ended + LAST_WORDS_HEARD_US)
        self.tick()

    def observe_all(self, facts: Sequence[Fact]) -> None:
        """See `Observer.observe_all`."""
        if self._stopped:
            self._lost_count += len(facts)
            self._losses += len(facts)
        elif facts and not self._follows:
            self._rows += rows_of(facts, self._stamp())
            if len(self._rows) >= SPOOL_FRAME_ROWS_MAX:
                self.write_turn()

    def pulled(
        self, group: str, topic: str, queue_id: int, pulled_offset: int, client_id: str | None
    ) -> None:
        """See `Observer.pulled`. Only the last of a turn is written per queue."""
        if not self._follows:
            self._moved[(group, topic, queue_id)] = (pulled_offset, client_id)

    def handed(self, tail: HandedTail) -> None:
        """See `Observer.handed`. Only the last of a turn is written per queue."""
        if not self._follows:
            self._tails[tail.topic, tail.queue_id] = astuple(tail)

    def emitted_up_to(self) -> EmittedUpTo | None:
        """See `Observer.emitted_up_to`."""
        if self._stopped or self._failing or self._lost_count or self._follows:
            return None
        return EmittedUpTo(self.next_seq + len(self._rows), self._losses)

    def await_role(self) -> None:
        """This node does not know who reports on the broker now: it goes on with facts of its own,
        and what it reported before holds.
        """
        if not self._follows:
            self._follows = self._awaits_role = True

    def lead(self) -> None:
        """This node reports on the broker from now on: all that there is, in a snapshot that begins
        at once.
        """
        if self._follows:
            self._follows = self._awaits_role = self._end_is_due = False
            self._losses += 1

    def follow(self) -> None:
        """Another node reports on the broker from now on: what this one reported has ended, and it
        goes on with facts of its own.
        """
        if self._follows and not self._awaits_role:
            return
        self._follows, self._awaits_role, self._end_is_due = True, False, True
        self._end_reports()
        self._moved.clear()  # They wait where the write has failed.
        self._tails.clear()
        self._sums.take()
        self._progress.forget()
        self._next_life, self._roll_due = None, True

    def _end_reports(self) -> None:
        """Report that nothing is there, unless rows before that are lost: then when they are
        counted.
        """
        self.write_turn()
        if self._stopped or self._failing or self._lost_count:
            return
        losses_before = self._losses
        event = _nothing_is_there(self.next_seq, self._clock.now_ms())
        self._rows.append(stamped(row_of(event), self._stamp()))
        self.write_turn()
        self._end_is_due = self._losses != losses_before

    def write_turn(self) -> None:
        """Write what was reported since the last time, in one write; nothing when there is nothing.
        Never raises."""
        if self._rows or self._moved or self._tails:
            self._write()

    def tick(self) -> None:
        """Once a second: report the flush sums, look at the spool's size, and write a sign of life.
        Never raises."""
        event_time = self._stamp()
        self._mind_size()
        for row in self._sums.take():
            self._rows.append(stamped(row, event_time))
        self._write()
        if self._end_is_due:
            self._end_reports()

    def start(self) -> None:
        """Tick and sync on every full second of the broker's clock, until `close`, which ticks."""
        self._task = asyncio.create_task(self._run(), name="telemetry")

    async def close(self) -> None:
        """Write and sync everything reported so far, then stop. Only who ticks by itself gives a
        last sign of life: of others nobody knows what has changed since they ticked.
        """
        self._closing.set()
        if self._task is None:
            self.write_turn()
        else:
            await self._task
            self.tick()
        await self.sync()
        self._spool.close()
        self._lock_file.close()

    async def settle(self) -> None:
        """Make everything reported so far survive a power cut. Never raises."""
        self.write_turn()
        await self.sync()

    async def sync(self) -> None:
        """Make everything written so far survive a power cut. Never raises."""
        try:
            async with self._syncing:  # Two at a time would close one segment twice.
                await self._spool.sync()
        except StorageError as error:
            _log.error("spool: %s; a new segment begins", error)
            self._report_loss(f"a power cut could lose rows before seq {self.next_seq}: {error}")
            self._roll()

    async def _run(self) -> None:
        while not self._closing.is_set():
            until_next_ms = SECOND_MS - self._clock.now_ms() % SECOND_MS
            try:
                async with asyncio.timeout(until_next_ms / SECOND_MS):
                    await self._closing.wait()
            except TimeoutError:
                self.tick()
                await self.sync()

    def _stamp(self) -> int:
        now = self._clock.now_us()
        if now > self._event_time:  # noqa: PLR1730 - max() costs more than all the rest here
            self._event_time = now
        return self._event_time

    def _life(self, *, whole: bool = True) -> Life:
        """Who speaks from the next row on, with all that is known by then, or with nothing of it
        if not `whole` but the tails, which are few.
        """
        identity, progress = self._identity, self._progress
        return Life(
            cluster=identity.cluster,
            broker=identity.broker,
            broker_id=identity.broker_id,
            broker_epoch=self.broker_epoch,
            first_seq=self.next_seq,
            as_of=self._event_time - 1,
            marks=list(progress.marks.values()) if whole else [],
            offsets=list(progress.offsets.values()) if whole else [],
            tails=list(progress.tails.values()),
            life_seq=self._life_seq,
            follows_seq=self._follows_seq,
        )

    def _write(self) -> None:
        """Encode and write the buffered rows and marks as one frame; the rows are written,
        counted as lost, or wait."""
        if self._stopped:
            return
        rows, self._rows = self._rows, []
        if self._spool.wants_roll or (self._roll_due and not self._failing):
            self._roll_in_steps()
        marks = [(*key, *value, self.broker_epoch) for key, value in self._moved.items()]
        tails = list(self._tails.values())
        as_of = self._event_time
        try:
            data = encode_frame(Turn(self.next_seq, as_of, rows, marks, tails))
        except (ValueError, OverflowError) as error:
            taken_count = len(rows)
            data, rows, marks = self._salvaged(rows, marks, as_of)
            tails = []
            self._lose(taken_count - len(rows), str(error))
        try:
            if not self._spool.has_begun:
                self._spool.begin(self._life())
            self._spool.write(data, heartbeat=not (rows or marks or tails))
        except StorageError as error:
            self._write_failed(rows, error)
            return
        self.next_seq += len(rows)
        self._event_time = as_of + 1
        self._progress.take_rows(rows)
        self._progress.take_marks(marks)
        self._progress.take_tails(tails)
        if self._next_life is not None:
            self._next_life.note(rows, marks)
        self._moved.clear()
        self._tails.clear()
        if self._failing or self._lost_count:
            self._resume()

    def _salvaged(
        self, rows: list[Row], marks: list[Mark], as_of: int
    ) -> tuple[bytes, list[Row], list[Mark]]:
        """The frame without what cannot be encoded: text that is no text is made so, impossible
        numbers are left out."""
        taken_count = len(rows)
        rows = [clean for row in rows if (clean := encodable(row)) is not None]
        if len(rows) < taken_count:
            rows = [row for row in rows if not _ends_snapshot(row)]
        marks = [clean for mark in marks if (clean := encodable(mark)) is not None]
        try:
            return encode_frame(Turn(self.next_seq, as_of, rows, marks)), rows, marks
        except (
            ValueError
        ):  # Too long as a whole: the marks matter more, and fit by their own limit.
            marks = marks[-PULLED_MARKS_MAX:]
            return encode_frame(Turn(self.next_seq, as_of, [], marks)), [], marks

    def _report_loss(self, detail: str, *, clean: bool | None = None) -> None:
        self._losses += 1
        self.observe(LifecycleEvent("SPOOL_LOSS", detail, clean=clean))

    def _lose(self, count: int, reason: str) -> None:
        self._lost_count += count
        self._losses += count
        self._loss_reason = reason
        if count:
            self._forget_reports()

    def _forget_reports(self) -> None:
        """Reports are lost: what was reported before them is not the last."""
        self._progress.offsets.clear()
        self._next_life = None
        self._roll_due = True

    def _write_failed(self, rows: list[Row], error: StorageError) -> None:
        if not self._failing:
            _log.error(
                "spool: %s; telemetry rows are lost until writes succeed, messages go on", error
            )
        self._failing = True
        kept = [row for row in rows if row[0] == _LIFECYCLE and not _ends_snapshot(row)]
        kept = kept[:SPOOL_ROWS_KEPT_MAX]
        self._rows = kept + self._rows
        self._lose(len(rows) - len(kept), str(error))
        try:
            self._spool.discard_tail()
        except StorageError:  # Half a frame stays behind the end; the next write goes over it.
            _log.debug("spool: its tail cannot be cut", exc_info=True)

    def _resume(self) -> None:
        """Writes succeed again: report in a row how much was lost meanwhile."""
        if self._failing:
            _log.warning("spool: writes succeed again; %d rows were lost", self._lost_count)
        lost_count, self._lost_count, self._failing = self._lost_count, 0, False
        if lost_count:
            detail = f"{lost_count} facts were not written and have no seq: {self._loss_reason}"
            self._report_loss(detail, clean=False)

    def _mind_size(self) -> None:
        """Stop when the spool outgrows its limit, go on when the shipper has made room."""
        if self._stopped:
            self._spool.refresh()
            if self._spool.size_bytes() < self._bytes_max * RESUME_RATIO:
                self._stopped = False
                if self._late_role is not None:
                    self._lost_count -= 1
                    role, self._late_role = self._late_role, None
                    self.observe(role)
                _log.warning(
                    "spool: room again; telemetry goes on, %d facts were lost", self._lost_count
                )
        elif self._spool.size_bytes() > self._bytes_max:
            self._spool.refresh()
            if self._spool.size_bytes() > self._bytes_max:
                self.write_turn()
                self._loss_reason = (
                    f"the spool held more than {self._bytes_max} bytes; is the shipper running?"
                )
                _log.error("telemetry stops, messages go on: %s", self._loss_reason)
                self._stopped = True
                self._forget_reports()
                self._roll()

    def _roll_in_steps(self) -> None:
        """Come a step nearer to the next segment, and begin it when its first frame is encoded; of
        few marks that is at once.
        """
        if not self._can_roll:
            return
        if self._next_life is None:
            self._next_life = NextLife(self._progress)
        if not self._next_life.is_ready:
            self._next_life.step()
            return
        following, self._next_life = self._next_life, None
        try:
            header = following.encoded(self._life(whole=False))
        except ValueError:  # Many marks moved meanwhile, and the last entry of each counts.
            header = encode_frame(self._life())
        self._begin_segment(header)

    def _roll(self) -> None:
        """Begin the next segment now, whatever that costs: the present one is not to be relied on,
        or nobody writes any more.
        """
        if self._can_roll:
            self._next_life = None
            self._begin_segment(encode_frame(self._life()))

    @property
    def _can_roll(self) -> bool:
        """Does the segment hold a row? One without has no successor."""
        return self._spool.has_begun and self.next_seq != self._spool.first_seq

    def _begin_segment(self, header: bytes) -> None:
        try:
            self._spool.roll(self.next_seq, header)
        except StorageError as error:
            _log.error("spool: no new segment (%s); the old one goes on", error)
            return
        self._roll_due = False


def _is_of_node(fact: Fact) -> bool:
    """Is it about the node itself, and not about what the broker serves?"""
    if not isinstance(fact, LifecycleEvent):
        return False
    return fact.group is None and fact.topic is None and fact.kind != "SNAPSHOT"


def _nothing_is_there(seq: int, now_ms: int) -> LifecycleEvent:
    """A complete snapshot without a key: whatever was reported before is gone."""
    detail = "another node reports on the broker"
    return LifecycleEvent("SNAPSHOT", detail, seq_from=seq, time_from_ms=now_ms)


def _ends_snapshot(row: Row) -> bool:
    """Does it say that every row of a snapshot was reported?"""
    return row[0] == _LIFECYCLE and row[2][_KIND] == "SNAPSHOT"


def _take_spool(disk: Disk, directory: str) -> File:
    """The spool's lock, for as long as the file stays open; two writers would tear each other's
    rows."""
    file = disk.open(f"{directory}/{WRITER_LOCK_NAME}", create=True)
    if not file.lock():
        file.close()
        raise StorageError(
            f"spool {directory} is written by another process; stop that broker, or give this one "
            "a store folder of its own"
        )
    return file


def _refuse_other_emitter(directory: str, identity: EmitterIdentity, earlier: str | None) -> None:
    """A broker under a new name must not go on with the old one's numbers: both would have gaps."""
    if earlier is not None and earlier != identity.emitter:
        raise ConfigError(
            "broker",
            identity.emitter,
            f"{earlier}, whose rows are in spool {directory}; keep it or move the spool away",
        )
