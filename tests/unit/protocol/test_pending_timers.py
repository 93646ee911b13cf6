"""Which timers wait, from the records of their topic and what a broker has delivered."""

from __future__ import annotations

from engine.protocol.message import MessageExt
from engine.protocol.timers import DeliveredTimers, PendingTimers, due_by_hour

NOTHING = DeliveredTimers(0)
AT_MS = 1_700_000_000_000


def record(place: int, key: str, due_ms: int, **more: str) -> MessageExt:
    own = {"REAL_TOPIC": "t", "REAL_QID": "3", "UNIQ_KEY": key, "TIMER_DUE_MS": str(due_ms)}
    return MessageExt("rmq_sys_wheel_timer", b"", own | more, physical_offset=place)


def waiting(*records: MessageExt, delivered: DeliveredTimers = NOTHING) -> list[str]:
    found = PendingTimers()
    for one in records:
        found.add(one)
    return [timer.unique_key for timer in found.waiting(delivered)]


def test_they_come_by_time_and_then_as_they_were_stored() -> None:
    later, first, second = record(0, "c", AT_MS + 9), record(1, "a", AT_MS), record(2, "b", AT_MS)
    assert waiting(later, first, second) == ["a", "b", "c"]


def test_a_cancellation_voids_what_came_before_it_in_its_second() -> None:
    def cancels(place: int) -> MessageExt:
        said = {"TIMER_DEL_UNIQKEY": "t+a", "TIMER_DUE_MS": str(AT_MS + 1)}
        return record(place, "a", 0, **said)

    assert waiting(record(0, "a", AT_MS + 500), cancels(1)) == []
    assert waiting(record(0, "a", AT_MS + 1000), cancels(1)) == [], "at the end of the second"
    assert waiting(cancels(0), record(1, "a", AT_MS + 500)) == ["a"]
    assert waiting(record(0, "a", AT_MS + 2500), cancels(1)) == ["a"], "another second"
    assert waiting(record(0, "b", AT_MS + 500), cancels(1)) == ["b"]


def test_a_timer_that_was_put_again_or_replaced_waits_once() -> None:
    first = record(0, "a", AT_MS)
    again = record(500, "a", AT_MS, TIMER_ORIGIN="0")
    assert waiting(first, again) == ["a"]
    changed = record(900, "b", AT_MS + 5000, TIMER_REPLACES=f"{AT_MS},0")
    assert waiting(first, again, changed) == ["b"]


def test_a_copy_with_which_rocketmq_carries_a_timer_on_takes_its_place() -> None:
    assert waiting(record(0, "a", AT_MS), record(9, "a", AT_MS, TIMER_ROLL_TIMES="1")) == ["a"]


def test_what_is_delivered_is_said_in_marks_or_in_seconds() -> None:
    records = record(0, "a", AT_MS + 1), record(9, "b", AT_MS + 2), record(50, "late", AT_MS)
    ours = DeliveredTimers.from_answer(0, f"{AT_MS + 1},0,20")
    assert waiting(*records, delivered=ours) == ["late", "b"]
    assert waiting(*records, delivered=DeliveredTimers.from_answer(0, "")) == ["late", "a", "b"]
    theirs = DeliveredTimers.from_answer(AT_MS, None)
    assert waiting(*records, delivered=theirs) == ["a", "b"], "the second of `late` is over"


def test_hours_are_counted() -> None:
    found = PendingTimers()
    hour_ms = 3_600_000
    begin_ms = AT_MS - AT_MS % hour_ms
    for place, due_ms in enumerate((begin_ms, begin_ms + 1, begin_ms + hour_ms)):
        found.add(record(place, str(place), due_ms))
    assert due_by_hour(found.waiting(NOTHING)) == {begin_ms: 2, begin_ms + hour_ms: 1}
