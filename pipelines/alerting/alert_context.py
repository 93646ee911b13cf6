"""Adds context to alerts: their owner, their links and whether they rest on polled facts.

Place in the walk: labels of an alert, the operator's settings and a look at gold → the alert, which
every channel, page and command shows.

Invariant: pure. An alert says that it rests on polled facts when all that it may be about is
polled; one that names no cluster, as of the lake or of a job, rests on no broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode, urlparse

from pipelines.alerting.alerts import ALERT_NAME, Alert, Figure, Notice
from pipelines.alerting.conditions import unknown_name
from pipelines.alerting.matchers import Matcher, MatcherFault, all_match, matchers_of
from pipelines.alerting.rules import Fault, Rule
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import moment_at, utc_text
from pipelines.base.wording import count
from pipelines.reading.investigations import of_alert
from pipelines.reading.moment import Reached, cluster_of, is_observer
from pipelines.sentences.emitters import polled

OWNERS_MAX: Final = 200
"""Entries of a file: each alert is held against them in each cycle."""
OWNER_CHARS_MAX: Final = 200
_KEYS: Final = ("owner", "matchers")
MARGIN: Final = timedelta(minutes=5)
"""Shown before an alert began, and after it was seen last."""
SHOWN_MAX: Final = timedelta(hours=6)
"""Of an alert that has lasted for longer, its last hours."""
_PAGES: Final = {"dq_results": "/checks", "dq_failures": "/checks"}


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


@dataclass(frozen=True, slots=True)
class Bases:
    """Where people reach what links lead to; empty: that link is left out."""

    pages: str = ""
    lab: str = ""
    runbooks: str = ""
    """The folder, or wiki, in which a runbook link that is no address of its own is looked for."""


def links_of(alert: Alert, table: str) -> dict[str, str]:
    """`page_url` and `notebook_url` of an alert, as paths. table: what its rule is about."""
    end_us = alert.last_true_us
    longest_us = SHOWN_MAX // timedelta(microseconds=1)
    begin_us = max(alert.active_at_us, end_us - longest_us)
    query = {
        "from": utc_text(moment_at(begin_us - begin_us % SECOND_US) - MARGIN),
        "to": utc_text(moment_at(end_us - end_us % SECOND_US) + MARGIN),
    }
    cluster = alert.labels.get("cluster", "")
    query |= {"cluster": cluster} if _is_text(cluster) and cluster else {}
    notebook = of_alert(table, alert.labels, begin_us=begin_us, end_us=end_us, margin=MARGIN)
    return {
        "page_url": f"{_page(table, alert.labels)}?{urlencode(query)}",
        "notebook_url": notebook.address,
    }


def _page(table: str, labels: Mapping[str, str]) -> str:
    for label, prefix in (("group", "/group/"), ("topic", "/topic/")):
        name = labels.get(label, "")
        if name and _is_text(name):
            return prefix + quote(name, safe="")
    return _PAGES.get(table, "/")


def _is_text(name: str) -> bool:
    return name.encode("utf-8", "replace").decode() == name


def absolute(notice: Notice, bases: Bases) -> Notice:
    """A notice whose links can be followed from anywhere."""
    return replace(notice, alerts=tuple(_absolute(alert, bases) for alert in notice.alerts))


def _absolute(alert: Alert, bases: Bases) -> Alert:
    texts = dict(alert.annotations)
    for name, base in (
        ("page_url", bases.pages),
        ("notebook_url", bases.lab),
        ("runbook_url", bases.runbooks),
    ):
        link = texts.get(name, "")
        if not link or urlparse(link).scheme:
            continue
        if base:
            texts[name] = f"{base.rstrip('/')}/{link.lstrip('/')}"
        else:
            del texts[name]
    return replace(alert, annotations=texts)


class PolledFacts:
    """Those of one look."""

    def __init__(self, reached: Iterable[Reached]) -> None:
        self._reached = {one.emitter: one for one in reached}
        self._of_cluster: dict[str, list[Reached]] = {}
        for one in self._reached.values():
            self._of_cluster.setdefault(cluster_of(one.emitter), []).append(one)
        self._known: dict[tuple[str | None, str | None, str], str] = {}

    def said_of(self, labels: Mapping[str, str], figures: Mapping[str, Figure]) -> str:
        """What is said of an alert with these labels and figures; empty: it rests on none."""
        emitter = labels.get("emitter") or figures.get("emitter")
        place = labels.get("cluster"), labels.get("broker"), str(emitter or "")
        if place not in self._known:
            self._known[place] = self._said(*place)
        said, messages = self._known[place], figures.get("error_messages")
        if said and isinstance(messages, int) and messages > 0:
            return f"{said}, numbers of messages to ± {count(messages)}"
        return said

    def _said(self, cluster: str | None, broker: str | None, emitter: str) -> str:
        if emitter in self._reached:
            about = [self._reached[emitter]]
        else:
            about = [
                one
                for one in self._of_cluster.get(cluster or "", ())
                if broker is None or one.emitter.split("/")[1] == broker
            ]
        if not about or not all(is_observer(one.emitter) for one in about):
            return ""
        return polled(one.report_each_ms for one in about)
