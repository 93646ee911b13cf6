"""Recognises lifecycle events that end topics, queues or groups, or that lose data.

Place in the walk: every mart with a memory, risks and causes share them. Invariant: nothing is
compared with an earlier life; a clean stop followed by a boot is no loss. Absent on purpose: what a
mart forgets, when a loss matters, and for how long.
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
BOOT: Final = "BOOT"
ROLE_CHANGE: Final = "ROLE_CHANGE"
MASTER: Final = "MASTER"
"""The role of the node that leads its broker, and reports on it."""
SPOOL_LOSS: Final = "SPOOL_LOSS"
"""Rows of the emitter were lost: what was reported before, and holds until it is reported
otherwise, may have been reported otherwise in them.
"""
OFFSETS_FILE: Final = "consumerOffset"
"""A DAMAGED_FILE whose detail names it has cost the broker its committed offsets."""


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
    if event["kind"] not in (*GONE, *PARTED):
        return of_emitter
    if event["kind"] == "GROUP_GONE":
        return pc.and_(of_emitter, is_one_of(rows["group"], event["group"]))
    of_topic = pc.and_(of_emitter, is_one_of(rows["topic"], event["topic"]))
    if event["kind"] in PARTED:
        return pc.and_(of_topic, is_one_of(rows["group"], event["group"]))
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


def broker_died(lifecycle: pa.Table) -> pa.ChunkedArray:
    """A boot after a stop that was not clean."""
    was_unclean = pc.fill_null(pc.invert(lifecycle["clean"]), False)
    return pc.and_(is_one_of(lifecycle["kind"], BOOT), was_unclean)


def offsets_lost(lifecycle: pa.Table) -> pa.ChunkedArray:
    """The offsets file was damaged or gone."""
    names_it = pc.fill_null(pc.match_substring(lifecycle["detail"], OFFSETS_FILE), False)
    return pc.and_(is_one_of(lifecycle["kind"], "DAMAGED_FILE"), names_it)


def log_cut(lifecycle: pa.Table) -> pa.ChunkedArray:
    """Recovery cut the log."""
    return pc.fill_null(pc.less(lifecycle["truncated_from"], lifecycle["truncated_to"]), False)
