"""Builds the notice text that all channels share: title, lines, links and times.

Invariant: what leaves here has no control characters, no lone surrogates and no marks that turn the
direction of writing; one line is one line. Markup is each channel's own: nothing is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pipelines.alerting.alerts import ALERT_NAME, OBSERVED, Alert, Notice, State

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LINKS: Final = (("page_url", "Page"), ("notebook_url", "Notebook"), ("runbook_url", "Runbook"))
URL_CHARS_MAX: Final = 2_000
_TEXTS: Final = (
    ("evidence", "Evidence"),
    (OBSERVED, "Observed"),
    ("description", "Description"),
    ("first_step", "Do first"),
)


def one_line(text: str, chars_max: int) -> str:
    """The text on one line, and no longer than this."""
    printable = "".join(char if char.isprintable() else _escaped(char) for char in text[:chars_max])
    return shortened(printable, chars_max)


def shortened(text: str, chars_max: int) -> str:
    """The text, with an ellipsis for what is too much."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _escaped(char: str) -> str:
    return " " if char.isspace() else char.encode("unicode_escape").decode()


def labels_of(alert: Alert) -> dict[str, str]:
    """Its labels with its name and severity, as Prometheus's tools know them."""
    return {ALERT_NAME: alert.rule, "severity": alert.severity, **alert.labels}


def is_resolved(alert: Alert) -> bool:
    """Is it over?"""
    return alert.state is State.RESOLVED


def status_of(notice: Notice) -> str:
    """`firing` or `resolved`."""
    return "firing" if notice.is_firing else "resolved"


def title_of(notice: Notice, chars_max: int) -> str:
    """`[FIRING:2] StalledWindow (group=payments)`; of a report its subject."""
    if notice.subject:
        return one_line(notice.subject, chars_max)
    firing = sum(not is_resolved(alert) for alert in notice.alerts)
    if firing:
        firing += notice.truncated_alerts
    count = f":{firing}" if firing else ""
    rules = sorted({alert.rule for alert in notice.alerts})
    named = ", ".join(rules[:3]) + (" …" if len(rules) > 3 else "")
    group = " ".join(f"{name}={value}" for name, value in sorted(notice.group_labels.items()))
    about = f" ({group})" if group else ""
    return one_line(f"[{status_of(notice).upper()}{count}] {named}{about}", chars_max)


def headline_of(alert: Alert, chars_max: int) -> str:
    """What is wrong, in one line."""
    headline = alert.annotations.get("summary") or alert.rule
    state = "" if alert.state is State.FIRING else f"{alert.state.value}: "
    return one_line(f"{state}{headline}", chars_max)


def facts_of(alert: Alert, chars_max: int) -> Iterator[tuple[str, str]]:
    """What else there is to say, as names and values, the most useful first."""
    for key, name in _TEXTS:
        if text := alert.annotations.get(key):
            yield name, one_line(text, chars_max)
    if alert.reason:
        yield "Reason", one_line(alert.reason, chars_max)
    yield "Since", moment_text(alert.active_at_us)
    if alert.resolved_at_us is not None:
        yield "Resolved", moment_text(alert.resolved_at_us)
    yield "Severity", one_line(alert.severity, chars_max)
    yield "Owner", one_line(alert.owner or "nobody", chars_max)
    yield "Labels", one_line(_listed(alert.labels), chars_max)
    if alert.figures:
        yield "Figures", figures_of(alert, chars_max)


def figures_of(alert: Alert, chars_max: int) -> str:
    """`lag_messages=812, time_lag_ms=unknown`; empty: it has none."""
    figures = {
        name: "unknown" if value is None else str(value) for name, value in alert.figures.items()
    }
    return one_line(_listed(figures), chars_max)


def links_of(alert: Alert) -> list[tuple[str, str]]:
    """Names and addresses of what belongs to it; only those of the web."""
    found = [(name, alert.annotations.get(key, "")) for key, name in LINKS]
    return [(name, url) for name, url in found if is_web_address(url)]


def is_web_address(url: str) -> bool:
    """An http address in printable ASCII, without anything that ends an attribute or a link."""
    return (
        url.startswith(("https://", "http://"))
        and len(url) <= URL_CHARS_MAX
        and url.isascii()
        and url.isprintable()
        and not set(url) & set(" \"'<>|\\`{}^")
    )


def left_out(notice: Notice, shown: int) -> int:
    """How many alerts are not shown."""
    return notice.truncated_alerts + max(0, len(notice.alerts) - shown)


def worst_first(alerts: Sequence[Alert]) -> list[Alert]:
    """Firing ones before resolved ones; else as they came."""
    return sorted(alerts, key=is_resolved)


def moment_text(moment_us: int) -> str:
    """RFC 3339 in UTC with milliseconds; the nearest for a moment that no calendar has."""
    first_us, last_us = -62_135_596_800_000_000, 253_402_300_799_999_000
    moment = EPOCH + timedelta(microseconds=min(max(moment_us, first_us), last_us))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
