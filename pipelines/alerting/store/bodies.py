"""Alerts and notices as JSON, and back.

Invariant: what was written is read as the same value, whatever texts others put into it; hence
escapes for all that is not ASCII. Absent on purpose: versions. A field that is added gets a default
for the bodies that lack it.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from engine.foundation.errors import StorageError
from pipelines.alerting.alerts import Alert, Notice

Value = TypeVar("Value", Alert, Notice)


def alert_text(alert: Alert) -> str:
    """The alert as it is stored."""
    return json.dumps(_plain(alert))


def alert_of(text: str) -> Alert:
    """The alert that was stored; raises StorageError when it is none."""
    return _value(text, Alert)


def notice_text(notice: Notice) -> str:
    """The notice as it is stored."""
    told = _plain(notice) | {"alerts": [_plain(alert) for alert in notice.alerts]}
    return json.dumps(told)


def notice_of(text: str) -> Notice:
    """The notice that was stored; raises StorageError when it is none."""
    return _value(text, Notice)


def _plain(value: Alert | Notice) -> dict[str, Any]:
    told = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: dict(part) if hasattr(part, "keys") else part for name, part in told.items()}


def _value(text: str, kind: type[Value]) -> Value:
    try:
        return msgspec.convert(json.loads(text), kind)
    except ValueError as error:
        raise StorageError(f"the database holds no {kind.__name__.lower()}: {error}") from error
