"""What opens, confirms and ends a risk of consuming a queue's messages twice, as one ordered list
of events per queue.

Place in the walk: staged facts → risk events, which duplicate_risk folds into windows.

Events: OPENING (a client departed, the broker died, an offset fell), REDELIVERY (a pull brought
messages again), PROGRESS (the group's marks on the queue, which end a window). Invariant: an event
carries only what was known when it was reported. Absent on purpose: PROGRESS of queues on which
nothing is at risk; almost all queues, almost always.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.frames.contract import QUEUE_KEY, QUEUE_PLACE
from pipelines.frames.shocks import broker_died, log_cut, offsets_lost
from pipelines.settings import SECOND_US, SILENCE_US

OVERLAP_US: Final = 30 * SECOND_US
"""A queue that changed hands back within this long, in an unchanged group, had two owners: one
division of the queues gives it to one member, and members divide anew each 20 s.
"""

_PLACE: Final = ("emitter", *QUEUE_PLACE)
_FIELDS: Final[dict[str, str]] = {
    "seq": "long",
    "event_us": "long",
    "type": "string",
    "basis": "string",
    "cause": "string",
    "client_id": "string",
    "next_client_id": "string",
    "from_offset": "long",
    "to_offset": "long",
    "messages": "long",
    "certain": "long",
    "uncertain": "long",
    "committed": "long",
    "pulled": "long",
}


def risk_events(
    *,
    watermarks: DataFrame,
    events: DataFrame,
    samples: DataFrame,
    redeliveries: DataFrame,
    violations: DataFrame,
    lifecycle: DataFrame,
    open_risks: DataFrame,
) -> DataFrame:
    """One row per queue that has events, or a window open at the mark: place, `carried` and
    `events` in order.
    """
    openings = (
        _departures(events, samples)
        .unionByName(_restarts(watermarks, lifecycle))
        .unionByName(_replays(watermarks, lifecycle))
        .unionByName(_falls(violations))
    )
    sparks = openings.unionByName(_again(redeliveries))

    touched = sparks.select(*QUEUE_KEY).unionByName(open_risks.select(*QUEUE_KEY)).distinct()
    progress = _progress(watermarks).join(F.broadcast(touched), on=list(QUEUE_KEY), how="left_semi")
    listed = (
        sparks.unionByName(progress)
        .groupBy(*_PLACE)
        .agg(F.array_sort(F.collect_list(F.struct(*_FIELDS))).alias("events"))
    )
    memory = open_risks.select(*QUEUE_KEY, F.struct(*_carried_window()).alias("carried"))
    return listed.join(F.broadcast(memory), on=list(QUEUE_KEY), how="left")


WINDOW_FIELDS: Final[dict[str, str]] = {
    "opened_us": "long",
    "revision": "int",
    "basis": "string",
    "cause": "string",
    "client_id": "string",
    "next_client_id": "string",
    "from_offset": "long",
    "to_offset": "long",
    "certain": "long",
    "uncertain": "long",
    "redelivered_from": "long",
    "redelivered_to": "long",
    "redelivered": "long",
}


def _carried_window() -> list[Column]:
    names = {
        "opened_us": F.unix_micros("opened_at"),
        "certain": F.col("certain_messages"),
        "uncertain": F.col("uncertain_messages"),
        "redelivered": F.col("redelivered_messages"),
    }
    return [
        names.get(name, F.col(name)).cast(kind).alias(name) for name, kind in WINDOW_FIELDS.items()
    ]


def _departures(events: DataFrame, samples: DataFrame) -> DataFrame:
    """A reader left, expired or lost a queue while more was pulled than committed."""
    gone = events.where(F.col("kind").isin("LEFT", "EXPIRED", "REVOKED"))
    queue = F.col("queue")
    named = gone.withColumn("queue", F.explode("queues")).withColumns(
        {
            "topic": queue["topic"],
            "queue_id": queue["queue_id"],
            "from_offset": queue["committed"],
            "to_offset": queue["pulled"],
        }
    )
    is_crash = (F.col("kind") == "EXPIRED") | F.col("reason").eqNullSafe("CONNECTION_LOST")
    seen = named.withColumn("is_double", _is_double_owner()).where("is_new")
    at_risk = seen.where(F.col("from_offset") < F.col("to_offset"))
    told = _with_sample(at_risk, samples)
    span = F.col("to_offset") - F.col("from_offset")
    # `least` passes over nulls, so what was not told must be kept unknown by hand.
    finished = F.col("sample.finished_count")
    certain = F.when(finished.isNotNull(), F.least(finished, span))
    return _as_events(
        told,
        type=F.lit("OPENING"),
        basis=F.lit("DEPARTURE"),
        cause=F.when(is_crash, "CONSUMER_CRASH")
        .when(F.col("is_double"), "DOUBLE_OWNER")
        .otherwise("HAND_OVER"),
        certain=certain,
        uncertain=F.when(certain.isNotNull(), F.least("sample.held_count", span - certain)),
    )


def _is_double_owner() -> Column:
    """Did the queue change hands before, a moment ago, while the group stayed as it is?

    The first change may be a rebalance; one back within it means that two clients pulled in turn.
    """
    changes = Window.partitionBy(*QUEUE_KEY, "broker_epoch", "generation", "kind").orderBy("seq")
    before_us, before = F.lag("event_us").over(changes), F.lag("client_id").over(changes)
    return (
        (F.col("kind") == "REVOKED")
        & F.coalesce(before != F.col("client_id"), F.lit(False))
        & F.coalesce(F.col("event_us") - before_us <= OVERLAP_US, F.lit(False))
    )


def _with_sample(rows: DataFrame, samples: DataFrame) -> DataFrame:
    """Add the last sample of what the same client held of the same queue, unless it is too old."""
    of_holding = (
        Window.partitionBy(*QUEUE_KEY, "client_id")
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    held = samples.select(
        *QUEUE_KEY,
        "client_id",
        "seq",
        F.struct("event_us", "finished_count", "held_count").alias("told"),
    )
    both = rows.withColumn("is_row", F.lit(True)).unionByName(held, allowMissingColumns=True)
    last = both.withColumn("sample", F.last("told", ignorenulls=True).over(of_holding)).where(
        "is_row"
    )
    age_us = F.col("event_us") - F.col("sample.event_us")
    return last.withColumn("sample", F.when(age_us <= SILENCE_US, F.col("sample"))).drop("told")


def _restarts(watermarks: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """The broker died, or lost its offsets file: what its memory knew beyond its disk may come
    again.
    """
    shocks = lifecycle.where("is_new").where(broker_died() | offsets_lost())
    marked = shocks.select(
        "emitter",
        "seq",
        "event_us",
        F.when(broker_died(), "BROKER_CRASH").otherwise("OFFSET_STORE_LOST").alias("cause"),
    )
    before = watermarks.join(
        F.broadcast(
            shocks.select(
                "emitter",
                F.col("seq").alias("shock_seq"),
                F.col("broker_epoch").alias("shock_epoch"),
            )
        ),
        on="emitter",
        how="inner",
    ).where(F.col("broker_epoch") < F.col("shock_epoch"))
    last = before.groupBy(*_PLACE, "shock_seq").agg(
        F.max_by(
            F.struct(
                "persisted", "committed", "pulled", "min_offset", "last_puller", "is_broadcast"
            ),
            "seq",
        ).alias("last")
    )
    shaken = last.withColumnRenamed("shock_seq", "seq").join(
        F.broadcast(marked), on=["emitter", "seq"], how="inner"
    )
    kept = F.when(
        F.col("cause") == "BROKER_CRASH", F.coalesce("last.persisted", "last.min_offset")
    ).otherwise(F.col("last.min_offset"))
    at_risk = shaken.withColumns(
        {
            "from_offset": kept,
            "to_offset": F.greatest("last.committed", "last.pulled"),
            "client_id": F.col("last.last_puller"),
        }
    ).where(~F.col("last.is_broadcast") & (F.col("from_offset") < F.col("to_offset")))
    return _as_events(at_risk, type=F.lit("OPENING"), basis=F.lit("RESTART"), cause=F.col("cause"))


def _replays(watermarks: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Recovery cut the log below what a group had pulled: those messages are gone, and what their
    producers send again is consumed again.

    The broker tells the marks of such queues between its recovery and its boot.
    """
    cuts = lifecycle.where(log_cut())
    boots = lifecycle.where(F.col("is_new") & (F.col("kind") == "BOOT"))
    starts = cuts.select("emitter", "broker_epoch", "seq", "event_us").join(
        boots.select("emitter", "broker_epoch", F.col("seq").alias("boot_seq")),
        on=["emitter", "broker_epoch"],
        how="inner",
    )
    marks = watermarks.withColumn("mark_seq", F.col("seq")).drop("seq", "event_us", "broker_epoch")
    near = marks.join(F.broadcast(starts), on="emitter", how="inner").where(
        F.col("mark_seq") < F.col("boot_seq")
    )
    known = F.struct("committed", "pulled", "last_puller", "is_broadcast")
    is_before = F.col("mark_seq") < F.col("seq")
    sides = near.groupBy(*_PLACE, "seq", "event_us").agg(
        F.max_by(known, F.when(is_before, F.col("mark_seq"))).alias("last"),
        F.max_by("max_offset", F.when(~is_before, F.col("mark_seq"))).alias("from_offset"),
    )
    at_risk = sides.withColumns(
        {
            "to_offset": F.greatest("last.committed", "last.pulled"),
            "client_id": F.col("last.last_puller"),
        }
    ).where(~F.col("last.is_broadcast") & (F.col("from_offset") < F.col("to_offset")))
    return _as_events(
        at_risk,
        type=F.lit("OPENING"),
        basis=F.lit("RESTART"),
        cause=F.lit("REPLAY_AFTER_TRUNCATION"),
    )


