"""Sentences about a group's state, its worst queue and how far behind it is.

Place in the walk: sums of a group, and its worst queue → gold group_state, column `reason`; how far
it is behind is said anew by pages and `tm` from the newest lag. Pure. Invariant: a lag that is
known of some queues only is said to be the least. Absent on purpose: the rules of states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from pipelines.base.wording import duration, plural, unknown
from pipelines.sentences.figures import (
    deleted_unread,
    messages,
    moment,
    of_all,
    queue_of,
    rate,
    says_neither,
    waiting,
    whole,
)
from pipelines.sentences.stalls import by_rule

NOTHING_KNOWN: Final = "Nothing is known of group {} on {}: {}."
"""Of group, broker and why."""
_SUMS: Final = (
    *("lag_messages", "lag_at_least_messages", "unfinished_messages"),
    *("queues", "queues_known", "queues_behind"),
)


@dataclass(frozen=True, slots=True)
class WorstQueue:
    """The queue whose state is its group's; None: not known."""

    topic: str
    queue_id: int
    lag: int | None
    open: int | None
    growth: int | None
    retained: int | None
    is_beyond: bool
    """Does its consume offset lie beyond its end?"""
    is_unnamed: bool = False
    """Does no member of its group name its topic any more?"""
    silent_ms: int | None = None
    """How long its first message waits, where its client says nothing of it."""


@dataclass(frozen=True, slots=True)
class CameBack:
    """Invisible times that ran out of a group that reads by POP."""

    expired: int
    since: datetime
    unknown_reason: str | None = None
    """Why nobody knows whether it acknowledges; None: it acknowledges none."""


def how_far(row: Mapping[str, Any], *, on: str = "") -> str:
    """`99 messages behind on 1 of 4 queues`; the least where the lag of a queue is unknown. `on`:
    that only queues of a topic, or one, are meant; of one it says it all.
    """
    queues, lag = row["queues"], row["lag_messages"]
    behind = f"behind{on}{',' * bool(on)}"
    if lag is None and row["lag_at_least_messages"] is None:
        return f"{messages(None)} {behind} on {plural(queues, 'queue')}"
    if lag is None:
        least = row["lag_at_least_messages"]
        known = f"on the {row['queues_known']:,} of {plural(queues, 'queue')} whose lag is known"
        if not least:
            return f"{messages(None)} behind{on}, 0 {known}"
        return f"at least {messages(least)} behind{on}, {known}"
    behind_on = row["queues_behind"] if lag else queues
    where = plural(queues, "queue") if behind_on == queues else of_all(behind_on, queues, "queue")
    unfinished = row["unfinished_messages"]
    is_ahead = unfinished is not None and unfinished < lag
    rest = f", {unfinished:,} of them unfinished" if is_ahead else ""
    if on and queues == 1:
        return f"{messages(lag)} behind{on}{rest}"
    return f"{messages(lag)} {behind} on {where}{rest}"


def how_far_each(summed: Mapping[str, pa.Array]) -> list[str]:
    """The same of many groups, most of which have the figures of another one."""
    rows = list(zip(*(summed[name].to_pylist() for name in _SUMS), strict=True))
    said = {row: how_far(dict(zip(_SUMS, row, strict=True))) for row in set(rows)}
    return [said[row] for row in rows]


def reasons(
    named: Sequence[tuple[str, str]],
    summed: Mapping[str, pa.Array],
    worst_queues: Mapping[int, WorstQueue],
    came_back: Mapping[int, CameBack],
) -> list[str]:
    """Why each of these groups, with its broker, is in its state. By their places: the worst queues
    of those that are not OK, and what came back to those that acknowledge none, as far as known.
    """
    far = how_far_each(summed)
    said = [well(group, how) for (group, _), how in zip(named, far, strict=True)]
    for place, queue in worst_queues.items():
        group, broker = named[place]
        said[place] = why_not_ok(summed, place, queue, group=group, broker=broker, far=far[place])
    for place, found in came_back.items():
        said[place] = f"{acknowledges_none(named[place][0], found)} {said[place]}"
    return said


def well(group: str, far: str) -> str:
    """Of a group of which nothing worse is to be said; `far`: how far it is behind."""
    return f"Group {group} is {far}."


