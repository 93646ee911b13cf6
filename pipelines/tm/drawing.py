"""Plots an answer's groups, queues and time range with the dashboard's own figures."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from engine.foundation.errors import LakeError
from pipelines.reading.long_ranges import lag_points, span_for
from pipelines.reading.moment import sql_time
from pipelines.reading.reading import LOOK_BACK, Reading
from pipelines.tm.arguments import Asked

DRAWN: Final = timedelta(days=1)
"""How far back a figure of many groups goes when no beginning was asked for."""
GROUPS_MAX: Final = 50
"""Groups in a figure, worst first."""
_DRAWN: Final = (
    *("observed_at", "seq", "emitter", "cluster", "broker", "group", "topic", "queue_id"),
    *("lag_messages", "time_lag_ms"),
)
"""What lines and cells of lag are made of."""


def of(reading: Reading, asked: Asked, rows: pl.DataFrame) -> Callable[[], Any]:
    """The figure of windows or events: a group's timeline, or the heatmap of the groups in them."""
    if asked.group is not None:
        return lambda: timeline(reading, asked)
    names = rows["group"].unique(maintain_order=True).to_list()
    return lambda: heatmap(reading, asked, groups=names)


def timeline(reading: Reading, asked: Asked, *, lag: pl.DataFrame | None = None) -> Any:
    """Lag, stalls, duplicate risk and rebalances of a group, or of one queue, on one time axis."""
    if lag is None:
        lag = _lag(reading, asked)
    span = _span(asked, lag)
    # What was reported before the range may hold into it.
    earlier = reading.rows(
        "consumer_lag",
        *asked.place,
        f"observed_at < {sql_time(span.start)}",
        since=span.start - LOOK_BACK,
    )
    lag = pl.concat(
        [earlier.select(pl.selectors.by_name(*lag.columns, require_all=False)), lag], how="diagonal"
    )
    windows = {
        name: reading.windows(name, *asked.place, since=span.start, until=span.end)
        for name in ("stalled_windows", "duplicate_risk_windows")
    }
    of_group = Asked(asked.group, since=span.start, until=span.end)
    drawn = _shown("figures.lag_timeline").lag_timeline(
        lag,
        stalls=windows["stalled_windows"],
        risks=windows["duplicate_risk_windows"],
        rebalances=reading.rows("rebalances", *of_group.place, *of_group.times, since=span.start),
        span=span,
        colours=_shown("theme").palette(None),
        silences=reading.silences(span.start - LOOK_BACK, span.end),
    )
    return _figure(drawn)


def heatmap(
    reading: Reading,
    asked: Asked,
    *,
    groups: Sequence[str] | None = None,
    lines: Sequence[tuple[str, str]] | None = None,
) -> Any:
    """Time lag of groups over time, worst on top; `groups` keeps those, `lines` those of their
    clusters: (cluster, group)."""
    if lines is not None:
        groups = list(dict.fromkeys(group for _, group in lines))
    if groups is not None and not groups:
        raise LakeError("nothing to draw: the answer is about no group")
    newest = reading.moment.present
    since = asked.since or (newest - DRAWN if newest is not None else None)
    places = asked.place
    if groups is not None:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in groups)
        places = [*places, f'"group" IN ({names})']
    begin = since - LOOK_BACK if since is not None else None
    lag = _lag(reading, replace(asked, since=begin), places)
    inside = lag if since is None else lag.filter(pl.col("observed_at") >= since)
    span = _span(asked, inside if inside.height else lag)
    figures = _shown("figures.lag_heatmap")
    step = figures.bucket(span)
    silences = reading.silences(begin or span.start, span.end)
    held_cells = _shown("reads.lag_series").held_cells
    cells = held_cells(lag.lazy(), until=span.end, step=step, silences=silences).collect()
    cells = cells.filter(pl.col("bucket") > span.start - step)
    worst = cells.group_by("cluster", "group").agg(pl.col("time_lag_ms").max())
    worst = worst.sort("time_lag_ms", descending=True, nulls_last=True)
    order = list(worst.select("cluster", "group").iter_rows())
    if lines is not None:
        shown = set(lines)
        order = [one for one in order if one in shown]
    drawn = figures.lag_heatmap(
        cells,
        groups=order[:GROUPS_MAX],
        names_clusters=len(reading.moment.clusters) > 1,
        marks={},
        span=span,
        colours=_shown("theme").palette(None),
    )
    return _figure(drawn)


def _figure(drawn: Any) -> Any:
    """What the dashboard sends to a browser as plain data, as plotly's own figure."""
    return importlib.import_module("plotly.graph_objects").Figure(drawn)


def _lag(reading: Reading, asked: Asked, places: Sequence[str] | None = None) -> pl.DataFrame:
    """What lines and cells are made of; of a long range from roll-ups."""
    wanted = asked.place if places is None else places
    end = asked.until or reading.moment.newest
    span_s = span_for(end - asked.since) if end is not None and asked.since is not None else None
    if span_s is not None and end is not None and asked.since is not None:
        return lag_points(reading, span_s, *wanted, since=asked.since, until=end)
    return reading.rows("consumer_lag", *wanted, *asked.times, since=asked.since, columns=_DRAWN)


def _shown(name: str) -> Any:
    """A module of the dashboard, loaded when a figure is asked for: it may import us, not we it."""
    return importlib.import_module(f"dashboards.{name}")


def _span(asked: Asked, lag: pl.DataFrame) -> Any:
    moments: list[datetime] = lag["observed_at"].to_list()
    begin = asked.since or min(moments, default=None)
    end = asked.until or max(moments, default=None)
    if begin is None or end is None or begin >= end:
        raise LakeError("nothing to draw: no lag was reported in this range")
    return _shown("url_state").Span(start=begin, end=end, data_end=end, now=end)