def _falls(violations: DataFrame) -> DataFrame:
    """An accepted report lowered the committed offset, by an operator's reset or for no known
    reason.
    """
    falls = violations.where(F.col("law") == "MONOTONIC").where(
        F.col("cause").isin("RESET", "UNEXPLAINED")
    )
    return _as_events(
        falls.withColumn("event_us", F.unix_micros("observed_at")),
        type=F.lit("OPENING"),
        basis=F.lit("OFFSET_FALL"),
        cause=F.when(F.col("cause") == "RESET", "RESET").otherwise("REWIND"),
        from_offset=F.col("offset"),
        to_offset=F.col("previous_offset"),
    )


def _again(redeliveries: DataFrame) -> DataFrame:
    """A pull brought messages again; `cause` is the best guess, used when no window expected it."""
    is_other_life = F.col("broker_epoch_before") != F.col("broker_epoch")
    is_other_client = ~F.col("client_id").eqNullSafe(F.col("previous_client_id"))
    return _as_events(
        redeliveries.where("is_new"),
        type=F.lit("REDELIVERY"),
        basis=F.lit("REDELIVERY"),
        cause=F.when(is_other_life, "BROKER_CRASH")
        .when(is_other_client, "HAND_OVER")
        .otherwise("REWIND"),
        client_id=F.col("previous_client_id"),
        next_client_id=F.col("client_id"),
        messages=F.col("messages"),
    )


def _progress(watermarks: DataFrame) -> DataFrame:
    return _as_events(watermarks.where("is_new"), type=F.lit("PROGRESS"))


def _as_events(rows: DataFrame, **given: Column) -> DataFrame:
    """The fields of an event, from `given`, from the row, or unknown."""

    own = _OF_PROGRESS if "basis" not in given else _OF_ROW

    def field(name: str, kind: str) -> Column:
        found = F.col(name) if name in own and name in rows.columns else F.lit(None)
        return given.get(name, found).cast(kind).alias(name)

    return rows.select(*_PLACE, *(field(name, kind) for name, kind in _FIELDS.items()))


_OF_ROW: Final = ("seq", "event_us", "client_id", "from_offset", "to_offset")
_OF_PROGRESS: Final = ("seq", "event_us", "committed", "pulled")
