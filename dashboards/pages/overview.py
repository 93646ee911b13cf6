"""Overview page that shows whether anything is wrong, where, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl
from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from dashboards.figures.lag_heatmap import bucket, lag_heatmap, line_name
from dashboards.formatting import clock, count, duration, or_more, plural, visible
from dashboards.models import lag_overview
from dashboards.models.lag_overview import Change, GroupLine
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import (
    TREND_SIGNS,
    card,
    doubts_at,
    drawn,
    empty_range,
    failure,
    first_run,
    pager,
    quiet,
    reason_of,
    register_drawn,
    register_search,
    search_field,
    sent,
    state_pill,
    table,
    tile,
    topic_link,
    tree,
    withheld_notice,
)
from dashboards.pages.page import Page
from dashboards.reads.lake_data import Look
from dashboards.theme import palette, state_sign
from dashboards.url_state import Span, View, around, group_path
from engine.foundation.errors import LakeError
from pipelines.base.wording import REASONS, UNKNOWN, spoken, with_article
from pipelines.reading.at_risk import at_risk
from pipelines.reading.known import BEGINNINGS
from pipelines.reading.reading import LOOK_BACK
from pipelines.reading.rollbacks import rollbacks
from pipelines.reading.trust import Doubts, Trust
from pipelines.sentences import pictures
from pipelines.sentences.duplicates import CameAgain, came_again
from pipelines.sentences.pop_groups import stand_whole
from pipelines.sentences.stalls import stands_now

GROUPS_PER_PAGE: Final = 25
"""Rows of the heatmap and of the table; further groups are on further pages."""
HIDDEN, SHOWN = "overview-body hidden", "overview-body"
VERDICTS: Final = (
    *("group_state", "consumer_lag", "stalled_windows", "duplicate_risk_windows"),
    *("replaced_messages", "lost_unread_messages", "passed_over_messages"),
)
"""Tables whose verdicts the page shows."""
WITHHELD_WORD: Final = "withheld"
QUEUES_KNOWN: Final = "all queues known"
CLUSTERS_NAMED: Final = 3
"""Of those over which a number goes; the others are counted."""

CHANGE_SIGNS: Final = {
    "stall": ("■", "stalled"),
    "stall over": ("✓", "ok"),
    "risk": ("◆", "risk"),
    "risk over": ("◇", "ok"),
    "delivered twice": ("✖", "stalled"),
    "broker": ("↻", "event"),
    "roll-back": ("✖", "stalled"),
    "fail-over": ("↻", "risk"),
    "rebalance": ("⇄", "event"),
    "dead": ("✖", "dead"),
    "replaced": ("✖", "stalled"),
    "deleted unread": ("✖", "stalled"),
    "passed over": ("✖", "stalled"),
    "topic": ("↻", "event"),
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
    context: PageContext, search: str | None, theme: str | None, pulse: Any = None
) -> tuple[Any, ...]:
    """(notice, body class, strip, figure, its size, its summary, groups, changes, links to the
    pages of groups, how many groups were found), as they are sent."""
    try:
        look = context.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(context.data.lake.root))
        key = ("overview", look.key, theme, _checks_age(look))
        return context.pages.get(key, lambda: _content(look, theme))
    except LakeError as error:
        return _instead(failure(str(error), context.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return sent(shown), HIDDEN, [], {}, {}, "", None, None, None, ""


def _checks_age(look: Look) -> int:
    """Checks grow old while nothing else changes; in steps, so that answers are shared."""
    return int(look.span.now.timestamp() // 60)


def _content(look: Look, theme: str | None) -> tuple[Any, ...]:
    data, span = look.data, look.span
    stalls = data.stalls(span.start, span.end)
    standing = lag_overview.open_at_end(stalls, span)
    trust = data.trust(span.start)
    states = trust.over_states(data.newest_states(), data.moment.newest)
    groups = lag_overview.group_table(states, data.newest_lag(), standing, data.moment)
    if groups.is_empty() or span.is_ahead:
        return _instead(empty_range(span, look.view, what="No group reported anything"))
    risks = lag_overview.overlapping(
        data.present("duplicate_risk_windows", span.start, span.end), span
    )
    rebalances = data.rows("rebalances", span.start, span.end)
    dead = data.rows("dead_letters", span.start, span.end)
    lifecycle = data.lifecycle(span.start, span.end)
    silences = lag_overview.begun_in(data.silences(span.start - LOOK_BACK, span.end), span)
    brokers = lag_overview.broker_events(lifecycle, silences, names_clusters=look.names_clusters)
    chosen = lag_overview.chosen_groups(groups, look.view.query, look.view.sort)
    page = lag_overview.page_of(chosen, look.view.page, GROUPS_PER_PAGE)
    names = [(row["cluster"], row["group"]) for row in page.iter_rows(named=True)]
    figure = lag_heatmap(
        data.cells(span, bucket(span), page["group"].unique(maintain_order=True).to_list()),
        groups=names,
        marks=_marks(stalls, rebalances, dead, span),
        span=span,
        colours=palette(theme),
        brokers=brokers,
        names_clusters=look.names_clusters,
    )
    strip = _strip(
        groups,
        look=look,
        stalls=standing,
        risks=risks,
        open_risks=lag_overview.open_at_end(risks, span),
        dead=dead,
        trust=trust,
        found=lag_overview.quality(data.checks(), now=span.now),
    )
    changes = lag_overview.changes(
        stalls=stalls,
        risks=risks,
        rebalances=rebalances,
        dead_letters=dead,
        span=span,
        brokers=brokers,
        together=rollbacks(risks, lifecycle.filter(pl.col("kind") == "BOOT")),
        replaced=data.rows("replaced_messages", span.start, span.end),
        unread=data.rows("lost_unread_messages", span.start, span.end),
        lives=data.new_lives(span.start, span.end),
        left=data.left_topics(span.start, span.end),
        fail_overs=data.fail_overs(span.start, span.end),
    )
    lines = lag_overview.group_lines(page, standing)
    return (
        sent(withheld_notice(trust, VERDICTS, data.moment, since=span.start)),
        SHOWN,
        sent(strip),
        figure,
        {"height": figure["layout"]["height"]},
        summary(groups, names_clusters=look.names_clusters),
        tree(_groups(lines, look, risks=lag_overview.open_at_end(risks, span), dead=dead)),
        tree(_feed(changes, look)),
        sent(pager("/", look.view, chosen.height, size=GROUPS_PER_PAGE, of="groups")),
        f"{chosen.height:,} of {plural(groups.height, 'group')}" if look.view.query else "",
    )


def _marks(
    stalls: pl.DataFrame, rebalances: pl.DataFrame, dead: pl.DataFrame, span: Span
) -> dict[str, pl.DataFrame]:
    begun = stalls.select(*lag_overview.LINE, pl.min_horizontal(BEGINNINGS).alias("at"))
    return {
        "stall": begun.filter(pl.col("at") >= span.start),
        "rebalance": rebalances.select(*lag_overview.LINE, pl.col("observed_at").alias("at")),
        "dead": dead.select(*lag_overview.LINE, pl.col("observed_at").alias("at")),
    }


def summary(groups: pl.DataFrame, *, names_clusters: bool = False) -> str:
    """The heatmap in one sentence, for those who do not see it."""
    bad = groups.filter(pl.col("state") != "OK").height
    worst = groups.sort(lag_overview.BOUNDS[0], descending=True, nulls_last=True).row(0, named=True)
    return pictures.heatmap(groups.height, bad, _named(worst, names_clusters), worst)


def _named(row: Mapping[str, Any], names_clusters: bool) -> str:
    return line_name(row["cluster"], row["group"], names_clusters=names_clusters)


def _strip(
    groups: pl.DataFrame,
    *,
    look: Look,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    open_risks: pl.DataFrame,
    dead: pl.DataFrame,
    found: lag_overview.Quality,
    trust: Trust,
) -> list[Any]:
    moment, since = look.data.moment, look.span.start
    stalls_doubted = doubts_at(trust, "stalled_windows", moment, since=since)
    risks_doubted = doubts_at(trust, "duplicate_risk_windows", moment, since=since)
    states = dict(groups["state"].value_counts().iter_rows())
    present = sorted(states, key=lambda state: state_sign(state).rank)
    pills = [
        html.Span([state_pill(state), html.B(f"{states[state]:,}")], className="pill-count")
        for state in present
    ]
    worst = groups.sort(lag_overview.BOUNDS[0], descending=True, nulls_last=True).row(0, named=True)
    known = groups["lag_at_least_messages"].drop_nulls()
    whole = None if groups["lag_messages"].null_count() else int(known.sum())
    unknown_queues = int((groups["queues"] - groups["queues_known"]).sum())
    return [
        tile(
            "groups",
            pills,
            _divided(groups, look, plural(groups.height, "group")),
            href="#overview-groups-card",
        ),
        tile(
            "worst time lag",
            or_more(worst["time_lag_ms"], worst["time_lag_at_least_ms"], duration),
            visible(_named(worst, look.names_clusters)),
            href=_place(worst, look),
            tone="bad" if state_sign(worst["state"]).rank < 5 else "calm",
        ),
        tile(
            "messages behind",
            or_more(whole, int(known.sum()) if known.len() else None),
            _divided(
                groups,
                look,
                f"{plural(unknown_queues, 'queue')} unknown" if unknown_queues else QUEUES_KNOWN,
                number="lag_at_least_messages",
            ),
            href="#overview-groups-card",
        ),
        _standing(stalls, groups, look, stalls_doubted),
        _at_risk(open_risks, look, risks_doubted),
        _twice(risks, look),
        _dead_letters(dead, look),
        tile(
            "failing checks",
            count(found.failing) if found.level != "unknown" else "unknown",
            found.sentence,
            href="/checks" + look.view.around_page.search(),
            tone={"degraded": "bad", "warning": "warn"}.get(found.level, "calm"),
        ),
    ]


def _divided(rows: pl.DataFrame, look: Look, note: str, *, number: str | None = None) -> str:
    """A tile's note behind what each cluster has of its number, the most first, where the number
    goes over several: somebody who is called at night looks after one of them. The number is that
    of the rows, or the sum of a column.
    """
    if not look.names_clusters or look.view.cluster:
        return note
    share = pl.len() if number is None else pl.col(number).sum()
    shares = rows.group_by("cluster").agg(share.alias("share")).filter(pl.col("share") > 0)
    if shares.is_empty():
        return f"{note} · in {plural(len(look.seen.clusters), 'cluster')}"
    most = shares.sort("share", "cluster", descending=[True, False])
    said = [f"{visible(name)} {own:,}" for name, own in most.head(CLUSTERS_NAMED).iter_rows()]
    more = shares.height - len(said)
    if more:
        said.append(f"{plural(more, 'cluster')} more")
    return " · ".join([*said, note])


def _standing(stalls: pl.DataFrame, groups: pl.DataFrame, look: Look, doubts: Doubts) -> Any:
    """Windows in which consumption stands still now, of groups whose verdicts may be believed;
    without any, only such a verdict says so. A group may stand without one."""
    rest = doubts.rest_of(stalls)
    whole = stand_whole(groups, rest)  # Their states are what may be believed.
    calm = visible(whole[0]) if whole else "nothing stands still"
    calm = calm if doubts.whole is None else str(doubts.whole)
    note = _stall_now(rest.row(-1, named=True), look) if rest.height else calm
    return tile(
        "stalled windows",
        count(rest.height) if doubts.whole is None else WITHHELD_WORD,
        _but_withheld(_divided(rest, look, note), doubts) if doubts.whole is None else note,
        href=_of_first(rest, look, "#group-stalls-card"),
        tone="bad" if rest.height or whole or doubts != Doubts() else "calm",
    )


def _but_withheld(note: str, doubts: Doubts) -> str:
    """A tile's note, and of whom it does not speak."""
    return f"{note} · {doubts.about} withheld" if doubts.named else note


