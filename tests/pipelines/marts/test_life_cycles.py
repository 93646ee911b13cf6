"""Life cycles: clean stops, topics deleted and made again, groups deleted. Nothing stays open, and
nothing is compared with an earlier life.
"""

from __future__ import annotations

import pytest

from pipelines.marts.duplicate_risk_windows import MART as RISKS
from pipelines.marts.ownership import MART as OWNERSHIP
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, computed, facts, only


def assigned(*queues: tuple[str, int], group: str = "g", seq: int = 1) -> Row:
    """Client a reads these queues."""
    owned = [
        {"topic": topic, "queue_id": number, "committed": 0, "pulled": 0}
        for topic, number in queues
    ]
    known = {"client_id": "a", "kind": "ASSIGNED", "inferred": True, "generation": 1}
    return {"at": seq, "seq": seq, "group": group, "queues": owned, **known}


def event(seq: int, kind: str, **values: object) -> Row:
    """A row of lifecycle."""
    return {"at": seq, "seq": seq, "kind": kind, **values}


def test_a_clean_stop_ends_ownership_at_the_stop_and_not_at_the_next_boot() -> None:
    stop = event(5, "SHUTDOWN", clean=True)
    boot = event(90, "BOOT", clean=True, broker_epoch=NOON + 90 * SECOND)
    given = {
        "rebalance_events": facts("rebalance_events", assigned(("t", 0))),
        "lifecycle": facts("lifecycle", stop, boot),
    }
    rows, state = computed(OWNERSHIP, given)
    assert only(rows, "seq", "state", "ended_by") == [(1, "OPEN", None), (5, "CLOSED", "SHUTDOWN")]
    assert state["held"].num_rows == 0


def test_a_killed_broker_has_ended_ownership_at_its_boot() -> None:
    given = {
        "rebalance_events": facts("rebalance_events", assigned(("t", 0))),
        "lifecycle": facts("lifecycle", event(90, "BOOT", clean=False)),
    }
    rows, _ = computed(OWNERSHIP, given)
    assert only(rows, "seq", "ended_by") == [(1, None), (90, "BROKER_STOP")]


@pytest.mark.parametrize(
    ("role", "ended_by"),
    [("SLAVE", "STEPPED_DOWN"), ("NONE", "STEPPED_DOWN"), ("MASTER", None), (None, None)],
)
def test_who_leads_no_more_has_no_readers(role: str | None, ended_by: str | None) -> None:
    change = event(9, "ROLE_CHANGE", role=role, term=2)
    given = {
        "rebalance_events": facts("rebalance_events", assigned(("t", 0))),
        "lifecycle": facts("lifecycle", change),
    }
    rows, _ = computed(OWNERSHIP, given)
    expected = [] if ended_by is None else [(9, ended_by)]
    assert only(rows, "seq", "ended_by") == [(1, None), *expected]


@pytest.mark.parametrize(
    ("gone", "ended"),
    [
        (event(9, "TOPIC_GONE", topic="t"), {("g", "t", 0), ("g", "t", 1), ("h", "t", 0)}),
        (event(9, "QUEUES_REMOVED", topic="t", queue_id_from=1), {("g", "t", 1)}),
        (event(9, "GROUP_GONE", group="g"), {("g", "t", 0), ("g", "t", 1), ("g", "u", 0)}),
        (event(9, "TOPIC_LEFT", group="g", topic="t"), {("g", "t", 0), ("g", "t", 1)}),
        (event(9, "OFFSETS_DELETED", group="h", topic="t"), {("h", "t", 0)}),
        (event(9, "GROUP_DELETED", group="g"), set()),
        (event(9, "TOPIC_GONE", topic="t", emitter="c/a/0"), set()),
    ],
    ids=[
        *("topic", "queues", "group", "a topic that was left", "offsets on a topic"),
        *("settings of a group", "topic of another broker"),
    ],
)
def test_what_is_deleted_or_left_is_owned_by_nobody(
    gone: Row, ended: set[tuple[str, str, int]]
) -> None:
    events = facts(
        "rebalance_events",
        assigned(("t", 0), ("t", 1), ("u", 0)),
        assigned(("t", 0), group="h", seq=2),
    )
    _, state = computed(OWNERSHIP, {"rebalance_events": events})
    rows, state = computed(OWNERSHIP, {"lifecycle": facts("lifecycle", gone)}, state)
    assert {(row["group"], row["topic"], row["queue_id"]) for row in rows} == ended
    assert {row["ended_by"] for row in rows} <= {gone["kind"]}
    assert state["held"].num_rows == 4 - len(ended)


def lost(*queues: tuple[str, int], seq: int = 2) -> Row:
    """Client a is lost with [80, 90) of each queue pulled and not committed."""
    owned = [
        {"topic": topic, "queue_id": number, "committed": 80, "pulled": 90}
        for topic, number in queues
    ]
    known = {"client_id": "a", "kind": "EXPIRED", "inferred": False, "generation": 1}
    return {"at": seq, "seq": seq, "queues": owned, **known}


def marked(seq: int, topic: str, **values: object) -> Row:
    """A queue's marks: 90 pulled, 80 committed, 70 on disk."""
    known = {"pulled": 90, "committed": 80, "persisted": 70, "min_offset": 0, "max_offset": 100}
    return {"at": seq, "seq": seq, "topic": topic, **known, **values}


DEATH = event(50, "BOOT", clean=False, broker_epoch=NOON + 50 * SECOND)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (event(9, "TOPIC_GONE", topic="t"), "The topic was deleted"),
        (event(9, "QUEUES_REMOVED", topic="t", queue_id_from=0), "Nobody reads the queue any more"),
        (event(9, "SNAPSHOT", seq_from=4), "The queue is not there any more"),
    ],
    ids=["topic", "queues", "snapshot"],
)
def test_a_risk_ends_with_its_queue_and_an_earlier_life_is_compared_with_nothing(
    gone: Row, words: str
) -> None:
    before = {
        "group_watermarks": facts("group_watermarks", marked(1, "t"), marked(4, "u")),
        "rebalance_events": facts("rebalance_events", lost(("t", 0), ("u", 0))),
    }
    _, state = computed(RISKS, before)
    rows, state = computed(RISKS, {"lifecycle": facts("lifecycle", gone)}, state)
    assert only(rows, "topic", "state", "outcome") == [("t", "CLOSED", "PASSED")]
    assert rows[0]["evidence"].endswith(f" {words}.")
    assert state["windows"]["topic"].to_pylist() == ["u"]
    rows, _ = computed(RISKS, {"lifecycle": facts("lifecycle", DEATH)}, state)
    opened = [row for row in rows if row["revision"] == 1]
    assert only(opened, "topic", "cause") == [("u", "BROKER_CRASH")]


def test_a_group_made_again_is_another_life() -> None:
    reported = facts("group_watermarks", marked(1, "t"), marked(2, "t", group="h"))
    _, state = computed(RISKS, {"group_watermarks": reported})
    gone = facts("lifecycle", event(9, "GROUP_GONE", group="g"))
    _, state = computed(RISKS, {"lifecycle": gone}, state)
    anew = marked(10, "t", pulled=3, committed=3, persisted=None)
    given = {
        "group_watermarks": facts("group_watermarks", anew),
        "lifecycle": facts("lifecycle", DEATH),
    }
    rows, _ = computed(RISKS, given, state)
    assert sorted(only(rows, "group", "from_offset", "to_offset")) == [("g", 0, 3), ("h", 70, 90)]
