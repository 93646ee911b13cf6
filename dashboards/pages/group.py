"""Page for a single group: its state in words, lag alongside events, queues and risks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import dash_ag_grid as dag
import polars as pl
from dash import Dash, Input, Output, dcc, html

from dashboards.figures.lag_timeline import HEIGHT, lag_timeline
from dashboards.formatting import clock, count, duration, spoken, visible
from dashboards.models import lag_overview
from dashboards.models.alert_lines import AlertLane, lane_of
from dashboards.models.lag_overview import GroupLine
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import (
    TREND_SIGNS,
    card,
    choice_of_cluster,
    drawn,
    empty_range,
    failure,
    first_run,
    origin,
    quality_badge,
    quiet,
    register_drawn,
    sent,
    state_pill,
    table,
    topic_link,
    tree,
    withheld_notice,
)
from dashboards.pages.page import Page
from dashboards.reads.lake_data import Look
from dashboards.theme import palette
from dashboards.url_state import GROUP_PREFIX, Span, View, group_of, group_path, topic_path
from engine.foundation.errors import LakeError
from pipelines.base.wording import bound_of, unknown
from pipelines.reading.emitters import watched_text
from pipelines.reading.known import began_at, held_to, lag_known, states_at
from pipelines.reading.left_topics import still_left
from pipelines.reading.reading import LOOK_BACK
from pipelines.sentences import pictures, recent_changes
from pipelines.sentences.causes import shown as cause_shown
from pipelines.sentences.duplicates import came_again
from pipelines.sentences.new_lives import NewLife
from pipelines.sentences.pop_groups import PopGroup, pop_group, stand_whole

if TYPE_CHECKING:
    pass

HIDDEN, SHOWN = "group-body hidden", "group-body"
VERDICTS: Final = (
    *("group_state", "consumer_lag", "stalled_windows", "duplicate_risk_windows"),
    *("lag_causes", "ownership", "rebalances", "dead_letters", "replaced_messages"),
    *("lost_unread_messages", "passed_over_messages"),
)
"""Tables whose verdicts the page shows."""
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
    {"field": "state", "headerName": "state", "width": 132},
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
                [
                    dcc.Link("Overview", href="/", className="crumb", id="crumb"),
                    html.H1(visible(name)),
                ],
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
                        "(striped), duplicate risk (crossed) and alerts that fire (upright); "
                        "dashed: members changed",
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
    context: PageContext,
    group: str | None,
    search: str | None,
    theme: str | None,
    *,
    pulse: Any = None,
) -> tuple[Any, ...]:
    """(notice, body class, summary, figure, its summary, queue rows, duplicates, stalls, members,
    dead letters), as they are sent."""
    try:
        look = context.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(context.data.lake.root))
        board, version = context.board(), 0
        fired: Callable[[str], AlertLane | None] = _nobody_watches
        if board is not None and context.alerts is not None:
            past, version = context.alerts.past(look.span.start, look.span.end), board.version
            seen, now_us = (board, past, group or ""), context.now_us
            fired = lambda cluster: lane_of(*seen, cluster=cluster, now_us=now_us)  # noqa: E731
        key = ("group", group, look.key, theme, int(look.span.now.timestamp() // 60), version)
        return context.pages.get(key, lambda: _content(group or "", look, theme, fired))
    except LakeError as error:
        return _instead(failure(str(error), context.clock()))


def _nobody_watches(_cluster: str) -> None:
    return None


def _instead(shown: Any) -> tuple[Any, ...]:
    return sent(shown), HIDDEN, [], {}, "", [], [], [], [], []


def _content(
    group: str, look: Look, theme: str | None, fired: Callable[[str], AlertLane | None]
) -> tuple[Any, ...]:
    found = look.among(lambda one: _knows(one, group))
    if isinstance(found, tuple):
        what = f"Group {visible(group)!r}"
        return _instead(choice_of_cluster(what, group_path(group), found, look.view))
    look = found
    data, span = look.data, look.span
    states = states_at(lag_overview.of_group(data.newest_states(), group), data.moment)
    newest_reported = lag_overview.of_group(data.newest_lag(), group)
    newest = lag_known(held_to(newest_reported, data.moment), states)
    lag = data.lag_of([group], span.start, span.end)
    if span.is_ahead or (newest.is_empty() and lag.is_empty()):
        return _instead(empty_range(span, look.view, what=f"Group {group!r} reported nothing"))
    stalls = lag_overview.of_group(data.stalls(span.start, span.end), group)
    risks = _met(data.present("duplicate_risk_windows", span.start, span.end), group, span)
    rebalances = data.group_rows("rebalances", group, span.start, span.end)
    dead = data.group_rows("dead_letters", group, span.start, span.end)
    replaced = data.group_rows("replaced_messages", group, span.start, span.end)
    unread = data.group_rows("lost_unread_messages", group, span.start, span.end)
    lives = data.new_lives(span.start, span.end, group=group)
    pop = pop_group(data.group_rows("pop_progress", group, span.end - LOOK_BACK, span.end))
    silences = data.silences(span.start - LOOK_BACK, span.end)
    brokers = lag_overview.broker_events(
        data.lifecycle(span.start, span.end),
        lag_overview.begun_in(silences, span),
        names_clusters=look.names_clusters,
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
        alerts=fired(look.view.cluster),
    )
    standing = lag_overview.open_at_end(stalls, span)
    trust = data.trust(span.start)
    judged = trust.over_states(
        lag_overview.of_group(data.newest_states(), group), data.moment.newest
    )
    groups = lag_overview.group_table(judged, newest_reported, standing, data.moment)
    lines = lag_overview.group_lines(groups, standing)
    line = lines[0] if lines else None
    badge = quality_badge(
        lag_overview.quality(data.checks(), GOVERNING, now=span.now),
        href="/checks" + look.view.around_page.search(),
    )
    return (
        sent(withheld_notice(trust, VERDICTS, data.moment, since=span.start, group=group)),
        SHOWN,
        sent(_summary(line, newest, badge, data.causes(group), look=look, pop=pop)),
        figure,
        _sentence(group, line, stalls, risks),
        lag_overview.queue_rows(newest, standing),
        tree(
            html.Div(
                [_risk_table(risks, look.view), *_lost(replaced), *_lost(unread), *_lives(lives)]
            )
        ),
        tree(html.Div([*_whole_stand(judged, standing), _stall_table(stalls, look.view)])),
        tree(_member_table(rebalances)),
        tree(_dead_table(dead, look.view)),
    )


def _knows(look: Look, group: str) -> bool:
    """Does this cluster know the group, now or in the range?"""
    data, span = look.data, look.span
    newest = (data.newest_lag(), data.newest_states(), data.lag_of([group], span.start, span.end))
    return any(lag_overview.of_group(rows, group).height for rows in newest)


def _met(windows: pl.DataFrame, group: str, span: Span) -> pl.DataFrame:
    return lag_overview.overlapping(lag_overview.of_group(windows, group), span)


def _watched(look: Look, newest: pl.DataFrame) -> list[tuple[str, str]]:
    """Says that what is shown was polled, and how far it may be off."""
    watched = watched_text(look.data.moment, newest["emitter"].unique().to_list())
    return [] if watched is None else [("how known", watched)]


def _silent_clients(look: Look, group: str) -> list[tuple[str, str]]:
    """Which clients of the group say nothing of what they hold."""
    words = look.data.silent_clients(group)["words"].unique().sort().to_list()
    return [("clients", visible("; ".join(words)))] if words else []


def _left_topics(look: Look, group: str, newest: pl.DataFrame) -> list[tuple[str, str]]:
    """Topics that the group has left, and does not read again."""
    left = lag_overview.of_group(look.data.left_topics(look.span.start, look.span.end), group)
    words = still_left(left, newest["topic"].unique().to_list())
    return [("left", visible("; ".join(words)))] if words else []


def members_text(members: int | None, newest: pl.DataFrame) -> str:
    """How many there are, or why nobody knows, as the newest rows of the group's lag say."""
    reasons = newest["members_unknown_reason"].drop_nulls()
    if members is not None or reasons.is_empty():
        return count(members)
    return f"unknown: {visible(reasons[0])}"


