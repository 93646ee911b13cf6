"""Rates of failed and unacknowledged messages per group, now and in the hour before.

A message is unacknowledged when it comes back to a POP group because its invisible time ran out.

Place in the walk: gold retry_flow, whose totals only grow → a row a group with either lately.

Invariant: pure but for the one query. A total that is older than a day is taken for the first one
seen since: at most the ten seconds of that row are counted too little, never too much.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.alerting.rule_tables import RETRY_RATES, no_rows
from pipelines.reading.moment import sql_time
from pipelines.reading.reading import Reading
from pipelines.sentences.rates import retries

LATELY: Final = timedelta(minutes=5)
BEFORE: Final = timedelta(hours=1)
OLDEST: Final = timedelta(hours=25)
"""Totals are looked for so far back."""
EACH: Final = timedelta(seconds=10)
"""Gold counts in slots of this length: figures change no sooner."""
_TOTALS: Final = {"": "sent_back", "came_back_": "came_back"}
"""Totals of the table, by the prefix of what is asked of each."""
_NAMES: Final = {"": "failed", "came_back_": "came_back"}


def retry_rates(reading: Reading) -> pl.DataFrame:
    """The rows of `retry_rates` at a moment."""
    present = reading.moment.present
    if present is None:
        return no_rows(RETRY_RATES.name)
    lately, before = sql_time(present - LATELY), sql_time(present - LATELY - BEFORE)
    queries: dict[str, str] = {}
    for prefix, total in _TOTALS.items():
        queries |= {
            f"{prefix}first": f"min({total})",
            f"{prefix}before": f"max(CASE WHEN observed_at <= {before} THEN {total} END)",
            f"{prefix}lately": f"max(CASE WHEN observed_at <= {lately} THEN {total} END)",
            f"{prefix}newest": f"max({total})",
        }
    totals = reading.summed_up(
        "retry_flow",
        queries,
        by=("emitter", "cluster", "group", "origin_topic"),
        since=present - OLDEST,
    )
    return rates_of(totals, present)


def rates_of(totals: pl.DataFrame, present: datetime) -> pl.DataFrame:
    """Rows of totals at three moments: first seen, an hour and five minutes ago, five minutes ago,
    and now; null where there was none yet."""
    if totals.is_empty():
        return no_rows(RETRY_RATES.name)
    figures = [one for prefix, name in _NAMES.items() for one in _differences(prefix, name)]
    summed = (
        totals.with_columns(figures)
        .group_by("cluster", "group")
        .agg(pl.col(f"{name}_{span}").sum() for name in _NAMES.values() for span in ("5m", "hour"))
    )
    is_recent = pl.any_horizontal(pl.col("^(failed|came_back)_(5m|hour)$") > 0)
    rows = [
        {
            **row,
            "observed_at": present,
            "usual_5m": _usual(row["failed_hour"]),
            "usual_came_back_5m": _usual(row["came_back_hour"]),
        }
        for row in summed.filter(is_recent).sort("cluster", "group").iter_rows(named=True)
    ]
    with_evidence = [{**row, "evidence": retries(row)} for row in rows]
    return pl.DataFrame(with_evidence, schema=no_rows(RETRY_RATES.name).schema)


def _differences(prefix: str, name: str) -> tuple[pl.Expr, pl.Expr]:
    """What a total has gained within the last five minutes, and in the hour before them."""
    first, before, lately, newest = (
        pl.col(f"{prefix}{moment}") for moment in ("first", "before", "lately", "newest")
    )
    begun = pl.coalesce(lately, first)
    return (
        (newest - begun).fill_null(0).alias(f"{name}_5m"),
        (begun - pl.coalesce(before, first)).fill_null(0).alias(f"{name}_hour"),
    )


def _usual(in_an_hour: int) -> int:
    return -(-in_an_hour * LATELY // BEFORE)
