"""CPU seconds of this process and everything below it, Spark's JVM and its Python workers too."""

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
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), cpu_seconds()

    def spent(self) -> Spent:
        """Since then."""
        return Spent(time.perf_counter() - self._wall_s, cpu_seconds() - self._cpu_s)


def cpu_seconds() -> float:
    """Of this process and all below it that live, with the children they have waited for."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in _family()) / TICKS_A_SECOND


def resident_bytes() -> dict[str, int]:
    """Memory of each process of the family, by name and number."""
    found = {}
    for pid in _family():
        stat = _stat(pid)
        if stat:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            found[f"{name} {pid}"] = int(stat[21]) * PAGE_BYTES
    return found


def _family() -> list[int]:
    family = [os.getpid()]
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
