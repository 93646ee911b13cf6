"""Frame shared by all pages: navigation, time range, refresh, freshness and theme.

Range and refresh are links: the URL is the state, so Back, a new tab and a shared address work
without a line of code.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import polars as pl
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from dashboards.formatting import clock, visible
from dashboards.models.alert_lines import heard_of
from dashboards.models.lag_overview import quality
from dashboards.page_context import PageContext, beside
from dashboards.pages import (
    alerts,
    checks,
    group,
    jobs,
    overview,
    report,
    reports,
    sign_in,
    storage,
    topic,
)
from dashboards.pages.page import Page
from dashboards.reads.lake_data import Look
from dashboards.url_state import (
    CHECKS_OLD_AFTER,
    LATE_AFTER,
    RANGES,
    REFRESH_S,
    REPORTS_PATH,
    STALE_AFTER,
    View,
    group_of,
    parse,
)
from engine.foundation.errors import LakeError
from pipelines.base.settings import CLOCK_SKEW_ALLOWED_US
from pipelines.reading.emitters import watched_text
from pipelines.sentences.emitters import ahead_of_machine, skews

MILLISECOND: Final = timedelta(milliseconds=1)
PAGES: Final = (
    *(overview.PAGE, storage.PAGE, checks.PAGE, reports.PAGE, jobs.PAGE, alerts.PAGE),
    *(group.PAGE, topic.PAGE, report.PAGE, sign_in.PAGE),
)
"""All pages; those in the navigation in its order. The last of them has its count beside it."""
IDLE_MS: Final = 15_000
"""Between two looks at the lake when pages are not refreshed: their age and the connection are."""
LOST_AFTER_BEATS: Final = 3
LOST_AFTER_MS_MIN: Final = 6_000
"""Without an answer for three refreshes, and for this long, the server counts as gone."""


def layout() -> html.Div:
    """The frame; everything in it that depends on the lake is filled by callbacks."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="pulse"),
            dcc.Store(id="heard"),
            dcc.Store(id="theme"),
            dcc.Store(id="clusters"),
            dcc.Interval(id="tick", interval=2000),
            dcc.Interval(id="second", interval=1000),
            html.A("Skip to content", href="#page", className="skip"),
            html.Header(
                [
                    dcc.Link([_mark(), "Tidemark"], href="/", className="brand", id="brand"),
                    html.Nav(id="navigation", **{"aria-label": "Pages"}),
                    html.Div(id="alerts-firing"),
                    html.Div(
                        [
                            html.Div(id="cluster-menu"),
                            html.Div(id="watched", className="watched"),
                            html.Div(id="controls", className="controls"),
                        ],
                        className="filters",
                    ),
                    html.Div(id="health", className="health"),
                    html.Div(id="freshness"),
                    html.Div(id="visitor"),
                    html.Button(
                        "◐",
                        id="theme-toggle",
                        title="Light or dark",
                        className="icon-button",
                        **{"aria-label": "Switch light and dark theme"},
                    ),
                ],
                className="top",
            ),
            html.Div(id="banner", role="alert"),
            html.Main(id="page", tabIndex="-1"),
        ],
        id="shell",
    )


def _mark() -> html.Span:
    return html.Span("≋", className="brand-mark", **{"aria-hidden": "true"})


def page_at(path: str) -> Page | None:
    """The page of an address, if there is one."""
    return next((one for one in PAGES if one.is_at(path)), None)


def page(pathname: str) -> Any:
    """The skeleton of the page at a path."""
    found = page_at(pathname)
    if found is not None:
        return found.skeleton(pathname)
    return html.Div(
        [html.H1("No such page"), dcc.Link("Go to the overview", href="/", className="jump")],
        className="notice",
        **{"data-state": "missing"},
    )


def navigation(pathname: str, view: View) -> list[dcc.Link]:
    """Links to the pages; range, refresh and cluster go with the reader."""
    found = page_at(pathname)
    marked = "" if found is None else found.marked
    return [
        dcc.Link(
            one.title,
            href=one.path + view.around_page.search(),
            className="nav-link here" if one.path == marked else "nav-link",
        )
        for one in PAGES
        if one.in_navigation
    ]


