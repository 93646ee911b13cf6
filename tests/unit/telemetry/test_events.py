"""Facts become rows: each field in its column, times in microseconds, flushes summed per second."""

from __future__ import annotations

from typing import Any

from engine.foundation.observing import (
    ClientWindow,
    Fact,
    FlushDone,
    GroupWatermark,
    LifecycleEvent,
    OffsetAnswer,
    OffsetReport,
    OwnedQueue,
    QueueWatermark,
    RebalanceEvent,
    Redelivery,
    RetryStep,
    ReusedOffset,
    UnreadDeletion,
)
from engine.telemetry.events import FlushSums, row_of
from engine.telemetry.tables import TABLES


def by_column(fact: Fact) -> tuple[str, dict[str, Any]]:
    """The fact's table and its row as column -> value."""
    number, values = row_of(fact)
    table = TABLES[number]
    return table.name, dict(zip(table.own_names, values, strict=True))


def flush(
    duration_us: int, *, flushed: int, cause: str = "GROUP", at_risk_bytes: int | None = None
) -> FlushDone:
    return FlushDone(
        *("COMMIT_LOG", "FLUSH", cause, 900, flushed, 1_000, duration_us),
        content_crc=None,
        at_risk_bytes=at_risk_bytes,
    )


def test_an_offset_report_stands_column_by_column() -> None:
    fact = OffsetReport(
        "orders_group", "orders", 3, 120, 100, "COMMIT_RPC", "TIMER", "client@1", True, 5, 130
    )
    assert by_column(fact) == (
        "consume_offsets",
        {
            "group": "orders_group",
            "topic": "orders",
            "queue_id": 3,
            "offset": 120,
            "previous_offset": 100,
            "path": "COMMIT_RPC",
            "trigger": "TIMER",
            "client_id": "client@1",
            "accepted": True,
            "min_offset": 5,
            "max_offset": 130,
            "held_back": None,
        },
    )


def test_milliseconds_of_the_port_are_microseconds_of_the_row_and_unknown_stays_null() -> None:
    table, row = by_column(QueueWatermark("orders", 0, 0, 10, 9, None, 1_700_000_000_123, True))
    assert table == "queue_watermarks"
    assert row["last_store_time"] == 1_700_000_000_123_000
    assert row["replicated_offset"] is None
    _, empty = by_column(QueueWatermark("orders", 0, 0, 0, 0, None, None, True))
    assert empty["last_store_time"] is None


def test_every_time_of_a_group_watermark_is_reported_in_its_own_column() -> None:
    fact = GroupWatermark(
        "g", "orders", 1, 50, None, 40, 30, "EXACT", 1, 0, 60, 2, "client@1", None, 3, 4, 7,
        "CLUSTERING", 2,
    )  # fmt: skip
    table, row = by_column(fact)
    assert table == "group_watermarks"
    names = ("store_time_at_committed", "last_store_time", "last_pull_time", "last_commit_time")
    assert [row[name] for name in names] == [1000, 2000, 3000, 4000]
    assert (row["pulled"], row["committed"], row["persisted"], row["reports"]) == (50, 40, 30, 7)


def test_owned_queues_travel_in_the_order_of_their_struct() -> None:
    fact = RebalanceEvent(
        "g", "client@1", "REVOKED", True, 4, queues=[OwnedQueue("orders", 2, 40, None)]
    )
    table, row = by_column(fact)
    assert table == "rebalance_events"
    assert row["queues"] == [("orders", 2, 40, None)]
    assert row["inferred"] is True


def test_a_membership_change_without_queues_has_none() -> None:
    fact = RebalanceEvent("g", "client@1", "JOINED", False, 1, before=[], after=["client@1"])
    assert by_column(fact)[1]["queues"] is None


def test_at_most_32_held_ranges_are_reported() -> None:
    held = [(number * 10, number * 10 + 5) for number in range(40)]
    fact = ClientWindow(
        "client@1", "g", "orders", 0, 0, 395, 200, 4096, held, 3, 0, "id", 1, 0, False, False, 2, 3
    )
    _, row = by_column(fact)
    assert row["held_ranges"] == held[:32]
    assert (row["head_since"], row["last_pull_time"], row["last_consume_time"]) == (
        1000,
        2000,
        3000,
    )


