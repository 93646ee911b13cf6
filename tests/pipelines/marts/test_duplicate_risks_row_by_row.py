"""Risks of double consumption on literal rows: what opens them, what is seen, what ends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.marts.duplicate_risk_windows import MART
from pipelines.marts.risks.events import Event, Progress
from pipelines.marts.risks.windows import Fold
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, State, computed, facts, only
from tests.pipelines.marts.risk_events import (
    PLACE,
    again,
    answer,
    begun_anew,
    certainty,
    death,
    departure,
    progress,
)

NEXT_LIFE = NOON + 60 * SECOND
QUEUE = {"topic": "t", "queue_id": 0, "committed": 80, "pulled": 90}


def risks(state: State | None = None, **tables: list[Row]) -> tuple[list[Row], State]:
    """What the rows of these tables put at risk."""
    given = {name: facts(name, *rows) for name, rows in tables.items()}
    return computed(MART, given, state)


def openings(rows: list[Row]) -> list[tuple[Any, ...]]:
    """(seq, cause, client, from, to) of what was put at risk."""
    opened = [row for row in rows if row["revision"] == 1]
    return only(opened, "seq", "cause", "client_id", "from_offset", "to_offset")


def gone(at: float, client: str, kind: str = "REVOKED", **values: Any) -> Row:
    """Somebody else pulled the queue that `client` had pulled last, or it went."""
    known = {"client_id": client, "kind": kind, "inferred": True, "generation": 4}
    return {"at": at, **known, "queues": [QUEUE], **values}


def watermark(at: float, **values: Any) -> Row:
    """A queue of which 80 of 100 messages are committed, unless given otherwise."""
    return {
        "at": at,
        "pulled": 90,
        "committed": 80,
        "persisted": 70,
        "committed_state": "EXACT",
        "min_offset": 0,
        "max_offset": 100,
        "reports": 1,
        "message_model": "CLUSTERING",
        **values,
    }


def test_a_queue_pulled_in_turn_by_two_members_has_two_owners() -> None:
    rows, _ = risks(
        rebalance_events=[
            gone(1, "a"),  # b took the queue over, as a rebalance lets it.
            gone(3, "b"),  # a has not heard of it yet.
            gone(22, "a"),  # a is still there.
            gone(23, "b"),
            gone(79, "a"),  # Much later: a rebalance again.
            gone(80, "b", generation=5),  # The group changed in between.
        ]
    )
    causes = openings(rows)
    assert [(seq, cause) for seq, cause, *_ in causes] == [
        (1, "HAND_OVER"),
        (2, "HAND_OVER"),
        (3, "DOUBLE_OWNER"),
        (4, "DOUBLE_OWNER"),
        (5, "HAND_OVER"),
        (6, "HAND_OVER"),
    ]
    assert causes[3][2:] == ("b", 80, 90)


def test_two_owners_are_seen_over_the_edges_of_cuts_as_well() -> None:
    _, state = risks(rebalance_events=[gone(1, "a")])
    _, state = risks(state, rebalance_events=[gone(11, "b", seq=2)])
    rows, _ = risks(state, rebalance_events=[gone(22, "a", seq=3)])
    assert [cause[:2] for cause in openings(rows)] == [(3, "DOUBLE_OWNER")]


def test_a_client_that_had_committed_all_it_pulled_leaves_nothing_at_risk() -> None:
    rows, _ = risks(
        rebalance_events=[
            gone(1, "a", queues=[{**QUEUE, "committed": 90}]),
            gone(2, "a", queues=[{**QUEUE, "committed": None}]),
            gone(3, "a", queues=None),
        ]
    )
    assert rows == []


def boot(*, truncated: bool = True) -> list[Row]:
    """The broker's next life: recovery at seq 10, boot at seq 14."""
    cut = {"truncated_from": 5000, "truncated_to": 9000} if truncated else {}
    life = {"at": 61, "broker_epoch": NEXT_LIFE}
    return [
        {"seq": 10, "kind": "RECOVERY", **cut, **life},
        {"seq": 14, "kind": "BOOT", "clean": False, **life},
    ]


