"""The grid of evaluation: at which moments each emitter can be judged.

Place in the walk: cuts and activity → ticks, on which queue_states lays the rows.

Invariant: ticks are multiples of the slide in data time, so they do not depend on where a cycle was
cut; a tick inside an emitter's silence is not `is_alive`, and nothing is concluded on it. Absent on
purpose: the wall clock.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.settings import SILENCE_US, Evaluation


def evaluation_ticks(
    cuts: DataFrame, activity: DataFrame, boots: DataFrame, evaluation: Evaluation
) -> DataFrame:
    """One row per emitter and tick: `is_new`, `is_alive`, and `alive_since_us` (0: longer than the
    look-back).

    cuts: emitter, time_from_us, time_to_us. activity: emitter, second_us. boots: emitter, event_us.
    """
    first = activity.groupBy("emitter").agg(F.min("second_us").alias("first_us"))
    grid = (
        cuts.join(F.broadcast(first), on="emitter", how="inner")
        .withColumn("from_us", F.greatest("time_from_us", "first_us"))
        .select(
            "emitter",
            "time_from_us",
            F.explode(_multiples(evaluation)).alias("us"),
        )
    )
    marks = _session_marks(cuts, activity, boots, evaluation)
    ticks = grid.select(
        "emitter",
        "us",
        F.lit(2).alias("rank"),
        (F.col("us") > F.col("time_from_us")).alias("is_new"),
        F.lit(None).cast("long").alias("active_us"),
        F.lit(None).cast("long").alias("begun_us"),
    )
    up_to_now = (
        Window.partitionBy("emitter")
        .orderBy("us", "rank")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    last_active = F.last("active_us", ignorenulls=True).over(up_to_now)
    last_begun = F.last("begun_us", ignorenulls=True).over(up_to_now)
    return (
        marks.unionByName(ticks)
        .withColumns({"last_active_us": last_active, "alive_since_us": last_begun})
        .where(F.col("rank") == 2)
        .select(
            "emitter",
            F.col("us").alias("tick_us"),
            "is_new",
            F.coalesce(F.col("us") - F.col("last_active_us") <= SILENCE_US, F.lit(False)).alias(
                "is_alive"
            ),
            F.coalesce("alive_since_us", F.lit(0)).alias("alive_since_us"),
        )
    )


def _multiples(evaluation: Evaluation) -> Column:
    """Multiples of the slide from a window and two slides before the cut to its end."""
    slide = evaluation.slide_us
    back = evaluation.window_us + 2 * slide
    begin = F.expr(f"(from_us - {back}) div {slide} * {slide}")
    end = F.expr(f"time_to_us div {slide} * {slide}")
    return F.when(begin <= end, F.sequence(begin, end, F.lit(slide))).otherwise(
        F.array().cast("array<bigint>")
    )


def _session_marks(
    cuts: DataFrame, activity: DataFrame, boots: DataFrame, evaluation: Evaluation
) -> DataFrame:
    """Seconds in which an emitter was active; `begun_us` where a life or a life after silence
    begins.
    """
    in_order = Window.partitionBy("emitter").orderBy("second_us")
    frame_begin = F.col("time_from_us") - evaluation.look_back_us
    after_silence = F.col("second_us") - F.lag("second_us").over(in_order) > SILENCE_US
    # Without a predecessor in the frame it is a beginning when the frame reaches back far enough to
    # say so.
    alone = F.lag("second_us").over(in_order).isNull() & (
        F.col("second_us") - frame_begin > SILENCE_US
    )
    seconds = activity.join(F.broadcast(cuts), on="emitter", how="inner").select(
        "emitter",
        F.col("second_us").alias("us"),
        F.lit(0).alias("rank"),
        F.lit(False).alias("is_new"),
        F.col("second_us").alias("active_us"),
        F.when(F.coalesce(after_silence, F.lit(False)) | alone, F.col("second_us")).alias(
            "begun_us"
        ),
    )
    starts = boots.select(
        "emitter",
        F.col("event_us").alias("us"),
        F.lit(1).alias("rank"),
        F.lit(False).alias("is_new"),
        F.col("event_us").alias("active_us"),
        F.col("event_us").alias("begun_us"),
    )
    return seconds.unionByName(starts)
