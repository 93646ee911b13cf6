"""Facts of a small cluster over thirty days, with incidents that are known.

Ten groups, each with a habit that alerts must bear or a trouble that they must report:

    steady    quick, on weekdays alone; silent from Friday night to Monday morning
    batch     two million messages each night at one, done by three
    deploys   restarted each weekday at two: for one minute, now and then two, nobody is there
    bursty    six bursts a day, each done within eight minutes
    flapping  well, but on two mornings it stands for ten minutes of each twenty
    drain     well, but on two days it is a fifth slower than its producers, from nine to three
    dead      well, but twice its consumers die, and somebody starts them after hours
    frozen    well, but twice a listener does not return: one of its two queues stands for two hours
    silent    its clients do not say what they hold. A message each seven minutes by day, at work
              for one to four; of the other queue offsets are reported each ten minutes alone. Twice
              a listener does not return for two hours
    pop       reads by POP. One message in a thousand comes back once, at night the only one of an
              hour; restarted each weekday. Twice it acknowledges nothing for two hours

The first five days have one of each. Facts lie on a grid of minutes. The same arguments give the
same rows. Absent on purpose: Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from engine.telemetry.tables import BY_NAME
from pipelines.backtest.truths import Incident
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema

BEGIN_US: Final = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 1_000_000
"""A Monday."""
SECOND_US, MINUTE_US = 1_000_000, 60_000_000
HOUR, DAY = 60, 24 * 60
"""Minutes."""
CLUSTER, BROKER = "shop", "broker-a"
EMITTER: Final = f"{CLUSTER}/{BROKER}/0"
REPORTS_A_MINUTE: Final = 2
CAPACITY: Final = 60_000
"""Messages a minute that a healthy group gets through."""
PULLED_AHEAD: Final = 1_000
"""So many messages a client pulls ahead of what it has finished."""

Minutes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class Habit:
    """What befalls one queue of a group, minute after minute."""

    group: str
    queue_id: int
    produced: Minutes
    """Messages of each minute."""
    capacity: Minutes
    members: Minutes
    is_frozen: np.ndarray[Any, np.dtype[np.bool_]]
    """A listener does not return."""


SILENT, POP = "silent", "pop"
INVISIBLE_MINUTES: Final = 2
REPORTED_EACH: Final = 10
"""Minutes between two reports of a silent client's second queue."""


@dataclass(slots=True)
class Handing:
    """What befalls the messages of a POP group's queue, minute after minute."""

    acknowledged: Minutes
    expired: Minutes
    unacknowledged: Minutes


