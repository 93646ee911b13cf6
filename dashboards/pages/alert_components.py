"""Builds page components for alerts, silences and rules from plain values.

Invariant: what others named is text, whatever is in it. A link out of the application is one of the
web, or no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dash import dcc, html

from dashboards.formatting import duration, plural, visible
from dashboards.models import alert_lines
from dashboards.models.alert_lines import AlertSource
from dashboards.pages.components import notice, quiet
from dashboards.url_state import View

if TYPE_CHECKING:
    from pipelines.alerting.alerts import Alert
    from pipelines.alerting.rules import Fault
    from pipelines.alerting.silences import Silence

RULES_NAMED: Final = 12
"""Rules with open alerts that are counted one by one; the search finds the others."""
LABELS_SHOWN: Final = 12
STATE_SIGNS: Final = {
    "FIRING": ("■", "firing", "stalled"),
    "PENDING": ("◔", "pending", "slow"),
    "NO_DATA": ("?", "no data", "unknown"),
    "EVAL_ERROR": ("✖", "rule fails", "lost"),
    "WITHHELD": ("⊘", "withheld", "unknown"),
    "RESOLVED": ("✓", "resolved", "ok"),
}
SEVERITY_SIGNS: Final = {"critical": "‼", "error": "!", "warning": "▲", "info": "ℹ"}
STANDING_SIGNS: Final = {
    "active": ("◉", "slow"),
    "between": ("◌", "unknown"),
    "coming": ("▷", "rewound"),
    "expired": ("✓", "unknown"),
}
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FAULTS_SHOWN: Final = 25


def worded(sign: str, word: str, css: str) -> html.Span:
    """A state of any kind: sign, word and colour."""
    return html.Span(
        [html.Span(sign, className="pill-sign", **{"aria-hidden": "true"}), word],
        className=f"pill pill-{css}",
    )


def state_of(alert: Alert) -> html.Span:
    """Where an alert stands; one for information alone is never red."""
    sign, word, css = STATE_SIGNS[alert.state.value]
    if alert.state.value == "FIRING" and alert.severity == alert_lines.QUIET:
        css = "unknown"
    return worded(sign, word, css)


def severity_of(severity: str) -> html.Div:
    """How bad, as sign and word."""
    sign = SEVERITY_SIGNS.get(severity, "?")
    return html.Div(
        [
            html.Span(sign, className="pill-sign", **{"aria-hidden": "true"}),
            f" {visible(severity)}",
        ],
        className=f"severity severity-{severity if severity in SEVERITY_SIGNS else 'other'}",
    )


def alert_summary(alert: Alert) -> html.Div:
    """Its rule, what it says, what was seen, and why it is where it is."""
    texts = alert.annotations
    said = [*(texts.get(name, "") for name in ("summary", "evidence", "observed")), alert.reason]
    lines = [one for at, one in enumerate(said) if one and one not in said[:at]]
    return html.Div(
        [
            html.Div(
                [
                    html.Span(visible(alert.rule), className="name"),
                    html.Span(f" {alert.fingerprint[:8]}", className="exact fingerprint"),
                ]
            ),
            *(
                html.Div(visible(line), className="wrap" if not at else "reason")
                for at, line in enumerate(lines)
            ),
        ],
        className="what",
    )


def labels_of(alert: Alert, *, names_clusters: bool) -> html.Div:
    """Its labels; the cluster only where there are several."""
    labels = [
        (name, value)
        for name, value in alert.labels.items()
        if value and (name != "cluster" or names_clusters)
    ]
    shown = [
        html.Div([html.Span(f"{visible(name)} ", className="label-name"), visible(value)])
        for name, value in labels[:LABELS_SHOWN]
    ]
    if len(labels) > LABELS_SHOWN:
        shown.append(quiet(f"and {len(labels) - LABELS_SHOWN} more"))
    return html.Div(shown or html.Span("the lake itself", className="reason"), className="where")


def way_out(text: str, said: str) -> Any:
    """A link out of the application, or the text that is none."""
    address = alert_lines.web_address(text)
    return html.A(said, href=address, className="jump") if address else html.Code(visible(text))


def commands_of(alert: Alert, lake: str, source: AlertSource) -> html.Details:
    """What to type to look after an alert, or to have nobody notified of it."""
    silence = alert_lines.silence_command(alert, lake, source)
    lines: list[Any] = [html.Code(alert_lines.ack_command(alert, lake, source))]
    if silence is None:
        lines.append(quiet("Its labels hold characters that cannot be typed: silence its rule."))
    else:
        lines.append(html.Code(silence))
    return html.Details(
        [html.Summary("ack or silence it"), *lines],
        id=f"alert-{alert.fingerprint}",
        className="commands",
    )


def counted_by_rule(alerts: Sequence[Alert], view: View) -> html.Div:
    """How many of each rule; a rule leads to its own."""
    lines = alert_lines.rule_lines(alerts)
    shown = [
        dcc.Link(
            [
                html.Span(
                    SEVERITY_SIGNS.get(line.severity, "?"),
                    className=f"pill-sign severity-{line.severity}",
                ),
                " ",
                html.Span(visible(line.rule), className="name"),
                f" {_numbers(line)}",
            ],
            href="/alerts" + view.search(q=line.rule, page="1"),
            className="rule-count",
        )
        for line in lines[:RULES_NAMED]
    ]
    if len(lines) > RULES_NAMED:
        shown.append(quiet(f"and {plural(len(lines) - RULES_NAMED, 'rule')} more"))
    if view.query:
        shown.append(
            dcc.Link("all", href="/alerts" + view.search(q="", page="1"), className="rule-count")
        )
    return html.Div(shown, className="rule-counts")


def _numbers(line: alert_lines.RuleLine) -> str:
    parts = (
        (line.firing, "firing"),
        (line.not_judged, "not judged"),
        (line.pending, "pending"),
    )
    return ", ".join(f"{number:,} {word}" for number, word in parts if number)


def faults_of(faults: Sequence[Fault]) -> list[Any]:
    """What is wrong with files of rules; nothing of sound ones."""
    if not faults:
        return []
    lines = [html.Li(visible(fault)) for fault in faults[:FAULTS_SHOWN]]
    said = html.P(
        "The files of rules are broken as they are now. A process that is at work keeps the rules "
        "that it had; one that is started refuses."
    )
    return [notice("A file of rules is broken", [said, html.Ul(lines)], kind="error")]


def recurrence_of(silence: Silence) -> str:
    """When a silence comes back, by the clock of its zone."""
    again = silence.recurring
    if again is None:
        return "no"
    days = ", ".join(DAYS[day] for day in sorted(again.days)) or "each day"
    hour, minute = divmod(again.begin_minute, 60)
    return f"{days} at {hour:02}:{minute:02} {again.zone}, for {lasting(again.length_us)}"


def lasting(span_us: int) -> str:
    """A span, never a negative one: clocks of two machines differ."""
    return duration(max(0, span_us) / 1000)
