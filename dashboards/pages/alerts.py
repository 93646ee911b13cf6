"""Page for alerts: open and resolved alerts, silences, and the rules behind them.

Each part has an address of its own, so that each has its own search and pages. Alerts are changed
by commands to copy: this server knows no user by name, so an ack could be anybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from dashboards.formatting import clock, count, plural, visible
from dashboards.models import alert_lines
from dashboards.models.alert_lines import AlertSource
from dashboards.page_context import PageContext, beside
from dashboards.pages.alert_components import (
    STANDING_SIGNS,
    alert_summary,
    commands_of,
    counted_by_rule,
    faults_of,
    labels_of,
    lasting,
    recurrence_of,
    severity_of,
    state_of,
    way_out,
    worded,
)
from dashboards.pages.components import (
    card,
    drawn,
    notice,
    pager,
    quiet,
    register_drawn,
    register_search,
    search_field,
    table,
    tree,
)
from dashboards.pages.page import Page
from dashboards.url_state import Span, View, parse, resolve
from engine.foundation.errors import LakeError
from pipelines.base.time_units import moment_at
from pipelines.sentences.alert_reasons import why_not_judged

if TYPE_CHECKING:
    from pipelines.alerting.alerts import Alert
    from pipelines.alerting.board import Board, KeptSilence
    from pipelines.alerting.rule_status import JudgedRule
    from pipelines.alerting.rules import Rule
    from pipelines.alerting.silences import Silence

ALERTS_PER_PAGE: Final = 25
PARTS: Final = {
    "/alerts": "Open",
    "/alerts/history": "History",
    "/alerts/silences": "Silences",
    "/alerts/rules": "Rules",
}


def layout(path: str) -> html.Div:
    """The state of the alert process, the four parts, and the one that is open."""
    return html.Div(
        [
            html.Div([html.H1("Alerts"), html.Div(id="alerts-process")], className="page-head"),
            html.Nav(id="alerts-parts", className="parts", **{"aria-label": "Parts"}),
            html.Div(id="alerts-notice"),
            html.Div(
                card(
                    TITLES[path],
                    html.Div(
                        [
                            search_field(
                                "alerts-search", "whose name, label, severity or owner holds"
                            ),
                            *drawn("alerts-list"),
                            html.Div(id="alerts-pager"),
                        ]
                    ),
                    element="alerts-card",
                    note=html.Span(id="alerts-note"),
                ),
                id="alerts-body",
                className="alerts-body",
            ),
        ]
    )


TITLES: Final = {
    "/alerts": "What is wrong now?",
    "/alerts/history": "What was wrong?",
    "/alerts/silences": "What is silenced?",
    "/alerts/rules": "What is watched?",
}


def content(
    context: PageContext, path: str | None, search: str | None, pulse: Any = None
) -> tuple[Any, ...]:
    """(notice, parts, note, list as a tree, links to its pages)."""
    path = path if path in PARTS else "/alerts"
    request = _request(context, search, pulse)
    source, board = context.alerts, context.board()
    if source is None or board is None or board.process.life.value == "never":
        return _nobody_watches(context), _parts(path, request.view, None, 0), "", None, None
    now_us = context.now_us
    shown = _Shown(source, board, request, now_us=now_us, lake=context.data.lake.root)
    part = {
        "/alerts": shown.open_ones,
        "/alerts/history": shown.history,
        "/alerts/silences": shown.silences,
        "/alerts/rules": shown.rules,
    }[path]
    note, listed, found = part()
    turned = pager(path, request.view, found, size=ALERTS_PER_PAGE, of="alerts")
    above = _unwatched(board, now_us)
    return above, _parts(path, request.view, board, now_us), note, tree(listed), turned


@dataclass(frozen=True, slots=True)
class _Request:
    """What the URL asks for."""

    view: View
    span: Span
    names_clusters: bool


def _request(context: PageContext, search: str | None, pulse: Any) -> _Request:
    """The same, also while the lake cannot be read: that is when alerts are looked at."""
    try:
        look = context.look(search, pulse)
    except LakeError:
        view = parse(search)
        return _Request(view, resolve(view, now=context.clock(), data_end=None), True)
    return _Request(look.view, look.span, look.names_clusters)


def _nobody_watches(context: PageContext) -> html.Div:
    lake = context.data.lake.root
    return notice(
        "Nobody watches this lake",
        [
            html.P(
                "No alert process has ever run for it, as far as this dashboard's database of "
                "alerts says. That nothing is shown here does not mean that all is well."
            ),
            html.P(html.Code(f"tidemark alerts run --lake {lake}")),
        ],
        kind="unwatched",
    )


def _unwatched(board: Board, now_us: int) -> Any:
    """What is shown is of then, when nobody keeps it up to date."""
    if board.process.is_believed:
        return None
    said = [
        html.P(visible(board.process.sentence(now_us))),
        html.P("What stands below was true then. What is true now, nobody knows."),
    ]
    return notice("These alerts are old", said, kind="unwatched")


def _parts(path: str, view: View, board: Board | None, now_us: int) -> list[Any]:
    counts: dict[str, str] = {}
    if board is not None:
        alerts = alert_lines.of_cluster(board.alerts, view.cluster)
        counts["/alerts"] = f" {sum(alert_lines.is_open(one) for one in alerts):,}"
        counts["/alerts/silences"] = f" {len(board.silenced(now_us)):,}"
    return [
        dcc.Link(
            title + counts.get(part, ""),
            href=part + view.around_page.search(),
            className="nav-link here" if part == path else "nav-link",
        )
        for part, title in PARTS.items()
    ]


class _Shown:
    """One board, as one look asks for it. A part is (note, what is listed, how many are found)."""

    def __init__(
        self, source: AlertSource, board: Board, request: _Request, *, now_us: int, lake: str
    ) -> None:
        self._source = source
        self._board = board
        self._request = request
        self._now_us = now_us
        self._lake = lake

    def open_ones(self) -> tuple[str, Any, int]:
        """All that is not over, the most urgent first."""
        view = self._request.view
        alerts = alert_lines.of_cluster(self._board.alerts, view.cluster)
        standing = [one for one in alerts if alert_lines.is_open(one)]
        chosen = alert_lines.matching(standing, view.query)
        note = f"{plural(len(standing), 'alert')} open"
        if view.query:
            note = f"{len(chosen):,} of {note}"
        if not chosen:
            said = "No open alert holds that." if standing else "No alert is open."
            return note, quiet(said), 0
        rows = [self._open_row(one) for one in _page(chosen, view)]
        headings = ("state", "what", "where", "since", "owner", "seen to by", "do")
        listed = table(headings, rows, label="Open alerts, the most urgent first")
        return note, [counted_by_rule(chosen, view), listed], len(chosen)

    def _open_row(self, alert: Alert) -> list[Any]:
        since_us = alert.active_at_us
        return [
            html.Div([html.Div(state_of(alert)), severity_of(alert.severity)]),
            alert_summary(alert),
            labels_of(alert, names_clusters=self._request.names_clusters),
            html.Div(
                [
                    html.Div(self._clock(since_us), className="exact"),
                    html.Div(lasting(self._now_us - since_us), className="reason"),
                ]
            ),
            html.Span(visible(alert.owner) if alert.owner else "nobody", className="wrap"),
            self._seen_to(alert),
            self._next(alert),
        ]

    def _seen_to(self, alert: Alert) -> Any:
        said: list[Any] = []
        ack = self._board.ack_of(alert)
        if ack is not None:
            why = f": {visible(ack.comment)}" if ack.comment else ""
            said.append(html.Div(f"acked by {visible(ack.author)}{why}"))
        silence = self._board.silence_of(alert, self._now_us)
        if silence is not None:
            until = self._clock(silence.end_us)
            said.append(html.Div(f"silenced by {visible(silence.author)} to {until}"))
        elif alert.muted:
            said.append(html.Div(f"nobody is notified: {visible(alert.muted)}"))
        return html.Div(said or "nobody", className="seen-to" if said else "reason")

    def _next(self, alert: Alert) -> Any:
        texts = alert.annotations
        links: list[Any] = [
            dcc.Link(
                "page at that moment",
                href=alert_lines.place_of(alert, names_clusters=self._request.names_clusters),
                className="jump",
            )
        ]
        for name, said in (("runbook_url", "runbook"), ("notebook_url", "notebook")):
            if texts.get(name):
                links.append(way_out(texts[name], said))
        first = texts.get("first_step", "")
        return html.Div(
            [
                *([html.Div(visible(first), className="wrap")] if first else []),
                html.Div(links, className="links"),
                commands_of(alert, self._lake, self._source),
            ],
            className="next",
        )

    def history(self) -> tuple[str, Any, int]:
        """What was resolved, and fired in the range; the newest first."""
        request = self._request
        past = self._source.past(request.span.start, request.span.end)
        alerts = alert_lines.of_cluster(
            alert_lines.with_past(self._board, past), request.view.cluster
        )
        over = alert_lines.resolved_within(alerts, request.span)
        over.sort(key=lambda one: (-(one.resolved_at_us or 0), one.fingerprint))
        chosen = alert_lines.matching(over, request.view.query)
        known_from = alert_lines.known_from(self._board, past, self._now_us)
        note = f"{plural(len(chosen), 'alert')} that fired in the range and is over"
        if known_from > request.span.start:
            note += f"; nothing is known of before {clock(known_from, day=True)} UTC"
        if past.trouble:
            note += f": {visible(past.trouble)}"
        if not chosen:
            return note, quiet("None that is known was resolved in this range."), 0
        rows = [self._past_row(one) for one in _page(chosen, request.view)]
        headings = ("from", "to", "lasted", "severity", "what", "where", "owner", "")
        return note, table(headings, rows, label="Resolved alerts, the newest first"), len(chosen)

    def _past_row(self, alert: Alert) -> list[Any]:
        assert alert.fired_at_us is not None
        assert alert.resolved_at_us is not None
        return [
            html.Span(self._clock(alert.fired_at_us), className="exact"),
            html.Span(self._clock(alert.resolved_at_us), className="exact"),
            html.Span(lasting(alert.resolved_at_us - alert.fired_at_us), className="number"),
            severity_of(alert.severity),
            alert_summary(alert),
            labels_of(alert, names_clusters=self._request.names_clusters),
            html.Span(visible(alert.owner) if alert.owner else "nobody", className="wrap"),
            dcc.Link(
                "page at that moment",
                href=alert_lines.place_of(alert, names_clusters=self._request.names_clusters),
                className="jump",
            ),
        ]

    def silences(self) -> tuple[str, Any, int]:
        """Those that hold, then those that will, then those that are over."""
        order = list(STANDING_SIGNS)
        wanted = self._request.view.query.casefold()
        chosen = sorted(
            (
                (order.index(one.standing(self._now_us).value), at, one)
                for at, one in enumerate(self._board.silences)
                if wanted in _silence_text(one.silence)
            ),
            key=lambda alert_lines: alert_lines[:2],
        )
        note = "moments in UTC; a silenced alert lives on, nobody is notified of it"
        if not chosen:
            return note, quiet("No silence holds that." if wanted else "Nothing is silenced."), 0
        rows = [self._silence_row(one) for *_, one in _page(chosen, self._request.view)]
        headings = ("", "alerts with", "from", "to", "comes back", "by", "why", "end it with")
        return note, table(headings, rows, label="Silences"), len(chosen)

    def _silence_row(self, kept: KeptSilence) -> list[Any]:
        silence, standing = kept.silence, kept.standing(self._now_us).value
        sign, css = STANDING_SIGNS[standing]
        is_over = standing == "expired"
        ends_us = kept.ended_us if kept.ended_us is not None else silence.end_us
        command = f"tidemark alerts unsilence {silence.silence_id} --lake {self._lake}"
        return [
            worded(sign, standing, css),
            html.Div([html.Div(html.Code(visible(one))) for one in silence.matchers]),
            html.Div(html.Div(self._clock(silence.begin_us), className="exact")),
            html.Div(
                [
                    html.Div(self._clock(ends_us), className="exact"),
                    *([html.Div("ended early", className="reason")] if kept.ended_us else []),
                ]
            ),
            html.Span(recurrence_of(silence), className="wrap"),
            html.Span(visible(silence.author), className="wrap"),
            html.Span(visible(silence.comment), className="wrap"),
            "" if is_over else html.Code(command + self._source.database, className="command"),
        ]

    def rules(self) -> tuple[str, Any, int]:
        """What the files of rules say now, and how each rule fares."""
        checked = self._source.rules()
        wanted = self._request.view.query.casefold()
        chosen = [
            one
            for one in checked.rules
            if wanted in f"{one.name}\n{one.owner}\n{one.severity}\n{one.file}".casefold()
        ]
        alerts = alert_lines.of_cluster(self._board.alerts, self._request.view.cluster)
        of_rule: dict[str, list[Alert]] = {}
        for alert in alerts:
            if alert_lines.is_open(alert):
                of_rule.setdefault(alert.rule, []).append(alert)
        judged_us = self._board.process.judged_us
        last = "never" if judged_us is None else f"at {self._clock(judged_us)} UTC"
        note = f"{plural(len(checked.rules), 'rule')} in the files; last judged {last}"
        shown = _page(chosen, self._request.view)
        judged = self._source.judged([one.name for one in shown])
        rows = [
            self._rule_row(one, of_rule.get(one.name, []), judged.get(one.name)) for one in shown
        ]
        headings = (
            "judging",
            "rule",
            "severity",
            "owner",
            "watches",
            "for",
            "firing",
            "pending",
            "last judged",
        )
        listed = table(headings, rows, label="Rules") if rows else quiet("No rule holds that.")
        return note, [*faults_of(checked.faults), listed], len(chosen)

    def _rule_row(
        self, rule: Rule, standing: Sequence[Alert], judged: JudgedRule | None
    ) -> list[Any]:
        hindered = [one for one in standing if "outcome" in one.labels]
        own = [one for one in standing if "outcome" not in one.labels]
        firing = sum(one.state.value == "FIRING" for one in own)
        pill, said = worded("✓", "no trouble reported", "ok"), ""
        if not self._board.process.is_believed:
            pill, said = worded("?", "unknown", "unknown"), "nobody judges it now"
        elif hindered:
            word = why_not_judged(hindered[0].labels["outcome"])
            if hindered[0].state.value == "PENDING":
                word = f"{word} lately"
            pill = worded("✖", word, "lost")
            said = hindered[0].reason or hindered[0].annotations.get("evidence", "")
        return [
            pill,
            html.Div(
                [
                    html.Div(rule.name, className="name"),
                    html.Div(
                        visible(rule.file.rsplit("/", 1)[-1]), className="reason", title=rule.file
                    ),
                ]
            ),
            severity_of(rule.severity.value),
            html.Span(visible(rule.owner) if rule.owner else "nobody", className="wrap"),
            html.Div(
                [
                    html.Div(", ".join(rule.tables), className="exact"),
                    html.Div(
                        visible(rule.when.text) if rule.when is not None else "a query",
                        className="reason condition",
                    ),
                ]
            ),
            html.Span(lasting(rule.for_us) if rule.for_us else "at once", className="number"),
            html.Span(count(firing), className="number"),
            html.Span(count(len(own) - firing), className="number"),
            self._last_judged(judged, said),
        ]

    def _last_judged(self, judged: JudgedRule | None, said: str) -> Any:
        """When a rule was judged last, and what came of it. said: why it cannot be judged now."""
        if judged is None:
            never = "never: no process has judged it yet"
            return html.Span(visible(said) if said else never, className="reason")
        came = judged.came_to(self._now_us)
        lines = [came] if not said or said in came else [came, said]
        return html.Div(
            [
                html.Div(self._clock(judged.judged_us), className="exact"),
                *(html.Div(visible(line), className="reason") for line in lines),
            ]
        )

    def _clock(self, moment_us: int) -> str:
        moment = moment_at(moment_us)
        return clock(moment, day=moment.date() != moment_at(self._now_us).date())


def _page(rows: Sequence[Any], view: View) -> Sequence[Any]:
    pages = max(1, -(-len(rows) // ALERTS_PER_PAGE))
    begin = (min(view.page, pages) - 1) * ALERTS_PER_PAGE
    return rows[begin : begin + ALERTS_PER_PAGE]


def _silence_text(silence: Silence) -> str:
    alert_lines = (silence.silence_id, silence.author, silence.comment, *map(str, silence.matchers))
    return "\n".join(alert_lines).casefold()


def register(app: Dash, context: PageContext) -> None:
    """The page's callbacks."""

    @app.callback(
        Output("alerts-notice", "children"),
        Output("alerts-parts", "children"),
        Output("alerts-note", "children"),
        Output("alerts-list-tree", "data"),
        Output("alerts-pager", "children"),
        Input("pulse", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    async def show_alerts(pulse: Any, pathname: str | None, search: str | None) -> Any:
        return await beside(partial(content, pulse=pulse), context, pathname, search)

    register_drawn(app, "alerts-list")
    register_search(app, "alerts-search")
    app.clientside_callback(
        ClientsideFunction("tidemark", "alertsProcess"),
        Output("alerts-process", "children"),
        Input("heard", "data"),
        State("alerts-process", "id"),
    )


def _alert_page(path: str) -> str | None:
    return path if path in PARTS else None


PAGE: Final = Page("/alerts", "Alerts", layout, register, _alert_page)
