"""Timeline for a single group: events, time lag and message lag on a shared time axis.

What it is: three panels that share their time. The top one is a lane each for stalls, windows of
duplicate risk and changes of members, and where somebody watches, one for alerts from firing to
resolved; bands run on, faint, through the panels below. When to use it: to see whether lag followed
an event, or an event followed lag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from dashboards.figures.lag_heatmap import broker_lines
from dashboards.figures.plotly_data import Figure, Layout, Trace, figure_of, hatched, scatter
from dashboards.formatting import clock, plain, spoken
from dashboards.models.alert_lines import AlertLane
from dashboards.models.lag_overview import BrokerEvent
from dashboards.reads.lag_series import NO_SILENCE, held_line
from dashboards.theme import (
    CLEAR,
    DASHES,
    Palette,
    frame,
    legend_above,
    state_sign,
    time_axis,
    unknown_pattern,
)
from dashboards.url_state import Span
from pipelines.base.wording import with_article
from pipelines.reading.known import began_at

QUEUES_MAX: Final = 8
"""Lines in a panel; the worst queues have one, the others are in the table."""
POINTS_MAX: Final = 1_800
"""Points of one line; more are thinned to the extremes of each stretch."""
OVERLAYS_MAX: Final = 40
"""Bands and lines in view; more would hide the data, then only the lanes show them."""
LANES: Final = ("members", "duplicate risk", "stalled")
"""Of the top panel, the lowest one first."""
ALERTS_LANE: Final = "alerts"
"""Above them, where an alert process has ever run."""
LANE_EDGE: Final = 0.55
"""From the middle of the outer lanes to the panel's edge."""
BAR_HALF: Final = 0.36
"""From the middle of a bar to its edge, where lanes are 1 apart."""
HEIGHT: Final = 520
PANELS: Final = (0.2, 0.46, 0.34)
"""Shares of the height, the top one first."""
PANELS_WITH_ALERTS: Final = (0.25, 0.43, 0.32)
PANEL_GAP: Final = 0.045
LABEL_CHARACTERS: Final = 190
"""Characters of a lane's label that fit across a chart of ordinary width."""
LABEL_CHARACTERS_LEAST: Final = 8
"""Shorter beginnings say nothing."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lane:
    """Where bars of one kind are drawn, and how."""

    place: int
    colour: str
    pattern: str


def lag_timeline(
    lag: pl.DataFrame,
    *,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    rebalances: pl.DataFrame,
    span: Span,
    colours: Palette,
    silences: pl.DataFrame = NO_SILENCE,
    brokers: Sequence[BrokerEvent] = (),
    alerts: AlertLane | None = None,
) -> Figure:
    """Rows of one group: consumer_lag of the range and of the look-back before it, and the
    intervals and events that meet it."""
    lanes = LANES if alerts is None else (*LANES, ALERTS_LANE)
    fired = _in_range(alerts, span)
    queues = _worst_queues(lag)
    lines = []
    for index, key in enumerate(queues):
        points = held_line(
            _of_queue(lag, key),
            silences=silences,
            since=span.start,
            until=min(span.end, span.data_end or span.end),
        )
        lines += _queue(points, key=key, index=index, colours=colours)
    bars = [
        (Lane(2, colours.stall, "/"), _joined(stalls, span, _stall_words)),
        (Lane(1, colours.risk, "x"), _joined(risks, span, _risk_words)),
        (Lane(len(LANES), colours.dead, "|"), _joined(fired, span, lambda row: row["words"])),
    ]
    traces = [
        *lines,
        *(_on(1, bar) for lane, joined in bars for bar in _bars(joined, lane)),
        *(_on(1, marks) for marks in _rebalances(rebalances, colours)),
        *(_on(1, one) for one in broker_lines(brokers, ends=_ends_of(lanes), colours=colours)),
        *_silence(lag, span, colours),
        *_unwatched(alerts, span, colours),
    ]
    layout = _layout(span, colours, lanes)
    layout["annotations"] = [
        *(
            label
            for lane, joined in bars
            for label in _labels(joined, lane, span=span, surface=colours.surface)
        ),
        *_silence_label(span, colours),
    ]
    if stalls.height + risks.height + rebalances.height + fired.height <= OVERLAYS_MAX:
        layout["shapes"] = [
            *_bands(stalls, span, colours.stall),
            *_bands(risks, span, colours.risk),
            *_bands(fired, span, colours.dead),
            *_lines(rebalances, colours),
        ]
    return figure_of(traces, layout)


NO_BARS: Final = pl.DataFrame(
    schema={
        "opened_at": pl.Datetime("us", "UTC"),
        "closed_at": pl.Datetime("us", "UTC"),
        "words": pl.String,
    }
)


def _in_range(alerts: AlertLane | None, span: Span) -> pl.DataFrame:
    """The bars that meet the range."""
    bars = NO_BARS if alerts is None else alerts.bars
    begun = pl.col("opened_at") <= span.end
    return bars.filter(
        begun & (pl.col("closed_at").is_null() | (pl.col("closed_at") >= span.start))
    )


def _unwatched(alerts: AlertLane | None, span: Span, colours: Palette) -> list[Trace]:
    """The stretches of the alerts' lane of which nobody knows whether anything fired."""
    if alerts is None:
        return []
    until, since = alerts.unknown_until, alerts.unknown_since
    gaps = [
        (span.start, min(until or span.start, span.end)),
        (max(since or span.end, span.start), span.end),
    ]
    place, pattern = len(LANES), unknown_pattern(colours)
    edges = (place - BAR_HALF, place + BAR_HALF)
    return [
        _on(1, hatched(begin, end, edges, pattern, showlegend=False))
        for begin, end in gaps
        if begin < end
    ]


