"""Answers in whole sentences: pure functions over their rows.

Invariant: no sentence reassures about something that was not judged: where nothing was judged it
says so, and unknowns are counted beside what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from pipelines.moment import Moment
from pipelines.tm.asking import Asked
from pipelines.wording import clock, count, duration, plural, spoken

WELL: Final = ("OK", "BROADCAST")
NAMED_MAX: Final = 5
"""Names in a sentence; further ones are counted."""


def judged(judged_to: datetime | None, moment: Moment | None = None) -> str:
    """To when the answer's data had been judged, and who has been silent for longer."""
    if judged_to is None:
        return "Nothing has been judged yet."
    said = f"Judged to {clock(judged_to, day=True)} UTC"
    silent = moment.silent if moment is not None else ()
    each = [f"{one.emitter} only to {clock(one.judged_to, day=True)}" for one in silent]
    return f"{said}; {_listed(each)}." if each else f"{said}."


def of_groups(rows: pl.DataFrame, unjudged: Sequence[str] = ()) -> str:
    """How many groups are not OK, and the worst; groups with lag and without a state are told."""
    rest = f" {_unjudged(unjudged)}" if unjudged else ""
    if rows.is_empty():
        return f"No group has been judged.{rest}"
    bad = rows.filter(~pl.col("state").is_in(WELL))
    total = plural(_groups(rows), "group")
    if bad.is_empty():
        return f"None of {total} is in trouble.{rest}"
    unknown = bad.filter(pl.col("state") == "UNKNOWN")
    worst = bad.row(0, named=True)
    said = f"{_groups(bad)} of {total} {_is(_groups(bad))} not OK"
    if unknown.height:
        said += f" ({_groups(unknown)} unknown)"
    behind = "by how much is unknown"
    if worst["lag_messages"] is not None:
        messages = plural(worst["lag_messages"], "message")
        behind = f"{messages} and {duration(worst['time_lag_ms'])} behind"
    return (
        f"{said}; the furthest behind is {worst['group']}, {spoken(worst['state'])}, {behind} "
        f"(first seen as: {worst['reason']}).{rest}"
    )


def of_state(rows: pl.DataFrame, state: str, unjudged: Sequence[str] = ()) -> str:
    """How many groups are in one state, and which."""
    rest = f" {_unjudged(unjudged)}" if unjudged else ""
    found = rows.filter(pl.col("state") == state)
    if rows.is_empty():
        return f"No group has been judged.{rest}"
    total = plural(_groups(rows), "group")
    if found.is_empty():
        counts = rows["state"].value_counts(sort=True).iter_rows()
        others = ", ".join(f"{number} {name}" for name, number in counts)
        return f"None of {total} is {state}; they are: {others}.{rest}"
    names = _listed(found["group"].unique(maintain_order=True).to_list())
    return f"{_groups(found)} of {total} {_is(_groups(found))} {state}: {names}.{rest}"


def _unjudged(names: Sequence[str]) -> str:
    number = len(names)
    have = "has lag and has" if number == 1 else "have lag and have"
    return f"{plural(number, 'group')} {have} not been judged: {_listed(names)}."


def of_lag(asked: Asked, newest: pl.DataFrame, moment: Moment) -> str:
    """How far a group is behind at the end of the range."""
    if newest.is_empty():
        return (
            f"Unknown: no queue{asked.words} was reported in the look-back before "
            f"{clock(moment.judged_to)}."
        )
    known = newest.filter(pl.col("lag_messages").is_not_null())
    unknown = newest.height - known.height
    if known.is_empty():
        return f"The lag{asked.words} is unknown on all of {plural(newest.height, 'queue')}."
    behind = int(known["lag_messages"].sum())
    late = cast("int | None", newest["time_lag_ms"].max())
    where = asked.words.replace(f" of {asked.group}", "", 1)
    said = (
        f"{asked.group} is {plural(behind, 'message')} behind{where}, on {known.height} of "
        f"{plural(newest.height, 'queue')}"
    )
    if late is None:
        said += "; for how long is unknown"
    elif behind:
        said += f"; the oldest has waited for {duration(late)}"
    return f"{said}; the lag of {plural(unknown, 'queue')} is unknown." if unknown else f"{said}."


def of_stalls(asked: Asked, rows: pl.DataFrame) -> str:
    """How many windows, how many still open, and what the newest of these is now."""
    if rows.is_empty():
        return f"No stalled window{asked.words}{_range(asked)}."
    still = rows.filter(pl.col("closed_at").is_null())
    said = f"{plural(rows.height, 'stalled window')}{asked.words}"
    if still.is_empty():
        return f"{said}, none still open."
    return f"{said}, {still.height} still open: {stall_now(still.row(-1, named=True))}."


def stall_now(row: dict[str, Any]) -> str:
    """One open window, as it is at the moment."""
    kind = "" if row["kind"] == "UNDETERMINED" else f" ({spoken(row['kind'])})"
    waiting = row["lag_messages"]
    wait = "waits" if waiting == 1 else "wait"
    waits = (
        "how many wait is unknown" if waiting is None else f"{plural(waiting, 'message')} {wait}"
    )
    return (
        f"{row['group']} on {row['topic']} queue {row['queue_id']} has been {spoken(row['rule'])}"
        f"{kind} for {duration(row['stood_ms'])}, {waits}"
    )


