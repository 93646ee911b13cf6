"""Sentences about messages that were deleted unread or lost after being pulled.

Place in the walk: rows of lost_unread_messages and replaced_messages → their columns `evidence`,
and `tm`; retry_flow's reason why it does not close. Pure.
Invariant: what an observer cannot know exactly is a range of counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipelines.base.wording import plural
from pipelines.sentences.figures import client, messages, moment, queue_of, whole

RANGES_MAX: Final = 3
"""Ranges in a sentence, the largest first; further ones are counted."""
Row = Mapping[str, Any]


def lost_unread(group: str, rows: Sequence[Row]) -> str:
    """What a group lost of all these ranges, when, and what to do; `rows`: one at least."""
    most = sum(row["messages"] for row in rows)
    least = most - sum(row["error_messages"] for row in rows)
    begin = min(row["observed_at"] for row in rows)
    when = f"at {moment(begin)}" if len(rows) == 1 else f"since {moment(begin)}"
    them = "it" if most == 1 else "them"
    return (
        f"Group {group} lost {_count(least, most)} unread {when}: offsets {_ranges(rows)} were "
        f"deleted before it had read {them}. See whether the producers can send {them} again."
    )


def replaced(row: Row) -> str:
    """That a broker lost a message which a group had pulled, and what has its offset now."""
    before, now = row["message_id_before"], row["message_id"]
    lost = "a message" if before is None else f"message {before}"
    there = {
        "LOST": f"message {now} has its offset now",
        "SENT_AGAIN": "its producer sent it again, to the same offset",
        "UNKNOWN": "whether its producer sent it again is unknown",
    }[row["outcome"]]
    place = f"offset {row['offset']} of {queue_of(row['topic'], row['queue_id'], row['broker'])}"
    advice = "" if row["outcome"] == "SENT_AGAIN" else "see whether it was processed"
    return whole(
        f"group {row['group']} had pulled {lost} at {place} when the broker lost it",
        f"it had been pulled by {client(row['client_id'])}; {there}",
        f"all offsets from {row['queue_end']} on are given to other messages",
        advice,
    )


def left_text(row: Row) -> str:
    """That a group has left a topic, when, and how much of it is unread."""
    at = f"{row['event_time']:%H:%M}"
    return f"{row['group']} left {row['topic']} at {at} UTC; {row['detail']}"


def unaccounted(difference: int) -> str:
    """Why failures and what became of them differ; `difference`: failures without a next step, or,
    below 0, next steps without a failure.
    """
    if difference > 0:
        return "Failures have no next step: they were reported before the first fact, or lost."
    return (
        "Messages were given up without a reported failure: a delayed message could not be "
        "delivered, or the failure was reported before the first fact."
    )


def _count(least: int, most: int) -> str:
    if least == most:
        return messages(most)
    return f"{least:,} to {messages(most)}" if least else f"up to {messages(most)}"


def _ranges(rows: Sequence[Row]) -> str:
    largest = sorted(rows, key=lambda row: (-row["messages"], row["observed_at"]))
    named = [
        f"[{row['from_offset']}, {row['to_offset']}) of "
        f"{queue_of(row['topic'], row['queue_id'], row['broker'])}"
        for row in largest[:RANGES_MAX]
    ]
    more = len(rows) - len(named)
    if more:
        named.append(plural(more, "more range"))
    *first, last = named
    return f"{', '.join(first)} and {last}" if first else last
