"""Tracks how many of each queue's messages are not yet flushed or not yet replicated.

Place in the walk: queue_watermarks → `flush_health`, `replication_health`, which carry the queues
that have such messages. Invariant: a queue is there as it was reported last; what ended, or has
none any more, is not there.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import newest_of_each
from pipelines.marts.lifecycle_events import ended
from pipelines.marts.slots import slots_of
from pipelines.staging.facts import is_one_of

_QUEUE: Final = ("emitter", "topic", "queue_id")
DELETED: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("topic", KEY_TEXT),
        ("queue_id_from", pa.int32()),
        ("kind", KEY_TEXT),
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
    ]
)
"""Topics that are gone."""


def queues_schema(count: str) -> pa.Schema:
    """Queues with how many of their messages are not safe, in the column of this name."""
    return pa.schema(
        [
            ("emitter", KEY_TEXT),
            ("topic", KEY_TEXT),
            ("queue_id", pa.int32()),
            ("seq", pa.int64()),
            ("slot_us", pa.int64()),
            (count, pa.int64()),
        ]
    )


def marks_of(watermarks: pa.Table, safe: str, queues: pa.Schema, slot_us: int) -> pa.Table:
    """What of each queue lies beyond its offset in the column `safe`, the last of each slot; 0
    where that offset is null.
    """
    unsafe = pc.max_element_wise(
        pc.subtract(watermarks["max_offset"], watermarks[safe]), 0, skip_nulls=False
    )
    rows = watermarks.append_column("slot_us", slots_of(watermarks["event_us"], slot_us))
    rows = rows.append_column(queues.names[-1], pc.fill_null(unsafe, 0))
    rows = rows.select(queues.names).cast(queues)
    return newest_of_each(rows.slice(0, 0), rows, (*_QUEUE, "slot_us"))


def deleted_in(lifecycle: pa.Table, slot_us: int) -> pa.Table:
    """Topics that are gone, by slot."""
    gone = lifecycle.filter(is_one_of(lifecycle["kind"], "TOPIC_GONE"))
    rows = gone.append_column("slot_us", slots_of(gone["event_us"], slot_us))
    return rows.select(DELETED.names).cast(DELETED)


def moved(queues: pa.Table, marks: pa.Table, deleted: pa.Table) -> pa.Table:
    """Queues with messages that are not safe, after the marks and deletions of a slot."""
    now = newest_of_each(queues, marks, _QUEUE)
    for topic in deleted.to_pylist():
        is_before = pc.less(now["seq"], topic["seq"])
        now = now.filter(pc.invert(pc.and_(is_before, ended(now, topic))))
    return now.filter(pc.greater(now.column(now.num_columns - 1), 0))
