"""Reads settings by their RocketMQ names and lists those that may change at run time.

Place in the walk: once, before anything starts: words are matched to the keys that stand in the
metadata of a configuration's fields (`rocketmq`), and read by the type of the field's default.
Again when a tool sends UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG.

Invariant: an unknown key and an unreadable value are refused with a ConfigError that says what is
allowed. What is not on a party's list cannot be changed over the wire; no path, name, address or
port is ever listed. Absent on purpose: relations between values, which each configuration checks
itself; applying a change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from engine.foundation.errors import ConfigError, NotChangeable
from engine.foundation.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

Config = TypeVar("Config")

KEY = "rocketmq"
"""Metadata entry that holds a field's RocketMQ key."""

_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")
_SPAN_UNITS_MS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_TRUTHS = {"true": True, "false": False}


def split_settings(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words as a mapping; the last of equal keys wins. Raises ConfigError."""
    settings = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key.strip():
            raise ConfigError("set", word, "key=value, with a RocketMQ key")
        settings[key.strip()] = value.strip()
    return settings


def keys_of(config: type[Any]) -> list[str]:
    """The RocketMQ keys a configuration understands, sorted."""
    return sorted(field.metadata[KEY] for field in fields(config) if KEY in field.metadata)


def with_settings(
    config: Config,
    settings: Mapping[str, str],
    *,
    readers: Mapping[str, Callable[[str], object]],
) -> Config:
    """The configuration with those of `settings` applied that are its own; others are left alone.

    `readers` holds the keys whose words are in another unit or form than the field.
    """
    changes: dict[str, object] = {}
    for field in fields(config):  # type: ignore[arg-type]
        key = str(field.metadata.get(KEY, ""))
        if key in settings:
            reader = readers.get(key) or _reader(field)
            changes[field.name] = _read(key, settings[key], reader)
    return replace(config, **changes) if changes else config  # type: ignore[type-var]


def values_of(config: object, writers: Mapping[str, Callable[[Any], str]]) -> dict[str, str]:
    """RocketMQ key → the value in force, in words that `with_settings` reads back.

    `writers` holds the keys whose words are in another unit or form than the field.
    """
    found = {}
    for field in fields(config):  # type: ignore[arg-type]
        key = field.metadata.get(KEY)
        if key is not None:
            value = getattr(config, field.name)
            found[str(key)] = writers[key](value) if key in writers else _word(value)
    return found


def read_spans_ms(text: str) -> tuple[int, ...]:
    """Spans of time such as `1s 5s 10s 1m 2h`, in ms. Raises ValueError."""
    spans = []
    for word in text.split():
        match = _SPAN.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is not a number with ms, s, m, h or d")
        spans.append(int(match[1]) * _SPAN_UNITS_MS[match[2]])
    return tuple(spans)


def read_whole(text: str) -> int:
    """A whole number. Raises ValueError, in words for whoever wrote it."""
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("a whole number") from error


def write_spans(spans_ms: Iterable[int]) -> str:
    """Spans of time as `read_spans_ms` reads them, each in its largest whole unit."""
    words = []
    for span_ms in spans_ms:
        unit = max(
            (name for name, size in _SPAN_UNITS_MS.items() if span_ms % size == 0),
            key=_SPAN_UNITS_MS.__getitem__,
        )
        words.append(f"{span_ms // _SPAN_UNITS_MS[unit]}{unit}")
    return " ".join(words)


def environment() -> Mapping[str, str]:
    """The process's environment; the only place in the engine that looks at it."""
    return dict(os.environ)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ";".join(str(part) for part in value)
    return "" if value is None else str(value)


def _reader(field: Field[Any]) -> Callable[[str], object]:
    default = "" if field.default is MISSING else field.default
    if isinstance(default, bool):
        return lambda text: _TRUTHS[text.lower()]
    if isinstance(default, Enum):
        return lambda text: _of_enum(type(default), text)
    if isinstance(default, int):
        return read_whole
    if isinstance(default, float):
        return float
    if isinstance(default, tuple):
        return lambda text: tuple(read_whole(part) for part in re.split(r"[;,\s]+", text) if part)
    return str


def _of_enum(kind: type[Enum], text: str) -> Enum:
    words = [str(member.value) for member in kind]
    if text not in words:
        raise ValueError(f"one of {', '.join(words)}")
    return kind(text)


def _read(key: str, text: str, reader: Callable[[str], object]) -> object:
    try:
        return reader(text)
    except (ValueError, KeyError) as error:
        wanted = f"one of {', '.join(_TRUTHS)}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(key, text, wanted) from error


SECRET_KEYS = re.compile("secret|password|credential|token|accesskey|inituser|authenticationuser")
REDACTED = "******"


@dataclass(frozen=True, slots=True)
class LiveKey:
    """A key that may change; its number, if it is one, lies in [least, most]."""

    least: int | None = None
    most: int | None = None


ANY_WORD = LiveKey()
"""For true and false, and for forms of their own: reading them is check enough."""


def check_changes(
    changes: Mapping[str, str], *, allowed: Mapping[str, LiveKey], pinned: Mapping[str, str]
) -> None:
    """Raise NotChangeable or ConfigError for the first key that cannot be changed so."""
    for key, value in changes.items():
        live = allowed.get(key)
        if live is None:
            raise NotChangeable(
                key, value, f"changeable while running are {', '.join(sorted(allowed))}"
            )
        if key in pinned:
            raise NotChangeable(
                key, value, f"fixed by {pinned[key]}, which a restart would obey again"
            )
        if live.least is None or live.most is None:
            continue
        wanted = f"a whole number from {live.least} to {live.most}"
        if not re.fullmatch("[0-9]{1,18}", value) or not live.least <= int(value) <= live.most:
            raise ConfigError(key, value, wanted)


def redacted(values: Mapping[str, str]) -> dict[str, str]:
    """The values, with those of secrets hidden."""
    return {
        key: REDACTED if value and SECRET_KEYS.search(key.casefold()) else value
        for key, value in values.items()
    }
