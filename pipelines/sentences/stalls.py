"""Sentences about an unhealthy queue: what is wrong, since when, and what to do.

Place in the walk: rows of gold stalled_windows → their column `evidence`, pages, notebooks and
alerts. `headline` says what is wrong, and stays true while the window is open; `figures` are those
of one moment. Pure. Invariant: a page, an alert and a notebook say the same headline of a window.
Absent on purpose: the rules (`pipelines/marts/judging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipelines.base.wording import duration, plural, spoken
from pipelines.sentences.figures import (
    behind,
    client,
    deleted_unread,
    moment,
    queue_of,
    rate,
    since,
    waiting,
    whole,
)

HEADLINE_MAX: Final = 200
"""Characters, of names of usual length."""
Row = Mapping[str, Any]

ADVICE: Final[Mapping[str, str]] = {
    "FROZEN_HEAD": "see where its listener stands",
    "BLOCKED_ORDERLY": "see why its listener does not finish",
    "DEAD_CONSUMER": "start its consumers",
    "DEAD_QUEUE": "see why its reader does not pull, or restart it",
    "PAUSED": "resume it, unless it is paused on purpose",
    "STALLED": "see its client's log and threads",
    "STOPPED": "see its client's log and threads",
    "SLOW": "add consumers, or see what its listeners wait for",
    "REWOUND": "see who set the offset",
    "DATA_LOST": "set the offset, and see which messages are missing",
    "NO_OFFSET": "see its client's log and threads, or set an offset",
}
"""What to do, by kind, else by rule."""
_STANDING: Final = ("STALLED", "STOPPED")
"""Rules of a queue of which nothing moves."""
_UNREAD: Final = ("DEAD_CONSUMER", "DEAD_QUEUE", "PAUSED")
"""Kinds of a queue that nobody reads, whether or not it has just moved."""
_WHETHER: Final = "Whether "
_SILENT: Final = "its client does not say what it holds"


def headline(row: Row) -> str:
    """What is wrong, where and since when, as one sentence without its full stop."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    group = f"group {row['group']}"
    if moves_again(row):
        return f"{group} moves again on {where}, where it was {spoken(row['rule'])}"
    match row["kind"]:
        case "FROZEN_HEAD":
            return f"{group} is stuck on {where}: {_head(row)}"
        case "BLOCKED_ORDERLY":
            return f"{group} is blocked on {where}: {_head(row)}, and holds the queue's order lock"
        case "DEAD_CONSUMER":
            return f"nobody consumes {where} for {group}: it has no member{_last_pull(row)}"
        case "DEAD_QUEUE":
            return f"nobody pulls {where} for {group}, which has members{_last_pull(row)}"
        case "PAUSED":
            idle = f"{client(row['client_id'])} has asked for nothing{since(row['stands_since'])}"
            return f"{by_rule('PAUSED', group, where)}: {idle}"
    return _by_rule(row, group, where)


def moves_again(row: Row) -> bool:
    """Has what stood moved, and is not well yet? Of a row of gold its headline says so."""
    is_read = row["rule"] in _STANDING and row["kind"] not in _UNREAD
    return is_read and row.get("stands") is False


def advice(row: Row) -> str:
    """What to do about it."""
    if moves_again(row):
        return "see whether it goes on"
    if row["rule"] == "DATA_LOST" and not _is_beyond_end(row):
        return "add consumers, or keep messages for longer"
    return ADVICE.get(row["kind"]) or ADVICE.get(row["rule"], "")


def by_rule(
    rule: str,
    group: str,
    where: str,
    *,
    falls: bool = False,
    is_beyond: bool = False,
    is_silent: bool = False,
    offset: int | None = None,
) -> str:
    """What a rule says of a group and a queue; `offset`: where the group went back to."""
    match rule:
        case "STALLED":
            return f"{group} stands on {where}" + f": {_SILENT}" * is_silent
        case "STOPPED":
            return f"{group} reports no offset of {where} any more"
        case "SLOW":
            return f"{group} {'falls behind' if falls else 'is late'} on {where}"
        case "REWOUND":
            return f"{group} went back on {where}" + ("" if offset is None else f" to {offset}")
        case "DATA_LOST":
            if is_beyond:
                return f"{group} has an offset on {where} that lies beyond the end of the queue"
            return f"{group} loses messages of {where}: they are deleted before it reads them"
        case "PAUSED":
            return f"{group} is paused on {where}"
    return f"{group} has committed no offset on {where}, which keeps messages"


