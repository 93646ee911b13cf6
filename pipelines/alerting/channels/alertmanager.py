"""Pure encoders for Alertmanager: alerts for its API v2, and its webhook in version 4.

An Alertmanager forgets an alert after five minutes unless the alert says until when it holds:
firing alerts hold for `valid_for_s`, which is longer than the pause between two notices. It knows a
second copy by the alert's labels. A webhook's receiver can recognise one by its Idempotency-Key,
which is the notice's id. Owner and figures go as annotations: as labels they would make another
alert of it whenever they change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.http_request import HttpRequest, json_bytes
from pipelines.alerting.channels.notice_text import (
    figures_of,
    is_resolved,
    is_web_address,
    labels_of,
    moment_text,
    status_of,
)
from pipelines.base.secrets import Secret

NEVER: Final = "0001-01-01T00:00:00Z"
"""How version 4 says that an alert has no end yet."""

FIGURES_CHARS_MAX: Final = 500
"""As much of the figures as other channels show."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class AlertmanagerSettings:
    """Where to push alerts."""

    url: Secret
    """Of the API, with /api/v2/alerts."""
    bearer: Secret | None
    valid_for_s: int


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where to send version 4."""

    url: Secret
    bearer: Secret | None
    external_url: str


def pushed(notice: Notice, settings: AlertmanagerSettings) -> HttpRequest:
    """POST /api/v2/alerts."""
    posted = [_posted(alert, notice, settings) for alert in notice.alerts]
    return HttpRequest(settings.url, json_bytes(posted), settings.bearer)


def webhook(notice: Notice, settings: WebhookSettings) -> HttpRequest:
    """The webhook of Alertmanager, version 4."""
    labels = [labels_of(alert) for alert in notice.alerts]
    annotations = [annotations_of(alert) for alert in notice.alerts]
    body = {
        "version": "4",
        "groupKey": notice.group_key,
        "truncatedAlerts": notice.truncated_alerts,
        "status": status_of(notice),
        "receiver": notice.receiver,
        "groupLabels": dict(notice.group_labels),
        "commonLabels": _common(labels),
        "commonAnnotations": _common(annotations),
        "externalURL": settings.external_url,
        "alerts": [_listed(alert) for alert in notice.alerts],
    }
    key = {"Idempotency-Key": _NOT_IN_NAMES.sub("_", notice.notice_id)}
    return HttpRequest(settings.url, json_bytes(body), settings.bearer, key)


def annotations_of(alert: Alert) -> dict[str, str]:
    """Its texts, with its owner, if it has one, and its figures; a text of the rule's own stays."""
    annotations = {"owner": alert.owner, "figures": figures_of(alert, FIGURES_CHARS_MAX)}
    return {name: text for name, text in annotations.items() if text} | dict(alert.annotations)


def _listed(alert: Alert) -> dict[str, Any]:
    ended_us = alert.resolved_at_us
    return {
        "status": "resolved" if is_resolved(alert) else "firing",
        "labels": labels_of(alert),
        "annotations": annotations_of(alert),
        "startsAt": moment_text(alert.active_at_us),
        "endsAt": NEVER if ended_us is None else moment_text(ended_us),
        "generatorURL": _source(alert),
        "fingerprint": alert.fingerprint,
    }


def _posted(alert: Alert, notice: Notice, settings: AlertmanagerSettings) -> dict[str, Any]:
    """Starts before it ends, and a resolved one ends in the past: Alertmanager refuses the one,
    and takes the other for firing. Its clock and that of brokers differ.
    """
    started_us = min(alert.active_at_us, notice.created_us)
    if is_resolved(alert):
        ended_us = min(alert.resolved_at_us or notice.created_us, notice.created_us)
    else:
        ended_us = notice.created_us + settings.valid_for_s * 1_000_000
    return {
        "labels": _named(labels_of(alert)),
        "annotations": _named(annotations_of(alert)),
        "startsAt": moment_text(started_us),
        "endsAt": moment_text(max(ended_us, started_us + 1_000)),
        "generatorURL": _source(alert),
    }


def _source(alert: Alert) -> str:
    url = alert.annotations.get("page_url", "")
    return url if is_web_address(url) else ""


def _named(values: Mapping[str, str]) -> dict[str, str]:
    """With names that Alertmanager takes; of two that become one, the first in order stays."""
    labels: dict[str, str] = {}
    for name, value in sorted(values.items()):
        if not value:  # It would drop the label.
            continue
        plain = _NOT_IN_NAMES.sub("_", name) or "_"
        labels.setdefault(f"_{plain}" if plain[0].isdigit() else plain, value)
    return labels


def _common(of: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not of:
        return {}
    return {
        name: value
        for name, value in of[0].items()
        if all(other.get(name) == value for other in of)
    }
