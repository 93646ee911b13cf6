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
    drawn,
    empty_range,
    failure,
    first_run,
    quiet,
    register_drawn,
    state_pill,
    table,
    tile,
    topic_link,
    tree,
)
from dashboards.theme import palette, state_sign
from dashboards.view import QUERY_MAX, Span, View, around, group_path, parse
from dashboards.words import clock, count, duration, plural, visible
from engine.foundation.errors import LakeError
from pipelines.reading import held_to

GROUPS_PER_PAGE: Final = 25
"""Rows of the heatmap and of the table; further groups are on further pages."""
HIDDEN, SHOWN = "overview-body hidden", "overview-body"

CHANGE_SIGNS: Final = {
    "stall": ("■", "stalled"),
    "stall over": ("✓", "ok"),
    "risk": ("◆", "risk"),
    "risk over": ("◇", "ok"),
    "delivered twice": ("✖", "stalled"),
    "broker": ("↻", "event"),
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
                                        html.Div(
                                            [
                                                _finding(),
                                                *drawn("overview-groups"),
                                                html.Div(id="overview-pager"),
                                            ]
                                        ),
                                        element="overview-groups-card",
                                    ),
                                ],
                                className="column",
                            ),
                            card(
                                "What changed",
                                html.Div(drawn("overview-changes")),
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


def content(
    desk: Desk, search: str | None, theme: str | None, pulse: Any = None
) -> tuple[Any, ...]:
    """(notice, body class, strip, figure, its size, its summary, groups, changes, links to the
    pages of groups, how many groups were found)."""
    try:
        look = desk.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(desk.data.lake.root))
        key = ("overview", look.key, theme, _checks_age(look))
        return desk.pages.get(key, lambda: _content(look, theme))
    except LakeError as error:
        return _instead(failure(str(error), desk.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, [], {}, {}, "", None, None, None, ""


def _checks_age(look: Look) -> int:
    """Checks grow old while nothing else changes; in steps, so that answers are shared."""
    return int(look.span.now.timestamp() // 60)


def _content(look: Look, theme: str | None) -> tuple[Any, ...]:
    data, span = look.data, look.span
    stalls = data.stalls(span.start, span.end)
    standing = answers.open_at_end(stalls, span)
    groups = answers.group_table(
        data.newest_states(),
        held_to(data.newest_lag(), data.moment),
        standing,
        silent=[one.emitter for one in data.moment.silent],
    )
    if groups.is_empty():
        return _instead(empty_range(span, look.view, what="No group reported anything"))
    risks = answers.overlapping(data.present("duplicate_risk_windows", span.start, span.end), span)
    rebalances = data.rows("rebalances", span.start, span.end)
    dead = data.rows("dead_letters", span.start, span.end)
    brokers = answers.broker_events(
        data.lifecycle(span.start, span.end), data.silences(span.start, span.end)
    )
    chosen = answers.chosen_groups(groups, look.view.query, look.view.sort)
    page = answers.page_of(chosen, look.view.page, GROUPS_PER_PAGE)
    names = page["group"].to_list()
    figure = lag_heatmap(
        data.cells(span, bucket(span), names),
        groups=names,
        marks=_marks(stalls, rebalances, dead, span),
        span=span,
        colours=palette(theme),
        brokers=brokers,
    )
    strip = _strip(
        groups,
        search=look.view.around_page.search(),
        stalls=standing,
        risks=risks,
        open_risks=answers.open_at_end(risks, span),
        dead=dead,
        found=answers.quality(data.everything("dq_results"), now=span.now),
    )
    changes = answers.changes(
        stalls=stalls,
        risks=risks,
        rebalances=rebalances,
        dead_letters=dead,
        span=span,
        brokers=brokers,
    )
    lines = answers.group_lines(page, standing)
    return (
        None,
        SHOWN,
        strip,
        figure,
        {"height": figure.layout.height},
        summary(groups),
        _groups(lines, look, risks=answers.open_at_end(risks, span), dead=dead),
        _feed(changes, look.view),
        _pager(look.view, chosen.height),
        f"{chosen.height:,} of {plural(groups.height, 'group')}" if look.view.query else "",
    )


def _marks(
    stalls: pl.DataFrame, rebalances: pl.DataFrame, dead: pl.DataFrame, span: Span
) -> dict[str, pl.DataFrame]:
    begun = stalls.select("group", pl.col("opened_at").alias("at"))
    return {
        "stall": begun.filter(pl.col("at") >= span.start),
        "rebalance": rebalances.select("group", pl.col("observed_at").alias("at")),
        "dead": dead.select("group", pl.col("observed_at").alias("at")),
    }


def summary(groups: pl.DataFrame) -> str:
    """The heatmap in one sentence, for those who do not see it."""
    bad = groups.filter(pl.col("state") != "OK").height
    worst = groups.sort("time_lag_ms", descending=True, nulls_last=True).row(0, named=True)
    return (
        f"Time lag of {plural(groups.height, 'group')} over time; {bad} not OK; "
        f"{worst['group']} is furthest behind with {duration(worst['time_lag_ms'])}."
    )


def _strip(
    groups: pl.DataFrame,
    *,
    search: str,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    open_risks: pl.DataFrame,
    dead: pl.DataFrame,
    found: answers.Quality,
) -> list[Any]:
    states = dict(groups["state"].value_counts().iter_rows())
    present = sorted(states, key=lambda state: state_sign(state).rank)
    pills = [
        html.Span([state_pill(state), html.B(f"{states[state]:,}")], className="pill-count")
        for state in present
    ]
    worst = groups.sort("time_lag_ms", descending=True, nulls_last=True).row(0, named=True)
    known = groups["lag_messages"].drop_nulls()
    unknown_queues = int((groups["queues"] - groups["queues_known"]).sum())
    at_risk = int(open_risks["at_risk_messages"].sum())
    return [
        tile("groups", pills, plural(groups.height, "group"), href="#overview-groups-card"),
        tile(
            "worst time lag",
            duration(worst["time_lag_ms"]),
            visible(worst["group"]),
            href=group_path(worst["group"]) + search,
            tone="bad" if state_sign(worst["state"]).rank < 5 else "calm",
        ),
        tile(
            "messages behind",
            count(int(known.sum())) if known.len() else "unknown",
            f"{plural(unknown_queues, 'queue')} unknown" if unknown_queues else "all queues known",
            href="#overview-groups-card",
        ),
        tile(
            "stalled windows",
            count(stalls.height),
            answers.stall_now_text(stalls.row(-1, named=True))
            if stalls.height
            else "nothing stands still",
            href=_of_first(stalls, search, "#group-stalls-card"),
            tone="bad" if stalls.height else "calm",
        ),
        tile(
            "duplicate risk",
            count(open_risks.height),
            f"open, {plural(at_risk, 'message')} at risk"
            if open_risks.height
            else "nothing at risk",
            href=_of_first(open_risks, search, "#group-duplicates-card"),
            tone="warn" if open_risks.height else "calm",
        ),
        _twice(risks, search),
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


def _twice(risks: pl.DataFrame, search: str) -> Any:
    """Messages that were delivered a second time in the range: never good news, over or not."""
    confirmed = risks.filter(pl.col("outcome") == "CONFIRMED").sort("opened_at")
    messages = int(confirmed["redelivered_messages"].sum())
    causes = sorted({answers.cause_words(row) for row in confirmed.iter_rows(named=True)})
    return tile(
        "delivered twice",
        count(messages),
        f"after a {', a '.join(causes)}" if causes else "none seen",
        href=_of_first(confirmed, search, "#group-duplicates-card"),
        tone="bad" if messages else "calm",
    )


def _finding() -> html.Div:
    """The field that keeps groups by a part of their name, and how many are left."""
    return html.Div(
        [
            html.Label("groups whose name holds", htmlFor="overview-search"),
            dcc.Input(
                id="overview-search",
                type="text",
                value="",
                maxLength=QUERY_MAX,
                autoComplete="off",
                spellCheck=False,
                debounce=True,
                className="search-field",
            ),
            html.Span(id="overview-found", className="card-note"),
        ],
        className="search",
        role="search",
    )


def _pager(view: View, found: int) -> Any:
    """Links to the pages of the groups; nothing when one page has them all."""
    pages = max(1, -(-found // GROUPS_PER_PAGE))
    if pages == 1:
        return None
    here = min(view.page, pages)
    begin = (here - 1) * GROUPS_PER_PAGE + 1
    end = min(found, here * GROUPS_PER_PAGE)

    def to(page: int, text: str) -> Any:
        if not 1 <= page <= pages or page == here:
            return html.Span(text, className="choice")
        return dcc.Link(text, href="/" + view.search(page=str(page)), className="choice")

    return html.Nav(
        [
            to(1, "first"),
            to(here - 1, "previous"),
            html.Span(f"{begin:,} to {end:,} of {found:,}", className="choice here"),
            to(here + 1, "next"),
            to(pages, "last"),
        ],
        className="choices pager",
        **{"aria-label": "Pages of groups"},
    )


def _of_first(rows: pl.DataFrame, search: str, place: str) -> str:
    """The page of the group the newest row is about."""
    return group_path(rows["group"][-1]) + search + place if rows.height else "/"


def _groups(lines: list[GroupLine], look: Look, *, risks: pl.DataFrame, dead: pl.DataFrame) -> Any:
    if not lines:
        return quiet("No group's name holds that.")
    risk_counts = dict(risks["group"].value_counts().iter_rows())
    dead_counts = dict(dead["group"].value_counts().iter_rows())
    rows = [
        [
            state_pill(line.state),
            dcc.Link(
                visible(line.group),
                href=group_path(line.group) + look.view.around_page.search(),
                className="name",
            ),
            html.Span(duration(line.time_lag_ms), className="number"),
            html.Span(count(line.lag_messages), className="number"),
            TREND_SIGNS.get(line.trend or "", "unknown"),
            html.Span(count(line.members), className="number"),
            html.Span(f"{line.queues_known} of {line.queues}", className="number"),
            html.Span(count(risk_counts.get(line.group, 0)), className="number"),
            html.Span(count(dead_counts.get(line.group, 0)), className="number"),
            html.Span(line.reason, className="reason"),
        ]
        for line in lines
    ]
    headings = (
        _sorting("state", "worst", look.view),
        _sorting("group", "name", look.view),
        _sorting("time lag", "time", look.view),
        _sorting("messages", "messages", look.view),
        "trend",
        _sorting("members", "members", look.view),
        "queues known",
        "risk windows",
        "dead",
        "because",
    )
    return table(headings, rows, label="Groups")


def _sorting(heading: str, order: str, view: View) -> Any:
    """A heading by which the groups can be sorted."""
    if view.sort == order:
        return html.Span([heading, " ▾"], title="sorted by this")
    href = "/" + view.search(sort=order, page="1")
    return dcc.Link(heading, href=href, className="sorting", title="sort by this")


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
    if change.group is None:
        who: Any = html.Span("broker", className="name")
    else:
        href = group_path(change.group) + around(change.at)
        who = dcc.Link(visible(change.group), href=href, className="name")
    return [
        html.Span(sign, className=f"feed-sign sign-{css}", **{"aria-hidden": "true"}),
        html.Div(
            [
                html.Div(
                    [
                        who,
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
        return visible(change.text)
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
        Output("overview-groups-tree", "data"),
        Output("overview-changes-tree", "data"),
        Output("overview-pager", "children"),
        Output("overview-found", "children"),
        Input("pulse", "data"),
        Input("url", "search"),
        Input("theme", "data"),
    )
    async def show_overview(pulse: Any, search: str | None, theme: str | None) -> Any:
        shown = await beside(content, desk, search, theme, pulse)
        return *shown[:6], tree(shown[6]), tree(shown[7]), *shown[8:]

    @app.callback(Output("overview-search", "value"), Input("url", "search"))
    def show_query(search: str | None) -> str:
        return parse(search).query

    register_drawn(app, "overview-groups")
    register_drawn(app, "overview-changes")
    app.clientside_callback(
        ClientsideFunction("tidemark", "findGroups"),
        Output("overview-search", "n_submit"),
        Input("overview-search", "value"),
        prevent_initial_call=True,
    )

    app.clientside_callback(
        ClientsideFunction("tidemark", "openCell"),
        Output("overview-heatmap", "clickData"),
        Input("overview-heatmap", "clickData"),
        prevent_initial_call=True,
    )