def _stall_now(row: dict[str, Any], look: Look) -> str:
    said = stands_now(row)
    return f"{visible(row['cluster'])}: {said}" if look.names_clusters else said


def _at_risk(risks: pl.DataFrame, look: Look, doubts: Doubts) -> Any:
    """Windows in which messages may be delivered twice now, likewise."""
    rest = doubts.rest_of(risks)
    calm = "nothing at risk" if doubts.whole is None else str(doubts.whole)
    note = f"open, {plural(at_risk(rest), 'message')} at risk" if rest.height else calm
    return tile(
        "duplicate risk",
        count(rest.height) if doubts.whole is None else WITHHELD_WORD,
        _but_withheld(_divided(rest, look, note), doubts) if doubts.whole is None else note,
        href=_of_first(rest, look, "#group-duplicates-card"),
        tone="warn" if rest.height or doubts != Doubts() else "calm",
    )


def _twice(risks: pl.DataFrame, look: Look) -> Any:
    """Deliveries that were repeated in the range: never good news, over or not."""
    confirmed = risks.filter(pl.col("outcome") == "CONFIRMED").sort("opened_at")
    is_observed = look.data.moment.is_observed
    again = came_again(confirmed.iter_rows(named=True), is_observed=is_observed)
    none = "none seen" if again.reason is None else REASONS[again.reason]
    causes = [with_article(spoken(cause)) for cause in confirmed["cause"].unique().sort()]
    note = f"{again.of_messages} after {', '.join(causes)}".strip() if causes else none
    return tile(
        "repeated deliveries",
        _least(again),
        _divided(confirmed, look, note, number="redelivered_messages"),
        href=_of_first(confirmed, look, "#group-duplicates-card"),
        tone="bad" if again.deliveries else "calm",
    )


