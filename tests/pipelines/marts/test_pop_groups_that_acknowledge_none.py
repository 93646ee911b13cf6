"""A POP group that takes messages and acknowledges none is not OK: rows in, its state out."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.settings import Evaluation
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import horizons_of, run

INVISIBLE_S, WINDOW_S, LOOK_S = 15, 30, 10
TAKEN_AT = 21
Looks = dict[int, dict[str, Any]]


def looked_at(looks: Looks, *, seconds: int = 400) -> Rows:
    """A group that is handed out all there is; what a look finds of it, by the second."""
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    for at in range(1, seconds, LOOK_S):
        broker.at(at)
        if at == 1:
            done = {"committed": 100, "pulled": None, "committed_state": "AT_END"}
            broker.watermark(**done, last_pull_time=None, members=None)
        if at in looks:
            found = {"acknowledged": 0, "expired": 0, "unacknowledged": 0, **looks[at]}
            handed_out = found.pop("handed_out", None)
            since = None if handed_out is None else START_US + int(handed_out * SECOND)
            mark = {"group": "g", "topic": "t", "queue_id": 0, "popped": 100, "max_offset": 100}
            mark |= {"invisible_ms": INVISIBLE_S * 1000, "handed_out_since": since, **found}
            broker.report("pop_watermarks", **mark)
        broker.at(at + LOOK_S - 0.001)
        broker.ship()
    return rows


def states(rows: Rows, **options: Any) -> list[tuple[float, str]]:
    """When the state of the group changed, and to what."""
    gold = run(JUDGES, bronze(rows), Evaluation(), **options)["group_state"]
    found: list[tuple[float, str]] = []
    for row in sorted(gold, key=lambda one: one["observed_at"]):
        assert (row["state"] == "STALLED") == (row["unacknowledged_since"] is not None)
        if not found or found[-1][1] != row["state"]:
            found.append((second(row["observed_at"]), row["state"]))
    return found


def never(*, until: int) -> Looks:
    """Four messages are taken each 15 s, and none is acknowledged."""
    again = {"unacknowledged": 4, "expired": 4}
    return {TAKEN_AT: {"unacknowledged": 4}, **dict.fromkeys(range(41, until, 20), again)}


def test_a_group_that_acknowledges_none_is_stalled_within_an_invisible_time_and_a_window() -> None:
    rows = looked_at(never(until=140), seconds=140)
    (_, before), (at, state) = states(rows)
    assert (before, state) == ("OK", "STALLED")
    assert at - TAKEN_AT <= INVISIBLE_S + WINDOW_S + LOOK_S
    newest = run(JUDGES, bronze(rows), Evaluation())["group_state"][-1]
    assert second(newest["unacknowledged_since"]) == 41 - INVISIBLE_S
    assert newest["queues_not_ok"] == 0
    assert newest["reason"] == (
        "Group g takes messages and acknowledges none since 12:00:26 UTC: 8 invisible times ran "
        "out. Group g is 0 messages behind on 1 queue."
    )


def handed_out_once(at: float, *, acknowledged: int = 0) -> Looks:
    """A message is handed out and comes back; others were acknowledged by the look that saw it."""
    seen = int(at // LOOK_S + 1) * LOOK_S + 1
    back = int((at + INVISIBLE_S) // LOOK_S + 1) * LOOK_S + 1
    out = {"unacknowledged": 1, "handed_out": at}
    again = {"expired": 1, "unacknowledged": 1, "handed_out": at + INVISIBLE_S + 1}
    return {seen: {**out, "acknowledged": acknowledged}, back: again}


@pytest.mark.parametrize("acknowledged", [0, 36])
@pytest.mark.parametrize("at", [31.2, 34.8, 37.5, 40.9])
def test_it_begins_when_the_first_of_its_messages_was_handed_out(
    at: float, acknowledged: int
) -> None:
    """Whatever was acknowledged before: nobody did anything since."""
    rows = looked_at(handed_out_once(at, acknowledged=acknowledged), seconds=140)
    (_, _), (stalled_at, state) = states(rows)
    assert state == "STALLED"
    window_us = INVISIBLE_S + WINDOW_S
    assert window_us <= stalled_at - at <= window_us + LOOK_S
    newest = run(JUDGES, bronze(rows), Evaluation())["group_state"][-1]
    assert second(newest["unacknowledged_since"]) == pytest.approx(at, abs=1e-3)


@pytest.mark.parametrize("off_s", [-28_800, 28_800])
def test_a_clock_of_its_broker_that_is_off_makes_it_no_earlier_and_no_later(off_s: int) -> None:
    looks = handed_out_once(34.8)
    for one in looks.values():
        one["handed_out"] += off_s
    (_, _), (at, state) = states(looked_at(looks, seconds=140))
    assert state == "STALLED"
    assert 34.8 + WINDOW_S <= at <= 34.8 + INVISIBLE_S + WINDOW_S + 2 * LOOK_S


def test_one_message_on_a_quiet_topic_that_always_comes_back_is_a_finding() -> None:
    looks: Looks = {21: {"acknowledged": 40}}
    looks |= {at: {"expired": 1} for at in range(41, 300, 20)}
    assert [state for _, state in states(looked_at(looks, seconds=310))] == ["OK", "STALLED"]


def test_who_acknowledged_others_meanwhile_is_stalled_five_minutes_after() -> None:
    """A message comes back for ever; of those handed out beside it one was acknowledged later."""
    looks = handed_out_once(34.8)
    looks |= {at: {"expired": 1} for at in range(71, 500, 20)}
    looks[91] = {"acknowledged": 1}
    assert [state for _, state in states(looked_at(looks, seconds=130))][-1] == "OK"
    (*_, (at, state)) = states(looked_at(looks, seconds=500))
    assert state == "STALLED"
    assert at - 91 >= 300


IN_A_STORE = "its broker keeps checkpoints in a store that nobody can ask"


def unknown_looks(copies: dict[int, int], topic: str = "%RETRY%g_t") -> Looks:
    """Nobody knows what is acknowledged; by the second how many copies came to the topic."""
    known = {"unknown_reason": IN_A_STORE, "unacknowledged": None, "invisible_ms": None}
    return {at: {**known, "topic": topic, "max_offset": end} for at, end in copies.items()}


@pytest.mark.parametrize("topic", ["%RETRY%g_t", "%RETRY%g+t"])
def test_where_checkpoints_are_unknown_invisible_times_that_ran_out_are_said(topic: str) -> None:
    looks = unknown_looks({11: 100, **{at: 100 + at for at in range(31, 391, 10)}}, topic)
    rows = looked_at(looks)
    assert [state for _, state in states(rows)] == ["OK", "UNKNOWN"]
    newest = run(JUDGES, bronze(rows), Evaluation())["group_state"][-1]
    assert newest["reason"] == (
        "Whether group g acknowledges what it takes is unknown: 61 invisible times ran out since "
        f"12:00:31 UTC; {IN_A_STORE}. Group g is 0 messages behind on 1 queue."
    )


def test_what_comes_to_other_topics_says_nothing_of_acknowledgements() -> None:
    looks = unknown_looks({11: 100, **{at: 100 + at for at in range(31, 391, 10)}}, "t")
    assert [state for _, state in states(looked_at(looks))] == ["OK"]


def test_the_first_acknowledgement_ends_it() -> None:
    looks = {**never(until=140), 141: {"acknowledged": 1}}
    assert [state for _, state in states(looked_at(looks))] == ["OK", "STALLED", "OK"]


def test_it_is_over_when_nobody_takes_messages_any_more() -> None:
    (*_, (at, state)) = states(looked_at(never(until=82), seconds=500))
    assert state == "OK"
    assert at > 81 + 300


QUIET: dict[str, Looks] = {
    "one of many comes back": {at: {"acknowledged": 36, "expired": 4} for at in range(21, 400, 20)},
    "one comes back, and is acknowledged then": {
        41: {"expired": 1, "unacknowledged": 1},
        51: {"acknowledged": 1},
    },
    "nobody knows": {
        at: {"expired": 4, "unknown_reason": "why", "unacknowledged": None}
        for at in range(21, 400, 20)
    },
}


@pytest.mark.parametrize("name", QUIET)
def test_who_acknowledges_or_may_have_done_so_is_not_stalled(name: str) -> None:
    assert {state for _, state in states(looked_at(QUIET[name], seconds=310))} == {"OK"}


def test_it_does_not_depend_on_where_cycles_are_cut() -> None:
    rows = looked_at({**never(until=140), 141: {"acknowledged": 1}})
    shipments = len(horizons_of(bronze(rows)))
    whole = states(rows)
    for every in (1, 3):
        assert states(rows, ends=range(0, shipments, every)) == whole
