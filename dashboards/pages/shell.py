"""The frame around every page: name, navigation, range and refresh, freshness, theme.

Range and refresh are links: the URL is the state, so Back, a new tab and a shared address work
without a line of code.
"""

from __future__ import annotations

from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from dashboards.answers import freshness, quality
from dashboards.desk import Desk, beside
from dashboards.pages import checks, group, overview, topic
from dashboards.pages.parts import quality_badge
from dashboards.view import (
    RANGES,
    REFRESH_S,
    STALE_AFTER,
    Span,
    View,
    group_of,
    parse,
    topic_of,
)
from dashboards.words import clock
from engine.foundation.errors import LakeError

PAGES: Final = (("/", "Overview"), ("/checks", "Checks"))
IDLE_MS: Final = 24 * 3600 * 1000


def layout() -> html.Div:
    """The frame; everything in it that depends on the lake is filled by callbacks."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="pulse"),
            dcc.Store(id="theme"),
            dcc.Interval(id="tick", interval=2000),
            html.A("Skip to content", href="#page", className="skip"),
            html.Header(
                [
                    dcc.Link([_mark(), "Tidemark"], href="/", className="brand"),
                    html.Nav(id="navigation", **{"aria-label": "Pages"}),
                    html.Div(id="controls", className="controls"),
                    html.Div(id="health", className="health"),
                    html.Div(id="freshness", role="status", **{"aria-live": "polite"}),
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
            html.Main(id="page", tabIndex="-1"),
        ],
        id="shell",
    )


def _mark() -> html.Span:
    return html.Span("≋", className="brand-mark", **{"aria-hidden": "true"})


def page(pathname: str) -> Any:
    """The skeleton of the page at a path."""
    if pathname == "/":
        return overview.layout()
    if pathname == "/checks":
        return checks.layout()
    name = group_of(pathname)
    if name is not None:
        return group.layout(name)
    name = topic_of(pathname)
    if name is not None:
        return topic.layout(name)
    return html.Div(
        [html.H1("No such page"), dcc.Link("Go to the overview", href="/", className="jump")],
        className="notice",
        **{"data-state": "missing"},
    )


def navigation(pathname: str, view: View) -> list[dcc.Link]:
    """Links to the pages; the range goes with the reader."""
    return [
        dcc.Link(
            title,
            href=path + view.search(q=""),
            className="nav-link here" if path == pathname else "nav-link",
        )
        for path, title in PAGES
    ]


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
            [html.Span("refresh", className="choices-name"), *refreshes],
            className="choices",
            role="group",
            **{"aria-label": "Refresh interval"},
        ),
    ]


def _choice(name: str, href: str, *, here: bool) -> dcc.Link:
    return dcc.Link(name, href=href, className="choice here" if here else "choice")


def freshness_chip(span: Span) -> html.Span:
    """How far data reaches, for people in words, for programs in attributes."""
    level, text = freshness(span.data_end, span.now)
    observed = span.data_end.isoformat() if span.data_end else ""
    signs = {"fresh": "●", "late": "▲", "stale": "■", "unknown": "?"}
    return html.Span(
        [html.Span(signs[level], className="pill-sign", **{"aria-hidden": "true"}), text],
        className=f"pill pill-{level}",
        id="freshness-chip",
        title="Newest moment of data time in consumer_lag; amber after 60 s, red after 150 s",
        **{"data-observed-at": observed, "data-freshness": level},
    )


def beat(desk: Desk, known: dict[str, Any] | None) -> tuple[Any, Any, Any]:
    """One refresh: (pulse when anything changed, freshness chip, health chip)."""
    try:
        look = desk.look(None)
        results = desk.data.everything("dq_results")
    except LakeError as error:
        token = {"token": f"error {error}"}
        return (no_update if token == known else token), failure_chip(), []
    # Silence changes pages too: the hatched edge grows while nothing comes.
    silent = look.span.data_end is not None and look.span.now - look.span.data_end > STALE_AFTER / 2
    grown = int(look.span.now.timestamp() // 15) if silent else 0
    token = {"token": f"{look.pulse.versions} {grown}"}
    badge = quality_badge(quality(results), href="/checks") if results.height else []
    return (no_update if token == known else token), freshness_chip(look.span), badge


def failure_chip() -> html.Span:
    """Freshness when the lake cannot be read."""
    return html.Span(
        "✖ unreadable",
        className="pill pill-stale",
        id="freshness-chip",
        **{"data-freshness": "error", "data-observed-at": ""},
    )


def register(app: Dash, desk: Desk) -> None:
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

    @app.callback(
        Output("pulse", "data"),
        Output("freshness", "children"),
        Output("health", "children"),
        Input("tick", "n_intervals"),
        State("pulse", "data"),
    )
    async def refresh(_ticks: int | None, known: dict[str, Any] | None) -> Any:
        return await beside(beat, desk, known)

    app.clientside_callback(
        ClientsideFunction("tidemark", "theme"),
        Output("theme", "data"),
        Input("theme-toggle", "n_clicks"),
    )
    overview.register(app, desk)
    group.register(app, desk)
    topic.register(app, desk)
    checks.register(app, desk)
