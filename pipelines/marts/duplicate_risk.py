"""Intervals in which messages of a queue were at risk of being consumed twice, by cause, with what
came of it.

Place in the walk: risk events, exposed queues and redelivered retries → gold
duplicate_risk_windows.

Three sources, told apart by `basis`: what an event put at risk (DEPARTURE, RESTART, OFFSET_FALL,
and REDELIVERY that nobody expected), what is at risk as long as a head is frozen (EXPOSURE, judged
on ticks), and messages that failed and were delivered once more (SEND_BACK). Invariant: predicted
and observed stand side by side in one row; an observed re-delivery comes from the broker's own
redeliveries, never from a prediction.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import DUPLICATE_RISK_WINDOWS
from pipelines.marts.contract import QUEUE_KEY, QUEUE_PLACE, as_declared, window_id
from pipelines.marts.group_state import PERIOD_US
from pipelines.marts.risk_events import WINDOW_FIELDS
from pipelines.marts.risk_fold import revisions_of

_PLACE = ("emitter", *QUEUE_PLACE)
_OUT = (*_PLACE, *WINDOW_FIELDS, "observed_us", "seq", "state", "told_by", "message_id")


def duplicate_risk_windows(revisions: DataFrame) -> DataFrame:
    """One row per revision of an interval in which messages of a queue were at risk of double
    consumption. `revisions`: the union of `from_events`, `exposures` and `sent_back`.
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
    return as_declared(rows.withColumn("evidence", _evidence()), DUPLICATE_RISK_WINDOWS)


def from_events(events: DataFrame) -> DataFrame:
    """Revisions of what an event put at risk, folded per queue."""
    told = events.withColumn("one", F.explode(revisions_of(F.col("carried"), F.col("events"))))
    return told.select(*_PLACE, "one.*", F.lit(None).cast("string").alias("message_id")).select(
        *_OUT, _id_part()
    )


def _id_part() -> Column:
    """Windows of retries open at the same instant on the same queue: their offset tells them
    apart.
    """
    return F.when(F.col("basis") == "SEND_BACK", F.col("from_offset")).alias("from_offset_opened")


def sent_back(steps: DataFrame) -> DataFrame:
    """A failed message that was delivered again: opened and closed at once, a duplicate for
    certain.
    """
    again = steps.where(F.col("is_new") & (F.col("step") == "DELIVERED")).where(
        F.col("origin_topic").isNotNull()
        & F.col("origin_queue_id").isNotNull()
        & F.col("origin_offset").isNotNull()
    )
    end = F.col("origin_offset") + 1
    return again.select(
        "emitter",
        "cluster",
        "broker",
        "group",
        F.col("origin_topic").alias("topic"),
        F.col("origin_queue_id").alias("queue_id"),
        F.col("event_us").alias("opened_us"),
        F.lit(1).alias("revision"),
        F.lit("SEND_BACK").alias("basis"),
        F.lit("SEND_BACK").alias("cause"),
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
    ).select(*_OUT, _id_part())


