"""The allow-list of settings that may change while a party runs, with their ranges.

Place in the walk: beside it, when a tool sends UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG.

Invariant: what is not listed cannot be changed over the wire; lists of what is forbidden have
failed before, by one key that nobody thought of. No path, name, address or port is ever listed.
Absent on purpose: applying a change, and keeping it (the party). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.foundation.errors import ConfigError, NotChangeable

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
