"""Marts on literal rows: what goes in, what must come out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.testing import assertDataFrameEqual

from engine.telemetry.tables import BY_NAME, TABLES
from pipelines.frames.consumer_lag import consumer_lag
from pipelines.frames.emitter_health import emitter_health
from pipelines.frames.offset_violations import offset_violations
from pipelines.frames.risk_events import WINDOW_FIELDS
from pipelines.frames.risk_evidence import evidence
from pipelines.frames.risk_fold import revisions_of
from pipelines.gold import to_spark
from pipelines.schemas import arrow_schema
from pipelines.session import spark_schema
from pipelines.staging import sources

pytestmark = pytest.mark.timeout(600)
SECOND = 1_000_000
NOON = 1_772_366_400 * SECOND


def bronze(spark: SparkSession, table: str, *rows: dict[str, Any]) -> DataFrame:
    """Bronze rows with `at` in seconds after noon; what a row does not name is unknown."""
    columns = BY_NAME[table].columns
    made = []
    for number, row in enumerate(rows, start=1):
        at_us = NOON + int(row.get("at", 0) * SECOND)
        known = {
            "cluster": "c",
            "broker": "b",
            "broker_epoch": NOON - 3600 * SECOND,
            "emitter": "c/b/0",
            "seq": number,
            "group": "g",
            "topic": "t",
            "queue_id": 0,
            **row,
        }
        made.append((at_us, row.get("is_new", True), *(known.get(c.name) for c in columns)))
    fields = spark_schema(columns)
    for field in fields:
        field.nullable = True
    text = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    frame = spark.createDataFrame(made, f"at_us long, is_new boolean, {text}")
    return frame.withColumn("event_time", F.timestamp_micros("at_us"))


def watermark(at: float, **values: Any) -> dict[str, Any]:
    """A queue of which 80 of 100 messages are committed, unless told otherwise."""
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


@pytest.mark.parametrize("table", [one.name for one in TABLES])
def test_a_bronze_table_nothing_came_for_is_an_empty_frame(spark: SparkSession, table: str) -> None:
    """A quiet cluster has tables without a row, and reading none may give no chunk at all."""
    schema = arrow_schema(BY_NAME[table].columns)
    frame = to_spark(spark, pa.Table.from_batches([], schema=schema))
    assert frame.columns == schema.names
    assert frame.count() == 0


def test_lag_is_exact_or_null_with_a_reason(spark: SparkSession) -> None:
    raw = bronze(
        spark,
        "group_watermarks",
        watermark(10),
        watermark(11, committed=100, committed_state="AT_END"),
        watermark(12, committed=None, committed_state="NONE"),
        watermark(13, committed=5, min_offset=20, committed_state="PURGED"),
        watermark(14, committed=120, committed_state="AT_END"),
        watermark(15, message_model="BROADCASTING"),
        watermark(16, committed_state="UNREADABLE"),
    ).withColumn(
        "store_time_at_committed",
        F.when(
            F.col("committed_state").isin("EXACT", "UNREADABLE"),
            F.timestamp_micros(F.lit(NOON + 4 * SECOND)),
        ),
    )
    made = consumer_lag(sources.stage_group_watermarks(raw)).select(
        "seq", "lag_messages", "time_lag_ms", "provenance", "unknown_reason", "inflight_messages"
    )
    assertDataFrameEqual(
        made,
        spark.createDataFrame(
            [
                (1, 20, 6000, "EXACT", None, 10),
                (2, 0, 0, "EXACT", None, -10),
                (3, None, None, "UNKNOWN", "NO_OFFSET", None),
                (4, 95, None, "PURGED", "PURGED", 85),
                (5, -20, 0, "EXACT", None, -30),
                (6, None, None, "UNKNOWN", "BROADCAST", 10),
                (7, 20, 12000, "UNREADABLE", None, 10),
            ],
            "seq long, lag_messages long, time_lag_ms long, provenance string, "
            "unknown_reason string, inflight_messages long",
        ),
    )


def test_a_trend_looks_back_a_minute_over_the_cut(spark: SparkSession) -> None:
    raw = bronze(
        spark,
        "group_watermarks",
        watermark(0, committed=100, max_offset=100, is_new=False),
        watermark(20, committed=60, max_offset=160, is_new=False),
        watermark(30, committed=60, max_offset=260),
        watermark(90, committed=260, max_offset=280),
    )
    made = consumer_lag(sources.stage_group_watermarks(raw)).select(
        "seq", "lag_messages", "trend", "lag_change_per_minute", "drain_time_ms"
    )
    assertDataFrameEqual(
        made,
        spark.createDataFrame(
            [(3, 200, "GROWING", 400, None), (4, 20, "SHRINKING", -180, 6666)],
            "seq long, lag_messages long, trend string, lag_change_per_minute long, "
            "drain_time_ms long",
        ),
    )


def report(at: float, offset: int, previous: int | None, **values: Any) -> dict[str, Any]:
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


def test_each_broken_law_is_a_row_with_its_cause(spark: SparkSession) -> None:
    reports = bronze(
        spark,
        "consume_offsets",
        report(1, 50, 40),
        report(2, 30, 50),
        report(3, 120, 30),
        report(4, 5, 120, path="RESET"),
        report(5, 1, 5, accepted=False),
        report(6, 20, 60, trigger="HAND_OVER"),
    )
    nothing = bronze(spark, "redeliveries")
    events = bronze(spark, "rebalance_events")
    made = offset_violations(
        sources.stage_consume_offsets(reports),
        sources.stage_redeliveries(nothing),
        sources.stage_rebalance_events(events),
        sources.stage_lifecycle(bronze(spark, "lifecycle")),
    ).select("seq", "law", "delta", "cause", "explained")
    assertDataFrameEqual(
        made,
        spark.createDataFrame(
            [
                (2, "MONOTONIC", 20, "UNEXPLAINED", False),
                (3, "AT_MOST_MAX", 20, "UNEXPLAINED", False),
                (4, "MONOTONIC", 115, "RESET", True),
                (4, "AT_LEAST_MIN", 5, "RESET", True),
                (6, "MONOTONIC", 40, "HAND_OVER", True),
            ],
            "seq long, law string, delta long, cause string, explained boolean",
        ),
    )


OFFSETS = "damaged: /store/config/consumerOffset.json"
RESTARTS: dict[str, tuple[dict[str, Any], str]] = {
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


def test_only_a_restart_that_lost_something_accounts_for_a_fall(spark: SparkSession) -> None:
    """Each broker held 9 and took 7."""
    life = {"broker_epoch": NOON - SECOND, "min_offset": 0}
    falls = [report(1, 7, 9, seq=2, emitter=name, broker=name, **life) for name in RESTARTS]
    facts = [
        {**life, "at": 0, "seq": 1, "emitter": name, "broker": name, **fact}
        for name, (fact, _) in RESTARTS.items()
    ]
    made = offset_violations(
        sources.stage_consume_offsets(bronze(spark, "consume_offsets", *falls)),
        sources.stage_redeliveries(bronze(spark, "redeliveries")),
        sources.stage_rebalance_events(bronze(spark, "rebalance_events")),
        sources.stage_lifecycle(bronze(spark, "lifecycle", *facts)),
    ).collect()
    assert {row["law"] for row in made} == {"MONOTONIC"}
    causes = {name: cause for name, (_, cause) in RESTARTS.items()}
    assert {row["emitter"]: row["cause"] for row in made} == causes
    assert all(row["explained"] == (row["cause"] != "UNEXPLAINED") for row in made)


def test_a_lost_and_a_doubled_row_of_telemetry_show_in_its_health(spark: SparkSession) -> None:
    shipments = spark.createDataFrame(
        [("c/b/0", 1, 3, NOON, True), ("c/b/0", 4, 6, NOON + 1, True), ("c/b/0", 7, 6, 9, True)],
        "emitter string, seq_from long, seq_to long, event_us_to long, is_new boolean",
    )
    numbers = spark.createDataFrame(
        [("c/b/0", seq) for seq in (1, 2, 3, 4, 4, 6)], "emitter string, seq long"
    )
    made = emitter_health(shipments, numbers).select(
        "seq_to", "rows_expected", "rows_found", "rows_distinct"
    )
    assertDataFrameEqual(
        made,
        spark.createDataFrame(
            [(3, 3, 3, 3), (6, 3, 3, 2)],
            "seq_to long, rows_expected long, rows_found long, rows_distinct long",
        ),
    )


EVENT = (
    "struct<seq:long,event_us:long,type:string,basis:string,cause:string,client_id:string,"
    "next_client_id:string,from_offset:long,to_offset:long,messages:long,certain:long,"
    "uncertain:long,committed:long,pulled:long>"
)
WINDOW = f"struct<{','.join(f'{name}:{kind}' for name, kind in WINDOW_FIELDS.items())}>"


def departure(seq: int, begin: int, end: int) -> tuple[Any, ...]:
    """Client c1 was lost with [begin, end) pulled and not committed."""
    risk = ("DEPARTURE", "CONSUMER_CRASH", "c1", None, begin, end)
    return (seq, seq * SECOND, "OPENING", *risk, None, None, None, None, None)


def again(seq: int, begin: int, end: int) -> tuple[Any, ...]:
    """Client c2 pulled [begin, end) once more."""
    risk = ("REDELIVERY", "HAND_OVER", "c1", "c2", begin, end, end - begin)
    return (seq, seq * SECOND, "REDELIVERY", *risk, None, None, None, None)


def progress(seq: int, committed: int, pulled: int) -> tuple[Any, ...]:
    """The group's marks on the queue."""
    return (seq, seq * SECOND, "PROGRESS", *[None] * 9, committed, pulled)


