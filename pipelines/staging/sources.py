"""Bronze tables cleaned one to one: times as whole microseconds, and the plain consequences of a
row.

Place in the walk: between bronze and the marts. No joins, no windows, no row dropped or added.

Invariant: every staged frame has `event_us` (whole number, so that no sum depends on rounding) and
`is_new`: does the row belong to this cycle's cut, or to the look-back before it? Absent on purpose:
meaning that needs a second row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

COMMON = ("cluster", "broker", "broker_epoch", "emitter", "seq", "event_us", "is_new")


def stage_group_watermarks(raw: DataFrame) -> DataFrame:
    """State of a group on a queue, with its lag and time lag; null where one is unknown."""
    state = F.col("committed_state")
    is_broadcast = F.coalesce(F.col("message_model") == "BROADCASTING", F.lit(False))
    waited_us = F.greatest(_us("event_time") - _us("store_time_at_committed"), F.lit(0))
    lag = F.when(~is_broadcast & (state != "NONE"), F.col("max_offset") - F.col("committed"))
    time_lag_us = (
        F.when(is_broadcast, None)
        .when(state.isin("EXACT", "UNREADABLE"), waited_us)
        .when(state == "AT_END", 0)
    )
    return raw.select(
        *_common(),
        "group",
        "topic",
        "queue_id",
        "pulled",
        "processed",
        "committed",
        "persisted",
        "committed_state",
        _us("store_time_at_committed").alias("store_us_at_committed"),
        "min_offset",
        "max_offset",
        "last_puller",
        "lock_holder",
        "last_pull_time",
        "last_commit_time",
        _us("last_pull_time").alias("last_pull_us"),
        _us("last_commit_time").alias("last_commit_us"),
        "reports",
        "members",
        is_broadcast.alias("is_broadcast"),
        lag.alias("lag_messages"),
        time_lag_us.alias("time_lag_us"),
    )


def stage_consume_offsets(raw: DataFrame) -> DataFrame:
    """An offset report."""
    return raw.select(
        *_common(),
        "group",
        "topic",
        "queue_id",
        "offset",
        "previous_offset",
        "path",
        "trigger",
        "client_id",
        "accepted",
        "min_offset",
        "max_offset",
    )


def stage_rebalance_events(raw: DataFrame) -> DataFrame:
    """A change of membership, subscription or ownership, with the sizes before and after."""
    return raw.select(
        *_common(),
        "group",
        "client_id",
        "kind",
        "inferred",
        "generation",
        F.size("before").alias("members_before"),
        F.size("after").alias("members_after"),
        "queues",
        "reason",
    )


def stage_client_windows(raw: DataFrame) -> DataFrame:
    """What a client holds of one queue."""
    return raw.select(
        *_common(),
        "client_id",
        "group",
        "topic",
        "queue_id",
        "held_count",
        "finished_count",
        "head_message_id",
        "head_since",
        "locked",
        "dropped",
        _us("last_pull_time").alias("client_pull_us"),
        "stack",
    )


def stage_retry_dlq_flow(raw: DataFrame) -> DataFrame:
    """A step of a failed message."""
    return raw.select(
        *_common(),
        "message_id",
        "origin_topic",
        "origin_queue_id",
        "origin_offset",
        "group",
        "reconsume_times",
        "step",
        "reason",
    )


def stage_redeliveries(raw: DataFrame) -> DataFrame:
    """A pull below the group's pulled mark; messages are the delivered ones when told, else the
    span.
    """
    span = F.col("to_offset") - F.col("from_offset")
    return raw.select(
        *_common(),
        "group",
        "topic",
        "queue_id",
        "from_offset",
        "to_offset",
        "client_id",
        "previous_client_id",
        "broker_epoch_before",
        F.coalesce("delivered_count", span).alias("messages"),
    )


def stage_lifecycle(raw: DataFrame) -> DataFrame:
    """A change of state of the broker process."""
    return raw.select(*_common(), "kind", "clean", "truncated_from", "truncated_to", "detail")


def stage_shipments(raw: DataFrame) -> DataFrame:
    """A shipped run of rows, under the name of the emitter whose rows they are."""
    return raw.select(
        "cluster",
        F.regexp_replace("emitter", "/shipper$", "").alias("emitter"),
        "seq_from",
        "seq_to",
        _us("event_time_to").alias("event_us_to"),
        "is_new",
    )


def _common() -> list[Column]:
    return [_us("event_time").alias(name) if name == "event_us" else F.col(name) for name in COMMON]


def _us(name: str) -> Column:
    return F.unix_micros(F.col(name))
