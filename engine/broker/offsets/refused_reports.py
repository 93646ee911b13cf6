"""Limits the rows for refused offset reports: the first one, then a count now and then.

Place in the walk: `commit_reports` asks here before it emits the fact that a report was refused.
A client that remembers an offset which does not count reports it each five seconds for as long as
it runs; the first report is news, the others are a number.

Invariant: the first report of an offset by a client has a row at once, and the next ones one in
REFUSED_REPORT_EVERY_MS that counts those in between. Where more are refused at a time than there is
room for, those beyond have no row until one of the others is that old. Pure: time comes in as
`now_ms`, steady. Absent on purpose: why a report is refused, and rows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey
from engine.foundation.limits import REFUSED_REPORTS_MAX
from engine.foundation.units import MINUTE_MS

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
