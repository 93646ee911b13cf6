"""Manages one delay log for each hour that has timers, and keeps only a few open.

Place in the walk: between the wheel and the files (`hour_log`).

Invariant: an hour is known here if its file is there. Absent on purpose: when an hour's time comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final
from zlib import crc32

from engine.delay.wheel.hour_log import SECONDS, Entry, HourLog
from engine.runtime import Disk
from engine.runtime.durable import make_durable

OPEN_LOGS_MAX: Final = 64
"""Delay logs that are open at a time."""
_NAME_DIGITS: Final = 10


class HourLogs:
    """One folder of delay logs, each named by the hours since 1970."""

    def __init__(self, disk: Disk, folder: str, store_id: str) -> None:
        self._disk = disk
        self._seal = crc32(store_id.encode())
        self.folder = folder
        """Where they are."""
        make_durable(disk, folder)
        self._counts = {int(name): 0 for name in disk.names(folder) if name.isdigit()}
        """Hour → how many entries it has, once it was cut or appended to."""
        self._open: OrderedDict[int, HourLog] = OrderedDict()
        self._changed: set[int] = set()
        """Appended to since the last sync."""

    def hours(self) -> list[int]:
        """Those that have a log, in order."""
        return sorted(self._counts)

    def __contains__(self, hour: int) -> bool:
        return hour in self._counts

    def sizes(self, without: Collection[int] = ()) -> tuple[int, int]:
        """How many hours have a log, and how many entries those have."""
        gone = [self._counts[hour] for hour in without]
        return len(self._counts) - len(gone), sum(self._counts.values()) - sum(gone)

    def count_between(self, first: int, end: int) -> int:
        """How many entries the seconds of [first, end) have, since 1970."""
        count = 0
        for hour in self._counts:
            if hour * SECONDS >= end or (hour + 1) * SECONDS <= first:
                continue
            is_whole = first <= hour * SECONDS and (hour + 1) * SECONDS <= end
            count += self._counts[hour] if is_whole else self.of(hour).count_between(first, end)
        return count

    def count_in(self, hour: int, first: int) -> int:
        """How many entries the seconds of an hour from `first` on have."""
        if hour not in self._counts:
            return 0
        if first <= hour * SECONDS:
            return self._counts[hour]
        return self.of(hour).count_between(first, (hour + 1) * SECONDS)

    def count_from(self, first: int) -> int:
        """How many entries all seconds from this one on have."""
        return self.count_between(first, (max(self._counts, default=-1) + 1) * SECONDS)

    def of(self, hour: int) -> HourLog:
        """The log of an hour; made when it is not there."""
        log = self._open.get(hour)
        if log is None:
            while len(self._open) >= OPEN_LOGS_MAX:
                _, oldest = self._open.popitem(last=False)
                oldest.close()
            log = self._open[hour] = HourLog(self._disk, self._path(hour), hour, self._seal)
            self._counts.setdefault(hour, 0)
        self._open.move_to_end(hour)
        return log

    def append(self, hour: int, entries: Sequence[Entry]) -> list[int]:
        """Add entries of an hour; return the seconds that had none."""
        self._changed.add(hour)
        log = self.of(hour)
        firsts = log.append(entries)
        self._counts[hour] = log.count
        return firsts

    def take_changed(self) -> list[str]:
        """Paths of those appended to since this was asked last: the disk is to have them."""
        changed, self._changed = sorted(self._changed & self._counts.keys()), set()
        return [self._path(hour) for hour in changed]

    def give_back(self, paths: list[str]) -> None:
        """The disk does not have these yet."""
        self._changed.update(int(path.rpartition("/")[2]) for path in paths)

    def cut(self, log_offset: int) -> None:
        """Drop entries of what lies at `log_offset` of the commit log or behind it."""
        for hour in self.hours():
            log = self.of(hour)
            log.cut(log_offset)
            self._counts[hour] = log.count
            if not log.count:
                self.remove(hour)

    def remove(self, hour: int) -> None:
        """An hour has no entry that is still of use."""
        log = self._open.pop(hour, None)
        if log is not None:
            log.close()
        self._disk.remove(self._path(hour))
        self._counts.pop(hour, None)
        self._changed.discard(hour)

    def clear(self) -> None:
        """No hour has an entry."""
        for hour in self.hours():
            self.remove(hour)

    def close(self) -> None:
        """Give all descriptors back."""
        while self._open:
            self._open.popitem()[1].close()

    def _path(self, hour: int) -> str:
        return f"{self.folder}/{hour:0{_NAME_DIGITS}d}"
