"""The overview: is anything wrong, where, and since when."""

from __future__ import annotations

from typing import Any, Final

import polars as pl
from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from dashboards import answers
from dashboards.answers import Change, GroupLine
from dashboards.desk import Desk, Look, beside
from dashboards.figures.overview import bucket, lag_heatmap
from dashboards.pages.parts import (
    TREND_SIGNS,
    card,
    empty_range,
    failure,
    first_run,
    quiet,
    state_pill,
    table,
    tile,
    topic_link,
)
from dashboards.theme import palette, state_sign
from dashboards.view import View, around, group_path
from dashboards.words import clock, count, duration, plural, visible
from engine.foundation.errors import LakeError

GROUPS_MAX: Final = 50
"""Rows of the heatmap; further groups are in the table."""
HIDDEN, SHOWN = "overview-body hidden", "overview-body"

CHANGE_SIGNS: Final = {
    "stall": ("■", "stalled"),
    "stall over": ("✓", "ok"),
    "risk": ("◆", "risk"),
    "risk over": ("◇", "ok"),
    "rebalance": ("⇄", "event"),
    "dead": ("✖", "dead"),
}


def layout() -> html.Div:
    """Strip, heatmap and groups on the left, what changed on the right."""
    graph = dcc.Graph(
        id="overview-heatmap",
        config={"displayModeBar": False},
        responsive=True,
        className="graph",
    )
    return html.Div(
        [
            html.H1("Overview", className="visually-hidden"),
            html.Div(id="overview-notice"),
            html.Div(
                [
                    html.Div(id="overview-strip", className="strip"),
                    html.Div(
                        [
                            html.Div(
                                [
                                    card(
                                        "Who is behind, and since when?",
                                        html.Div(graph, id="overview-heatmap-text", role="img"),
                                        element="overview-lag",
                                        note="largest time lag of a group's queues, worst on top; "
                                        "choose a cell to open the group at that moment",
                                    ),
                                    card(
                                        "Groups",
                                        html.Div(id="overview-groups"),
                                        element="overview-groups-card",
                                    ),
                                ],
                                className="column",
                            ),
                            card(
                                "What changed",
                                html.Div(id="overview-changes"),
                                element="overview-feed",
                            ),
                        ],
                        className="split",
                    ),
                ],
                id="overview-body",
                className=HIDDEN,
            ),
        ]
    )


