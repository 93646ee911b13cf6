"""The checker of `make chaos` finds what a group may not do, and nothing else."""

from __future__ import annotations

from collections import Counter

from tests.chaos.record import Record, faults_of


def played(*tries: int) -> tuple[Record, dict[int, list[bytes]]]:
    """A sender of key 0 whose messages are all acknowledged, delivered and stored once."""
    record, stored = Record(), list[bytes]()
    for number, count in enumerate(tries):
        put = record.begin(0)
        put.tries = count
        record.acknowledge(0, number, f"id-{number}", float(number))
        record.consume("group", 0, number, f"id-{number}", put.body)
        stored.append(put.body)
    return record, {0: stored}


def test_what_went_well_is_no_fault() -> None:
    record, stored = played(1, 3, 1)
    assert faults_of(record, stored) == []


def test_a_copy_that_a_further_try_explains_is_no_fault() -> None:
    record, stored = played(1, 2)
    stored[0].append(stored[0][1])
    assert faults_of(record, stored) == []


def test_the_last_message_need_not_be_there() -> None:
    record, stored = played(1, 1)
    record.begin(0).tries = 1
    assert faults_of(record, stored) == []


def test_what_was_acknowledged_and_is_gone_is_lost() -> None:
    record, stored = played(1, 1)
    del stored[0][1]
    assert [put.body for put in record.lost(stored)] == [record.puts[0][1].body]
    assert any(one.startswith("acknowledged and lost: 0:1:") for one in faults_of(record, stored))


def test_a_copy_too_many_is_found() -> None:
    record, stored = played(1, 1)
    stored[0].append(stored[0][1])
    assert faults_of(record, stored) == ["0:1: is there 2 times and was sent 1 times"]


def test_another_order_is_found() -> None:
    record, stored = played(1, 1, 1)
    first, second, third = record.puts[0]
    for put, offset in ((second, 2), (third, 1)):
        put.queue_offset = offset
    record.seen.clear()
    stored[0] = [first.body, third.body, second.body]
    assert faults_of(record, stored) == ["key 0 is out of order, or has a gap: [0, 2, 1]"]


def test_what_nobody_sent_is_found() -> None:
    record, stored = played(1)
    stored[0].append(b"a stranger")
    assert faults_of(record, stored) == ["nobody sent b'a stranger'"]


def test_what_was_delivered_and_is_not_there_is_found() -> None:
    record, stored = played(1, 1)
    record.consume("group", 0, 2, "id", b"it was cut")
    assert faults_of(record, stored) == ["delivered and not there: b'it was cut' at 2 of queue 0"]


def test_another_message_at_a_place_is_found() -> None:
    record, stored = played(1)
    record.consume("group", 0, 0, "id", b"another")
    assert faults_of(record, stored) == [
        f"delivered differently: at 0: {stored[0][0][:20]!r}, then b'another'"
    ]


def test_what_nobody_was_given_is_found() -> None:
    record, stored = played(1, 1)
    del record.consumed["group"][record.puts[0][1].body]
    assert faults_of(record, stored) == ["acknowledged and not delivered to group: 0:1:"]


def test_each_group_is_given_everything() -> None:
    record, stored = played(1)
    record.consumed["another"] = Counter()
    assert faults_of(record, stored) == ["acknowledged and not delivered to another: 0:0:"]


def test_another_id_of_a_message_is_found() -> None:
    record, stored = played(1)
    body = stored[0][0]
    record.consume("another", 0, 0, "another id", body)
    assert faults_of(record, stored) == [
        f"delivered differently: {body[:20]!r} is id-0, then another id"
    ]


def test_a_sender_goes_on_when_it_was_answered() -> None:
    record = Record()
    first = record.try_next(0)
    assert record.try_next(0) is first
    record.acknowledge(0, 0, "id", 0.0)
    assert [first.tries, record.try_next(0).tries] == [2, 1]


def test_the_longest_time_without_an_acknowledgement() -> None:
    record, _ = played(1, 1, 1)  # At 0, 1 and 2 seconds.
    assert record.longest_gap_s([0], 0.5, 2.5) == 1.0
    assert record.longest_gap_s([0], 0.5, 9.0) == 7.0
    assert record.longest_gap_s([1], 0.5, 9.0) == 8.5
