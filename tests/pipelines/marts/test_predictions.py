"""Predictions speak of the instant before, by cause, from exact ranges: certain is only what was
finished at that instant, and what a reader is told to begin with comes again.
"""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.marts.duplicate_risk_windows import MART
from pipelines.marts.risks.holdings import finished_within
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, State, computed, facts, only


def risks(state: State | None = None, **tables: list[Row]) -> tuple[list[Row], State]:
    """What the rows of these tables put at risk."""
    given = {name: facts(name, *rows) for name, rows in tables.items()}
    return computed(MART, given, state)


def held(*ranges: tuple[int, int], finished: int | None, base: int | None = 80) -> Row:
    """A sample: these ranges held, so many finished at or above the consume offset."""
    told = [{"from_offset": begin, "to_offset": end} for begin, end in ranges]
    count = sum(end - begin for begin, end in ranges)
    known = {"client_id": "a", "held_ranges": told, "held_count": count, "dropped": False}
    return {**known, "finished_count": finished, "client_committed": base}


@pytest.mark.parametrize(
    ("sample", "certain"),
    [
        (held((80, 84), finished=6), 6),  # 84 to 89 are finished, 80 to 83 are not.
        (held((80, 82), (85, 90), finished=3), 3),
        (held((75, 78), (80, 84), finished=8, base=75), 6),  # 78 and 79 are committed by now.
        (held(finished=0, base=90), 0),
        (held((80, 95), finished=5), 0),  # Finished beyond what the broker knows as pulled.
        (held((80, 84), finished=2), 2),  # Of 84 to 89 two were finished; then more was pulled.
        ({**held((80, 81), finished=9), "held_count": 5}, 0),  # More ranges than are told.
        ({**held((80, 84), finished=6), "held_ranges": None}, 6),
        ({**held(finished=9, base=75), "held_ranges": None}, 4),  # Five may be committed by now.
        ({**held(finished=3, base=None), "held_ranges": None}, None),
        (held((80, 84), finished=None), None),
    ],
)
def test_certain_is_only_what_was_finished_at_that_instant(
    sample: Row, certain: int | None
) -> None:
    assert finished_within(sample, 80, 90) == certain
    _, state = risks(client_windows=[{"at": 0, **sample}])
    rows, _ = risks(state, rebalance_events=[lost(3)])
    uncertain = None if certain is None else 10 - certain
    assert only(rows, "cause", "at_risk_messages", "certain_messages", "uncertain_messages") == [
        ("CONSUMER_CRASH", 10, certain, uncertain)
    ]


def lost(at: float, **values: Any) -> Row:
    """Client a is lost with [80, 90) pulled and not committed."""
    queue = {"topic": "t", "queue_id": 0, "committed": 80, "pulled": 90}
    known = {"client_id": "a", "kind": "LEFT", "reason": "CONNECTION_LOST", "generation": 4}
    return {"at": at, "seq": 9, "inferred": False, "queues": [queue], **known, **values}


def test_a_sample_tells_of_what_is_until_the_next_one_even_if_nothing_changed_for_minutes() -> None:
    sample = {"at": 0, **held((80, 84), finished=6)}
    other = {"at": 400, "seq": 2, **held(finished=0, base=5), "client_id": "b"}
    _, state = risks(client_windows=[sample, other])
    rows, _ = risks(state, rebalance_events=[lost(500)])
    assert only(rows, "certain_messages") == [(6,)]
    rows, _ = risks(state, rebalance_events=[lost(700)])
    assert only(rows, "certain_messages") == [(None,)]


def test_a_queue_that_its_client_gave_up_is_not_what_it_held_before() -> None:
    sample = {"at": 0, **held((80, 84), finished=6)}
    dropped = {"at": 1, "seq": 2, **held(finished=0), "dropped": True}
    _, state = risks(client_windows=[sample, dropped])
    assert state["samples"].num_rows == 0
    rows, _ = risks(client_windows=[sample, dropped], rebalance_events=[lost(3)])
    assert only(rows, "certain_messages") == [(None,)]


def answer(seq: int, told: int | None, **values: Any) -> Row:
    """Client b is told where to begin while a has pulled 90 and committed 80."""
    marks = {"committed": 80, "pulled": 90, "last_puller": "a"}
    return {"at": seq, "seq": seq, "client_id": "b", "told_offset": told, **marks, **values}


def again(seq: int, begin: int, end: int) -> Row:
    """Client b pulls what a had pulled."""
    clients = {"client_id": "b", "previous_client_id": "a"}
    span = {"from_offset": begin, "to_offset": end, "broker_epoch_before": NOON - 3600 * SECOND}
    return {"at": seq, "seq": seq, **clients, **span}


def test_a_hand_over_from_a_stale_offset_is_predicted_down_to_that_offset() -> None:
    """b was told 60, long before its first pull; by then a had committed 80."""
    told, state = risks(offset_answers=[answer(1, 60, committed=60, pulled=85)])
    assert only(told, "basis", "cause", "next_client_id", "from_offset", "to_offset") == [
        ("OFFSET_ANSWER", "HAND_OVER", "b", 60, 85)
    ]
    assert told[0]["evidence"] == "b was told to begin at 60 when a had pulled up to 85"
    revoked = lost(5, kind="REVOKED", reason=None)
    rows, _ = risks(state, rebalance_events=[revoked], redeliveries=[again(10, 60, 90)])
    newest = rows[-1]
    assert (newest["basis"], newest["outcome"]) == ("DEPARTURE", "CONFIRMED")
    assert (newest["from_offset"], newest["to_offset"]) == (60, 90)
    assert newest["redelivered_messages"] == newest["at_risk_messages"] == 30


@pytest.mark.parametrize("told", [90, 95, None], ids=["the end of pulls", "beyond it", "no offset"])
def test_a_reader_that_goes_on_where_pulls_ended_puts_nothing_at_risk(told: int | None) -> None:
    rows, _ = risks(offset_answers=[answer(1, told)])
    assert rows == []


def test_a_client_that_asks_again_for_its_own_queue_has_begun_anew() -> None:
    rows, _ = risks(offset_answers=[answer(1, 80, client_id="a")])
    assert only(rows, "cause", "client_id", "next_client_id") == [("CONSUMER_CRASH", "a", "a")]


def test_nothing_comes_again_for_certain_after_a_broker_s_death_since_readers_live_on() -> None:
    marks = {"pulled": 90, "committed": 80, "persisted": 70, "min_offset": 0, "max_offset": 100}
    known = {"at": 1, "last_puller": "a", "message_model": "CLUSTERING", **marks}
    boot = {"at": 9, "seq": 2, "kind": "BOOT", "clean": False, "broker_epoch": NOON}
    rows, state = risks(group_watermarks=[known], lifecycle=[boot])
    assert only(rows, "cause", "at_risk_messages", "certain_messages", "uncertain_messages") == [
        ("BROKER_CRASH", 20, 0, 20)
    ]
    rows, _ = risks(state, offset_answers=[answer(3, 65)])
    assert only(rows, "cause", "revision", "from_offset", "to_offset", "next_client_id") == [
        ("BROKER_CRASH", 2, 65, 90, "b")
    ]
