"""Converts bronze rows into observations of the queues that groups read.

Place in the walk: bronze consume_offsets, queue_watermarks and group_watermarks → observations →
rule sets. Rows are mappings by column name; times are µs or datetimes. Commits that changed nothing
are only counted (`reports`); Burrow counts its window in commits, so they are put back evenly, each
wrong by less than the time between two rows of the queue. A commit that the broker refused,
restored or never saw (LOCAL) is none.

Invariant: order comes from event_time and seq, never from the order of rows. Absent on purpose:
Spark, files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipelines.base.time_units import micros
from pipelines.rules.observations import Kind, Observation, Queue, in_order

Row = Mapping[str, Any]

UNCHANGED_MAX: Final = 1_000
"""Commits that changed nothing, put back for one row; of more, the newest: far more than a ring
keeps.
"""
_NOT_BY_A_CLIENT: Final = ("RESTORE", "LOCAL")


def observations_of(
    consume_offsets: Iterable[Row],
    queue_watermarks: Iterable[Row],
    group_watermarks: Iterable[Row] = (),
) -> dict[Queue, list[Observation]]:
    """What is known of every queue that a group has committed to or is reported on, in order."""
    reported = _by_queue(
        row for row in consume_offsets if row["accepted"] and row["path"] not in _NOT_BY_A_CLIENT
    )
    counted = _by_queue(group_watermarks)
    ends = _ends(queue_watermarks)
    found: dict[Queue, list[Observation]] = {}
    for queue in sorted({*reported, *counted}):
        changes, rows = reported.get(queue, []), counted.get(queue, [])
        polled = ends.get((queue.cluster, queue.broker, queue.topic, queue.queue_id), [])
        of_ends = [_observation(row, Kind.END, "max_offset") for row in rows]
        changed = [_observation(row, Kind.COMMIT, "offset") for row in changes]
        found[queue] = in_order([*polled, *of_ends, *changed, *_unchanged(rows, changes)])
    return found


def _observation(row: Row, kind: Kind, column: str) -> Observation:
    return Observation(micros(row["event_time"]), row["seq"], kind, row[column])


def _unchanged(rows: Sequence[Row], changes: Sequence[Row]) -> list[Observation]:
    """Reports that changed nothing, from what `rows` count, beside `changes`."""
    times_us = [micros(row["event_time"]) for row in changes]
    put_back = []
    previous_us: int | None = None
    for row in rows:
        if row["reports"] and row["last_commit_time"] is not None:
            last_us = micros(row["last_commit_time"])
            begin_us = previous_us if previous_us is not None and previous_us < last_us else None
            for at_us in _instants(row["reports"], begin_us, last_us, times_us):
                offset = _offset_at(at_us, changes, times_us, row)
                if offset is not None:
                    put_back.append(Observation(at_us, row["seq"], Kind.COMMIT, offset))
        previous_us = micros(row["event_time"])
    return put_back


def _instants(reports: int, begin_us: int | None, last_us: int, times_us: list[int]) -> list[int]:
    """When the reports came that changed nothing, of `reports` after `begin_us`.

    Without a row before, nobody knows since when they were counted: only the last one is put back.
    """
    is_reported = bisect_right(times_us, last_us) > bisect_left(times_us, last_us)
    if begin_us is None:
        return [] if is_reported else [last_us]
    seen = bisect_right(times_us, last_us) - bisect_right(times_us, begin_us)
    missing = max(0, reports - seen)
    steps = missing + 1 if is_reported else missing
    first = max(1, missing - UNCHANGED_MAX + 1)
    width_us = last_us - begin_us
    return [begin_us + width_us * step // steps for step in range(first, missing + 1)]


def _offset_at(at_us: int, changes: Sequence[Row], times_us: Sequence[int], row: Row) -> int | None:
    """The group's consume offset then: what the change before left, or the one after found."""
    place = bisect_right(times_us, at_us)
    offset: int | None
    if place:
        offset = changes[place - 1]["offset"]
    else:
        offset = changes[0]["previous_offset"] if changes else row["committed"]
    return offset


def _ends(rows: Iterable[Row]) -> dict[tuple[str, str, str, int], list[Observation]]:
    ends: dict[tuple[str, str, str, int], list[Observation]] = {}
    for row in rows:
        key = (row["cluster"], row["broker"], row["topic"], row["queue_id"])
        ends.setdefault(key, []).append(_observation(row, Kind.END, "max_offset"))
    return ends


def _by_queue(rows: Iterable[Row]) -> dict[Queue, list[Row]]:
    found: dict[Queue, list[Row]] = {}
    for row in rows:
        found.setdefault(_queue(row), []).append(row)
    for ones in found.values():
        ones.sort(key=lambda row: (micros(row["event_time"]), row["seq"]))
    return found


def _queue(row: Row) -> Queue:
    return Queue(row["cluster"], row["group"], row["topic"], row["broker"], row["queue_id"])