def _by_rule(row: Row, group: str, where: str) -> str:
    return by_rule(
        *(row["rule"], group, where),
        falls=(row["growth_per_hour"] or 0) > 0,
        is_beyond=_is_beyond_end(row),
        is_silent=bool(row.get("is_silent")),
        offset=row["committed_to"],
    )


def _is_beyond_end(row: Row) -> bool:
    offset, end = row["committed_to"], row["max_offset_to"]
    return offset is not None and end is not None and offset > end


def _head(row: Row) -> str:
    name, offset = row["head_message_id"], row["head_offset"]
    what = (
        f"message {name}"
        if name is not None
        else "a message"
        if offset is None
        else f"the message at offset {offset}"
    )
    if row["client_id"] is None:
        return f"{what} is not finished"
    who = client(row["client_id"])
    if row["head_since"] is None:
        return f"{who} does not finish {what}"
    return f"{what} has been in a listener of {who}{since(row['head_since'])}"


def _last_pull(row: Row) -> str:
    if row["client_id"] is None:
        return ""
    at = row["stands_since"]
    when = "" if at is None else f" at {moment(at)}"
    return f"; the last pull was by {client(row['client_id'])}{when}"


def evidence(row: Row) -> str:
    """The headline, the figures that fired the rule, and what to do: of an open window."""
    return whole(headline(row), _figures(row), advice(row))


def stands_now(row: Row) -> str:
    """An open window of gold as it is at a moment (`stood_ms`, `lag_messages`): its verdict, as an
    alert about it has it, and figures.
    """
    said = verdict(row)
    if row["unknown_reason"] is not None:
        is_said = said.startswith(_WHETHER)
        return said if is_said else whole(said, "whether that is still so is unknown")
    stood = f"it has stood for {duration(row['stood_ms'])}"
    return whole(said, f"{stood}; {waiting(row['lag_messages'])}")


def verdict(row: Row) -> str:
    """What is wrong, as one whole sentence. Lakes of earlier versions have no headline."""
    return str(row.get("headline") or whole(headline(row)))


def over(row: Row, *, catches_up: bool) -> str:
    """That a window has ended, and where the group is."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    how = "catches up" if catches_up else "is well again"
    offset = row["committed_to"]
    at = "" if offset is None else f"at offset {offset}, "
    far = f"it is {at}{behind(row['lag_messages'])}"
    return whole(f"group {row['group']} {how} on {where}", far)


UNKNOWN_NOW: Final = "Nothing is known of it any more: {}. Before: {}"
"""Of why, and the evidence of the window."""
TAKEN_OUT: Final = "Its broker was taken out. Before: {}"
FOLLOWS: Final = "Another node of its broker leads. Before: {}"
"""Of the evidence of the window."""


def gone(row: Row) -> str:
    """That the queue is no longer one of those that the group reads."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    return whole(
        f"group {row['group']} does not read {where} any more: it left the topic, its offsets "
        "there were deleted, or the queue is gone"
    )


