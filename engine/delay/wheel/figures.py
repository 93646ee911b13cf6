"""Time-wheel statistics in the form used by RocketMQ's metrics.

Place in the walk: beside it, once a scrape. Entries are counted by the heads of the delay logs, so
no entry is read; those that cancel count, as there. Absent on purpose: names and labels
(`broker/metrics/timer_families`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from engine.delay.wheel.hour_logs import HourLogs
from engine.foundation.units import SECOND_MS

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
    enqueued: Mapping[str, int]
    dequeued: Mapping[str, int]
    """By topic, since the start."""


def due_within(logs: HourLogs, now_ms: int) -> dict[int, int]:
    """Bound in seconds → how many are due by then, and not by the bound before."""
    second = now_ms // SECOND_MS + 1
    by_then = [logs.count_between(second, second + bound_s) for bound_s in BOUNDS_S]
    return {
        bound_s: count - before
        for bound_s, count, before in zip(BOUNDS_S, by_then, (0, *by_then), strict=False)
    }
