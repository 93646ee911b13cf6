"""The marts that follow events on literal rows: what goes in, what must come out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipelines.base.settings import FAILING_MESSAGES_MAX
from pipelines.marts.dead_letters import MART as DEAD_LETTERS
from pipelines.marts.emitter_health import MART as EMITTER_HEALTH
from pipelines.marts.lost_unread_messages import MART as LOST_UNREAD_MESSAGES
from pipelines.marts.mart import ROW_NUMBERS
from pipelines.marts.offset_violations import MART as OFFSET_VIOLATIONS
from pipelines.marts.ownership import MART as OWNERSHIP
from pipelines.marts.rebalances import MART as REBALANCES
from pipelines.marts.replaced_messages import MART as REPLACED_MESSAGES
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, computed, facts, numbers, only

HOUR = 3600


def second(moment: Any) -> float:
    """Seconds after noon."""
    return moment.timestamp() - NOON / SECOND


def test_a_change_of_membership_counts_members_and_one_of_subscription_does_not() -> None:
    changed = {"before": ["a"], "after": ["a", "b"], "generation": 2, "inferred": False}
    events = facts(
        "rebalance_events",
        {**changed, "kind": "JOINED", "client_id": "b"},
        {**changed, "kind": "SUBSCRIPTION_CHANGED", "client_id": "b"},
        {**changed, "kind": "ASSIGNED", "client_id": "b"},
        {**changed, "kind": "QUEUES_CHANGED", "before": None, "after": None},
    )
    rows, _ = computed(REBALANCES, {"rebalance_events": events})
    assert only(rows, "seq", "kind", "members_before", "members_after") == [
        (1, "JOINED", 1, 2),
        (2, "SUBSCRIPTION_CHANGED", None, None),
        (4, "QUEUES_CHANGED", None, None),
    ]


def test_a_conflict_of_subscriptions_of_which_nothing_is_left_is_its_end() -> None:
    conflict = {"kind": "SUBSCRIPTION_CONFLICT", "client_id": "b", "inferred": False}
    events = facts(
        "rebalance_events",
        {**conflict, "generation": 1, "before": [], "after": ["a reads T", "b reads U"]},
        {**conflict, "generation": 2, "before": ["a reads T", "b reads U"], "after": []},
        {**conflict, "generation": 3, "before": None, "after": None},
    )
    rows, _ = computed(REBALANCES, {"rebalance_events": events})
    assert only(rows, "seq", "kind") == [
        (1, "SUBSCRIPTION_CONFLICT"),
        (2, "SUBSCRIPTION_AGREED"),
        (3, "SUBSCRIPTION_CONFLICT"),
    ]


UNKNOWN = "sent it again is unknown"
ASK = " See whether it was processed."


def test_a_message_that_was_lost_is_named_beside_the_one_that_has_its_offset() -> None:
    place = {"group": "g", "topic": "t", "queue_id": 2, "offset": 41, "queue_end": 40}
    both = {"message_id_before": "OLD", "client_id": "c@1"}
    reused = facts(
        "reused_offsets",
        {**place, **both, "message_id": "NEW"},
        {**place, **both, "message_id": "OLD"},
        {**place, "message_id_before": None, "message_id": "NEW", "client_id": None},
    )
    rows, _ = computed(REPLACED_MESSAGES, {"reused_offsets": reused})
    assert only(rows, "outcome", "reused_offsets") == [
        ("LOST", 2),
        ("SENT_AGAIN", 2),
        ("UNKNOWN", 2),
    ]
    assert [row["evidence"] for row in rows] == [
        f"Group g had pulled {lost} at offset 41 of queue 2 of t on b when the broker lost it. "
        f"It had been pulled by {whose}; {now}. All offsets from 40 on are given to other "
        f"messages.{advice}"
        for lost, whose, now, advice in (
            ("message OLD", "c@1", "message NEW has its offset now", ASK),
            ("message OLD", "c@1", "its producer sent it again, to the same offset", ""),
            ("a message", "an unknown client", f"whether its producer {UNKNOWN}", ASK),
        )
    ]


def failed(at: float, step: str, message: str | None = "m", **values: Any) -> Row:
    """A step of a failed message."""
    return {"at": at, "step": step, "message_id": message, "reconsume_times": 1, **values}


def test_a_dead_letter_names_the_first_failure_of_its_message_seen_in_an_earlier_cut() -> None:
    before = facts(
        "retry_dlq_flow", failed(1, "SENT_BACK"), failed(2, "SENT_BACK"), failed(3, "DELIVERED")
    )
    rows, state = computed(DEAD_LETTERS, {"retry_dlq_flow": before})
    assert rows == []
    letters = facts(
        "retry_dlq_flow",
        failed(9, "DEAD_LETTERED", seq=4),
        failed(10, "DEAD_LETTERED", "never seen", seq=5),
        failed(11, "DEAD_LETTERED", None, seq=6),
        failed(12, "DEAD_LETTERED", group="another", seq=7),
    )
    rows, _ = computed(DEAD_LETTERS, {"retry_dlq_flow": letters}, state)
    assert [row["first_failed_at"] and second(row["first_failed_at"]) for row in rows] == [
        1,
        None,
        None,
        None,
    ]


def test_a_failure_six_hours_ago_is_forgotten() -> None:
    steps = facts(
        "retry_dlq_flow",
        failed(0, "SENT_BACK", "old"),
        failed(1, "SENT_BACK", "just in time"),
        failed(6 * HOUR + 1, "DEAD_LETTERED", "old"),
        failed(6 * HOUR + 1, "DEAD_LETTERED", "just in time"),
        failed(6 * HOUR + 1, "SENT_BACK", "new"),
    )
    rows, state = computed(DEAD_LETTERS, {"retry_dlq_flow": steps})
    assert [row["first_failed_at"] and second(row["first_failed_at"]) for row in rows] == [None, 1]
    assert state["failures"]["message_id"].to_pylist() == ["just in time", "new"]


def test_of_too_many_failing_messages_the_oldest_is_forgotten_and_no_other_groups() -> None:
    many = FAILING_MESSAGES_MAX + 1
    steps = facts(
        "retry_dlq_flow",
        failed(0, "SENT_BACK", "0", group="another"),
        *(failed(number / many, "SENT_BACK", str(number)) for number in range(many)),
        failed(2, "DEAD_LETTERED", "0"),
        failed(2, "DEAD_LETTERED", "1"),
        failed(2, "DEAD_LETTERED", "0", group="another"),
    )
    rows, state = computed(DEAD_LETTERS, {"retry_dlq_flow": steps})
    assert [row["first_failed_at"] is not None for row in rows] == [False, True, True]
    assert state["failures"].num_rows == many


def shipment(seq_from: int, seq_to: int, **values: Any) -> Row:
    """A shipment of [seq_from, seq_to]."""
    moment = NOON + seq_to * SECOND
    promise = {"seq_from": seq_from, "seq_to": seq_to, "event_time_to": moment, "rows": []}
    return {"emitter": "c/b/0/shipper", **promise, **values}


def test_a_lost_and_a_doubled_row_of_telemetry_show_in_its_health() -> None:
    shipments = facts("shipments", shipment(1, 3), shipment(4, 6), shipment(7, 6))
    given = {"shipments": shipments, ROW_NUMBERS: numbers(1, 2, 3, 4, 4, 6)}
    rows, _ = computed(EMITTER_HEALTH, given)
    assert only(rows, "emitter", "seq_to", "rows_expected", "rows_found", "rows_distinct") == [
        ("c/b/0", 3, 3, 3, 3),
        ("c/b/0", 6, 3, 3, 2),
    ]


def test_rows_ahead_of_their_shipment_count_when_it_comes() -> None:
    ahead = {"shipments": facts("shipments", shipment(1, 2)), ROW_NUMBERS: numbers(1, 2, 3)}
    _, state = computed(EMITTER_HEALTH, ahead)
    then = {"shipments": facts("shipments", shipment(3, 4)), ROW_NUMBERS: numbers(4)}
    rows, state = computed(EMITTER_HEALTH, then, state)
    assert only(rows, "seq_from", "rows_found") == [(3, 2)]
    assert state["ahead"].num_rows == 0


def test_an_emitter_is_judged_in_its_own_partition_alone() -> None:
    """All partitions are given all shipments, and the numbers of their own emitters."""
    given = {"shipments": facts("shipments", shipment(1, 3))}
    elsewhere, _ = computed(EMITTER_HEALTH, given, emitters=frozenset({"c/a/0"}))
    own, _ = computed(EMITTER_HEALTH, given, emitters=frozenset({"c/b/0"}))
    assert elsewhere == []
    assert only(own, "rows_expected", "rows_found") == [(3, 0)]


QUEUE = {"topic": "t", "queue_id": 0, "committed": 80, "pulled": 90}


def moved(at: float, kind: str, client: str, *queues: Row, **values: Any) -> Row:
    """Something about a client and queues."""
    fields = {"kind": kind, "client_id": client, "inferred": kind == "ASSIGNED", "generation": 1}
    return {"at": at, **fields, "queues": list(queues), **values}


def test_an_interval_is_opened_once_and_closed_by_what_took_the_queue_away() -> None:
    other = {**QUEUE, "queue_id": 1, "committed": 5, "pulled": 6}
    events = facts(
        "rebalance_events",
        moved(1, "ASSIGNED", "a", QUEUE, other),
        moved(2, "ASSIGNED", "a", QUEUE),
        moved(3, "REVOKED", "a", QUEUE),
        moved(3, "ASSIGNED", "b", QUEUE),
        moved(4, "REVOKED", "a", QUEUE),
        moved(5, "LEFT", "a", other),
        moved(6, "EXPIRED", "b"),
    )
    rows, state = computed(OWNERSHIP, {"rebalance_events": events})
    intervals = [(row["seq"], row["client_id"], row["queue_id"], row["ended_by"]) for row in rows]
    assert sorted(intervals, key=str) == sorted(
        [
            (1, "a", 0, None),
            (1, "a", 1, None),
            (3, "a", 0, "REVOKED"),
            (4, "b", 0, None),
            (6, "a", 1, "LEFT"),
            (7, "b", 0, "EXPIRED"),
        ],
        key=str,
    )
    ends = {row["seq"]: (row["committed_at_end"], row["pulled_at_end"]) for row in rows}
    assert (ends[3], ends[6], ends[7]) == ((80, 90), (5, 6), (None, None))
    assert all(second(row["opened_at"]) < 4 for row in rows)
    assert state["held"].num_rows == 0


def test_what_is_open_is_carried_and_ends_when_its_own_broker_boots() -> None:
    events = facts(
        "rebalance_events",
        moved(1, "ASSIGNED", "a", QUEUE, emitter="c/a/0", broker="a", seq=1),
        moved(1, "ASSIGNED", "a", QUEUE, seq=1),
    )
    _, state = computed(OWNERSHIP, {"rebalance_events": events})
    boot = facts("lifecycle", {"at": 9, "kind": "BOOT", "clean": False, "seq": 2})
    rows, state = computed(OWNERSHIP, {"lifecycle": boot}, state)
    assert only(rows, "emitter", "revision", "state", "ended_by") == [
        ("c/b/0", 2, "CLOSED", "BROKER_STOP")
    ]
    assert state["held"]["emitter"].to_pylist() == ["c/a/0"]


def report(at: float, offset: int, previous: int | None, **values: Any) -> Row:
    """An accepted report on a queue that keeps [10, 100)."""
    return {
        "at": at,
        "offset": offset,
        "previous_offset": previous,
        "path": "COMMIT_RPC",
        "trigger": "TIMER",
        "accepted": True,
        "min_offset": 10,
        "max_offset": 100,
        **values,
    }


def test_each_broken_law_is_a_row_with_its_cause() -> None:
    reports = facts(
        "consume_offsets",
        report(1, 50, 40),
        report(2, 30, 50),
        report(3, 120, 30),
        report(4, 5, 120, path="RESET"),
        report(5, 1, 5, accepted=False),
        report(6, 20, 60, trigger="HAND_OVER"),
        report(7, 20, None, min_offset=None, max_offset=None),
    )
    rows, _ = computed(OFFSET_VIOLATIONS, {"consume_offsets": reports})
    assert sorted(only(rows, "seq", "law", "delta", "cause", "explained")) == [
        (2, "MONOTONIC", 20, "UNEXPLAINED", False),
        (3, "AT_MOST_MAX", 20, "UNEXPLAINED", False),
        (4, "AT_LEAST_MIN", 5, "RESET", True),
        (4, "MONOTONIC", 115, "RESET", True),
        (6, "MONOTONIC", 40, "HAND_OVER", True),
    ]


OFFSETS = "damaged: /store/config/consumerOffset.json"
RESTARTS: dict[str, tuple[Row, str]] = {
    "killed": ({"kind": "BOOT", "clean": False}, "BROKER_RESTART"),
    "offsets file lost": ({"kind": "DAMAGED_FILE", "detail": OFFSETS}, "BROKER_RESTART"),
    "log cut": (
        {"kind": "RECOVERY", "truncated_from": 1, "truncated_to": 2},
        "BROKER_RESTART",
    ),
    "clean stop, or new store": ({"kind": "BOOT", "clean": True}, "UNEXPLAINED"),
    "another file damaged": ({"kind": "DAMAGED_FILE", "detail": "an index"}, "UNEXPLAINED"),
    "killed long ago": ({"kind": "BOOT", "clean": False, "at": -70}, "UNEXPLAINED"),
    "killed a life before": (
        {"kind": "BOOT", "clean": False, "broker_epoch": NOON - 9 * SECOND},
        "UNEXPLAINED",
    ),
}
"""A fact about a broker, and what then accounts for a fall one second after noon."""


@pytest.mark.parametrize("cut", [False, True], ids=["one cut", "two cuts"])
@pytest.mark.parametrize("name", RESTARTS)
def test_only_a_restart_that_lost_something_accounts_for_a_fall(name: str, cut: bool) -> None:
    """The broker held 9 and took 7."""
    life = {"broker_epoch": NOON - SECOND, "min_offset": 0}
    fact, cause = RESTARTS[name]
    lifecycle = facts("lifecycle", {**life, "at": 0, "seq": 1, **fact})
    fall = facts("consume_offsets", report(1, 7, 9, seq=2, **life))
    if cut:
        _, state = computed(OFFSET_VIOLATIONS, {"lifecycle": lifecycle})
        rows, _ = computed(OFFSET_VIOLATIONS, {"consume_offsets": fall}, state)
    else:
        given = {"lifecycle": lifecycle, "consume_offsets": fall}
        rows, _ = computed(OFFSET_VIOLATIONS, given)
    assert only(rows, "law", "cause", "explained") == [("MONOTONIC", cause, cause != "UNEXPLAINED")]


def test_facts_that_account_for_nothing_any_more_are_not_carried() -> None:
    boot = facts("lifecycle", {"at": 0, "kind": "BOOT", "clean": False})
    _, state = computed(OFFSET_VIOLATIONS, {"lifecycle": boot})
    assert state["losses"].num_rows == 1
    much_later = facts("consume_offsets", report(61, 50, 40, seq=2))
    _, state = computed(OFFSET_VIOLATIONS, {"consume_offsets": much_later}, state)
    assert state["losses"].num_rows == 0


def test_reports_that_break_no_law_are_no_rows() -> None:
    one = facts("consume_offsets", report(1, 50, 40))
    many = pa.concat_tables([one] * 1000)
    rows, _ = computed(OFFSET_VIOLATIONS, {"consume_offsets": many})
    assert rows == []


def test_a_loss_of_unread_messages_is_a_range_whatever_falls_between_two_evaluations() -> None:
    place = {"group": "g", "topic": "t", "queue_id": 2, "from_offset": 24_950}
    deletions = facts(
        "unread_deletions",
        {**place, "to_offset": 36_000, "unread": 11_050},
        {**place, "to_offset": 24_951, "unread": 1},
        {**place, "to_offset": 24_970, "unread": 15},
        {**place, "to_offset": 24_970, "unread": 0},
    )
    rows, _ = computed(LOST_UNREAD_MESSAGES, {"unread_deletions": deletions})
    said = [
        (count, error, evidence.partition(" unread at ")[0], evidence.partition("offsets ")[2][:14])
        for count, error, evidence in only(rows, "messages", "error_messages", "evidence")
    ]
    assert said == [
        (count, error, f"Group g lost {how_many}", begin)
        for count, error, how_many, begin in (
            (11_050, 0, "11,050 messages", "[24950, 36000)"),
            (1, 0, "1 message", "[24950, 24951)"),
            (20, 5, "15 to 20 messages", "[24950, 24970)"),
            (20, 20, "up to 20 messages", "[24950, 24970)"),
        )
    ]
