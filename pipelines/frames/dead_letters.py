"""Messages that ended in a dead-letter queue, with the moment their trouble began.

Place in the walk: staged retry_dlq_flow → gold dead_letters. The cycle brings the earlier SENT_BACK
rows of exactly the messages that were dead-lettered in it, at most RETRY_SPAN_US old: sixteen tries
at the default levels take 4 h 46 min.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import DEAD_LETTERS
from pipelines.frames.contract import as_declared
from pipelines.settings import RETRY_SPAN_US


def dead_letters(steps: DataFrame) -> DataFrame:
    """One row per message that was dead-lettered."""
    span = (
        Window.partitionBy("emitter", "group", "message_id")
        .orderBy("event_us")
        .rangeBetween(-RETRY_SPAN_US, Window.currentRow)
    )
    failed_us = F.when(F.col("step") == "SENT_BACK", F.col("event_us"))
    traced = steps.withColumn("first_failed_us", F.min(failed_us).over(span))
    has_identity = F.col("message_id").isNotNull()
    letters = traced.where(F.col("is_new") & (F.col("step") == "DEAD_LETTERED"))
    return as_declared(
        letters.withColumns(
            {
                "observed_us": F.col("event_us"),
                "first_failed_at": F.when(has_identity, F.timestamp_micros("first_failed_us")),
            }
        ),
        DEAD_LETTERS,
    )
