"""Pure functions that encode alerts for Alertmanager's v2 API.

An Alertmanager forgets an alert after five minutes unless the alert says until when it holds:
firing alerts hold for `valid_for_s`, which is longer than the pause between two notices. It knows a
second copy by the alert's labels. Owner and figures go as annotations: as labels they would make
another alert of it whenever they change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
)
from pipelines.base.secrets import Secret

FIGURES_CHARS_MAX: Final = 500
"""As much of the figures as other channels show."""

NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class AlertmanagerSettings:
    """Where to push alerts."""

    url: Secret
    """Of the API, with /api/v2/alerts."""
    bearer: Secret | None
    valid_for_s: int


def pushed(notice: Notice, settings: AlertmanagerSettings) -> HttpRequest:
    """POST /api/v2/alerts."""
    posted = [_posted(alert, notice, settings) for alert in notice.alerts]
    return HttpRequest(settings.url, json_bytes(posted), settings.bearer)


def annotations_of(alert: Alert) -> dict[str, str]:
    """Its texts, with its owner, if it has one, and its figures; a text of the rule's own stays."""
    annotations = {"owner": alert.owner, "figures": figures_of(alert, FIGURES_CHARS_MAX)}
    return {name: text for name, text in annotations.items() if text} | dict(alert.annotations)


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
        "generatorURL": source_of(alert),
    }


def source_of(alert: Alert) -> str:
    """The address of the page about it; empty when it names none that is one."""
    url = alert.annotations.get("page_url", "")
    return url if is_web_address(url) else ""


def _named(values: Mapping[str, str]) -> dict[str, str]:
    """With names that Alertmanager takes; of two that become one, the first in order stays."""
    labels: dict[str, str] = {}
    for name, value in sorted(values.items()):
        if not value:  # It would drop the label.
            continue
        plain = NOT_IN_NAMES.sub("_", name) or "_"
        labels.setdefault(f"_{plain}" if plain[0].isdigit() else plain, value)
    return labels
