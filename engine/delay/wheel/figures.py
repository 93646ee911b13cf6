"""Time-wheel statistics in the form used by RocketMQ's metrics, and by the hour.

Place in the walk: beside it, once a scrape, and each ten seconds for facts. Entries are counted by
the heads of the delay logs, so no entry is read; those that cancel count, as there. Absent on
purpose: names and labels (`broker/metrics/timer_families`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from engine.delay.wheel.hour_log import SECONDS
from engine.delay.wheel.hour_logs import HourLogs
from engine.foundation.units import HOUR_MS, SECOND_MS

BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""RocketMQ's bounds for how soon what waits is due."""


class TimerFigures(NamedTuple):
    """What one scrape says."""

    enqueue_lag: int
    """Records of timers that the wheel does not know yet."""
    enqueue_latency_ms: int
    dequeue_lag: int
    """Entries that wait."""
    dequeue_latency_ms: int
    """So late is what is due and was not delivered."""
    due_within: dict[int, int]
    """Seconds → how many are due by then, and not by the number before."""
    due_by_hour: tuple[int, ...]
    enqueued: Mapping[str, int]
    dequeued: Mapping[str, int]
    """By topic, since the start."""


HOURS_AHEAD: Final = 48
"""Hours of which it is reported how much is due in each."""


def due_by_hour(logs: HourLogs, now_ms: int, *, read: int, read_to: int) -> tuple[int, ...]:
    """How many are due in the hour that has begun, or were before, and in each of those after it;
    `read`: entries of the seconds up to `read_to`, the others are counted by the logs.
    """
    hour, later = now_ms // HOUR_MS, read_to + 1
    first = read + logs.count_between(later, (hour + 1) * SECONDS)
    return first, *(logs.count_in(hour + ahead, later) for ahead in range(1, HOURS_AHEAD))


def due_within(logs: HourLogs, now_ms: int) -> dict[int, int]:
    """Bound in seconds → how many are due by then, and not by the bound before."""
    second = now_ms // SECOND_MS + 1
    by_then = [logs.count_between(second, second + bound_s) for bound_s in BOUNDS_S]
    return {
        bound_s: count - before
        for bound_s, count, before in zip(BOUNDS_S, by_then, (0, *by_then), strict=False)
    }