def _least(again: CameAgain) -> Any:
    """A number as large as the tiles beside it; that it is the least stands before it."""
    if again.deliveries is None:
        return UNKNOWN
    said = count(again.deliveries)
    return said if again.reason is None else [html.Small("at least"), said]


def _dead_letters(dead: pl.DataFrame, look: Look) -> Any:
    """Messages that were given up in the range."""
    note = "none"
    if dead.height:
        note = visible(_named(dead.row(-1, named=True), look.names_clusters))
    return tile(
        "dead letters",
        count(dead.height),
        _divided(dead, look, note),
        href=_of_first(dead, look, "#group-dead-card"),
        tone="warn" if dead.height else "calm",
    )


def _finding() -> html.Div:
    """The field that keeps groups by a part of their name, and how many are left."""
    left = html.Span(id="overview-found", className="card-note")
    return search_field("overview-search", "groups whose name holds", left)


def _of_first(rows: pl.DataFrame, look: Look, place: str) -> str:
    """The page of the group the newest row is about."""
    return _place(rows.row(-1, named=True), look) + place if rows.height else "/"


def _place(row: Mapping[str, Any], look: Look) -> str:
    """The page of a row's group, in its cluster where the lake holds several."""
    cluster = row["cluster"] if look.names_clusters else ""
    return group_path(row["group"]) + look.view.around_page.of_cluster(cluster).search()


