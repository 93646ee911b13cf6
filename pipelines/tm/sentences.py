"""Answers in whole sentences: pure functions over their rows.

Invariant: no sentence reassures about something that was not judged: where nothing was judged it
says so, and unknowns are counted beside what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import polars as pl

from pipelines.at_risk import at_risk
from pipelines.came_again import came_again
from pipelines.emitters import skew_sentences, watched_text
from pipelines.moment import Moment
from pipelines.new_lives import new_lives
from pipelines.revisions import Revision
from pipelines.rollbacks import in_words
from pipelines.settings import SILENCE_US
from pipelines.tm.asking import Asked
from pipelines.trust import WITHHELD, Doubts, Withheld
from pipelines.wording import cause_text, clock, count, duration, plural, spoken

WELL: Final = ("OK", "BROADCAST")
NAMED_MAX: Final = 5
"""Names in a sentence; further ones are counted."""
NO_ALERTS: Final = "No alert was ever told in this lake: `tidemark alerts run` watches it."
"""Of a lake that perhaps nobody watches: that none is open would reassure falsely."""


def judged(
    judged_to: datetime | None, moment: Moment | None = None, now: datetime | None = None
) -> str:
    """To when the answer's data had been judged, who has been silent for longer, and, of an answer
    about `now`, that it is none.
    """
    if judged_to is None:
        return "Nothing has been judged yet."
    said = _judged(judged_to, moment)
    age = timedelta(0) if now is None else now - judged_to
    allowed_us = SILENCE_US if moment is None else moment.silence_us
    if age <= timedelta(microseconds=allowed_us):
        return said
    return (
        f"{said} Nothing has been judged since, for {duration(_ms(age))}: what is now is unknown."
    )


def _ms(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)


def _judged(judged_to: datetime, moment: Moment | None) -> str:
    said = f"Judged to {clock(judged_to, day=True)} UTC"
    silent = moment.silent if moment is not None else ()
    if moment is not None and silent and len(silent) == len(moment.reached):
        return f"{said}; no emitter has reported anything since."
    each = [f"{one.emitter} only to {clock(one.judged_to, day=True)}" for one in silent]
    if moment is not None and moment.ahead:
        each += [moment.unknown[one.emitter] for one in moment.ahead]
    watched = watched_text(moment) if moment is not None else None
    end = "." if watched is None else f". It is {watched}."
    return f"{said}; {_listed(each)}{end}" if each else f"{said}{end}"


def known_from(moment: datetime) -> str:
    """That a range begins before anything that the lake tells of."""
    return f"Nothing is known from before {clock(moment, day=True)} UTC."


def revised(revision: Revision, *, shown: int) -> str:
    """That a moment was told otherwise before, or is now; by whom, and how to ask for the other.

    shown: the cycle whose answer this is.
    """
    if revision.known_at is None:
        return (
            f"What was told of it first is not kept any more: cycles are kept from "
            f"{revision.kept_from} on."
        )
    verb = "has" if len(revision.emitters) == 1 else "have"
    late = f"{_listed(revision.emitters)} {verb} told late"
    if shown == revision.known_at:
        return f"Revised since, at cycle {revision.cycle}: {late}."
    return (
        f"Revised at cycle {revision.cycle}: {late}; as_of={revision.known_at} is what was known "
        "before."
    )


def beside(say: Callable[[Doubts], str], doubts: Doubts, *, anyway: str = "") -> str:
    """What can be said of all that may be believed, and what is withheld, and why; `anyway`: what
    holds even when all of it is withheld."""
    held = doubts.whole
    if held is None:
        return f"{say(doubts)} {_named(doubts)}" if doubts.named else say(doubts)
    return withheld(held, about=anyway)


def withheld(held: Withheld, *, about: str = "") -> str:
    """That a verdict cannot be believed, and why; `about`: what can be said all the same."""
    whose = f" (about group {held.group})" if held.group is not None else ""
    said = str(held)
    rows = f" {about}" if about else " The rows are as they were computed."
    return f"{said[0].upper()}{said[1:]}{whose}.{rows}"


def found_later(doubts: Doubts) -> str:
    """What checks that were run after an answer was given say of it; nothing without any."""
    if doubts.whole is not None:
        whose = f" (about group {doubts.whole.group})" if doubts.whole.group is not None else ""
        return f"Found by checks that were run since: {doubts.whole.why}{whose}."
    return f"Found by checks that were run since: {_each(doubts)}." if doubts.named else ""


def _named(doubts: Doubts) -> str:
    """How many are withheld by name, and each with its own reason."""
    about = doubts.about
    return f"{about[0].upper()}{about[1:]} withheld: {_each(doubts)}."


def _each(doubts: Doubts) -> str:
    said = [f"{whose}, because {one.why}" for whose, one in doubts.each[:NAMED_MAX]]
    more = len(doubts.named) - len(said)
    return "; ".join([*said, f"and {more} more"] if more else said)


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
    said = f"{_groups(bad)} of {total} {_is(_groups(bad))} not OK"
    held = bad.filter(pl.col("state") == WITHHELD)
    judged_bad = bad.filter(pl.col("state") != WITHHELD)
    if unknown.height:
        said += f" ({_groups(unknown)} unknown)"
    if held.height:
        said += f" ({_groups(held)} withheld)"
    if judged_bad.is_empty():
        return f"{said}.{rest}"
    worst = judged_bad.row(0, named=True)
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
    paused = rows.filter(pl.col("rule") == "PAUSED").height
    said = plural(rows.height - paused, "stalled window")
    if paused:
        said = (
            f"{plural(paused, 'pause')} and {said}"
            if paused < rows.height
            else plural(paused, "pause")
        )
    said += asked.words
    if still.is_empty():
        return f"{said}, none still open."
    return f"{said}, {still.height} still open: {stall_now(still.row(-1, named=True))}."


def of_causes(asked: Asked, rows: pl.DataFrame, states: pl.DataFrame) -> str:
    """Why groups are behind, cause by cause; of one of which no cause is told, its state.

    `states`: those of the moment with their lag. The causes are of a tick before it, and say so.
    """
    if rows.is_empty():
        return _no_causes(asked, states)
    said: list[str] = []
    for key, causes in rows.group_by("group", "broker", maintain_order=True):
        if len(said) == NAMED_MAX:
            more = rows.select("group", "broker").n_unique() - NAMED_MAX
            said.append(f"And {plural(more, 'more group')}.")
            break
        now = states.filter((pl.col("group") == key[0]) & (pl.col("broker") == key[1]))
        lag = now["lag_messages"][0] if now.height else None
        behind = "by how much is unknown" if lag is None else f"{plural(lag, 'message')} behind"
        seen = clock(cast("datetime", causes["observed_at"].max()))
        said.append(f"{key[0]} on {key[1]}, {behind}; seen at {seen}: {because(causes)}.")
    rest = _uncaused(states.join(rows, on=["group", "broker"], how="anti"))
    return " ".join([*said, rest] if rest else said)


def _no_causes(asked: Asked, states: pl.DataFrame) -> str:
    if states.is_empty():
        return f"Nothing{asked.words} has been judged, so no cause is known."
    told = _uncaused(states)
    if told:
        return told
    if asked.group is None:
        return f"No group is told to be behind; {plural(_groups(states), 'group')} judged OK."
    well = [_in_state(row) for row in states.iter_rows(named=True)]
    return f"{asked.group} is not told to be behind: {_listed(well)}."


def _uncaused(states: pl.DataFrame) -> str:
    """Of groups that are not well, of which no cause is told: their states; nothing when all of
    them are well.
    """
    bad = [_in_state(row) for row in states.iter_rows(named=True) if row["state"] not in WELL]
    return f"No cause is told, and yet {_listed(bad)}." if bad else ""


def _in_state(row: dict[str, Any]) -> str:
    return f"{row['group']} on {row['broker']} is {row['state']} ({row['reason']})"


def because(causes: pl.DataFrame) -> str:
    """All causes of one group, in words."""
    return "; ".join(cause_text(row) for row in causes.iter_rows(named=True))


def stall_now(row: dict[str, Any]) -> str:
    """One open window, as it is at the moment."""
    kind = "" if row["kind"] in ("UNDETERMINED", row["rule"]) else f" ({spoken(row['kind'])})"
    if row["unknown_reason"] is not None:
        return f"{row['group']} on {row['topic']} queue {row['queue_id']} is {row['evidence']}"
    waiting = row["lag_messages"]
    wait = "waits" if waiting == 1 else "wait"
    waits = (
        "how many wait is unknown" if waiting is None else f"{plural(waiting, 'message')} {wait}"
    )
    return (
        f"{row['group']} on {row['topic']} queue {row['queue_id']} has been {spoken(row['rule'])}"
        f"{kind} for {duration(row['stood_ms'])}, {waits}"
    )


def of_duplicates(asked: Asked, rows: pl.DataFrame, together: pl.DataFrame) -> str:
    """How many windows, how many came true, and how many messages that was; before it, brokers that
    went back on many groups `together`.
    """
    if rows.is_empty():
        return f"No window of duplicate risk{asked.words}{_range(asked)}."
    confirmed = rows.filter(pl.col("outcome") == "CONFIRMED")
    again = came_again(rows.iter_rows(named=True))
    still = rows.filter(pl.col("state") == "OPEN")
    said = f"{plural(rows.height, 'window')} of duplicate risk{asked.words}, "
    said += f"{confirmed.height} confirmed: {again.text} delivered twice"
    if again.messages is None:
        said = f"{plural(rows.height, 'window')} of duplicate risk{asked.words}; "
        said += f"whether any message was delivered twice is {again.number}"
    if still.height:
        messages = plural(at_risk(still), "message")
        said += f"; {messages} at risk in {plural(still.height, 'window')} still open"
    return f"{said}." if together.is_empty() else f"{of_rollbacks(together)} {said}."


def of_rollbacks(rows: pl.DataFrame) -> str:
    """Every broker that went back, the newest first."""
    if rows.is_empty():
        return "No broker went back on several groups at once."
    told = [in_words(row) for row in rows.reverse().iter_rows(named=True)]
    more = len(told) - NAMED_MAX
    listed = ". ".join(told[:NAMED_MAX])
    return f"{listed}. {more} more before." if more > 0 else f"{listed}."


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


def of_replaced(asked: Asked, rows: pl.DataFrame) -> str:
    """How many, and each in its own words, the newest first."""
    if rows.is_empty():
        return f"No loss of a pulled message{asked.words}{_range(asked)}."
    newest = rows.reverse()["evidence"].to_list()
    more = len(newest) - NAMED_MAX
    listed = ". ".join(newest[:NAMED_MAX])
    return f"{listed}. {more} more before." if more > 0 else f"{listed}."


def of_passed_over(asked: Asked, rows: pl.DataFrame, *, lives: pl.DataFrame) -> str:
    """Which topics were made again, and what was passed over of each, the newest first; of a group,
    those whose new life it was seen in."""
    if asked.group is not None:
        lives = lives.join(rows, on=["cluster", "topic"], how="semi")
    told = new_lives(lives.iter_rows(named=True), rows.iter_rows(named=True))
    if not told:
        return f"Nothing{asked.words} in a new life of a topic{_range(asked)}."
    newest = [one.text for one in reversed(told)]
    more = len(newest) - NAMED_MAX
    listed = ". ".join(text[0].upper() + text[1:] for text in newest[:NAMED_MAX])
    return f"{listed}. {more} more before." if more > 0 else f"{listed}."


def of_emitters(rows: pl.DataFrame) -> str:
    """How many emitters there are, of which nothing is known and why, and whose clock is off."""
    unknown = rows.filter(pl.col("state") == "UNKNOWN")
    said = f"{plural(rows.height, 'emitter')}, {unknown.height or 'none'} of them unknown"
    each = [f"{row['emitter']} ({row['reason']})" for row in unknown.to_dicts()]
    if each:
        said += f": {_listed(each)}"
    skewed = skew_sentences(rows)
    return f"{said}; {_listed(skewed)}." if skewed else f"{said}."


def of_checks(rows: pl.DataFrame, *, by_then: bool = False) -> str:
    """How many checks fail, how many had nothing new to check, and when the newest run was; of the
    runs that were kept `by_then`, or of all."""
    if rows.is_empty() and by_then:
        return "No check had run by then."
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


def of_alerts(asked: Asked, alerts: pl.DataFrame, rule: str | None = None) -> str:
    """Which alerts are open after the changes that were seen, the longest first."""
    about = asked.words + (f" of rule {rule}" if rule is not None else "")
    if alerts.is_empty():
        return f"No alert{about} is open."
    waits = alerts.filter(pl.col("state") == "PENDING")
    fires = alerts.filter(pl.col("state") != "PENDING").sort("fired_at", "fingerprint")
    said = f"{plural(fires.height, 'alert')}{about} {_is(fires.height)} open"
    names = [f"{row['rule']} since {clock(row['fired_at'])}" for row in fires.to_dicts()]
    if names:
        said += f": {_listed(names)}"
    muted = fires.filter(pl.col("muted").is_not_null()).height
    acked = fires.filter(pl.col("acked_by").is_not_null()).height
    beside = [f"{number} {what}" for number, what in ((muted, "muted"), (acked, "acked")) if number]
    if beside:
        said += f" ({', '.join(beside)})"
    return f"{said}; {waits.height} {_is(waits.height)} pending." if waits.height else f"{said}."


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
    """What a window is, an open stall as it is now (`stood_until`), and what the evidence consists
    of."""
    counts = rows["source"].value_counts(sort=True).iter_rows()
    told = ", ".join(f"{number} of {source}" for source, number in counts)
    what = window.get("rule") or window.get("cause") or "OWNED"
    end = "is open" if window["closed_at"] is None else f"ended {clock(window['closed_at'])}"
    evidence = f": {window['evidence']}" if window.get("evidence") else ""
    if window["closed_at"] is None and name == "stalled_windows":  # Revisions keep old figures.
        told_last = "" if window["unknown_reason"] is not None else f"; told last{evidence}"
        evidence = f": {stall_now(window)}{told_last}"
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
