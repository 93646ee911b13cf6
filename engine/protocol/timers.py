"""Finds pending timers among the records of the timer topic, without I/O.

Place in the walk: the admin client reads the topic of timers of a broker, ours or Apache's, and
asks how far deliveries are; here both become the list of what waits.

Invariant: of a timer and a record that cancels or replaces it the later in the log counts. Absent
on purpose: the time wheel of a broker (`delay/wheel`), which knows it by bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.protocol.message import MessageExt
from engine.protocol.properties import (
    PROPERTY_KEYS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DUE_MS,
    PROPERTY_TIMER_ORIGIN,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_REPLACES,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    whole_number,
)

MARKS_FIELD: Final = "marks"
"""Field of the answer to GET_TIMER_CHECK_POINT: timers that are done, as `due,offset,known;...`."""


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A message that waits for its time."""

    topic: str
    queue_id: int
    due_ms: int
    unique_key: str
    keys: str
    queue_offset: int
    """Of its record in the topic of timers."""
    log_offset: int
    size_bytes: int

    @classmethod
    def of(cls, record: MessageExt) -> Self:
        """What a record of the topic of timers says."""
        said = record.properties
        return cls(
            said.get(PROPERTY_REAL_TOPIC, ""),
            whole_number(said.get(PROPERTY_REAL_QUEUE_ID, "0"), 0),
            due_ms_of(said),
            said.get(PROPERTY_UNIQ_KEY, ""),
            said.get(PROPERTY_KEYS, ""),
            record.queue_offset,
            record.physical_offset,
            record.store_size_bytes,
        )

    @property
    def out_ms(self) -> int:
        """RocketMQ's TIMER_OUT_MS: the whole second before it is due."""
        return out_ms_of(self.due_ms)

    def has_key(self, key: str) -> bool:
        """Is it known by this unique or business key?"""
        return key == self.unique_key or key in self.keys.split()


@dataclass(frozen=True, slots=True)
class DeliveredTimers:
    """Which timers a broker has delivered."""

    before_ms: int
    """RocketMQ: every second before this one."""
    marks: tuple[tuple[int, int, int], ...] | None = None
    """Ours: due time, log offset, and up to where its timers were known; None: not said."""

    @classmethod
    def from_answer(cls, before_ms: int, text: str | None) -> Self:
        """As a broker's answer says it."""
        if text is None:
            return cls(before_ms)
        marks = [part.split(",") for part in text.split(";") if part]
        return cls(before_ms, tuple((int(due), int(at), int(known)) for due, at, known in marks))

    def has(self, timer: PendingTimer) -> bool:
        """Is this one among them?"""
        if self.marks is None:
            return timer.out_ms < self.before_ms
        place = (timer.due_ms, timer.log_offset)
        return any(
            timer.log_offset < known and place <= (due_ms, at) for due_ms, at, known in self.marks
        )


class PendingTimers:
    """What waits, of the records that are added in the order of the log."""

    def __init__(self) -> None:
        self._timers: dict[int, PendingTimer] = {}
        """By where the record of each lies."""
        self._places: dict[int, int] = {}
        """Where a timer lay first → where it lies."""
        self._by_key: dict[tuple[int, str], list[int]] = {}
        """Second and key → origins of timers."""

    def add(self, record: MessageExt) -> None:
        """The next record of the topic of timers."""
        said = record.properties
        cancelled = said.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if cancelled:
            self._cancel(due_ms_of(said), cancelled)
            return
        timer = PendingTimer.of(record)
        if said.get(PROPERTY_TIMER_ROLL_TIMES):
            self._cancel(timer.due_ms, f"{timer.topic}+{timer.unique_key}")
        origin = whole_number(said.get(PROPERTY_TIMER_ORIGIN, ""), timer.log_offset)
        replaced = said.get(PROPERTY_TIMER_REPLACES, "").rpartition(",")[2]
        for earlier in (origin, whole_number(replaced, -1)):
            self._drop(earlier)
        self._places[origin] = timer.log_offset
        self._timers[timer.log_offset] = timer
        for key in (timer.unique_key, f"{timer.topic}+{timer.unique_key}"):
            self._by_key.setdefault((timer.due_ms // SECOND_MS, key), []).append(origin)

    def _cancel(self, due_ms: int, key: str) -> None:
        # Who cancels knows the whole second before: its timer is due in it, or at its end.
        second = out_ms_of(due_ms) // SECOND_MS
        for at in (second, second + 1):
            for origin in self._by_key.pop((at, key), ()):
                self._drop(origin)

    def _drop(self, origin: int) -> None:
        place = self._places.pop(origin, None)
        if place is not None:
            self._timers.pop(place, None)

    def waiting(self, delivered: DeliveredTimers) -> list[PendingTimer]:
        """Those that are not delivered, by time."""
        waiting = [timer for timer in self._timers.values() if not delivered.has(timer)]
        return sorted(waiting, key=lambda timer: (timer.due_ms, timer.log_offset))


def due_ms_of(properties: Mapping[str, str]) -> int:
    """When a record of the topic of timers is due, in ms since 1970."""
    due_ms = whole_number(properties.get(PROPERTY_TIMER_DUE_MS, "0"), 0)
    out_ms = whole_number(properties.get(PROPERTY_TIMER_OUT_MS, ""), -SECOND_MS)
    return due_ms or out_ms + SECOND_MS


def out_ms_of(due_ms: int) -> int:
    """RocketMQ's TIMER_OUT_MS of a due time."""
    return (due_ms - 1) // SECOND_MS * SECOND_MS


def due_by_hour(timers: Iterable[PendingTimer]) -> dict[int, int]:
    """How many are due in each hour, by its begin in ms."""
    counts: dict[int, int] = {}
    for timer in timers:
        begin_ms = timer.due_ms - timer.due_ms % HOUR_MS
        counts[begin_ms] = counts.get(begin_ms, 0) + 1
    return counts
