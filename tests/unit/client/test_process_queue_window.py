"""The window against traces of RocketMQ's ProcessQueue, and what ours reports besides.

Feature rows: A7.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.client.consuming.process_queue import (
    HELD_RANGES_MAX,
    PULL_EXPIRY_MS,
    ProcessQueue,
)
from engine.foundation.limits import CLIENT_LOCK_EXPIRY_MS
from tests.unit.client.messages import message_at

TRACES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "process_queue_traces.json").read_text()
)["traces"]
NOW = 1_000


def play(window: ProcessQueue, step: dict[str, Any]) -> dict[str, Any]:
    """Do one step of a trace; answer what the trace says about it."""
    match step["op"]:
        case "put":
            messages = [message_at(offset, size) for offset, size in step["msgs"]]
            return {"dispatchToConsume": window.put(messages)}
        case "remove":
            safe = window.remove(step["offsets"], NOW)
            return {"result": -1 if safe is None else safe}
        case "take":
            return {"result": [m.queue_offset for m in window.take(step["batch"], NOW)]}
        case "commit":
            return {"result": window.commit_taken()}
        case "rollback":
            window.roll_back_taken()
        case "again":
            taken = [window._messages.get(o) or window._taken[o] for o in sorted(window._taken)]
            window.consume_again(taken)
        case "hasTempMessage":
            return {"result": window.has_waiting}
        case other:
            raise AssertionError(f"unknown step {other}")
    return {}


def waiting_span(window: ProcessQueue) -> int:
    """RocketMQ's getMaxSpan: what is finished does not count."""
    lowest, highest = window.waiting_bounds() or (0, 0)
    return highest - lowest


@pytest.mark.parametrize("trace", TRACES)
def test_the_window_does_what_rocketmqs_window_does(trace: dict[str, Any]) -> None:
    window = ProcessQueue(NOW)
    for number, step in enumerate(trace["steps"]):
        window_info = play(window, step) | {
            "msgCount": window.count,
            "msgSize": window.held_bytes,
            "maxSpan": waiting_span(window),
        }
        expected = {key: step[key] for key in window_info}
        assert window_info == expected, f"step {number}: {step}"


def test_a_message_delivered_twice_counts_once() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(5, 10)])
    window.put([message_at(5, 10), message_at(6, 1)])
    assert (window.count, window.held_bytes) == (2, 11)
    assert window.remove([5, 6], NOW) == 7


def test_finished_work_above_an_unfinished_head_is_counted_until_the_head_is_done() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(offset, 1) for offset in range(10, 16)])

    assert window.remove([12, 13, 15], NOW) == 10
    assert window.finished_count == 3
    assert window.held_ranges() == [(10, 12), (14, 15)]
    assert window.processed_offset == 16

    assert window.remove([10], NOW) == 11
    assert window.finished_count == 3
    assert window.remove([11], NOW) == 14
    assert window.finished_count == 1
    assert window.remove([14], NOW) == 16
    assert (window.finished_count, window.held_ranges()) == (0, [])


def test_finished_offsets_beyond_the_memory_limit_are_still_counted() -> None:
    window = ProcessQueue(NOW, finished_max=3)
    window.put([message_at(offset, 1) for offset in range(10)])
    window.remove(range(1, 9), NOW)
    assert window.finished_count == 8
    assert window.remove([0], NOW) == 9
    assert window.finished_count == 0


def test_the_head_says_since_when_it_is_in_a_listener() -> None:
    window = ProcessQueue(NOW)
    assert window.head() is None
    window.put([message_at(7, 1), message_at(8, 1)])
    head = window.head()
    assert head is not None
    assert (head[0].queue_offset, head[1]) == (7, None)

    window.mark_started([7], 2_000)
    head = window.head()
    assert head is not None
    assert head[1] == 2_000

    window.mark_ended([7])
    head = window.head()
    assert head is not None
    assert head[1] is None, "it waits for another try"


def test_more_holes_than_ranges_are_covered_by_the_last_range() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(offset, 1) for offset in range(0, 2 * (HELD_RANGES_MAX + 5), 2)])
    ranges = window.held_ranges()
    assert len(ranges) == HELD_RANGES_MAX
    assert ranges[:2] == [(0, 1), (2, 3)]
    assert ranges[-1] == (62, 73)


def test_only_a_head_that_is_too_long_in_a_listener_is_expired() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(7, 1), message_at(8, 1)])
    assert window.expired_head(NOW + 10**9, consume_timeout_ms=1000) is None
    window.mark_started([7], NOW)
    assert window.expired_head(NOW + 1000, consume_timeout_ms=1000) is None
    expired = window.expired_head(NOW + 1001, consume_timeout_ms=1000)
    assert expired is not None
    assert expired.queue_offset == 7


def test_pull_and_lock_expire_after_their_time() -> None:
    window = ProcessQueue(NOW)
    assert not window.is_pull_expired(NOW + PULL_EXPIRY_MS)
    assert window.is_pull_expired(NOW + PULL_EXPIRY_MS + 1)
    assert not window.is_lock_expired(NOW + CLIENT_LOCK_EXPIRY_MS)
    assert window.is_lock_expired(NOW + CLIENT_LOCK_EXPIRY_MS + 1)


def test_an_orderly_batch_that_fails_in_part_goes_back_in_part() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(offset, 10) for offset in range(4)])
    batch = window.take(3, NOW)
    window.consume_again(batch[1:])
    assert window.commit_taken() == 1
    assert [m.queue_offset for m in window.take(9, NOW)] == [1, 2, 3]
    assert window.held_bytes == 30


def test_clearing_lets_go_of_everything() -> None:
    window = ProcessQueue(NOW)
    window.put([message_at(offset, 10) for offset in range(4)])
    window.remove([2], NOW)
    window.take(1, NOW)
    window.clear()
    assert (window.count, window.held_bytes, window.finished_count) == (0, 0, 0)
    assert window.remove([1], NOW) is None
