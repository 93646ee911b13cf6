"""A group's page: its state in words, its lag beside what happened, its queues, its risks."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final, cast

import dash_ag_grid as dag
import polars as pl
from dash import Dash, Input, Output, dcc, html

from dashboards import answers
from dashboards.answers import GroupLine
from dashboards.desk import Desk, Look, beside
from dashboards.figures.group import HEIGHT, lag_timeline
from dashboards.pages.parts import (
    TREND_SIGNS,
    card,
    drawn,
    empty_range,
    failure,
    first_run,
    origin,
    quality_badge,
    quiet,
    register_drawn,
    state_pill,
    table,
    topic_link,
    tree,
)
from dashboards.theme import palette
from dashboards.view import Span, View, group_of, topic_path
from dashboards.words import clock, count, duration, plural, visible
from engine.foundation.errors import LakeError
from pipelines.reading import LOOK_BACK, held_to

HIDDEN, SHOWN = "group-body hidden", "group-body"
GOVERNING: Final = (
    "consumer_lag",
    "offset_violations",
    "consume_offsets",
    "emitter_health",
    "shipments",
    "group_state",
)
"""Tables whose checks decide whether this page's lag may be believed."""

COLUMNS: Final = [
    {"field": "state", "headerName": "state", "width": 104},
    {
        "field": "topic",
        "headerName": "topic",
        "cellRenderer": "TopicLink",
        "tooltipField": "topic",
        "minWidth": 90,
        "flex": 1,
    },
    {"field": "queue", "headerName": "broker / queue", "width": 122},
    {
        "field": "time_lag",
        "headerName": "time lag",
        "width": 112,
        "valueFormatter": {"function": "params.data.time_lag_text"},
        "type": "rightAligned",
    },
    {
        "field": "lag",
        "headerName": "messages behind",
        "width": 132,
        "valueFormatter": {"function": "params.data.lag_text"},
        "type": "rightAligned",
    },
    {"field": "committed", "headerName": "committed", "width": 146, "cellClass": "exact"},
    {"field": "pulled", "headerName": "pulled", "width": 146, "cellClass": "exact"},
    {"field": "max_offset", "headerName": "max offset", "width": 146, "cellClass": "exact"},
    {
        "field": "owner",
        "headerName": "last puller",
        "tooltipField": "owner",
        "minWidth": 190,
        "flex": 2,
    },
    {"field": "last_commit", "headerName": "last commit", "width": 98},
    {
        "field": "provenance",
        "headerName": "how known",
        "tooltipField": "provenance",
        "minWidth": 110,
        "flex": 2,
    },
]


GRID_THEME: Final = (
    "themeQuartz.withParams({fontSize: 13, headerFontSize: 12, headerFontWeight: 500, "
    "spacing: 6, wrapperBorder: false, headerRowBorder: true, columnBorder: false, "
    "fontFamily: 'inherit', backgroundColor: 'var(--surface)', foregroundColor: 'var(--ink)', "
    "headerBackgroundColor: 'var(--surface)', headerTextColor: 'var(--muted)', "
    "borderColor: 'var(--line)', rowHoverColor: 'var(--raised)'})"
)
"""The grid takes the page's colours, so that one attribute switches both."""


def layout(name: str) -> html.Div:
    """Header, chart, queues, then the intervals behind them."""
    graph = dcc.Graph(
        id="group-timeline",
        config={"displayModeBar": False},
        responsive=True,
        className="graph",
        style={"height": HEIGHT},
    )
    return html.Div(
        [
            html.Div(
                [dcc.Link("Overview", href="/", className="crumb"), html.H1(visible(name))],
                className="page-head",
            ),
            html.Div(id="group-notice"),
            html.Div(
                [
                    html.Div(id="group-summary"),
                    card(
                        "How far behind, and what happened?",
                        html.Div(graph, id="group-timeline-text", role="img"),
                        element="group-lag",
                        note="time lag and messages behind of the worst queues; bands: stalled "
                        "(striped) and duplicate risk (crossed); dashed: members changed",
                    ),
                    card(
                        "Queues",
                        _grid(),
                        element="group-queues-card",
                        note="each queue at the moment the page is judged to; offsets are exact",
                    ),
                    card(
                        "Duplicate risk",
                        html.Div(drawn("group-duplicates")),
                        element="group-duplicates-card",
                        note="what may be, or was, delivered twice, and why",
                    ),
                    card(
                        "Stalled windows",
                        html.Div(drawn("group-stalls")),
                        element="group-stalls-card",
                    ),
                    html.Div(
                        [
                            card(
                                "Members",
                                html.Div(drawn("group-members")),
                                element="group-members-card",
                            ),
                            card(
                                "Dead letters",
                                html.Div(drawn("group-dead")),
                                element="group-dead-card",
                            ),
                        ],
                        className="halves",
                    ),
                ],
                id="group-body",
                className=HIDDEN,
            ),
        ]
    )


