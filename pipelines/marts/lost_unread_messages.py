"""Records messages that expired, or were deleted to free space, before a group read them.

Place in the walk: unread_deletions → gold lost_unread_messages. A state DATA_LOST shows where the
group stands at an evaluation; a broker moves its members on within a second, so that none may see
it. These rows are the loss itself.

Invariant: one row a fact, so ranges of one queue and group do not overlap. Absent on purpose:
messages that a crash took (`replaced_messages`), and ones that a group passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc

from engine.telemetry.tables import must
from pipelines.base.time_units import moment_at
from pipelines.marts.columns import LONG, QUEUE_AT, STAMP, STRING, rows_as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.sentences.losses import lost_unread

LOST_UNREAD_MESSAGES: Final = GoldTable(
    "lost_unread_messages",
    "queue of a group that lost unread messages to a deletion, each time",
    (
        *QUEUE_AT,
        must("from_offset", LONG, "first offset that the group had not read"),
        must("to_offset", LONG, "one past the last that was deleted"),
        must("messages", LONG, "to_offset - from_offset: so many at most"),
        must(
            "error_messages",
            LONG,
            "how many fewer it may be, where an observer saw the group further at its next look; 0 "
            "when it is exact",
        ),
        must("evidence", STRING, "one sentence with the figures"),
        *STAMP,
    ),
    ("emitter", "seq"),
)


def lost_unread_messages(given: Given) -> Made:
    """One row per deletion that cost a group messages."""
    facts = given.facts["unread_deletions"]
    whole = facts.filter(pc.less(facts["from_offset"], facts["to_offset"]))
    return Made(rows_as_declared([_row(fact) for fact in whole.to_pylist()], LOST_UNREAD_MESSAGES))


def _row(fact: Mapping[str, Any]) -> dict[str, Any]:
    count = fact["to_offset"] - fact["from_offset"]
    row = {
        **fact,
        "observed_us": fact["event_us"],
        "messages": count,
        "error_messages": max(0, count - fact["unread"]),
    }
    seen = {**row, "observed_at": moment_at(fact["event_us"])}
    return {**row, "evidence": lost_unread(fact["group"], [seen])}


MART: Final = mart(LOST_UNREAD_MESSAGES, lost_unread_messages, reads=("unread_deletions",))
