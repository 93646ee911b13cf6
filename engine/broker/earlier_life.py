"""What the last life left behind, held against each other at boot: what the spool knows, the
offsets file, the log.

Place in the walk: between loading the tables and opening the port. The three are written at
different times and can be lost, or changed by hand, one by one; what does not fit is told before
the first client can cover it up.

  log ends below a tail       the offset is watched, and told when another message gets it
  log ends below a mark       watermarks of the queue at once: what was pulled there is gone, and
                              other messages will get its offsets
  mark of a deleted topic     it is void: the process died before it was taken back
  offset above its report     a RESTORE report: [report, offset) is passed over
  spool behind the offsets    SPOOL_LOSS: rows that were durable before the file are not there
  spool of a later life       SPOOL_DOUBT: each life writes the file at its start and at its end

Invariant: nothing is repaired here; RocketMQ begins with the same offsets. An offset below its last
report is the usual trace of a crash (the file is 5 s old) and is told by the redeliveries it
causes. One above it was raised by hand, or a crash took back a report that had lowered it: each
report is durable before the file that holds it. Absent on purpose: files.
"""

from __future__ import annotations

import logging

from engine.broker.parts import BrokerParts
from engine.broker.reported_offsets import tell_offset
from engine.broker.reused_offsets import find_lost
from engine.broker.state.readers import QueueKey
from engine.broker.tables import Spooled
from engine.foundation.observing import LifecycleEvent, report
from engine.telemetry import Telemetry

_log = logging.getLogger(__name__)


def compare_with_earlier_life(
    parts: BrokerParts, telemetry: Telemetry, spooled: Spooled | None
) -> None:
    """Take the pulled marks over and tell what the offsets, the log and the spool do not account
    for; `spooled` is how far the spool was when the offsets were written.
    """
    if spooled is not None:
        _tell_lost_rows(parts, telemetry, spooled)
    find_lost(parts, telemetry.handed_tails())
    for key, reported in telemetry.reported_offsets().items():
        offset = parts.offsets.committed(*key)
        if offset is not None and offset > reported:
            _tell_raised(parts, key, offset, reported)
    marks, cut = telemetry.pulled_marks(), []
    for key, mark in marks.items():
        _, topic, queue_id = key
        if parts.topics.find(topic) is None:
            parts.observer.pulled(*key, 0, None)
            continue
        end = parts.store.max_offset(topic, queue_id)
        parts.readers.restore(
            key,
            pulled_offset=mark.offset,
            max_offset=end,
            client_id=mark.client_id,
            broker_epoch=mark.broker_epoch,
        )
        if mark.offset > end:
            cut.append(key)
    parts.watermarks_wanted(cut)


def _tell_lost_rows(parts: BrokerParts, telemetry: Telemetry, before: Spooled) -> None:
    found = Spooled(telemetry.earlier_epoch, telemetry.earlier_next_seq)
    if found.epoch == before.epoch and found.seq >= before.seq:
        return
    kind = "SPOOL_LOSS" if found < before else "SPOOL_DOUBT"
    detail = (
        f"the spool ends before row {found.seq} of life {found.epoch}, the offsets were written "
        f"before row {before.seq} of life {before.epoch}: "
    )
    if found < before:
        detail += "what was told between is lost, and how far groups had pulled"
    else:
        detail += "either that life ended at its start, or the spool is of another store"
    report(parts.observer, _log, LifecycleEvent(kind, detail, clean=False))


def _tell_raised(parts: BrokerParts, key: QueueKey, offset: int, before: int) -> None:
    group, topic, queue_id = key
    _log.warning(
        "group %s begins queue %d of %s at %d though it had reported %d last: "
        "%d messages are passed over",
        *(group, queue_id, topic, offset, before, offset - before),
    )
    tell_offset(parts, key, offset, before, path="RESTORE")