def cluster_menu(pathname: str, view: View, clusters: Sequence[str]) -> Any:
    """The clusters of the lake, and the one that is looked at; nothing where there is one."""
    if len(clusters) < 2 and not view.cluster:
        return None
    names = ["", *clusters]
    if view.cluster not in names:
        names.append(view.cluster)
    links = [
        dcc.Link(
            visible(name) if name else "all clusters",
            href=pathname + view.search(cluster=name, page="1"),
            className="choice here" if name == view.cluster else "choice",
        )
        for name in names
    ]
    shown = visible(view.cluster) if view.cluster else "all"
    is_strange = bool(view.cluster) and view.cluster not in clusters
    # A long name is cut, what stands beside it never is.
    label = [
        html.Span("cluster", className="choices-name"),
        html.B(shown, title=view.cluster or None),
        html.Span("(not in this lake) ▾" if is_strange else "▾"),
    ]
    # Its key: what was open for the choice before is closed.
    return html.Details(
        [html.Summary(label), html.Div(links, className="menu-list")],
        key=view.cluster,
        className="menu choices",
        id="cluster-choice",
    )


def controls(pathname: str, view: View) -> list[html.Div]:
    """Range and refresh, each a row of links; a closed range is shown and can be left."""
    ranges = [
        _choice(
            name,
            pathname + view.search(range=name),
            here=not view.closed and name == view.range_name,
        )
        for name in RANGES
    ]
    if view.closed:
        text = f"{clock(view.start)} to {clock(view.end)}"
        ranges.append(html.Span(text, className="choice here"))
    refreshes = [
        _choice(
            name if name == "off" else f"{name} s",
            pathname + view.search(live=name),
            here=name == view.refresh,
        )
        for name in REFRESH_S
    ]
    return [
        html.Div(
            [html.Span("last", className="choices-name"), *ranges],
            className="choices",
            role="group",
            **{"aria-label": "Time range"},
        ),
        html.Div(
            [html.Span("every", className="choices-name"), *refreshes],
            className="choices",
            role="group",
            **{"aria-label": "Refresh interval"},
        ),
    ]


def clusters_of(context: PageContext, pulse: Any) -> list[str]:
    """The clusters that the lake holds; none while it cannot be read."""
    try:
        return list(context.look(None, pulse).seen.clusters)
    except LakeError:
        return []


def watched(context: PageContext, search: str | None, pulse: Any) -> str | None:
    """How far all that is shown may be off, where brokers are watched from outside."""
    try:
        look, cluster = context.look(None, pulse), parse(search).cluster
        seen = (look.of_cluster(cluster) if cluster else look).seen
    except LakeError:
        return None
    return watched_text(seen.moment)


def _choice(name: str, href: str, *, here: bool) -> dcc.Link:
    return dcc.Link(name, href=href, className="choice here" if here else "choice")


def beat(
    context: PageContext,
    ticks: int | None,
    known: dict[str, Any] | None,
    url: tuple[str | None, str | None] = (None, None),
) -> tuple[Any, dict[str, Any]]:
    """One look at the lake, from a page (its path and query): (the pulse when anything changed,
    what the browser ages by itself)."""
    path, search = url
    view = parse(search)
    refresh_s = REFRESH_S[view.refresh]
    interval_ms = IDLE_MS if refresh_s is None else refresh_s * 1000
    heard: dict[str, Any] = {
        "beat": ticks or 0,
        "now": context.clock().isoformat(),
        "lost_after_ms": max(LOST_AFTER_BEATS * interval_ms, LOST_AFTER_MS_MIN),
        "late_after_ms": LATE_AFTER / MILLISECOND,
        "stale_after_ms": STALE_AFTER / MILLISECOND,
    }
    board = context.board()
    heard["alerts"] = heard_of(board, view.cluster, context.now_us)
    version = 0 if board is None else board.version
    # Asked only where they are shown: on an object store each look is a request.
    shows_reports = (path or "").startswith(REPORTS_PATH)
    of_reports = {"reports": context.data.reports_version()} if shows_reports else {}
    try:
        look = context.look(None)
        look.seen.newest_lag()  # A lake that cannot be read is reported here, on every page.
        results = look.seen.checks()
    except LakeError as error:
        token = {"token": f"error {error}", "alerts": str(version), **of_reports}
        return (no_update if token == known else token), {**heard, "error": str(error)}
    # Silence changes pages too: the hatched edge grows while nothing comes.
    end = look.span.end
    silent = look.pulse.data_end is not None and end > look.pulse.data_end
    token = {
        "token": look.pulse.token,
        "end": end.isoformat() if silent else "",
        "alerts": str(version),
        **of_reports,
    }
    still = refresh_s is None and known is not None
    pulse = no_update if still or token == known else token
    observed = look.pulse.data_end
    heard["observed_at"] = observed.isoformat() if observed else None
    emitters = (look.of_cluster(view.cluster) if view.cluster else look).seen.emitters()
    unknown = emitters.filter(pl.col("state") == "UNKNOWN").to_dicts()
    heard["silent"] = [
        *(f"{row['emitter']} unknown: {row['reason']}" for row in unknown),
        *skews(emitters),
        *_ahead_of(context.clock(), emitters),
    ]
    heard["worst_at"] = _worst_of(group_of(path or ""), look)
    if results.height:
        found = quality(results)
        ran_at = cast("datetime", results["started_at"].max())
        heard["checks"] = {
            "level": found.level,
            "sentence": found.sentence,
            "ran_at": ran_at.isoformat(),
            "old_after_ms": CHECKS_OLD_AFTER / MILLISECOND,
        }
    return pulse, heard


