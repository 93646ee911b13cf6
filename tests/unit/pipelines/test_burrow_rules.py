"""Burrow's rules: cases of our own from the rules as given, and its own tables if they are at hand.

TIDEMARK_BURROW_CASES names the file of those tables; without it their two tests do not exist.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.frames.burrow import (
    Commit,
    Ring,
    Status,
    group_complete,
    group_status,
    partition_status,
)


def commits(*offsets: int, lags: list[int | None], every_s: int = 60) -> list[Commit]:
    """One commit each `every_s`, the first at 0."""
    return [
        Commit(offset, order, (order - 1) * every_s * 1000, lag)
        for order, (offset, lag) in enumerate(zip(offsets, lags, strict=True), start=1)
    ]


STORIES: dict[str, tuple[list[Commit], int, Status]] = {
    "no lag now": (commits(10, 20, lags=[5, 5]), 0, Status.OK),
    "lag was zero within the window": (commits(10, 20, 30, lags=[5, 0, 9]), 9, Status.OK),
    "offset stands": (commits(10, 10, 10, lags=[5, 6, 7]), 7, Status.STALL),
    "lag never shrinks": (commits(10, 20, 30, lags=[5, 5, 9]), 9, Status.WARN),
    "one dip is enough to be fine": (commits(10, 20, 30, lags=[50, 49, 60]), 60, Status.OK),
    "fell and did not regain": (commits(10, 30, 20, lags=[5, 5, 15]), 15, Status.REWIND),
    "fell and regained": (commits(10, 30, 20, 30, lags=[5, 5, 15, 4]), 4, Status.OK),
    "a second fall is not looked at": (
        commits(30, 10, 40, 20, lags=[9, 8, 7, 6]),
        6,
        Status.OK,
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_the_first_rule_that_holds_decides(story: str) -> None:
    ring, lag, expected = STORIES[story]
    now_s = ring[-1].timestamp_ms // 1000
    end = ring[-1].offset + lag
    assert partition_status(ring, end_offsets=[end], current_lag=lag, now_s=now_s) is expected


def test_a_pause_longer_than_the_window_is_a_stop_however_short_the_window() -> None:
    fast = [Commit(n, n, n * 20, 1) for n in range(10)]
    assert partition_status(fast, end_offsets=[99], current_lag=9, now_s=1) is Status.STOP
    assert partition_status(fast, end_offsets=[9], current_lag=9, now_s=1) is Status.WARN


def test_a_late_commit_has_no_lag_and_a_close_one_replaces_its_predecessor() -> None:
    ring = Ring(intervals=3, min_distance_s=1)
    ring.store(10, order=1, timestamp_ms=0, end_offset=100)
    ring.store(30, order=3, timestamp_ms=20_000, end_offset=100)
    ring.store(20, order=2, timestamp_ms=10_000, end_offset=100)
    ring.store(31, order=4, timestamp_ms=20_500, end_offset=100)
    assert [(c.offset, c.timestamp_ms, c.lag) for c in ring.commits] == [
        (10, 0, 90),
        (20, 10_000, None),
        (31, 20_000, 69),
    ]


def test_a_group_is_as_bad_as_its_worst_partition_but_never_worse_than_err() -> None:
    assert group_status([Status.OK, Status.WARN]) is Status.WARN
    assert group_status([Status.OK, Status.REWIND]) is Status.ERR
    assert group_complete([1.0, 0.5]) == 0.5


CASES_FILE = os.environ.get("TIDEMARK_BURROW_CASES")

if CASES_FILE is not None:
    KNOWN: dict[str, Any] = json.loads(Path(CASES_FILE).read_text(encoding="utf-8"))

    @pytest.mark.parametrize("case", KNOWN["partition_cases"])
    def test_burrow_s_own_partition_cases(case: dict[str, Any]) -> None:
        status = partition_status(
            [Commit(**commit) for commit in case["offsets"]],
            end_offsets=case["broker_offsets"],
            current_lag=case["current_lag"],
            now_s=case["now_s"],
            allowed_lag=case["allowed_lag"],
        )
        assert status.name == case["expected"]["status"]

    @pytest.mark.parametrize("case", KNOWN["storage_ring_cases"]["cases"])
    def test_burrow_s_own_ring_cases(case: dict[str, Any]) -> None:
        ring = Ring(intervals=10, min_distance_s=1)
        for commit in case["inputs"]:
            ring.store(
                commit["offset"],
                order=commit["order"],
                timestamp_ms=commit["timestamp_ms"],
                end_offset=case["broker_offset"],
            )
        assert ring.commits == [Commit(**commit) for commit in case["expected"]]
