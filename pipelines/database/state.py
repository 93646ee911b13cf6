"""Opens the database that holds all state outside the lake, by default in the home folder.

Place in the walk: below the commands. Absent on purpose: tables, which are the store's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from pipelines.database.database import Database

HOME: Final = "TIDEMARK_HOME"
"""The variable that names the home folder."""


def now_us() -> int:
    """µs since 1970, by the clock of this machine."""
    return time.time_ns() // 1000


def home_folder() -> Path:
    """Where state is kept that is not the lake's."""
    return Path(os.environ.get(HOME) or Path.home() / ".tidemark")


def opened(database: str | None) -> Database:
    """The database at an address, else that of the home folder; as `Database` raises."""
    return Database.in_folder(home_folder()) if database is None else Database.at(database)