@dataclass(slots=True)
class Month:
    """Habits and incidents of so many days."""

    days: int = 30
    only: tuple[str, ...] = ()
    """These groups alone; none: all."""
    habits: list[Habit] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    def __post_init__(self) -> None:
        habits: dict[str, Callable[[Habit], None]] = {
            "steady": self._steady, "batch": self._batch, "deploys": self._deploys,
            "bursty": self._bursty, "flapping": self._flapping, "drain": self._drain,
            "dead": self._dead, "frozen": self._frozen, SILENT: self._silent, POP: self._pop,
        }  # fmt: skip
        for group, befall in habits.items():
            if self.only and group not in self.only:
                continue
            for queue_id in range(2 if group in ("frozen", SILENT) else 1):
                habit = self._habit(group, queue_id)
                befall(habit)
                self.habits.append(habit)

    def _habit(self, group: str, queue_id: int) -> Habit:
        minutes = self.days * DAY
        of_day = np.arange(minutes) % DAY
        produced = (400 + 300 * np.sin((of_day - 6 * HOUR) * 2 * np.pi / DAY)).astype(np.int64)
        return Habit(
            group, queue_id, produced, np.full(minutes, CAPACITY, np.int64),
            np.full(minutes, 2, np.int64), np.zeros(minutes, bool),
        )  # fmt: skip

    def _steady(self, habit: Habit) -> None:
        weekday = np.arange(self.days * DAY) // DAY % 7
        habit.produced[weekday >= 5] = 0

    def _batch(self, habit: Habit) -> None:
        habit.produced[:] = 0
        habit.capacity[:] = 20_000
        for day in range(self.days):
            habit.produced[day * DAY + HOUR :][:20] = 100_000

    def _deploys(self, habit: Habit) -> None:
        for day in self._weekdays():
            at, lasts = day * DAY + 14 * HOUR, 2 if day % 5 == 3 else 1
            habit.capacity[at : at + lasts] = 0
            habit.members[at : at + lasts] = 0

    def _bursty(self, habit: Habit) -> None:
        habit.capacity[:] = 3_000
        for day in range(self.days):
            for number in range(6):
                at = day * DAY + number * 4 * HOUR + 17 * (day % 7)
                habit.produced[at : at + 3] += 6_000

    def _flapping(self, habit: Habit) -> None:
        for day in self._of(4, 22):
            begin, end = day * DAY + 8 * HOUR, day * DAY + 12 * HOUR
            for at in range(begin, end, 20):
                habit.is_frozen[at : at + 10] = True
            self._incident(habit, "FLAPPING", begin, end)

    def _drain(self, habit: Habit) -> None:
        for day in self._of(3, 24):
            begin, end = day * DAY + 9 * HOUR, day * DAY + 15 * HOUR
            habit.capacity[begin:end] = habit.produced[begin:end] * 4 // 5
            self._incident(habit, "SLOW", begin, end)

    def _dead(self, habit: Habit) -> None:
        for day, hour, lasts in ((1, 10, 90), (18, 3, 180)):
            begin = day * DAY + hour * HOUR
            if day < self.days:
                habit.capacity[begin : begin + lasts] = 0
                habit.members[begin : begin + lasts] = 0
                self._incident(habit, "DEAD_CONSUMER", begin, begin + lasts)

    def _frozen(self, habit: Habit) -> None:
        for day in self._of(2, 21) if habit.queue_id == 0 else ():
            begin = day * DAY + 16 * HOUR
            habit.is_frozen[begin : begin + 2 * HOUR] = True
            self._incident(habit, "FROZEN_HEAD", begin, begin + 2 * HOUR)

    def _silent(self, habit: Habit) -> None:
        of_day = np.arange(self.days * DAY) % DAY
        is_day = (of_day >= 7 * HOUR) & (of_day < 22 * HOUR)
        if habit.queue_id == 1:
            # By its third report it is known that they are rare: in the half hour before.
            habit.produced[:] = np.where(is_day, 10, 0)
            habit.produced[:30] = 10
            return
        comes = np.flatnonzero(is_day & (of_day % 7 == 0))
        habit.produced[:] = 0
        habit.produced[comes] = 1
        for number, at in enumerate(comes):
            habit.is_frozen[at : at + 1 + number * 7 % 4] = True
        for day in self._of(4, 23):
            begin = day * DAY + 10 * HOUR
            habit.is_frozen[begin : begin + 2 * HOUR] = True
            self._incident(habit, "SILENT_HEAD", begin, begin + 2 * HOUR)

    def _pop(self, habit: Habit) -> None:
        of_day = np.arange(self.days * DAY) % DAY
        is_night = (of_day < 6 * HOUR) | (of_day >= 22 * HOUR)
        habit.produced[is_night] = 0
        habit.produced[is_night & (of_day % HOUR == 11)] = 1
        for day in self._of(3, 20):
            begin = day * DAY + 11 * HOUR
            self._incident(habit, "NOT_ACKNOWLEDGED", begin, begin + 2 * HOUR)

    def handing_of(self, habit: Habit) -> Handing:
        """The books of a POP group: each night one message an hour comes back once."""
        minutes = np.arange(self.days * DAY)
        of_day = minutes % DAY
        lost = habit.produced // 1_000 + (of_day % 10 == 3) * (habit.produced > 0)
        lost = np.where(habit.produced == 1, 1, lost)
        for day in self._weekdays():  # Restarted: what was taken in that minute comes back.
            at = day * DAY + 14 * HOUR
            lost[at] = habit.produced[at]
        for one in self.incidents:
            if one.kind == "NOT_ACKNOWLEDGED":
                begin, end = ((at - BEGIN_US) // MINUTE_US for at in (one.begin_us, one.end_us))
                lost[begin:end] = habit.produced[begin:end]
        expired = np.concatenate([np.zeros(INVISIBLE_MINUTES, np.int64), lost])[: len(minutes)]
        again = np.concatenate([[0], expired])[: len(minutes)]
        is_out = np.zeros(len(minutes), bool)
        for one in self.incidents:
            if one.kind == "NOT_ACKNOWLEDGED":
                is_out |= (BEGIN_US + minutes * MINUTE_US >= one.begin_us) & (
                    BEGIN_US + minutes * MINUTE_US <= one.end_us
                )
        acknowledged = np.where(is_out, 0, habit.produced - lost + again)
        return Handing(np.maximum(acknowledged, 0), expired, lost)

    def _incident(self, habit: Habit, kind: str, begin: int, end: int) -> None:
        topic = None if kind == "NOT_ACKNOWLEDGED" else f"topic-{habit.group}"
        queue_id = habit.queue_id if kind in ("FROZEN_HEAD", "SILENT_HEAD") else None
        self.incidents.append(
            Incident(
                BEGIN_US + begin * MINUTE_US, BEGIN_US + end * MINUTE_US, habit.group, kind,
                CLUSTER, topic, queue_id,
            )
        )  # fmt: skip

    def _weekdays(self) -> Iterator[int]:
        return (day for day in range(self.days) if day % 7 < 5)

    def _of(self, *days: int) -> list[int]:
        return [day for day in days if day < self.days]

    @property
    def end_us(self) -> int:
        """The last minute."""
        return BEGIN_US + (self.days * DAY - 1) * MINUTE_US

    def write(self, lake: Lake) -> int:
        """Tell it as bronze, a day at a time; how many rows there are."""
        marks = [marks_of(habit) for habit in self.habits]
        pops = [(one, self.handing_of(one)) for one in self.habits if one.group == POP]
        silent = [one for one in self.habits if one.group == SILENT]
        counts = {
            "group_watermarks": len(marks),
            "pop_watermarks": len(pops),
            "client_windows": len(silent),
        }
        each, seq = sum(counts.values()), 0
        for day in range(self.days):
            minutes = np.arange(day * DAY, (day + 1) * DAY)
            places = _Places(minutes, seq, each)
            _append(lake, "group_watermarks", _rows(self.habits, marks, places))
            if pops:
                _append(lake, "pop_watermarks", _handed_out(pops, places, len(marks)))
            if silent:
                _append(lake, "client_windows", _answers(silent, places, len(marks) + len(pops)))
            _append(lake, "shipments", _shipments(places, counts))
            seq += len(minutes) * each
        return seq


@dataclass(frozen=True, slots=True)
class _Places:
    """Minutes of a day, and where their rows lie."""

    minutes: Minutes
    seq: int
    """The last before."""
    each: int
    """Rows of a minute, of all tables."""

    def common(self, first: int, count: int) -> dict[str, Any]:
        """What all tables have, of `count` rows a minute that lie behind `first` others."""
        rows = len(self.minutes) * count
        at = (self.minutes - self.minutes[0])[:, None] * self.each + first + np.arange(count)
        return {
            "cluster": [CLUSTER] * rows,
            "broker": [BROKER] * rows,
            "broker_epoch": np.full(rows, BEGIN_US - SECOND_US),
            "emitter": [EMITTER] * rows,
            "seq": self.seq + 1 + at.ravel(),
            "event_time": np.repeat(BEGIN_US + self.minutes * MINUTE_US, count),
        }


@dataclass(slots=True)
class Marks:
    """Where a queue stands at the end of each minute."""

    end: Minutes
    committed: Minutes
    pulled: Minutes
    committed_us: Minutes
    """When the group reported an offset last."""
    pulled_us: Minutes
    stored_us: Minutes
    """When the message at the consume offset was stored."""
    reports: Minutes


def marks_of(habit: Habit) -> Marks:
    """The books of a broker over a habit."""
    count = len(habit.produced)
    moments = BEGIN_US + np.arange(count, dtype=np.int64) * MINUTE_US
    end = np.cumsum(habit.produced)
    committed = np.zeros(count, np.int64)
    at = 0
    for minute in range(count):
        if not habit.is_frozen[minute]:
            at = min(int(end[minute]), at + int(habit.capacity[minute]))
        committed[minute] = at
    lives = habit.members > 0
    reports = np.where(lives, REPORTS_A_MINUTE, 0)
    is_rare = (habit.group, habit.queue_id) == (SILENT, 1)
    if is_rare:
        reported = np.arange(count) // REPORTED_EACH * REPORTED_EACH
        committed, reports = committed[reported], (reported == np.arange(count)).astype(np.int64)
    pulled = np.minimum(end, committed + np.where(lives, PULLED_AHEAD, 0))
    newest = np.maximum.accumulate(np.where(lives, moments, 0))
    committed_us = moments[reported] if is_rare else newest
    before = np.searchsorted(end, committed, side="right")
    begins = np.concatenate([[0], end[:-1]])[np.minimum(before, count - 1)]
    made = np.maximum(habit.produced[np.minimum(before, count - 1)], 1)
    part = (committed - begins) * MINUTE_US // made
    stored = BEGIN_US + (np.minimum(before, count - 1) - 1) * MINUTE_US + part
    return Marks(
        end, committed, np.maximum.accumulate(pulled), committed_us, newest,
        np.minimum(stored, moments), reports,
    )  # fmt: skip


def _handed_out(pops: list[tuple[Habit, Handing]], places: _Places, first: int) -> pa.Table:
    """A day of what POP groups were handed out."""
    ((habit, handing),) = pops
    minutes = places.minutes
    end = np.cumsum(habit.produced)[minutes]
    values = {
        **places.common(first, 1),
        "group": [habit.group] * len(minutes),
        "topic": [f"topic-{habit.group}"] * len(minutes),
        "queue_id": np.zeros(len(minutes), np.int64),
        "popped": end,
        "max_offset": end,
        "unacknowledged": handing.unacknowledged[minutes],
        "invisible_ms": np.full(len(minutes), INVISIBLE_MINUTES * 60_000),
        "acknowledged": handing.acknowledged[minutes],
        "expired": handing.expired[minutes],
    }
    return _table("pop_watermarks", values, len(minutes))


def _answers(habits: list[Habit], places: _Places, first: int) -> pa.Table:
    """A day of answers of clients that say that they hold nothing."""
    minutes, keys = places.minutes, len(habits)
    count = len(minutes) * keys
    moments = np.repeat(BEGIN_US + minutes * MINUTE_US, keys)
    none = np.zeros(count, bool)
    values = {
        **places.common(first, keys),
        "client_id": [f"{habit.group}-1" for habit in habits] * len(minutes),
        "group": [habit.group for habit in habits] * len(minutes),
        "topic": [f"topic-{habit.group}" for habit in habits] * len(minutes),
        "queue_id": np.tile([habit.queue_id for habit in habits], len(minutes)),
        "held_count": np.zeros(count, np.int64),
        "held_bytes": np.zeros(count, np.int64),
        "locked": none,
        "dropped": none,
        "answered": ~none,
        "last_pull_time": moments,
    }
    return _table("client_windows", values, count)


def _rows(habits: list[Habit], reported: list[Marks], places: _Places) -> pa.Table:
    """A day of all queues, minute after minute."""
    minutes, keys = places.minutes, len(habits)
    count = len(minutes) * keys

    def woven(columns: list[Any]) -> Any:
        return np.stack(columns, axis=1).ravel()

    def of_each(name: str) -> Any:
        return woven([getattr(marks, name)[minutes] for marks in reported])

    moments = np.repeat(BEGIN_US + minutes * MINUTE_US, keys)
    end, committed = of_each("end"), of_each("committed")
    at_end = end == committed
    is_silent = np.array([habit.group == SILENT for habit in habits])
    stored = pa.array(of_each("stored_us"), mask=at_end)
    values: dict[str, Any] = {
        **places.common(0, keys),
        "group": [habit.group for habit in habits] * len(minutes),
        "topic": [f"topic-{habit.group}" for habit in habits] * len(minutes),
        "queue_id": np.tile([habit.queue_id for habit in habits], len(minutes)),
        "pulled": of_each("pulled"),
        "processed": pa.array(committed, mask=np.tile(is_silent, len(minutes))),
        "committed": committed,
        "persisted": committed,
        "committed_state": np.where(at_end, "AT_END", "EXACT"),
        "store_time_at_committed": stored,
        "min_offset": np.zeros(count, np.int64),
        "max_offset": end,
        "last_store_time": moments,
        "last_puller": [f"{habit.group}-1" for habit in habits] * len(minutes),
        "last_pull_time": of_each("pulled_us"),
        "last_commit_time": of_each("committed_us"),
        "reports": of_each("reports"),
        "members": woven([habit.members[minutes] for habit in habits]),
        "message_model": ["CLUSTERING"] * count,
    }
    return _table("group_watermarks", values, count)


def _shipments(places: _Places, counts: dict[str, int]) -> pa.Table:
    """One each ten minutes; `counts`: rows of a minute, by table."""
    minutes, each = places.minutes, places.each
    lasts = minutes[9::10]
    count = len(lasts)
    tos = places.seq + (lasts - minutes[0] + 1) * each
    rows = [{"table": name, "rows": 10 * one} for name, one in counts.items() if one]
    values: dict[str, Any] = {
        "cluster": [CLUSTER] * count,
        "broker": [BROKER] * count,
        "broker_epoch": np.full(count, BEGIN_US - SECOND_US),
        "emitter": [f"{EMITTER}/shipper"] * count,
        "seq": lasts // 10 + 1,
        "event_time": BEGIN_US + lasts * MINUTE_US,
        "seq_from": tos - 10 * each + 1,
        "seq_to": tos,
        "event_time_to": BEGIN_US + lasts * MINUTE_US,
        "rows": [rows] * count,
    }
    return _table("shipments", values, count)


def _table(name: str, values: dict[str, Any], count: int) -> pa.Table:
    schema = arrow_schema(BY_NAME[name].columns)
    values["event_date"] = pa.array(values["event_time"]).cast(pa.timestamp("us")).cast(pa.date32())
    columns = []
    for one in schema:
        if one.name not in values:
            columns.append(pa.nulls(count, one.type))
            continue
        column = values[one.name]
        made = column if isinstance(column, pa.Array) else None
        if made is None:
            is_nested = pa.types.is_nested(one.type)
            made = pa.array(column, one.type) if is_nested else pa.array(column)
        columns.append(made.cast(one.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _append(lake: Lake, name: str, rows: pa.Table) -> None:
    write_deltalake(lake.bronze(name), rows, mode="append", partition_by=["event_date"])