def _ends_of(lanes: Sequence[str]) -> tuple[float, float]:
    """The range of the top panel's axis."""
    return -LANE_EDGE, len(lanes) - 1 + LANE_EDGE


QueueKey = tuple[str, str, int]


def _worst_queues(lag: pl.DataFrame) -> list[QueueKey]:
    """Queues with a known lag, those with the largest time lag first."""
    known = lag.filter(pl.col("lag_messages").is_not_null())
    worst = (
        known.group_by("broker", "topic", "queue_id")
        .agg(pl.col("time_lag_ms").max())
        .sort(["time_lag_ms", "topic", "queue_id"], descending=[True, False, False])
        .head(QUEUES_MAX)
        .sort("broker", "topic", "queue_id")
    )
    return [(row["broker"], row["topic"], row["queue_id"]) for row in worst.iter_rows(named=True)]


def _of_queue(lag: pl.DataFrame, key: QueueKey) -> pl.DataFrame:
    broker, topic, queue_id = key
    return lag.filter(
        (pl.col("broker") == broker) & (pl.col("topic") == topic) & (pl.col("queue_id") == queue_id)
    )


def _on(panel: int, trace: Trace) -> Trace:
    """The trace on the axes of a panel, the first one on top."""
    number = "" if panel == 1 else panel
    return {**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"}


def _queue(points: pl.DataFrame, *, key: QueueKey, index: int, colours: Palette) -> list[Trace]:
    """Its lines in both lower panels."""
    _, topic, queue_id = key
    name = f"{plain(topic)} {queue_id}"
    line = {
        "color": colours.series[index % len(colours.series)],
        "dash": DASHES[index % len(DASHES)],
        "width": 1.8,
        "shape": "linear",
    }
    lines = []
    for panel, column, scale, shown in (
        (2, "time_lag_ms", 1000, "%{y:,.1f} s behind"),
        (3, "lag_messages", 1, "%{y:,} messages behind"),
    ):
        line_points = thinned(points, column)
        line_of = scatter(
            x=line_points["observed_at"].dt.replace_time_zone(None).to_list(),
            y=(line_points[column] / scale).to_list(),
            mode="lines",
            name=name,
            legendgroup=name,
            showlegend=panel == 2,
            line=line,
            connectgaps=False,
            hovertemplate=f"{name}: {shown}<extra></extra>",
        )
        lines.append(_on(panel, line_of))
    return lines


def thinned(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """At most POINTS_MAX rows: of each stretch the least and the greatest value, so that a spike
    survives any zoom."""
    if rows.height <= POINTS_MAX:
        return rows
    stretch = -(-rows.height // (POINTS_MAX // 2))
    numbered = rows.with_row_index("position")
    extremes = numbered.group_by(pl.col("position") // stretch).agg(
        pl.col("position").sort_by(column).first().alias("least"),
        pl.col("position").sort_by(column).last().alias("greatest"),
    )
    kept = pl.concat([extremes["least"], extremes["greatest"]]).unique().sort()
    return rows[kept.to_list()]


Joined = tuple[datetime, datetime, list[str]]
"""Windows of a lane that overlap: from when, to when, and what each was."""


def _bars(joined: Sequence[Joined], lane: Lane) -> list[Trace]:
    """Patterned bars; windows of one lane that overlap are joined."""
    low, high = lane.place - BAR_HALF, lane.place + BAR_HALF
    return [
        scatter(
            x=[begin, end, end, begin, begin],
            y=[low, low, high, high, low],
            fill="toself",
            mode="lines",
            line={"width": 1.2, "color": lane.colour},
            fillpattern={
                "shape": lane.pattern,
                "fgcolor": lane.colour,
                "bgcolor": CLEAR,
                "size": 6,
                "solidity": 0.25,
            },
            hoveron="fills",
            showlegend=False,
            hoverinfo="text",
            text="<br>".join(words),
        )
        for begin, end, words in joined
    ]


def _labels(joined: Sequence[Joined], lane: Lane, *, span: Span, surface: str) -> list[Layout]:
    """The words of each bar, inside it or behind it."""
    labels = []
    for index, (begin, end, words) in enumerate(joined):
        inside = end - begin >= span.length / 5
        anchor = begin if inside else end
        next_begin = joined[index + 1][0] if index + 1 < len(joined) else span.end
        said = words[0] if len(words) == 1 else f"{words[0]} + {len(words) - 1} more"
        labels.append(
            {
                "xref": "x",
                "yref": "y",
                "x": anchor,
                "y": lane.place,
                "xanchor": "left",
                "text": _fitted(said, (next_begin - anchor) / span.length),
                "showarrow": False,
                "xshift": 4,
                "bgcolor": surface if inside else CLEAR,
                "borderpad": 1,
                "font": {"color": lane.colour, "size": 11},
            }
        )
    return labels


def _fitted(text: str, share: float) -> str:
    """As much of a label as fits before the next bar; the table below has all of it."""
    room = int(share * LABEL_CHARACTERS)
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room > LABEL_CHARACTERS_LEAST else ""


def _joined(windows: pl.DataFrame, span: Span, words_of: Callable[[Row], str]) -> list[Joined]:
    found: list[Joined] = []
    for row in sorted(windows.iter_rows(named=True), key=began_at):
        begin, end = _cut(row, span)
        words = words_of(row)
        if found and begin <= found[-1][1]:
            last = found[-1]
            found[-1] = (last[0], max(last[1], end), [*last[2], words])
        else:
            found.append((begin, end, [words]))
    return found


def _stall_words(row: Row) -> str:
    shown = "" if row["kind"] == "UNDETERMINED" else f", {spoken(row['kind'])}"
    return f"{_queue_words(row)} {state_sign(row['rule']).word}{shown}"


def _risk_words(row: Row) -> str:
    cause = spoken(row["cause"])
    if row["basis"] == "EXPOSURE":
        cause = f"exposed to {with_article(cause)}"
    at_risk = f"{row['at_risk_messages']:,} at risk"
    return f"{_queue_words(row)} {cause}, {at_risk}, {row['outcome'].lower()}"


def _queue_words(row: Row) -> str:
    return f"{plain(row['topic'])} {row['queue_id']}"


def _cut(row: Row, span: Span) -> tuple[datetime, datetime]:
    last = span.data_end or span.end
    begin = began_at(row)
    closed = row["closed_at"] or max(begin, min(span.end, last))
    return max(begin, span.start), min(closed, span.end)


def _bands(windows: pl.DataFrame, span: Span, colour: str) -> list[Row]:
    """Faint rectangles through both lower panels."""
    return [
        {
            **_across(panel),
            "type": "rect",
            "x0": begin,
            "x1": end,
            "fillcolor": colour,
            "opacity": 0.09,
            "line": {"width": 0},
            "layer": "below",
        }
        for row in windows.iter_rows(named=True)
        for begin, end in (_cut(row, span),)
        for panel in (2, 3)
    ]


def _lines(rebalances: pl.DataFrame, colours: Palette) -> list[Row]:
    """Dashed lines through both lower panels."""
    return [
        {
            **_across(panel),
            "type": "line",
            "x0": moment,
            "x1": moment,
            "line": {"color": colours.event, "width": 1, "dash": "dash"},
            "opacity": 0.7,
        }
        for moment in rebalances["observed_at"].to_list()
        for panel in (2, 3)
    ]


def _across(panel: int) -> Row:
    """From the bottom to the top of a panel."""
    return {"xref": f"x{panel}", "yref": f"y{panel} domain", "y0": 0, "y1": 1}


def _rebalances(rebalances: pl.DataFrame, colours: Palette) -> list[Trace]:
    if rebalances.is_empty():
        return []
    rows = rebalances.rows(named=True)
    marks = scatter(
        x=[row["observed_at"] for row in rows],
        y=[0] * len(rows),
        mode="markers",
        marker={
            "symbol": [
                "triangle-up" if row["kind"] == "JOINED" else "triangle-down" for row in rows
            ],
            "size": 11,
            "color": colours.event,
            "line": {"width": 1, "color": colours.surface},
        },
        hoverinfo="text",
        text=[_member_words(row) for row in rows],
        showlegend=False,
    )
    return [marks]


def _member_words(row: Row) -> str:
    who = plain(row["client_id"] or "a client")
    said = f"{row['observed_at']:%H:%M:%S} {who} {spoken(row['kind'])}"
    if row["members_after"] is None:
        return said
    return f"{said}<br>{row['members_before']} → {row['members_after']} members"


def _silence(lag: pl.DataFrame, span: Span, colours: Palette) -> list[Trace]:
    """The hatched edge of both lower panels."""
    since = span.silent_from
    if since is None:
        return []
    longest_ms, most = (lag[name].max() for name in ("time_lag_ms", "lag_messages"))
    pattern = unknown_pattern(colours)
    tops = {2: (cast("int | None", longest_ms) or 1000) / 1000, 3: cast("int | None", most) or 1}
    return [
        _on(panel, hatched(since, span.end, (0, top), pattern, showlegend=False))
        for panel, top in tops.items()
    ]


def _silence_label(span: Span, colours: Palette) -> list[Layout]:
    since = span.silent_from
    if since is None:
        return []
    return [
        {
            "x": span.end,
            "xanchor": "right",
            "y": 1,
            "yref": "y2 domain",
            "yanchor": "top",
            "text": f"no data since {clock(since)}",
            "showarrow": False,
            "bgcolor": colours.surface,
            "font": {"color": colours.stall},
        }
    ]


def _layout(span: Span, colours: Palette, lanes: Sequence[str]) -> Layout:
    return {
        **frame(colours, height=HEIGHT),
        "margin": {"l": 8, "r": 12, "t": 30, "b": 8},
        "hovermode": "x unified",
        "showlegend": True,
        "legend": legend_above(colours),
        **_axes(span, colours, lanes),
    }


def _axes(span: Span, colours: Palette, names: Sequence[str]) -> Layout:
    """Three panels above each other that share their time, which the lowest one shows."""
    below = {
        "gridcolor": colours.grid,
        "zeroline": False,
        "rangemode": "tozero",
        "automargin": True,
        "tickfont": {"color": colours.muted},
    }
    time = {**time_axis(colours), "range": [span.start, span.end], "domain": [0.0, 1.0]}
    title = {"font": {"color": colours.muted, "size": 11}, "standoff": 6}
    lanes = {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": list(_ends_of(names)),
        "showgrid": False,
        "fixedrange": True,
    }
    shares = PANELS_WITH_ALERTS if ALERTS_LANE in names else PANELS
    ends = _ends(shares, gap=PANEL_GAP)
    return {
        "xaxis": {**time, "anchor": "y", "matches": "x3", "showticklabels": False},
        "xaxis2": {**time, "anchor": "y2", "matches": "x3", "showticklabels": False},
        "xaxis3": {**time, "anchor": "y3"},
        "yaxis": {**below, **lanes, "anchor": "x", "domain": ends[0], "title": title},
        "yaxis2": {
            **below,
            "anchor": "x2",
            "domain": ends[1],
            "title": {**title, "text": "time lag, s"},
        },
        "yaxis3": {
            **below,
            "anchor": "x3",
            "domain": ends[2],
            "title": {**title, "text": "messages behind"},
        },
    }


def _ends(shares: Sequence[float], *, gap: float) -> list[list[float]]:
    """Lower and upper end of each panel, the first one on top, of a chart of height 1."""
    room = 1 - gap * (len(shares) - 1)
    found, top = [], 1.0
    for share in shares:
        bottom = top - room * share
        found.append([round(max(0.0, bottom), 6), round(top, 6)])
        top = bottom - gap
    return found