def unknown(row: Row, why: str) -> str:
    """That nothing is known of an open window, and what it was."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    return whole(
        f"{_WHETHER}group {row['group']} has moved on {where} is unknown: {why}",
        f"it was {spoken(row['rule'])} before",
    )


def _figures(row: Row) -> str:
    """What the rule rests on; the moments and spans of `row` are those of the evaluation."""
    span = duration(row["patience_us"] // 1000)
    offset = row["committed_to"]
    waits = waiting(row["lag_messages"], row["waited_ms"])
    if moves_again(row):
        return f"{waits}{_at(offset)}"
    match row["rule"]:
        case "STALLED" if row["passed"] is not None:
            age, usual = duration(row["head_age_us"] // 1000), duration(row["usual_us"] // 1000)
            return (
                f"it has been there for {age} while {plural(row['passed'], 'message')} behind it "
                f"were finished; listener calls hardly ever take longer than {usual}; {waits}"
                f"{_at(offset)}"
            )
        case "STALLED" if (row["is_told"] and _is_ahead(row)) or _is_by_pulls(row):
            verb = "finished" if row["is_told"] else "pulled"
            return (
                f"nothing beyond offset {row['reached']} was {verb} for {span}, and "
                f"{waiting(_beyond(row))} there{_at(offset)}"
            )
        case "STALLED":
            at = "no offset was committed" if offset is None else f"offset {offset} has not moved"
            return f"{at} for {span}{_usual(row)}{_pulls(row)}; {waits}"
        case "STOPPED":
            last = "none is known" if offset is None else f"the last was {offset}"
            return f"no offset was reported for {span}, {last}{_usual(row)}{_pulls(row)}; {waits}"
        case "SLOW":
            return _slow(row)
        case "REWOUND":
            before = "is unknown" if row["high"] is None else f"was {row['high']}"
            return f"the offset before {before}; {waits}"
        case "DATA_LOST":
            kept = f"[{row['min_offset']}, {row['max_offset_to']})"
            return f"its offset is {offset}, and the queue keeps {kept}{_gone(row)}"
        case "PAUSED":
            return f"it holds nothing of the queue; {waits}"
    kept = f"[{row['min_offset']}, {row['max_offset_to']})"
    return f"no offset was committed for {span}; whether any of messages {kept} waits is unknown"


def _gone(row: Row) -> str:
    """How many messages it has not read lie before what is kept; those of before it went on are
    rows of losses.
    """
    if row["committed_to"] is None or row["committed_to"] >= row["min_offset"]:
        return "" if _is_beyond_end(row) else "; `tm.lost` counts the messages that are gone unread"
    messages = row["min_offset"] - row["committed_to"]
    return f"; {plural(messages, 'message')} {'is' if messages == 1 else 'are'} gone unread"


def _at(offset: int | None) -> str:
    return "" if offset is None else f"; its offset is {offset}"


def _pulls(row: Row) -> str:
    begin, end = row["pulled_from"], row["pulled_to"]
    if begin is None or end is None or begin == end:
        return ""
    return f", while pulls went from {begin} to {end}"


def _is_ahead(row: Row) -> bool:
    """Has the client finished more than it has reported?"""
    reached, committed = row["reached"], row["committed_to"]
    return reached is not None and (committed is None or reached > committed)


def _is_by_pulls(row: Row) -> bool:
    """Do messages wait behind what it pulled, which counts as finished?"""
    return row["committed_to"] is not None and _is_ahead(row) and _beyond(row) > 0


def _beyond(row: Row) -> int:
    """Messages from the offset that is reached to the end."""
    return int(row["max_offset_to"] - row["reached"])


def _usual(row: Row) -> str:
    """On what the length of the stand rests, where the client says nothing."""
    usual_ms = row["usual_report_ms"]
    return "" if usual_ms is None else f" (usually it is reported each {usual_ms // 1000} s)"


def _slow(row: Row) -> str:
    growth, waits = row["growth"], waiting(row["open"], row["waited_ms"])
    if growth is not None and growth > 0:
        lost = deleted_unread(row["retained"], growth)
        return f"{waits}; their number grows by {rate(growth)}; {lost}"
    if growth == 0:
        return f"{waits}; the group neither falls behind nor gains"
    if row["open_before"] is None or row["open"] is None or row["open"] <= row["open_before"]:
        return f"{waits}; it is not certain yet whether the group gains"
    reached = "" if row["reached"] is None else f"messages are finished up to {row['reached']}; "
    return f"{reached}what waits only grew: {waits}"
