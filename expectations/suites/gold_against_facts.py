"""Checks gold rows against their source facts, and offset reports against earlier ones.

A fault in a mart shows here as a disagreement: each law looks at bronze and at gold of the same
cycles, and computes nothing the way the mart does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import polars as pl

from expectations.check import Check, SetLaw, Severity
from pipelines.staging.facts import SHIPPER_SUFFIX

QUEUE: Final = ("cluster", "broker", "group", "topic", "queue_id")
FACT: Final = ("emitter", "seq")
PROCESSED_LATE_S: Final = 20
"""Three samples of what clients hold, and a while."""
PROJECTED: Final = (
    *("committed", "persisted", "pulled", "processed", "min_offset", "max_offset"),
    *("last_commit_time", "last_pull_time", "last_puller"),
)
"""Columns that consumer_lag takes from its row of group_watermarks as they are."""

NEW_LIVES: Final = (
    *("BOOT", "RECOVERY", "ROLE_CHANGE", "SPOOL_LOSS"),
    *("TOPIC_GONE", "GROUP_GONE", "GROUP_DELETED"),
)
"""Kinds of lifecycle behind which marks may begin anew."""

Frames = Mapping[str, pl.DataFrame]


def falls(reports: pl.DataFrame) -> pl.DataFrame:
    """Accepted reports that are lower than the one before them in the order of seq, or than what
    the broker says it held.

    By seq and not by time: equal times and a clock that was set back would make false falls. A
    restart answers from the offsets file, a deleted offset from nothing: in neither case is a
    report lower than what the broker held, and gold need not have it (`starts_anew`).
    """
    over = [*QUEUE, "emitter"]
    before = reports.filter("accepted").with_columns(
        pl.col("offset").shift(1).over(over, order_by="seq").alias("offset_before"),
        pl.col("broker_epoch").shift(1).over(over, order_by="seq").alias("epoch_before"),
    )
    is_below_held = (pl.col("offset") < pl.col("previous_offset")).fill_null(value=False)
    starts_anew = ~is_below_held & (
        (pl.col("broker_epoch") != pl.col("epoch_before")).fill_null(value=False)
        | (pl.col("path") == "RESTORE")
        | pl.col("previous_offset").is_null()
    )
    return before.filter(
        (pl.col("offset") < pl.col("offset_before")).fill_null(value=False) | is_below_held
    ).with_columns(starts_anew.alias("starts_anew"))


def unexplained_falls(frames: Frames) -> pl.DataFrame:
    """Falls that neither the report itself nor gold accounts for, of those that a broker reported:
    an observer cannot know by whose hand an offset fell.
    """
    known = frames["offset_violations"]
    explained = known.filter((pl.col("law") == "MONOTONIC") & pl.col("explained"))
    open_falls = falls(frames["consume_offsets"]).filter(
        ~pl.col("starts_anew") & ~pl.col("path").is_in(["RESET", "OBSERVED"])
    )
    return open_falls.join(explained, on=FACT, how="anti")


def falls_not_in_gold(frames: Frames) -> pl.DataFrame:
    """Falls that gold has overlooked."""
    missing = falls(frames["consume_offsets"]).filter(~pl.col("starts_anew"))
    return missing.join(frames["offset_violations"], on=FACT, how="anti")


def lag_against_watermarks(frames: Frames) -> pl.DataFrame:
    """Rows of lag that say another thing than their row of group_watermarks, or have none."""
    facts = frames["group_watermarks"].select(
        *FACT,
        pl.lit(value=True).alias("is_reported"),
        *(pl.col(name).alias(f"reported_{name}") for name in PROJECTED),
    )
    joined = frames["consumer_lag"].join(facts, on=FACT, how="left")
    differs = [pl.col(name).ne_missing(pl.col(f"reported_{name}")) for name in PROJECTED]
    return joined.filter(pl.col("is_reported").is_null() | pl.any_horizontal(differs))


def watermarks_without_lag(frames: Frames) -> pl.DataFrame:
    """Rows of group_watermarks of which gold has no lag."""
    return frames["group_watermarks"].join(frames["consumer_lag"], on=FACT, how="anti")


def committed_beyond_processed(frames: Frames) -> pl.DataFrame:
    """Rows in which what was committed some time ago has still not been processed.

    Clients report what they have finished each few seconds and commits are reported at once, so an
    offset is compared with what is reported of it PROCESSED_LATE_S later. Of another life of the
    broker, or behind an offset that was set back, nothing can be said.
    """
    rows = frames["group_watermarks"].drop_nulls(["processed", "committed"]).sort("event_time")
    by = [*QUEUE, "emitter", "broker_epoch", "last_puller"]
    before = rows.select(
        *by,
        (pl.col("event_time") + timedelta(seconds=PROCESSED_LATE_S)).alias("event_time"),
        pl.col("committed").alias("committed_before"),
    )
    joined = rows.join_asof(before, on="event_time", by=by, check_sortedness=False)
    still_there = pl.col("committed") >= pl.col("committed_before")
    return joined.filter(still_there & (pl.col("committed_before") > pl.col("processed")))


def ends_that_fall(frames: Frames) -> pl.DataFrame:
    """Watermarks by which a queue has fewer messages than in the row before, though its broker
    lives on: neither a recovery nor the end of a topic lies between the two.
    """
    over = [*QUEUE, "emitter", "broker_epoch"]
    fallen = _falls_of(frames["group_watermarks"], "max_offset", over)
    return _without_a_life_between(fallen, frames["lifecycle"])


def marks_that_fall(frames: Frames) -> pl.DataFrame:
    """Watermarks by which a group has committed less than in the row before, though its broker
    lives on, and nobody has reported a lower offset, reset it, or ended the group or the topic.
    """
    over = [*QUEUE, "emitter", "broker_epoch"]
    fallen = _falls_of(frames["group_watermarks"], "committed", over)
    reports = frames["consume_offsets"].select(
        *QUEUE,
        "emitter",
        pl.col("seq").alias("reported_seq"),
        pl.col("offset").alias("reported_offset"),
        pl.col("path").alias("reported_path"),
    )
    accounted = fallen.join(reports, on=[*QUEUE, "emitter"]).filter(
        pl.col("reported_seq").is_between("seq_before", "seq")
        & ((pl.col("reported_offset") < pl.col("before")) | (pl.col("reported_path") == "RESET"))
    )
    unexplained = fallen.join(accounted, on=FACT, how="anti")
    return _without_a_life_between(unexplained, frames["lifecycle"])


def _falls_of(rows: pl.DataFrame, mark: str, over: list[str]) -> pl.DataFrame:
    known = rows.drop_nulls(mark).with_columns(
        pl.col(mark).shift(1).over(over, order_by="seq").alias("before"),
        pl.col("seq").shift(1).over(over, order_by="seq").alias("seq_before"),
    )
    return known.filter((pl.col(mark) < pl.col("before")).fill_null(value=False))


def _without_a_life_between(fallen: pl.DataFrame, lifecycle: pl.DataFrame) -> pl.DataFrame:
    turns = lifecycle.filter(pl.col("kind").is_in(NEW_LIVES)).select(
        "emitter", pl.col("seq").alias("turn_seq")
    )
    turned = fallen.join(turns, on="emitter").filter(
        pl.col("turn_seq").is_between("seq_before", "seq")
    )
    return fallen.join(turned, on=FACT, how="anti")


def shipments_without_health(frames: Frames) -> pl.DataFrame:
    """Shipments that carried rows and were not looked at."""
    carried = frames["shipments"].filter(pl.col("seq_to") >= pl.col("seq_from"))
    owned = carried.with_columns(pl.col("emitter").str.strip_suffix(SHIPPER_SUFFIX))
    return owned.join(frames["emitter_health"], on=["emitter", "seq_to"], how="anti")


def _critical(table: str, name: str) -> Check:
    return Check(name, table, Severity.CRITICAL)


SET_LAWS: Final = (
    SetLaw(
        _critical("consume_offsets", "reported_offsets_never_fall_unexplained"),
        ("consume_offsets", "offset_violations"),
        unexplained_falls,
        ("offset", "previous_offset", "offset_before", "path"),
    ),
    SetLaw(
        _critical("offset_violations", "every_fall_is_in_gold"),
        ("consume_offsets", "offset_violations"),
        falls_not_in_gold,
        ("offset", "previous_offset", "offset_before", "path"),
    ),
    SetLaw(
        _critical("consumer_lag", "lag_is_that_of_its_watermarks"),
        ("consumer_lag", "group_watermarks"),
        lag_against_watermarks,
        ("committed", "reported_committed", "max_offset", "reported_max_offset"),
    ),
    SetLaw(
        _critical("consumer_lag", "every_watermark_has_its_lag"),
        ("group_watermarks", "consumer_lag"),
        watermarks_without_lag,
        ("committed", "max_offset"),
    ),
    SetLaw(
        Check("committed_at_most_processed", "group_watermarks", Severity.WARNING),
        ("group_watermarks",),
        committed_beyond_processed,
        ("processed", "committed_before", "committed"),
    ),
    SetLaw(
        _critical("group_watermarks", "ends_never_fall_in_a_life"),
        ("group_watermarks", "lifecycle"),
        ends_that_fall,
        ("before", "max_offset"),
    ),
    SetLaw(
        _critical("group_watermarks", "committed_never_falls_unexplained"),
        ("group_watermarks", "consume_offsets", "lifecycle"),
        marks_that_fall,
        ("before", "committed"),
    ),
    SetLaw(
        _critical("emitter_health", "every_shipment_is_judged"),
        ("shipments", "emitter_health"),
        shipments_without_health,
        ("seq_from", "seq_to"),
    ),
)
