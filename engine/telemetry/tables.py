"""The complete set of bronze tables, covering every fact that the engine reports.

Place in the walk: an observer call becomes a row of one of these tables in `events`, waits in the
spool, and is appended to the Delta table of the same name by the shipper; the pipelines read the
schemas from here and nowhere else.

Invariant: every row carries the COMMON columns; (emitter, seq) is its primary key; seq is gapless
per life of an emitter over all tables together, and shipments say what a life passed over. Tables
only ever gain nullable columns at their end.

Absent on purpose: the declarations. They lie by subject in the modules beside it, in the words of
`columns`.
"""

from __future__ import annotations

from typing import Final

from engine.telemetry.broker_tables import (
    COLD_READS,
    DELAY_LEVELS,
    FLUSH_CHECKPOINTS,
    LIFECYCLE,
    QUEUE_WATERMARKS,
    SHIPMENTS,
)
from engine.telemetry.columns import COMMON, EVENT_DATE, Column, ColumnType, Table, must
from engine.telemetry.group_tables import (
    CONSUME_OFFSETS,
    GROUP_WATERMARKS,
    OFFSET_ANSWERS,
    POP_WATERMARKS,
    REDELIVERIES,
    RETRY_DLQ_FLOW,
    REUSED_OFFSETS,
    UNREAD_DELETIONS,
)
from engine.telemetry.member_tables import CLIENT_WINDOWS, CONSUME_STATS, REBALANCE_EVENTS

__all__ = [
    "BRONZE_FOLDER",
    "BY_NAME",
    "CLIENT_WINDOWS",
    "COLD_READS",
    "COMMON",
    "CONSUME_OFFSETS",
    "CONSUME_STATS",
    "DELAY_LEVELS",
    "EVENT_DATE",
    "FLUSH_CHECKPOINTS",
    "GROUP_WATERMARKS",
    "LAKE_SCHEMES",
    "LIFECYCLE",
    "OFFSET_ANSWERS",
    "POP_WATERMARKS",
    "QUEUE_WATERMARKS",
    "REBALANCE_EVENTS",
    "REDELIVERIES",
    "RETRY_DLQ_FLOW",
    "REUSED_OFFSETS",
    "SHIPMENTS",
    "TABLES",
    "UNREAD_DELETIONS",
    "Column",
    "ColumnType",
    "Table",
    "must",
]

TABLES: Final = (
    CONSUME_OFFSETS,
    QUEUE_WATERMARKS,
    GROUP_WATERMARKS,
    REBALANCE_EVENTS,
    CLIENT_WINDOWS,
    RETRY_DLQ_FLOW,
    REDELIVERIES,
    FLUSH_CHECKPOINTS,
    LIFECYCLE,
    SHIPMENTS,
    OFFSET_ANSWERS,
    CONSUME_STATS,
    COLD_READS,
    REUSED_OFFSETS,
    DELAY_LEVELS,
    UNREAD_DELETIONS,
    POP_WATERMARKS,
)
"""Their order is the table number inside the spool: append only."""

BRONZE_FOLDER: Final = "bronze"
"""Where they lie in a lake: <lake>/bronze/<table>."""

LAKE_SCHEMES: Final = ("file", "s3")
"""URI schemes of a lake that delta-rs and Spark both reach; without a scheme it is a folder."""

BY_NAME: Final = {table.name: table for table in TABLES}
