"""How often messages of a group fail now, and how often they did in the hour before.

Place in the walk: gold retry_flow, whose totals only grow → a row a group with failures lately.

Invariant: pure but for the one query. A total that is older than a day is taken for the first one
seen since: at most the ten seconds of that row are counted too little, never too much.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.alerting.watched import RETRY_RATES, no_rows
from pipelines.moment import sql_time
from pipelines.reading import Reading
from pipelines.wording import count

LATELY: Final = timedelta(minutes=5)
BEFORE: Final = timedelta(hours=1)
OLDEST: Final = timedelta(hours=25)
"""Totals are looked for so far back."""
EACH: Final = timedelta(seconds=10)
"""Gold counts in slots of this length: figures change no sooner."""


def retry_rates(reading: Reading) -> pl.DataFrame:
    """The rows of `retry_rates` at a moment."""
    present = reading.moment.present
    if present is None:
        return no_rows(RETRY_RATES.name)
    lately, before = sql_time(present - LATELY), sql_time(present - LATELY - BEFORE)
    totals = reading.summed_up(
        "retry_flow",
        {
            "first": "min(sent_back)",
            "before": f"max(CASE WHEN observed_at <= {before} THEN sent_back END)",
            "lately": f"max(CASE WHEN observed_at <= {lately} THEN sent_back END)",
            "newest": "max(sent_back)",
        },
        by=("emitter", "cluster", "group", "origin_topic"),
        since=present - OLDEST,
    )
    return rates_of(totals, present)


def rates_of(totals: pl.DataFrame, present: datetime) -> pl.DataFrame:
    """Rows of totals at three moments: first seen, an hour and five minutes ago, five minutes ago,
    and now; null where there was none yet."""
    if totals.is_empty():
        return no_rows(RETRY_RATES.name)
    begun = pl.coalesce("lately", "first")
    each = totals.with_columns(
        (pl.col("newest") - begun).alias("failed_5m"),
        (begun - pl.coalesce("before", "first")).alias("failed_hour"),
    )
    summed = each.group_by("cluster", "group").agg(
        pl.col("failed_5m").sum(), pl.col("failed_hour").sum()
    )
    lately = summed.filter((pl.col("failed_5m") > 0) | (pl.col("failed_hour") > 0))
    rows = [
        {**row, "observed_at": present, **_usual(row["failed_hour"])}
        for row in lately.sort("cluster", "group").iter_rows(named=True)
    ]
    told = [{**row, "evidence": _evidence(row)} for row in rows]
    return pl.DataFrame(told, schema=no_rows(RETRY_RATES.name).schema)


def _usual(failed_hour: int) -> dict[str, int]:
    return {"usual_5m": -(-failed_hour * LATELY // BEFORE)}


def _evidence(row: dict[str, int]) -> str:
    return (
        f"{count(row['failed_5m'])} failures within 5 min; in the hour before there were "
        f"{count(row['failed_hour'])}, about {count(row['usual_5m'])} each 5 min."
    )
