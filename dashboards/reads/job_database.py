"""Opens the job database on first use by a page and keeps it open.

The database may be away for a while; after a failure it is tried again.

Invariant: looking at a page creates no database where there is none. Safe for use by several
threads. Absent on purpose: reading it, which `pipelines.scheduler.store` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from engine.foundation.errors import ConfigError, StorageError, TidemarkError
from pipelines.database.database import FILE_NAME, Database, home_folder, opened

AWAY_S: Final = 2.0
"""After a failure to open it nobody tries again for so long: each try may wait some seconds."""


class JobDatabase:
    """The database at an address, or that of the home folder once there is one."""

    def __init__(
        self, address: str | None = None, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._failed: tuple[float, TidemarkError] | None = None

    def opened(self) -> Database | None:
        """The database; None when nobody has made one yet. Raises StorageError or ConfigError."""
        with self._lock:
            if self._database is not None:
                return self._database
            if self._failed is not None and self._clock_s() - self._failed[0] < AWAY_S:
                raise self._failed[1]
            if self._address is None and not (home_folder() / FILE_NAME).exists():
                return None
            try:
                self._database = opened(self._address)
            except (StorageError, ConfigError) as error:
                self._failed = (self._clock_s(), error)
                raise
            self._failed = None
            return self._database

    def close(self) -> None:
        """Give its connections back."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None