def marks(*, end: int) -> list[Row]:
    """The group had pulled 90 and committed 80; in the next life the queue ends at `end`."""
    after = watermark(61, max_offset=end, pulled=min(90, end), committed=70, persisted=70)
    return [watermark(10, seq=5), {**after, "seq": 12, "broker_epoch": NEXT_LIFE}]


REPLAYED = [
    (10, "REPLAY_AFTER_TRUNCATION", None, 85, 90),
    (14, "BROKER_CRASH", None, 70, 90),
]


def test_a_log_that_lost_what_was_read_puts_it_at_risk_of_being_sent_again() -> None:
    rows, _ = risks(group_watermarks=marks(end=85), lifecycle=boot())
    assert openings(rows) == REPLAYED


def test_a_lost_tail_is_seen_over_the_edge_of_a_cut_as_well() -> None:
    before, after = marks(end=85)
    recovery, booted = boot()
    none, state = risks(group_watermarks=[before], lifecycle=[recovery])
    assert none == []
    none, state = risks(state, group_watermarks=[after])
    assert none == []
    rows, state = risks(state, lifecycle=[booted])
    assert openings(rows) == REPLAYED
    assert state["earlier"].num_rows == state["cuts"].num_rows == 0


@pytest.mark.parametrize(("end", "truncated"), [(90, True), (100, True), (85, False)])
def test_a_log_that_kept_what_was_read_puts_nothing_at_that_risk(end: int, truncated: bool) -> None:
    rows, _ = risks(group_watermarks=marks(end=end), lifecycle=boot(truncated=truncated))
    assert [cause for _, cause, *_ in openings(rows)] == ["BROKER_CRASH"]


def test_what_only_memory_knew_is_at_risk_after_a_death_and_nothing_after_a_clean_stop() -> None:
    known = [
        watermark(1, seq=1),
        watermark(1, seq=2, queue_id=1, persisted=None, min_offset=40),
        watermark(1, seq=3, queue_id=2, persisted=90, committed=90),
        watermark(1, seq=4, queue_id=3, message_model="BROADCASTING"),
        watermark(1, seq=5, queue_id=4, emitter="c/a/0"),
    ]
    life = {"at": 61, "seq": 6, "kind": "BOOT", "broker_epoch": NEXT_LIFE}
    died, _ = risks(group_watermarks=known, lifecycle=[{**life, "clean": False}])
    assert only(died, "queue_id", "from_offset", "to_offset") == [(0, 70, 90), (1, 40, 90)]
    stopped, _ = risks(group_watermarks=known, lifecycle=[{**life, "clean": True}])
    assert stopped == []


def test_a_lost_offsets_file_puts_all_that_is_kept_at_risk() -> None:
    damage = {
        "at": 61,
        "seq": 2,
        "kind": "DAMAGED_FILE",
        "detail": "consumerOffset.json",
        "broker_epoch": NEXT_LIFE,
    }
    rows, _ = risks(group_watermarks=[watermark(1, min_offset=10)], lifecycle=[damage])
    assert openings(rows) == [(2, "OFFSET_STORE_LOST", None, 10, 90)]


def test_marks_that_go_past_the_range_end_windows_of_earlier_cuts() -> None:
    """Two queues were lost; of one the commit reaches the end, of the other it does not."""
    both = [QUEUE, {**QUEUE, "queue_id": 1}]
    _, state = risks(rebalance_events=[gone(1, "a", "EXPIRED", queues=both)])
    rows, state = risks(
        state,
        group_watermarks=[
            watermark(2, seq=2, committed=85),
            watermark(2, seq=3, committed=89, queue_id=1),
            watermark(3, seq=4, committed=90),
            watermark(4, seq=5, committed=95),
        ],
    )
    assert only(rows, "seq", "queue_id", "revision", "state", "outcome") == [
        (4, 0, 2, "CLOSED", "PASSED")
    ]
    assert state["windows"]["queue_id"].to_pylist() == [1]
    again = {"at": 5, "seq": 6, "queue_id": 1, "from_offset": 80, "to_offset": 84}
    fields = {"client_id": "b", "previous_client_id": "a", "broker_epoch_before": 1}
    rows, _ = risks(state, redeliveries=[{**again, **fields}])
    assert only(rows, "revision", "outcome", "redelivered_messages", "next_client_id") == [
        (2, "CONFIRMED", 4, "b")
    ]


