"""Parses and evaluates label matchers, such as `severity="critical"` and `group=~"pay.*"`.

Place in the walk: below silences, inhibition and routes. An alert's labels are its own, with
alertname, severity and owner; one that it lacks is an empty text, and a pattern speaks of the whole
value, as in Alertmanager. Invariant: pure; a matcher that was read cannot fail. Patterns are those
of RE2: time grows with the name alone, whatever name somebody gives a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.alerting.alerts import ALERT_NAME, Alert

PATTERN_MAX: Final = 200
"""Characters of a pattern."""
VALUE_MAX: Final = 500
"""Characters of a label's value that a pattern is held against."""
MATCHERS_MAX: Final = 20
"""Matchers of one silence, route or inhibition."""

_WRITTEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class MatcherFault(Exception):
    """A matcher that cannot be read: what is wrong, and what would be right."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label."""

    label: str
    sign: str
    """=, !=, =~ or !~."""
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Does it hold for these labels?"""
        value = labels.get(self.label, "")
        if self.sign in ("=", "!="):
            return (value == self.value) is (self.sign == "=")
        return _found(self.value, value[:VALUE_MAX]) is (self.sign == "=~")

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.label}{self.sign}"{quoted}"'


def matcher_of(text: str) -> Matcher:
    """The matcher that a text says; quotes around the value may be left out."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise MatcherFault(f'{text[:100]!r} is no matcher: write label="value", or !=, =~, !~')
    label, sign, value = found.groups()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return matcher(label, sign, value)


def matcher(label: str, sign: str, value: str) -> Matcher:
    """A matcher from its parts. MatcherFault for a pattern that cannot be used."""
    if sign not in ("=~", "!~"):
        return Matcher(label, sign, value)
    if len(value) > PATTERN_MAX:
        raise MatcherFault(f"the pattern has {len(value)} characters; at most {PATTERN_MAX}")
    try:
        _contains(value, "")  # As it stands: within the whole it could end its own group.
        _found(value, "")
    except pa.ArrowException as error:
        why = str(error).removeprefix("Invalid regular expression: ")
        raise MatcherFault(f"the pattern {value!r} cannot be read: {why}") from None
    return Matcher(label, sign, value)


@lru_cache(maxsize=65_536)
def _found(pattern: str, value: str) -> bool:
    """Does the pattern describe the whole value?"""
    return _contains(rf"\A(?s:{pattern})\z", value.encode("utf-8", "replace").decode())


def _contains(pattern: str, value: str) -> bool:
    options = pc.MatchSubstringOptions(pattern)
    found = pc.call_function("match_substring_regex", [pa.scalar(value)], options)
    return bool(found.as_py())


def matchers_of(texts: Any) -> tuple[Matcher, ...]:
    """Those of a list of texts. MatcherFault for anything else, and for none."""
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
        raise MatcherFault("must be a list of matchers, like ['group=\"orders\"']")
    if not 1 <= len(texts) <= MATCHERS_MAX:
        raise MatcherFault(f"has {len(texts)} matchers; 1 to {MATCHERS_MAX} are taken")
    return tuple(matcher_of(one) for one in texts)


def all_match(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Do all of them hold?"""
    return all(one.matches(labels) for one in matchers)


def labels_of(alert: Alert) -> dict[str, str]:
    """What matchers see of an alert."""
    return {
        **alert.labels,
        ALERT_NAME: alert.rule,
        "severity": alert.severity,
        "owner": alert.owner,
    }


def values_of(labels: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    """The values of some labels; of one that is not there, an empty text."""
    return tuple(labels.get(name, "") for name in names)
