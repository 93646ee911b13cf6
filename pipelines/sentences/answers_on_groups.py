"""Sentences that answer questions about group states, lag, causes, stalls and redeliveries.

Place in the walk: rows of an answer of `tm` → its verdict. Pure. Invariant: no sentence reassures
about something that was not judged: unknowns are counted beside what is known. Absent on purpose:
events (`events`), and how far an answer goes (`answers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from pipelines.base.settings import LOOK_BACK_US
from pipelines.base.wording import REASONS, bound_of, duration, or_more, plural, spoken
from pipelines.sentences.answers import (
    NAMED_MAX,
    Question,
    at,
    groups_in,
    is_or_are,
    listed,
    range_of,
)
from pipelines.sentences.causes import shown
from pipelines.sentences.checks import WITHHELD
from pipelines.sentences.duplicates import came_again
from pipelines.sentences.figures import moment, whole
from pipelines.sentences.groups import how_far
from pipelines.sentences.pop_groups import stand_whole
from pipelines.sentences.recent_changes import of_rollbacks
from pipelines.sentences.stalls import stands_now

WELL: Final = ("OK", "BROADCAST")
NONE_JUDGED: Final = "No group has been judged."
Row = Mapping[str, Any]


def of_groups(rows: pl.DataFrame, unjudged: Sequence[str] = ()) -> str:
    """How many groups are not OK, and the worst. `unjudged`: groups with lag, without a state."""
    if rows.is_empty():
        return whole(NONE_JUDGED, _unjudged(unjudged))
    bad = rows.filter(~pl.col("state").is_in(WELL))
    total = plural(groups_in(rows), "group")
    if bad.is_empty():
        are = is_or_are(groups_in(rows))
        return whole(f"no group is in trouble: {total} {are} judged", _unjudged(unjudged))
    said = f"{groups_in(bad)} of {total} {is_or_are(groups_in(bad))} not OK"
    for state in ("UNKNOWN", WITHHELD):
        of_state = bad.filter(pl.col("state") == state)
        if of_state.height:
            said += f" ({groups_in(of_state)} {spoken(state)})"
    judged = bad.filter(pl.col("state") != WITHHELD)
    if judged.is_empty():
        return whole(said, _unjudged(unjudged))
    worst = judged.row(0, named=True)
    if worst[bound_of("lag_messages")] is None:
        return whole(said, worst["reason"], _unjudged(unjudged))
    messages = _messages(worst["lag_messages"], worst[bound_of("lag_messages")])
    waited = or_more(worst["time_lag_ms"], worst[bound_of("time_lag_ms")], duration)
    state = f"{worst['group']}, {spoken(worst['state'])}, {messages} and {waited} behind"
    return whole(
        f"{said}; the furthest behind is {state}",
        f"this was seen first: {worst['reason']}",
        _unjudged(unjudged),
    )


def of_state(rows: pl.DataFrame, state: str, unjudged: Sequence[str] = ()) -> str:
    """How many groups are in one state, and which."""
    found = rows.filter(pl.col("state") == state)
    if rows.is_empty():
        return whole(NONE_JUDGED, _unjudged(unjudged))
    total = plural(groups_in(rows), "group")
    if found.is_empty():
        counts = rows["state"].value_counts(sort=True).iter_rows()
        others = ", ".join(f"{number} {is_or_are(number)} {name}" for name, number in counts)
        return whole(f"no group is {state}; of {total} {others}", _unjudged(unjudged))
    names = listed(found["group"].unique(maintain_order=True).to_list())
    many = groups_in(found)
    return whole(f"{many} of {total} {is_or_are(many)} {state}: {names}", _unjudged(unjudged))


def _messages(lag: int | None, at_least: int) -> str:
    """`1 message`, `at least 12 messages`."""
    return plural(lag, "message") if lag is not None else f"at least {plural(at_least, 'message')}"


def _unjudged(names: Sequence[str]) -> str:
    if not names:
        return ""
    have = "has lag and has" if len(names) == 1 else "have lag and have"
    return f"{plural(len(names), 'group')} {have} not been judged: {listed(names)}"


def of_lag(asked: Question, sums: Row | None, judged_to: datetime | None) -> str:
    """How far a group is behind at the end of the range; `sums`: of its queues, None of none."""
    if sums is None:
        before = f"the {duration(LOOK_BACK_US // 1000)} before {at(judged_to)}"
        return whole(f"the lag{asked.words} is unknown: no report of it came in {before}")
    on = asked.words.replace(f" of {asked.group}", "", 1)
    if not sums["queues_known"]:
        queues = "" if sums["queues"] == 1 else f" on all of {plural(sums['queues'], 'queue')}"
        why = REASONS.get(sums["unknown_reason"], "")
        return whole(f"the lag{asked.words} is unknown{queues}" + (f": {why}" if why else ""))
    said = f"group {asked.group} is {how_far({**sums, 'unfinished_messages': None}, on=on)}"
    if sums[bound_of("time_lag_ms")] is None:
        return whole(f"{said}; for how long is unknown")
    late = or_more(sums["time_lag_ms"], sums[bound_of("time_lag_ms")], duration)
    return whole(f"{said}; the oldest has waited for {late}" if sums["queues_behind"] else said)


def of_stalls(asked: Question, rows: pl.DataFrame, states: pl.DataFrame) -> str:
    """How many windows, how many still open, and what the newest of these is now; then groups that
    stand without a window. `states`: those at the end of the range.
    """
    said = stand_whole(states, rows.filter(pl.col("closed_at").is_null()))
    left = len(said) - NAMED_MAX
    do = "does" if left == 1 else "do"
    more = [f"{plural(left, 'more group')} {do} likewise."] if left > 0 else []
    return " ".join([_of_windows(asked, rows), *said[:NAMED_MAX], *more])


def _of_windows(asked: Question, rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return f"No stalled window{asked.words}{range_of(asked)}."
    still = rows.filter(pl.col("closed_at").is_null())
    paused = rows.filter(pl.col("rule") == "PAUSED").height
    each = ((paused, "pause"), (rows.height - paused, "stalled window"))
    said = " and ".join(plural(number, noun) for number, noun in each if number)
    said = f"{said}{asked.words} {is_or_are(rows.height)} known"
    if still.is_empty():
        return f"{said}, none of them open." if rows.height > 1 else f"{said}; it is over."
    opened = f"{still.height} {is_or_are(still.height)} still open"
    return f"{said}; {opened}. {stands_now(still.row(-1, named=True))}"


def of_causes(asked: Question, rows: pl.DataFrame, states: pl.DataFrame) -> str:
    """Why groups are behind, cause by cause; of one of which no cause is known, its state.

    `states`: those of the moment with their lag. The causes are of a tick before it, and say so.
    """
    if rows.is_empty():
        return _no_causes(asked, states)
    said: list[str] = []
    for (group, broker), causes in rows.group_by("group", "broker", maintain_order=True):
        if len(said) == NAMED_MAX:
            more = rows.select("group", "broker").n_unique() - NAMED_MAX
            said.append(f"And {plural(more, 'more group')}.")
            break
        now = states.filter((pl.col("group") == group) & (pl.col("broker") == broker))
        behind, how = f"behind on {broker}", "; by how much is unknown"
        if now.height and now[bound_of("lag_messages")][0] is not None:
            lag = now["lag_messages"][0], now[bound_of("lag_messages")][0]
            behind, how = f"{_messages(*lag)} behind on {broker}", ""
        seen = f"what follows was seen at {moment(cast('datetime', causes['observed_at'].max()))}"
        each = [shown(row) for row in causes.iter_rows(named=True)]
        said.append(whole(f"group {group} is {behind}{how}; {seen}", *each))
    return " ".join([*said, *_uncaused(states.join(rows, on=["group", "broker"], how="anti"))])


def _no_causes(asked: Question, states: pl.DataFrame) -> str:
    if states.is_empty():
        return f"Nothing{asked.words} has been judged, so no cause is known."
    bad = _uncaused(states)
    if bad:
        return " ".join(bad)
    if asked.group is None:
        number = groups_in(states)
        return f"No group is behind: {plural(number, 'group')} {is_or_are(number)} judged OK."
    return whole(f"group {asked.group} is well", *states["reason"].to_list())


def _uncaused(states: pl.DataFrame) -> list[str]:
    """Of groups that are not well, of which no cause is known: the reasons of their states."""
    bad = states.filter(~pl.col("state").is_in(WELL))
    named = bad.head(NAMED_MAX).select("group", "broker", "reason").iter_rows()
    said = [
        whole(f"no cause is known of group {group} on {broker}", reason)
        for group, broker, reason in named
    ]
    more = bad.height - len(said)
    return [*said, *([f"And {plural(more, 'more group')}."] if more else [])]


def of_duplicates(
    asked: Question, rows: pl.DataFrame, together: pl.DataFrame, *, at_risk: int
) -> str:
    """How many windows, how many came true, and with how many deliveries; before it, brokers that
    went back on many groups `together`. `at_risk`: messages of the windows that are open.
    """
    if rows.is_empty():
        return f"No window of duplicate risk{asked.words}{range_of(asked)}."
    confirmed = rows.filter(pl.col("outcome") == "CONFIRMED").height
    again = came_again(rows.iter_rows(named=True))
    number = rows.height
    said = f"{plural(number, 'window')} of duplicate risk{asked.words} {is_or_are(number)} known"
    if again.deliveries is None:
        said += f"; whether any message was delivered twice is {again.number}"
    elif not again.deliveries:
        said += "; none is confirmed"
    else:
        said += f"; {confirmed} {is_or_are(confirmed)} confirmed, with {again.text}"
    still = rows.filter(pl.col("state") == "OPEN").height
    if still:
        risked = f"{plural(at_risk, 'message')} {is_or_are(at_risk)} at risk"
        said += f"; {risked} in {plural(still, 'window')} still open"
    return f"{said}." if together.is_empty() else f"{of_rollbacks(together)} {said}."
