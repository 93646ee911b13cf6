"""Sums up answers of `tm` about groups, and says to when they are judged; pure.

Invariant: no sentence reassures about something that was not judged: where nothing was judged it
says so, and unknowns are counted beside what is known. Absent on purpose: sentences about windows,
causes, losses and events (`pipelines/sentences`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import polars as pl

from pipelines.base.bounds import bound_of
from pipelines.base.settings import SILENCE_US
from pipelines.base.wording import clock, duration, or_more, plural, spoken
from pipelines.reading.at_risk import at_risk
from pipelines.reading.emitters import skew_sentences, watched_text
from pipelines.reading.known import behind as summed_up
from pipelines.reading.moment import Moment
from pipelines.reading.revisions import Revision
from pipelines.reading.rollbacks import in_words
from pipelines.reading.trust import WITHHELD, Doubts, Withheld
from pipelines.sentences.causes import shown
from pipelines.sentences.duplicate_counts import came_again
from pipelines.sentences.figures import moment as moment_of
from pipelines.sentences.figures import whole
from pipelines.sentences.groups import how_far
from pipelines.sentences.questions import NAMED_MAX, at, groups_in, is_or_are, listed, range_of
from pipelines.sentences.stalls import stands_now
from pipelines.tm.arguments import Asked

WELL: Final = ("OK", "BROADCAST")


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
    each = [f"{one.emitter} only to {moment_of(one.judged_to, day=True)}" for one in silent]
    if moment is not None and moment.ahead:
        each += [moment.unknown[one.emitter] for one in moment.ahead]
    watched = watched_text(moment) if moment is not None else None
    end = "." if watched is None else f". It is {watched}."
    return f"{said}; {listed(each)}{end}" if each else f"{said}{end}"


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
    late = f"{listed(revision.emitters)} {verb} told late"
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
    total = plural(groups_in(rows), "group")
    if bad.is_empty():
        return f"None of {total} is in trouble.{rest}"
    unknown = bad.filter(pl.col("state") == "UNKNOWN")
    said = f"{groups_in(bad)} of {total} {is_or_are(groups_in(bad))} not OK"
    held = bad.filter(pl.col("state") == WITHHELD)
    judged_bad = bad.filter(pl.col("state") != WITHHELD)
    if unknown.height:
        said += f" ({groups_in(unknown)} unknown)"
    if held.height:
        said += f" ({groups_in(held)} withheld)"
    if judged_bad.is_empty():
        return f"{said}.{rest}"
    worst = judged_bad.row(0, named=True)
    behind = "by how much is unknown"
    if worst[bound_of("lag_messages")] is not None:
        messages = _messages(worst["lag_messages"], worst[bound_of("lag_messages")])
        waited = or_more(worst["time_lag_ms"], worst[bound_of("time_lag_ms")], duration)
        behind = f"{messages} and {waited} behind"
    return (
        f"{said}; the furthest behind is {worst['group']}, {spoken(worst['state'])}, {behind}. "
        f"First seen as: {worst['reason'].rstrip('.')}.{rest}"
    )


def of_state(rows: pl.DataFrame, state: str, unjudged: Sequence[str] = ()) -> str:
    """How many groups are in one state, and which."""
    rest = f" {_unjudged(unjudged)}" if unjudged else ""
    found = rows.filter(pl.col("state") == state)
    if rows.is_empty():
        return f"No group has been judged.{rest}"
    total = plural(groups_in(rows), "group")
    if found.is_empty():
        counts = rows["state"].value_counts(sort=True).iter_rows()
        others = ", ".join(f"{number} {name}" for name, number in counts)
        return f"None of {total} is {state}; they are: {others}.{rest}"
    names = listed(found["group"].unique(maintain_order=True).to_list())
    return f"{groups_in(found)} of {total} {is_or_are(groups_in(found))} {state}: {names}.{rest}"


def _messages(lag: int | None, at_least: int) -> str:
    """`1 message`, `at least 12 messages`."""
    return plural(lag, "message") if lag is not None else f"at least {plural(at_least, 'message')}"


def _unjudged(names: Sequence[str]) -> str:
    number = len(names)
    have = "has lag and has" if number == 1 else "have lag and have"
    return f"{plural(number, 'group')} {have} not been judged: {listed(names)}."


def of_lag(asked: Asked, newest: pl.DataFrame, moment: Moment) -> str:
    """How far a group is behind at the end of the range."""
    if newest.is_empty():
        return (
            f"Unknown: no queue{asked.words} was reported in the look-back before "
            f"{at(moment.judged_to)}."
        )
    (sums,) = newest.select(*summed_up(), pl.len().alias("queues")).to_dicts()
    if not sums["queues_known"]:
        return f"The lag{asked.words} is unknown on all of {plural(newest.height, 'queue')}."
    on = asked.words.replace(f" of {asked.group}", "", 1)
    said = f"{asked.group} is {how_far({**sums, 'unfinished_messages': None}, on=on)}"
    late = or_more(sums["time_lag_ms"], sums[bound_of("time_lag_ms")], duration)
    if sums[bound_of("time_lag_ms")] is None:
        return f"{said}; for how long is unknown."
    return f"{said}; the oldest has waited for {late}." if sums["queues_behind"] else f"{said}."


def of_stalls(asked: Asked, rows: pl.DataFrame) -> str:
    """How many windows, how many still open, and what the newest of these is now."""
    if rows.is_empty():
        return f"No stalled window{asked.words}{range_of(asked)}."
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
    return f"{said}, {still.height} still open. {stands_now(still.row(-1, named=True))}"


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
        figures = (None, None)
        if now.height:
            figures = (now["lag_messages"][0], now[bound_of("lag_messages")][0])
        behind = "by how much is unknown"
        if figures[1] is not None:
            behind = f"{_messages(*figures)} behind"
        seen = moment_of(cast("datetime", causes["observed_at"].max()))
        said.append(f"{key[0]} on {key[1]}, {behind}; seen at {seen}: {because(causes)}")
    rest = _uncaused(states.join(rows, on=["group", "broker"], how="anti"))
    return " ".join([*said, rest] if rest else said)


def _no_causes(asked: Asked, states: pl.DataFrame) -> str:
    if states.is_empty():
        return f"Nothing{asked.words} has been judged, so no cause is known."
    told = _uncaused(states)
    if told:
        return told
    if asked.group is None:
        number = groups_in(states)
        return f"No group is behind: {plural(number, 'group')} {is_or_are(number)} judged OK."
    well = [_in_state(row) for row in states.iter_rows(named=True)]
    return f"{asked.group} is not behind: {_one_by_one(well)}"


def _uncaused(states: pl.DataFrame) -> str:
    """Of groups that are not well, of which no cause is told: their states; nothing when all of
    them are well.
    """
    bad = [_in_state(row) for row in states.iter_rows(named=True) if row["state"] not in WELL]
    return f"No cause is known, and yet {_one_by_one(bad)}" if bad else ""


def _in_state(row: dict[str, Any]) -> str:
    return f"{row['group']} on {row['broker']} is {row['state']}: {row['reason']}"


def _one_by_one(said: Sequence[str]) -> str:
    """Sentences one after the other; further ones are counted."""
    more = len(said) - NAMED_MAX
    shown = [*said[:NAMED_MAX], *([f"And {more:,} more"] if more > 0 else [])]
    return " ".join(f"{one.rstrip('.')}." for one in shown)


def because(causes: pl.DataFrame) -> str:
    """All causes of one group, in sentences."""
    return whole(*(shown(row) for row in causes.iter_rows(named=True)))


def of_duplicates(asked: Asked, rows: pl.DataFrame, together: pl.DataFrame) -> str:
    """How many windows, how many came true, and how many messages that was; before it, brokers that
    went back on many groups `together`.
    """
    if rows.is_empty():
        return f"No window of duplicate risk{asked.words}{range_of(asked)}."
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


def of_emitters(rows: pl.DataFrame) -> str:
    """How many emitters there are, of which nothing is known and why, and whose clock is off."""
    unknown = rows.filter(pl.col("state") == "UNKNOWN")
    said = f"{plural(rows.height, 'emitter')}, {unknown.height or 'none'} of them unknown"
    each = [f"{row['emitter']} ({row['reason']})" for row in unknown.to_dicts()]
    if each:
        said += f": {listed(each)}"
    skewed = skew_sentences(rows)
    return f"{said}; {listed(skewed)}." if skewed else f"{said}."
