"""Reports how many messages each POP group has not yet received or not yet acknowledged.

Place in the walk: pop_watermarks → gold pop_progress. The consume offset of a POP group moves when
messages are handed out, so its lag in consumer_lag is what was not handed out yet; this table has
the other figure. Invariant: one row a row; acknowledged_max <= popped <= max_offset, and unknown is
null with the reason. Absent on purpose: anything that needs a second row.
"""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.marts.columns import LONG, QUEUE_AT, STAMP, STRING, TIMESTAMP, as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart

POP_PROGRESS: Final = GoldTable(
    "pop_progress",
    "group that reads by POP, topic, queue and look at which it changed, at least each 10 min; "
    "retry topics of POP among them",
    (
        *QUEUE_AT,
        Column("popped", LONG, "next offset that was never handed out; null: of another life"),
        must("max_offset", LONG, "next offset to be written"),
        Column("waiting", LONG, "max_offset - popped: not handed out yet"),
        Column(
            "unacknowledged",
            LONG,
            "handed out, not acknowledged, and its invisible time is not over; null when unknown",
        ),
        Column(
            "unacknowledged_ranges",
            ColumnType.RANGES,
            "which offsets these are, the lowest 32 ranges; null when unknown",
        ),
        Column("handed_out_since", TIMESTAMP, "when the oldest of them was handed out"),
        Column("acknowledged_max", LONG, "popped - unacknowledged: acknowledged, at most"),
        Column("invisible_ms", LONG, "the invisible time that its clients requested last"),
        must("acknowledged", LONG, "acknowledgements since the look before, as far as known"),
        must(
            "expired",
            LONG,
            "invisible times that ran out since the look before: handed out again, as far as known",
        ),
        Column("unknown_reason", STRING, "why unacknowledged is null, in words"),
        *STAMP,
    ),
    ("emitter", "seq"),
)


def pop_progress(given: Given) -> Made:
    """One row per report of a queue that a group reads by POP."""
    marks = given.facts["pop_watermarks"]
    columns = {name: marks[name] for name in marks.column_names}
    columns |= {
        "observed_us": marks["event_us"],
        "waiting": pc.subtract(marks["max_offset"], marks["popped"]),
        "handed_out_since": marks["handed_out_since_us"],
        "acknowledged_max": pc.subtract(marks["popped"], marks["unacknowledged"]),
    }
    return Made(as_declared(columns, POP_PROGRESS))


MART: Final = mart(POP_PROGRESS, pop_progress, reads=("pop_watermarks",))
