"""Converts each fact into a row for its bronze table.

It sets the order of fields, turns milliseconds into microseconds, and sums flushes per second.

Place in the walk: between the observer call and the spool. Pure: the caller brings the time.

Invariant: a row's values stand in the order of its table's `own_names`; a fact and its table
disagreeing about a field is found at import, not when the first such fact arrives.

Absent on purpose: common columns, seq, buffering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from engine.foundation.observing import (
    ClientWindow,
    ColdReads,
    ConsumeStats,
    DelayLevel,
    Fact,
    FlushDone,
    GroupWatermark,
    LifecycleEvent,
    OffsetAnswer,
    OffsetReport,
    OwnedQueue,
    PopWatermark,
    QueueWatermark,
    RebalanceEvent,
    Redelivery,
    RetryStep,
    ReusedOffset,
    UnreadDeletion,
)
from engine.foundation.units import MILLISECOND_US
from engine.telemetry.frames import Row, Values
from engine.telemetry.tables import (
    CLIENT_WINDOWS,
    COLD_READS,
    CONSUME_OFFSETS,
    CONSUME_STATS,
    DELAY_LEVELS,
    FLUSH_CHECKPOINTS,
    GROUP_WATERMARKS,
    LIFECYCLE,
    OFFSET_ANSWERS,
    POP_WATERMARKS,
    QUEUE_WATERMARKS,
    REBALANCE_EVENTS,
    REDELIVERIES,
    RETRY_DLQ_FLOW,
    REUSED_OFFSETS,
    TABLES,
    UNREAD_DELETIONS,
    ColumnType,
    Table,
)

HELD_RANGES_MAX: Final = 32
"""More ranges of one window are not reported: the first 32 say where the window is torn."""

IMMEDIATE_CAUSES: Final = frozenset({"SHUTDOWN", "RECOVERY"})
"""Flushes of these causes are rows at once; there may be no next second to sum them in."""

TableRow = tuple[int, Values]
"""(number of the table in TABLES, own values)."""


def row_of(fact: Fact) -> TableRow:
    """The row of a fact.

    A flush is a row of its own here; `FlushSums` is for those that are summed.
    """
    return _MAKERS[type(fact)](fact)


def rows_of(facts: Sequence[Fact], event_time_us: int) -> list[Row]:
    """The rows of facts of one kind, reported at one time. Hot."""
    make = _MAKERS[type(facts[0])]
    made = map(make, facts)
    return [(number, event_time_us, values) for number, values in made]


class FlushSums:
    """Flushes since the last take, summed per component, action and cause.

    Bounded by construction: seven components, five actions, four causes, REPLICAS_MAX slaves.
    """

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str, str | None], _FlushSum] = {}

    def add(self, fact: FlushDone) -> None:
        """Count one flush."""
        key = (fact.component, fact.action, fact.cause, fact.replica)
        held = self._sums.get(key)
        if held is None:
            self._sums[key] = _FlushSum(fact)
        else:
            held.add(fact)

    def take(self) -> list[TableRow]:
        """One row for every sum, in the order of their first flushes; the sums begin anew."""
        rows = [held.row() for held in self._sums.values()]
        self._sums.clear()
        return rows


class _FlushSum:
    """How many, how long together, how long at most; of the rest the newest."""

    __slots__ = ("_at_risk_bytes_max", "_count", "_duration_us_max", "_duration_us_sum", "_newest")

    def __init__(self, fact: FlushDone) -> None:
        self._newest = fact
        self._count = fact.ended
        self._at_risk_bytes_max = fact.at_risk_bytes
        self._duration_us_sum = self._duration_us_max = fact.duration_us

    def add(self, fact: FlushDone) -> None:
        self._newest = fact
        self._count += fact.ended
        self._duration_us_sum += fact.duration_us
        self._duration_us_max = max(self._duration_us_max, fact.duration_us)
        if fact.at_risk_bytes is not None:
            self._at_risk_bytes_max = max(self._at_risk_bytes_max or 0, fact.at_risk_bytes)

    def row(self) -> TableRow:
        newest = self._newest
        return _FLUSH_CHECKPOINTS, (
            newest.component,
            newest.action,
            newest.cause,
            newest.written,
            newest.committed,
            newest.flushed,
            _us(newest.store_time_ms),
            self._count,
            self._duration_us_sum,
            self._duration_us_max,
            newest.content_crc,
            newest.kernel_dirty,
            newest.kernel_writeback,
            self._at_risk_bytes_max,
            newest.replica,
            None if newest.due_by_hour is None else list(newest.due_by_hour),
        )


def stamped(row: TableRow, event_time_us: int) -> Row:
    """The row with the time at which it was reported."""
    return row[0], event_time_us, row[1]


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * MILLISECOND_US


def _maker(table: Table, fact_type: type) -> Callable[[Any], TableRow]:
    """A function from the fact to its row: every column by the field of its name, times by the
    `_ms` field."""
    known = {field.name for field in fields(fact_type)}
    names = [
        f"{column.name}_ms" if column.type is ColumnType.TIMESTAMP else column.name
        for column in table.own
    ]
    missing = [name for name in names if name not in known]
    assert not missing, f"{fact_type.__name__} has no {missing}, which {table.name} needs"
    assert len(known) == len(names), f"{fact_type.__name__} has more than {table.name} takes"
    number = TABLES.index(table)
    pick: Callable[[Any], Values] = attrgetter(*names)
    times = [at for at, column in enumerate(table.own) if column.type is ColumnType.TIMESTAMP]
    if not times:
        return lambda fact: (number, pick(fact))

    def make(fact: Any) -> TableRow:
        values = list(pick(fact))
        for at in times:
            if values[at] is not None:
                values[at] *= MILLISECOND_US
        return number, tuple(values)

    return make


def _group_watermark(fact: GroupWatermark) -> TableRow:
    """As `_maker` would make it, in half the time: these are most of all rows. Hot."""
    stored_ms, newest_ms = fact.store_time_at_committed_ms, fact.last_store_time_ms
    pulled_ms, committed_ms = fact.last_pull_time_ms, fact.last_commit_time_ms
    return _GROUP_WATERMARKS, (
        fact.group,
        fact.topic,
        fact.queue_id,
        fact.pulled,
        fact.processed,
        fact.committed,
        fact.persisted,
        fact.committed_state,
        None if stored_ms is None else stored_ms * MILLISECOND_US,
        fact.min_offset,
        fact.max_offset,
        None if newest_ms is None else newest_ms * MILLISECOND_US,
        fact.last_puller,
        fact.lock_holder,
        None if pulled_ms is None else pulled_ms * MILLISECOND_US,
        None if committed_ms is None else committed_ms * MILLISECOND_US,
        fact.reports,
        fact.message_model,
        fact.members,
        fact.store_time_error_ms,
        fact.members_unknown_reason,
        fact.began,
    )


_GROUP_WATERMARKS: Final = TABLES.index(GROUP_WATERMARKS)
_any_watermark: Final[Any] = GroupWatermark(*range(len(fields(GroupWatermark))))
assert _group_watermark(_any_watermark) == _maker(GROUP_WATERMARKS, GroupWatermark)(_any_watermark)
_FLUSH_CHECKPOINTS: Final = TABLES.index(FLUSH_CHECKPOINTS)


def _listing_maker(
    table: Table, fact_type: type, name: str, listed: Callable[[Sequence[Any]], list[Any]]
) -> Callable[[Any], TableRow]:
    """As `_maker`, with a column that is a list."""
    plain, at = _maker(table, fact_type), table.own_names.index(name)

    def make(fact: Any) -> TableRow:
        number, values = plain(fact)
        if values[at] is None:
            return number, values
        return number, (*values[:at], listed(values[at]), *values[at + 1 :])

    return make


def _owned(queues: Sequence[OwnedQueue]) -> list[tuple[str, int, int | None, int | None]]:
    return [(owned.topic, owned.queue_id, owned.committed, owned.pulled) for owned in queues]


_MAKERS: Final[dict[type, Callable[[Any], TableRow]]] = {
    OffsetReport: _maker(CONSUME_OFFSETS, OffsetReport),
    QueueWatermark: _maker(QUEUE_WATERMARKS, QueueWatermark),
    GroupWatermark: _group_watermark,
    RebalanceEvent: _listing_maker(REBALANCE_EVENTS, RebalanceEvent, "queues", _owned),
    ClientWindow: _listing_maker(
        CLIENT_WINDOWS, ClientWindow, "held_ranges", lambda ranges: [*ranges[:HELD_RANGES_MAX]]
    ),
    RetryStep: _maker(RETRY_DLQ_FLOW, RetryStep),
    Redelivery: _maker(REDELIVERIES, Redelivery),
    FlushDone: lambda fact: _FlushSum(fact).row(),
    LifecycleEvent: _maker(LIFECYCLE, LifecycleEvent),
    OffsetAnswer: _maker(OFFSET_ANSWERS, OffsetAnswer),
    ConsumeStats: _maker(CONSUME_STATS, ConsumeStats),
    ColdReads: _maker(COLD_READS, ColdReads),
    ReusedOffset: _maker(REUSED_OFFSETS, ReusedOffset),
    UnreadDeletion: _maker(UNREAD_DELETIONS, UnreadDeletion),
    DelayLevel: _maker(DELAY_LEVELS, DelayLevel),
    PopWatermark: _listing_maker(POP_WATERMARKS, PopWatermark, "unacknowledged_ranges", list),
}
