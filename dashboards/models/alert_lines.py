"""Prepares alerts from the alert board for display on pages.

Invariant: nothing here reads a store or a clock. Alerts of one cluster are those that name it, and
those that name none: a fault of the lake itself concerns every cluster. Absent on purpose: changing
anything. The pages ask nobody for a name, so acks and silences are commands to copy.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import polars as pl

from dashboards.formatting import plain, plural
from dashboards.url_state import Span, around, group_path, topic_path
from pipelines.base.time_units import micros, moment_at

if TYPE_CHECKING:
    from pipelines.alerting.alerts import Alert
    from pipelines.alerting.board import Board, Past
    from pipelines.alerting.rule_status import JudgedRule
    from pipelines.alerting.rules import Checked

QUIET: Final = "info"
"""The severity of what wakes nobody up: the alert that always fires has it."""
GRAVE: Final = ("critical", "error")
OPEN_ONES: Final = ("FIRING", "EVAL_ERROR", "NO_DATA", "WITHHELD", "PENDING")
NOT_JUDGED: Final = ("EVAL_ERROR", "NO_DATA", "WITHHELD")


@dataclass(frozen=True, slots=True)
class AlertSource:
    """Where pages learn of alerts."""

    look: Callable[[int], Board]
    """At a moment of the clock, µs."""
    rules: Callable[[], Checked]
    past: Callable[[datetime, datetime], Past]
    """What was over in a range, from the lake."""
    judged: Callable[[Collection[str]], Mapping[str, JudgedRule]]
    """How rules fared when they were judged last, by name."""
    database: str = ""
    """What a command needs beside the lake to find the same database."""


@dataclass(frozen=True, slots=True)
class RuleLine:
    """The open alerts of one rule."""

    rule: str
    severity: str
    firing: int
    pending: int
    not_judged: int


@dataclass(frozen=True, slots=True)
class AlertLane:
    """When alerts of the group fired, as far as it is known."""

    bars: pl.DataFrame
    """opened_at, closed_at (null: it fires), words."""
    unknown_since: datetime | None = None
    """The moment from which nobody watches."""
    unknown_until: datetime | None = None
    """Before this, alerts that are over are not kept."""


def of_cluster(alerts: Iterable[Alert], cluster: str) -> list[Alert]:
    """Alerts that are about a cluster, or about none; all of them without a name."""
    return [one for one in alerts if not cluster or one.labels.get("cluster", cluster) == cluster]


def is_open(alert: Alert) -> bool:
    """Is it not over?"""
    return alert.state.value in OPEN_ONES


def matching(alerts: Sequence[Alert], part: str) -> list[Alert]:
    """Those that hold a text in their name, labels, severity, owner, summary or fingerprint."""
    wanted = part.casefold()
    if not wanted:
        return list(alerts)
    return [one for one in alerts if wanted in _text_of(one)]


def _text_of(alert: Alert) -> str:
    shown = (
        *(alert.rule, alert.severity, alert.owner, alert.state.value, alert.fingerprint),
        *alert.labels.values(),
        alert.annotations.get("summary", ""),
    )
    return "\n".join(shown).casefold()


def rule_lines(alerts: Iterable[Alert]) -> list[RuleLine]:
    """How many open alerts each rule has, in the order in which their first ones come."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in alerts:
        counts.setdefault((one.rule, one.severity), Counter())[one.state.value] += 1
    return [
        RuleLine(
            rule,
            severity,
            states["FIRING"],
            states["PENDING"],
            sum(states[state] for state in NOT_JUDGED),
        )
        for (rule, severity), states in counts.items()
    ]


def resolved_within(alerts: Iterable[Alert], span: Span) -> list[Alert]:
    """Alerts that fired and were over, and whose time meets the range."""
    begin, end = micros(span.start), micros(span.end)
    return [
        one
        for one in alerts
        if one.fired_at_us is not None
        and one.resolved_at_us is not None
        and one.resolved_at_us >= begin
        and one.fired_at_us <= end
    ]


def with_past(board: Board, past: Past) -> list[Alert]:
    """What the store knows, and what only the lake does."""
    there = {(one.fingerprint, one.fired_at_us) for one in board.alerts}
    beside = [one for one in past.alerts if (one.fingerprint, one.fired_at_us) not in there]
    return [*board.alerts, *beside]


def known_from(board: Board, past: Past, now_us: int) -> datetime:
    """The moment from which it is known what was resolved."""
    kept = moment_at(now_us - board.over_kept_us)
    return kept if past.since is None else min(past.since, kept)


