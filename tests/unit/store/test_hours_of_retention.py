"""The hours named by deleteWhen in nights in which the clocks are changed, in real time zones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from engine.foundation.units import DAY_MS, HOUR_MS, MINUTE_MS
from engine.runtime.clock import SystemClock
from engine.store.config import StoreConfig
from engine.store.upkeep.retention import AgedFile, decide, hours_skipped

NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
LORD_HOWE = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0"
SKIPS_MIDNIGHT = "<-04>4<-03>,M10.1.0/0,M3.4.0/0"
"""As in Paraguay: the day begins at one o'clock."""


@pytest.fixture(autouse=True)
def own_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    time.tzset()


def minutes_of_deletion(zone: str, day: str, hour: int, patch: pytest.MonkeyPatch) -> int:
    """For how long files go on a day, from its midnight on, with `deleteWhen` = hour."""
    patch.setenv("TZ", zone)
    time.tzset()
    clock, config = SystemClock(), StoreConfig("/store", delete_when_hours=(hour,))
    begin_ms = int(time.mktime((*map(int, day.split("-")), 0, 0, 0, 0, 0, -1))) * 1000
    files = [AgedFile(0, begin_ms - 9 * DAY_MS), AgedFile(1, begin_ms)]
    count = 0
    for now_ms in range(begin_ms, begin_ms + 23 * HOUR_MS, MINUTE_MS):
        verdict = decide(
            config,
            files,
            used_ratio=0.1,
            now_ms=now_ms,
            local_hour=clock.local_hour(now_ms),
            skipped_hours=hours_skipped(clock.local_hour, now_ms),
        )
        count += bool(verdict.delete)
    return count


@pytest.mark.parametrize(
    ("zone", "day", "hour", "minutes"),
    [
        pytest.param(NEW_YORK, "2026-03-08", 2, 60, id="New York has no two o'clock"),
        pytest.param(BERLIN, "2026-03-29", 2, 60, id="Berlin has no two o'clock"),
        pytest.param(SKIPS_MIDNIGHT, "2026-10-04", 0, 60, id="a day has no midnight"),
        pytest.param(NEW_YORK, "2026-11-01", 1, 120, id="New York has one o'clock twice"),
        pytest.param(BERLIN, "2026-10-25", 2, 120, id="Berlin has two o'clock twice"),
        pytest.param(LORD_HOWE, "2026-10-04", 2, 60, id="Lord Howe has half of two o'clock"),
        pytest.param(LORD_HOWE, "2026-04-05", 1, 90, id="Lord Howe has half of one more"),
        pytest.param(BERLIN, "2026-03-30", 2, 60, id="the night after"),
        pytest.param(BERLIN, "2026-03-29", 4, 60, id="another hour of that night"),
    ],
)
def test_files_go_each_night_whatever_its_hours(
    zone: str, day: str, hour: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert minutes_of_deletion(zone, day, hour, monkeypatch) == minutes
