"""Charts of what a loss would cost over time, and of timers by the hour.

What they are: two panels that share their time, bytes that only the master has above bytes that
only memory has; a line a broker, of the same colour in both. And a bar an hour, stacked by broker.
When to use them: to see since when a loss would cost something, and which hour will be busy.

Invariant: what was reported holds until the next report of the broker, and no longer than it
speaks: a silence is a gap. Absent on purpose: what a loss has cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from dashboards.figures.plotly_data import (
    Figure,
    Layout,
    Trace,
    bars,
    figure_of,
    hatched,
    scatter,
)
from dashboards.formatting import clock, plain, size
from dashboards.models.storage_lines import TimerLine
from dashboards.theme import DASHES, Palette, frame, legend_above, time_axis, unknown_pattern
from dashboards.url_state import Span

WINDOW_HEIGHT: Final = 340
TIMERS_HEIGHT: Final = 230
BROKERS_MAX: Final = 8
"""Lines in a panel: of the brokers that had most to lose."""
PANELS: Final = (
    ("loss_bytes", (0.54, 1.0), "only on the master"),
    ("power_cut_bytes", (0.0, 0.46), "only in memory"),
)
HOUR: Final = timedelta(hours=1)
HOUR_MS: Final = 3_600_000

Points = list[tuple[datetime, int | None]]


def loss_window(
    replication: pl.DataFrame,
    flushes: pl.DataFrame,
    *,
    span: Span,
    silences: pl.DataFrame,
    colours: Palette,
) -> Figure:
    """Bytes that the loss of a master, or a power cut, would have cost, broker by broker."""
    frames = (replication, flushes)
    emitters = _worst(frames)
    traces: list[Trace] = []
    tops = []
    for panel, (rows, (column, _, _)) in enumerate(zip(frames, PANELS, strict=True), 1):
        top = 1
        for index, emitter in enumerate(emitters):
            points = held(rows.filter(pl.col("emitter") == emitter), column, span, silences)
            traces.append(_line(points, emitter, index, panel=panel, colours=colours))
            top = max([top, *(value for _, value in points if value is not None)])
        tops.append(top)
    since = span.silent_from
    if since is not None:
        pattern = unknown_pattern(colours)
        traces += [
            _on(panel, hatched(since, span.end, (0, top), pattern, showlegend=False))
            for panel, top in enumerate(tops, 1)
        ]
    layout = _window_layout(span, colours, is_named=len(emitters) > 1)
    layout["annotations"] = [] if since is None else [_silent_since(span.end, since, colours)]
    return figure_of(traces, layout)


def held(rows: pl.DataFrame, column: str, span: Span, silences: pl.DataFrame) -> Points:
    """What each report of one emitter says until the next one; nothing while it is silent."""
    if rows.is_empty():
        return []
    emitter = rows["emitter"][0]
    reports = rows.sort("observed_at").select("observed_at", column).rows()
    ends = silences.filter(pl.col("emitter") == emitter).sort("since").select("since").rows()
    until = min(span.end, span.data_end or span.end)
    events: Points = [*reports, *((since, None) for (since,) in ends)]
    events = sorted((one for one in events if one[0] <= until), key=lambda one: one[0])
    before = [one for one in events if one[0] <= span.start]
    points = [(span.start, before[-1][1])] if before else []
    points += [one for one in events if one[0] > span.start]
    if points and points[-1][1] is not None:
        points.append((until, points[-1][1]))
    return points


def _worst(frames: Sequence[pl.DataFrame]) -> list[str]:
    """Emitters that are drawn, by name: those that had most to lose in the range."""
    most: dict[str, int] = {}
    for rows, (column, _, _) in zip(frames, PANELS, strict=True):
        for emitter, value in rows.group_by("emitter").agg(pl.col(column).max()).iter_rows():
            most[emitter] = max(most.get(emitter, 0), value or 0)
    ranked = sorted(most, key=lambda emitter: (-most[emitter], emitter))
    return sorted(ranked[:BROKERS_MAX])


def _line(points: Points, emitter: str, index: int, *, panel: int, colours: Palette) -> Trace:
    name = plain(emitter.split("/")[1] if emitter.count("/") == 2 else emitter)
    colour = colours.series[index % len(colours.series)]
    return _on(
        panel,
        scatter(
            x=[at for at, _ in points],
            y=[value for _, value in points],
            text=[size(value) for _, value in points],
            mode="lines",
            name=name,
            legendgroup=emitter,
            showlegend=panel == 1,
            connectgaps=False,
            fill="tozeroy",
            fillcolor=_faint(colour),
            line={
                "color": colour,
                "dash": DASHES[index % len(DASHES)],
                "width": 1.8,
                "shape": "hv",
            },
            hovertemplate=f"{name}: %{{text}} {PANELS[panel - 1][2]}<extra></extra>",
        ),
    )


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"


def _on(panel: int, trace: Trace) -> Trace:
    number = "" if panel == 1 else panel
    return {**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"}


def _window_layout(span: Span, colours: Palette, *, is_named: bool) -> Layout:
    time = {**time_axis(colours), "range": [span.start, span.end], "domain": [0.0, 1.0]}
    layout = {
        **frame(colours, height=WINDOW_HEIGHT),
        "margin": {"l": 8, "r": 12, "t": 28 if is_named else 8, "b": 8},
        "hovermode": "x unified",
        "showlegend": is_named,
        "legend": legend_above(colours),
    }
    for panel, (_, domain, title) in enumerate(PANELS, 1):
        number = "" if panel == 1 else panel
        shown = {"matches": "x2", "showticklabels": False} if panel == 1 else {}
        layout[f"xaxis{number}"] = {**time, **shown, "anchor": f"y{number}"}
        layout[f"yaxis{number}"] = {
            **_amounts(colours, title),
            "domain": list(domain),
            "anchor": f"x{number}",
            "tickformat": "~s",
            "ticksuffix": "B",
        }
    return layout


def _amounts(colours: Palette, title: str) -> dict[str, Any]:
    return {
        "gridcolor": colours.grid,
        "zeroline": False,
        "rangemode": "tozero",
        "automargin": True,
        "nticks": 5,
        "tickfont": {"color": colours.muted},
        "title": {"text": title, "font": {"color": colours.muted, "size": 11}, "standoff": 6},
    }


def _silent_since(end: datetime, since: datetime, colours: Palette) -> Layout:
    return {
        "x": end,
        "xanchor": "right",
        "y": 1,
        "yref": "y domain",
        "yanchor": "top",
        "text": f"no data since {clock(since)}",
        "showarrow": False,
        "bgcolor": colours.surface,
        "font": {"color": colours.stall},
    }


def timers_due(lines: Sequence[TimerLine], *, colours: Palette) -> Figure:
    """Messages that are due in each hour, this one first."""
    traces = [
        bars(
            x=[line.hour + HOUR * ahead for ahead in range(len(line.due))],
            y=list(line.due),
            width=HOUR_MS,
            offset=0,
            name=plain(line.broker),
            marker={
                "color": colours.series[index % len(colours.series)],
                "line": {"color": colours.surface, "width": 1},
            },
            hovertemplate=f"{plain(line.broker)}: %{{y:,}} due from %{{x|%d %b %H:%M}}"
            "<extra></extra>",
        )
        for index, line in enumerate(lines)
    ]
    layout = {
        **frame(colours, height=TIMERS_HEIGHT),
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "barmode": "stack",
        "showlegend": len(lines) > 1,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "xaxis": {**time_axis(colours), "tickformat": "%H:%M\n%d %b"},
        "yaxis": {**_amounts(colours, "messages due"), "tickformat": "~s"},
    }
    return figure_of(traces, layout)
