"""Which answers of clients are reported: windows that changed, those reported long ago, and one
last time those that are held no more.
"""

from __future__ import annotations

from dataclasses import replace

from engine.foundation.observing import ClientWindow
from engine.telemetry.members.emitted import ATTENDED_MS, EmittedWindows

INTERVAL_MS = 1000
WINDOW = ClientWindow(
    client_id="c1",
    group="g",
    topic="orders",
    queue_id=0,
    first_held=5,
    last_held=9,
    held_count=3,
    held_bytes=300,
    held_ranges=[(5, 6), (8, 10)],
    finished_count=2,
    filtered_count=0,
    head_message_id="U5",
    head_since_ms=17,
    client_committed=5,
    locked=False,
    dropped=False,
    last_pull_time_ms=100,
    last_consume_time_ms=90,
)


def is_news(windows: EmittedWindows, window: ClientWindow, now_ms: int, *, losses: int = 0) -> bool:
    return windows.is_news(replace(window), now_ms, losses=losses)


def test_an_unchanged_window_is_reported_once_in_its_interval() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    times = range(0, 2500, 100)
    assert [at for at in times if is_news(windows, WINDOW, at)] == [0, 1000, 2000]


def test_that_a_client_has_pulled_or_finished_something_elsewhere_is_no_change() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    assert is_news(windows, WINDOW, 0)
    later = replace(WINDOW, last_pull_time_ms=200, last_consume_time_ms=201)
    assert not is_news(windows, later, 1)


def test_each_other_change_is_shown() -> None:
    changes: list[dict[str, object]] = [
        {"held_count": 2},
        {"held_ranges": [(5, 7), (8, 10)]},
        {"finished_count": 3},
        {"head_message_id": "U6"},
        {"head_since_ms": 18},
        {"client_committed": 6},
        {"locked": True},
        {"dropped": True},
        {"stack": "somewhere"},
        {"resting": "SPAN"},
    ]
    for change in changes:
        windows = EmittedWindows(INTERVAL_MS)
        assert is_news(windows, WINDOW, 0)
        assert is_news(windows, replace(WINDOW, **change), 1), change  # type: ignore[arg-type]


def test_when_facts_were_lost_every_window_is_reported_anew() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    assert is_news(windows, WINDOW, 0)
    assert is_news(windows, WINDOW, 1, losses=4)
    assert not is_news(windows, WINDOW, 2, losses=4)


def test_a_queue_that_is_held_no_more_is_reported_once_as_dropped_and_empty() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    other = replace(WINDOW, queue_id=1)
    assert is_news(windows, WINDOW, 0)
    assert is_news(windows, other, 0)
    gone = [one for one in windows.given_up("g", "c1", {("orders", 1): None}) if one]
    assert [(one.queue_id, one.dropped, one.held_count, one.first_held) for one in gone] == [
        (0, True, 0, None)
    ]
    assert [one for one in windows.given_up("g", "c1", {("orders", 1): None}) if one] == []
    assert len(windows) == 1


def test_one_that_was_reported_as_dropped_is_not_reported_again_when_it_goes() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    assert is_news(windows, replace(WINDOW, dropped=True), 0)
    assert [one for one in windows.given_up("g", "c1", {}) if one] == []


def test_a_head_stands_from_when_it_was_first_seen_until_it_moves() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    is_news(windows, WINDOW, 100)
    is_news(windows, WINDOW, 300)
    assert windows.standing("g", "c1", since_ms=99) == []
    assert windows.standing("g", "c1", since_ms=100) == [("orders", 0)]
    is_news(windows, replace(WINDOW, first_held=6, head_message_id="U6"), 400)
    assert windows.standing("g", "c1", since_ms=399) == []


def test_a_head_in_no_listener_does_not_stand_where_the_client_reports_listeners() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    is_news(windows, replace(WINDOW, head_since_ms=None), 0)
    assert windows.standing("g", "c1", since_ms=0) == []
    silent = replace(WINDOW, queue_id=1, held_ranges=None, head_since_ms=None)
    is_news(windows, silent, 0)
    assert windows.standing("g", "c1", since_ms=0) == [("orders", 1)]
    is_news(windows, replace(silent, held_count=0), 1)
    assert windows.standing("g", "c1", since_ms=0) == [], "nothing is held"


def test_the_stack_of_a_head_stays_with_it_and_goes_with_it() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    is_news(windows, WINDOW, 0)
    is_news(windows, replace(WINDOW, stack="here"), 1)
    again = replace(WINDOW)
    assert not windows.is_news(again, 2, losses=0)
    assert again.stack == "here"
    moved = replace(WINDOW, first_held=6)
    assert windows.is_news(moved, 3, losses=0)
    assert moved.stack is None


def test_windows_beyond_the_limit_are_reported_each_time_and_left_no_room_by_who_left() -> None:
    windows = EmittedWindows(INTERVAL_MS, count_max=1)
    other = replace(WINDOW, client_id="c2")
    assert is_news(windows, WINDOW, 0)
    assert [is_news(windows, other, at) for at in (0, 1)] == [True, True]
    assert [one.dropped for one in windows.forget("g", "c1") if one] == [True]
    assert [is_news(windows, other, at) for at in (2, 3)] == [True, False]
    assert len(windows) == 1


def test_what_a_client_held_goes_with_it() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    for queue_id in (0, 1):
        is_news(windows, replace(WINDOW, queue_id=queue_id), 0)
    gone = [one for one in windows.forget("g", "c1") if one]
    assert [(one.queue_id, one.dropped, one.held_count) for one in gone] == [
        (0, True, 0),
        (1, True, 0),
    ]
    assert len(windows) == 0


def test_of_a_client_that_answers_no_more_it_is_reported_once_with_what_it_held() -> None:
    windows = EmittedWindows(INTERVAL_MS)
    is_news(windows, WINDOW, 0)
    silent = [one for one in windows.unanswered("g", "c1") if one]
    assert [(one.answered, one.held_count, one.head_message_id) for one in silent] == [
        (False, 3, "U5")
    ]
    assert [one for one in windows.unanswered("g", "c1") if one] == []
    again = replace(WINDOW)
    assert windows.is_news(again, 1, losses=0), "it answers again, though nothing else changed"
    assert again.answered is True


def test_a_client_that_turns_to_its_queue_no_more_is_reported_by_the_broker_s_clock() -> None:
    """Its own clock may say anything: whether its last pull moved is what counts."""
    windows = EmittedWindows(10**9)
    answers = []
    for at in range(0, 200_000, 5_000):
        pulled_ms = 10**12 + min(at, 50_000)
        window = replace(WINDOW, last_pull_time_ms=pulled_ms)
        if windows.is_news(window, at, losses=0):
            answers.append((at, window.attended))
    assert answers == [(0, True), (50_000 + ATTENDED_MS + 5_000, False)]
    window = replace(WINDOW, last_pull_time_ms=10**12 + 60_000)
    assert windows.is_news(window, 200_000, losses=0)
    assert window.attended is True
