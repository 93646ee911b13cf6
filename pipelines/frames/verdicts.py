"""Hysteresis: from the rule that holds at each tick to the state that is shown, with memory across
cycles.

Place in the walk: judged queues and the windows open at the mark → verdicts, one row per queue and
new tick that counts. stalled_windows makes revisions of them, group_state sums them up.

Invariant: a state is entered when the rule fired on two evaluations in a row and left on the first
clean one; the first evaluation after a silence keeps what was shown before it. Everything before
the cut comes from the open windows, so a verdict does not depend on where a cycle was cut.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.frames.contract import QUEUE_KEY

HEALTHY = ("OK", "BROADCAST")


def verdicts(judged: DataFrame, open_stalls: DataFrame) -> DataFrame:
    """Judged rows of new ticks with `is_bad` (shown as not OK) and `was_bad`; gone queues are
    clean.
    """
    in_order = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    with_previous = judged.withColumn(
        "fires", F.when(F.col("is_evaluated"), ~F.col("rule").isin(*HEALTHY))
    ).withColumn("fired_before", F.lag("fires").over(in_order))
    counting = with_previous.where("is_new").where(F.col("is_evaluated") | F.col("is_gone"))
    carried = open_stalls.select(*QUEUE_KEY, F.struct(*_CARRIED).alias("carried"))
    up_to_now = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    decided = (
        F.when(~F.coalesce(F.col("fires"), F.lit(False)), False)
        .when(F.col("fired_before").isNotNull(), F.col("fired_before"))
        .otherwise(None)  # First evaluation after a silence: as it was.
    )
    was_open = F.col("carried").isNotNull()
    return (
        counting.join(F.broadcast(carried), on=list(QUEUE_KEY), how="left")
        .withColumn("decided", decided)
        .withColumn(
            "is_bad", F.coalesce(F.last("decided", ignorenulls=True).over(up_to_now), was_open)
        )
        .withColumn("was_bad", F.coalesce(F.lag("is_bad").over(in_order), was_open))
        .drop("decided", "fires", "fired_before")
    )


_CARRIED = (
    "window_id",
    "revision",
    "opened_at",
    "rule",
    "kind",
    "client_id",
    "head_message_id",
    "head_since",
    "stack",
    "seq",
)
