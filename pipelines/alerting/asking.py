"""What people ask of alerts, and what they say: lists, one alert whole, acks and silences.

Place in the walk: between the store and the commands, and the pages. Invariant: what is asked for
by the beginning of a fingerprint is one alert, or nothing. Absent on purpose: deciding.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.foundation.errors import ConfigError
from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.kept_silences import silences_of
from pipelines.alerting.matchers import MatcherFault, labels_of, matcher_of
from pipelines.alerting.silences import DAYS, Recurring, Silence, active, silenced_by
from pipelines.alerting.store import people, steps
from pipelines.alerting.store.database import Database
from pipelines.microseconds import moment_at
from pipelines.wording import clock, duration

STATES: Final = {state: rank for rank, state in enumerate(State)}
OPEN: Final = frozenset(State) - {State.RESOLVED}

Row = dict[str, Any]


def listed(database: Database, lake: str, *, now_us: int, all_of_them: bool = False) -> list[Row]:
    """The open alerts, firing ones first; with `all_of_them` the resolved ones too, as long as they
    are kept."""
    held = steps.load(database, lake)
    acks = {(one.fingerprint, one.active_at_us): one for one in people.acks_of(database, lake)}
    silences, _ = silences_of(people.silences_of(database, lake, ending_after_us=now_us))
    standing = active(silences, now_us)
    rows = []
    for alert in held.alerts:
        if alert.state not in OPEN and not all_of_them:
            continue
        ack = acks.get((alert.fingerprint, alert.active_at_us))
        silence = silenced_by(labels_of(alert), standing)
        row = msgspec.to_builtins(alert)
        row["acked_by"] = None if ack is None else ack.author
        row["silenced_by"] = None if silence is None else silence.silence_id
        rows.append(row)
    return sorted(rows, key=_urgent_first)


def _urgent_first(row: Row) -> tuple[bool, int, str]:
    fired_us = row["fired_at_us"]
    return row["state"] == State.PENDING, -(fired_us or row["active_at_us"]), row["fingerprint"]


def one_alert(database: Database, lake: str, beginning: str) -> Alert:
    """The alert whose fingerprint begins so; ConfigError for none, and for several."""
    found = [
        alert
        for alert in steps.load(database, lake).alerts
        if beginning and alert.fingerprint.startswith(beginning)
    ]
    if len(found) != 1:
        what = "none begins so" if not found else f"{len(found)} begin so, write more of it"
        raise ConfigError("fingerprint", beginning, f"one of `tidemark alerts list`: {what}")
    return found[0]


def in_words(row: Row) -> str:
    """An alert in a line: state, severity, since when, what."""
    since = clock(moment_at(row["fired_at_us"] or row["active_at_us"]), day=True)
    marks = [f"acked by {row['acked_by']}"] if row["acked_by"] else []
    marks += [f"silenced by {row['silenced_by']}"] if row["silenced_by"] else []
    told = row["annotations"].get("summary") or row["rule"]
    beside = f" ({', '.join(marks)})" if marks else ""
    return f"{row['fingerprint'][:8]} {row['state']:9} {row['severity']:8} {since}  {told}{beside}"


def new_silence(
    silence_id: str,
    matchers: list[str],
    *,
    begin_us: int,
    end_us: int,
    author: str,
    comment: str,
    recurring: Recurring | None = None,
) -> Silence:
    """A silence as somebody asks for it; ConfigError for what is none."""
    try:
        made = tuple(matcher_of(text) for text in matchers)
        return Silence(silence_id, made, begin_us, end_us, author, comment, recurring)
    except (MatcherFault, ValueError) as error:
        raise ConfigError("silence", ", ".join(matchers), str(error)) from error


def recurring_of(days: str, at: str, length_us: int, zone: str) -> Recurring | None:
    """When a silence comes back: days like `mon,tue`, or none for every day; a time like 22:00.
    None: neither is given."""
    if not days and not at:
        return None
    if not at:
        raise ConfigError("at", at, "given with --days: the time of day at which it begins")
    try:
        numbers = frozenset(DAYS.index(day) for day in days.lower().split(",") if day)
        hour, minute = (int(part) for part in at.split(":"))
        return Recurring(numbers, 60 * hour + minute, length_us, zone)
    except ValueError as error:
        allowed = f"days of {','.join(DAYS)} and a time like 22:00 ({error})"
        raise ConfigError("silence", f"{days} {at}", allowed) from error


def silence_in_words(silence: Silence, now_us: int) -> str:
    """A silence in a line."""
    left = duration(max(0, silence.end_us - now_us) / 1000)
    matchers = " ".join(map(str, silence.matchers))
    state = "active" if silence.is_active(now_us) else "waits"
    why = f"{silence.author}: {silence.comment}"
    return f"{silence.silence_id} {state:6} {left} left  {matchers}  {why}"
