"""Columns that many gold tables share: time, place, and the evidence of a row.

Place in the walk: the marts declare their tables with them. Invariant: one name, one meaning, in
all tables. Absent on purpose: what only one table has.
"""

from __future__ import annotations

from typing import Final

from engine.telemetry.tables import Column, ColumnType, must

STRING, INT, LONG, BOOLEAN, TIMESTAMP, DATE = (
    ColumnType.STRING,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.BOOLEAN,
    ColumnType.TIMESTAMP,
    ColumnType.DATE,
)

OBSERVED_AT: Final = must("observed_at", TIMESTAMP, "moment of data time this row speaks of")
OBSERVED_DATE: Final = must(
    "observed_date",
    DATE,
    "UTC date of observed_at; the partition. Of an interval that is open since before what is "
    "stored: the oldest day that is",
)
CLUSTER: Final = must("cluster", STRING, "cluster name")
BROKER: Final = must("broker", STRING, "broker name")
GROUP: Final = must("group", STRING, "consumer group")
TOPIC: Final = must("topic", STRING, "topic")
QUEUE: Final = must("queue_id", INT, "queue number inside topic and broker")
EMITTER: Final = must("emitter", STRING, "who reported the evidence")
SEQ: Final = must("seq", LONG, "newest bronze row (of that emitter) this row rests on")

INTERVAL: Final = (
    must("window_id", STRING, "hash of rule, key and opened_at; the same over all revisions"),
    must("revision", INT, "1 for the first; the highest is the present truth"),
    must("state", STRING, "OPEN or CLOSED"),
    OBSERVED_AT,
    must(
        "valid_from",
        TIMESTAMP,
        "data time from which this revision is the truth; equals observed_at",
    ),
    must("opened_at", TIMESTAMP, "when the interval began"),
    Column("closed_at", TIMESTAMP, "when it ended; null while OPEN"),
)
