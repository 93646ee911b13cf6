"""The .properties file that a party was started with, changed in place.

Place in the walk: beside it; a change accepted while running is here before it is in force.

Invariant: the user's comments and other settings stay as they are, and the version before is kept
as .bak. Absent on purpose: which changes are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.foundation.config_layers import text_of
from engine.foundation.java_properties import changed
from engine.runtime import Runtime
from engine.store.table_file import TableFile


class SettingsFile:
    """One file, made when missing."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._disk = runtime.disk
        self._file = TableFile(runtime, path)

    async def change(self, changes: Mapping[str, str]) -> None:
        """Set these keys. Raises DiskFull or StorageError; then nothing has changed."""
        path = self._file.path
        text = text_of(self._disk.read(path)) if self._disk.exists(path) else ""
        await self._file.write_data(changed(text, changes).encode())
