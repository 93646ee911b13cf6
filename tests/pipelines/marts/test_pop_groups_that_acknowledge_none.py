"""A POP group that takes messages and acknowledges none is not OK: rows in, its state out."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.settings import Evaluation
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
            place = {"group": "g", "topic": "t", "queue_id": 0, "popped": 100, "max_offset": 100}
            broker.report("pop_watermarks", **place, invisible_ms=INVISIBLE_S * 1000, **found)
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
    "none is acknowledged for a while by one that does": {
        21: {"acknowledged": 40},
        **{at: {"expired": 1} for at in range(41, 300, 20)},
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
