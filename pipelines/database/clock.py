"""Provides the database's clock as the common time source for processes on all machines.

Place in the walk: below the centre and the commands. Moments that one process writes and another
compares (when a run is due, until when it is claimed) must be of one clock: two machines may be
apart by seconds. Absent on purpose: executors' clocks, of which nothing is compared with these.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from pipelines.database.database import Database

ROUND_TRIP_MS_MAX: Final = 500
"""A question that took longer says too little: the clock stays as it was set before."""
APART_MS: Final = 1_000
"""When the machine's clock is so far from the database's, the log says so."""

_log = logging.getLogger(__name__)


def machine_ms() -> int:
    """ms since 1970, by the clock of this machine."""
    return time.time_ns() // 1_000_000


def database_ms(database: Database) -> int:
    """ms since 1970, by the clock of the database."""
    with database.reading() as connection:
        if connection.dialect.name == "sqlite":
            return machine_ms()
        seconds = sa.extract("epoch", sa.func.clock_timestamp())
        return int(connection.execute(sa.select(seconds * 1000)).scalar_one())


class SharedClock:
    """The machine's clock, set by the database's; wrong by half of ROUND_TRIP_MS_MAX at most."""

    def __init__(self, own_ms: Callable[[], int], asked_ms: Callable[[], int]) -> None:
        """`asked_ms` asks the database, and may block."""
        self._own_ms = own_ms
        self._asked_ms = asked_ms
        self._ahead_ms: int | None = None

    def now_ms(self) -> int:
        """ms since 1970."""
        return self._own_ms() + (self._ahead_ms or 0)

    def set(self) -> None:
        """Ask what time it is. Raises StoreUnavailable, and stays as it was."""
        before_ms = self._own_ms()
        server_ms = self._asked_ms()
        took_ms = self._own_ms() - before_ms
        is_known = self._ahead_ms is not None
        if is_known and not 0 <= took_ms <= ROUND_TRIP_MS_MAX:
            return
        ahead_ms = server_ms - before_ms - took_ms // 2
        if abs(ahead_ms) >= APART_MS and abs(ahead_ms - (self._ahead_ms or 0)) >= APART_MS:
            _log.warning("the database's clock is %d ms ahead of this machine's", ahead_ms)
        self._ahead_ms = ahead_ms
