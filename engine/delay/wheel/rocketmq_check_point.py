"""Reads RocketMQ's timer progress from a store's checkpoint (`config/timercheck`).

Place in the walk: read once, when a wheel takes a store over. RocketMQ says how far it is in two
numbers: up to which second it has delivered, and up to which place of its topic of timers it knew
them. Together they are a mark.

Invariant: what may have been delivered in the last second before it stopped counts as not
delivered: a message comes twice rather than never. Absent on purpose: writing it.
"""

from __future__ import annotations

import logging

from engine.delay.wheel.delivered import Mark
from engine.foundation.errors import CorruptRecord
from engine.protocol.names import TIMER_TOPIC
from engine.protocol.timer_files import PRECISION_MS, CheckPoint
from engine.runtime import Disk
from engine.store import MessageStore

_log = logging.getLogger(__name__)


def mark_of_rocketmq(disk: Disk, path: str, store: MessageStore) -> Mark | None:
    """What RocketMQ delivered from this store; None when it delivered nothing, or the file says
    nothing that can be.
    """
    if not disk.exists(path):
        return None
    try:
        check = CheckPoint.from_bytes(disk.read(path))
    except CorruptRecord as error:
        _log.warning("%s: %s; timers that RocketMQ delivered come again", path, error)
        return None
    next_offset = min(check.next_offset, store.max_offset(TIMER_TOPIC, 0))
    if check.delivered_ms <= 0 or next_offset <= 0:
        return None
    known = store.queue_units(TIMER_TOPIC, 0, next_offset - 1, 1)
    if not known:
        return None  # All that it delivered has gone with its files.
    log_offset, size_bytes, _ = known[0]
    return Mark(check.delivered_ms - PRECISION_MS, log_offset, log_offset + size_bytes)
