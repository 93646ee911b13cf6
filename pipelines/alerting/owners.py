"""Owners of groups, topics and brokers, for alerts whose rules name no owner.

Place in the walk: a document (TOML that somebody has read) → owners → the life cycle, which gives
each alert its owner.

    [[owners]]
    owner = "payments team"
    matchers = ['group=~"pay.*"']
    [[owners]]
    owner = "platform team"                 # of all else
    matchers = ['alertname=~".+"']

Invariant: pure. The first entry of which all matchers hold says it, and only of an alert whose rule
has no owner of its own: who wrote the rule knew better. Of a document with faults nothing is taken.
Absent on purpose: how an owner is reached; routes choose by `owner` like by any other label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipelines.alerting.alerts import ALERT_NAME
from pipelines.alerting.conditions import unknown_name
from pipelines.alerting.matchers import Matcher, MatcherFault, all_match, matchers_of
from pipelines.alerting.rules import Fault, Rule

OWNERS_MAX: Final = 200
"""Entries of a file: each alert is held against them in each cycle."""
OWNER_CHARS_MAX: Final = 200
_KEYS: Final = ("owner", "matchers")


@dataclass(frozen=True, slots=True)
class Owned:
    """Which alerts are whose."""

    owner: str
    matchers: tuple[Matcher, ...]


def owner_of(rule: Rule, labels: Mapping[str, str], owners: Sequence[Owned]) -> str:
    """The owner of an alert of a rule, with these labels; empty: nobody's that is known."""
    if rule.owner or not owners:
        return rule.owner
    seen = {**labels, ALERT_NAME: rule.name, "severity": rule.severity.value}
    return next((one.owner for one in owners if all_match(one.matchers, seen)), "")


def owners_of(
    file: str, entries: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Owned, ...], tuple[Fault, ...]]:
    """The owners that a document names, in their order, and all that is wrong with them."""
    found: list[Owned] = []
    faults: list[Fault] = []
    if len(entries) > OWNERS_MAX:
        what = f"there are {len(entries)} entries; at most {OWNERS_MAX}: one pattern names many"
        faults.append(Fault(file, "", "owners", "", what))
    for number, entry in enumerate(entries, 1):
        wrong = _wrong_keys(entry)
        try:
            matchers = matchers_of(entry.get("matchers"))
        except MatcherFault as fault:
            wrong["matchers"] = str(fault)
        else:
            if any(one.label == "owner" for one in matchers):
                wrong["matchers"] = "choose by the owner that they are to say: name another label"
            found.append(Owned(str(entry.get("owner")), matchers))
        faults += [
            Fault(file, f"owners {number}", key, _shown(entry, key), what)
            for key, what in wrong.items()
        ]
    return () if faults else tuple(found), tuple(faults)


def _wrong_keys(entry: Mapping[str, Any]) -> dict[str, str]:
    wrong = {
        key: unknown_name(key, dict.fromkeys(_KEYS), "key") for key in entry if key not in _KEYS
    }
    owner = entry.get("owner")
    is_text = isinstance(owner, str) and owner.strip() and owner.isprintable()
    if not is_text or len(str(owner)) > OWNER_CHARS_MAX:
        wrong["owner"] = (
            f"must say whose they are, in one line of 1 to {OWNER_CHARS_MAX} characters"
        )
    return wrong


def _shown(entry: Mapping[str, Any], key: str) -> str:
    return "" if key not in entry else repr(entry[key])[:120]
