"""Heatmap for the overview: groups over time, coloured by time lag, worst group on top.

What it is: each cell is the largest known time lag of a group in one stretch of time, its colour on
a log scale. When to use it: to see who is behind and since when, all groups at once. Signs say what
happened there: a square for a stall that began, a bar for a change of members, a cross for a dead
letter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from dashboards.figures.plotly_data import (
    CIVIDIS,
    Figure,
    Layout,
    Trace,
    figure_of,
    hatched,
    heatmap,
    scatter,
)
from dashboards.formatting import clock, duration, plain
from dashboards.models.lag_overview import BrokerEvent, broker_text
from dashboards.theme import Palette, frame, legend_above, time_axis, unknown_pattern
from dashboards.url_state import Span, group_path

COLUMNS_MAX: Final = 300
STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
TICKS_S: Final = (0, 10, 60, 600, 3600, 86_400)
ROW_PX: Final = (26, 66)
"""Height of a group's row: at least, at most."""
BROKERS_MAX: Final = 40
"""Events of brokers that are drawn, the newest ones; all of them are in the feed."""
ROWS_PX: Final = 200
"""What few groups share."""


Line = tuple[str, str]
"""(cluster, group)"""


def line_name(cluster: str, group: str, *, names_clusters: bool) -> str:
    """A group as a line is called; with its cluster where the lake holds several."""
    return f"{cluster} / {group}" if names_clusters else group


def bucket(span: Span) -> timedelta:
    """Width of a cell: the least step that keeps the range within COLUMNS_MAX columns."""
    need = span.length.total_seconds() / COLUMNS_MAX
    return timedelta(seconds=next((step for step in STEPS_S if step >= need), STEPS_S[-1]))


def depth(time_lag_ms: float | None) -> float | None:
    """Position on the colour scale: log10 of seconds + 1, rounded for a small payload."""
    return None if time_lag_ms is None else round(math.log10(max(0.0, time_lag_ms) / 1000 + 1), 2)


def lag_heatmap(
    cells: pl.DataFrame,
    *,
    groups: Sequence[Line],
    marks: Mapping[str, pl.DataFrame],
    span: Span,
    colours: Palette,
    brokers: Sequence[BrokerEvent] = (),
    names_clusters: bool = False,
) -> Figure:
    """`cells` (cluster, group, bucket, time_lag_ms, lag_messages); `groups` worst first; `marks` by
    kind (stall, rebalance, dead), each with columns cluster, group and at; `brokers` are lines
    through all groups. `names_clusters`: the lake holds several, and each line says its own."""
    step = bucket(span)
    moments = _buckets(span, step)
    place = {moment: index for index, moment in enumerate(moments)}
    row_of = {group: index for index, group in enumerate(groups)}
    z: list[list[float | None]] = [[None] * len(moments) for _ in groups]
    text = [["" for _ in moments] for _ in groups]
    for cell in cells.iter_rows(named=True):
        row, column = row_of.get((cell["cluster"], cell["group"])), place.get(cell["bucket"])
        if row is None or column is None:
            continue
        z[row][column] = depth(cell["time_lag_ms"])
        lag = cell["lag_messages"]
        behind = "messages unknown" if lag is None else f"{lag:,} messages behind"
        text[row][column] = f"{duration(cell['time_lag_ms'])}, at most {behind} in a queue"
    half = step / 2
    cells_trace = heatmap(
        x=[(moment + half).replace(tzinfo=None) for moment in moments],
        y=list(range(len(groups))),
        z=z,
        text=text,
        customdata=[
            [group_path(group, cluster=cluster if names_clusters else "")] * len(moments)
            for cluster, group in groups
        ],
        zmin=0,
        zmax=max(depth(600_000) or 0, _deepest(z)),
        colorscale=CIVIDIS,
        xgap=0,
        ygap=3,
        hoverongaps=False,
        hovertemplate="%{x|%H:%M:%S} UTC<br>%{text}<extra></extra>",
        colorbar=_colour_bar(colours),
    )
    traces = [
        cells_trace,
        *(
            trace
            for kind, rows in marks.items()
            for trace in _marks(rows, kind=kind, row_of=row_of, colours=colours)
        ),
        *_silence(span, len(groups), colours),
        *broker_lines(brokers, ends=(-0.5, len(groups) - 0.5), colours=colours),
    ]
    names = [line_name(*line, names_clusters=names_clusters) for line in groups]
    return figure_of(traces, _layout(names, span, colours))