def test_retry_redelivery_and_lifecycle_have_their_tables() -> None:
    retry = RetryStep("id", "orders", 1, 77, "g", 2, "SENT_BACK", 10_000, "listener failed")
    again = Redelivery("g", "orders", 1, 70, 80, "client@2", "client@1", 123, 10)
    boot = LifecycleEvent("BOOT", "port 10911", clean=True)
    assert by_column(retry)[0] == "retry_dlq_flow"
    assert by_column(retry)[1]["origin_offset"] == 77
    assert by_column(again)[1]["broker_epoch_before"] == 123
    assert by_column(boot) == (
        "lifecycle",
        {
            "kind": "BOOT",
            "clean": True,
            "truncated_from": None,
            "truncated_to": None,
            "term": None,
            "detail": "port 10911",
            "group": None,
            "topic": None,
            "queue_id_from": None,
            "seq_from": None,
            "time_from": None,
            "step_ms": None,
            "observed_by": None,
            "report_each_ms": None,
            "skew_ms": None,
            "address": None,
            "name_servers": None,
            "first_seen": None,
            "role": None,
        },
    )


def test_a_flush_alone_is_a_row_with_count_one() -> None:
    table, row = by_column(flush(250, flushed=800, cause="SHUTDOWN"))
    assert table == "flush_checkpoints"
    assert row["store_time"] == 1_000_000
    assert (row["count"], row["duration_us_sum"], row["duration_us_max"]) == (1, 250, 250)


def test_flushes_of_a_second_are_one_row_per_component_action_and_cause() -> None:
    sums = FlushSums()
    sums.add(flush(200, flushed=100))
    sums.add(flush(50, flushed=200, cause="TIMER"))
    sums.add(flush(300, flushed=300))
    rows = [dict(zip(TABLES[n].own_names, values, strict=True)) for n, values in sums.take()]
    flushes = [
        (row["cause"], row["count"], row["duration_us_sum"], row["duration_us_max"], row["flushed"])
        for row in rows
    ]
    assert flushes == [("GROUP", 2, 500, 300, 300), ("TIMER", 1, 50, 50, 200)]
    assert sums.take() == []


def test_a_seconds_row_has_the_most_that_was_at_risk_and_nothing_where_nothing_is_known() -> None:
    sums = FlushSums()
    for at_risk_bytes in (40, 700, 0):
        sums.add(flush(10, flushed=100, at_risk_bytes=at_risk_bytes))
    sums.add(flush(10, flushed=100, cause="TIMER"))
    rows = [dict(zip(TABLES[n].own_names, values, strict=True)) for n, values in sums.take()]
    assert [row["at_risk_bytes_max"] for row in rows] == [700, None]


def test_messages_deleted_unread_have_their_columns() -> None:
    assert by_column(UnreadDeletion("g", "orders", 3, 40, 45, 5)) == (
        "unread_deletions",
        {
            "group": "g",
            "topic": "orders",
            "queue_id": 3,
            "from_offset": 40,
            "to_offset": 45,
            "unread": 5,
        },
    )


def test_a_reused_offset_has_its_columns() -> None:
    reused = ReusedOffset("g", "orders", 3, 41, 40, "OLD", "NEW", "c@1")
    assert by_column(reused) == (
        "reused_offsets",
        {
            "group": "g",
            "topic": "orders",
            "queue_id": 3,
            "offset": 41,
            "queue_end": 40,
            "message_id_before": "OLD",
            "message_id": "NEW",
            "client_id": "c@1",
        },
    )


def test_an_answered_question_and_a_snapshot_have_their_columns() -> None:
    answer = OffsetAnswer("c@1", "g", "orders", 3, 40, 41, 50, "c@2")
    assert by_column(answer) == (
        "offset_answers",
        {
            "client_id": "c@1",
            "group": "g",
            "topic": "orders",
            "queue_id": 3,
            "told_offset": 40,
            "committed": 41,
            "pulled": 50,
            "last_puller": "c@2",
        },
    )
    _, row = by_column(LifecycleEvent("SNAPSHOT", None, seq_from=17, time_from_ms=2))
    assert (row["seq_from"], row["time_from"]) == (17, 2000)
