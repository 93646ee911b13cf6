"""Pure functions that encode notices as version 4 Alertmanager webhook payloads.

A receiver can recognise a second copy by its Idempotency-Key, which is the notice's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.alertmanager import NOT_IN_NAMES, annotations_of, source_of
from pipelines.alerting.channels.http_request import HttpRequest, json_bytes
from pipelines.alerting.channels.notice_text import (
    is_resolved,
    labels_of,
    moment_text,
    status_of,
)
from pipelines.base.secrets import Secret

NEVER: Final = "0001-01-01T00:00:00Z"
"""How version 4 says that an alert has no end yet."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where to send version 4."""

    url: Secret
    bearer: Secret | None
    external_url: str


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
    key = {"Idempotency-Key": NOT_IN_NAMES.sub("_", notice.notice_id)}
    return HttpRequest(settings.url, json_bytes(body), settings.bearer, key)


def _listed(alert: Alert) -> dict[str, Any]:
    ended_us = alert.resolved_at_us
    return {
        "status": "resolved" if is_resolved(alert) else "firing",
        "labels": labels_of(alert),
        "annotations": annotations_of(alert),
        "startsAt": moment_text(alert.active_at_us),
        "endsAt": NEVER if ended_us is None else moment_text(ended_us),
        "generatorURL": source_of(alert),
        "fingerprint": alert.fingerprint,
    }


def _common(of: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not of:
        return {}
    return {
        name: value
        for name, value in of[0].items()
        if all(other.get(name) == value for other in of)
    }
