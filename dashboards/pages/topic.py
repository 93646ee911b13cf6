"""Page for a single topic: lagging groups, producer progress, failures and a message's path.

`pages/trace` draws the last of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import polars as pl
from dash import Dash, Input, Output, dcc, html

from dashboards.formatting import clock, count, duration, plural, visible
from dashboards.models import lag_overview, topic_lines
from dashboards.models.topic_lines import GroupOnTopic, TopicQueue
from dashboards.page_context import PageContext, beside
from dashboards.pages import trace
from dashboards.pages.components import (
    TREND_SIGNS,
    card,
    choice_of_cluster,
    coded,
    drawn,
    empty_range,
    failure,
    first_run,
    known,
    origin,
    quiet,
    reason_of,
    register_drawn,
    sign_pill,
    table,
    tree,
)
from dashboards.pages.page import Page
from dashboards.reads.cluster import Route
from dashboards.reads.lake_data import Look
from dashboards.reads.topic_data import TopicData, looked
from dashboards.url_state import TOPIC_PREFIX, View, group_path, topic_of, topic_path
from engine.foundation.errors import LakeError
from pipelines.reading.emitters import watched_text
from pipelines.sentences.new_lives import NewLife
from pipelines.sentences.pop_groups import PopGroup
from pipelines.sentences.stories import step_words

HIDDEN, SHOWN = "topic-body hidden", "topic-body"
QUEUES_MAX: Final = 256
"""Queues listed; a topic with more is better looked at by a query."""
FAILED_MAX: Final = 200
"""Failed messages listed, newest first."""


def layout(name: str) -> html.Div:
    """Header and search, then groups, queues and failed messages."""
    return html.Div(
        [
            html.Div(
                [
                    dcc.Link("Overview", href="/", className="crumb", id="crumb"),
                    html.Span("topic", className="kind"),
                    html.H1(visible(name)),
                ],
                className="page-head",
            ),
            trace.layout(),
            html.Div(id="topic-notice"),
            html.Div(
                [
                    html.Div(id="topic-summary"),
                    card(
                        "Who is behind on it?",
                        html.Div(drawn("topic-groups")),
                        element="topic-groups-card",
                        note="each queue as it is at the range's end, worst group first",
                    ),
                    card(
                        "Queues",
                        html.Div(drawn("topic-queues")),
                        element="topic-queues-card",
                        note="newest report of each queue in the range; offsets are exact; "
                        "messages a minute between its first and last report",
                    ),
                    card(
                        "Failed messages",
                        html.Div(drawn("topic-failed")),
                        element="topic-failed-card",
                        note="newest first; choose a message to see where it went",
                    ),
                ],
                id="topic-body",
                className=HIDDEN,
            ),
        ]
    )


def content(
    context: PageContext, topic: str | None, search: str | None, pulse: Any = None
) -> tuple[Any, ...]:
    """(notice, body class, summary, groups, failed messages)."""
    try:
        look = context.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(context.data.lake.root))
        found = looked(look, topic or "")
        if isinstance(found, tuple):
            what, path = f"Topic {visible(topic)!r}", topic_path(topic or "")
            return _instead(choice_of_cluster(what, path, found, look.view))
        return _content(TopicData(found.data), topic or "", found)
    except LakeError as error:
        return _instead(failure(str(error), context.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, [], [], []


def _content(data: TopicData, topic: str, look: Look) -> tuple[Any, ...]:
    start, end = look.span.start, look.span.end
    lag = data.lag_on(topic, end)
    produced = data.produced(topic, start, end)
    failed = data.failed(topic, start, end)
    is_empty = lag.is_empty() and produced.is_empty() and failed.is_empty()
    if is_empty or look.span.is_ahead:
        said = f"Topic {visible(topic)!r} is named by no report"
        return _instead(empty_range(look.span, look.view, what=said))
    running = lag_overview.open_at_end(data.stalls_on(topic, start, end), look.span)
    groups = topic_lines.groups_on(lag, running)
    lives = look.data.new_lives(start, end, topic=topic)
    return (
        _lives(lives),
        SHOWN,
        _summary(groups, topic_lines.queues_of(produced, None), failed, look),
        _groups(groups, look.view, look.data.pop_groups(end, topic=topic)),
        _failed(failed, look.view),
    )


def _lives(lives: list[NewLife]) -> list[Any]:
    """Says that the topic was recreated, and what groups passed over of it, the newest first."""
    return [
        html.P(visible(life.text), className="notice notice-error" if life.is_loss else "quiet")
        for life in reversed(lives)
    ]


def _watched(look: Look) -> list[tuple[str, str]]:
    """Says that what is shown was polled, and how far it may be off."""
    watched = watched_text(look.data.moment)
    return [] if watched is None else [("how known", watched)]


def queues(
    context: PageContext, topic: str | None, search: str | None, route: Route, *, pulse: Any = None
) -> Any:
    """The queue table; `route` is what a name server said, or why none was asked."""
    try:
        look = context.look(search, pulse)
        if look.pulse.first_run:
            return []
        found = looked(look, topic or "")
        if isinstance(found, tuple):
            return []
        produced = TopicData(found.data).produced(topic or "", look.span.start, look.span.end)
    except LakeError as error:
        return quiet(str(error))
    route_known = route.of_cluster(found.view.cluster if found.names_clusters else "")
    lines = topic_lines.queues_of(produced, route_known, no_route=route.reason)
    return [_queues(lines), *([quiet(coded(route.remedy))] if route.remedy and lines else [])]


def _summary(
    groups: list[GroupOnTopic], lines: list[TopicQueue], failed: pl.DataFrame, look: Look
) -> html.Div:
    """The worst in one line, then the numbers."""
    per_minute, rate_unknown = topic_lines.rate_of(lines)
    times = [line.time_lag_ms for line in groups if line.time_lag_ms is not None]
    dead = failed.filter(pl.col("step") == "DEAD_LETTERED").height
    rate = topic_lines.rate_text(per_minute)
    if rate_unknown and per_minute is not None:
        rate = f"{rate} + {plural(rate_unknown, 'queue')} unknown"
    facts = (
        *([("cluster", visible(look.view.cluster))] if look.view.cluster else []),
        ("messages a minute", rate),
        ("worst time lag", duration(max(times)) if times else "unknown"),
        ("groups", str(len(groups))),
        ("queues", str(len(lines))),
        ("failed messages", count(failed.height)),
        ("dead-lettered", count(dead)),
        *_watched(look),
    )
    state: list[Any] = [html.Span("no group reads it in this range", className="why")]
    if groups:
        said = visible(groups[0].reason)
        state = [sign_pill(groups[0].sign), html.Span(said, className="why")]
    return html.Div(
        [
            html.Div(state, className="summary-state"),
            html.Dl(
                [html.Div([html.Dt(name), html.Dd(value)]) for name, value in facts],
                className="facts",
            ),
        ],
        className="summary",
    )


def _groups(lines: list[GroupOnTopic], view: View, pops: Mapping[tuple[str, str], PopGroup]) -> Any:
    if not lines:
        return quiet("No group reads this topic in this range, or none has reported it.")
    rows = [
        [
            sign_pill(line.sign),
            dcc.Link(
                visible(line.group),
                href=group_path(line.group) + view.around_page.search(),
                className="name",
            ),
            html.Span(line.time_lag, className="number"),
            html.Span(line.messages, className="number"),
            TREND_SIGNS.get(line.trend or "", "unknown"),
            html.Span(f"{line.queues_known} of {line.queues}", className="number"),
            html.Span(clock(line.observed_at), className="exact"),
            reason_of(line.reason, pops.get((line.cluster, line.group))),
        ]
        for line in lines
    ]
    headings = (
        *("state", "group", "time lag", "messages behind", "trend", "queues known"),
        *("reported", "because"),
    )
    return table(headings, rows, label="Groups that read the topic, worst first")


def _queues(lines: list[TopicQueue]) -> Any:
    if not lines:
        return quiet("No queue of this topic was reported in this range.")
    rows = [
        [
            f"{line.broker} / {line.queue_id}",
            known(_yes(line.readable), topic_lines.NOT_REPORTED),
            known(_yes(line.writable), line.write_unknown),
            html.Span(str(line.min_offset), className="exact"),
            html.Span(str(line.max_offset), className="exact"),
            known(
                clock(line.last_store_time, day=True) if line.last_store_time else None,
                "the queue is empty" if line.readable is not None else topic_lines.NOT_REPORTED,
            ),
            known(
                topic_lines.rate_text(line.per_minute) if line.per_minute is not None else None,
                line.rate_unknown,
            ),
            html.Span(clock(line.seen_at), className="exact"),
        ]
        for line in lines[:QUEUES_MAX]
    ]
    headings = (
        *("broker / queue", "read", "write", "first kept", "next to be written"),
        *("newest stored", "messages a minute", "reported"),
    )
    shown: list[Any] = [table(headings, rows, label="Queues of the topic")]
    if len(lines) > QUEUES_MAX:
        shown.append(quiet(f"and {len(lines) - QUEUES_MAX} more queues"))
    return html.Div(shown)


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _failed(failed: pl.DataFrame, view: View) -> Any:
    if failed.is_empty():
        return quiet("No message of this topic failed in this range.")
    rows = [
        [
            html.Span(clock(row["last_at"], day=True), className="exact"),
            _message(row["message_id"], view),
            dcc.Link(
                visible(row["group"]),
                href=group_path(row["group"]) + view.around_page.search(),
                className="name",
            ),
            html.Span(step_words(row["step"]), className=f"step step-{_tone(row['step'])}"),
            html.Span(count(row["reconsume_times"]), className="number"),
            origin(row, view),
            html.Span(clock(row["first_at"]), className="exact"),
            html.Span(visible(row["reason"] or "not reported"), className="wrap"),
        ]
        for row in failed.head(FAILED_MAX).iter_rows(named=True)
    ]
    headings = (
        *("newest step at", "message", "group", "newest step", "failed tries", "origin"),
        *("first step in range", "reason"),
    )
    shown: list[Any] = [table(headings, rows, label="Failed messages of the topic")]
    if failed.height > FAILED_MAX:
        shown.append(quiet(f"and {failed.height - FAILED_MAX:,} earlier; choose a shorter range"))
    return shown


def _message(message_id: str | None, view: View) -> Any:
    if not message_id:
        return known(None, "its producer set no unique id")
    return dcc.Link(visible(message_id), href=view.search(q=message_id), className="exact")


def _tone(step: str) -> str:
    return {"DEAD_LETTERED": "dead", "EXPIRED": "dead", "DISCARDED": "dead"}.get(step, "risk")


def register(app: Dash, context: PageContext) -> None:
    """The page's callbacks."""

    @app.callback(
        Output("topic-notice", "children"),
        Output("topic-body", "className"),
        Output("topic-summary", "children"),
        Output("topic-groups-tree", "data"),
        Output("topic-failed-tree", "data"),
        Input("pulse", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    async def show_topic(pulse: Any, pathname: str | None, search: str | None) -> Any:
        shown = await beside(content, context, topic_of(pathname or ""), search, pulse)
        return *shown[:3], tree(shown[3]), tree(shown[4])

    @app.callback(
        Output("topic-queues-tree", "data"),
        Input("pulse", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    async def show_queues(pulse: Any, pathname: str | None, search: str | None) -> Any:
        # Beside the rest: a name server that does not answer holds up this table alone.
        topic = topic_of(pathname or "")
        route = await context.cluster.route(topic or "")
        return tree(await beside(partial(queues, pulse=pulse), context, topic, search, route))

    for element in ("topic-groups", "topic-queues", "topic-failed"):
        register_drawn(app, element)

    trace.register(app, context)


PAGE: Final = Page(TOPIC_PREFIX, "Topic", layout, register, topic_of, in_navigation=False)
