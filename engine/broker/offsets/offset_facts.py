"""Emits facts about consume-offset changes, and rate-limited facts about refused reports.

Place in the walk: beside it; commits, resets, new lives, transactions and the audit at boot report
here what they did (table consume_offsets).

Invariant: the first refused report of an offset by a client has a row at once, the next ones one in
REFUSED_REPORT_EVERY_MS that counts those in between; beyond the room for that there is no row.
Absent on purpose: deciding, and why a report is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey
from engine.foundation.limits import REFUSED_REPORTS_MAX
from engine.foundation.observing import Observer, OffsetReport
from engine.foundation.units import MINUTE_MS
from engine.store import MessageStore


class OffsetFacts:
    """Reports the consume offsets of one broker to its observer."""

    def __init__(self, *, store: MessageStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    def emit(
        self,
        key: QueueKey,
        offset: int,
        previous: int | None,
        *,
        path: str,
        trigger: str = "UNKNOWN",
        client_id: str | None = None,
        accepted: bool = True,
        held_back: int | None = None,
    ) -> None:
        """A group's offset of a queue was reported or set: one row."""
        group, topic, queue_id = key
        self._observer.observe(
            OffsetReport(
                group=group,
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                previous_offset=previous,
                path=path,
                trigger=trigger,
                client_id=client_id,
                accepted=accepted,
                min_offset=self._store.min_offset(topic, queue_id),
                max_offset=self._store.max_offset(topic, queue_id),
                held_back=held_back,
            )
        )


REFUSED_REPORT_EVERY_MS = 10 * MINUTE_MS
"""Time from one row of the same refused report to the next."""

ReportKey = tuple[QueueKey, int, str, int]
"""queue, life of its topic, client, offset"""


@dataclass(slots=True)
class _Refused:
    """A report that is refused again and again."""

    row_ms: int
    """When it had its last row."""
    held_back: int = 0
    """Reports since then."""


class RefusedReports:
    """The refused reports of one broker."""

    def __init__(self, count_max: int = REFUSED_REPORTS_MAX) -> None:
        self._count_max = count_max
        self._refused: OrderedDict[ReportKey, _Refused] = OrderedDict()
        """The one whose last row is the oldest comes first."""

    def take(self, key: ReportKey, *, now_ms: int) -> int | None:
        """Note a refused report; return how many of it were held back since its last row, or None
        to hold this one back as well.
        """
        refused = self._refused.get(key)
        if refused is None:
            if len(self._refused) >= self._count_max and not self._forget_oldest(now_ms):
                return None
            self._refused[key] = _Refused(now_ms)
            return 0
        if now_ms - refused.row_ms < REFUSED_REPORT_EVERY_MS:
            refused.held_back += 1
            return None
        held_back, refused.held_back, refused.row_ms = refused.held_back, 0, now_ms
        self._refused.move_to_end(key)
        return held_back

    def _forget_oldest(self, now_ms: int) -> bool:
        """Make room by the one that may have another row; is there any?"""
        oldest = next(iter(self._refused))
        if now_ms - self._refused[oldest].row_ms < REFUSED_REPORT_EVERY_MS:
            return False
        del self._refused[oldest]
        return True
