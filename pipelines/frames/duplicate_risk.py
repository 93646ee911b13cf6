"""Intervals in which messages of a queue were at risk of double consumption, and what came of it.

Place in the walk: risk events, exposed queues and messages delivered under two places → gold
duplicate_risk_windows.

Three sources, told apart by `basis`: what an event put at risk (DEPARTURE, RESTART, OFFSET_FALL,
and REDELIVERY that nobody expected), what is at risk as long as a head is frozen (EXPOSURE, judged
on ticks), and messages delivered once more from another place: because they failed (SEND_BACK), or
because their producer sent them again and both copies are stored (SEND_RETRY). Invariant: predicted
and observed stand side by side in one row; an observed re-delivery comes from the broker's own
redeliveries, never from a prediction. Absent on purpose: how events are folded (`risk_fold`), ticks
judged (`exposures`) and sentences made (`risk_evidence`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import DUPLICATE_RISK_WINDOWS
from pipelines.frames.contract import QUEUE_KEY, QUEUE_PLACE, as_declared, window_id
from pipelines.frames.risk_events import WINDOW_FIELDS
from pipelines.frames.risk_evidence import OF_ONE_MESSAGE, evidence
from pipelines.frames.risk_fold import revisions_of

_PLACE = ("emitter", *QUEUE_PLACE)
_OUT = (*_PLACE, *WINDOW_FIELDS, "observed_us", "seq", "state", "told_by", "message_id")


def duplicate_risk_windows(revisions: DataFrame) -> DataFrame:
    """One row per revision of an interval in which a queue's messages might be doubled.

    `revisions` is the union of `from_events`, `exposures` and `delivered_once_more`.
    """
    is_closed = F.col("state") == "CLOSED"
    outcome = (
        F.when(F.col("redelivered") > 0, "CONFIRMED")
        .when(is_closed & (F.col("told_by") != "TAKEN_OVER"), "PASSED")
        .otherwise("POSSIBLE")
    )
    rows = revisions.withColumns(
        {
            "opened_at": F.timestamp_micros("opened_us"),
            "closed_at": F.when(is_closed, F.timestamp_micros("observed_us")),
            "outcome": outcome,
            "at_risk_messages": F.col("to_offset") - F.col("from_offset"),
            "certain_messages": F.col("certain"),
            "uncertain_messages": F.col("uncertain"),
            "redelivered_messages": F.col("redelivered"),
            "window_id": window_id(
                "duplicate_risk_windows",
                "basis",
                "cause",
                *QUEUE_KEY,
                "opened_us",
                "from_offset_opened",
            ),
        }
    )
    return as_declared(rows.withColumn("evidence", evidence()), DUPLICATE_RISK_WINDOWS)


def from_events(events: DataFrame) -> DataFrame:
    """Revisions of what an event put at risk, folded per queue."""
    told = events.withColumn("one", F.explode(revisions_of(F.col("carried"), F.col("events"))))
    return as_revisions(
        told.select(*_PLACE, "one.*", F.lit(None).cast("string").alias("message_id"))
    )


def as_revisions(rows: DataFrame) -> DataFrame:
    """The columns in which every source of revisions ends.

    Windows of single messages may open at the same instant on the same queue: `from_offset_opened`
    tells them apart.
    """
    opened_at = F.when(F.col("basis").isin(*OF_ONE_MESSAGE), F.col("from_offset"))
    return rows.select(*_OUT, opened_at.alias("from_offset_opened"))


def delivered_once_more(steps: DataFrame) -> DataFrame:
    """A message that was delivered once more from another place, opened and closed at once: surely
    a duplicate.

    The window lies where a failed message was first, and where the copy is that was sent again.
    """
    again = steps.where(F.col("is_new") & F.col("step").isin("DELIVERED", "SENT_AGAIN")).where(
        F.col("origin_topic").isNotNull()
        & F.col("origin_queue_id").isNotNull()
        & F.col("origin_offset").isNotNull()
    )
    end = F.col("origin_offset") + 1
    cause = F.when(F.col("step") == "DELIVERED", "SEND_BACK").otherwise("SEND_RETRY")
    delivered = again.select(
        "emitter",
        "cluster",
        "broker",
        "group",
        F.col("origin_topic").alias("topic"),
        F.col("origin_queue_id").alias("queue_id"),
        F.col("event_us").alias("opened_us"),
        F.lit(1).alias("revision"),
        cause.alias("basis"),
        cause.alias("cause"),
        F.lit(None).cast("string").alias("client_id"),
        F.lit(None).cast("string").alias("next_client_id"),
        F.col("origin_offset").alias("from_offset"),
        end.alias("to_offset"),
        F.lit(None).cast("long").alias("certain"),
        F.lit(None).cast("long").alias("uncertain"),
        F.col("origin_offset").alias("redelivered_from"),
        end.alias("redelivered_to"),
        F.lit(1).cast("long").alias("redelivered"),
        F.col("event_us").alias("observed_us"),
        "seq",
        F.lit("CLOSED").alias("state"),
        F.lit("AGAIN").alias("told_by"),
        "message_id",
    )
    return as_revisions(delivered)
