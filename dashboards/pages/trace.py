"""Topic-page section that finds a message and shows its path."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import polars as pl
from dash import Dash, Input, Output, State, dcc, html, no_update

from dashboards.formatting import clock, instant, visible
from dashboards.models import message_path
from dashboards.models.message_path import Step
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import card, coded, failure, notice, quiet, table
from dashboards.reads.cluster import ClusterStory, StoredCopy
from dashboards.reads.lake_data import Look
from dashboards.reads.topic_data import TopicData, looked
from dashboards.url_state import QUERY_MAX, RANGES, View, group_path, parse, topic_of, topic_path
from engine.foundation.errors import LakeError

STEPS_MAX: Final = 200
LONGEST: Final = max(RANGES, key=lambda name: RANGES[name])


def layout() -> html.Div:
    """The field, and below it the way of what was found."""
    form = html.Div(
        [
            html.Label("message id, unique id or key", htmlFor="topic-search"),
            dcc.Input(
                id="topic-search",
                type="text",
                value="",
                maxLength=QUERY_MAX + 1,
                autoComplete="off",
                spellCheck=False,
                className="search-field",
            ),
            html.Button("Find", id="topic-find", className="search-button"),
        ],
        className="search",
        role="search",
    )
    return html.Div(
        [form, html.Div(id="topic-trace", role="status", **{"aria-live": "polite"})],
        className="search-part",
    )


def content(
    context: PageContext,
    topic: str | None,
    search: str | None,
    story: ClusterStory,
    *,
    pulse: Any = None,
) -> Any:
    """The way of the message that the URL's `q` names; nothing when it names none."""
    text = parse(search).query
    if not text:
        return []
    fault = message_path.fault_of(text)
    if fault is not None:
        return notice("That is no message id and no key", [html.P(fault)], kind="bad-input")
    try:
        look = looked(context.look(search, pulse), topic or "")
        if isinstance(look, tuple):
            return quiet("Choose a cluster first: a message is looked for in one.")
        return _content(TopicData(look.data), topic or "", look, story)
    except LakeError as error:
        return failure(str(error), context.clock())


def _content(data: TopicData, topic: str, look: Look, story: ClusterStory) -> Any:
    text, view = look.view.query, look.view
    ids = story.message_ids
    if len(ids) > 1:
        return _several(text, story.copies, view)
    message_id = ids[0] if ids else text
    start, end = message_path.searched(look.span)
    flow = data.steps_of(message_id, start, end)
    steps = [
        *message_path.flow_steps(flow),
        *message_path.copy_steps(story.copies),
        *message_path.traced_steps(story.traces),
    ]
    for place in message_path.places(flow, story.copies):
        steps += message_path.repeat_steps(data.handed_out_again(place, start, end))
        steps += message_path.passed_steps(data.passed(place, start, end), place, tuple(steps))
        if not story.copies:
            steps += message_path.stored_steps(data.stored(place, start, end), place, tuple(steps))
    between = f"The lake was searched from {clock(start, day=True)} to {clock(end, day=True)} UTC"
    advice = message_path.advice(story, found=bool(steps))
    if not steps:
        return _nothing(text, between, view, advice)
    return card(
        ["Where did ", html.Span(visible(message_id), className="exact"), " go?"],
        html.Div(
            [
                *(
                    html.P(visible(sentence), className="ending")
                    for sentence in message_path.endings(flow)
                ),
                _steps(message_path.in_order(steps), view),
                *_elsewhere(flow, topic, view),
                quiet(f"{between}, a day around the range."),
                *(quiet(coded(sentence)) for sentence in advice),
            ]
        ),
        element="topic-trace-card",
        note=dcc.Link("close", href=view.search(q=""), className="jump"),
    )


