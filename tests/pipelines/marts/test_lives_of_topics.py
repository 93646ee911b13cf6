"""A topic that was deleted and made again: what groups passed over of its new life, and nothing
that compares offsets of two lives.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from engine.telemetry.tables import BY_NAME
from pipelines.base.settings import Evaluation
from pipelines.marts.computing import compute
from pipelines.marts.declared import in_order
from pipelines.marts.duplicate_risk_windows import MART as RISKS
from pipelines.marts.offset_violations import MART as OFFSET_VIOLATIONS
from pipelines.marts.passed_over_messages import MART as PASSED_OVER
from pipelines.marts.passed_over_messages import REMEMBERED_US
from pipelines.marts.topic_lives import MART as TOPIC_LIVES
from pipelines.staging.facts import no_facts
from tests.pipelines.marts.literal_facts import EXPOSURES, NOON, SECOND, Row, computed, facts, only

COLUMNS = ("outcome", "from_offset", "to_offset", "messages", "error_messages", "provenance")


def mark(seq: int, committed: int | None, end: int, **more: Any) -> tuple[str, Row]:
    """The group's marks on a queue that begins at 0, read by the member one."""
    known = {"pulled": committed, "min_offset": 0, "last_puller": "one", "members": 1}
    fields = {"seq": seq, "at": seq, "committed": committed, "max_offset": end}
    return "group_watermarks", {"committed_state": "EXACT", "reports": 1, **known, **fields, **more}


def gone(seq: int, **more: Any) -> tuple[str, Row]:
    """The topic is deleted."""
    return "lifecycle", {"seq": seq, "at": seq, "kind": "TOPIC_GONE", "topic": "t", **more}


def again(seq: int, *, polled: bool = False) -> tuple[str, Row]:
    """It is made again; an observer names the look before."""
    looked = {"time_from": NOON + (seq - 1) * SECOND} if polled else {}
    return gone(seq, kind="TOPIC_MADE_AGAIN", **looked)


def commit(seq: int, offset: int, end: int, **more: Any) -> tuple[str, Row]:
    """A report of an offset that was stored."""
    fields = {"path": "COMMIT_RPC", "trigger": "TIMER", "accepted": True, "client_id": "one"}
    place = {"offset": offset, "min_offset": 0, "max_offset": end, "previous_offset": None}
    return "consume_offsets", {"seq": seq, "at": seq, **fields, **place, **more}


def goes_on(seq: int, offset: int, end: int) -> tuple[str, Row]:
    """An observer saw the member one go on at its offset of the earlier life."""
    return commit(seq, offset, end, path="OBSERVED", accepted=False)


def pulls(seq: int, offset: int, end: int, group_is_at: int | None = None) -> tuple[str, Row]:
    """A broker shows that a member pulls from an offset: the first of its group, or further than
    its group is.
    """
    fields = {"path": "PULL", "accepted": False, "previous_offset": group_is_at}
    return commit(seq, offset, end, **fields)


def window(seq: int, first: int | None, committed: int | None = None) -> tuple[str, Row]:
    """What the member one holds of the queue."""
    held = {"held_count": 0 if first is None else 1, "held_bytes": 0, "first_held": first}
    fields = {"client_id": "one", "client_committed": committed, "locked": False, "dropped": False}
    return "client_windows", {"seq": seq, "at": seq, **held, **fields}


def left(seq: int) -> tuple[str, Row]:
    """The member one leaves."""
    fields = {"kind": "LEFT", "client_id": "one", "inferred": False, "generation": 2, "queues": []}
    return "rebalance_events", {"seq": seq, "at": seq, **fields}


def asked(seq: int, answer: int | None) -> tuple[str, Row]:
    """The member one asks where to go on."""
    return "offset_answers", {
        "seq": seq,
        "at": seq,
        "client_id": "one",
        "told_offset": answer,
    }


def tables(*rows: tuple[str, Row]) -> dict[str, Any]:
    """Facts by table."""
    names = dict.fromkeys(name for name, _ in rows)
    return {name: facts(name, *(row for table, row in rows if table == name)) for name in names}


TOLD = [mark(1, 10, 10), gone(5), again(7)]
PLACED = [*TOLD, commit(8, 0, 0, path="NEW_LIFE")]
SEEN = [mark(1, 10, 10), gone(5, time_from=NOON + SECOND), again(7, polled=True)]
AWAY = [mark(1, 10, 10, last_puller=None, members=0), *SEEN[1:]]