def heard_of(board: Board | None, cluster: str, now_us: int) -> dict[str, object]:
    """What the frame of every page says of alerts: a level, how many fire, the same as a sentence,
    and who keeps them up to date. What nobody knows is no number."""
    if board is None:
        return _unknown(NOT_WATCHED)
    process = board.process.sentence(now_us)
    if not board.process.is_believed:
        return _unknown(process)
    shown = [one for one in of_cluster(board.alerts, cluster) if is_open(one)]
    loud = [one for one in shown if one.state.value == "FIRING" and one.severity != QUIET]
    hindered = sum(one.state.value in NOT_JUDGED for one in shown)
    level = "healthy"
    if loud or hindered:
        is_grave = any(one.severity in GRAVE for one in loud)
        level = "degraded" if is_grave else "warning"
    quiet = sum(one.state.value == "FIRING" for one in shown) - len(loud)
    counted = f"{plural(len(loud), 'alert')} firing, and {quiet} of severity {QUIET}"
    if hindered:
        counted += f"; of {plural(hindered, 'alert')} nobody knows: the rule cannot be judged"
    sentence = f"{counted}; {process}"
    return {"level": level, "said": f"{len(loud):,}", "sentence": sentence, "process": process}


def _unknown(why: str) -> dict[str, object]:
    return {"level": "unknown", "said": "", "sentence": why, "process": why}


NOT_WATCHED: Final = "this dashboard was started without a database of alerts"


def place_of(alert: Alert, *, names_clusters: bool) -> str:
    """The page of what an alert is about, at the moment that it began to fire."""
    began_us = alert.fired_at_us if alert.fired_at_us is not None else alert.active_at_us
    cluster = alert.labels.get("cluster", "") if names_clusters else ""
    moment = around(moment_at(began_us), cluster=cluster)
    group, topic = alert.labels.get("group"), alert.labels.get("topic")
    if group:
        return group_path(group) + moment
    if topic:
        return topic_path(topic) + moment
    return ("/checks" if "expectation" in alert.labels else "/") + moment


def web_address(text: str) -> str | None:
    """A link that may be followed; None for a text that is none, or leads to a script."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    return text if parts.scheme in ("http", "https") and parts.netloc else None


def ack_command(alert: Alert, lake: str, source: AlertSource) -> str:
    """What to type to look after an alert."""
    words = ("tidemark", "alerts", "ack", alert.fingerprint, "--lake", lake)
    return shlex.join(words) + source.database


def silence_command(alert: Alert, lake: str, source: AlertSource) -> str | None:
    """What to type so that it notifies nobody for two hours; None when a label cannot be typed:
    a page shows no character that would act on the terminal it is pasted into."""
    labels = {"alertname": alert.rule, **alert.labels}
    if not all(value.isprintable() for value in labels.values()):
        return None
    matchers = [f'{name}="{_quoted(value)}"' for name, value in sorted(labels.items())]
    words = ("tidemark", "alerts", "silence", *matchers, "--for", "2h", "--comment", "why")
    return shlex.join((*words, "--lake", lake)) + source.database


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def lane_of(
    board: Board | None, past: Past, group: str, *, cluster: str, now_us: int
) -> AlertLane | None:
    """The times in which alerts of a group fired; None when nobody has ever watched."""
    if board is None or board.process.life.value == "never":
        return None
    about = [
        one
        for one in of_cluster(with_past(board, past), cluster)
        if one.labels.get("group") == group and one.fired_at_us is not None
    ]
    bars = pl.DataFrame(
        {
            "opened_at": [_moment(one.fired_at_us) for one in about],
            "closed_at": [_moment(one.resolved_at_us) for one in about],
            "words": [_bar_words(one) for one in about],
        },
        schema={
            "opened_at": pl.Datetime("us", "UTC"),
            "closed_at": pl.Datetime("us", "UTC"),
            "words": pl.String,
        },
    )
    process = board.process
    unwatched = None if process.is_believed else _moment(process.data_us)
    return AlertLane(bars, unwatched, known_from(board, past, now_us))


def _moment(moment_us: int | None) -> datetime | None:
    return None if moment_us is None else moment_at(moment_us)


def _bar_words(alert: Alert) -> str:
    topic, queue = alert.labels.get("topic"), alert.labels.get("queue_id", "")
    about = f", {plain(topic)} {plain(queue) if queue else ''}".rstrip() if topic else ""
    return f"{plain(alert.rule)} ({plain(alert.severity)}){about}"