def test_commits_end_nothing_while_somebody_who_was_answered_where_to_begin_is_awaited() -> None:
    """Client a asks once more and is answered 80; a tool commits 90 before it pulls."""
    marks = {"client_id": "a", "last_puller": "a", "committed": 80, "pulled": 90}
    _, state = risks(offset_answers=[{"at": 1, "seq": 1, "told_offset": 80, **marks}])
    early, due = watermark(20, seq=2, committed=90), watermark(21, seq=3, committed=90)
    assert risks(state, group_watermarks=[early])[0] == []
    rows, _ = risks(state, group_watermarks=[early, due])
    assert only(rows, "seq", "revision", "state") == [(3, 2, "CLOSED")]


def test_messages_delivered_once_more_from_another_place_are_surely_duplicates() -> None:
    place = {"origin_topic": "t", "origin_queue_id": 2, "reconsume_times": 1}
    rows, _ = risks(
        retry_dlq_flow=[
            {**place, "step": "DELIVERED", "message_id": "m", "origin_offset": 7},
            {**place, "step": "SENT_AGAIN", "message_id": None, "origin_offset": 8},
            {**place, "step": "DELIVERED", "message_id": "n"},
            {**place, "step": "SENT_BACK", "message_id": "n", "origin_offset": 9},
            {**place, "step": "INVISIBLE_TIME_EXPIRED", "message_id": "p", "origin_offset": 9},
            {**place, "step": "INVISIBLE_TIME_EXPIRED", "message_id": "q"},
        ]
    )
    assert only(rows, "seq", "basis", "from_offset", "to_offset", "outcome") == [
        (1, "SEND_BACK", 7, 8, "CONFIRMED"),
        (2, "SEND_RETRY", 8, 9, "CONFIRMED"),
        (5, "INVISIBLE_TIME_EXPIRED", 9, 10, "CONFIRMED"),
    ]
    failed, sent_again, expired = (row["evidence"] for row in rows)
    assert expired == (
        "Group g got message p of queue 2 of t on b again at 12:00:00 UTC: it was not acknowledged "
        "within its invisible time. See why its listener is slower than its invisible time."
    )
    assert failed == (
        "Group g got message m of queue 2 of t on b again at 12:00:00 UTC: it had failed. See why "
        "its listener fails."
    )
    assert sent_again == (
        "Group g got a message of queue 2 of t on b again at 12:00:00 UTC: its producer sent it "
        "again, and the second copy, at offset 8, was delivered too. See why the producer had no "
        "answer."
    )


def test_what_is_handed_out_again_while_its_reader_may_live_on_is_never_certain() -> None:
    """Who got it may give the queue back before a listener has seen it."""
    assert certainty(death(1, 70, 80, 90), answer(2, 70, 90), again(3, 70, 75)) == [(0, ())] * 3


def test_who_died_with_the_broker_and_asks_anew_gets_for_certain_what_it_had_finished() -> None:
    anew = begun_anew(answer(2, 70, 90), "c1")
    assert certainty(death(1, 70, 80, 90), anew)[-1] == (10, ((70, 80),))


def test_nothing_is_certain_when_another_reads_on_beside_the_one_that_died_with_the_broker() -> (
    None
):
    two_read = answer(1, 60, 85), again(2, 60, 90)
    died = replace(death(3, 70, 80, 90), client_id="c2")
    assert certainty(*two_read, died, begun_anew(answer(4, 70, 90), "c2"))[-1] == (0, ())