def exposures(shown: DataFrame, open_exposures: DataFrame) -> DataFrame:
    """While commits stand still and messages are pulled beyond them: a crash now would repeat
    [committed, pulled).

    Opened at the first such tick, revised when the range has changed on the ten-second grid, closed
    when it is over.
    """
    carried = open_exposures.select(
        *QUEUE_KEY,
        F.struct(
            F.unix_micros("opened_at").alias("opened_us"),
            "revision",
            "from_offset",
            "to_offset",
            "client_id",
        ).alias("exposed"),
    )
    of_queue = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    is_exposed = (
        F.col("is_bad")
        & F.col("rule").isin("STALLED", "STOPPED")
        & F.coalesce(F.col("now.pulled") > F.col("now.committed"), F.lit(False))
    )
    ticks = (
        shown.join(F.broadcast(carried), on=list(QUEUE_KEY), how="left")
        .withColumn("is_exposed", is_exposed)
        .withColumn(
            "was_exposed",
            F.coalesce(F.lag("is_exposed").over(of_queue), F.col("exposed").isNotNull()),
        )
    )
    begins = F.col("is_exposed") & ~F.col("was_exposed")
    ends = ~F.col("is_exposed") & F.col("was_exposed")
    goes_on = F.col("is_exposed") & F.col("was_exposed") & (F.col("tick_us") % PERIOD_US == 0)
    points = ticks.where(begins | ends | goes_on).withColumns(
        {
            "island": F.sum(F.when(begins, 1).otherwise(0)).over(of_queue),
            "range": F.when(F.col("is_exposed"), F.struct("now.committed", "now.pulled")),
        }
    )
    of_island = Window.partitionBy(*QUEUE_KEY, "island").orderBy("tick_us")
    carried_range = F.when(
        (F.col("island") == 0) & F.col("exposed").isNotNull(),
        F.struct(
            F.col("exposed.from_offset").alias("committed"),
            F.col("exposed.to_offset").alias("pulled"),
        ),
    )
    before = F.coalesce(
        F.last("range", ignorenulls=True).over(
            of_island.rowsBetween(Window.unboundedPreceding, -1)
        ),
        carried_range,
    )
    revised = points.withColumn("range_before", before).where(
        F.col("range").isNull() | ~F.col("range").eqNullSafe(F.col("range_before"))
    )
    is_carried = (F.col("island") == 0) & F.col("exposed").isNotNull()
    last = F.coalesce("range", "range_before")
    return revised.select(
        *_PLACE,
        F.when(is_carried, F.col("exposed.opened_us"))
        .otherwise(F.first("tick_us").over(of_island))
        .alias("opened_us"),
        (
            F.when(is_carried, F.col("exposed.revision")).otherwise(0)
            + F.row_number().over(of_island)
        )
        .cast("int")
        .alias("revision"),
        F.lit("EXPOSURE").alias("basis"),
        F.lit("CONSUMER_CRASH").alias("cause"),
        F.coalesce("now.last_puller", "exposed.client_id").alias("client_id"),
        F.lit(None).cast("string").alias("next_client_id"),
        last["committed"].alias("from_offset"),
        last["pulled"].alias("to_offset"),
        F.lit(None).cast("long").alias("certain"),
        F.when(F.col("is_exposed"), F.col("sample.held_count")).cast("long").alias("uncertain"),
        F.lit(None).cast("long").alias("redelivered_from"),
        F.lit(None).cast("long").alias("redelivered_to"),
        F.lit(0).cast("long").alias("redelivered"),
        F.col("tick_us").alias("observed_us"),
        F.coalesce("now.seq", "carried.seq").alias("seq"),
        F.when(F.col("is_exposed"), "OPEN").otherwise("CLOSED").alias("state"),
        F.when(F.col("is_exposed"), "OPENED").otherwise("PASSED").alias("told_by"),
        F.lit(None).cast("string").alias("message_id"),
    ).select(*_OUT, _id_part())


def _evidence() -> Column:
    span = F.concat(
        F.lit("["),
        F.col("from_offset").cast("string"),
        F.lit(", "),
        F.col("to_offset").cast("string"),
        F.lit(")"),
    )
    client = F.coalesce(F.col("client_id"), F.lit("an unknown client"))
    count = (F.col("to_offset") - F.col("from_offset")).cast("string")
    basis, cause = F.col("basis"), F.col("cause")
    opened = (
        F.when(
            basis == "DEPARTURE",
            F.concat(
                client,
                F.when(cause == "CONSUMER_CRASH", " was lost with ").otherwise(
                    " gave the queue up with "
                ),
                count,
                F.lit(" messages pulled and not committed, "),
                span,
            ),
        )
        .when(
            (basis == "RESTART") & (cause == "BROKER_CRASH"),
            F.concat(
                F.lit("the broker died when its disk knew offset "),
                F.col("from_offset").cast("string"),
                F.lit(" and the group was at "),
                F.col("to_offset").cast("string"),
            ),
        )
        .when(
            basis == "RESTART",
            F.concat(F.lit("the broker's offsets file was damaged; at risk is "), span),
        )
        .when(
            basis == "OFFSET_FALL",
            F.concat(
                F.when(cause == "RESET", "an operator reset the commit offset from ").otherwise(
                    "the commit offset fell for no known reason from "
                ),
                F.col("to_offset").cast("string"),
                F.lit(" to "),
                F.col("from_offset").cast("string"),
            ),
        )
        .when(
            basis == "EXPOSURE",
            F.concat(
                F.lit("commits stand still: a crash of "), client, F.lit(" now would repeat "), span
            ),
        )
        .when(
            basis == "SEND_BACK",
            F.concat(
                F.lit("message "),
                F.coalesce("message_id", F.lit("?")),
                F.lit(" failed and was delivered again"),
            ),
        )
        .otherwise(F.concat(F.lit("pulls went back below what "), client, F.lit(" had pulled")))
    )
    seen = F.when(
        (F.col("redelivered") > 0) & (basis != "SEND_BACK"),
        F.concat(
            F.lit("; "),
            F.col("redelivered").cast("string"),
            F.lit(" messages of ["),
            F.col("redelivered_from").cast("string"),
            F.lit(", "),
            F.col("redelivered_to").cast("string"),
            F.lit(") were delivered again to "),
            F.coalesce(F.col("next_client_id"), F.lit("an unknown client")),
        ),
    )
    end = F.when(F.col("told_by") == "TAKEN_OVER", "; a later event took over").when(
        (F.col("state") == "CLOSED") & (F.col("redelivered") == 0), "; nothing came again"
    )
    return F.concat_ws("", opened, seen, end)