def _ahead_of(now: datetime, emitters: pl.DataFrame) -> list[str]:
    """What is said of clocks that are ahead of the one of this machine."""
    limit = timedelta(microseconds=CLOCK_SKEW_ALLOWED_US)
    ahead = emitters.filter(pl.col("judged_to") > now + limit)
    return [
        ahead_of_machine(emitter, (judged_to - now) / MILLISECOND)
        for emitter, judged_to in ahead.select("emitter", "judged_to").iter_rows()
    ]


def _worst_of(name: str | None, look: Look) -> str | None:
    """How far a group has been judged on its worst broker; None where no group is looked at."""
    if name is None:
        return None
    named = pl.concat(
        [
            frame.filter(pl.col("group") == name).select("emitter")
            for frame in (look.seen.newest_lag(), look.seen.newest_states())
        ]
    )
    worst = look.seen.moment.least_of(named["emitter"])
    return worst.isoformat() if worst is not None else None


def register(app: Dash, context: PageContext) -> None:
    """The frame's callbacks, and those of every page."""

    @app.callback(
        Output("page", "children"),
        Input("url", "pathname"),
    )
    def show_page(pathname: str | None) -> Any:
        return page(pathname or "/")

    @app.callback(
        Output("navigation", "children"),
        Output("controls", "children"),
        Output("tick", "interval"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    def show_controls(pathname: str | None, search: str | None) -> Any:
        view = parse(search)
        seconds = REFRESH_S[view.refresh]
        interval_ms = IDLE_MS if seconds is None else seconds * 1000
        path = pathname or "/"
        return navigation(path, view), controls(path, view), interval_ms

    _register_filters(app, context)

    @app.callback(
        Output("pulse", "data"),
        Output("heard", "data"),
        Input("tick", "n_intervals"),
        State("pulse", "data"),
        State("url", "search"),
        State("url", "pathname"),
    )
    async def refresh(
        ticks: int | None, known: dict[str, Any] | None, search: str | None, path: str | None
    ) -> Any:
        return await beside(beat, context, ticks, known, (path, search))

    # In the browser: what a page shows grows old also when no server answers any more.
    app.clientside_callback(
        ClientsideFunction("tidemark", "age"),
        Output("freshness", "children"),
        Output("health", "children"),
        Output("banner", "children"),
        Output("alerts-firing", "children"),
        Input("second", "n_intervals"),
        Input("heard", "data"),
        State("url", "search"),
    )
    app.clientside_callback(
        ClientsideFunction("tidemark", "theme"),
        Output("theme", "data"),
        Input("theme-toggle", "n_clicks"),
    )
    for one in PAGES:
        one.register(app, context)


def _register_filters(app: Dash, context: PageContext) -> None:
    """What goes with the reader from page to page, and the choice of a cluster."""

    @app.callback(Output("brand", "href"), Input("url", "search"))
    def show_home(search: str | None) -> str:
        return "/" + parse(search).around_page.search()

    @app.callback(Output("crumb", "href"), Input("url", "search"))
    def show_way_back(search: str | None) -> str:
        return "/" + parse(search).around_page.search()

    @app.callback(Output("clusters", "data"), Input("pulse", "data"), State("clusters", "data"))
    async def find_clusters(pulse: Any, known: list[str] | None) -> Any:
        found = await beside(clusters_of, context, pulse)
        return no_update if found == known else found

    @app.callback(Output("watched", "children"), Input("pulse", "data"), Input("url", "search"))
    async def show_watched(pulse: Any, search: str | None) -> Any:
        return await beside(watched, context, search, pulse)

    @app.callback(
        Output("cluster-menu", "children"),
        Input("clusters", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    def show_clusters(found: list[str] | None, pathname: str | None, search: str | None) -> Any:
        return cluster_menu(pathname or "/", parse(search), found or [])
