"""Page for storage: what a loss would cost now, replicas, timers due and what is durable.

Invariant: a figure is what the broker reported last, and unknown with its reason once it is silent.
Absent on purpose: lag, which groups have (`overview`, `group`).
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl
from dash import Dash, Input, Output, dcc, html

from dashboards.figures.storage_charts import (
    TIMERS_HEIGHT,
    WINDOW_HEIGHT,
    loss_window,
    timers_due,
)
from dashboards.formatting import clock, count, duration, plural, size, spoken, visible
from dashboards.models import storage_lines
from dashboards.models.storage_lines import BrokerLine, Cost, FileLine, SlaveLine, TimerLine
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import (
    card,
    drawn,
    empty_range,
    failure,
    first_run,
    known,
    quiet,
    register_drawn,
    sent,
    sign_pill,
    table,
    tile,
    tree,
    withheld_notice,
)
from dashboards.pages.page import Page
from dashboards.reads.lake_data import Look
from dashboards.reads.storage_data import StorageData, without
from dashboards.theme import palette
from engine.foundation.errors import LakeError
from pipelines.reading.reading import LOOK_BACK, names_of
from pipelines.sentences import pictures

HIDDEN, SHOWN = "storage-body hidden", "storage-body"
VERDICTS: Final = ("replication_health", "flush_health")
"""Tables whose figures the page shows."""
EVENTS_MAX: Final = 100
TREES: Final = ("brokers", "slaves", "files", "events")
NO_TIMERS: Final = "No message waits for a moment, as far as brokers have reported."


def layout() -> html.Div:
    """Strip, costs and replicas, then timers, files and events."""
    graph = dcc.Graph(
        id="storage-window",
        config={"displayModeBar": False},
        responsive=True,
        className="graph",
        style={"height": WINDOW_HEIGHT},
    )
    cards = (
        card(
            "What would be lost, and since when?",
            html.Div(graph, id="storage-window-text", role="img"),
            element="storage-window-card",
            note="bytes of the commit log that no slave has, and that no disk has",
        ),
        card(
            "Brokers",
            html.Div(drawn("storage-brokers")),
            element="storage-brokers-card",
            note="what a loss would cost now; whoever would lose most first",
        ),
        card(
            "Replicas",
            html.Div(drawn("storage-slaves")),
            element="storage-slaves-card",
            note="slaves that are connected, the slowest first",
        ),
        card(
            "Timers due by hour",
            html.Div(id="storage-timers"),
            element="storage-timers-card",
            note=html.Span(id="storage-timers-note"),
        ),
        html.Div(
            [
                card(
                    "Last flushes",
                    html.Div(drawn("storage-files")),
                    element="storage-files-card",
                    note="queues and index are made again from the log",
                ),
                card(
                    "Roles, recoveries and replicas",
                    html.Div(drawn("storage-events")),
                    element="storage-events-card",
                    note="in this range, the newest first",
                ),
            ],
            className="halves",
        ),
    )
    return html.Div(
        [
            html.Div(html.H1("Storage"), className="page-head"),
            html.Div(id="storage-notice"),
            html.Div(
                [html.Div(id="storage-strip", className="strip storage-strip"), *cards],
                id="storage-body",
                className=HIDDEN,
            ),
        ]
    )


def content(
    context: PageContext, search: str | None, theme: str | None, pulse: Any = None
) -> tuple[Any, ...]:
    """(notice, body class, strip, figure, its summary, timers, their note, brokers, slaves, files,
    events), as they are sent."""
    try:
        look = context.look(search, pulse)
        if look.pulse.first_run:
            return _instead(first_run(context.data.lake.root))
        return context.pages.get(("storage", look.key, theme), lambda: _content(look, theme))
    except LakeError as error:
        return _instead(failure(str(error), context.clock()))


def _instead(shown: Any) -> tuple[Any, ...]:
    return sent(shown), HIDDEN, [], {}, "", [], "", *[None] * len(TREES)


def _content(look: Look, theme: str | None) -> tuple[Any, ...]:
    data, span = StorageData(look.data), look.span
    moment = look.data.moment
    ended = names_of(moment.ended)
    replication = data.replication(span.start, span.end)
    flushes = data.flushes(span.start, span.end)
    if span.is_ahead or (replication.is_empty() and flushes.is_empty()):
        return _instead(empty_range(span, look.view, what="No broker reported what it has stored"))
    silent = moment.unknown
    of_leaders = without(replication, ended)
    brokers = storage_lines.broker_lines(of_leaders, without(flushes, ended), silent)
    slaves = storage_lines.slave_lines(of_leaders, silent)
    timers = storage_lines.timer_lines(without(data.timers(span.end), ended), silent)
    colours = palette(theme)
    figure = loss_window(
        replication,
        flushes,
        span=span,
        silences=look.data.silences(span.start - LOOK_BACK, span.end),
        colours=colours,
    )
    trust = look.data.trust(span.start)
    return (
        sent(withheld_notice(trust, VERDICTS, moment, since=span.start)),
        SHOWN,
        sent(_strip(brokers, slaves, timers)),
        figure,
        pictures.loss_window(len(brokers), *_dearest(brokers)),
        sent(_timers(timers, theme)),
        storage_lines.timers_text(timers) if timers else "",
        tree(_brokers(brokers, look)),
        tree(_slaves(slaves, look)),
        tree(_files(storage_lines.file_lines(without(data.checkpoints(span.end), ended)), look)),
        tree(_events(data.events(span.start, span.end), look)),
    )


def _dearest(brokers: list[BrokerLine]) -> tuple[str, int | None]:
    """The broker whose loss would cost most, and how many bytes; None when none is known."""
    known_lines = [line for line in brokers if line.master_lost.size_bytes is not None]
    if not known_lines:
        return "", None
    worst = max(known_lines, key=lambda line: line.master_lost.size_bytes or 0)
    return worst.broker, worst.master_lost.size_bytes


def _strip(
    brokers: list[BrokerLine], slaves: list[SlaveLine], timers: list[TimerLine]
) -> list[Any]:
    """The worst of each in one number."""
    lost = [line.master_lost for line in brokers]
    cut = [line.power_cut for line in brokers]
    behind = [line.behind_ms for line in slaves if line.behind_ms is not None]
    slowest = max(behind, default=None)
    is_alone = any(line.sign is storage_lines.ALONE for line in brokers)
    waiting = sum(line.waiting for line in timers)
    return [
        tile(
            "lost with the masters",
            _sum([cost.messages for cost in lost], "message"),
            _costs(lost),
            href="#storage-brokers-card",
            tone="bad" if is_alone else "calm",
        ),
        tile(
            "lost in a power cut",
            _sum([cost.messages for cost in cut], "message"),
            _costs(cut),
            href="#storage-brokers-card",
        ),
        tile(
            "slowest replica",
            "unknown" if slowest is None else duration(slowest),
            plural(len(slaves), "replica") if slaves else "no replica is connected",
            href="#storage-slaves-card",
            tone="warn" if slowest is not None and slowest > storage_lines.BEHIND_MS else "calm",
        ),
        tile(
            "timers waiting",
            count(waiting) if timers else "unknown",
            f"{count(sum(line.due[0] for line in timers if line.due))} due in this hour"
            if timers
            else "no broker reported any",
            href="#storage-timers-card",
        ),
    ]


def _sum(counts: list[int | None], noun: str) -> str:
    """What is known of a sum."""
    numbers = [one for one in counts if one is not None]
    if not numbers:
        return "unknown"
    whole = plural(sum(numbers), noun)
    return whole if len(numbers) == len(counts) else f"at least {whole}"


def _costs(costs: list[Cost]) -> str:
    """The bytes of some costs, and of how many brokers they are unknown."""
    known_bytes = [cost.size_bytes for cost in costs if cost.size_bytes is not None]
    unknown = len(costs) - len(known_bytes)
    said = size(sum(known_bytes)) if known_bytes else ""
    rest = f"unknown of {plural(unknown, 'broker')}" if unknown else ""
    return ", ".join(part for part in (said, rest) if part)


def _name(line: BrokerLine | SlaveLine | FileLine | TimerLine, look: Look) -> html.Span:
    """The broker, with its cluster where there are several."""
    shown = f"{line.cluster} / {line.broker}" if look.names_clusters else line.broker
    return html.Span(visible(shown), className="name")


def _cost(cost: Cost) -> Any:
    if cost.size_bytes is None:
        return known(None, visible(cost.unknown))
    if cost.messages is None:
        return html.Span(
            [size(cost.size_bytes), html.Small(visible(cost.unknown), className="because")]
        )
    counted = f"{plural(cost.messages, 'message')}, " if cost.messages else ""
    words = f"{counted}{size(cost.size_bytes)}"
    return html.Span("nothing" if cost.is_nothing else words, className="number")


def _brokers(lines: list[BrokerLine], look: Look) -> Any:
    rows = [
        [
            sign_pill(line.sign),
            _name(line, look),
            known(None if line.mode is None else spoken(line.mode), "it has reported no slave"),
            known(None if line.epoch is None else str(line.epoch), storage_lines.NO_EPOCH),
            known(None if line.replicas is None else count(line.replicas), "not reported"),
            _cost(line.master_lost),
            _cost(line.power_cut),
            _cost(Cost(line.killed_bytes, 0, "not reported")),
            html.Span(clock(line.reported_at), className="exact"),
            html.Span(visible(line.reason), className="reason"),
        ]
        for line in lines
    ]
    headings = (
        *("state", "broker", "role", "epoch", "replicas", "lost with the master"),
        *("lost in a power cut", "lost by kill -9", "reported", "because"),
    )
    return table(headings, rows, label="Brokers, and what a loss would cost")


def _slaves(lines: list[SlaveLine], look: Look) -> Any:
    if not lines:
        return quiet("No slave is connected to a broker that reports here.")
    rows = [
        [
            sign_pill(line.sign),
            _name(line, look),
            html.Span(visible(line.replica), className="exact"),
            known(None if line.replicated is None else str(line.replicated), line.unknown),
            known(None if line.behind_bytes is None else size(line.behind_bytes), line.unknown),
            known(
                None if line.behind_messages is None else count(line.behind_messages), line.unknown
            ),
            known(None if line.behind_ms is None else duration(line.behind_ms), line.unknown),
            html.Span(clock(line.reported_at), className="exact"),
        ]
        for line in lines
    ]
    headings = (
        *("state", "master", "replica", "has the log up to", "bytes behind"),
        *("messages behind", "behind for", "reported"),
    )
    return table(headings, rows, label="Replicas, and what they lack")


def _timers(lines: list[TimerLine], theme: str | None) -> Any:
    if not any(line.waiting for line in lines):
        return quiet(NO_TIMERS)
    return html.Div(
        dcc.Graph(
            figure=timers_due(lines, colours=palette(theme)),
            config={"displayModeBar": False},
            responsive=True,
            style={"height": TIMERS_HEIGHT},
        ),
        role="img",
        **{"aria-label": storage_lines.timers_text(lines)},
    )


def _files(lines: list[FileLine], look: Look) -> Any:
    if not lines:
        return quiet("Nothing was flushed lately.")
    rows = [
        [
            _name(line, look),
            spoken(line.component),
            f"{spoken(line.action)}, {spoken(line.cause)}",
            html.Span(clock(line.at), className="exact"),
            known(line.behind, "it is written as a whole"),
            known(
                clock(line.newest_message) if line.newest_message else None, "it holds no messages"
            ),
            html.Span(duration(line.longest_us / 1000), className="number"),
        ]
        for line in lines
    ]
    headings = (
        *("broker", "file", "last action", "at", "not durable", "newest message in it", "longest"),
    )
    return table(headings, rows, label="Last flush of each file")


def _events(events: pl.DataFrame, look: Look) -> Any:
    if events.is_empty():
        return quiet("Nothing happened to a broker or a replica in this range.")
    shown = list(storage_lines.in_words(events, names_clusters=look.names_clusters))
    rows = [
        [
            html.Span(clock(at), className="exact"),
            html.Span(visible(broker), className="name"),
            spoken(kind),
            html.Span(visible(detail), className="wrap"),
        ]
        for at, broker, kind, detail in shown[:EVENTS_MAX]
    ]
    found: list[Any] = [table(("at", "broker", "what", "detail"), rows, label="Events")]
    if len(shown) > EVENTS_MAX:
        found.append(quiet(f"and {len(shown) - EVENTS_MAX:,} earlier; choose a shorter range"))
    return html.Div(found)


def register(app: Dash, context: PageContext) -> None:
    """The page's callback."""

    @app.callback(
        Output("storage-notice", "children"),
        Output("storage-body", "className"),
        Output("storage-strip", "children"),
        Output("storage-window", "figure"),
        Output("storage-window-text", "aria-label"),
        Output("storage-timers", "children"),
        Output("storage-timers-note", "children"),
        *(Output(f"storage-{name}-tree", "data") for name in TREES),
        Input("pulse", "data"),
        Input("url", "search"),
        Input("theme", "data"),
    )
    async def show_storage(pulse: Any, search: str | None, theme: str | None) -> Any:
        return await beside(content, context, search, theme, pulse)

    for name in TREES:
        register_drawn(app, f"storage-{name}")


PAGE: Final = Page("/storage", "Storage", layout, register)
