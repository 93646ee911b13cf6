"""Picks the facts of POP groups to emit: changed ones, and all once in each snapshot.

Place in the walk: under `facts`. Pure. Invariant: a queue is reported when it differs from what was
reported last, when anything was acknowledged or ran out, and once a snapshot. Absent on purpose:
what is known of a queue (`pop_marks`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.foundation.observing import PopWatermark
from engine.observer.looks import Look, PopSeen
from engine.observer.pop_log import Key


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