def _steps(steps: list[Step], view: View) -> Any:
    rows = [
        [
            html.Span(instant(step.at), className="exact"),
            html.Span(visible(step.what), className=f"step step-{step.tone}"),
            _group(step.group, view),
            html.Span(visible(step.text), className="wrap"),
            html.Span(step.source, className="reason"),
        ]
        for step in steps[:STEPS_MAX]
    ]
    shown = table(
        ("at (UTC)", "step", "group", "what", "source"), rows, label="Steps of the message"
    )
    if len(steps) <= STEPS_MAX:
        return shown
    return html.Div([shown, quiet(f"and {len(steps) - STEPS_MAX} later steps")])


def _group(group: str | None, view: View) -> Any:
    if not group:
        return ""
    return dcc.Link(
        visible(group), href=group_path(group) + view.around_page.search(), className="name"
    )


def _elsewhere(flow: pl.DataFrame, topic: str, view: View) -> list[Any]:
    """The message was sent to another topic: say so, and lead there."""
    others = [name for name in flow["origin_topic"].drop_nulls().unique().sort() if name != topic]
    return [
        html.P(
            [
                "It was sent to ",
                dcc.Link(
                    visible(name),
                    href=topic_path(name) + view.around_page.search(q=view.query),
                    className="name",
                ),
                ".",
            ]
        )
        for name in others
    ]


def _several(text: str, copies: tuple[StoredCopy, ...], view: View) -> Any:
    rows = [
        [
            html.Span(instant(copy.stored_at), className="exact"),
            dcc.Link(
                visible(copy.message_id), href=view.search(q=copy.message_id), className="exact"
            ),
            html.Span(visible(copy.keys or "none"), className="wrap"),
            f"{copy.broker or 'a broker'} / {copy.queue_id}",
            html.Span(str(copy.offset), className="exact"),
        ]
        for copy in copies
    ]
    return card(
        ["Several messages have the key ", html.Span(visible(text), className="exact")],
        html.Div(
            [
                table(
                    ("stored", "unique id", "keys", "broker / queue", "offset"),
                    rows,
                    label="Messages with the key",
                ),
                quiet("At most 32 of each broker. Choose one to see where it went."),
            ]
        ),
        element="topic-trace-card",
        note=dcc.Link("close", href=view.search(q=""), className="jump"),
    )


def _nothing(text: str, between: str, view: View, advice: list[str]) -> Any:
    longer: Any = "."
    if view.closed or view.range_name != LONGEST:
        link = dcc.Link(
            f"search the last {LONGEST}", href=view.search(range=LONGEST), className="jump"
        )
        longer = [", a day around the range; ", link, "."]
    return notice(
        f"Nothing is known of {visible(text)}",
        [
            html.P([f"{between}", *longer]),
            html.Ul([html.Li(coded(sentence)) for sentence in advice]),
            html.P("A message that never failed leaves no step in the lake.", className="quiet"),
        ],
        kind="not-found",
    )


def register(app: Dash, context: PageContext) -> None:
    """The part's callbacks: the field follows the URL, and the URL the field."""

    @app.callback(
        Output("topic-search", "value"),
        Input("url", "search"),
    )
    def fill(search: str | None) -> str:
        return parse(search).query

    @app.callback(
        Output("url", "search"),
        Input("topic-find", "n_clicks"),
        Input("topic-search", "n_submit"),
        State("topic-search", "value"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def find(clicks: int | None, submits: int | None, text: str | None, search: str | None) -> Any:
        # Called once more when the field appears: then nobody has asked for anything.
        if not clicks and not submits:
            return no_update
        return parse(search).search(q=(text or "").strip())

    @app.callback(
        Output("topic-trace", "children"),
        Input("pulse", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    async def show_trace(pulse: Any, pathname: str | None, search: str | None) -> Any:
        topic, text = topic_of(pathname or "") or "", parse(search).query
        sound = text and topic and message_path.fault_of(text) is None
        story = await context.cluster.story(topic, text) if sound else ClusterStory()
        return await beside(partial(content, pulse=pulse), context, topic, search, story)