def test_of_two_readers_one_dies_and_what_it_had_finished_is_not_certain() -> None:
    two_read = answer(1, 100, 140), again(2, 100, 150)
    dead = replace(departure(3, 110, 150), certain=10, finished=((110, 120),))
    assert certainty(dead)[-1] == (10, ((110, 120),))
    assert certainty(*two_read, dead)[-1] == (0, ())


def test_what_a_reader_has_finished_after_a_departure_is_not_certain_when_the_broker_dies() -> None:
    lost = replace(departure(1, 17, 18), certain=1, finished=((17, 18),))
    waits = answer(2, 17, 18)  # It has not pulled yet.
    died = death(5, 17, 26, 27)
    assert certainty(lost, waits, replace(died, to_offset=18, from_offset=18))[-1][0] == 1
    goes_on = begun_anew(answer(3, 17, 18), "c1"), replace(again(4, 17, 18), next_client_id="c1")
    assert certainty(lost, waits, *goes_on, died)[-1] == (0, ())
    assert certainty(lost, waits, died)[-1] == (0, ()), "somebody has pulled up to 27"


def test_who_was_answered_to_begin_further_back_is_awaited_when_another_is_answered() -> None:
    asked_twice = [
        begun_anew(answer(seq, from_offset, 34), "c1") for seq, from_offset in ((3, 20), (4, 30))
    ]
    for further_back, begins_at in (([answer(2, 20, 32)], 20), ([], 30)):
        fold = Fold(PLACE)
        fold.take([death(1, 20, 30, 32), *further_back, *asked_twice])
        assert fold.revisions[-1]["from_offset"] == begins_at


def test_of_two_that_were_answered_where_to_begin_either_may_begin() -> None:
    """At risk is what the one further back brings, certain only what both do."""
    lost = replace(departure(1, 20, 34), certain=14, finished=((20, 34),))
    back, further_on = answer(2, 20, 34), replace(answer(3, 30, 34), next_client_id="c3")
    fold = Fold(PLACE)
    fold.take([lost, back, further_on])
    revision = fold.revisions[-1]
    assert (revision["from_offset"], revision["to_offset"]) == (20, 34)
    assert (revision["certain"], revision["certain_ranges"]) == (4, ((30, 34),))


def test_who_has_not_begun_five_seconds_after_its_answer_has_given_the_queue_back() -> None:
    """While the broker is away the time stands still."""
    lost, answered = departure(1, 20, 34), answer(2, 20, 34)
    later = replace(answer(9, 30, 40), next_client_id="c3")
    for happened, begins_at in (
        ((lost, answered, replace(answer(3, 30, 40), next_client_id="c3")), 20),
        ((lost, answered, progress(8, 30, 40), later), 30),
        ((lost, answered, death(9, 20, 30, 40), replace(later, seq=10, event_us=10 * SECOND)), 20),
    ):
        fold = Fold(PLACE)
        fold.take(happened)
        assert fold.revisions[-1]["from_offset"] == begins_at, happened


@pytest.mark.parametrize(("before", "certain"), [("c1", 4), ("c3", 0)])
def test_who_survives_the_broker_and_dies_soon_leaves_what_it_had_finished(
    before: str, certain: int
) -> None:
    """Unless somebody else had read the queue, whom the broker does not know yet."""
    survived = replace(death(1, 70, 80, 90), client_id=before)
    dead = replace(departure(5, 80, 95), certain=4, finished=((80, 84),))
    assert certainty(survived, dead)[-1][0] == certain


Told = list[tuple[int, int, str, str, int]]

