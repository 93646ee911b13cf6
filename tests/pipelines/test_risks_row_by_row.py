"""Row A10: causes of duplicates that need two rows to be seen, from literal bronze rows to openings
of risk: two owners of one queue, and a log that lost what had been read.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import DUPLICATE_RISK_WINDOWS, OFFSET_VIOLATIONS
from pipelines.frames.risk_events import risk_events
from pipelines.gold import to_spark
from pipelines.schemas import arrow_schema
from pipelines.staging import sources
from tests.pipelines.test_marts_row_by_row import NOON, SECOND, bronze, watermark

pytestmark = pytest.mark.timeout(600)
NEXT_LIFE = NOON + 60 * SECOND


def openings(
    spark: SparkSession,
    *,
    events: list[dict[str, Any]] | None = None,
    watermarks: list[dict[str, Any]] | None = None,
    lifecycle: list[dict[str, Any]] | None = None,
) -> list[tuple[Any, ...]]:
    """(seq, cause, client, from, to) of what the rows put at risk, in order."""

    def rows(table: str, *given: dict[str, Any]) -> DataFrame:
        return bronze(spark, table, *given) if given else bronze(spark, table, {}).limit(0)

    def gold(table: Any) -> DataFrame:
        return to_spark(spark, arrow_schema(table.columns).empty_table())

    told = risk_events(
        watermarks=sources.stage_group_watermarks(rows("group_watermarks", *(watermarks or []))),
        events=sources.stage_rebalance_events(_with_queues(spark, events or [])),
        samples=sources.stage_client_windows(rows("client_windows")),
        redeliveries=sources.stage_redeliveries(rows("redeliveries")),
        violations=gold(OFFSET_VIOLATIONS),
        lifecycle=sources.stage_lifecycle(rows("lifecycle", *(lifecycle or []))),
        open_risks=gold(DUPLICATE_RISK_WINDOWS),
    )
    one = told.select(F.explode("events").alias("one")).where("one.type = 'OPENING'")
    names = ("seq", "cause", "client_id", "from_offset", "to_offset")
    return [tuple(row) for row in one.select(*(f"one.{n}" for n in names)).orderBy("seq").collect()]


def _with_queues(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """Events about queue 0 of topic t, with 80 committed and 90 pulled."""
    made = bronze(spark, "rebalance_events", *(events or [{}]))
    queue = "array(named_struct('topic', 't', 'queue_id', 0, 'committed', 80L, 'pulled', 90L))"
    filled = made.withColumn("queues", F.expr(queue))
    return filled if events else filled.limit(0)


def revoked(at: float, client: str, **values: Any) -> dict[str, Any]:
    """Somebody else pulled the queue that `client` had pulled last."""
    known = {"client_id": client, "kind": "REVOKED", "inferred": True, "generation": 4}
    return {"at": at, **known, **values}


def test_a_queue_pulled_in_turn_by_two_members_has_two_owners(spark: SparkSession) -> None:
    causes = openings(
        spark,
        events=[
            revoked(1, "a"),  # b took the queue over, as a rebalance lets it.
            revoked(3, "b"),  # a is still there.
            revoked(4, "a"),
            revoked(60, "b"),  # Much later: a rebalance again.
            revoked(61, "a", generation=5),  # The group changed in between.
        ],
    )
    assert [(seq, cause) for seq, cause, *_ in causes] == [
        (1, "HAND_OVER"),
        (2, "DOUBLE_OWNER"),
        (3, "DOUBLE_OWNER"),
        (4, "HAND_OVER"),
        (5, "HAND_OVER"),
    ]
    assert causes[1][2:] == ("b", 80, 90)


def test_two_owners_are_seen_over_the_edge_of_a_cut_as_well(spark: SparkSession) -> None:
    rows = [revoked(1, "a", is_new=False), revoked(3, "b")]
    assert [cause[:2] for cause in openings(spark, events=rows)] == [(2, "DOUBLE_OWNER")]


def boot(*, boot_is_new: bool = True, truncated: bool = True) -> list[dict[str, Any]]:
    """The broker's next life: recovery at seq 10, boot at seq 14."""
    cut = {"truncated_from": 5000, "truncated_to": 9000} if truncated else {}
    life = {"broker_epoch": NEXT_LIFE}
    return [
        {"at": 61, "seq": 10, "kind": "RECOVERY", **cut, **life, "is_new": boot_is_new},
        {"at": 61, "seq": 14, "kind": "BOOT", "clean": False, **life},
    ]


def marks(*, end: int) -> list[dict[str, Any]]:
    """The group had pulled 90 and committed 80; in the next life the queue ends at `end`."""
    after = watermark(61, max_offset=end, pulled=min(90, end), committed=70, persisted=70)
    return [watermark(10, seq=5), {**after, "seq": 12, "broker_epoch": NEXT_LIFE}]


def test_a_log_that_lost_what_was_read_puts_it_at_risk_of_being_sent_again(
    spark: SparkSession,
) -> None:
    assert openings(spark, watermarks=marks(end=85), lifecycle=boot()) == [
        (10, "REPLAY_AFTER_TRUNCATION", None, 85, 90),
        (14, "BROKER_CRASH", None, 70, 90),
    ]
    over_the_edge = openings(spark, watermarks=marks(end=85), lifecycle=boot(boot_is_new=False))
    assert [cause for _, cause, *_ in over_the_edge] == ["REPLAY_AFTER_TRUNCATION", "BROKER_CRASH"]


@pytest.mark.parametrize(("end", "truncated"), [(90, True), (100, True), (85, False)])
def test_a_log_that_kept_what_was_read_puts_nothing_at_that_risk(
    spark: SparkSession, end: int, truncated: bool
) -> None:
    told = openings(spark, watermarks=marks(end=end), lifecycle=boot(truncated=truncated))
    assert [cause for _, cause, *_ in told] == ["BROKER_CRASH"]
