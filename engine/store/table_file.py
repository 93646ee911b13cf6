"""A table kept as a JSON file beside its last version (RocketMQ's ConfigManager).

Place in the walk: the offset table each 5 s, topics and groups when they change, the delay cursors
each 10 s. The disk work runs beside the event loop.

Invariant: whenever the process or the power ends, the file or its .bak holds a whole version of the
table: the old file becomes .bak by rename before the new one takes its name, and the new one is
synced before that. Absent on purpose: what the tables mean.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.foundation.errors import CorruptRecord, ProtocolError, StorageError
from engine.foundation.observing import LifecycleEvent, Observer
from engine.protocol.fastjson import dumps, loads
from engine.runtime import Runtime
from engine.runtime.durable_folders import make_durable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """One version on disk: its length, its checksum, and how long it took."""

    size_bytes: int
    crc: int
    duration_us: int


class TableFile:
    """One file and its .bak."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._under_way: asyncio.Task[None] | None = None
        self.path = path

    def load(self, observer: Observer, accept: Callable[[Mapping[str, object]], None]) -> None:
        """Hand the table to `accept`, that of .bak when the file cannot be read; no file is fine.

        `accept` raises CorruptRecord for a table of the wrong form. A damaged file is kept as
        <name>.damaged and told as DAMAGED_FILE and in one log line. Raises CorruptRecord when both
        are damaged: to begin with an empty table would silently forget what was in it.
        """
        faults = []
        for path in (self.path, f"{self.path}.bak"):
            if not self._disk.exists(path):
                continue
            try:
                document = _parse(self._disk.read(path), path)
                accept(document)
            except (CorruptRecord, ProtocolError, StorageError) as error:
                faults.append(str(error))
                continue
            if faults:
                self._tell_damage(observer, f"{faults[0]}; read {path} instead")
            return
        if faults:
            raise CorruptRecord(
                f"{'; '.join(faults)}: remove the damaged files to begin with an empty table"
            )

    def _tell_damage(self, observer: Observer, detail: str) -> None:
        kept = f"{self.path}.damaged"
        self._disk.rename(self.path, kept)
        _log.warning("%s; kept it as %s", detail, kept)
        observer.observe(LifecycleEvent("DAMAGED_FILE", f"{detail}; kept it as {kept}"))

    async def write(self, document: Mapping[str, object]) -> Written:
        """Make `document` the file, beside the loop. Raises DiskFull or StorageError."""
        return await self.write_data(dumps(document))

    async def write_data(self, data: bytes) -> Written:
        """Make `data` the file, beside the loop. Raises DiskFull or StorageError.

        A cancelled write goes on beside the loop, for nobody can stop it; the next one waits for
        its end, because two at a time would take each other's files away.
        """
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])
        begun_us = self._clock.steady_us()
        self._under_way = asyncio.create_task(self._replace_beside(data))
        self._under_way.add_done_callback(_take_note)
        await asyncio.shield(self._under_way)
        return Written(len(data), zlib.crc32(data), self._clock.steady_us() - begun_us)

    async def _replace_beside(self, data: bytes) -> None:
        await self._disk.off_loop(lambda: self._replace(data))

    def _replace(self, data: bytes) -> None:
        disk, fresh = self._disk, f"{self.path}.tmp"
        folder = self.path.rpartition("/")[0]
        make_durable(disk, folder)
        disk.write(fresh, data)
        disk.sync_file(fresh)
        if disk.exists(self.path):
            disk.rename(self.path, f"{self.path}.bak")
        disk.rename(fresh, self.path)
        disk.sync_directory(folder)


def _take_note(done: asyncio.Task[None]) -> None:
    """Whoever began the write may have been cancelled before it failed: its error ends here."""
    if not done.cancelled():
        done.exception()


def _parse(data: bytes, path: str) -> Mapping[str, object]:
    if not data.strip(b"\0 \t\r\n"):
        raise CorruptRecord(f"{path} is empty")
    try:
        document = loads(data)
    except (ProtocolError, ValueError) as error:
        raise CorruptRecord(f"{path} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise CorruptRecord(f"{path} is damaged: it holds no table")
    return document
