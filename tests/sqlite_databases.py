"""SQLite databases with tables of this version, without migrating each of them: a tenth of a second
for whoever tests something else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from pipelines.database.database import Database

NAME = "tidemark.db"

Returned = TypeVar("Returned")


def address_in(folder: Path) -> str:
    """The address of the database of a folder."""
    return f"sqlite:///{folder / NAME}"


def filled_by(fill: Callable[[Database], Returned]) -> tuple[bytes, Returned]:
    """The file of a new database that `fill` has written to, and what it returned."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database.at(address_in(Path(folder)))
        returned = fill(database)
        database.close()
        return Path(folder, NAME).read_bytes(), returned


@cache
def _empty() -> bytes:
    return filled_by(lambda _: None)[0]


def laid_in(folder: Path, file: bytes | None = None) -> str:
    """The address of the database of a folder: a copy of `file`, or one without rows, unless it is
    there.
    """
    place = folder / NAME
    if not place.exists():
        place.touch(mode=0o600)
        place.write_bytes(_empty() if file is None else file)
    return address_in(folder)
