"""A topic that no member names any more is no stall while it is not certain that it is left."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.settings import Evaluation
from tests.pipelines.bronze_lake import SECOND
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import horizons_of, run

CHANGED_AT = 40
Gold = dict[str, list[dict[str, Any]]]


def with_traffic(
    said: dict[int, str], *, seconds: int = 180, members: int | None = 1, every: int | None = None
) -> Gold:
    """Messages come to t all the time; from CHANGED_AT on nobody pulls it, and g reads only u."""
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    gone = False
    for at in range(2, seconds, 2):
        broker.at(at)
        if at in said:
            broker.report("lifecycle", kind=said[at], group="g", topic="t")
            gone = said[at] == "TOPIC_LEFT"
        end, done = 100 + 20 * at, 100 + 20 * min(at, CHANGED_AT)
        pull_us = broker.now_us - max(0, at - CHANGED_AT) * SECOND
        offsets = {"committed": done, "pulled": done, "max_offset": end}
        if not gone:
            there = members if at >= CHANGED_AT else 1
            stored = {"store_time_at_committed": pull_us} if done < end else {}
            state = "EXACT" if done < end else "AT_END"
            known = {**offsets, **stored, "committed_state": state, "members": there}
            broker.watermark(**known, last_pull_time=pull_us, last_commit_time=pull_us)
        at_end = {"committed": end, "pulled": end, "max_offset": end, "committed_state": "AT_END"}
        broker.watermark(1, topic="u", **at_end)
        broker.at(at + 1.999)
        broker.ship()
    reported = bronze(rows)
    ends = None if every is None else range(0, len(horizons_of(reported)), every)
    return run(JUDGES, reported, Evaluation(), **({} if ends is None else {"ends": ends}))


def seen(gold: Gold) -> list[str]:
    """The states of g, each once in a row."""
    rows = sorted(gold["group_state"], key=lambda row: row["observed_at"])
    states = [row["state"] for row in rows]
    return [one for at, one in enumerate(states) if at == 0 or states[at - 1] != one]


def opened(gold: Gold) -> list[float]:
    """When each stalled window was shown first."""
    rows = gold.get("stalled_windows", [])
    return sorted(second(row["observed_at"]) for row in rows if row["revision"] == 1)


LEAVES = {CHANGED_AT + 10: "TOPIC_UNNAMED", CHANGED_AT + 70: "TOPIC_LEFT"}


@pytest.mark.parametrize("every", [None, 1, 7])
def test_what_stands_of_a_topic_that_is_left_later_is_no_stall(every: int | None) -> None:
    gold = with_traffic(LEAVES, every=every)
    assert opened(gold) == []
    assert seen(gold) == ["OK", "UNKNOWN", "OK"]
    reason = next(row["reason"] for row in gold["group_state"] if row["state"] == "UNKNOWN")
    assert reason.startswith(
        "Whether group g has left t is not certain yet: no member subscribes to it any more."
    )


def test_what_stands_of_a_topic_that_members_name_is_a_stall_without_delay() -> None:
    named = opened(with_traffic({}))
    again = {CHANGED_AT + 10: "TOPIC_UNNAMED", CHANGED_AT + 20: "TOPIC_NAMED"}
    assert named
    assert opened(with_traffic(again)) == named


def test_who_is_named_again_after_the_window_was_full_is_a_stall_at_once() -> None:
    again = {CHANGED_AT + 10: "TOPIC_UNNAMED", CHANGED_AT + 70: "TOPIC_NAMED"}
    (at,) = opened(with_traffic(again))
    assert CHANGED_AT + 70 <= at <= CHANGED_AT + 80


def test_without_members_nothing_is_about_to_be_left() -> None:
    unnamed = {CHANGED_AT + 10: "TOPIC_UNNAMED"}
    assert opened(with_traffic(unnamed, members=0)) == opened(with_traffic({}, members=0))


def test_a_topic_that_is_never_said_to_be_left_is_held_for_two_minutes() -> None:
    (at,) = opened(with_traffic({CHANGED_AT + 10: "TOPIC_UNNAMED"}, seconds=240))
    assert CHANGED_AT + 10 + 120 <= at <= CHANGED_AT + 10 + 140


def test_a_window_that_was_open_stays_open_until_the_topic_is_left() -> None:
    late = {CHANGED_AT + 60: "TOPIC_UNNAMED", CHANGED_AT + 120: "TOPIC_LEFT"}
    gold = with_traffic(late)
    assert opened(gold) == opened(with_traffic({}))
    assert seen(gold) == [*seen(with_traffic({})), "OK"]
