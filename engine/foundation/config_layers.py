"""Merges default, file, environment and flag settings, and records each one's origin.

Place in the walk: once, before anything starts; a broker that changes a setting while running asks
here whether a restart would keep it.

Invariant: the highest layer that names a key decides alone, and a refusal names the line, variable
or flag that it came from. An unknown key is reported once, with the nearest known one, and never
stops a start. Absent on purpose: what keys mean (each configuration), files and environment (handed
in as text and mapping). Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from engine.foundation.errors import ConfigError
from engine.foundation.java_properties import parse
from engine.foundation.observing import LifecycleEvent

Config = TypeVar("Config")

NEAR_ENOUGH = 0.6
"""Likeness from which a known key is offered in place of an unknown one."""


class Layer(IntEnum):
    """What says it; the higher one counts."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """One `key=value` by RocketMQ's key, and who says so."""

    key: str
    value: str
    layer: Layer
    place: str
    """For the reader of a refusal: `broker.conf, line 7`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a party's settings came from, for changes while it runs."""

    path: str = ""
    """The file that a restart reads; empty when there is none."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Keys that environment or flags decide, with the place: a change would not outlive us."""
    is_kept: bool = False
    """Is it a file of the party's own, and none that its user gave?"""
    found: LifecycleEvent | None = None
    """What an operator has to know of how such a file was found."""


@dataclass(frozen=True, slots=True)
class PartyStart(Generic[Config]):
    """What a party starts with."""

    config: Config
    origin: Origin
    warnings: tuple[str, ...]
    """A sentence about each setting that means nothing here."""


def origin_of(settings: Mapping[str, Setting], path: str) -> Origin:
    """See `Origin`."""
    pinned = {key: setting.place for key, setting in settings.items() if setting.layer > Layer.FILE}
    return Origin(path, pinned)


def from_file(text: str, path: str) -> list[Setting]:
    """The settings of a .properties file. Raises ConfigError."""
    try:
        found = parse(text)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, error.allowed, path) from error
    return [
        Setting(one.key, one.value.strip(), Layer.FILE, f"{path}, line {one.line}") for one in found
    ]


def from_environment(
    environment: Mapping[str, str], prefix: str, known: Iterable[str]
) -> list[Setting]:
    """Settings such as `TIDEMARK_BROKER_FILE_RESERVED_TIME=48`, whatever their case.

    Keys are compared without underscores and case; an unknown one stays as it is written.
    """
    keys = {key.casefold(): key for key in known}
    found = []
    for name in sorted(environment):
        if name.startswith(prefix):
            word = name.removeprefix(prefix)
            key = keys.get(word.replace("_", "").casefold(), word)
            place = f"environment variable {name}"
            found.append(Setting(key, environment[name].strip(), Layer.ENVIRONMENT, place))
    return found


def from_flags(
    settings: Mapping[str, str | None],
    place: str = "command line",
    *,
    layer: Layer = Layer.FLAG,
) -> list[Setting]:
    """Settings given by options; None was not given."""
    return [
        Setting(key, value, layer, place) for key, value in settings.items() if value is not None
    ]


def text_of(data: bytes) -> str:
    """A file's text: UTF-8, else Latin-1, which Java's own reader takes every file for."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def layered(settings: Iterable[Setting]) -> dict[str, Setting]:
    """The setting that counts of each key: of the highest layer, and there the last."""
    counted: dict[str, Setting] = {}
    for setting in settings:
        other = counted.get(setting.key)
        if other is None or setting.layer >= other.layer:
            counted[setting.key] = setting
    return counted


def sift(
    settings: Mapping[str, Setting],
    known: Sequence[str],
    without_effect: Mapping[str, str],
) -> tuple[dict[str, Setting], list[str]]:
    """Settings that mean something here, and a sentence about each of the others.

    A flag nobody knows is refused with ConfigError: whoever typed it is there to read it.
    """
    kept, warnings = {}, []
    for key, setting in settings.items():
        if key in known:
            kept[key] = setting
            continue
        reason = without_effect.get(key) or f"no key of this party; {_nearest(key, known)}"
        if setting.layer is Layer.FLAG:
            raise ConfigError(key, setting.value, reason, setting.place)
        warnings.append(f"{setting.place}: {key} is ignored: {reason}")
    return kept, warnings


def _nearest(key: str, known: Sequence[str]) -> str:
    lower = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(key.casefold(), lower, n=1, cutoff=NEAR_ENOUGH)
    return f"the nearest is {lower[near[0]]}" if near else "none is like it"


def applied(
    settings: Mapping[str, Setting], apply: Callable[[Mapping[str, str]], Config]
) -> Config:
    """What `apply` makes of the values; a ConfigError of it names the place of its key as well."""
    try:
        return apply({key: setting.value for key, setting in settings.items()})
    except ConfigError as error:
        setting = settings.get(error.key)
        if setting is None or error.place:
            raise
        raise ConfigError(error.key, error.value, error.allowed, setting.place) from error


def start_with(
    file: bytes,
    path: str | None,
    above: Iterable[Setting],
    *,
    known: Sequence[str],
    without_effect: Mapping[str, str],
    make: Callable[[Mapping[str, Setting]], Config],
) -> PartyStart[Config]:
    """What `make` makes of a file, empty when there is none, and of the layers above it.

    Raises ConfigError.
    """
    settings = layered([*from_file(text_of(file), path or ""), *above])
    kept, warnings = sift(settings, known, without_effect)
    return PartyStart(make(kept), origin_of(kept, path or ""), tuple(warnings))
