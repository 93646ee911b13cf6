"""How often chance alone is taken for a course of a lag: as seldom as `queue_courses` says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from pipelines.base.settings import MINUTE_US, SECOND_US
from pipelines.marts.judging import queue_courses
from pipelines.marts.judging.packed import UNKNOWN

QUEUES = 2_000
SLIDE_S = 5
MINUTES = 180
LOOKED_AT_FROM = 61
"""Minutes after which all blocks, short and long, are there."""
BEGIN_US = 600 * SECOND_US * 1_000_000
Lags = Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]


def jumps(*, keeps_s: float, seed: int) -> Lags:
    """Lags around a thousand that keep to one side for so long, tick after tick, for ever."""
    chance = np.random.default_rng(seed)
    kept = math.exp(-SLIDE_S / keeps_s) if keeps_s else 0.0
    beside = chance.standard_normal(QUEUES)
    while True:
        yield np.maximum(np.rint(1000 + 100 * beside), 0).astype(np.int64)
        beside = kept * beside + math.sqrt(1 - kept * kept) * chance.standard_normal(QUEUES)


def arrivals(*, seed: int) -> Lags:
    """Lags as messages come by themselves, a hundred at a time."""
    chance = np.random.default_rng(seed)
    while True:
        yield chance.poisson(100, QUEUES)


def share_with_a_course(lags: Lags) -> float:
    """Of all looks at a queue, those that show one."""
    rows = np.arange(QUEUES)
    lows = np.tile(np.full(QUEUES, UNKNOWN), (queue_courses.LOWS, 1))
    since_us = np.full(QUEUES, BEGIN_US - 1)
    steady = queue_courses.Swinging(np.full(QUEUES, UNKNOWN), np.full(QUEUES, UNKNOWN))
    looks = shown = 0
    for number, lag in zip(range(MINUTES * 60 // SLIDE_S), lags, strict=False):
        tick_us = BEGIN_US + number * SLIDE_S * SECOND_US
        minutes = (tick_us - BEGIN_US) // MINUTE_US
        if minutes >= LOOKED_AT_FROM and queue_courses.begins_block(tick_us, SLIDE_S * SECOND_US):
            found = queue_courses.slopes(
                lows, rows, since_us, lag, swinging=steady, tick_us=tick_us
            )
            looks += QUEUES
            shown += int(np.count_nonzero(found))
        queue_courses.note(
            lows,
            rows,
            lag,
            np.full(QUEUES, number == 0),
            tick_us=tick_us,
            slide_us=SLIDE_S * SECOND_US,
        )
    return shown / looks


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("keeps_s", [0, 5, 10])
def test_a_lag_that_jumps_about_has_a_course_once_in_two_thousand_looks(
    keeps_s: float, seed: int
) -> None:
    assert share_with_a_course(jumps(keeps_s=keeps_s, seed=seed)) <= 1 / 2000


def test_a_lag_that_keeps_to_a_side_for_half_a_minute_has_one_once_in_a_thousand() -> None:
    assert share_with_a_course(jumps(keeps_s=30, seed=1)) <= 1 / 1000


def test_messages_that_come_by_themselves_make_none() -> None:
    assert share_with_a_course(arrivals(seed=1)) <= 1 / 10_000