def _groups(lines: list[GroupLine], look: Look, *, risks: pl.DataFrame, dead: pl.DataFrame) -> Any:
    if not lines:
        return quiet("No group's name holds that.")
    risk_counts, dead_counts = _counts(risks), _counts(dead)
    pops = look.data.pop_groups(look.span.end)
    rows = [
        [
            state_pill(line.state),
            *([visible(line.cluster)] if look.names_clusters else []),
            dcc.Link(
                visible(line.group),
                href=_place({"cluster": line.cluster, "group": line.group}, look),
                className="name",
            ),
            html.Span(line.time_lag, className="number"),
            html.Span(line.messages, className="number"),
            TREND_SIGNS.get(line.trend or "", "unknown"),
            html.Span(count(line.members), className="number"),
            html.Span(f"{line.queues_known} of {line.queues}", className="number"),
            html.Span(count(risk_counts.get((line.cluster, line.group), 0)), className="number"),
            html.Span(count(dead_counts.get((line.cluster, line.group), 0)), className="number"),
            reason_of(line.reason, pops.get((line.cluster, line.group))),
        ]
        for line in lines
    ]
    headings = (
        _sorting("state", "worst", look.view),
        *(["cluster"] if look.names_clusters else []),
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


def _counts(rows: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Rows of each group of each cluster."""
    counted = rows.group_by(lag_overview.LINE).len()
    return {(cluster, group): number for cluster, group, number in counted.iter_rows()}


def _sorting(heading: str, order: str, view: View) -> Any:
    """A heading by which the groups can be sorted."""
    if view.sort == order:
        return html.Span([heading, " ▾"], title="sorted by this")
    href = "/" + view.search(sort=order, page="1")
    return dcc.Link(heading, href=href, className="sorting", title="sort by this")


def _feed(changes: list[Change], look: Look) -> Any:
    if not changes:
        return quiet("Nothing changed in this range.")
    entries = [html.Li(_entry(change, look)) for change in changes[: lag_overview.CHANGES_MAX]]
    more = len(changes) - len(entries)
    if more > 0:
        entries.append(html.Li(quiet(f"and {more} earlier")))
    return html.Ol(entries, className="feed")


def _entry(change: Change, look: Look) -> list[Any]:
    sign, css = CHANGE_SIGNS[change.kind]
    cluster = change.cluster if look.names_clusters else ""
    if change.group is None:
        who: Any = html.Span("broker", className="name")
    else:
        called = line_name(cluster, change.group, names_clusters=look.names_clusters)
        href = group_path(change.group) + around(change.at, cluster=cluster)
        who = dcc.Link(visible(called), href=href, className="name")
    view = look.view.of_cluster(cluster)
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
    """The entry's words; a topic that they name leads to its page."""
    before, of, after = change.text.partition(f" of {change.topic}")
    if not change.topic or not of:
        return visible(change.text)
    return [f"{visible(before)} of ", topic_link(change.topic, view), visible(after)]


def register(app: Dash, context: PageContext) -> None:
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
        return await beside(content, context, search, theme, pulse)

    register_drawn(app, "overview-groups")
    register_drawn(app, "overview-changes")
    register_search(app, "overview-search")

    app.clientside_callback(
        ClientsideFunction("tidemark", "openCell"),
        Output("overview-heatmap", "clickData"),
        Input("overview-heatmap", "clickData"),
        prevent_initial_call=True,
    )


PAGE: Final = Page("/", "Overview", layout, register)