FOLDS: dict[str, tuple[list[Event | Progress], Told]] = {
    "a prediction is confirmed in parts and ends with the commit": (
        [
            departure(1, 100, 140),
            progress(2, 100, 140),
            again(3, 100, 132),
            again(4, 132, 140),
            progress(5, 120, 170),
            progress(6, 140, 170),
        ],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (3, 2, "OPEN", "AGAIN", 32),
            (4, 3, "OPEN", "AGAIN", 40),
            (6, 4, "CLOSED", "PASSED", 40),
        ],
    ),
    "nothing comes again when pulls go on behind the range": (
        [departure(1, 100, 140), progress(2, 100, 150)],
        [(1, 1, "OPEN", "OPENED", 0), (2, 2, "CLOSED", "PASSED", 0)],
    ),
    "a redelivery nobody expected opens a window that grows": (
        [again(1, 50, 60), again(2, 60, 75), progress(3, 60, 90), progress(4, 75, 90)],
        [
            (1, 1, "OPEN", "OPENED", 10),
            (2, 2, "OPEN", "AGAIN", 25),
            (4, 3, "CLOSED", "PASSED", 25),
        ],
    ),
    "an answer waits for its reader, whatever the one before it commits": (
        [
            answer(1, 100, 140),
            progress(2, 140, 150),
            again(3, 100, 150),
            progress(4, 150, 160),
            progress(5, 160, 170),  # What was there a second ago came to one reader only.
            progress(6, 170, 180),
        ],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (3, 2, "OPEN", "AGAIN", 50),
            (5, 3, "OPEN", "ALONE", 50),
            (6, 4, "CLOSED", "PASSED", 50),
        ],
    ),
    "two readers in turn are foreseen until messages come to one of them only": (
        [
            answer(1, 100, 140),
            again(2, 100, 150),
            progress(3, 140, 155),
            again(4, 150, 160),
            progress(5, 150, 170),
            again(6, 160, 172),
            progress(7, 150, 176),
            progress(8, 160, 180),
        ],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (2, 2, "OPEN", "AGAIN", 50),
            (4, 3, "OPEN", "AGAIN", 60),
            (6, 4, "OPEN", "AGAIN", 72),
            (8, 5, "OPEN", "ALONE", 72),
        ],
    ),
    "an answer whose reader never came is over with the commits after it": (
        [
            answer(1, 100, 140),
            progress(2, 140, 150),
            progress(21, 150, 150),
        ],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (21, 2, "CLOSED", "PASSED", 0),
        ],
    ),
    "who has not begun five seconds after its answer is not held for a second reader": (
        [answer(1, 100, 140), progress(2, 140, 150), progress(7, 150, 160)],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (7, 2, "OPEN", "ALONE", 0),
        ],
    ),
    "an answer makes the risk of a departure as wide as it is": (
        [departure(1, 110, 140), answer(2, 100, 145), again(3, 100, 145), progress(4, 145, 145)],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (2, 2, "OPEN", "ANSWERED", 0),
            (3, 3, "OPEN", "AGAIN", 45),
            (4, 4, "CLOSED", "PASSED", 45),
        ],
    ),
    "a later loss takes over": (
        [departure(1, 100, 140), departure(2, 110, 150), again(3, 110, 120)],
        [
            (1, 1, "OPEN", "OPENED", 0),
            (2, 1, "OPEN", "OPENED", 0),
            (2, 2, "CLOSED", "TAKEN_OVER", 0),
            (3, 2, "OPEN", "AGAIN", 10),
        ],
    ),
}


@pytest.mark.parametrize("story", FOLDS)
def test_risk_of_a_queue_is_folded_event_by_event(story: str) -> None:
    events, expected = FOLDS[story]
    fold = Fold(PLACE)
    fold.take(events)
    names = ("seq", "revision", "state", "told_by", "redelivered")
    assert sorted(only(fold.revisions, *names)) == sorted(expected)


@pytest.mark.parametrize("story", FOLDS)
def test_folding_two_halves_gives_what_folding_the_whole_gives(story: str) -> None:
    events, _ = FOLDS[story]
    whole = Fold(PLACE)
    whole.take(events)
    for cut in range(1, len(events)):
        first = Fold(PLACE)
        first.take(events[:cut])
        second = Fold(PLACE, first.window)
        second.take(events[cut:])
        assert first.revisions + second.revisions == whole.revisions
