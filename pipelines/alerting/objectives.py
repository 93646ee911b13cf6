"""Objectives for consumer groups: a time-lag limit and the minimum share of time within it.

    [default]
    lag = "1m"
    share = 99.0

    [[objective]]        # the first that fits a group is its own
    group = "pay*"
    lag = "10s"
    share = 99.9

Invariant: every group has one. A file that is wrong at the start is refused; one that is broken
later leaves what was given before, and is logged once.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from engine.foundation.errors import ConfigError, MustBe
from pipelines.alerting.conditions import span_us
from pipelines.base.settings import DAY_US, MS_US

OBJECTIVES_MAX: Final = 10_000
_KEYS: Final = ("cluster", "group", "lag", "share")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Objective:
    """Behind by `lag_ms` at most for `share_percent` of the time at least."""

    lag_ms: int = 60_000
    share_percent: float = 99.0


@dataclass(frozen=True, slots=True)
class Objectives:
    """Which group should keep what."""

    default: Objective = Objective()
    named: tuple[tuple[str, str, Objective], ...] = ()
    """Patterns of cluster and group, as of file names; the first that fits counts."""
    has_default: bool = False
    """Has somebody written the default down?"""

    @property
    def is_given(self) -> bool:
        """Has somebody given an objective to any group?"""
        return self.has_default or bool(self.named)

    def given_to(self, cluster: str, group: str) -> Objective | None:
        """A group's, if somebody has written one down for it; None: nobody has."""
        found = self.of(cluster, group)
        is_own = self.has_default or any(found is one for _, _, one in self.named)
        return found if is_own else None

    def of(self, cluster: str, group: str) -> Objective:
        """A group's."""
        for clusters, groups, objective in self.named:
            if fnmatchcase(cluster, clusters) and fnmatchcase(group, groups):
                return objective
        return self.default


def read_objectives(file: Path | None) -> Objectives:
    """Those of a file; without one the default for everybody. ConfigError says what is wrong."""
    if file is None:
        return Objectives()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MustBe("objectives", str(file), f"a TOML file ({error})") from None
    return objectives_of(document, str(file))


def objectives_of(document: Mapping[str, Any], place: str = "") -> Objectives:
    """What a document says."""
    unknown = sorted(set(document) - {"default", "objective"})
    entries = document.get("objective", [])
    if unknown or not isinstance(entries, list) or len(entries) > OBJECTIVES_MAX:
        allowed = f"[default] and up to {OBJECTIVES_MAX:,} [[objective]]"
        raise MustBe("objectives", ", ".join(unknown) or "***", allowed, place)
    default = _objective(document.get("default", {}), Objective(), place)
    named = []
    for entry in entries:
        objective = _objective(entry, default, place)
        patterns = [entry.get(key, "*") for key in ("cluster", "group")]
        if not all(isinstance(one, str) for one in patterns):
            raise MustBe("group", patterns, "a pattern of names like pay*", place)
        named.append((patterns[0], patterns[1], objective))
    return Objectives(default, tuple(named), "default" in document)


def _objective(entry: Any, otherwise: Objective, place: str) -> Objective:
    if not isinstance(entry, Mapping) or set(entry) - set(_KEYS):
        raise MustBe("objective", entry, f"a table with {', '.join(_KEYS)}", place)
    lag_ms, share = otherwise.lag_ms, otherwise.share_percent
    if "lag" in entry:
        lag_us = span_us(str(entry["lag"]))
        if not lag_us or not MS_US <= lag_us <= DAY_US:
            raise MustBe("lag", entry["lag"], "a span like 30s, up to 1d", place)
        lag_ms = lag_us // MS_US
    if "share" in entry:
        share = entry["share"]
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 100:
            raise MustBe("share", share, "percent, above 0 and up to 100", place)
    return Objective(lag_ms, float(share))


class ObjectivesFile:
    """What a file says now; without a file nobody has given any objective."""

    def __init__(self, file: Path | None) -> None:
        """Raises ConfigError for a file that is wrong."""
        self._file = file
        self._stamp = self._stamped()
        self._given = read_objectives(file)

    def __call__(self) -> Objectives:
        """What is given now."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._given = read_objectives(self._file)
            except ConfigError as error:
                _log.warning("objectives stay as they were: %s", error)
        return self._given

    def _stamped(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            stat = self._file.stat()
        except OSError:
            return -1, -1
        return stat.st_mtime_ns, stat.st_size
