"""Sheets that count: what failed messages became, and how well groups report their offsets."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.marts.declared import in_order
from pipelines.marts.delayed_retries import MART as DELAYED_RETRIES
from pipelines.marts.flush_health import MART as FLUSH_HEALTH
from pipelines.marts.offset_health import MART as OFFSET_HEALTH
from pipelines.marts.offset_violations import MART as OFFSET_VIOLATIONS
from pipelines.marts.polled import STEP as POLLED
from pipelines.marts.retry_flow import MART as RETRY_FLOW
from tests.pipelines import partition
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.event_stories import Operation, bronze_of, played, stories
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, computed, facts, only

STEPS = in_order(
    [DELAYED_RETRIES, FLUSH_HEALTH, OFFSET_HEALTH, OFFSET_VIOLATIONS, POLLED, RETRY_FLOW]
)


def step(at: float, what: str, times: int = 1, **values: Any) -> Row:
    """A step of a failed message of topic t."""
    return {"at": at, "step": what, "reconsume_times": times, "origin_topic": "t", **values}


def shipped(at: float) -> Any:
    """The emitter has reported everything up to this second."""
    row = {"seq_from": 1, "seq_to": 1, "event_time_to": NOON + int(at * SECOND), "rows": []}
    return facts("shipments", {"emitter": "c/b/0/shipper", **row})


SHEET = ("sent_back", "scheduled", "delivered", "delayed", "failed_again", "retried")


def test_a_balance_sheet_of_failed_messages_closes() -> None:
    """One message fails three times and is given up; another waits for its delay."""
    tried = [
        row
        for times in (1, 2)
        for row in (step(1, "SENT_BACK", times), step(1, "SCHEDULED", times), step(2, "DELIVERED"))
    ]
    given_up = [step(3, "SENT_BACK", 3), step(3, "DEAD_LETTERED", 3)]
    waiting = [step(4, "SENT_BACK"), step(4, "SCHEDULED")]
    steps = facts("retry_dlq_flow", *tried, *given_up, *waiting)
    rows, state = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(10)})
    assert only(rows, *SHEET, "dead_lettered", "difference", "difference_reason") == [
        (4, 3, 2, 1, 2, 0, 1, 0, None)
    ]
    later = facts("retry_dlq_flow", step(25, "DELIVERED", seq=99))
    rows, _ = computed(RETRY_FLOW, {"retry_dlq_flow": later, "shipments": shipped(30)}, state)
    assert only(rows, *SHEET, "seq") == [(4, 3, 3, 0, 2, 1, 99)]


def test_what_comes_back_since_its_invisible_time_ran_out_is_no_failure() -> None:
    """One message comes back three times and is given up; another comes back once."""
    came = [step(1, "INVISIBLE_TIME_EXPIRED", times) for times in (1, 2, 3)]
    given_up = [step(2, "SENT_BACK", 4), step(2, "DEAD_LETTERED", 4)]
    steps = facts("retry_dlq_flow", *came, *given_up, step(3, "INVISIBLE_TIME_EXPIRED"))
    rows, _ = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(10)})
    reported = only(rows, *SHEET, "came_back", "came_back_again", "dead_lettered", "difference")
    assert reported == [(1, 0, 0, 0, 1, 1, 4, 2, 1, 0)]


def test_a_sheet_of_a_lake_that_began_before_that_was_counted_is_carried_on() -> None:
    steps = facts("retry_dlq_flow", step(1, "SENT_BACK"), step(1, "SCHEDULED"))
    _, state = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(10)})
    since = ["came_back", "came_back_again"]
    earlier = {name: state[name].drop_columns(since) for name in ("counted", "totals")}
    came = facts("retry_dlq_flow", step(11, "INVISIBLE_TIME_EXPIRED", seq=9))
    given = {"retry_dlq_flow": came, "shipments": shipped(20)}
    rows, _ = computed(RETRY_FLOW, given, {**state, **earlier})
    assert only(rows, "sent_back", "came_back", "came_back_again") == [(1, 1, 0)]


def test_a_slot_is_reported_when_it_is_over_and_not_before() -> None:
    steps = facts("retry_dlq_flow", step(4, "SENT_BACK"), step(4, "SCHEDULED"))
    rows, state = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(9)})
    assert rows == []
    rows, _ = computed(RETRY_FLOW, {"shipments": shipped(10)}, state)
    assert [row["observed_at"].timestamp() for row in rows] == [NOON / SECOND + 10]


def test_what_does_not_close_is_reported_with_its_reason_by_origin() -> None:
    steps = facts(
        "retry_dlq_flow",
        step(1, "SENT_BACK"),
        step(2, "DEAD_LETTERED", origin_topic="u"),
        step(3, "REDRIVEN", origin_topic=None),
    )
    rows, _ = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(10)})
    assert only(rows, "origin_topic", "difference", "retried") == [
        ("t", 1, 0),
        ("u", -1, 0),
        (None, 0, 1),
    ]
    assert [row["difference_reason"] is None for row in rows] == [False, False, True]


def test_scheduled_messages_that_do_not_come_when_their_delay_is_over_are_overdue() -> None:
    steps = facts(
        "retry_dlq_flow",
        *(step(1, name, delay_ms=5_000) for name in ("SENT_BACK", "SCHEDULED")),
        *(step(2, name, delay_ms=30_000) for name in ("SENT_BACK", "SCHEDULED")),
        step(7, "DELIVERED"),
    )
    given = {"retry_dlq_flow": steps, "shipments": shipped(60)}
    rows, state = computed(RETRY_FLOW, given)
    assert [row["observed_at"].timestamp() - NOON / SECOND for row in rows] == [10, 40]
    assert only(rows, "delayed", "overdue") == [(1, 0), (1, 1)]
    late = facts("retry_dlq_flow", step(65, "DELIVERED", seq=9))
    rows, _ = computed(RETRY_FLOW, {"retry_dlq_flow": late, "shipments": shipped(70)}, state)
    assert only(rows, "delayed", "overdue") == [(0, 0)]


def test_counts_of_a_lake_that_began_before_overdue_was_counted_go_on() -> None:
    steps = facts("retry_dlq_flow", step(1, "SENT_BACK"), step(2, "SCHEDULED", delay_ms=9_000))
    _, state = computed(RETRY_FLOW, {"retry_dlq_flow": steps, "shipments": shipped(5)})
    older = {
        name: rows.drop_columns(["due"]) if "due" in rows.schema.names else rows
        for name, rows in state.items()
    }
    rows, _ = computed(RETRY_FLOW, {"shipments": shipped(20)}, older)
    assert only(rows, "sent_back", "scheduled", "overdue") == [(1, 1, 0), (1, 1, 0)]


def test_reports_and_broken_laws_are_counted_by_cause_in_each_ten_minutes() -> None:
    known = {"trigger": "TIMER", "min_offset": 0, "max_offset": 100, "accepted": True}
    reports = facts(
        "consume_offsets",
        {**known, "at": 1, "client_id": "a", "path": "COMMIT_RPC", "offset": 50},
        {**known, "at": 2, "client_id": None, "path": "RESET", "offset": 10, "previous_offset": 50},
        {**known, "at": 3, "client_id": "b", "path": "COMMIT_RPC", "offset": 9, "accepted": False},
        {**known, "at": 4, "client_id": "b", "offset": 9, "accepted": False, "held_back": 119},
        {**known, "at": 601, "client_id": "a", "path": "COMMIT_RPC", "offset": 60},
    )
    table = OFFSET_VIOLATIONS.none
    broken = table.from_pylist(
        computed(OFFSET_VIOLATIONS, {"consume_offsets": reports})[0], schema=table.schema
    )
    given = {"consume_offsets": reports, "offset_violations": broken, "shipments": shipped(700)}
    rows, state = computed(OFFSET_HEALTH, given)
    counts = ("reports", "refused", "violations", "monotonic", "reset", "unaccounted")
    assert only(rows, *counts) == [(123, 121, 1, 1, 1, 0)], "a row may stand for many"
    assert state["counted"].num_rows == 1


def flushed(at: float, action: str, written: int, to: int, **values: Any) -> Row:
    """A commit or flush of the commit log, up to `to`."""
    reached = {"committed": to, "flushed": 0} if action == "COMMIT" else {"flushed": to}
    known = {"committed": written, "count": 2, "duration_us_sum": 9, "duration_us_max": 7}
    fields = {"component": "COMMIT_LOG", "action": action, "cause": "TIMER", "written": written}
    return {"at": at, **known, **fields, **reached, **values}


def marked(at: float, queue_id: int, end: int, to: int | None) -> Row:
    """A queue that ends at `end` and is flushed to `to`."""
    return {"at": at, "queue_id": queue_id, "max_offset": end, "flushed_offset": to}


COST = ("kill_bytes", "power_cut_bytes", "power_cut_messages", "power_cut_queues")


def test_what_a_kill_or_a_power_cut_would_cost_is_reported_of_each_broker() -> None:
    given = {
        "flush_checkpoints": facts(
            "flush_checkpoints",
            flushed(1, "FLUSH", 500, 300, at_risk_bytes_max=200),
            flushed(2, "COMMIT", 900, 850, at_risk_bytes_max=70, flushed=300),
            flushed(3, "FLUSH", 99, 0, component="INDEX"),
        ),
        "queue_watermarks": facts(
            "queue_watermarks", marked(1, 0, 50, 20), marked(2, 0, 60, 45), marked(2, 1, 7, 7)
        ),
        "shipments": shipped(10),
    }
    rows, state = computed(FLUSH_HEALTH, given)
    assert only(rows, *COST, "kill_bytes_max", "power_cut_bytes_max") == [(50, 600, 15, 1, 70, 200)]
    assert only(rows, "flushes", "flush_us_max") == [(2, 7)]
    then = {
        "flush_checkpoints": facts("flush_checkpoints", flushed(14, "FLUSH", 900, 900, seq=9)),
        "shipments": shipped(20),
    }
    rows, _ = computed(FLUSH_HEALTH, then, state)
    assert only(rows, *COST) == [(0, 0, 15, 1)]
    gone = {"at": 12, "seq": 8, "kind": "TOPIC_GONE", "topic": "t"}
    rows, _ = computed(FLUSH_HEALTH, {**then, "lifecycle": facts("lifecycle", gone)}, state)
    assert only(rows, *COST) == [(0, 0, 0, 0)]


def test_what_waits_while_a_disk_hangs_is_reported_though_no_flush_ends() -> None:
    first = {
        "flush_checkpoints": facts("flush_checkpoints", flushed(1, "FLUSH", 500, 300, seq=1)),
        "shipments": shipped(10),
    }
    _, state = computed(FLUSH_HEALTH, first)
    marks = (marked(12, 0, 60, 20), marked(14, 0, 90, 20), marked(15, 1, 7, 7))
    hangs = {"queue_watermarks": facts("queue_watermarks", *marks), "shipments": shipped(20)}
    rows, state = computed(FLUSH_HEALTH, hangs, state)
    assert only(rows, *COST, "flushes", "flush_us_max") == [(0, 200, 70, 1, 0, None)]
    flowing = {"queue_watermarks": facts("queue_watermarks", marked(22, 0, 90, 90))}
    rows, _ = computed(FLUSH_HEALTH, {**flowing, "shipments": shipped(30)}, state)
    assert not rows, "nothing waits, and nothing was flushed"


@settings(max_examples=12, deadline=None)
@given(stories(), st.data())
def test_any_cut_of_the_shipments_gives_the_same_sheets(
    story: list[Operation], data: st.DataObject
) -> None:
    bronze = bronze_of(*played(story, (("west", "broker-a"), ("east", "broker-a"))))
    count = len(partition.horizons_of(bronze))
    ends = data.draw(st.one_of(st.just(range(count)), st.sets(st.integers(0, count - 1))))
    whole = partition.run(STEPS, bronze, SHORT)
    assert partition.run(STEPS, bronze, SHORT, ends=ends) == whole


WAITS = ("delay_ms", "scheduled", "released", "waiting", "overdue")


def test_the_delay_that_keeps_its_messages_is_named_with_their_number() -> None:
    """Ten and thirty seconds: the first level lets its messages go, the second keeps all three."""
    steps = facts(
        "retry_dlq_flow",
        *(step(at, "SCHEDULED", delay_ms=10_000) for at in (1, 2)),
        *(step(at, "SCHEDULED", delay_ms=30_000) for at in (3, 4, 5)),
        *(step(at, "DELIVERED", delay_ms=10_000) for at in (11, 12)),
    )
    given = {"retry_dlq_flow": steps, "shipments": shipped(60)}
    rows, state = computed(DELAYED_RETRIES, given)
    last = {row["delay_ms"]: row for row in rows}
    assert only([last[10_000], last[30_000]], *WAITS) == [
        (10_000, 2, 2, 0, 0),
        (30_000, 3, 0, 3, 3),
    ]
    moved = facts("retry_dlq_flow", step(65, "DELIVERED", delay_ms=30_000, seq=99))
    rows, _ = computed(DELAYED_RETRIES, {"retry_dlq_flow": moved, "shipments": shipped(70)}, state)
    assert only(rows, *WAITS, "seq") == [(30_000, 3, 1, 2, 2, 99)]


def test_what_a_level_gives_up_it_keeps_no_more_and_what_is_given_up_at_once_never_waited() -> None:
    steps = facts(
        "retry_dlq_flow",
        step(1, "SCHEDULED", delay_ms=5_000),
        step(7, "DEAD_LETTERED", delay_ms=5_000),
        step(8, "SENT_BACK"),
        step(8, "DEAD_LETTERED"),
    )
    rows, _ = computed(DELAYED_RETRIES, {"retry_dlq_flow": steps, "shipments": shipped(20)})
    assert only(rows, *WAITS) == [(5_000, 1, 1, 0, 0)]


def test_of_a_broker_that_does_not_say_which_delay_was_over_it_is_unknown_what_is_overdue() -> None:
    steps = facts(
        "retry_dlq_flow",
        *(step(1, "SCHEDULED", delay_ms=delay) for delay in (5_000, 30_000)),
        step(26, "DELIVERED"),
    )
    rows, _ = computed(DELAYED_RETRIES, {"retry_dlq_flow": steps, "shipments": shipped(60)})
    assert only(rows, "delay_ms", "overdue") == [(5_000, 1), (30_000, 0), (30_000, None)]