def height(groups: int) -> int:
    """Pixels of the figure: few groups get tall rows, many get low ones."""
    least, most = ROW_PX
    row = min(most, max(least, ROWS_PX // max(1, groups)))
    return 84 + row * max(1, groups)


def _buckets(span: Span, step: timedelta) -> list[datetime]:
    size = step.total_seconds()
    first = datetime.fromtimestamp(span.start.timestamp() // size * size, span.start.tzinfo)
    number = math.ceil((span.end - first) / step)
    return [first + step * index for index in range(number)]


def _deepest(z: list[list[float | None]]) -> float:
    return max((value for row in z for value in row if value is not None), default=0.0)


def _colour_bar(colours: Palette) -> dict[str, object]:
    return {
        "title": {"text": "time lag", "side": "top", "font": {"color": colours.muted, "size": 11}},
        "tickvals": [depth(seconds * 1000) for seconds in TICKS_S],
        "ticktext": ["0", "10 s", "1 min", "10 min", "1 h", "1 d"],
        "tickfont": {"color": colours.muted, "size": 11},
        "thickness": 10,
        "outlinewidth": 0,
        "len": 1.0,
        "x": 1.01,
    }


def _marks(
    rows: pl.DataFrame, *, kind: str, row_of: Mapping[Line, int], colours: Palette
) -> list[Trace]:
    name, symbol, colour = {
        "stall": ("stall begins", "square", colours.stall),
        "rebalance": ("members change", "diamond-tall", "#ffffff"),
        "dead": ("dead letter", "x", colours.dead),
    }[kind]
    shown = [row for row in rows.iter_rows(named=True) if _line(row) in row_of]
    if not shown:
        return []
    trace = scatter(
        x=[row["at"] for row in shown],
        y=[row_of[_line(row)] for row in shown],
        mode="markers",
        name=name,
        marker={
            "symbol": symbol,
            "size": 10,
            "color": colour,
            "line": {"width": 1.2, "color": "#1b2430" if kind == "rebalance" else "#ffffff"},
        },
        hovertemplate=f"{name}<br>%{{x|%H:%M:%S}} UTC<extra></extra>",
        showlegend=True,
    )
    return [trace]


def _line(row: Mapping[str, str]) -> Line:
    return row["cluster"], row["group"]


def _silence(span: Span, rows: int, colours: Palette) -> list[Trace]:
    since = span.silent_from
    if since is None:
        return []
    name = f"no data since {clock(since)}"
    ends, pattern = (-0.5, rows - 0.5), unknown_pattern(colours)
    return [hatched(since, span.end, ends, pattern, name=name, showlegend=True)]


def broker_lines(
    brokers: Sequence[BrokerEvent],
    *,
    ends: tuple[float, float],
    colours: Palette,
) -> list[Trace]:
    """A line for every event of a broker: restart, role change, stop, silence; from one of its ends
    to the other.
    """
    shown = brokers[-BROKERS_MAX:]
    if not shown:
        return []
    lines = scatter(
        x=[moment for event in shown for moment in (event.at, event.at, None)],
        y=[place for _ in shown for place in (*ends, None)],
        mode="lines",
        line={"color": colours.event, "width": 2, "dash": "dashdot"},
        name="broker: restart, role, silence",
        text=[plain(said) for event in shown for said in [broker_text(event)] * 3],
        hovertemplate="%{text}<br>%{x|%H:%M:%S} UTC<extra></extra>",
        connectgaps=False,
        showlegend=True,
    )
    return [lines]


def _layout(groups: Sequence[str], span: Span, colours: Palette) -> Layout:
    return {
        **frame(colours, height=height(len(groups))),
        "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
        "showlegend": True,
        "legend": {**legend_above(colours), "itemclick": False, "itemdoubleclick": False},
        "xaxis": {**time_axis(colours), "range": [span.start, span.end], "showgrid": False},
        "yaxis": {
            "tickvals": list(range(len(groups))),
            "ticktext": [plain(group) for group in groups],
            "range": [len(groups) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
            "fixedrange": True,
            "ticklabelstandoff": 6,
        },
    }
