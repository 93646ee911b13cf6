"""When records were stored, by the steady clock: never said too early, and late by little."""

from __future__ import annotations

import random

import pytest

from engine.delay.delay_levels import MARK_EVERY_MS, StoreTimes
from engine.foundation.limits import CLOCK_STEPS_KEPT_MAX, STORE_TIME_MARKS_MAX
from engine.foundation.units import HOUR_MS

START_MS = 1_800_000_000_000


def test_a_stamp_is_translated_by_the_stretch_of_the_log_it_was_made_in() -> None:
    times = StoreTimes(log_end=0, offset_ms=START_MS, steady_ms=0)
    times.note_step(100, START_MS + HOUR_MS)
    assert times.stored_ms(99, START_MS + 5) == 5
    assert times.stored_ms(100, START_MS + HOUR_MS + 6) == 6


def test_what_lies_below_a_mark_was_stored_by_then() -> None:
    times = StoreTimes(log_end=50, offset_ms=START_MS, steady_ms=1000)
    assert times.stored_ms(49, START_MS + HOUR_MS) == 1000, "a stamp from the future"
    times.note_end(80, 5000)
    assert times.stored_ms(79, START_MS + HOUR_MS) == 5000
    assert times.stored_ms(79, START_MS + 4000) == 4000
    assert times.stored_ms(80, START_MS + HOUR_MS) == HOUR_MS, "nothing is known of it yet"


def test_steps_without_a_record_between_them_are_one() -> None:
    times = StoreTimes(log_end=0, offset_ms=START_MS, steady_ms=0)
    for step_ms in (HOUR_MS, -HOUR_MS, 7):
        times.note_step(10, START_MS + step_ms)
    assert times.shifts() == [[0, -7], [10, 0]]


def test_the_shifts_mean_the_same_in_the_next_life() -> None:
    times = StoreTimes(log_end=0, offset_ms=START_MS, steady_ms=0)
    times.note_step(10, START_MS + HOUR_MS)
    times.note_step(20, START_MS - HOUR_MS)
    next_life = StoreTimes(log_end=30, offset_ms=START_MS - HOUR_MS + 5000, steady_ms=10**9)
    next_life.take_shifts(times.shifts(), log_end=30)
    for place, stamp_ms in ((5, START_MS), (15, START_MS + HOUR_MS), (25, START_MS - HOUR_MS)):
        assert next_life.stored_ms(place, stamp_ms) == times.stored_ms(place, stamp_ms) - 5000


@pytest.mark.parametrize(
    "stored_times", [[[90, 5]], [[-5, 1], [-7, 2]], [[9, 1], [3, 2], [400, 3]], []]
)
def test_shifts_of_another_log_or_none_are_taken_as_they_fit(stored_times: list[list[int]]) -> None:
    times = StoreTimes(log_end=30, offset_ms=START_MS, steady_ms=0)
    times.take_shifts(stored_times, log_end=30)
    places = [place for place, _ in times.shifts()]
    assert places == sorted(places)
    assert max(places) <= 30


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_said_to_be_stored_earlier_than_it_was(seed: int) -> None:
    chance = random.Random(seed)
    end, steady_ms, offset_ms, stamp_ms = 0, 0, START_MS, 0
    times = StoreTimes(log_end=end, offset_ms=offset_ms, steady_ms=steady_ms)
    stored: list[tuple[int, int, int]] = []
    for number in range(CLOCK_STEPS_KEPT_MAX * 20):
        steady_ms += chance.randint(0, 3000)
        if chance.random() < 0.3:
            offset_ms += chance.choice((HOUR_MS, -HOUR_MS, 100, -100))
            times.note_step(end, offset_ms)
        stamp_ms = max(stamp_ms, steady_ms + offset_ms)
        stored.append((end, stamp_ms, steady_ms))
        end += 10
        if chance.random() < 0.8:
            times.note_end(end, steady_ms)
        if number % 100 == 99:
            gone = chance.randrange(len(stored))
            del stored[:gone]
            if stored:
                times.forget_below(stored[0][0])
        assert len(times.shifts()) <= CLOCK_STEPS_KEPT_MAX
    times.note_end(end, steady_ms + MARK_EVERY_MS)
    assert stored
    for place, stored_ms, true_ms in stored:
        assert times.stored_ms(place, stored_ms) >= true_ms


def test_marks_are_bounded_and_the_later_of_two_stands_for_both() -> None:
    times = StoreTimes(log_end=0, offset_ms=0, steady_ms=0)
    for second in range(1, STORE_TIME_MARKS_MAX * 3):
        times.note_end(second * 10, second * 1000)
    assert len(times._marks) <= STORE_TIME_MARKS_MAX
    for second in range(1, STORE_TIME_MARKS_MAX * 3, 7):
        stored_ms = times.stored_ms(second * 10 - 1, 10**12)
        assert second * 1000 <= stored_ms <= (second + 16) * 1000
