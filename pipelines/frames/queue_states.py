"""What can be seen of every queue at every tick: its state now, a window ago, and in between.

Place in the walk: staged rows and ticks → observed queues, which queue_rules judges.

Invariant: a tick sees the last row at or before it, and nothing later; a queue whose last row is
older than the reporting period is not evaluated. Absent on purpose: verdicts.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.window import WindowSpec

from pipelines.frames.contract import QUEUE_KEY, QUEUE_PLACE
from pipelines.settings import SECOND_US, SILENCE_US, Evaluation

REWIND_MEMORY_US = 3600 * SECOND_US
"""A fall of the committed offset is remembered this long, or until it is regained or reset by an
operator.
"""

_PLACE = ("emitter", *QUEUE_PLACE)
_STATE = (
    "event_us",
    "seq",
    "broker_epoch",
    "pulled",
    "processed",
    "committed",
    "committed_state",
    "store_us_at_committed",
    "min_offset",
    "max_offset",
    "last_puller",
    "lock_holder",
    "last_pull_us",
    "last_commit_us",
    "members",
    "is_broadcast",
    "lag_messages",
    "reports_so_far",
)
_SAMPLE = (
    "event_us",
    "client_id",
    "held_count",
    "head_message_id",
    "head_since",
    "locked",
    "client_pull_us",
    "stack",
)


def observed_queues(
    *,
    watermarks: DataFrame,
    samples: DataFrame,
    falls: DataFrame,
    ticks: DataFrame,
    known: DataFrame,
    evaluation: Evaluation,
) -> DataFrame:
    """One row per queue and tick with `now`, `before` (a window ago), `sample` and `high` (offset
    to regain).

    falls: QUEUE_KEY, event_us, seq, previous_offset, path. known: places of queues that must be
    looked at in any case.
    """
    counted = watermarks.withColumn(
        "reports_so_far", F.sum("reports").over(_up_to_now("event_us", "seq"))
    )
    states = counted.select(
        *_PLACE, F.col("event_us").alias("us"), "seq", F.struct(*_STATE).alias("state")
    )
    places = states.select(*_PLACE).unionByName(known.select(*_PLACE)).distinct()
    held = samples.where(~F.col("dropped")).select(
        *QUEUE_KEY, F.col("event_us").alias("us"), "seq", F.struct(*_SAMPLE).alias("sample")
    )
    points = places.join(F.broadcast(ticks), on="emitter", how="inner").withColumns(
        {"us": F.col("tick_us"), "rank": F.lit(1)}
    )
    facts = (
        states.drop("cluster", "broker")
        .unionByName(held, allowMissingColumns=True)
        .unionByName(_highs(falls), allowMissingColumns=True)
        .withColumn("rank", F.lit(0))
    )
    now = _up_to_now("us", "rank", "seq")
    seen = (
        points.unionByName(facts, allowMissingColumns=True)
        .withColumns(
            {
                "now": F.last("state", ignorenulls=True).over(now),
                "sample": F.last("sample", ignorenulls=True).over(now),
                "high": F.last("high", ignorenulls=True).over(now),
            }
        )
        .where(F.col("rank") == 1)
    )
    return _with_window(_fresh_only(seen), evaluation).select(
        *_PLACE,
        "tick_us",
        "is_new",
        "is_evaluated",
        "is_gone",
        "is_complete",
        "now",
        "before",
        "sample",
        "high",
        "lag_least",
        "committed_least",
        "committed_most",
        "committed_midway",
    )


def falls_of(violations: DataFrame) -> DataFrame:
    """Falls of committed offsets, from the rows of offset_violations."""
    return violations.where(F.col("law") == "MONOTONIC").select(
        *QUEUE_KEY,
        F.unix_micros("observed_at").alias("event_us"),
        "seq",
        "previous_offset",
        "path",
    )


def _highs(falls: DataFrame) -> DataFrame:
    """Per fall of a committed offset: the offset to regain; null after an operator's reset."""
    of_key = Window.partitionBy(*QUEUE_KEY).orderBy("event_us", "seq")
    resets = F.sum(F.when(F.col("path") == "RESET", 1).otherwise(0)).over(of_key)
    since_reset = (
        Window.partitionBy(*QUEUE_KEY, "reset_number")
        .orderBy("event_us")
        .rangeBetween(-REWIND_MEMORY_US, Window.currentRow)
    )
    high = F.max(F.when(F.col("path") != "RESET", F.col("previous_offset"))).over(since_reset)
    return (
        falls.withColumn("reset_number", resets)
        .withColumn("offset", high)
        .select(
            *QUEUE_KEY,
            F.col("event_us").alias("us"),
            "seq",
            F.struct("event_us", "offset").alias("high"),
        )
    )


def _fresh_only(seen: DataFrame) -> DataFrame:
    """Forget what is too old to speak of now, and tell the silent queue from the gone one."""
    age = F.col("tick_us") - F.col("now.event_us")
    is_fresh = F.coalesce(age <= SILENCE_US, F.lit(False))
    # Everything that exists is reported within SILENCE_US of a start: what is not, is no more.
    had_its_chance = F.col("tick_us") - F.col("alive_since_us") > SILENCE_US
    sample_age = F.col("tick_us") - F.col("sample.event_us")
    high_age = F.col("tick_us") - F.col("high.event_us")
    return seen.withColumns(
        {
            "is_evaluated": F.col("is_alive") & is_fresh,
            "is_gone": F.col("is_alive") & ~is_fresh & had_its_chance,
            "sample": F.when(sample_age <= SILENCE_US, F.col("sample")),
            "high": F.when(high_age <= REWIND_MEMORY_US, F.col("high.offset")),
        }
    )


def _with_window(seen: DataFrame, evaluation: Evaluation) -> DataFrame:
    """Add what the window before each tick tells; it is complete when every tick of it was
    evaluated.
    """
    steps = evaluation.ticks_per_window
    in_order = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    window = in_order.rowsBetween(-steps, Window.currentRow)
    evaluated = F.when(F.col("is_evaluated"), 1)

    def while_evaluated(name: str) -> Column:
        return F.when(F.col("is_evaluated"), F.col(f"now.{name}"))

    return seen.withColumns(
        {
            "is_complete": F.count(evaluated).over(window) == steps + 1,
            "before": F.lag("now", steps).over(in_order),
            "committed_midway": F.lag("now.committed", steps // 2).over(in_order),
            "lag_least": F.min(while_evaluated("lag_messages")).over(window),
            "committed_least": F.min(while_evaluated("committed")).over(window),
            "committed_most": F.max(while_evaluated("committed")).over(window),
        }
    )


def _up_to_now(*order: str) -> WindowSpec:
    return (
        Window.partitionBy(*QUEUE_KEY)
        .orderBy(*order)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
