"""Keeps the Delta logs of the lake's tables short; each writer shortens its own.

Place in the walk: behind commits of gold, plans, alerts, checks and reports; the maintainer looks
at all of them once a round. `engine.telemetry.shipper.short_logs` says what is done, and why it is
safe. Absent on purpose: decisions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deltalake.exceptions import DeltaError

from engine.telemetry.shipper.short_logs import HOOKS, NoCommit, ShortLog
from pipelines.lake.lake import Lake, first_line

__all__ = ["HOOKS", "TOLD_FROM", "LogsTidied", "NoCommit", "ShortLog", "shorten", "shorten_log"]

SHORTENED_FOR_S: Final = 0.5
"""CPU seconds a cycle: the logs of an earlier version, with two days of entries, are worked off
cycle by cycle."""

TOLD_FROM: Final = 1_000
"""Entries of one look that are worth a line: a log that was short before has fewer."""


@dataclass(frozen=True, slots=True)
class LogsTidied:
    """What looks at several logs have done."""

    moved: int = 0
    left: int = 0
    """Entries of these logs that the next looks move; there may be more in others."""
    trouble: str = ""
    """Why one could not be shortened; nothing is lost by it."""

    def __str__(self) -> str:
        """Empty for what is done in every minute."""
        if self.trouble:
            return f"a table's log is not shortened: {self.trouble}"
        if self.moved < TOLD_FROM and not self.left:
            return ""
        return f"{self.moved} old log entries moved aside, {self.left} or more are left for later"


def shorten(logs: Iterable[ShortLog], *, for_s: float = SHORTENED_FOR_S) -> LogsTidied:
    """Shorten the logs that are due, one at least, and no further one after so many CPU seconds:
    what is left waits for the next call."""
    moved, left, trouble = 0, 0, ""
    ends_s = time.thread_time() + for_s
    for log in logs:
        if moved and time.thread_time() >= ends_s:
            break
        try:
            done = log.shorten()
        except (OSError, DeltaError) as error:
            trouble = first_line(error)
            continue
        moved, left = moved + done.moved, left + done.left
    return LogsTidied(moved, left, trouble)


def shorten_log(lake: Lake, address: str) -> LogsTidied:
    """Look at the log of one table now; nothing is done where there is none."""
    assert address.startswith(lake.root), f"{address} is not in {lake.root}"
    return shorten([ShortLog(address, lake.storage_options)])
