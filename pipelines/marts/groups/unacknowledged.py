"""Detects POP groups that receive messages but acknowledge none.

Place in the walk: pop_watermarks → per group since when its messages come back unacknowledged, for
`group_state`. A group acknowledges none when invisible times ran out, the first of them a window
ago, and nothing was acknowledged since. If it acknowledged anything after it was handed the first
message that came back, it acknowledges the others: then nothing may follow for LATELY_US. It is
over with the first acknowledgement, and when no invisible time has run out for as long as two of
them, or LATELY_US: nobody takes messages any more.

Where checkpoints are not known, invisible times that ran out still show, as copies in the group's
retry topics of POP: then whether it acknowledges is unknown, for the reason that is shipped.

Invariant: what is known at a tick follows from the rows that it has seen; a message was handed out
when its queue's row says so, no later than the look that saw it. Absent on purpose: lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import MINUTE_US, MS_US, Evaluation
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.arrivals import Grid, Shipped, batches, seen_from, ticks_of
from pipelines.marts.judging.packed import numbers
from pipelines.marts.keys import as_text

LATELY_US: Final = 5 * MINUTE_US
"""A group that acknowledged others within this time acknowledges."""
INVISIBLE_TIMES: Final = 2
"""When none of them has run out for so many, messages are taken no more."""
REPORTED_US: Final = 10 * MINUTE_US
"""Each queue that a group reads by POP is reported at least so often."""

_KEYS: Final = (("emitter", KEY_TEXT), ("group", KEY_TEXT))
_QUEUE: Final = (*_KEYS, ("topic", KEY_TEXT), ("queue_id", pa.int32()))
_MOMENTS: Final = ("acked_us", "acked_tick_us", "shown_us", "last_us", "first_us", "since_us")
RECORDS: Final = pa.schema(
    [
        *_KEYS,
        *((name, pa.int64()) for name in (*_MOMENTS, "expired", "invisible_ms")),
        ("is_shown", pa.bool_()),
        ("unknown_reason", pa.string()),
    ]
)
"""Groups of which something is remembered, as `_Record` has it."""
QUEUES: Final = pa.schema(
    [
        *_QUEUE,
        *((name, pa.int64()) for name in ("handed_us", "shown_us", "seen_us", "invisible_ms")),
        ("max_offset", pa.int64()),
    ]
)
"""Their queues, as `_Queue` has them."""
WAITING: Final = pa.schema(
    [
        *_QUEUE,
        *((name, pa.int64()) for name in ("seen_us", "event_us", "acknowledged", "expired")),
        *((name, pa.int64()) for name in ("handed_us", "invisible_ms", "max_offset")),
        ("unknown_reason", pa.string()),
    ]
)
"""What no tick has seen yet."""
CARRIED: Final = {"pops": RECORDS, "pop_queues": QUEUES, "pop_marks": WAITING}


def _is_retry_of(topic: str, group: str) -> bool:
    """Is it a retry topic of a POP group? `%RETRY%group_topic`, or `%RETRY%group+topic`."""
    return topic.startswith((f"%RETRY%{group}_", f"%RETRY%{group}+"))


@dataclass(frozen=True, slots=True)
class _Expired:
    """Invisible times that ran out between two rows of a queue."""

    count: int
    since_us: int
    """When the first of their messages was handed out."""
    shown_us: int
    """The tick that first saw it handed out."""
    over_us: int
    """When its invisible time was over."""


@dataclass(slots=True)
class _Queue:
    """The last row of a queue. Moments in µs."""

    handed_us: int | None = None
    """When the oldest of its messages was handed out that is not acknowledged."""
    shown_us: int = 0
    """The tick that first saw that."""
    seen_us: int = 0
    """The moment of the row."""
    invisible_ms: int = 0
    max_offset: int | None = None
    """Its end, of a retry topic of POP while checkpoints are not known."""

    def take(self, row: Mapping[str, Any], tick_us: int) -> _Expired | None:
        """The next row; returns what ran out before it."""
        at_us, handed_us = row["event_us"], row["handed_us"]
        if row["unknown_reason"] is None:
            count, end = row["expired"], None
        else:
            end = row["max_offset"] if _is_retry_of(row["topic"], row["group"]) else None
            count = 0 if end is None or self.max_offset is None else end - self.max_offset
        found = self._expired(count, row, tick_us) if count > 0 else None
        if handed_us is not None and handed_us != self.handed_us:
            self.shown_us = tick_us
        self.handed_us, self.seen_us, self.max_offset = handed_us, at_us, end
        self.invisible_ms = row["invisible_ms"] or self.invisible_ms
        return found

    def _expired(self, count: int, row: Mapping[str, Any], tick_us: int) -> _Expired:
        at_us, invisible_us = row["event_us"], (row["invisible_ms"] or 0) * MS_US
        if self.handed_us is None or row["handed_us"] == self.handed_us:
            # Handed out and over between two looks, or younger than one that is still out.
            return _Expired(count, at_us - invisible_us, tick_us, at_us)
        # By the clock of its broker, which may be ahead or behind.
        over_us = max(self.handed_us + self.invisible_ms * MS_US, self.seen_us)
        since_us = min(self.handed_us, self.seen_us)
        return _Expired(count, since_us, self.shown_us, min(over_us, at_us))


@dataclass(slots=True)
class _Record:
    """What is remembered of a group. Moments in µs."""

    acked_us: int | None = None
    """When it acknowledged something last."""
    acked_tick_us: int | None = None
    """The tick that saw that."""
    shown_us: int | None = None
    """The tick that first saw the first message that came back, of those that came back without a
    pause of LATELY_US.
    """
    last_us: int | None = None
    """When an invisible time ran out last."""
    expired: int = 0
    """Invisible times that have run out since the last acknowledgement."""
    first_us: int | None = None
    """When the first of them did."""
    since_us: int | None = None
    """Since when messages are handed out and none is acknowledged."""
    invisible_ms: int = 0
    """The longest of them."""
    is_shown: bool = False
    unknown_reason: str | None = None
    """Why nobody knows what is acknowledged."""

    def take(self, row: Mapping[str, Any], tick_us: int, found: _Expired | None) -> None:
        """A row of one of its queues, and what ran out before it."""
        at_us, reason = row["event_us"], row["unknown_reason"]
        if reason != self.unknown_reason:
            self.expired, self.first_us, self.since_us = 0, None, None
            self.acked_us, self.acked_tick_us, self.unknown_reason = None, None, reason
        if found is not None:
            self._came_back(found, row["invisible_ms"] or 0, at_us)
        if row["acknowledged"] > 0:
            self.expired, self.first_us, self.since_us = 0, None, None
            self.acked_us, self.acked_tick_us = at_us, tick_us

    def _came_back(self, found: _Expired, invisible_ms: int, at_us: int) -> None:
        if self.last_us is None or at_us - self.last_us > self._pause_us:
            self.shown_us = found.shown_us
        self.last_us, self.expired = at_us, self.expired + found.count
        self.invisible_ms = max(self.invisible_ms, invisible_ms)
        since_us = found.since_us
        if self.acked_us is not None and self._acked_after(found.shown_us):
            since_us = self.acked_us
        if self.first_us is None or self.since_us is None:
            self.first_us, self.since_us = found.over_us, since_us
        else:
            self.first_us = min(self.first_us, found.over_us)
            self.since_us = min(self.since_us, since_us)

    def _acked_after(self, shown_us: int) -> bool:
        """Was something acknowledged after a message that a tick saw was handed out?"""
        return self.acked_tick_us is not None and self.acked_tick_us > shown_us

    @property
    def _pause_us(self) -> int:
        return max(LATELY_US, INVISIBLE_TIMES * self.invisible_ms * MS_US)

    def acknowledges_none(self, tick_us: int, window_us: int) -> bool:
        """Is that so, or unknown, at a tick?"""
        if self.first_us is None or self.last_us is None or self.shown_us is None:
            return False
        lately = self.acked_us is not None and tick_us - self.acked_us <= LATELY_US
        has_others = lately and self._acked_after(self.shown_us)
        goes_on = tick_us - self.last_us <= self._pause_us
        return goes_on and not has_others and tick_us - self.first_us >= window_us

    def is_over(self, tick_us: int) -> bool:
        """Is there nothing to be remembered at a tick?"""
        moments = [at_us for at_us in (self.acked_us, self.last_us) if at_us is not None]
        return not self.is_shown and all(tick_us - at_us > self._pause_us for at_us in moments)


GroupKey = tuple[str, str]
"""(emitter, group)"""
QueueKey = tuple[Any, ...]
"""(emitter, group, topic, queue_id)"""


@dataclass(frozen=True, slots=True)
class NotAcknowledging:
    """A group that takes messages and acknowledges none, or of which that is unknown."""

    since_us: int
    expired: int
    unknown_reason: str | None


class Unacknowledged:
    """The POP groups of a partition."""

    def __init__(
        self,
        state: Mapping[str, pa.Table],
        marks: pa.Table,
        *,
        shipped: Mapping[str, Shipped],
        grids: Mapping[str, Grid],
    ) -> None:
        self._records: dict[GroupKey, _Record] = {}
        for row in state["pops"].to_pylist():
            key = row.pop("emitter"), row.pop("group")
            self._records[key] = _Record(**row)
        self._queues: dict[QueueKey, _Queue] = {}
        for row in state["pop_queues"].to_pylist():
            place = tuple(row.pop(name) for name, _ in _QUEUE)
            self._queues[place] = _Queue(**row)
        new = _as_waiting(marks, shipped)
        rows = pa.concat_tables([state["pop_marks"], new]).unify_dictionaries().combine_chunks()
        ticks = ticks_of(rows["emitter"], numbers(rows["seen_us"]), grids)
        self._rows = rows
        self._by_tick = batches(ticks)
        self._waiting = rows.filter(pa.array(ticks == 0))

    def __bool__(self) -> bool:
        """Is there any POP group?"""
        return bool(self._records or self._by_tick)

    def turned(
        self, tick_us: int, emitters: frozenset[str], evaluation: Evaluation
    ) -> list[GroupKey]:
        """Takes the rows of a tick, and names the groups that begin or cease to be shown, of
        emitters that have this tick.
        """
        batch = self._by_tick.get(tick_us)
        if batch is not None:
            for row in self._rows.take(pa.array(batch)).to_pylist():
                self._take(row, tick_us)
        turned = []
        for key, record in list(self._records.items()):
            if key[0] not in emitters:
                continue
            is_shown = record.acknowledges_none(tick_us, evaluation.window_us)
            if is_shown != record.is_shown:
                record.is_shown = is_shown
                turned.append(key)
            if record.is_over(tick_us):
                del self._records[key]
        if tick_us % REPORTED_US == 0:
            for place, queue in list(self._queues.items()):
                if place[0] in emitters and tick_us - queue.seen_us > 2 * REPORTED_US:
                    del self._queues[place]
        return turned

    def _take(self, row: Mapping[str, Any], tick_us: int) -> None:
        place = tuple(row[name] for name, _ in _QUEUE)
        found = self._queues.setdefault(place, _Queue()).take(row, tick_us)
        self._records.setdefault(place[:2], _Record()).take(row, tick_us, found)

    def shown(self) -> dict[GroupKey, NotAcknowledging]:
        """Groups that take messages and acknowledge none, or of which that is unknown."""
        return {
            key: NotAcknowledging(one.since_us or 0, one.expired, one.unknown_reason)
            for key, one in self._records.items()
            if one.is_shown
        }

    def state(self) -> dict[str, pa.Table]:
        """What is carried on."""
        groups = [
            {"emitter": emitter, "group": group, **asdict(one)}
            for (emitter, group), one in sorted(self._records.items())
        ]
        names = [name for name, _ in _QUEUE]
        queues = [
            {**dict(zip(names, place, strict=True)), **asdict(one)}
            for place, one in sorted(self._queues.items())
        ]
        return {
            "pops": _table(groups, RECORDS),
            "pop_queues": _table(queues, QUEUES),
            "pop_marks": self._waiting,
        }


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        kind = pa.string() if field.type == KEY_TEXT else field.type
        columns.append(pa.array([row[field.name] for row in rows], kind).cast(field.type))
    return pa.table(columns, schema=schema)


def _as_waiting(marks: pa.Table, shipped: Mapping[str, Shipped]) -> pa.Table:
    columns = {
        **{name: marks[name] for name in WAITING.names if name in marks.column_names},
        **{name: as_text(marks[name]) for name in ("emitter", "group", "topic")},
        "seen_us": pa.array(seen_from(marks, numbers(marks["event_us"]), shipped)),
        "handed_us": marks["handed_out_since_us"],
        "unknown_reason": pc.cast(marks["unknown_reason"], pa.string()),
    }
    return pa.table([columns[name] for name in WAITING.names], schema=WAITING)
