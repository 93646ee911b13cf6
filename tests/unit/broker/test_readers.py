"""Who reads a queue, how far it was pulled, and what was delivered again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.broker.groups.readers import Readers
from engine.foundation.errors import RequestRefused
from engine.foundation.observing import Redelivery

KEY = ("g", "t", 0)


def all_of(from_offset: int, next_offset: int) -> Callable[[int], int]:
    """An unfiltered answer: a message at each offset."""
    return lambda below: max(0, min(below, next_offset) - from_offset)


def pulled(readers: Readers, client: str, from_offset: int, next_offset: int) -> Redelivery | None:
    _, again = readers.answered(
        KEY,
        client,
        from_offset=from_offset,
        next_offset=next_offset,
        count_below=all_of(from_offset, next_offset),
    )
    return again


def test_the_first_pull_brings_a_reader_and_the_next_of_the_same_does_not() -> None:
    readers = Readers(broker_epoch=1)
    assert readers.arrived(KEY, "c1", now_ms=10) == (True, None)
    assert readers.arrived(KEY, "c1", now_ms=20) == (False, "c1")
    reading = readers.of(KEY)
    assert reading is not None
    assert (reading.last_puller, reading.last_pull_ms) == ("c1", 20)


def test_readers_stop_at_their_limit_and_those_known_read_on() -> None:
    readers = Readers(broker_epoch=1, count_max=1)
    readers.arrived(KEY, "c1", now_ms=10)
    with pytest.raises(RequestRefused, match="group g on queue 1 of t is one reader too many"):
        readers.arrived(("g", "t", 1), "c1", now_ms=10)
    assert readers.arrived(KEY, "c2", now_ms=20) == (True, "c1")


def test_a_client_without_a_name_yet_takes_nothing_over_and_gives_nothing_up() -> None:
    readers = Readers(broker_epoch=1)
    readers.arrived(KEY, "c1", now_ms=10)
    assert readers.arrived(KEY, None, now_ms=20) == (False, "c1")
    assert readers.arrived(KEY, "c1", now_ms=30) == (False, "c1")
    reading = readers.of(KEY)
    assert reading is not None
    assert (reading.last_puller, reading.last_pull_ms) == ("c1", 30)


def test_another_clients_pull_takes_the_queue_over() -> None:
    readers = Readers(broker_epoch=1)
    readers.arrived(KEY, "c1", now_ms=10)
    assert readers.arrived(KEY, "c2", now_ms=20) == (True, "c1")


def test_a_client_that_left_is_nobodys_predecessor_but_stays_the_last_puller() -> None:
    readers = Readers(broker_epoch=1)
    readers.arrived(KEY, "c1", now_ms=10)
    readers.arrived(("g", "t", 1), "c1", now_ms=10)
    readers.arrived(("other", "t", 1), "c1", now_ms=10)
    assert readers.release("g", "c1") == [("g", "t", 0), ("g", "t", 1)]
    reading = readers.of(KEY)
    assert reading is not None
    assert reading.last_puller == "c1"
    assert readers.arrived(KEY, "c2", now_ms=20) == (True, None)


def test_at_a_node_that_leads_again_each_reader_is_new_and_takes_over_from_nobody() -> None:
    readers = Readers(broker_epoch=1)
    readers.arrived(KEY, "c1", now_ms=10)
    readers.begin_leadership()
    assert readers.arrived(KEY, "c1", now_ms=20) == (True, None)
    assert readers.arrived(KEY, "c1", now_ms=30) == (False, "c1")
    readers.begin_leadership()
    assert readers.arrived(KEY, "c2", now_ms=40) == (True, None)
    assert readers.release("g", "c1") == []


def test_going_on_where_the_mark_is_delivers_nothing_again() -> None:
    readers = Readers(broker_epoch=1)
    assert pulled(readers, "c1", 0, 32) is None
    assert pulled(readers, "c1", 32, 64) is None


def test_a_pull_below_the_mark_is_a_redelivery_up_to_what_it_brought() -> None:
    readers = Readers(broker_epoch=7)
    pulled(readers, "c1", 0, 100)
    assert pulled(readers, "c2", 40, 72) == Redelivery(
        group="g",
        topic="t",
        queue_id=0,
        from_offset=40,
        to_offset=72,
        client_id="c2",
        previous_client_id="c1",
        broker_epoch_before=7,
        delivered_count=32,
    )


def test_pulls_that_go_on_below_the_mark_add_up_to_the_range_delivered_again() -> None:
    readers = Readers(broker_epoch=7)
    pulled(readers, "c1", 0, 100)
    first, second = pulled(readers, "c2", 40, 72), pulled(readers, "c2", 72, 104)
    third = pulled(readers, "c2", 104, 136)
    assert first is not None
    assert second is not None
    assert (first.from_offset, first.to_offset) == (40, 72)
    assert (second.from_offset, second.to_offset) == (72, 100)
    assert (first.delivered_count, second.delivered_count) == (32, 28)
    assert third is None


def test_an_answer_whose_messages_were_all_filtered_out_delivers_nothing_again() -> None:
    readers = Readers(broker_epoch=1)
    pulled(readers, "c1", 0, 100)
    _, again = readers.answered(
        KEY, "c2", from_offset=10, next_offset=50, count_below=lambda below: 0
    )
    assert again is None


def test_a_mark_of_an_earlier_life_shows_a_redelivery_after_a_crash_with_that_lifes_epoch() -> None:
    readers = Readers(broker_epoch=2)
    readers.restore(KEY, pulled_offset=80, max_offset=200, client_id="c1", broker_epoch=1)
    again = pulled(readers, "c1", 60, 90)
    assert again is not None
    assert (again.from_offset, again.to_offset, again.broker_epoch_before) == (60, 80, 1)
    assert pulled(readers, "c1", 60, 70).broker_epoch_before == 2  # type: ignore[union-attr]


def test_a_restored_mark_beyond_a_shortened_log_is_cut_to_its_end() -> None:
    readers = Readers(broker_epoch=2)
    readers.restore(KEY, pulled_offset=80, max_offset=50, client_id="c1", broker_epoch=1)
    assert pulled(readers, "c1", 50, 60) is None


def test_the_mark_moves_only_up() -> None:
    readers = Readers(broker_epoch=1)
    moved, _ = readers.answered(KEY, "c1", from_offset=0, next_offset=50, count_below=lambda b: 0)
    back, _ = readers.answered(KEY, "c2", from_offset=0, next_offset=20, count_below=lambda b: 0)
    reading = readers.of(KEY)
    assert reading is not None
    assert (moved, back) == (True, False)
    assert (reading.pulled_offset, reading.pulled_by) == (50, "c1")


def test_what_a_client_says_it_processed_is_kept_with_queues_that_were_pulled_only() -> None:
    readers = Readers(broker_epoch=1)
    read, invented = ("g", "T", 0), ("g", "T", 7)
    readers.arrived(read, "c1", now_ms=1)
    readers.take_moved()
    readers.processed(read, 5)
    readers.processed(invented, 5)
    assert list(readers.take_moved()) == [read]
    assert invented not in readers
    reading = readers.of(read)
    assert reading is not None
    assert reading.processed_offset == 5
    list(readers.forget_group("g"))
    assert list(readers.take_moved()) == [read]
    assert read not in readers


def test_queues_that_changed_hands_go_with_the_reader_that_has_them_now() -> None:
    readers = Readers(broker_epoch=1)
    for queue_id in range(3):
        readers.arrived(("g", "T", queue_id), "c1", now_ms=1)
    readers.arrived(("g", "T", 1), "c2", now_ms=2)
    assert readers.release("g", "c1") == [("g", "T", 0), ("g", "T", 2)]
    assert readers.release("g", "c1") == []
    assert readers.release("g", "c2") == [("g", "T", 1)]


def test_where_a_group_began_is_the_first_pull_that_counted() -> None:
    readers = Readers(broker_epoch=2)
    readers.arrived(KEY, "c1", now_ms=10, from_offset=90, is_sent_back=True)
    readers.arrived(KEY, "c1", now_ms=20, from_offset=7)
    readers.arrived(KEY, "c1", now_ms=30, from_offset=9)
    reading = readers.of(KEY)
    assert reading is not None
    assert reading.began_offset == 7


def test_where_a_group_began_is_unknown_when_it_read_in_an_earlier_life_of_the_broker() -> None:
    readers = Readers(broker_epoch=2)
    readers.restore(KEY, pulled_offset=7, max_offset=9, client_id="c1", broker_epoch=1)
    readers.arrived(KEY, "c1", now_ms=10, from_offset=7)
    reading = readers.of(KEY)
    assert reading is not None
    assert reading.began_offset is None
