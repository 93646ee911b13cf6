"""The hold table of long polls."""

from __future__ import annotations

from collections.abc import Callable

from engine.broker.pulling.long_poll import HeldPull, HeldPulls
from engine.store.record_reading import DispatchRequest


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
        group="g",
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


def test_a_batch_wakes_as_its_messages_one_by_one_would() -> None:
    holds = HeldPulls()
    later, tagged, other = held(queue_offset=7), held(wanted=lambda code: code == 77), held()
    for pull in (later, tagged, other):
        holds.hold(pull)
    assert holds.all_arrived([message(5), message(6, tags_code=77)]) == [other, tagged]
    assert holds.all_arrived([message(7)]) == [later]


def test_when_asking_all_would_cost_too_much_who_waits_there_is_woken_unasked() -> None:
    asked: list[int] = []

    def wanted(code: int) -> bool:
        asked.append(code)
        return False

    holds = HeldPulls(cost_max=50)
    dear = [dear_pull(wanted, queue_offset=5) for _ in range(10)]
    later = dear_pull(wanted, queue_offset=1000)
    for pull in (*dear, later):
        assert holds.hold(pull)
    assert holds.all_arrived([message(5), message(6), message(7)]) == dear
    assert len(asked) <= 20
    assert holds.count == 1, "who wants only what comes later waits on"
    assert holds.filter_bytes == later.filter_bytes
    assert holds.take_all() == [later]
    assert holds.filter_bytes == 0


def test_filters_of_their_own_take_so_much_memory_together() -> None:
    holds = HeldPulls(filter_bytes_max=250)
    pulls = [dear_pull(lambda code: True, queue_offset=5) for _ in range(3)]
    assert [holds.hold(pull) for pull in pulls] == [True, True, False]
    assert holds.hold(held()), "who has none waits as ever"
    assert due(holds, 20_000, end=0)[:2] == pulls[:2]
    assert holds.filter_bytes == 0


def dear_pull(wanted: Callable[[int], bool], *, queue_offset: int) -> HeldPull:
    pull = held(wanted=wanted, queue_offset=queue_offset)
    pull.filter_bytes, pull.filter_cost = 100, 3
    return pull
