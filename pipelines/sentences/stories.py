"""Timeline entries for a message or a window, with one sentence per event.

Place in the walk: rows of several tables → the column `what` of a timeline of `tm`; time and source
stand beside it. Pure. Invariant: a sentence of gold is taken over as it is. Absent on purpose:
which rows belong to a story (`pipelines/tm/stories`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipelines.base.wording import plural, spoken
from pipelines.sentences.duplicates import came_again
from pipelines.sentences.figures import client, whole
from pipelines.sentences.figures import moment as moment_of

Row = Mapping[str, Any]


STEP_WORDS: Final = {
    "SENT_BACK": "sent back",
    "SCHEDULED": "waits for its next try",
    "DELIVERED": "ready for its next try",
    "LOCAL_RETRY": "tried again in place",
    "DEAD_LETTERED": "dead-lettered",
    "REDRIVEN": "sent anew from the dead letters",
    "DISCARDED": "discarded from the dead letters",
    "EXPIRED": "deleted by retention before its next try",
    "SENT_AGAIN": "a second copy, sent by the producer, was handed out",
    "INVISIBLE_TIME_EXPIRED": "not acknowledged within its invisible time: handed out again",
}


def step_words(name: str) -> str:
    """SENT_BACK as `sent back`; a step that is not known as it is written."""
    return STEP_WORDS.get(name, spoken(name))


def ending(row: Row) -> str:
    """Where a group stands with a message: its newest step."""
    tries = row["reconsume_times"]
    failed = f"{tries:,} failed {'try' if tries == 1 else 'tries'}"
    at = moment_of(row["event_time"], day=True)
    return whole(f"group {row['group']}, since {at}: {step_words(row['step'])}, after {failed}")


def step(row: Row) -> str:
    """A step of a message that failed, or came back."""
    why = f" ({row['reason']})" if row["reason"] else ""
    failures = plural(row["reconsume_times"] or 0, "failure")
    return f"{spoken(row['step'])} after {failures}{why}"


def dead_letter(row: Row) -> str:
    """That a message became a dead letter, and why."""
    return f"dead letter of {row['group']}: {row['reason'] or 'for an unknown reason'}"


def replaced(row: Row) -> str:
    """What became of a message that a broker lost, or of its offset."""
    return f"{spoken(row['outcome'])}: {row['evidence']}"


def risk(row: Row) -> str:
    """A window in which messages were at risk, and what came of it."""
    again = came_again([row])
    seen = f", {again.text}" if again.deliveries else ""
    return (
        f"risk of a second delivery ({spoken(row['cause'])}), {row['outcome'].lower()}{seen}: "
        f"{row['evidence']}"
    )


def head(row: Row) -> str:
    """A stalled window whose head a message was."""
    end = f"until {moment_of(row['closed_at'])}" if row["closed_at"] else "still"
    return f"head of a queue that is {spoken(row['rule'])}, {end}: {row['evidence']}"


def revision(row: Row) -> str:
    """What a revision of a window said."""
    return f"revision {row['revision']}, {row['state'].lower()}: {row.get('evidence') or 'owned'}"


def stack(row: Row) -> str:
    """Where a listener stands."""
    return f"the listener of {client(row['client_id'])} stands at\n{row['stack']}"


def redelivery(row: Row) -> str:
    """A range that was handed out again."""
    return (
        f"{client(row['client_id'])} was handed [{row['from_offset']}, {row['to_offset']}) "
        f"again, after {client(row['previous_client_id'])}"
    )


def change(row: Row) -> str:
    """A change of members."""
    why = f", {row['reason']}" if row["reason"] else ""
    return f"{client(row['client_id'])} {spoken(row['kind'])}{why}"