def _summary(
    line: GroupLine | None,
    newest: pl.DataFrame,
    badge: Any,
    causes: pl.DataFrame,
    *,
    look: Look,
    pop: PopGroup | None,
) -> html.Div:
    """State and reason, why it is behind if it is, then the numbers, each with its unit."""
    if line is None:
        return html.Div(
            [state_pill(None), html.Span("not judged in this range yet", className="why"), badge],
            className="summary",
        )
    commit = cast("datetime | None", newest["last_commit_time"].max())
    facts = (
        *([("cluster", visible(line.cluster))] if look.names_clusters else []),
        ("time lag", line.time_lag),
        ("messages behind", line.messages),
        ("trend", TREND_SIGNS.get(line.trend or "") or unknown(line.trend_unknown_reason)),
        ("queues known", f"{line.queues_known} of {line.queues}"),
        ("members", members_text(line.members, newest)),
        *([] if pop is None else [("reads by", pop.reads_by), ("not acknowledged", pop.out)]),
        ("last commit", clock(commit)),
        ("judged to", clock(line.judged_to)),
        *_watched(look, newest),
        *_silent_clients(look, line.group),
        *_left_topics(look, line.group, newest),
    )
    return html.Div(
        [
            html.Div(
                [state_pill(line.state), html.Span(line.reason, className="why"), badge],
                className="summary-state",
            ),
            *_why(causes),
            html.Dl(
                [html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts],
                className="facts",
            ),
        ],
        className="summary",
    )