def _grid() -> dag.AgGrid:
    return dag.AgGrid(
        id="group-queues",
        columnDefs=COLUMNS,
        rowData=[],
        defaultColDef={"sortable": True, "resizable": True},
        dashGridOptions={
            "domLayout": "autoHeight",
            "suppressFieldDotNotation": True,
            "animateRows": False,
            "enableCellTextSelection": True,
            "rowHeight": 32,
            "headerHeight": 34,
            "theme": {"function": GRID_THEME},
        },
        style={"height": None},
    )


def content(
    desk: Desk,
    group: str | None,
    search: str | None,
    theme: str | None,
    *,
    pulse: Any = None,
) -> tuple[Any, ...]:
    """(notice, body class, summary, figure, its summary, queue rows, duplicates, stalls, members,
    dead letters)."""
    try:
        look = desk.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(desk.data.lake.root))
        key = ("group", group, look.key, theme, int(look.span.now.timestamp() // 60))
        return desk.pages.get(key, lambda: _content(group or "", look, theme))
    except LakeError as error:
        return _instead(failure(str(error), desk.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, [], {}, "", [], [], [], [], []


def _content(group: str, look: Look, theme: str | None) -> tuple[Any, ...]:
    data, span = look.data, look.span
    newest = held_to(answers.of_group(data.newest_lag(), group), data.moment)
    lag = data.lag_of([group], span.start, span.end)
    if newest.is_empty() and lag.is_empty():
        return _instead(empty_range(span, look.view, what=f"Group {group!r} reported nothing"))
    stalls = answers.of_group(data.stalls(span.start, span.end), group)
    risks = _met(data.present("duplicate_risk_windows", span.start, span.end), group, span)
    rebalances = data.group_rows("rebalances", group, span.start, span.end)
    dead = data.group_rows("dead_letters", group, span.start, span.end)
    silences = data.silences(span.start - LOOK_BACK, span.end)
    brokers = answers.broker_events(
        data.lifecycle(span.start, span.end), data.silences(span.start, span.end)
    )
    figure = lag_timeline(
        lag,
        stalls=stalls,
        risks=risks,
        rebalances=rebalances,
        span=span,
        colours=palette(theme),
        silences=silences,
        brokers=brokers,
    )
    standing = answers.open_at_end(stalls, span)
    states = answers.of_group(data.newest_states(), group)
    silent = [one.emitter for one in data.moment.silent]
    groups = answers.group_table(states, newest, standing, silent=silent)
    lines = answers.group_lines(groups, standing)
    line = lines[0] if lines else None
    badge = quality_badge(
        answers.quality(data.everything("dq_results"), GOVERNING, now=span.now),
        href="/checks" + look.view.around_page.search(),
    )
    return (
        None,
        SHOWN,
        _summary(line, newest, badge),
        figure,
        _sentence(group, line, stalls, risks),
        answers.queue_rows(newest, standing),
        _risk_table(risks, look.view),
        _stall_table(stalls, look.view),
        _member_table(rebalances),
        _dead_table(dead, look.view),
    )


def _met(windows: pl.DataFrame, group: str, span: Span) -> pl.DataFrame:
    return answers.overlapping(answers.of_group(windows, group), span)


def _summary(line: GroupLine | None, newest: pl.DataFrame, badge: Any) -> html.Div:
    """State and reason, then the numbers, each where its unit is read with it."""
    if line is None:
        return html.Div(
            [state_pill(None), html.Span("not judged in this range yet", className="why"), badge],
            className="summary",
        )
    commit = cast("datetime | None", newest["last_commit_time"].max())
    facts = (
        ("time lag", duration(line.time_lag_ms)),
        ("messages behind", count(line.lag_messages)),
        ("trend", TREND_SIGNS.get(line.trend or "", "unknown")),
        ("queues known", f"{line.queues_known} of {line.queues}"),
        ("members", count(line.members)),
        ("last commit", clock(commit)),
    )
    return html.Div(
        [
            html.Div(
                [state_pill(line.state), html.Span(line.reason, className="why"), badge],
                className="summary-state",
            ),
            html.Dl(
                [html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts],
                className="facts",
            ),
        ],
        className="summary",
    )


def _sentence(group: str, line: GroupLine | None, stalls: pl.DataFrame, risks: pl.DataFrame) -> str:
    """The chart in one sentence, for those who do not see it."""
    lag = duration(line.time_lag_ms) if line else "unknown"
    return (
        f"Time lag and messages behind of group {group}: now {lag}; "
        f"{plural(stalls.height, 'stalled window')} and "
        f"{plural(risks.height, 'window')} of duplicate risk in the range."
    )


def _risk_table(risks: pl.DataFrame, view: View) -> Any:
    if risks.is_empty():
        return quiet("No message of this group was at risk of a second delivery in this range.")
    rows = [
        [
            html.Span(clock(row["opened_at"]), className="exact"),
            answers.cause_words(row),
            html.Span([topic_link(row["topic"], view), f" {row['queue_id']}"]),
            html.Span(f"[{row['from_offset']}, {row['to_offset']})", className="exact"),
            html.Span(_predicted(row), className="number"),
            html.Span(count(row["redelivered_messages"]), className="number"),
            _outcome(row),
            html.Span(row["evidence"], className="reason"),
        ]
        for row in risks.sort("opened_at", descending=True).iter_rows(named=True)
    ]
    headings = ("since", "cause", "queue", "range", "predicted", "observed", "outcome", "evidence")
    return table(headings, rows, label="Windows of duplicate risk")


def _predicted(row: dict[str, Any]) -> str:
    most = f"at most {row['at_risk_messages']:,}"
    certain = row["certain_messages"]
    return most if certain is None else f"{most}, {certain:,} certain"


def _outcome(row: dict[str, Any]) -> html.Span:
    signs = {"CONFIRMED": "✖", "PASSED": "✓", "POSSIBLE": "◆"}
    state = " · open" if row["state"] == "OPEN" else ""
    outcome = row["outcome"]
    return html.Span(
        [
            html.Span(signs.get(outcome, "?"), className="pill-sign", **{"aria-hidden": "true"}),
            outcome.lower() + state,
        ],
        className=f"pill pill-outcome-{outcome.lower()}",
    )


def _stall_table(stalls: pl.DataFrame, view: View) -> Any:
    if stalls.is_empty():
        return quiet("No queue of this group stood still in this range.")
    rows = [
        [
            html.Span(clock(row["opened_at"]), className="exact"),
            html.Span(clock(row["closed_at"]) if row["closed_at"] else "still", className="exact"),
            html.Span(duration(row["stood_ms"]), className="number"),
            html.Span(count(row["lag_messages"]), className="number"),
            state_pill(row["rule"]),
            row["kind"].replace("_", " ").lower(),
            html.Span([topic_link(row["topic"], view), f" {row['queue_id']}"]),
            html.Span(row["client_id"] or "not told", className="exact"),
            html.Span(row["head_message_id"] or "not told", className="exact"),
            html.Span(row["evidence"], className="reason"),
        ]
        for row in stalls.sort("opened_at", descending=True).iter_rows(named=True)
    ]
    headings = (
        "from",
        "to",
        "stood for",
        "waiting",
        "rule",
        "kind",
        "queue",
        "client",
        "head message",
        "first seen as",
    )
    return table(headings, rows, label="Stalled windows")


def _member_table(rebalances: pl.DataFrame) -> Any:
    if rebalances.is_empty():
        return quiet("Members did not change in this range.")
    rows = [
        [
            html.Span(clock(row["observed_at"]), className="exact"),
            html.Span(answers.rebalance_text(row), className="wrap"),
            html.Span(row["reason"] or "", className="wrap"),
        ]
        for row in rebalances.sort("observed_at", descending=True).iter_rows(named=True)
    ]
    return table(("at", "what", "reason"), rows, label="Changes of members")


def _dead_table(dead: pl.DataFrame, view: View) -> Any:
    if dead.is_empty():
        return quiet("No message was dead-lettered in this range.")
    rows = [
        [
            html.Span(clock(row["observed_at"]), className="exact"),
            _message(row, view),
            origin(row, view),
            html.Span(count(row["reconsume_times"]), className="number"),
            html.Span(row["reason"] or "not told", className="wrap"),
        ]
        for row in dead.sort("observed_at", descending=True).iter_rows(named=True)
    ]
    return table(("at", "message", "origin", "failed tries", "reason"), rows, label="Dead letters")


def _message(row: dict[str, Any], view: View) -> Any:
    """A dead message's id; on its topic's page it shows where it went."""
    message_id, topic = row["message_id"], row["origin_topic"]
    if not message_id or not topic:
        return html.Span(message_id or "without id", className="exact")
    href = topic_path(topic) + view.around_page.search(q=message_id)
    return dcc.Link(message_id, href=href, className="exact")


def register(app: Dash, desk: Desk) -> None:
    """The page's callback."""

    @app.callback(
        Output("group-notice", "children"),
        Output("group-body", "className"),
        Output("group-summary", "children"),
        Output("group-timeline", "figure"),
        Output("group-timeline-text", "aria-label"),
        Output("group-queues", "rowData"),
        Output("group-duplicates-tree", "data"),
        Output("group-stalls-tree", "data"),
        Output("group-members-tree", "data"),
        Output("group-dead-tree", "data"),
        Input("pulse", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("theme", "data"),
    )
    async def show_group(
        pulse: Any, pathname: str | None, search: str | None, theme: str | None
    ) -> Any:
        group = group_of(pathname or "")
        shown = await beside(partial(content, pulse=pulse), desk, group, search, theme)
        return *shown[:6], *map(tree, shown[6:])

    for element in ("group-duplicates", "group-stalls", "group-members", "group-dead"):
        register_drawn(app, element)
