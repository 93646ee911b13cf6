"""Encodes alerts, their changes and notices as JSON, and decodes them.

Invariant: what was written is read as the same value, whatever texts others put into it; hence
escapes for all that is not ASCII. Absent on purpose: versions. A field that is added gets a default
for the bodies that lack it.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from engine.foundation.errors import StorageError
from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.entries import Entry

Value = TypeVar("Value", Alert, Notice, Entry)


def alert_text(alert: Alert) -> str:
    """The alert as it is stored."""
    return json.dumps(_plain(alert))


def alert_of(text: str) -> Alert:
    """The alert that was stored; raises StorageError when it is none."""
    return _value(text, Alert)


def notice_text(notice: Notice) -> str:
    """The notice as it is stored."""
    return json.dumps(_plain(notice))


def notice_of(text: str) -> Notice:
    """The notice that was stored; raises StorageError when it is none."""
    return _value(text, Notice)


def entry_text(entry: Entry) -> str:
    """The change as it is stored."""
    return json.dumps(_plain(entry))


def entry_of(text: str) -> Entry:
    """The change that was stored; raises StorageError when it is none."""
    return _value(text, Entry)


def _plain(value: Alert | Notice | Entry) -> Any:
    return msgspec.to_builtins(value)


def _value(text: str, kind: type[Value]) -> Value:
    try:
        return msgspec.convert(json.loads(text), kind)
    except ValueError as error:
        raise StorageError(f"the database holds no {kind.__name__.lower()}: {error}") from error
