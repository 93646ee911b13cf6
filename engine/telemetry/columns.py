"""Building blocks for declaring bronze tables: column types, columns and tables.

Place in the walk: `tables` and the modules of its subjects declare every fact in them; gold tables
take the same words. Absent on purpose: pyarrow and Spark types. `ColumnType` is a closed vocabulary
that both sides translate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class ColumnType(Enum):
    """Types both Spark and Arrow know. TIMESTAMP is µs UTC and travels as a whole number."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    STRINGS = "array<string>"
    LONGS = "array<long>"
    RANGES = "array<struct<from_offset:long,to_offset:long>>"
    OWNED_QUEUES = "array<struct<topic:string,queue_id:int,committed:long,pulled:long>>"
    TABLE_COUNTS = "array<struct<table:string,rows:long>>"
    REPLICAS = "array<struct<replica:string,replicated:long,behind_bytes:long,behind_ms:long>>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type, whether it may be null (unknown), and what it means."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = True
    rests_on: tuple[str, ...] = ()
    """Columns of its table that it is computed from: with one of them unknown it is unknown."""


@dataclass(frozen=True, slots=True)
class Table:
    """One bronze table: name, what one row stands for, and its own columns."""

    name: str
    grain: str
    own: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Common columns first, then the table's own, then the partition column."""
        return (*COMMON, *self.own, EVENT_DATE)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the table's own columns, in the order in which a spooled row carries them."""
        return tuple(column.name for column in self.own)


STRING, INT, LONG, BOOLEAN, TIMESTAMP = (
    ColumnType.STRING,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.BOOLEAN,
    ColumnType.TIMESTAMP,
)


def must(name: str, kind: ColumnType, meaning: str) -> Column:
    """A column that is never null."""
    return Column(name, kind, meaning, nullable=False)


COMMON: Final = (
    must("cluster", STRING, "cluster name"),
    must("broker", STRING, "broker name"),
    must(
        "broker_epoch",
        LONG,
        "boot time of the broker, µs since 1970 UTC; distinguishes one life of it from the next",
    ),
    must(
        "emitter",
        STRING,
        "who reported: cluster/broker/broker_id, of an observed broker cluster/broker/observer; "
        "the shipper of that spool adds /shipper",
    ),
    must(
        "seq",
        LONG,
        "number of the row per emitter, over all its tables: gapless in a life, which begins with "
        "the time, µs since 1970 UTC",
    ),
    must("event_time", TIMESTAMP, "the broker's clock when it happened"),
)
EVENT_DATE: Final = must("event_date", ColumnType.DATE, "UTC date of event_time; the partition")

GROUP = must("group", STRING, "consumer group")
TOPIC = must("topic", STRING, "topic")
QUEUE = must("queue_id", INT, "queue number inside topic and broker")