def content(desk: Desk, search: str | None, theme: str | None) -> tuple[Any, ...]:
    """(notice, body class, strip, figure, its size, its summary, groups, changes)."""
    try:
        look = desk.look(search)
        if look.pulse.first_run:
            return _instead(first_run(desk.data.lake.root))
        return _content(desk, look, theme)
    except LakeError as error:
        return _instead(failure(str(error), desk.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, [], {}, {}, "", [], []


def _content(desk: Desk, look: Look, theme: str | None) -> tuple[Any, ...]:
    data, span = desk.data, look.span
    lines = answers.group_lines(data.rows("group_state", span.start, span.end))
    cells = data.cells(span, bucket(span))
    if cells.is_empty():
        return _instead(empty_range(span, look.view, what="No group reported anything"))
    known = {line.group for line in lines}
    unjudged = [name for name in cells["group"].unique().sort().to_list() if name not in known]
    names = [*(line.group for line in lines), *unjudged]
    stalls = answers.overlapping(data.present("stalled_windows"), span)
    risks = answers.overlapping(data.present("duplicate_risk_windows"), span)
    rebalances = data.rows("rebalances", span.start, span.end)
    dead = data.rows("dead_letters", span.start, span.end)
    marks = {
        "stall": stalls.select("group", pl.col("opened_at").alias("at")).filter(
            pl.col("at") >= span.start
        ),
        "rebalance": rebalances.select("group", pl.col("observed_at").alias("at")),
        "dead": dead.select("group", pl.col("observed_at").alias("at")),
    }
    figure = lag_heatmap(
        cells, groups=names[:GROUPS_MAX], marks=marks, span=span, colours=palette(theme)
    )
    strip = _strip(
        lines,
        search=look.view.search(),
        stalls=answers.open_at_end(stalls, span),
        risks=answers.open_at_end(risks, span),
        dead=dead,
        found=answers.quality(data.everything("dq_results")),
    )
    changes = answers.changes(
        stalls=stalls, risks=risks, rebalances=rebalances, dead_letters=dead, span=span
    )
    return (
        None,
        SHOWN,
        strip,
        figure,
        {"height": figure.layout.height},
        summary(lines),
        _groups(lines, look, risks=answers.open_at_end(risks, span), dead=dead),
        _feed(changes, look.view),
    )


def summary(lines: list[GroupLine]) -> str:
    """The heatmap in one sentence, for those who do not see it."""
    if not lines:
        return "Time lag of groups over time; no group has been judged yet."
    worst = max(lines, key=lambda line: line.time_lag_ms or 0)
    bad = sum(line.state != "OK" for line in lines)
    return (
        f"Time lag of {plural(len(lines), 'group')} over time; {bad} not OK; "
        f"{worst.group} is furthest behind with {duration(worst.time_lag_ms)}."
    )


def _strip(
    lines: list[GroupLine],
    *,
    search: str,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    dead: pl.DataFrame,
    found: answers.Quality,
) -> list[Any]:
    states = [line.state for line in lines]
    present = sorted(set(states), key=lambda state: state_sign(state).rank)
    pills = [
        html.Span([state_pill(state), html.B(str(states.count(state)))], className="pill-count")
        for state in present
    ]
    worst = max(lines, key=lambda line: line.time_lag_ms or -1, default=None)
    known = [line.lag_messages for line in lines if line.lag_messages is not None]
    unknown_queues = sum(line.queues - line.queues_known for line in lines)
    at_risk = int(risks["at_risk_messages"].sum())
    return [
        tile(
            "groups",
            pills or "none judged",
            plural(len(lines), "group"),
            href="#overview-groups-card",
        ),
        tile(
            "worst time lag",
            duration(worst.time_lag_ms) if worst else "unknown",
            visible(worst.group) if worst else "no group",
            href=group_path(worst.group) + search if worst else "/",
            tone="bad" if worst and state_sign(worst.state).rank < 5 else "calm",
        ),
        tile(
            "messages behind",
            count(sum(known)) if known else "unknown",
            f"{plural(unknown_queues, 'queue')} unknown" if unknown_queues else "all queues known",
            href="#overview-groups-card",
        ),
        tile(
            "stalled windows",
            count(stalls.height),
            answers.stall_text([stalls.row(-1, named=True)])
            if stalls.height
            else "nothing stands still",
            href=_of_first(stalls, search, "#group-stalls-card"),
            tone="bad" if stalls.height else "calm",
        ),
        tile(
            "duplicate-risk windows",
            count(risks.height),
            f"open, {plural(at_risk, 'message')} at risk" if risks.height else "nothing at risk",
            href=_of_first(risks, search, "#group-duplicates-card"),
            tone="warn" if risks.height else "calm",
        ),
        tile(
            "dead letters",
            count(dead.height),
            visible(dead["group"][-1]) if dead.height else "none",
            href=_of_first(dead, search, "#group-dead-card"),
            tone="warn" if dead.height else "calm",
        ),
        tile(
            "failing checks",
            count(found.failing) if found.level != "unknown" else "unknown",
            found.sentence,
            href="/checks" + search,
            tone={"degraded": "bad", "warning": "warn"}.get(found.level, "calm"),
        ),
    ]


def _of_first(rows: pl.DataFrame, search: str, place: str) -> str:
    """The page of the group the newest row is about."""
    return group_path(rows["group"][-1]) + search + place if rows.height else "/"


def _groups(lines: list[GroupLine], look: Look, *, risks: pl.DataFrame, dead: pl.DataFrame) -> Any:
    if not lines:
        return quiet("No group has been judged in this range yet.")
    rows = [
        [
            state_pill(line.state),
            dcc.Link(
                visible(line.group),
                href=group_path(line.group) + look.view.search(),
                className="name",
            ),
            html.Span(duration(line.time_lag_ms), className="number"),
            html.Span(count(line.lag_messages), className="number"),
            TREND_SIGNS.get(line.trend or "", "unknown"),
            html.Span(count(line.members), className="number"),
            html.Span(f"{line.queues_known} of {line.queues}", className="number"),
            html.Span(count(answers.of_group(risks, line.group).height), className="number"),
            html.Span(count(answers.of_group(dead, line.group).height), className="number"),
            html.Span(line.reason, className="reason"),
        ]
        for line in lines
    ]
    headings = (
        "state",
        "group",
        "time lag",
        "messages",
        "trend",
        "members",
        "queues known",
        "risk windows",
        "dead",
        "because",
    )
    return table(headings, rows, label="Groups, worst first")


def _feed(changes: list[Change], view: View) -> Any:
    if not changes:
        return quiet("Nothing changed in this range.")
    entries = [html.Li(_entry(change, view)) for change in changes[: answers.CHANGES_MAX]]
    more = len(changes) - len(entries)
    if more > 0:
        entries.append(html.Li(quiet(f"and {more} earlier")))
    return html.Ol(entries, className="feed")


def _entry(change: Change, view: View) -> list[Any]:
    sign, css = CHANGE_SIGNS[change.kind]
    href = group_path(change.group or "") + around(change.at)
    return [
        html.Span(sign, className=f"feed-sign sign-{css}", **{"aria-hidden": "true"}),
        html.Div(
            [
                html.Div(
                    [
                        dcc.Link(visible(change.group or "lake"), href=href, className="name"),
                        html.Time(clock(change.at), dateTime=change.at.isoformat()),
                    ],
                    className="feed-head",
                ),
                html.Div(_text(change, view), className="feed-text"),
            ],
            className="feed-body",
        ),
    ]


def _text(change: Change, view: View) -> Any:
    """The entry's words; a topic they begin with leads to its page."""
    if not change.topic or not change.text.startswith(change.topic):
        return change.text
    return [topic_link(change.topic, view), change.text.removeprefix(change.topic)]


def register(app: Dash, desk: Desk) -> None:
    """The page's callbacks."""

    @app.callback(
        Output("overview-notice", "children"),
        Output("overview-body", "className"),
        Output("overview-strip", "children"),
        Output("overview-heatmap", "figure"),
        Output("overview-heatmap", "style"),
        Output("overview-heatmap-text", "aria-label"),
        Output("overview-groups", "children"),
        Output("overview-changes", "children"),
        Input("pulse", "data"),
        Input("url", "search"),
        Input("theme", "data"),
    )
    async def show_overview(_pulse: Any, search: str | None, theme: str | None) -> Any:
        return await beside(content, desk, search, theme)

    app.clientside_callback(
        ClientsideFunction("tidemark", "openCell"),
        Output("overview-heatmap", "clickData"),
        Input("overview-heatmap", "clickData"),
        prevent_initial_call=True,
    )
