"""State of a group on a broker: its worst queue, in words, with sums that say how many queues they
cover.

Place in the walk: verdicts → gold group_state: a row each ten seconds of data time, and at every
tick at which the state of a queue of the group changed.

Invariant: an unknown lag is left out of the sum and counted in queues - queues_known; it is never
taken as 0.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import GROUP_STATE
from pipelines.frames.consumer_lag import trend_of
from pipelines.frames.contract import as_declared
from pipelines.frames.sentences import messages, or_text, sentence
from pipelines.settings import SECOND_US, Evaluation

PERIOD_US: Final = 10 * SECOND_US
SEVERITY: Final = (
    "OK",
    "BROADCAST",
    "UNKNOWN",
    "SLOW",
    "NO_OFFSET",
    "REWOUND",
    "STALLED",
    "STOPPED",
    "DATA_LOST",
)
"""From harmless to worst."""
_GROUP: Final = ("cluster", "broker", "emitter", "group", "tick_us")


def group_state(shown: DataFrame, evaluation: Evaluation) -> DataFrame:
    """One row per group, broker and tick of the ten-second grid, or at which a queue's state
    changed.
    """
    queues = (
        shown.where("is_evaluated")
        .withColumns(
            {
                "state": _queue_state(),
                "is_known": F.col("lag").isNotNull(),
                "turned": F.col("is_bad") != F.col("was_bad"),
            }
        )
        .withColumn("severity", _severity(F.col("state")))
    )
    worst = F.max_by(
        F.struct("state", "topic", "queue_id", "lag", "time_lag_us"),
        F.struct("severity", "lag", "time_lag_us", "topic", "queue_id"),
    )
    groups = queues.groupBy(*_GROUP).agg(
        worst.alias("worst"),
        F.sum("lag").alias("lag_messages"),
        F.max("time_lag_us").alias("time_lag_us"),
        F.sum("before.lag_messages").alias("lag_before"),
        F.count("*").alias("queues"),
        F.count(F.when(F.col("is_known"), 1)).alias("queues_known"),
        F.count(F.when(F.col("is_bad"), 1)).alias("queues_not_ok"),
        F.max("now.members").alias("members"),
        F.max("now.seq").alias("seq"),
        F.max("turned").alias("turned"),
        F.min("is_complete").alias("is_complete"),
    )
    told = groups.where(F.col("turned") | (F.col("tick_us") % PERIOD_US == 0))
    change = F.when(
        F.col("is_complete"),
        F.expr(f"(lag_messages - lag_before) * 60000 div {evaluation.window_ms}"),
    )
    return as_declared(
        told.withColumns(
            {
                "observed_us": F.col("tick_us"),
                "state": F.col("worst.state"),
                "reason": _reason(),
                "time_lag_ms": F.expr("time_lag_us div 1000"),
                "trend": trend_of(change, F.col("lag_messages")),
            }
        ),
        GROUP_STATE,
    )


def _queue_state() -> Column:
    return (
        F.when(F.col("is_bad") & (F.col("rule") != "OK"), F.col("rule"))
        .when(F.col("rule") == "BROADCAST", "BROADCAST")
        .when(F.col("lag").isNull(), "UNKNOWN")
        .otherwise("OK")
    )


def _severity(state: Column) -> Column:
    ranks = enumerate(SEVERITY)
    return reduce(
        lambda made, rank: made.when(state == rank[1], rank[0]), ranks, F.when(F.lit(False), 0)
    )


def _reason() -> Column:
    behind = sentence(
        messages(F.col("lag_messages")),
        " behind on ",
        F.col("queues_known"),
        " of ",
        F.col("queues"),
        " queues",
    )
    place = sentence(F.col("worst.topic"), " queue ", F.col("worst.queue_id"))
    worst_behind = F.when(
        F.col("worst.lag").isNotNull(), sentence(", ", messages(F.col("worst.lag")), " behind")
    )
    worst = sentence(
        F.lower("worst.state"),
        ": ",
        place,
        or_text(worst_behind, ""),
        "; ",
        F.col("queues_not_ok"),
        " of ",
        F.col("queues"),
        " queues are not OK",
    )
    return (
        F.when(F.col("queues_not_ok") > 0, worst)
        .when(
            F.col("worst.state") == "BROADCAST", "broadcasting: each client keeps its own offsets"
        )
        .when(F.col("worst.state") == "UNKNOWN", sentence("no offset on ", place, "; ", behind))
        .otherwise(behind)
    )
