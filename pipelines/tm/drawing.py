"""The dashboard's figures of an answer: the same groups, queues and time that were asked about."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from engine.foundation.errors import LakeError
from pipelines.moment import sql_time
from pipelines.reading import LOOK_BACK, Reading
from pipelines.tm.asking import Asked

DRAWN: Final = timedelta(days=1)
"""How far back a figure of many groups goes when no beginning was asked for."""
GROUPS_MAX: Final = 50
"""Groups in a figure, worst first."""


def of(reading: Reading, asked: Asked, rows: pl.DataFrame) -> Callable[[], Any]:
    """The figure of windows or events: a group's timeline, or the heatmap of the groups in them."""
    if asked.group is not None:
        return lambda: timeline(reading, asked)
    names = rows["group"].unique(maintain_order=True).to_list()
    return lambda: heatmap(reading, asked, groups=names)


def timeline(reading: Reading, asked: Asked, *, lag: pl.DataFrame | None = None) -> Any:
    """Lag, stalls, duplicate risk and rebalances of a group, or of one queue, on one time axis."""
    if lag is None:
        lag = reading.rows("consumer_lag", *asked.place, *asked.times, since=asked.since)
    span = _span(asked, lag)
    # What was told before the range may hold into it.
    earlier = reading.rows(
        "consumer_lag",
        *asked.place,
        f"observed_at < {sql_time(span.start)}",
        since=span.start - LOOK_BACK,
    )
    lag = pl.concat([earlier.select(lag.columns), lag])
    windows = {
        name: reading.windows(name, *asked.place, since=span.start, until=span.end)
        for name in ("stalled_windows", "duplicate_risk_windows")
    }
    of_group = Asked(asked.group, since=span.start, until=span.end)
    return _shown("figures.group").lag_timeline(
        lag,
        stalls=windows["stalled_windows"],
        risks=windows["duplicate_risk_windows"],
        rebalances=reading.rows("rebalances", *of_group.place, *of_group.times, since=span.start),
        span=span,
        colours=_shown("theme").palette(None),
        silences=reading.silences(span.start - LOOK_BACK, span.end),
    )


def heatmap(reading: Reading, asked: Asked, *, groups: Sequence[str] | None = None) -> Any:
    """Time lag of groups over time, worst on top; `groups` keeps those."""
    if groups is not None and not groups:
        raise LakeError("nothing to draw: the answer is about no group")
    newest = reading.moment.newest
    since = asked.since or (newest - DRAWN if newest is not None else None)
    places = asked.place
    if groups is not None:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in groups)
        places = [*places, f'"group" IN ({names})']
    columns = ("observed_at", "seq", "emitter", "broker", "group", "topic", "queue_id")
    begin = since - LOOK_BACK if since is not None else None
    lag = reading.rows(
        "consumer_lag",
        *places,
        *asked.times,
        since=begin,
        columns=[*columns, "lag_messages", "time_lag_ms"],
    )
    inside = lag if since is None else lag.filter(pl.col("observed_at") >= since)
    span = _span(asked, inside if inside.height else lag)
    figures = _shown("figures.overview")
    step = figures.bucket(span)
    silences = reading.silences(begin or span.start, span.end)
    held = _shown("held").held_cells(lag.lazy(), until=span.end, step=step, silences=silences)
    cells = held.collect()
    cells = cells.filter(pl.col("bucket") > span.start - step)
    worst = cells.group_by("group").agg(pl.col("time_lag_ms").max())
    order = worst.sort("time_lag_ms", descending=True, nulls_last=True)["group"].to_list()
    return figures.lag_heatmap(
        cells,
        groups=order[:GROUPS_MAX],
        marks={},
        span=span,
        colours=_shown("theme").palette(None),
    )


def _shown(name: str) -> Any:
    """A module of the dashboard, loaded when a figure is asked for: it may import us, not we it."""
    return importlib.import_module(f"dashboards.{name}")


def _span(asked: Asked, lag: pl.DataFrame) -> Any:
    moments: list[datetime] = lag["observed_at"].to_list()
    begin = asked.since or min(moments, default=None)
    end = asked.until or max(moments, default=None)
    if begin is None or end is None or begin >= end:
        raise LakeError("nothing to draw: no lag was reported in this range")
    return _shown("view").Span(start=begin, end=end, data_end=end, now=end)
