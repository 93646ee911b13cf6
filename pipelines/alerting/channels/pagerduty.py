"""Pure functions that encode PagerDuty v2 events, with one incident per alert group.

The key of an incident is made of receiver and group, so a second copy of a notice changes nothing,
and the notice that all is resolved closes the incident.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.http_request import HttpRequest, json_bytes
from pipelines.alerting.channels.notice_text import (
    facts_of,
    headline_of,
    is_resolved,
    is_web_address,
    left_out,
    links_of,
    moment_text,
    one_line,
    title_of,
    worst_first,
)
from pipelines.base.secrets import Secret

EVENT_BYTES_MAX: Final = 512 * 1024
"""PagerDuty refuses a longer event."""
SUMMARY_CHARS_MAX: Final = 1_024
ALERTS_MAX: Final = 20
TEXT_CHARS_MAX: Final = 1_000

SEVERITIES: Final = {
    "page": "critical",
    "critical": "critical",
    "error": "error",
    "warning": "warning",
    "info": "info",
}
"""Ours → theirs; another word counts as a warning."""

_WORST_FIRST: Final = ("critical", "error", "warning", "info")


@dataclass(frozen=True, slots=True)
class PagerDutySettings:
    """The service to notify."""

    url: Secret
    routing_key: Secret
    external_url: str


def event(notice: Notice, settings: PagerDutySettings) -> HttpRequest:
    """Trigger the incident of the group, or resolve it."""
    body: dict[str, Any] = {
        "routing_key": settings.routing_key.reveal(),
        "event_action": "trigger" if notice.is_firing else "resolve",
        "dedup_key": incident_of(notice),
        "payload": _payload(notice),
        "client": "Tidemark",
    }
    if links := _links(notice):
        body["links"] = links
    if is_web_address(settings.external_url):
        body["client_url"] = settings.external_url
    return HttpRequest(settings.url, json_bytes(body), hidden=(settings.routing_key,))


def incident_of(notice: Notice) -> str:
    """The same for all notices of a group at a receiver; 64 characters of the 255 allowed."""
    identity = f"{notice.receiver}\n{notice.group_key}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def _payload(notice: Notice) -> dict[str, Any]:
    alerts = worst_first(notice.alerts)
    firing = [alert for alert in alerts if not is_resolved(alert)] or alerts
    severities = {SEVERITIES.get(alert.severity, "warning") for alert in firing}
    since_us = min((alert.active_at_us for alert in firing), default=notice.created_us)
    headline = headline_of(alerts[0], 500) if alerts else ""
    group = [f"{name}={value}" for name, value in sorted(notice.group_labels.items())]
    details = {
        f"{at + 1}. {headline_of(alert, 200)}": dict(facts_of(alert, TEXT_CHARS_MAX))
        for at, alert in enumerate(alerts[:ALERTS_MAX])
    }
    if more := left_out(notice, len(details)):
        details["more"] = {"alerts": f"{more:,}"}
    return {
        "summary": one_line(f"{title_of(notice, 500)} {headline}", SUMMARY_CHARS_MAX),
        "source": one_line(_label(alerts, "cluster") or "tidemark", 255),
        "severity": next((word for word in _WORST_FIRST if word in severities), "warning"),
        "timestamp": moment_text(since_us),
        "component": one_line(_label(alerts, "topic") or _label(alerts, "broker") or "-", 255),
        "group": one_line(" ".join(group) or "-", 255),
        "class": one_line(alerts[0].rule if alerts else "-", 255),
        "custom_details": details,
    }


def _label(alerts: list[Alert], name: str) -> str:
    return alerts[0].labels.get(name, "") if alerts else ""


def _links(notice: Notice) -> list[dict[str, str]]:
    shown = worst_first(notice.alerts)[:ALERTS_MAX]
    found = dict.fromkeys((url, name) for alert in shown for name, url in links_of(alert))
    return [{"href": url, "text": name} for url, name in found]