Told = list[tuple[int, int, str, str, int]]

FOLDS: dict[str, tuple[list[tuple[Any, ...]], Told]] = {
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
def test_risk_of_a_queue_is_folded_event_by_event(spark: SparkSession, story: str) -> None:
    events, expected = FOLDS[story]
    told = fold(spark, None, events)
    seen = sorted(
        (row["seq"], row["revision"], row["state"], row["told_by"], row["redelivered"])
        for row in told
    )
    assert seen == sorted(expected)


@pytest.mark.parametrize("story", FOLDS)
def test_folding_two_halves_gives_what_folding_the_whole_gives(
    spark: SparkSession, story: str
) -> None:
    events, _ = FOLDS[story]
    whole = fold(spark, None, events)
    for cut in range(1, len(events)):
        first = fold(spark, None, events[:cut])
        newest = {row["opened_us"]: row for row in sorted(first, key=lambda row: row["revision"])}
        still_open = [row for row in newest.values() if row["state"] == "OPEN"]
        carried = tuple(still_open[0][name] for name in WINDOW_FIELDS) if still_open else None
        second = fold(spark, carried, events[cut:])
        assert by_text(first + second) == by_text(whole)


AGAIN_BY_C2 = "55 messages of [100, 155) were delivered again to c2"


@pytest.mark.parametrize(
    ("redelivered_to", "ending"),
    [
        (140, "40 messages of [100, 140) were delivered again to c2"),
        (155, f"{AGAIN_BY_C2}; those from 140 on had been pulled after the event"),
    ],
)
def test_a_risk_says_why_more_came_again_than_was_predicted(
    spark: SparkSession, redelivered_to: int, ending: str
) -> None:
    window = {
        "basis": "RESTART",
        "cause": "BROKER_CRASH",
        "client_id": "c1",
        "next_client_id": "c2",
        "from_offset": 100,
        "to_offset": 140,
        "message_id": "m",
        "state": "OPEN",
        "redelivered_from": 100,
        "redelivered_to": redelivered_to,
        "told_by": "AGAIN",
        "redelivered": redelivered_to - 100,
    }
    (row,) = spark.createDataFrame([window]).select(evidence().alias("told")).collect()
    assert row["told"] == (
        f"the broker died when its disk knew offset 100 and the group was at 140; {ending}"
    )


def fold(
    spark: SparkSession, carried: tuple[Any, ...] | None, events: list[tuple[Any, ...]]
) -> list[dict[str, Any]]:
    """Revisions of one queue."""
    frame = spark.createDataFrame([(carried, events)], f"carried {WINDOW}, events array<{EVENT}>")
    [row] = frame.select(revisions_of(F.col("carried"), F.col("events")).alias("told")).collect()
    return [one.asDict() for one in row["told"]]


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own."""
    return sorted(str(row) for row in rows)
