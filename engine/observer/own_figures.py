"""Parses a broker's own statistics about its log and delay levels into rows.

Place in the walk: the answer to GET_BROKER_RUNTIME_INFO → `Look.figures` → `facts`. Pure.

A broker gives the part of its log that is not flushed as a text of two digits or three ("2.1 KiB"),
so where it is flushed to lies between two numbers. A flush has surely ended when both of a look lie
beyond both of the look before. A delay level says where it reads and where its queue ends: what lay
in it longer ago than its delay, and was not read, is overdue, whatever the group.

Invariant: a figure that is missing, or is no number, is not there; nothing is reported of a flush's
time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.foundation.observing import DelayLevel, FlushDone, LifecycleEvent
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.observer.believable import OFFSET_MAX
from engine.observer.replicas_seen import ReplicaFigures, ReplicasSeen

LEVELS_MAX: Final = 64
"""There are 18 unless a broker is configured with others."""
LEVEL_KEY: Final = "scheduleMessageOffset_"
ALL_GROUPS: Final = "*"
"""No group is called so: a level has messages of all, and those that were sent with a delay."""
LATE_ALLOWED_MS: Final = 5 * SECOND_MS
"""A level looks what is due a few times a second."""
ENDS_KEPT_MAX: Final = 1_000
"""Of a level: a look each ten seconds over two hours."""
EMITTED_EACH_MS: Final = 10 * MINUTE_MS
"""What waits is reported again, changed or not."""
_SIZE: Final = re.compile(r"(\d{1,15})(?:\.(\d))? ?([KMGTPE]i?)?B")
_DELAY: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class LogFigures:
    """How far the log is written, and between which two positions flushed."""

    written: int
    flushed_least: int
    flushed_most: int


@dataclass(frozen=True, slots=True)
class OwnFigures:
    """Of one look."""

    log: LogFigures | None = None
    levels: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Per delay level where it reads and where its queue ends."""
    replicas: ReplicaFigures | None = None
    """None: it was not asked, or does not say."""


def own_figures(figures: Mapping[str, str]) -> OwnFigures:
    """As far as they can be believed."""
    return OwnFigures(_log(figures), dict(_levels(figures)))


def delays_ms(text: str) -> dict[int, int]:
    """`1s 5s 10s`: the delay of each level, from 1 on; none of what is no such list."""
    delays = {}
    for level, part in enumerate(text.split()[:LEVELS_MAX], 1):
        found = _DELAY.fullmatch(part)
        if found is None:
            return {}
        delays[level] = int(found[1]) * _UNITS_MS[found[2]]
    return delays


def bytes_between(text: str) -> tuple[int, int] | None:
    """The least and the most that a size in words may be; None: it is none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    prefix = found[3] or ""
    unit = 1
    if prefix:
        base = 1024 if prefix.endswith("i") else 1000
        unit = base ** ("KMGTPE".index(prefix[0]) + 1)
    tenths = 10 * int(found[1]) + int(found[2] or 0)
    if not prefix:
        return tenths // 10, tenths // 10
    return max(0, (2 * tenths - 1) * unit // 20), -(-(2 * tenths + 1) * unit // 20)


class FiguresSeen:
    """The figures that were emitted of one broker in its life, and the next ones."""

    def __init__(self) -> None:
        self._log: LogFigures | None = None
        self._ends: dict[int, deque[tuple[int, int]]] = {}
        """Per level when its queue was first seen to end there."""
        self._emitted: dict[int, tuple[DelayLevel, int]] = {}
        self._replicas = ReplicasSeen()

    def of(
        self, figures: OwnFigures, delays: Mapping[int, int], at_ms: int
    ) -> Iterator[FlushDone | DelayLevel | LifecycleEvent]:
        """The facts of a look."""
        if figures.replicas is not None:
            yield from self._replicas.of(figures.replicas, at_ms)
        if figures.log is not None:
            yield from self._flushed(figures.log)
        for level, (cursor, end) in sorted(figures.levels.items()):
            delay_ms = delays.get(level)
            if delay_ms is None:
                continue
            due_end = self._end_that_is_due(level, end, at_ms, at_ms - delay_ms - LATE_ALLOWED_MS)
            overdue = max(0, due_end - cursor)
            mark = DelayLevel(ALL_GROUPS, level, delay_ms, cursor, end, overdue)
            emitted, emitted_ms = self._emitted.get(level, (None, 0))
            is_due = cursor < end and at_ms - emitted_ms >= EMITTED_EACH_MS
            is_news = mark != emitted and (emitted is not None or cursor < end)
            if is_news or is_due:
                self._emitted[level] = (mark, at_ms)
                yield mark

    def _flushed(self, now: LogFigures) -> Iterator[FlushDone]:
        before, self._log = self._log, now
        waits = now.flushed_most < now.written
        if before is None or (before == now and not waits):
            return
        yield FlushDone(
            "COMMIT_LOG",
            "FLUSH",
            "TIMER",
            written=now.written,
            flushed=now.flushed_least,
            store_time_ms=None,
            duration_us=0,
            ended=1 if now.flushed_least > before.flushed_most else 0,
        )

    def _end_that_is_due(self, level: int, end: int, at_ms: int, due_ms: int) -> int:
        """Where the queue ended, at least, at that earlier moment."""
        ends = self._ends.setdefault(level, deque(maxlen=ENDS_KEPT_MAX))
        if ends and ends[-1][1] > end:  # Another queue.
            ends.clear()
        if not ends or ends[-1][1] < end:
            ends.append((at_ms, end))
        while len(ends) > 1 and ends[1][0] <= due_ms:
            ends.popleft()
        return ends[0][1] if ends[0][0] <= due_ms else 0


def _log(figures: Mapping[str, str]) -> LogFigures | None:
    written = figures.get("commitLogMaxOffset", "")
    waiting = bytes_between(figures.get("remainHowManyDataToFlush", ""))
    if not _is_offset(written) or waiting is None:
        return None
    end = int(written)
    return LogFigures(end, max(0, end - waiting[1]), max(0, end - waiting[0]))


def _levels(figures: Mapping[str, str]) -> Iterator[tuple[int, tuple[int, int]]]:
    for name, value in figures.items():
        level = name.removeprefix(LEVEL_KEY)
        if level == name or not level.isdecimal() or not 1 <= int(level[:4]) <= LEVELS_MAX:
            continue
        cursor, comma, end = value.partition(",")
        if comma and _is_offset(cursor) and _is_offset(end):
            yield int(level), (int(cursor), int(end))


def _is_offset(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 20 and int(text) < OFFSET_MAX
