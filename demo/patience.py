"""Limits how long to wait for a process, and extends the limit while it makes progress.

A busy machine makes a process late; that is no failure.

Place in the walk: the stage's waits, and each process's. Patience lasts for a number of seconds;
when they are over, a process that has moved meanwhile gets as many again, RENEWALS_MAX times at
most.

Invariant: a process that neither works nor waits for a processor is given up after its time. Absent
on purpose: what counts as a move.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

RENEWALS_MAX: Final = 9
"""Where nobody watches: ten times as long as on a machine that does nothing else."""
SAY_EACH_S: Final = 30.0
WORK_S: Final = 5.0
"""So much work is a move: an idle JVM needs minutes for it."""
NANOSECONDS: Final = 1e9


class Patience:
    """With one thing that is waited for."""

    def __init__(
        self,
        began_s: float,
        within_s: float,
        moving: Callable[[], object],
        *,
        renewals_max: int | None = RENEWALS_MAX,
    ) -> None:
        """`moving` gives whatever changes while there is hope; `renewals_max` None: somebody
        watches, and decides.
        """
        self._within_s = within_s
        self._until_s = began_s + within_s
        self._said_s = began_s
        self._moving = moving
        self._seen = moving()
        self._renewals_left = renewals_max

    def is_over(self, now_s: float) -> bool:
        """Is it in vain?"""
        if now_s <= self._until_s:
            return False
        seen = self._moving()
        if seen == self._seen or self._renewals_left == 0:
            return True
        self._seen, self._until_s = seen, now_s + self._within_s
        if self._renewals_left is not None:
            self._renewals_left -= 1
        return False

    def is_tried(self, now_s: float) -> bool:
        """Is it time for a word to whoever watches? Once each TELL_EACH_S."""
        if now_s < self._said_s + SAY_EACH_S:
            return False
        self._said_s = now_s
        return True


def work_of(group_id: int) -> int:
    """How often the threads of a process group have run, or waited for a processor, for WORK_S."""
    return int(worked_s(group_id) / WORK_S)


def worked_s(group_id: int) -> float:
    """Seconds in which threads of a process group have run, or waited for a processor."""
    stats = Path("/proc").glob("[0-9]*/stat")
    return sum(_worked_s(stat.parent) for stat in stats if _group(stat) == group_id)


def _group(stat: Path) -> int | None:
    """Of the process that this reports on; None when it is gone."""
    with contextlib.suppress(OSError):
        # The name before it may have blanks and brackets: state, parent and group follow.
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[2])
    return None


def _worked_s(process: Path) -> float:
    worked_s = 0.0
    for schedule in process.glob("task/*/schedstat"):
        with contextlib.suppress(OSError):
            ran, waited, _ = schedule.read_text().split()
            worked_s += (int(ran) + int(waited)) / NANOSECONDS
    return worked_s
