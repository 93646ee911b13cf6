"""Sentences about double consumption: its risk, cause, redeliveries and outcome.

Place in the walk: rows of gold duplicate_risk_windows → their column `evidence`, and `came_again`,
one figure of several windows, wherever a person reads it. A broker reports each pull that brings
messages again; what an observer from outside saw is the least.

Invariant: a sentence says nothing that the row's other columns do not; nothing that is unknown
counts as 0; deliveries are counted, and a message that comes again nine times is nine of them.
Absent on purpose: deciding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipelines.base.wording import at_least, plural, unknown
from pipelines.lake.schemas import QUEUE
from pipelines.sentences.figures import client as named
from pipelines.sentences.figures import clock, messages, queue_of, whole

OF_ONE_MESSAGE: Final = ("SEND_BACK", "SEND_RETRY", "INVISIBLE_TIME_EXPIRED")
"""Bases whose windows are about one message, opened and closed at once."""

ENDS: Final = {
    "TAKEN_OVER": "a later event took over",
    "TOPIC_GONE": "the topic was deleted",
    "QUEUES_REMOVED": "nobody reads the queue any more",
    "GROUP_GONE": "the group was deleted",
    "SNAPSHOT": "the queue is not there any more",
}
ADVICE: Final[Mapping[str, str]] = {
    "DOUBLE_OWNER": "see whether its members allocate queues alike",
    "EXPOSURE": "see why the head of the queue is not finished",
    "INVISIBLE_TIME_EXPIRED": "see why its listener is slower than its invisible time",
    "OFFSET_STORE_LOST": "see why the offsets file was lost or damaged",
    "RESET": "see who reset it",
    "REWIND": "see who set the offset, or whether a broker came back with old offsets",
    "SEND_BACK": "see why its listener fails",
    "SEND_RETRY": "see why the producer had no answer",
}
"""What to do, by basis, else by cause; of the others it is to take a message twice."""
Revision = Mapping[str, Any]
REPEATED: Final = "repeated delivery"
OBSERVED: Final = "OBSERVED"
"""`redelivered_unknown_reason` of a broker that is watched from outside."""


def evidence(row: Revision) -> str:
    """The sentences about a revision."""
    return whole(_opened(row), _seen(row), _beyond(row), _by_two(row), _ended(row), advice(row))


def advice(row: Revision) -> str:
    """What to do about it; nothing of a window in which nothing came again."""
    is_at_risk = row["state"] == "OPEN" and row["from_offset"] < row["to_offset"]
    if not is_at_risk and not row["redelivered"] and row["basis"] not in OF_ONE_MESSAGE:
        return ""
    basis = "" if row["state"] == "CLOSED" and row["basis"] == "EXPOSURE" else row["basis"]
    found = ADVICE.get(basis) or ADVICE.get(row["cause"])
    return found or "see whether its listeners take a message twice without harm"


def _opened(row: Revision) -> str:
    """Who risks what, where, since when, and why."""
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    group, when = f"group {row['group']}", clock(row["opened_us"])
    if row["basis"] in OF_ONE_MESSAGE:
        what = "a message" if row["message_id"] is None else f"message {row['message_id']}"
        return f"{group} got {what} of {where} again at {when}: {_of_one(row)}"
    if row["basis"] == "REDELIVERY":
        client = named(row["client_id"])
        return (
            f"{group} got messages of {where} again since {when}: pulls went back below what "
            f"{client} had pulled"
        )
    risks = "risked" if row["state"] == "CLOSED" else "risks"
    count = row["to_offset"] - row["from_offset"]
    if not count:
        return f"{group} {risks} no second delivery of {where} since {when}: {_why(row)}"
    return (
        f"{group} {risks} a second delivery of {messages(count)} of {where}, {_span(row)}, since "
        f"{when}: {_why(row)}"
    )


def _span(row: Revision) -> str:
    return f"[{row['from_offset']}, {row['to_offset']})"


def _of_one(row: Revision) -> str:
    match row["basis"]:
        case "SEND_BACK":
            return "it had failed"
        case "INVISIBLE_TIME_EXPIRED":
            return "it was not acknowledged within its invisible time"
    return (
        "its producer sent it again, and the second copy, at offset "
        f"{row['from_offset']}, was delivered too"
    )


def _why(row: Revision) -> str:
    """What put messages at risk, by basis."""
    client = named(row["client_id"])
    match row["basis"]:
        case "DEPARTURE":
            return _departure(row, client)
        case "RESTART":
            return _restart(row)
        case "OFFSET_FALL" if row["cause"] == "RESET":
            return f"an operator reset the commit offset from {_fall(row)}"
        case "OFFSET_FALL":
            return f"the commit offset fell from {_fall(row)} for no known reason"
        case "OFFSET_ANSWER":
            return (
                f"{named(row['next_client_id'])} was given {row['from_offset']} to begin at when "
                f"{client} had pulled up to {row['to_offset']}"
            )
    if row["state"] == "CLOSED":
        return f"commits stood still, and a crash of {client} would have repeated {_them(row)}"
    return f"commits stand still, and a crash of {client} would repeat {_them(row)}"


def _fall(row: Revision) -> str:
    return f"{row['to_offset']} to {row['from_offset']}"


def _them(row: Revision) -> str:
    count = row["to_offset"] - row["from_offset"]
    return {0: "nothing", 1: "it"}.get(count, "them")


def _departure(row: Revision, client: str) -> str:
    if row["cause"] == "DOUBLE_OWNER":
        return f"{client} and another member read the queue in turn"
    verb = "was lost with" if row["cause"] == "CONSUMER_CRASH" else "left the queue with"
    return f"{client} {verb} {_them(row)} pulled and not committed"


def _restart(row: Revision) -> str:
    begin, end = row["from_offset"], row["to_offset"]
    if row["cause"] == "REPLAY_AFTER_TRUNCATION":
        return f"the log lost its tail, and with it {_span(row)} that the group had pulled"
    is_death = row["cause"] == "BROKER_CRASH"
    what = "the broker died" if is_death else "its offsets file was lost"
    if begin == end:
        return f"{what} when the group was at {end}, and who reads on there repeats nothing"
    if row.get("all_from_offset") is not None:  # It has gone on since.
        return f"{what}, readers are given {begin}, and the group is at {end} by now"
    return f"{what} when the group was at {end}, and readers are given {begin}"


def _seen(row: Revision) -> str:
    """Which messages were delivered again, and to whom; nothing when none were."""
    count = row["redelivered"]
    if count <= 0 or row["basis"] in OF_ONE_MESSAGE:
        return ""
    least = "" if counts_redeliveries(row) else "at least "
    return (
        f"{least}{plural(count, REPEATED)} of [{row['redelivered_from']}, {row['redelivered_to']}) "
        f"went to {named(row['next_client_id'])}"
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
    return f"those from {row['to_offset']} on had been pulled after the event"


def _by_two(row: Revision) -> str:
    """That two members read the queue; nothing when one does, or when it is over."""
    begin = row.get("all_from_offset")
    if begin is None or row["state"] == "CLOSED":
        return ""
    return f"two members may read the queue: what one pulls from {begin} on, both do"


def _ended(row: Revision) -> str:
    """How the window ended; nothing while it is open."""
    if row["told_by"] in ENDS:
        return ENDS[row["told_by"]]
    if row["state"] != "CLOSED" or row["redelivered"]:
        return ""
    if counts_redeliveries(row):
        return "nothing came again"
    return "whether anything came again is unknown: an observer sees only what members hold"


def counts_redeliveries(row: Revision) -> bool:
    """Is it known how many messages came again? Of one message it is. Else its emitter is a
    broker, `cluster/broker/NUMBER`: an observer's ends in a name, and what a pull brought again
    cannot be asked for.
    """
    *_, last = row["emitter"].split("/")
    return row["basis"] in OF_ONE_MESSAGE or last.isdecimal() or "/" not in row["emitter"]


@dataclass(frozen=True, slots=True)
class CameAgain:
    """Deliveries of messages that had been delivered before."""

    deliveries: int | None
    """None: unknown. With a reason, the least."""
    reason: str | None = None
    """Why it is unknown, or only the least; None: it is exact."""
    messages_at_most: int | None = None
    """How many messages these were at most, where they are fewer than the deliveries; else None."""

    @property
    def number(self) -> str:
        """`5`, `at least 5`, or that it is unknown, and why."""
        return at_least(self.deliveries, reason=self.reason)

    @property
    def text(self) -> str:
        """`5 repeated deliveries`, `at least` so many, or that it is unknown how many, and why."""
        if self.deliveries is None:
            return f"how many repeated deliveries is {unknown(self.reason)}"
        said = plural(self.deliveries, REPEATED)
        return f"at least {said}" if self.reason else f"{said}{self.of_messages}"

    @property
    def of_messages(self) -> str:
        """` of at most 40 messages`; nothing where each delivery may be of another message."""
        most = self.messages_at_most
        return "" if most is None else f" of at most {plural(most, 'message')}"


def came_again(windows: Iterable[Mapping[str, Any]], *, is_observed: bool = False) -> CameAgain:
    """The sum over rows of duplicate_risk_windows.

    is_observed: something that they are about is watched from outside, whether any window says so
    or not; that none opened does not mean that nothing came again.
    """
    reason = OBSERVED if is_observed else None
    seen, again = 0, []
    for row in windows:
        reason = reason or row["redelivered_unknown_reason"]
        if row["redelivered_messages"]:
            seen += row["redelivered_messages"]
            again.append(row)
    if reason:
        return CameAgain(seen or None, reason)
    most = _messages_of(again)
    return CameAgain(seen, None, most if most is not None and most < seen else None)


def messages_again(row: Mapping[str, Any]) -> int:
    """How many messages of a row of duplicate_risk_windows came again, as far as was seen."""
    again = came_again([row])
    return again.messages_at_most or again.deliveries or 0


def _messages_of(again: Iterable[Mapping[str, Any]]) -> int | None:
    """Offsets that came again at most, each once; None: a range is not known."""
    count = 0
    reached: dict[tuple[Any, ...], int] = {}
    for row in sorted(again, key=lambda one: one.get("redelivered_from") or 0):
        begin, end = row.get("redelivered_from"), row.get("redelivered_to")
        if begin is None or end is None:
            return None
        queue = tuple(row[name] for name in QUEUE)
        count += max(0, end - max(begin, reached.get(queue, begin)))
        reached[queue] = max(end, reached.get(queue, end))
    return count