def gone(group: str, broker: str) -> str:
    """Of a group of which nothing is left."""
    return whole(f"group {group} has no queue on {broker} any more")


def why_not_ok(
    summed: Mapping[str, pa.Array],
    place: int,
    queue: WorstQueue,
    *,
    group: str,
    broker: str,
    far: str,
) -> str:
    """Why a group is not OK; `place`: of the group in the sums, `far`: how far it is behind."""
    state = summed["state"][place].as_py()
    not_ok, queues = summed["queues_not_ok"][place].as_py(), summed["queues"][place].as_py()
    where, who = queue_of(queue.topic, queue.queue_id, broker), f"group {group}"
    if not_ok:
        rest = (
            f"{not_ok:,} of its {plural(queues, 'queue')} {'is' if not_ok == 1 else 'are'} not OK"
        )
        return whole(_standing(queue, state, who, where), rest if queues > 1 else "")
    behind = f"it is {far}"
    if state == "BROADCAST":
        return whole(f"{who} broadcasts: each client keeps its own offsets")
    if state == "CATCHING_UP":
        drain_ms = summed["drain_time_ms"][place].as_py()
        when = "" if drain_ms is None else f", done in about {duration(drain_ms)} at this rate"
        return whole(f"{who} catches up on {where}{when}", behind)
    if queue.is_unnamed and queue.lag is not None:
        unnamed = "no member subscribes to it any more"
        return whole(f"whether {who} has left {queue.topic} is not certain yet: {unnamed}", behind)
    if queue.silent_ms is not None and queue.lag is not None:
        waits = waiting(queue.lag, queue.silent_ms)
        silent = f"its client {says_neither(queue.lag)}"
        return whole(f"whether {who} is well on {where} is unknown: {waits}; {silent}", behind)
    if queue.open is not None:
        waits = f"{waiting(queue.lag)} for longer than is allowed"
        return whole(f"whether {who} gains on {where} is not certain yet: {waits}", behind)
    if queue.is_beyond:
        beyond = by_rule("DATA_LOST", who, where, is_beyond=True)
        return whole(beyond, behind)
    return whole(f"{who} has no offset on {where}", behind)


def acknowledges_none(group: str, found: CameBack) -> str:
    """A group that reads by POP takes messages, and its invisible times run out."""
    since, ran_out = moment(found.since), f"{plural(found.expired, 'invisible time')} ran out"
    if found.unknown_reason is not None:
        why = f"{ran_out} since {since}; {found.unknown_reason}"
        return whole(f"whether group {group} acknowledges what it takes is unknown: {why}")
    return whole(f"group {group} takes messages and acknowledges none since {since}: {ran_out}")


def _standing(queue: WorstQueue, state: str, who: str, where: str) -> str:
    """What is wrong with the queue, as its stalled window says it, and its figures."""
    growth = queue.growth or 0
    said = by_rule(state, who, where, falls=growth > 0, is_beyond=queue.is_beyond)
    if state != "SLOW":
        is_said = queue.lag is None or state == "NO_OFFSET"
        return said if is_said else f"{said}; {waiting(queue.lag)}"
    lag = "" if queue.lag is None else f"{messages(queue.lag)} behind"
    if growth > 0:
        lost = deleted_unread(queue.retained, growth)
        return f"{said} by {rate(growth)}: " + "; ".join(one for one in (lag, lost) if one)
    late = "for longer than is allowed"
    return f"{said}: {lag}, {late}" if lag else f"{said}: its messages wait {late}"


def lag_unknown(row: Mapping[str, Any]) -> str:
    """That the lag of one queue is unknown, and why."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    why = unknown(row["unknown_reason"])
    return whole(f"the lag of group {row['group']} on {where} is {why}")


def stands_nowhere(group: str, topic: str) -> str:
    """That a group has no stalled window on a topic."""
    return whole(f"group {group} stands still on no queue of {topic}")


def nothing_known(groups: Sequence[tuple[str, str]], why: str) -> list[str]:
    """Of groups, with their brokers, of which nothing is known."""
    return [NOTHING_KNOWN.format(*one, why) for one in groups]
