"""Predictions speak of the instant before, by cause, from exact ranges: certain is only what was
finished at that instant, and what a reader is answered to begin with comes again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipelines.base.settings import Evaluation
from pipelines.marts.computing import beginning
from pipelines.marts.duplicate_risk_windows import MART
from pipelines.marts.mart import Given
from pipelines.marts.offset_violations import MART as VIOLATIONS
from pipelines.marts.risks.holdings import finished_within
from pipelines.staging.facts import no_facts
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, State, computed, facts, only


def risks(state: State | None = None, **tables: list[Row]) -> tuple[list[Row], State]:
    """What the rows of these tables put at risk."""
    given = {name: facts(name, *rows) for name, rows in tables.items()}
    return computed(MART, given, state)


def held(
    *ranges: tuple[int, int],
    finished: int | None,
    base: int | None = 80,
    takes_all: bool | None = None,
) -> Row:
    """A sample: these ranges held, so many finished at or above the consume offset."""
    rows = [{"from_offset": begin, "to_offset": end} for begin, end in ranges]
    count = sum(end - begin for begin, end in ranges)
    known = {"client_id": "a", "held_ranges": rows, "held_count": count, "dropped": False}
    marks = {"finished_count": finished, "client_committed": base}
    return {**known, **marks, "takes_all": takes_all}


@pytest.mark.parametrize(
    ("sample", "certain"),
    [
        (held((80, 84), finished=6), 6),  # 84 to 89 are finished, 80 to 83 are not.
        (held((80, 82), (85, 90), finished=3), 3),
        (held((75, 78), (80, 84), finished=8, base=75), 6),  # 78 and 79 are committed by now.
        (held(finished=0, base=90), 0),
        (held((80, 95), finished=5), 0),  # Finished beyond what the broker knows as pulled.
        (held((80, 84), finished=2), 2),  # Of 84 to 89 two were finished; then more was pulled.
        ({**held((80, 81), finished=9), "held_count": 5}, 0),  # More ranges than are reported.
        ({**held((80, 84), finished=6), "held_ranges": None}, 6),
        ({**held(finished=9, base=75), "held_ranges": None}, 4),  # Five may be committed by now.
        ({**held(finished=3, base=None), "held_ranges": None}, None),
        (held((80, 84), finished=None), None),
        (held((88, 90), finished=0, base=88, takes_all=True), 8),  # Finished, not reported yet.
        (held((86, 88), finished=2, base=86, takes_all=True), 8),  # 88 and 89 as well.
        (held(finished=0, base=95, takes_all=True), 10),
        (held((75, 78), (80, 84), finished=8, base=75, takes_all=True), 6),
        (held((86, 88), finished=2, base=86, takes_all=False), 2),  # Its filter passed over some.
        (held((86, 88), finished=2, base=86), 2),  # Who knows?
        ({**held((86, 88), finished=2, base=86, takes_all=True), "held_ranges": None}, 8),
        ({**held(finished=None, base=86, takes_all=True), "held_ranges": None}, 6),  # A Java client
        ({**held(finished=None, base=80, takes_all=True), "held_ranges": None}, None),
    ],
)
def test_certain_is_only_what_was_finished_at_that_instant(
    sample: Row, certain: int | None
) -> None:
    assert finished_within({**sample, "fell_from": None}, 80, 90) == certain
    _, state = risks(client_windows=[{"at": 0, **sample}])
    rows, _ = risks(state, rebalance_events=[lost(3)])
    uncertain = None if certain is None else 10 - certain
    assert only(rows, "cause", "at_risk_messages", "certain_messages", "uncertain_messages") == [
        ("CONSUMER_CRASH", 10, certain, uncertain)
    ]


@pytest.mark.parametrize(
    ("sample", "ranges"),
    [
        (held((86, 88), finished=2, base=86, takes_all=True), [(80, 86), (88, 90)]),
        ({**held(finished=None, base=86, takes_all=True), "held_ranges": None}, [(80, 86)]),
        (held((86, 88), finished=2, base=86), [(88, 90)]),
    ],
)
def test_what_a_client_finished_and_has_not_reported_is_certain_offset_by_offset(
    sample: Row, ranges: list[tuple[int, int]]
) -> None:
    _, state = risks(client_windows=[{"at": 0, **sample}])
    rows, _ = risks(state, rebalance_events=[lost(3)])
    assert [[*one.values()] for one in rows[0]["certain_ranges"]] == [[*one] for one in ranges]


def fallen(at: float, previous: int, offset: int) -> Row:
    """A report set the committed offset back, and nothing accounts for it."""
    known = {"client_id": "tool", "offset": offset, "previous_offset": previous, "path": "REQUEST"}
    bounds = {"min_offset": 0, "max_offset": 100, "accepted": True}
    return {"at": at, "seq": 5, **known, **bounds}


@pytest.mark.parametrize("is_cut", [False, True], ids=["in one cycle", "in three"])
@pytest.mark.parametrize(
    ("sampled", "previous", "certain"),
    [(2, 85, 3), (2, 95, 0), (6, 85, 8)],
    ids=["partly", "all of it", "not what was finished after"],
)
def test_below_where_the_committed_offset_fell_from_nothing_is_certain(
    sampled: int, previous: int, certain: int, is_cut: bool
) -> None:
    """A group that began at its end may be set back to what it never read."""
    sample = held((88, 90), finished=0, base=88, takes_all=True)
    seen = {"client_windows": [{"at": 0, "seq": sampled, **sample}]}
    fell = {"offset_violations": violations(fallen(1, previous, 80))}
    gone = {"rebalance_events": facts("rebalance_events", lost(3))}
    given = [{name: facts(name, *rows) for name, rows in seen.items()}, fell, gone]
    given = given if sampled < 5 else [fell, given[0], gone]
    state: State | None = None
    for part in given if is_cut else [{**given[0], **given[1], **given[2]}]:
        rows, state = computed(MART, part, state)
    assert only([row for row in rows if row["basis"] == "DEPARTURE"], "certain_messages") == [
        (certain,)
    ]


def violations(*reports: Row) -> pa.Table:
    """What the reports broke, as the mart of violations says it."""
    given = {name: no_facts(name) for name in ("rebalance_events", "redeliveries", "lifecycle")}
    given["consume_offsets"] = facts("consume_offsets", *reports)
    return VIOLATIONS.compute(Given(given, beginning(VIOLATIONS), Evaluation())).rows


def test_a_sample_from_before_rows_were_lost_says_nothing_of_what_is_finished() -> None:
    """The client may have given the queue up and taken it anew: then it begins again."""
    _, state = risks(client_windows=[{"at": 0, **held((80, 84), finished=6)}])
    _, state = risks(state, lifecycle=[{"at": 1, "seq": 2, "kind": "SPOOL_LOSS"}])
    rows, _ = risks(state, rebalance_events=[lost(3)])
    assert only(rows, "at_risk_messages", "certain_messages") == [(10, None)]


def test_a_sample_from_behind_the_loss_says_what_is_finished() -> None:
    _, state = risks(client_windows=[{"at": 0, **held((80, 90), finished=0)}])
    rows, _ = risks(
        state,
        lifecycle=[{"at": 1, "kind": "SPOOL_LOSS", "seq": 101}],
        client_windows=[{"at": 2, "seq": 102, **held((80, 84), finished=6)}],
        rebalance_events=[{**lost(3), "seq": 103}],
    )
    assert only(rows, "at_risk_messages", "certain_messages") == [(10, 6)]


def lost(at: float, **values: Any) -> Row:
    """Client a is lost with [80, 90) pulled and not committed."""
    queue = {"topic": "t", "queue_id": 0, "committed": 80, "pulled": 90}
    known = {"client_id": "a", "kind": "LEFT", "reason": "CONNECTION_LOST", "generation": 4}
    return {"at": at, "seq": 9, "inferred": False, "queues": [queue], **known, **values}


def test_a_sample_holds_until_the_next_one_even_if_nothing_changed_for_minutes() -> None:
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


def answer(seq: int, from_offset: int | None, **values: Any) -> Row:
    """Client b is answered where to begin while a has pulled 90 and committed 80."""
    marks = {"committed": 80, "pulled": 90, "last_puller": "a"}
    return {"at": seq, "seq": seq, "client_id": "b", "told_offset": from_offset, **marks, **values}


def again(seq: int, begin: int, end: int) -> Row:
    """Client b pulls what a had pulled."""
    clients = {"client_id": "b", "previous_client_id": "a"}
    span = {"from_offset": begin, "to_offset": end, "broker_epoch_before": NOON - 3600 * SECOND}
    return {"at": seq, "seq": seq, **clients, **span}


def test_a_hand_over_from_a_stale_offset_is_predicted_down_to_that_offset() -> None:
    """b was answered 60, long before its first pull; by then a had committed 80."""
    risk, state = risks(offset_answers=[answer(1, 60, committed=60, pulled=85)])
    assert only(risk, "basis", "cause", "next_client_id", "from_offset", "to_offset") == [
        ("OFFSET_ANSWER", "HAND_OVER", "b", 60, 85)
    ]
    assert risk[0]["all_from_offset"] == 85
    assert risk[0]["evidence"] == (
        "Group g risks a second delivery of 25 messages of queue 0 of t on b, [60, 85), since "
        "12:00:01 UTC: b was given 60 to begin at when a had pulled up to 85. Two members may read "
        "the queue: what one pulls from 85 on, both do. See whether its listeners take a message "
        "twice without harm."
    )
    revoked = lost(5, kind="REVOKED", reason=None)
    rows, _ = risks(state, rebalance_events=[revoked], redeliveries=[again(10, 60, 90)])
    newest = rows[-1]
    assert (newest["basis"], newest["outcome"]) == ("DEPARTURE", "CONFIRMED")
    assert (newest["from_offset"], newest["to_offset"]) == (60, 90)
    assert newest["redelivered_messages"] == newest["at_risk_messages"] == 30


@pytest.mark.parametrize(
    "offset", [90, 95, None], ids=["the end of pulls", "beyond it", "no offset"]
)
def test_a_reader_that_goes_on_where_pulls_ended_puts_nothing_at_risk(offset: int | None) -> None:
    rows, _ = risks(offset_answers=[answer(1, offset)])
    assert rows == []


def test_a_client_that_asks_again_for_its_own_queue_has_begun_anew() -> None:
    rows, _ = risks(offset_answers=[answer(1, 80, client_id="a")])
    assert only(rows, "cause", "client_id", "next_client_id") == [("CONSUMER_CRASH", "a", "a")]


MARKS = {"pulled": 90, "committed": 80, "persisted": 70, "min_offset": 0, "max_offset": 100}
DIED = {"at": 9, "seq": 2, "kind": "BOOT", "clean": False, "broker_epoch": NOON}
FIGURES = ("from_offset", "to_offset", "certain_messages", "uncertain_messages")


def mark(members: int | None) -> Row:
    """Client a has pulled 90, committed 80, and the disk knows 70."""
    model = {"last_puller": "a", "message_model": "CLUSTERING", "members": members}
    return {"at": 1, "seq": 1, **model, **MARKS}


def test_readers_that_live_on_when_the_broker_dies_put_nothing_at_risk() -> None:
    rows, state = risks(group_watermarks=[mark(2)], lifecycle=[DIED])
    assert only(rows, "cause", *FIGURES) == [("BROKER_CRASH", 90, 90, 0, 0)]
    assert rows[0]["evidence"] == (
        "Group g risks no second delivery of queue 0 of t on b since 12:00:09 UTC: the broker died "
        "when the group was at 90, and who reads on there repeats nothing."
    )
    after = {**mark(1), "at": 12, "seq": 3, "committed": 93, "pulled": 94, "broker_epoch": NOON}
    late = {**after, "at": 40, "seq": 4}
    rows, _ = risks(state, group_watermarks=[after, late])
    assert only(rows, "seq", "state", "outcome") == [(4, "CLOSED", "PASSED")]


def test_a_reader_that_the_broker_does_not_know_yet_may_read_beside_who_took_its_queue() -> None:
    """a lives on and has not sent its heartbeat; b is answered to begin where a has pulled to."""
    _, state = risks(group_watermarks=[mark(2)], lifecycle=[DIED])
    after = {**mark(1), "at": 12, "seq": 3, "committed": 94, "pulled": 94, "broker_epoch": NOON}
    _, state = risks(state, group_watermarks=[after])
    answered = answer(13, 94, committed=94, pulled=94)
    rows, _ = risks(state, offset_answers=[answered])
    assert only(rows, "at_risk_messages", "all_from_offset") == [(0, 94)]


def test_who_is_answered_where_to_begin_while_another_was_before_is_certain_of_nothing() -> None:
    """a begins anew and is answered 70, but b was so before it, and may have read on by then."""
    _, state = risks(group_watermarks=[mark(2)], lifecycle=[DIED])
    _, state = risks(state, offset_answers=[answer(3, 80)])
    rows, _ = risks(state, offset_answers=[answer(4, 70, client_id="a")])
    assert only(rows, "from_offset", "certain_messages") == [(70, 0)]


def test_who_lost_a_queue_to_another_reader_may_pull_once_more() -> None:
    rows, _ = risks(rebalance_events=[lost(1, kind="REVOKED", reason=None)])
    assert only(rows, "cause", "to_offset", "all_from_offset") == [("HAND_OVER", 90, 90)]
    rows, _ = risks(rebalance_events=[lost(1)])
    assert only(rows, "cause", "to_offset", "all_from_offset") == [("CONSUMER_CRASH", 90, None)]


def test_what_the_disk_did_not_know_comes_again_for_certain_to_who_begins_anew() -> None:
    """Client a died with the broker: it asks, and what it had committed was finished."""
    _, state = risks(group_watermarks=[mark(2)], lifecycle=[DIED])
    rows, _ = risks(state, offset_answers=[answer(3, 70, client_id="a")])
    assert only(rows, "cause", *FIGURES) == [("BROKER_CRASH", 70, 90, 10, 10)]
    assert rows[0]["certain_ranges"] == [{"from_offset": 70, "to_offset": 80}]
    assert rows[0]["all_from_offset"] == 90, "another that the broker has not heard of may read on"


def test_who_asks_while_the_reader_before_may_live_on_is_certain_of_nothing() -> None:
    """b is answered 70; a reads on, b may give the queue back, and both may read it for a while."""
    _, state = risks(group_watermarks=[mark(2)], lifecycle=[DIED])
    rows, state = risks(state, offset_answers=[answer(3, 70)])
    assert only(rows, *FIGURES, "all_from_offset") == [(70, 90, 0, 20, 90)]
    rows, state = risks(state, offset_answers=[answer(4, 86)])  # It asks again: a has committed.
    assert only(rows, *FIGURES) == [(86, 90, 0, 4)]
    rows, _ = risks(state, offset_answers=[answer(5, 90)])
    assert only(rows, *FIGURES) == [(90, 90, 0, 0)]


@pytest.mark.parametrize(("members", "certain"), [(0, 10), (None, 0)])
def test_a_group_without_members_repeats_all_that_the_disk_did_not_know(
    members: int | None, certain: int
) -> None:
    rows, _ = risks(group_watermarks=[mark(members)], lifecycle=[DIED])
    assert only(rows, *FIGURES) == [(70, 90, certain, 20 - certain)]


def test_a_reader_that_was_gone_when_the_broker_died_does_not_live_on() -> None:
    sample = {"at": 0, "seq": 5, **held((80, 84), finished=6)}
    _, state = risks(client_windows=[sample], group_watermarks=[mark(2)])
    _, state = risks(state, rebalance_events=[lost(3)])
    rows, _ = risks(state, lifecycle=[{**DIED, "seq": 12}])
    opened = [row for row in rows if row["basis"] == "RESTART"]
    assert only(opened, *FIGURES) == [(70, 90, 16, 4)]
    assert opened[0]["certain_ranges"] == [
        {"from_offset": 70, "to_offset": 80},
        {"from_offset": 84, "to_offset": 90},
    ]


def test_two_that_pull_in_turn_repeat_what_either_pulls_from_then_on() -> None:
    all_committed = [{"topic": "t", "queue_id": 0, "committed": 90, "pulled": 90}]
    there = lost(1, seq=1, kind="REVOKED", reason=None, client_id="a", queues=all_committed)
    back = lost(2, seq=2, kind="REVOKED", reason=None, client_id="b", queues=all_committed)
    rows, _ = risks(rebalance_events=[there, back])
    assert only(rows, "cause", "at_risk_messages", "all_from_offset") == [("HAND_OVER", 0, 90)]
