"""At boot, compares the spool, offset file and log left by the broker's previous run.

Place in the walk: between loading the tables and opening the port. The three are written at
different times and can be lost, or changed by hand, one by one; what does not fit is reported
before the first client can cover it up.

  log ends below a tail       the offset is watched, and reported when another message gets it
  log ends below a mark       watermarks of the queue at once: what was pulled there is gone, and
                              other messages will get its offsets
  mark of a deleted topic     it is void: the process died before it was taken back
  offset above its report     a RESTORE report: [report, offset) is passed over
  spool behind the offsets    SPOOL_LOSS: rows that were durable before the file are not there
  spool of a later life       SPOOL_DOUBT: each life writes the file at its start and at its end

Invariant: nothing is repaired here; RocketMQ begins with the same offsets. An offset below its last
report is the usual trace of a crash (the file is 5 s old) and is reported by the redeliveries it
causes. One above it was raised by hand, or a crash took back a report that had lowered it: each
report is durable before the file that holds it. Absent on purpose: files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.broker.groups.readers import CUT, QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.reporting.offset_reuse import OffsetReuse
from engine.broker.topics.topics import Topics
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.store import MessageStore
from engine.telemetry import Telemetry

_log = logging.getLogger(__name__)


class Spooled(NamedTuple):
    """A place in the spool: the life of the broker, and the seq of its next row."""

    epoch: int
    seq: int


@dataclass(slots=True, kw_only=True, eq=False)
class BootAudit:
    """Compares what a broker finds at boot with what it reported before."""

    emit_marks: Callable[[Sequence[QueueKey]], None]
    facts: OffsetFacts
    observer: Observer
    offsets: ConsumerOffsets
    readers: Readers
    reuse: OffsetReuse
    store: MessageStore
    topics: Topics

    def compare_with_earlier_life(self, telemetry: Telemetry, spooled: Spooled | None) -> None:
        """Take the pulled marks over and report what the offsets, the log and the spool do not
        account for; `spooled` is how far the spool was when the offsets were written.
        """
        if spooled is not None:
            self._emit_lost_rows(telemetry, spooled)
        self.reuse.find_lost(telemetry.handed_tails())
        for key, reported in telemetry.reported_offsets().items():
            offset = self.offsets.committed(*key)
            if offset is not None and offset > reported:
                self._emit_raised(key, offset, reported)
        marks, cut = telemetry.pulled_marks(), []
        for key, mark in marks.items():
            _, topic, queue_id = key
            if not mark.offset and mark.client_id is None:
                continue  # Void since its group, topic or offsets were deleted.
            if self.topics.find(topic) is None:
                self.observer.pulled(*key, 0, None)
                continue
            end = self.store.max_offset(topic, queue_id)
            self.readers.restore(
                key,
                pulled_offset=mark.offset,
                max_offset=end,
                client_id=mark.client_id,
                broker_epoch=mark.broker_epoch,
            )
            if mark.offset > end:
                self.observer.pulled(*key, end, CUT)
                cut.append(key)
        self.emit_marks(cut)

    def _emit_lost_rows(self, telemetry: Telemetry, before: Spooled) -> None:
        found = Spooled(telemetry.earlier_epoch, telemetry.earlier_next_seq)
        if found.epoch == before.epoch and found.seq >= before.seq:
            return
        kind = "SPOOL_LOSS" if found < before else "SPOOL_DOUBT"
        detail = (
            f"the spool ends before row {found.seq} of life {found.epoch}, the offsets were "
            f"written before row {before.seq} of life {before.epoch}: "
        )
        if found < before:
            detail += "what was reported between is lost, and how far groups had pulled"
        else:
            detail += "either that life ended at its start, or the spool is of another store"
        report(self.observer, _log, LifecycleEvent(kind, detail, clean=False))

    def _emit_raised(self, key: QueueKey, offset: int, before: int) -> None:
        group, topic, queue_id = key
        _log.warning(
            "group %s begins queue %d of %s at %d though it had reported %d last: "
            "%d messages are passed over",
            *(group, queue_id, topic, offset, before, offset - before),
        )
        self.facts.emit(key, offset, before, path="RESTORE")
