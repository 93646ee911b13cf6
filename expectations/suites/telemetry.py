"""Laws of telemetry: facts are gapless and unique up to the shipped horizon, and gold keeps up.

A lag computed over lost facts looks like any other lag, therefore these checks stand before all
trust in a number.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, cast

import polars as pl

from expectations.check import Check, Severity, Subject, SubjectOf
from expectations.custom import no_breach
from expectations.reading import CheckedLake

SUITE: Final = "telemetry"
GOLD_BEHIND_MAX_S: Final = 60
"""Idle queues are reported each 30 s: twice that is late in any case."""
SILENT_MAX_S: Final = 60
"""A living emitter moves its horizon each second; its shipper may need a while."""


def judged_facts(lake: CheckedLake, _now: datetime) -> Subject:
    """One row per emitter: facts that gold missed or met twice, by its own count per shipment."""
    health = lake.gold("emitter_health").sort("emitter", "seq_to")
    follows = pl.col("seq_from") - pl.col("seq_to").shift(1).over("emitter") - 1
    rows = (
        health.with_columns(follows.fill_null(0).alias("between"))
        .group_by("emitter", maintain_order=True)
        .agg(
            (
                (pl.col("rows_expected") - pl.col("rows_distinct")).sum()
                + pl.col("between").clip(lower_bound=0).sum()
            ).alias("missing"),
            (
                (pl.col("rows_found") - pl.col("rows_distinct")).sum()
                + (-pl.col("between")).clip(lower_bound=0).sum()
            ).alias("repeated"),
        )
    )
    counted = int(health["rows_found"].sum())
    return Subject(
        "emitter_health",
        rows,
        ("emitter",),
        health.height,
        lake.version("emitter_health"),
        f"{counted:,} facts in {health.height} shipments; emitters: {rows.height}",
    )


def facts(lake: CheckedLake, _now: datetime) -> Subject:
    """One row per emitter: facts missing or repeated in bronze up to its shipped horizon."""
    found = lake.all_seqs.group_by("emitter").agg(
        pl.len().alias("found"), pl.col("seq").n_unique().alias("distinct")
    )
    rows = (
        lake.horizons.join(found, on="emitter", how="left")
        .with_columns(pl.col("found", "distinct").fill_null(0).cast(pl.Int64))
        .with_columns(
            (pl.col("horizon_seq") - pl.col("first_seq") + 1 - pl.col("distinct")).alias("missing"),
            (pl.col("found") - pl.col("distinct")).alias("repeated"),
            (pl.col("first_seq") - 1).alias("before_first"),
        )
    )
    total = int(rows["found"].sum())
    return Subject(
        "shipments",
        rows,
        ("emitter",),
        total,
        lake.version("shipments"),
        f"{total:,} facts up to the shipped horizon; emitters: {rows.height}",
    )


def freshness(lake: CheckedLake, now: datetime) -> Subject:
    """One row per emitter: how far gold is behind the horizon, and the horizon behind now."""
    answered = (
        lake.gold("emitter_health", ["emitter", "observed_at"])
        .group_by("emitter")
        .agg(pl.col("observed_at").max())
    )
    behind = (pl.col("event_time_to") - pl.col("observed_at")).dt.total_seconds()
    silent = (pl.lit(now).cast(pl.Datetime("us", "UTC")) - pl.col("event_time_to")).dt
    rows = lake.horizons.join(answered, on="emitter", how="left").with_columns(
        (behind - GOLD_BEHIND_MAX_S).clip(lower_bound=0).alias("seconds_too_late"),
        (silent.total_seconds() - SILENT_MAX_S).clip(lower_bound=0).alias("seconds_too_silent"),
    )
    never = pl.col("observed_at").is_null()
    rows = rows.with_columns(
        pl.when(never).then(1).otherwise("seconds_too_late").alias("seconds_too_late")
    )
    newest = cast("datetime | None", rows["observed_at"].max())
    return Subject(
        "emitter_health",
        rows,
        ("emitter",),
        rows.height,
        lake.version("emitter_health"),
        f"gold speaks of {newest:%Y-%m-%d %H:%M:%S} UTC" if newest else "gold speaks of nothing",
    )


def _check(name: str, severity: Severity, subject: SubjectOf, column: str) -> Check:
    return Check(name, SUITE, severity, subject, no_breach(column))


TELEMETRY: Final = (
    _check("facts_gapless", Severity.CRITICAL, facts, "missing"),
    _check("facts_unique", Severity.CRITICAL, facts, "repeated"),
    _check("judged_facts_gapless", Severity.CRITICAL, judged_facts, "missing"),
    _check("judged_facts_unique", Severity.CRITICAL, judged_facts, "repeated"),
    _check("gold_keeps_up", Severity.WARNING, freshness, "seconds_too_late"),
    _check("emitters_speak", Severity.INFO, freshness, "seconds_too_silent"),
)