def of_duplicates(asked: Asked, rows: pl.DataFrame) -> str:
    """How many windows, how many came true, and how many messages that was."""
    if rows.is_empty():
        return f"No window of duplicate risk{asked.words}{_range(asked)}."
    confirmed = rows.filter(pl.col("outcome") == "CONFIRMED")
    again = int(rows["redelivered_messages"].sum())
    at_risk = rows.filter(pl.col("state") == "OPEN")
    said = f"{plural(rows.height, 'window')} of duplicate risk{asked.words}, "
    said += f"{confirmed.height} confirmed: {plural(again, 'message')} delivered twice"
    if at_risk.height:
        messages = plural(int(at_risk["at_risk_messages"].sum()), "message")
        said += f"; {messages} at risk in {plural(at_risk.height, 'window')} still open"
    return f"{said}."


def of_ownership(asked: Asked, rows: pl.DataFrame) -> str:
    """How many queues have how many readers now."""
    held = rows.filter(pl.col("state") == "OPEN")
    if held.is_empty():
        return f"No queue{asked.words} has a reader."
    clients = held["client_id"].n_unique()
    read = "is" if held.height == 1 else "are"
    return (
        f"{plural(held.height, 'queue')}{asked.words} {read} read by {plural(clients, 'client')}."
    )


def of_rebalances(asked: Asked, rows: pl.DataFrame) -> str:
    """How many changes, by kind."""
    if rows.is_empty():
        return f"No change of members{asked.words}{_range(asked)}."
    kinds = rows["kind"].value_counts(sort=True).iter_rows()
    told = ", ".join(f"{number} {spoken(kind)}" for kind, number in kinds)
    return f"{plural(rows.height, 'change')} of members{asked.words}: {told}."


def of_dead_letters(asked: Asked, rows: pl.DataFrame) -> str:
    """How many, of which topics."""
    if rows.is_empty():
        return f"No dead letter{asked.words}{_range(asked)}."
    topics = rows["origin_topic"].fill_null("an unknown topic").unique(maintain_order=True)
    return f"{plural(rows.height, 'dead letter')}{asked.words}, from {_listed(topics.to_list())}."


def of_checks(rows: pl.DataFrame) -> str:
    """How many checks failed in the newest run, how many had nothing to check, and when it was."""
    if rows.is_empty():
        return "No check has run: `tidemark check` runs them."
    idle = rows.filter(pl.col("checked_rows") == 0).height
    failed = rows.filter(~pl.col("success") & (pl.col("checked_rows") > 0))
    started = cast("datetime | None", rows["started_at"].max())
    said = f"{failed.height} of {plural(rows.height - idle, 'check')} failed"
    if failed.height:
        said += f": {_listed(failed['expectation'].to_list())}"
    if idle:
        said += f"; {idle} had nothing to check"
    return f"{said}; run of {clock(started, day=True)} UTC."


def of_message(message_id: str, rows: pl.DataFrame) -> str:
    """What became of a message, as far as the lake was told."""
    if rows.is_empty():
        return (
            f"The lake knows nothing of message {message_id!r}: it tells of messages that failed, "
            "were at risk of a second delivery or held up a queue; or the id is another one "
            "(`tidemark admin` asks the cluster where a message is stored)."
        )
    last = rows.row(-1, named=True)
    twice = rows.filter(pl.col("what").str.contains("again", literal=True)).height
    said = f"{plural(rows.height, 'fact')} about message {message_id}; the newest: {last['what']}"
    return f"{said}; handed out again {plural(twice, 'time')}." if twice else f"{said}."


def of_window(name: str, window: dict[str, Any], rows: pl.DataFrame) -> str:
    """What a window is, and what the evidence consists of."""
    counts = rows["source"].value_counts(sort=True).iter_rows()
    told = ", ".join(f"{number} of {source}" for source, number in counts)
    what = window.get("rule") or window.get("cause") or "OWNED"
    end = "is open" if window["closed_at"] is None else f"ended {clock(window['closed_at'])}"
    evidence = f": {window['evidence']}" if window.get("evidence") else ""
    kind = spoken(name).removesuffix("s").capitalize()
    return (
        f"{kind} {window['window_id']} of {window['group']} on {window['topic']} queue "
        f"{window['queue_id']}, {spoken(what)}, began {clock(window['opened_at'], day=True)} and "
        f"{end}{evidence}. Evidence: {told}."
    )


def lag_text(row: dict[str, Any]) -> str:
    """One row of lag in words."""
    if row["lag_messages"] is None:
        return f"lag {count(None, reason=row['unknown_reason'])}"
    return (
        f"committed {row['committed']}, pulled {row['pulled']}, end {row['max_offset']}: "
        f"{plural(row['lag_messages'], 'message')} behind, {duration(row['time_lag_ms'])}"
    )


def _range(asked: Asked) -> str:
    since, until = asked.since, asked.until
    if since is None and until is None:
        return " was ever told"
    begin = f" since {clock(since, day=True)}" if since is not None else ""
    end = f" until {clock(until, day=True)}" if until is not None else ""
    return f" was told{begin}{end}"


def _groups(rows: pl.DataFrame) -> int:
    return int(rows["group"].n_unique())


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    shown = ", ".join(names[:NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
