"""When messages were stored that nobody read, by the ends of their queue that looks saw."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.admin.api.groups import QueueProgress
from engine.observer.store_time_estimates import ENDS_REMEMBERED_MAX, Estimate, PolledEnds

PLACE = ("orders", 0)


def progress(committed: int, end: int) -> QueueProgress:
    return QueueProgress(end, committed, 0, 0)


def looks(*ends: tuple[int, int, int]) -> PolledEnds:
    """(second, committed, end) of each look."""
    polled = PolledEnds()
    for at_s, committed, end in ends:
        rows = {"g": {PLACE: progress(committed, end)}}
        polled.seen(rows, asked_ms=1000 * at_s, answered_ms=1000 * at_s)
    return polled


def test_a_message_was_stored_between_the_look_that_missed_it_and_the_one_that_saw_it() -> None:
    polled = looks((10, 5, 5), (20, 5, 8), (30, 7, 12))
    assert polled.estimate(PLACE, 7) == Estimate(7, 15_000, 5_001)
    assert polled.estimate(PLACE, 8) == Estimate(8, 25_000, 5_001)


def test_an_end_that_stood_for_a_while_makes_no_bar_wider() -> None:
    polled = looks((10, 5, 6), (20, 5, 6), (30, 5, 6), (40, 5, 9))
    assert polled.estimate(PLACE, 6) == Estimate(6, 35_000, 5_001)


def test_what_was_there_before_the_first_look_or_is_not_there_yet_is_not_known() -> None:
    polled = looks((10, 2, 5), (20, 2, 8))
    assert polled.estimate(PLACE, 4) is None
    assert polled.estimate(PLACE, 8) is None
    assert polled.estimate(("orders", 1), 4) is None


def test_a_queue_that_was_made_anew_has_no_past() -> None:
    polled = looks((10, 5, 50), (20, 5, 90), (30, 1, 3), (40, 1, 4))
    assert polled.estimate(PLACE, 60) is None
    assert polled.estimate(PLACE, 3) == Estimate(3, 35_000, 5_001)


def test_the_offset_at_which_a_group_waits_is_reported_where_its_message_was_not_read() -> None:
    polled = looks((10, 5, 5), (20, 5, 8))
    waiting = {("g", "orders", 0): 6, ("other", "orders", 0): 7}
    found = polled.estimates(waiting, {("orders", 0, 7): 123})
    assert found == {("g", "orders", 0): Estimate(6, 15_000, 5_001)}


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 20)), min_size=2, max_size=120
)


@given(STEPS)
def test_bars_hold_however_many_looks_there_were(steps: list[tuple[int, int, int]]) -> None:
    """(messages stored, messages committed, seconds until the next look)"""
    polled, stored_ms, committed, now_ms = PolledEnds(), list[int](), 0, 0
    for stored, done, wait_s in steps:
        asked_ms = now_ms
        now_ms += 300  # The look takes so long; in its midst it sees the end.
        rows = {"g": {PLACE: progress(committed, len(stored_ms))}}
        polled.seen(rows, asked_ms=asked_ms, answered_ms=now_ms)
        assert len(polled._waiting.get(PLACE, ())) <= ENDS_REMEMBERED_MAX
        for offset in range(committed, len(stored_ms)):
            found = polled.estimate(PLACE, offset)
            if found is not None:
                assert abs(found.stored_ms - stored_ms[offset]) <= found.error_ms
        now_ms += 1000 * wait_s
        stored_ms += [now_ms - 1000 * wait_s * one // 5 for one in range(stored, 0, -1)]
        committed = min(committed + done, len(stored_ms))
