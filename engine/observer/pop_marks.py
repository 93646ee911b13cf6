"""Computes a POP group's watermarks for each queue and selects those to emit.

Place in the walk: progress of all groups and `PopLog` → `Look.popped` → pop_watermarks. Pure.

A group reads by POP when a checkpoint names it, or when it has an offset in a retry topic of POP.
Its consume offset moves when messages are handed out; what was handed out and not acknowledged is
another figure.

Invariant: acknowledged <= popped <= end, whatever was read a moment later. A queue is reported when
it differs from what was reported last, when anything was acknowledged or ran out, and once a
snapshot. Absent on purpose: asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.admin.api.groups import QueueProgress
from engine.foundation.observing import PopWatermark
from engine.observer.poll_result import Look, Place, PopSeen
from engine.observer.pop_log import Key, PopLog, PopQueue, left_of
from engine.observer.pop_reading import NOT_YET, TOO_MANY
from engine.protocol.names import pop_retry_of

Progress = Mapping[str, Mapping[Place, QueueProgress]]


def pop_groups(progress: Progress, log: PopLog) -> set[str]:
    """Those that read by POP."""
    by_topic = {
        group
        for group, rows in progress.items()
        for topic, _ in rows
        if (known := pop_retry_of(topic, [group])) is not None and known.group == group
    }
    return by_topic | (log.groups() & progress.keys())


def pop_seen(
    progress: Progress, log: PopLog, now_ms: int, *, unknown_reason: str | None
) -> dict[Key, PopSeen]:
    """What was handed out, by the broker's clock; `unknown_reason`: why its log says nothing."""
    log.end_expired(now_ms)
    keys = {(group, *place) for group, rows in progress.items() for place in rows}
    log.looked(keys)
    reason = unknown_reason
    if reason is None and not log.is_exact(now_ms):
        reason = TOO_MANY if log.is_full else NOT_YET
    found: dict[Key, PopSeen] = {}
    for group in sorted(pop_groups(progress, log)):
        for place, one in progress[group].items():
            key = (group, *place)
            queue = log.queues.get(key, PopQueue())
            found[key] = _seen(one, queue, reason)
            queue.acknowledged = queue.expired = 0
    return found


def _seen(progress: QueueProgress, queue: PopQueue, reason: str | None) -> PopSeen:
    popped = max(progress.consumer_offset, 0)
    if popped > max(progress.broker_offset, 0):
        return PopSeen(None, None, unknown_reason="its offset lies beyond the end of the queue")
    if reason is not None:
        return PopSeen(popped, None, unknown_reason=reason)
    left = left_of(queue, popped)
    return PopSeen(
        popped,
        left.count,
        left.ranges,
        left.oldest_ms,
        queue.invisible_ms or None,
        queue.acknowledged,
        queue.expired,
    )


class PopMarks:
    """What was reported of one broker."""

    def __init__(self) -> None:
        self._reported: dict[Key, PopWatermark] = {}
        self._snapshot_from_ms: int | None = None
        self._reported_since: dict[Key, None] = {}
        """Those that were reported since the newest snapshot began."""

    def of(self, look: Look, *, snapshot_from_ms: int | None) -> Iterator[PopWatermark]:
        """The facts of a look; in a snapshot that began then all of them once."""
        if snapshot_from_ms is not None and snapshot_from_ms != self._snapshot_from_ms:
            self._snapshot_from_ms = snapshot_from_ms
            self._reported_since.clear()
        for key, seen in look.popped.items():
            mark = _mark(key, seen, max(look.progress[key[0]][key[1:]].broker_offset, 0))
            before = self._reported.get(key)
            is_due = snapshot_from_ms is not None and key not in self._reported_since
            state = replace(mark, acknowledged=0, expired=0)
            if is_due or before != state or mark != state:
                self._reported[key] = state
                self._reported_since[key] = None
                yield mark
        for key in [key for key in self._reported if key not in look.popped]:
            del self._reported[key]


def _mark(key: Key, seen: PopSeen, end: int) -> PopWatermark:
    return PopWatermark(
        *key,
        popped=seen.popped,
        max_offset=end,
        unacknowledged=seen.unacknowledged,
        unacknowledged_ranges=seen.ranges,
        handed_out_since_ms=seen.oldest_ms,
        invisible_ms=seen.invisible_ms,
        acknowledged=seen.acknowledged,
        expired=seen.expired,
        unknown_reason=seen.unknown_reason,
    )
