"""Header fields as a client writes and reads them: RocketMQ's names, everything as text (the edge
of every request).

Invariant: an answer's number is a number, or the peer is told to be at fault. Absent on purpose:
what a field means. Source: spec rocketmq.md, section 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.foundation.errors import RemoteProtocolError


def wire_fields(**values: str | int | bool | None) -> dict[str, str]:
    """Values under their wire names; None is left out, as RocketMQ leaves null out."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def number(fields: Mapping[str, str], name: str) -> int:
    """A whole number of an answer. Raises RemoteProtocolError when it is missing or none."""
    text = fields.get(name, "")
    try:
        return int(text)
    except ValueError as error:
        raise RemoteProtocolError(
            f"field {name}={text!r} of an answer is no whole number"
        ) from error


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(int(value))
