"""A duplicate-risk window in one sentence: what put messages at risk, what was seen, how it ended.

Place in the walk: the column `evidence` of gold duplicate_risk_windows, shown beside the figures.
Invariant: a sentence says nothing that the row's other columns do not. Absent on purpose: deciding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipelines.marts.sentences import messages

OF_ONE_MESSAGE: Final = ("SEND_BACK", "SEND_RETRY")
"""Bases whose windows are about one message, opened and closed at once."""

_ENDS: Final = {
    "TOPIC_GONE": "; the topic was deleted",
    "QUEUES_REMOVED": "; nobody reads the queue any more",
    "GROUP_GONE": "; the group was deleted",
    "SNAPSHOT": "; the queue is not there any more",
}
Revision = Mapping[str, Any]


def evidence(revision: Revision) -> str:
    """The sentence about a revision."""
    parts = (_opened, _seen, _beyond, _by_two, _ended)
    return "".join(part(revision) for part in parts)


def _opened(row: Revision) -> str:
    """What put messages at risk, by basis."""
    client = _client(row["client_id"])
    match row["basis"]:
        case "DEPARTURE":
            return _departure(row, client)
        case "RESTART":
            return _restart(row)
        case "OFFSET_FALL":
            return _offset_fall(row)
        case "OFFSET_ANSWER":
            return (
                f"{_client(row['next_client_id'])} was told to begin at {row['from_offset']} when "
                f"{client} had pulled up to {row['to_offset']}"
            )
        case "EXPOSURE":
            return f"commits stand still: a crash of {client} now would repeat {_span(row)}"
        case "SEND_BACK":
            return f"message {row['message_id'] or '?'} failed and was delivered again"
        case "SEND_RETRY":
            return (
                f"message {row['message_id'] or '?'} was sent again by its producer and stored "
                f"twice: the second copy, at offset {row['from_offset']}, was delivered too"
            )
        case _:
            return f"pulls went back below what {client} had pulled"


def _client(name: str | None) -> str:
    return "an unknown client" if name is None else name


def _span(row: Revision) -> str:
    return f"[{row['from_offset']}, {row['to_offset']})"


def _departure(row: Revision, client: str) -> str:
    verbs = {
        "CONSUMER_CRASH": "was lost with",
        "DOUBLE_OWNER": "and another member read the queue in turn with",
    }
    verb = verbs.get(row["cause"], "left the queue with")
    count = messages(row["to_offset"] - row["from_offset"])
    return f"{client} {verb} {count} pulled and not committed, {_span(row)}"


def _restart(row: Revision) -> str:
    begin, end = row["from_offset"], row["to_offset"]
    if row["cause"] == "REPLAY_AFTER_TRUNCATION":
        return f"the log lost its tail, and with it {_span(row)} that the group had pulled"
    is_death = row["cause"] == "BROKER_CRASH"
    what = "the broker died" if is_death else "the broker's offsets file was damaged"
    if begin == end:
        return f"{what} when the group was at {end}; who reads on there repeats nothing"
    if row.get("all_from_offset") is not None:  # It has gone on since.
        return f"{what}; who asks where to begin is told {begin}, and the group is at {end} by now"
    return f"{what} when the group was at {end}; who asks where to begin is told {begin}"


def _offset_fall(row: Revision) -> str:
    cause = (
        "an operator reset the commit offset"
        if row["cause"] == "RESET"
        else "the commit offset fell for no known reason"
    )
    return f"{cause} from {row['to_offset']} to {row['from_offset']}"


def _seen(row: Revision) -> str:
    """Which messages were delivered again, and to whom; nothing when none were."""
    count = row["redelivered"]
    if count <= 0 or row["basis"] in OF_ONE_MESSAGE:
        return ""
    verb = "was" if count == 1 else "were"
    least = "" if tells_redeliveries(row) else "at least "
    return (
        f"; {least}{messages(count)} of [{row['redelivered_from']}, {row['redelivered_to']}) "
        f"{verb} delivered again to {_client(row['next_client_id'])}"
    )


def _beyond(row: Revision) -> str:
    """Why more came again than an event put at risk; nothing when no more did.

    A prediction speaks of the instant of the event. What readers pulled between it and the pull
    that went back comes again too.
    """
    is_predicted = row["basis"] in ("DEPARTURE", "RESTART", "OFFSET_FALL", "OFFSET_ANSWER")
    end = row["redelivered_to"]
    if not is_predicted or end is None or end <= row["to_offset"]:
        return ""
    return f"; those from {row['to_offset']} on had been pulled after the event"


def _by_two(row: Revision) -> str:
    """That two members read the queue; nothing when one does, or when it is over."""
    begin = row.get("all_from_offset")
    if begin is None or row["state"] == "CLOSED":
        return ""
    return f"; two members may read the queue: what one pulls from {begin} on, both do"


def _ended(row: Revision) -> str:
    """How the window ended; nothing while it is open."""
    if row["told_by"] == "TAKEN_OVER":
        return "; a later event took over"
    if row["told_by"] in _ENDS:
        return _ENDS[row["told_by"]]
    if row["state"] != "CLOSED" or row["redelivered"]:
        return ""
    if tells_redeliveries(row):
        return "; nothing came again"
    return "; whether anything came again is unknown: an observer sees only what members hold"


def tells_redeliveries(row: Revision) -> bool:
    """Is it known how many messages came again? Of one message it is. Else its emitter is a
    broker, `cluster/broker/NUMBER`: an observer's ends in a name, and what a pull brought again
    cannot be asked for.
    """
    *_, last = row["emitter"].split("/")
    return row["basis"] in OF_ONE_MESSAGE or last.isdecimal() or "/" not in row["emitter"]
