"""The next segment begins with every mark there is, and no turn of the event loop encodes them all:
counted in entries and instructions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.limits import LIFE_ENTRIES_PER_TURN, PULLED_MARKS_MAX
from engine.telemetry import Telemetry
from engine.telemetry.frames import Mark
from engine.telemetry.progress import FORGOTTEN_AT_ONCE, Progress
from tests.steps import STEP_INSTRUCTIONS_MAX, instructions
from tests.unit.telemetry.lives import Broker, report

STEPS = 3
MANY = STEPS * LIFE_ENTRIES_PER_TURN + 10


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def reported_many(broker: Broker) -> Telemetry:
    """Telemetry whose segment is full, with MANY marks."""
    telemetry = broker.boot(segment_bytes=1)
    for queue_id in range(MANY):
        telemetry.pulled("g", "orders", queue_id, 5, "client@1")
    telemetry.observe(report(1))
    telemetry.write_turn()
    assert len(broker.segments()) == 1
    return telemetry


def test_a_segment_that_is_full_goes_on_until_the_next_ones_first_frame_is_encoded(
    broker: Broker,
) -> None:
    telemetry = reported_many(broker)
    for step in range(STEPS):
        assert len(broker.segments()) == 1, f"{LIFE_ENTRIES_PER_TURN} entries in each turn"
        telemetry.observe(replace(report(10 + step), queue_id=step))
        telemetry.pulled("g", "orders", 0, 100 + step, "client@2")
        telemetry.write_turn()
    telemetry.observe(report(99))
    telemetry.write_turn()
    assert len(broker.segments()) == 2
    (broker.spool / broker.segments()[0]).unlink()
    again = broker.boot()
    marks = again.pulled_marks()
    assert len(marks) == MANY
    assert marks["g", "orders", 0].offset == 102, "it moved while the others were encoded"
    assert marks["g", "orders", MANY - 1].offset == 5
    assert again.reported_offsets() == {("g", "t", 0): 99, ("g", "t", 1): 11, ("g", "t", 2): 12}


def test_no_turn_encodes_what_all_groups_have(broker: Broker) -> None:
    telemetry = reported_many(broker)
    for number in range(STEPS + 2):
        telemetry.observe(report(number))
        assert instructions(telemetry.write_turn) <= STEP_INSTRUCTIONS_MAX / 4
    assert len(broker.segments()) == 2


def test_reports_that_are_lost_while_it_is_encoded_are_not_in_it(broker: Broker) -> None:
    telemetry = reported_many(broker)
    telemetry.observe(report(2))
    telemetry.write_turn()
    telemetry.observe(report(2**70))  # No row can hold it.
    telemetry.write_turn()
    while len(broker.segments()) == 1:
        telemetry.observe(replace(report(7), queue_id=1))
        telemetry.write_turn()
    (broker.spool / broker.segments()[0]).unlink()
    again = broker.boot()
    assert again.reported_offsets() == {("g", "t", 1): 7}, "of queue 0 nobody knows"
    assert len(again.pulled_marks()) == MANY


def test_marks_that_moved_longest_ago_are_forgotten_many_at_once() -> None:
    """A dict looks for its first entry behind all that were taken from it, each time."""
    progress = Progress()

    def move(first: int, count: int) -> None:
        marks: list[Mark] = [("g", "t", first + one, 1, None, 1) for one in range(count)]
        progress.take_marks(marks)

    move(0, PULLED_MARKS_MAX)
    move(0, 2)  # The two of these that moved last.
    assert len(progress.marks) == PULLED_MARKS_MAX
    move(PULLED_MARKS_MAX, 1)
    assert len(progress.marks) == PULLED_MARKS_MAX + 1 - FORGOTTEN_AT_ONCE
    assert next(iter(progress.marks)) == ("g", "t", 2 + FORGOTTEN_AT_ONCE)
    move(PULLED_MARKS_MAX + 1, FORGOTTEN_AT_ONCE - 1)
    assert len(progress.marks) == PULLED_MARKS_MAX, "none meanwhile"
    assert ("g", "t", 1) in progress.marks
