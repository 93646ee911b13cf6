"""Ends of topics, queues and groups: the next one of the same name is another life.

Place in the walk: conditions on lifecycle facts, which every mart with a memory shares. Invariant:
nothing is compared with an earlier life. Absent on purpose: what a mart forgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.staging.facts import is_one_of

GONE: Final = ("TOPIC_GONE", "QUEUES_REMOVED", "GROUP_GONE")
"""Kinds of lifecycle rows that name what is gone: a topic, its queues from `queue_id_from` on, or a
group.
"""

PARTED: Final = ("TOPIC_LEFT", "OFFSETS_DELETED")
"""Kinds that name a group and a topic which the group has no more to do with: it has left the
topic, or its offsets on it were deleted.
"""

MADE_AGAIN: Final = "TOPIC_MADE_AGAIN"
"""A topic of an earlier life is there again: its TOPIC_GONE came before."""


def concerns(event: Mapping[str, Any], group: str, topic: str, queue_id: int) -> bool:
    """Does an end of a topic, of a group, or of all of a broker, end this queue of it?"""
    if event["kind"] in PARTED:
        return bool((event["group"], event["topic"]) == (group, topic))
    if event["kind"] not in GONE:
        return True
    if event["kind"] == "GROUP_GONE":
        return bool(event["group"] == group)
    first = event["queue_id_from"]
    return bool(event["topic"] == topic) and (first is None or queue_id >= first)


def ended(rows: pa.Table, event: Mapping[str, Any]) -> pa.ChunkedArray:
    """The same of many rows at once."""
    of_emitter = is_one_of(rows["emitter"], event["emitter"])
    if event["kind"] not in GONE:
        return of_emitter
    if event["kind"] == "GROUP_GONE":
        return pc.and_(of_emitter, is_one_of(rows["group"], event["group"]))
    of_topic = pc.and_(of_emitter, is_one_of(rows["topic"], event["topic"]))
    if event["queue_id_from"] is None:
        return of_topic
    return pc.and_(of_topic, pc.greater_equal(rows["queue_id"], event["queue_id_from"]))


def is_of_another_life(seq: int, row: Mapping[str, Any], ends: Iterable[Mapping[str, Any]]) -> bool:
    """Did the queue of `row` end between what was reported as `seq` and the row?"""
    place = row["group"], row["topic"], row["queue_id"]
    return any(
        end["emitter"] == row["emitter"] and seq < end["seq"] < row["seq"] and concerns(end, *place)
        for end in ends
    )


def without_ended(rows: pa.Table, ends: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of queues of groups, without those whose queue ended behind them."""
    for end in ends:
        is_before = pc.less(rows["seq"], end["seq"])
        rows = rows.filter(pc.invert(pc.and_(is_before, ended(rows, end))))
    return rows
