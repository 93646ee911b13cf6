"""Links of an alert: the page at its moment, and the notebook of its kind.

Place in the walk: `life_cycle.with_texts` gives each alert its links, as paths; who sends an alert
out puts the addresses before them that people reach pages, lab and runbooks by (`absolute`). Stored
alerts thus stay right when those move.

Invariant: pure; any name makes a safe path. A link that a rule has given itself stays. Absent on
purpose: whether there is anything at that address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode, urlparse

from pipelines.alerting.alerts import Alert, Notice
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import moment_at, utc_text
from pipelines.reading.investigations import of_alert

MARGIN: Final = timedelta(minutes=5)
"""Shown before an alert began, and after it was seen last."""
SHOWN_MAX: Final = timedelta(hours=6)
"""Of an alert that has lasted for longer, its last hours."""
_PAGES: Final = {"dq_results": "/checks", "dq_failures": "/checks"}


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
