"""Moments that a client names by its own clock are those of who asks it, as far as answers show."""

from __future__ import annotations

import pytest

from engine.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo
from engine.protocol.message import MessageQueue
from engine.protocol.names import CLIENT_CLOCK_PROPERTY
from engine.telemetry.members.answers import window_of
from engine.telemetry.members.client_clocks import SLACK_MS, ClientClocks

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
QUEUE = MessageQueue("orders", "broker-a", 0)
EACH_MS = 5_000


def answer(pulled_ms: int, *, clock_ms: int | None = None) -> ConsumerRunningInfo:
    """Of a client that pulled last then, by its clock; `clock_ms`: as it says that it shows."""
    said = {} if clock_ms is None else {CLIENT_CLOCK_PROPERTY: str(clock_ms)}
    return ConsumerRunningInfo(
        said, [], {QUEUE: ProcessQueueInfo(last_pull_timestamp_ms=pulled_ms)}
    )


@pytest.mark.parametrize("ahead_ms", [-8 * HOUR_MS, 8 * HOUR_MS, -5_000])
def test_a_client_that_says_what_its_clock_shows_is_believed_at_once(ahead_ms: int) -> None:
    info = answer(NOW_MS + ahead_ms - 700, clock_ms=NOW_MS + ahead_ms)
    assert ClientClocks().ahead_ms("c", info, NOW_MS) == ahead_ms


@pytest.mark.parametrize("ahead_ms", [-8 * HOUR_MS, 8 * HOUR_MS])
def test_a_client_that_works_shows_its_clock_to_within_the_time_between_two_answers(
    ahead_ms: int,
) -> None:
    """RocketMQ's own clients name when they pulled last, and nothing of now."""
    clocks = ClientClocks()
    found = [
        clocks.ahead_ms("c", answer(at_ms + ahead_ms - 1_000), at_ms)
        for at_ms in range(NOW_MS, NOW_MS + 4 * EACH_MS, EACH_MS)
    ]
    assert all(abs(one - ahead_ms) <= EACH_MS + SLACK_MS for one in found[1:])
    assert len(set(found[1:])) == 1, "moments stay where they are"


def test_a_clock_that_is_off_is_corrected_by_one_figure() -> None:
    """Answers take longer now and then; so no moment of a head moves."""
    clocks = ClientClocks()
    found = {
        clocks.ahead_ms("c", answer(at_ms, clock_ms=at_ms - HOUR_MS - late_ms), at_ms)
        for at_ms, late_ms in ((NOW_MS, 3), (NOW_MS + EACH_MS, 40), (NOW_MS + 2 * EACH_MS, 900))
    }
    assert found == {-HOUR_MS - 3}


@pytest.mark.parametrize("each_ms", [1_000, 20_000, HOUR_MS])
def test_no_moment_is_corrected_that_may_be_right(each_ms: int) -> None:
    """It pulls so often; the last pull may have been long ago."""
    clocks = ClientClocks()
    for at_ms in range(NOW_MS, NOW_MS + 20 * EACH_MS, EACH_MS):
        assert clocks.ahead_ms("c", answer(at_ms // each_ms * each_ms), at_ms) == 0


def test_a_clock_that_is_set_is_seen_to_be_another_one() -> None:
    clocks = ClientClocks()
    for at_ms in range(NOW_MS, NOW_MS + 4 * EACH_MS, EACH_MS):
        clocks.ahead_ms("c", answer(at_ms - HOUR_MS), at_ms)
    later_ms = NOW_MS + 4 * EACH_MS
    clocks.ahead_ms("c", answer(later_ms), later_ms)
    assert clocks.ahead_ms("c", answer(later_ms + EACH_MS), later_ms + EACH_MS) == 0


def test_clients_beyond_the_limit_are_taken_at_their_word_and_those_that_leave_make_room() -> None:
    clocks = ClientClocks(count_max=1)
    info = answer(NOW_MS, clock_ms=NOW_MS + HOUR_MS)
    assert [clocks.ahead_ms(one, info, NOW_MS) for one in ("a", "b")] == [HOUR_MS, 0]
    clocks.forget("a")
    assert clocks.ahead_ms("b", info, NOW_MS) == HOUR_MS
    assert len(clocks) == 1


@pytest.mark.parametrize("said", ["", "-1", "soon", "9" * 99])
def test_a_clock_that_is_no_moment_is_none(said: str) -> None:
    info = ConsumerRunningInfo({CLIENT_CLOCK_PROPERTY: said}, [], {})
    assert ClientClocks().ahead_ms("c", info, NOW_MS) == 0


def test_all_moments_of_a_window_are_corrected_and_none_stays_none() -> None:
    said_ms = NOW_MS - HOUR_MS
    info = ProcessQueueInfo(last_pull_timestamp_ms=said_ms, head_since_ms=said_ms - 10_000)
    window = window_of("g", "c", QUEUE, info, orderly=False, ahead_ms=-HOUR_MS)
    assert (window.last_pull_time_ms, window.head_since_ms) == (NOW_MS, NOW_MS - 10_000)
    assert window.last_consume_time_ms is None
