"""The hold table of long polls."""

from __future__ import annotations

from collections.abc import Callable

from engine.broker.long_poll import HeldPull, HeldPulls
from engine.store.record import DispatchRequest


def held(
    *,
    queue_id: int = 0,
    queue_offset: int = 5,
    wanted: Callable[[int], bool] | None = None,
    matches: Callable[[bytes], bool] | None = None,
    deadline_ms: int = 15_000,
    gone: bool = False,
) -> HeldPull:
    return HeldPull(
        topic="t",
        queue_id=queue_id,
        queue_offset=queue_offset,
        wanted=wanted,
        matches=matches,
        deadline_ms=deadline_ms,
        gone=lambda: gone,
        resume=lambda: None,
    )


def message(queue_offset: int, *, tags_code: int = 0, properties: bytes = b"") -> DispatchRequest:
    return DispatchRequest("t", 0, queue_offset, 0, 100, tags_code, 1, 0, properties)


def due(holds: HeldPulls, now_ms: int, *, end: int) -> list[HeldPull]:
    """Who is woken by a look at all of them, at a queue that ends at `end`."""
    return [pull for woken in holds.due(now_ms, lambda topic, queue_id: end) for pull in woken]


def test_a_message_wakes_those_who_wait_on_its_queue_once() -> None:
    holds = HeldPulls()
    here, elsewhere = held(queue_id=0), held(queue_id=1)
    assert holds.hold(here)
    assert holds.hold(elsewhere)
    assert holds.arrived(message(5)) == [here]
    assert holds.arrived(message(6)) == []
    assert holds.count == 1


def test_a_message_below_the_wanted_offset_wakes_nobody() -> None:
    holds = HeldPulls()
    holds.hold(held(queue_offset=5))
    assert holds.arrived(message(4)) == []


def test_a_message_with_another_tag_wakes_nobody() -> None:
    holds = HeldPulls()
    pull = held(wanted=lambda code: code == 77)
    holds.hold(pull)
    assert holds.arrived(message(5, tags_code=1)) == []
    assert holds.arrived(message(6, tags_code=77)) == [pull]


def test_a_message_that_a_selector_does_not_match_wakes_nobody() -> None:
    holds = HeldPulls()
    pull = held(matches=lambda properties: b"red" in properties)
    holds.hold(pull)
    assert holds.arrived(message(5, properties=b"color\x01blue\x02")) == []
    assert due(holds, 1, end=6) == [], "nor does the recheck"
    assert holds.arrived(message(6, properties=b"color\x01red\x02")) == [pull]


def test_the_deadline_wakes_with_or_without_messages() -> None:
    holds = HeldPulls()
    pull = held(deadline_ms=100)
    holds.hold(pull)
    assert due(holds, 99, end=5) == []
    assert due(holds, 100, end=5) == [pull]


def test_the_recheck_finds_a_message_whose_arrival_was_missed() -> None:
    holds = HeldPulls()
    pull = held(queue_offset=5)
    holds.hold(pull)
    assert due(holds, 1, end=6) == [pull]


def test_a_pull_whose_connection_ended_leaves_without_an_answer() -> None:
    holds = HeldPulls()
    holds.hold(held(gone=True))
    assert due(holds, 1, end=5) == []
    assert holds.count == 0


def test_a_full_table_takes_no_more_until_one_leaves() -> None:
    holds = HeldPulls(count_max=1)
    assert holds.hold(held(deadline_ms=10))
    assert not holds.hold(held())
    due(holds, 10, end=5)
    assert holds.hold(held())


def test_a_stopping_broker_takes_everybody_out() -> None:
    holds = HeldPulls()
    first, second = held(queue_id=0), held(queue_id=1)
    holds.hold(first)
    holds.hold(second)
    holds.hold(held(gone=True))
    assert holds.take_all() == [first, second]
    assert holds.count == 0