def _why(causes: pl.DataFrame) -> list[html.Div]:
    """One line a cause; none for a group that is not behind."""
    return [
        html.Div(
            [
                html.B(f"{spoken(row['cause'])}: "),
                html.Span(
                    f"{visible(cause_shown(row))} (seen at {clock(row['observed_at'])} UTC)",
                    className="why",
                ),
            ],
            className="summary-cause",
        )
        for row in causes.iter_rows(named=True)
    ]


def _sentence(group: str, line: GroupLine | None, stalls: pl.DataFrame, risks: pl.DataFrame) -> str:
    """The chart in one sentence, for those who do not see it."""
    now = None
    if line is not None:
        figures = ("time_lag_ms", bound_of("time_lag_ms"))
        now = {name: getattr(line, name) for name in figures}
    return pictures.timeline(group, now, stalls=stalls.height, risks=risks.height)


def _risk_table(risks: pl.DataFrame, view: View) -> Any:
    if risks.is_empty():
        return quiet("No message of this group was at risk of a second delivery in this range.")
    rows = [
        [
            html.Span(clock(row["opened_at"]), className="exact"),
            recent_changes.cause(row),
            html.Span([topic_link(row["topic"], view), f" {row['queue_id']}"]),
            html.Span(f"[{row['from_offset']}, {row['to_offset']})", className="exact"),
            html.Span(_predicted(row), className="number"),
            html.Span(came_again([row]).number, className="number"),
            _outcome(row),
            html.Span(row["evidence"], className="reason"),
        ]
        for row in risks.sort("opened_at", descending=True).iter_rows(named=True)
    ]
    headings = ("since", "cause", "queue", "range", "predicted", "observed", "outcome", "evidence")
    return table(headings, rows, label="Windows of duplicate risk")


def _lost(rows: pl.DataFrame) -> list[Any]:
    """Messages that were lost, in the words of their rows, the newest first; nothing of none."""
    return [
        html.P(
            [html.Time(clock(row["observed_at"]), className="exact"), " ", visible(row["evidence"])]
        )
        for row in rows.reverse().iter_rows(named=True)
    ]


def _lives(lives: list[NewLife]) -> list[Any]:
    """Topics of the group that were made again, the newest first."""
    return [
        html.P([html.Time(clock(life.at), className="exact"), " ", visible(life.text)])
        for life in reversed(lives)
    ]


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


def _whole_stand(states: pl.DataFrame, still: pl.DataFrame) -> list[Any]:
    """That the group stands though none of its queues does; nothing of others."""
    return [html.P(visible(said), className="reason") for said in stand_whole(states, still)]


def _stall_table(stalls: pl.DataFrame, view: View) -> Any:
    if stalls.is_empty():
        return quiet("No queue of this group stood still in this range.")
    rows = [
        [
            html.Span(clock(began_at(row)), className="exact"),
            html.Span(clock(row["closed_at"]) if row["closed_at"] else "still", className="exact"),
            html.Span(duration(row["stood_ms"]), className="number"),
            html.Span(count(row["lag_messages"]), className="number"),
            state_pill(row["rule"] if row["unknown_reason"] is None else None),
            spoken(row["kind"]),
            html.Span([topic_link(row["topic"], view), f" {row['queue_id']}"]),
            html.Span(row["client_id"] or "unknown", className="exact"),
            html.Span(_head(row), className="exact"),
            html.Span(clock(row["stands_since"]), className="exact"),
            html.Span([html.Span(row["evidence"]), *_stack(row)], className="reason"),
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
        "stands since",
        "seen as",
    )
    return table(headings, rows, label="Stalled windows")


def _head(row: dict[str, Any]) -> str:
    """The message that all others wait for: by its offset, and its id where it was reported."""
    offset, message = row["head_offset"], row["head_message_id"]
    if offset is None:
        return message or "unknown"
    return f"offset {offset}" + (f" {message}" if message else "")


def _stack(row: dict[str, Any]) -> list[Any]:
    """Where the listener of a head stands, when its client said so, line by line."""
    if not row["stack"]:
        return []
    lines = [html.Div(visible(line)) for line in row["stack"].splitlines()]
    return [html.Div(lines, className="stack", **{"aria-label": "Stack of the listener"})]


def _member_table(rebalances: pl.DataFrame) -> Any:
    if rebalances.is_empty():
        return quiet("Members did not change in this range.")
    rows = [
        [
            html.Span(clock(row["observed_at"]), className="exact"),
            html.Span(recent_changes.of_members(row), className="wrap"),
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
            html.Span(row["reason"] or "not reported", className="wrap"),
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


def register(app: Dash, context: PageContext) -> None:
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
        return await beside(partial(content, pulse=pulse), context, group, search, theme)

    for element in ("group-duplicates", "group-stalls", "group-members", "group-dead"):
        register_drawn(app, element)


PAGE: Final = Page(GROUP_PREFIX, "Group", layout, register, group_of, in_navigation=False)
