"""Measures the CPU time used by a process and its descendants, such as Spark's JVM."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Spent:
    """What something took."""

    wall_s: float
    cpu_s: float


class Clock:
    """Counts from when it is made, of this process or of another."""

    def __init__(self, of: int | None = None) -> None:
        self._of = of
        self._wall_s, self._cpu_s = time.perf_counter(), cpu_seconds(of)

    def spent(self) -> Spent:
        """Since then."""
        return Spent(time.perf_counter() - self._wall_s, cpu_seconds(self._of) - self._cpu_s)


def cpu_seconds(of: int | None = None) -> float:
    """Of a process (this one) and all below it that live, with the children they have waited
    for."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in family_of(of)) / TICKS_A_SECOND


def own_seconds(of: int) -> float:
    """Of one process alone, without its children."""
    return sum(map(int, _stat(of)[11:13])) / TICKS_A_SECOND


def resident_bytes(of: int | None = None) -> dict[int, tuple[str, int]]:
    """Name and memory of each process of a family, by number."""
    found = {}
    for pid in family_of(of):
        stat = _stat(pid)
        if stat:
            found[pid] = (_name(pid), int(stat[21]) * PAGE_BYTES)
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def family_of(of: int | None = None) -> list[int]:
    """A process (this one) and all below it, by number, parents first."""
    family = [os.getpid() if of is None else of]
    for pid in family:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                family.extend(int(child) for child in task.read_text(encoding="utf-8").split())
            except OSError:
                continue  # It has ended since.
    return family


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name; none when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