STORIES: dict[str, tuple[list[tuple[str, Row]], list[tuple[Any, ...]]]] = {
    "the broker places the group at the beginning, and it pulls from there": (
        [*PLACED, pulls(9, 0, 6), commit(10, 6, 6)],
        [("READ", 0, 0, 0, None, "EXACT")],
    ),
    "it is placed at the beginning, and nobody has pulled yet": (
        [*PLACED, asked(9, 0), mark(10, 0, 6), commit(11, 0, 6)],
        [],
    ),
    "it is placed at the beginning, and a member pulls from its offset of old": (
        [*PLACED, asked(9, 0), pulls(10, 10, 14), commit(11, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "it is placed at the beginning, and is further without a pull": (
        [*PLACED, commit(9, 6, 14), commit(10, 14, 14)],
        [("UNKNOWN", 0, 6, None, None, "EXACT")],
    ),
    "it is placed at the beginning, and an operator sets it further": (
        [*PLACED, commit(9, 6, 14, path="RESET"), pulls(10, 6, 14), commit(11, 14, 14)],
        [("SET", 0, 6, None, None, "EXACT")],
    ),
    "one member begins at the beginning, and another skips what is behind it": (
        [*PLACED, pulls(9, 0, 6), commit(10, 6, 6), pulls(11, 10, 14, group_is_at=6)],
        [("READ", 0, 0, 0, None, "EXACT"), ("PASSED_OVER", 6, 10, 4, None, "EXACT")],
    ),
    "what it skipped was deleted in part": (
        [
            *PLACED,
            pulls(9, 0, 6),
            ("consume_offsets", {**pulls(10, 10, 14, group_is_at=6)[1], "min_offset": 8}),
        ],
        [("READ", 0, 0, 0, None, "EXACT"), ("PASSED_OVER", 8, 10, 2, None, "EXACT")],
    ),
    "its first messages were deleted before it came": (
        [*PLACED, ("consume_offsets", {**pulls(9, 4, 6)[1], "min_offset": 4})],
        [("READ", 0, 0, 0, None, "EXACT")],
    ),
    "an offset that the broker refuses is none": (
        [*TOLD, commit(8, 10, 6, accepted=False), asked(9, None)],
        [("READ", 0, 0, 0, None, "EXACT")],
    ),
    "a broker takes the offset of old, and sends the group to the end": (
        [*TOLD, commit(8, 10, 6), commit(9, 6, 6)],
        [("PASSED_OVER", 0, 6, 6, None, "EXACT")],
    ),
    "a broker answers the offset of old to whoever asks, and it is valid again": (
        [*TOLD, asked(8, 10), mark(9, 10, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "six are sent: the committed offset lies beyond the end, and then at it": (
        [*SEEN, mark(8, 10, 6), mark(9, 6, 6)],
        [("PASSED_OVER", 0, 6, 6, 0, "OBSERVED")],
    ),
    "more came and were read before the look that saw the lower offset": (
        [*SEEN, mark(8, 10, 6), mark(9, 8, 9)],
        [("PASSED_OVER", 0, 6, 6, 2, "OBSERVED")],
    ),
    "the queue grew up to the offset of old": (
        [*SEEN, mark(8, 10, 6), mark(9, 12, 14)],
        [("PASSED_OVER", 0, 10, 10, 0, "OBSERVED")],
    ),
    "fourteen are sent: a member is seen to go on where it was": (
        [*SEEN, goes_on(8, 10, 14), mark(9, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, 0, "OBSERVED")],
    ),
    "a member is seen to go on beyond the end, and the group is at the end then": (
        [*SEEN, goes_on(8, 10, 6), mark(9, 6, 6)],
        [("PASSED_OVER", 0, 6, 6, 0, "OBSERVED")],
    ),
    "what it holds says so": (
        [*SEEN, window(8, 10), mark(9, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, 0, "OBSERVED")],
    ),
    "what it had pulled counts, not what it had committed": (
        [mark(1, 4, 10, pulled=10), *SEEN[1:], window(8, 10)],
        [("PASSED_OVER", 0, 10, 10, 0, "OBSERVED")],
    ),
    "it is as far as it was, and nobody saw whether it had gone on or begun anew": (
        [*SEEN, mark(8, 13, 14)],
        [("UNKNOWN", 0, 10, None, None, "OBSERVED")],
    ),
    "the queue was empty, and the group was sent to its beginning": (
        [*SEEN, mark(8, 10, 0), mark(9, 0, 6)],
        [("READ", 0, 0, 0, None, "OBSERVED")],
    ),
    "the queue was empty, and nobody saw where the group was sent": (
        [*SEEN, mark(8, 10, 0), mark(9, 6, 6)],
        [("UNKNOWN", 0, 6, None, None, "OBSERVED")],
    ),
    "an observed 0 says nothing while only a member has the offset of old": (
        [*SEEN, goes_on(8, 10, 6), mark(9, 0, 6), mark(10, 6, 6)],
        [("PASSED_OVER", 0, 6, 6, 0, "OBSERVED")],
    ),
    "nobody saw where it went on": (
        [*SEEN, mark(8, 6, 6)],
        [("UNKNOWN", 0, 6, None, None, "OBSERVED")],
    ),
    "the reader lived through it and left unseen": (
        [*SEEN, left(20), mark(21, 14, 14)],
        [("UNKNOWN", 0, 10, None, None, "OBSERVED")],
    ),
    "a member that was away reads all of it": (
        [*AWAY, mark(9, 14, 14)],
        [("READ", 0, 0, 0, None, "OBSERVED")],
    ),
    "one that is missed when the new life is found was away": (
        [*SEEN, ("rebalance_events", {**left(8)[1], "at": 7.2}), mark(9, 6, 6)],
        [("READ", 0, 0, 0, None, "OBSERVED")],
    ),
    "one that left between the two lives was away": (
        [*SEEN[:2], left(6), SEEN[2], mark(9, 14, 14)],
        [("READ", 0, 0, 0, None, "OBSERVED")],
    ),
    "a broker that keeps offsets of topics that are gone has it still, with nobody there": (
        [*AWAY, mark(8, 10, 14, last_puller=None, members=0), mark(9, 12, 14)],
        [("PASSED_OVER", 0, 10, 10, 0, "OBSERVED")],
    ),
    "members were there, and nobody knows which of them read it": (
        [mark(1, 10, 10, last_puller=None), *SEEN[1:], mark(8, 14, 14, last_puller=None)],
        [("UNKNOWN", 0, 10, None, None, "OBSERVED")],
    ),
    "nobody knows whether members were there": (
        [
            *(mark(1, 10, 10, last_puller=None, members=None), *SEEN[1:]),
            mark(8, 14, 14, last_puller=None, members=None),
        ],
        [("UNKNOWN", 0, 10, None, None, "OBSERVED")],
    ),
    "it read the earlier life between two marks, and no mark says so": (
        [commit(3, 10, 10), *PLACED[1:], pulls(9, 10, 14), commit(10, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "it read the earlier life behind its last mark": (
        [mark(1, 0, 10), commit(3, 10, 10), *TOLD[1:], mark(8, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "an offset that was refused, and one that the broker has set, are no reading": (
        [commit(3, 10, 6, accepted=False), commit(4, 2, 6, path="NEW_LIFE"), *PLACED[1:]],
        [],
    ),
    "it is made again twice at once": (
        [*PLACED, gone(9), again(10), commit(11, 0, 0, path="NEW_LIFE"), pulls(12, 10, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "it is made again twice, and its group was placed in between": (
        [*PLACED, mark(9, 0, 6), gone(10), again(11), mark(12, 14, 14)],
        [("PASSED_OVER", 0, 10, 10, None, "EXACT")],
    ),
    "it is made again twice between looks, and the member was away": (
        [*AWAY, gone(8, time_from=NOON + SECOND), again(9, polled=True), mark(10, 14, 14)],
        [("READ", 0, 0, 0, None, "OBSERVED")],
    ),
    "it is made again twice, and the group had gone on in between": (
        [*PLACED, pulls(9, 0, 6), mark(10, 6, 6), gone(11), again(12), mark(13, 14, 14)],
        [("READ", 0, 0, 0, None, "EXACT"), ("PASSED_OVER", 0, 6, 6, None, "EXACT")],
    ),
    "an observed 0 is no offset yet": (
        [*SEEN, mark(8, 0, 6), mark(9, 10, 6)],
        [],
    ),
    "nobody has read it in the earlier life": (
        [mark(1, None, 10), gone(5), again(7), commit(8, 6, 6)],
        [],
    ),
    "it is gone again before anybody knows": (
        [*SEEN, mark(8, 10, 6), gone(9), mark(10, 6, 6)],
        [],
    ),
    "a topic that stays away, and another broker's": (
        [mark(1, 10, 10), gone(5), ("lifecycle", {**again(7)[1], "emitter": "c/a/0"})],
        [],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_where_a_group_began_in_a_new_life_is_reported_however_cycles_are_cut(name: str) -> None:
    story, expected = STORIES[name]
    rows, state = computed(PASSED_OVER, tables(*story))
    assert only(rows, *COLUMNS) == expected
    carried, parts = None, []
    for table_and_row in story:
        made, carried = computed(PASSED_OVER, tables(table_and_row), carried)
        parts += made
    assert parts == rows
    for table in ("positions", "commits", "earlier", "cases"):
        assert carried is not None
        assert carried[table].to_pylist() == state[table].to_pylist(), table


def test_what_was_passed_over_is_said_in_sentences() -> None:
    made = "the topic was made again at 12:00:07 UTC."
    for name, words in {
        "six are sent: the committed offset lies beyond the end, and then at it": (
            f"Group g passed over 6 messages of queue 0 of t on b, [0, 6): {made} Its offset, 10, "
            "lay beyond the end and was set to the end. Set its offset to 0 if they must be read."
        ),
        "nobody saw where it went on": (
            f"Group g may have passed over up to 6 messages of queue 0 of t on b, [0, 6): {made} "
            "Its reader lived through it, and nobody saw where it went on. See whether they were "
            "processed, and set its offset to 0 if not."
        ),
        "it is placed at the beginning, and a member pulls from its offset of old": (
            f"Group g passed over 10 messages of queue 0 of t on b, [0, 10): {made} Its first pull "
            "began at offset 10. Set its offset to 0 if they must be read."
        ),
        "the broker places the group at the beginning, and it pulls from there": (
            f"Group g reads all of queue 0 of t on b: {made} It began at 0."
        ),
    }.items():
        ((row,), _) = computed(PASSED_OVER, tables(*STORIES[name][0]))
        assert row["evidence"] == words


def test_what_is_long_ago_is_forgotten() -> None:
    later = REMEMBERED_US // SECOND + 100
    story = [*SEEN, mark(8, 10, 6), mark(9, 6, 6, at=later)]
    rows, state = computed(PASSED_OVER, tables(*story))
    assert rows == []
    assert state["cases"].num_rows == 0
    snapshot = ("lifecycle", {"seq": 9, "at": later, "kind": "SNAPSHOT", "seq_from": 9})
    _, state = computed(PASSED_OVER, tables(mark(1, 10, 10), snapshot))
    assert state["positions"].num_rows == 0


def test_a_topic_that_was_made_again_is_a_row_with_its_end_and_how_it_is_known() -> None:
    rows, state = computed(TOPIC_LIVES, tables(gone(5), again(7)))
    assert only(rows, "topic", "provenance", "not_before") == [("t", "EXACT", None)]
    assert [row["gone_at"].second for row in rows] == [5]
    assert state["gone"].num_rows == 0
    _, state = computed(TOPIC_LIVES, tables(gone(5)))
    rows, _ = computed(TOPIC_LIVES, tables(again(7, polled=True)), state)
    assert only(rows, "topic", "provenance") == [("t", "OBSERVED")]
    assert [row["not_before"].second for row in rows] == [6]
    rows, _ = computed(TOPIC_LIVES, tables(again(7)), emitters=frozenset({"c/a/0"}))
    assert rows == []


@pytest.mark.parametrize("cuts", [(), (2,), (2, 4), (1, 2, 3, 4, 5, 6)], ids=str)
def test_reports_of_two_lives_are_no_fall_and_nothing_of_the_first_explains_the_second(
    cuts: tuple[int, ...],
) -> None:
    moved = {"kind": "REVOKED", "client_id": "one", "inferred": True, "generation": 1}
    moved |= {"queues": [{"topic": "t", "queue_id": 0, "committed": 10, "pulled": 10}]}
    story = [
        ("rebalance_events", {"seq": 1, "at": 1, **moved}),
        commit(2, 10, 10),
        *(gone(5), again(7)),
        commit(8, 10, 6, previous_offset=None),
        commit(9, 6, 6),
        commit(10, 4, 8, previous_offset=6, client_id="two"),
    ]
    rows, state = [], None
    for begin, end in pairwise((0, *cuts, len(story))):
        made, state = computed(OFFSET_VIOLATIONS, tables(*story[begin:end]), state)
        rows += made
    assert only(rows, "seq", "law", "cause", "explained", "other_client_id") == [
        (8, "AT_MOST_MAX", "EARLIER_LIFE", True, None),
        (10, "MONOTONIC", "TWO_WRITERS", False, "one"),
    ]


def test_an_offset_of_old_that_is_set_to_the_end_is_no_fall_of_the_new_life() -> None:
    story = [*TOLD, commit(8, 10, 6), commit(9, 6, 6, previous_offset=10)]
    rows, _ = computed(OFFSET_VIOLATIONS, tables(*story))
    assert only(rows, "seq", "law", "cause") == [
        (8, "AT_MOST_MAX", "EARLIER_LIFE"),
        (9, "MONOTONIC", "EARLIER_LIFE"),
    ]
    steps = in_order([EXPOSURES, OFFSET_VIOLATIONS, RISKS])
    reported = tables(*story)
    given = {
        name: reported.get(name, no_facts(name))
        for step in steps
        for name in step.reads
        if name in BY_NAME
    }
    risks = compute(steps, given, {}, Evaluation()).rows.get(RISKS.name)
    assert risks is None or "OFFSET_FALL" not in risks["basis"].to_pylist()
