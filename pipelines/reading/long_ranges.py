"""Reads lag over long time ranges from one-minute, five-minute or hourly roll-ups.

Place in the walk: between `reading` and those who draw or list lag over more than some hours; a day
of one group is some thousand rows. Invariant: the same moment is read as everywhere: what lies
behind the last whole slot of each emitter, or before the lake's first slot, comes from consumer_lag
itself. Absent on purpose: what holds between two rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.lake.lake import sql_text
from pipelines.marts.consumer_lag_rollups import SPANS_S
from pipelines.reading.moment import sql_time
from pipelines.reading.reading import Reading

ROLLUPS: Final = "consumer_lag_rollups"
LONG: Final = timedelta(hours=6)
"""Ranges up to here are read row by row."""
SLOTS_MAX: Final = 2_016
"""Slots of a queue at most, where a longer slot is to be had: a week of five minutes."""
SPANS: Final = {f"{span_s // 60}m" if span_s < 3600 else "1h": span_s for span_s in SPANS_S}
"""Lengths of slots as they are asked for: 1m, 5m, 1h."""
POINT: Final = timedelta(milliseconds=1)
GROWS_UNTIL: Final = "grows_until"
"""Of a point: up to when its time lag grows while messages wait. A slot says when its last row came
and not its first, so nothing grows beyond the beginning of the next slot; null: up to the next row.
"""
_MOMENT: Final = pl.Datetime("us", "UTC")
_KEY: Final = ("emitter", "cluster", "broker", "group", "topic", "queue_id")


def span_for(length: timedelta) -> int | None:
    """Which slots a range is read in, seconds; None: row by row."""
    if length <= LONG:
        return None
    fitting = (span_s for span_s in SPANS_S if length / timedelta(seconds=span_s) <= SLOTS_MAX)
    return next(fitting, SPANS_S[-1])


def slots(
    reading: Reading, span_s: int, *conditions: str, since: datetime, until: datetime
) -> pl.DataFrame:
    """The roll-ups of a length whose slots end in the range."""
    wanted = (f"span_s = {span_s}", f"observed_at <= {sql_time(until)}", *conditions)
    return reading.rows(ROLLUPS, *wanted, since=since)


def lag_points(
    reading: Reading, span_s: int, *conditions: str, since: datetime, until: datetime
) -> pl.DataFrame:
    """Lag of the range as points: of each slot its least, greatest and last, at the moment of its
    last row; and the rows of consumer_lag that no slot holds. In the order of time, with
    `grows_until`.
    """
    of_slots = slots(reading, span_s, *conditions, since=since, until=until)
    span = timedelta(seconds=span_s)
    first = of_slots["observed_at"].min() if of_slots.height else None
    parts = [_points(of_slots, span)]
    outside = [_behind(reading, span, until)]
    if isinstance(first, datetime):
        outside.append(f"observed_at <= {sql_time(first - span)}")
        rest = f"({' OR '.join(outside)})"
    else:
        rest = "true"
    names = ("observed_at", "seq", *_KEY, "lag_messages", "time_lag_ms")
    rows = reading.rows(
        "consumer_lag",
        rest,
        f"observed_at <= {sql_time(until)}",
        *conditions,
        since=since,
        columns=names,
    )
    parts.append(rows.with_columns(slot_from=pl.lit(None, _MOMENT)).select(parts[0].columns))
    points = pl.concat(parts).sort("observed_at", "seq", *_KEY, maintain_order=True)
    begins = pl.col("slot_from").shift(-1).over(*_KEY).alias(GROWS_UNTIL)
    return points.with_columns(begins).drop("slot_from")


def _points(of_slots: pl.DataFrame, span: timedelta) -> pl.DataFrame:
    """Three rows a slot, as far as they differ."""
    last = (pl.col("lag_last"), pl.col("time_lag_ms_last"))
    parts = []
    for number, end in enumerate(("last", "max", "min")):
        lag, time_lag = pl.col(f"lag_{end}"), pl.col(f"time_lag_ms_{end}")
        moment = (pl.col("last_at") - number * POINT).alias("observed_at")
        differs = lag.ne_missing(last[0]) | time_lag.ne_missing(last[1])
        chosen = of_slots if end == "last" else of_slots.filter(differs)
        parts.append(
            chosen.select(
                moment,
                "seq",
                *_KEY,
                lag.alias("lag_messages"),
                time_lag.alias("time_lag_ms"),
                (pl.col("observed_at") - span).alias("slot_from"),
            )
        )
    return pl.concat(parts)


def _behind(reading: Reading, span: timedelta, until: datetime) -> str:
    """SQL: rows behind the last slot that is over, of each emitter."""
    parts = ["false"]
    for one in reading.moment.reached:
        end = min(one.judged_to, until)
        over = end - (end - datetime.fromtimestamp(0, end.tzinfo)) % span
        parts.append(f"(emitter = {sql_text(one.emitter)} AND observed_at > {sql_time(over)})")
    return f"({' OR '.join(parts)})"
