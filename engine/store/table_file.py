"""Durable broker files: JSON tables, each with its previous version, and .properties files.

A table is kept as in RocketMQ's ConfigManager; the .properties file that a party was started with
is changed in place, beside its last version.

Place in the walk: the offset table each 5 s, topics and groups when they change, the delay cursors
each 10 s; a setting changed while running, before it is in force. The disk work runs beside the
event loop.

Invariant: whenever the process or the power ends, the file or its .bak holds a whole version of the
table: the old file becomes .bak by rename before the new one takes its name, and the new one is
synced before that. What is not as it was written is reported. A user's comments and other settings
stay as they are. Absent on purpose: what the tables mean, which settings may change.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from engine.foundation.config_layers import text_of
from engine.foundation.errors import CorruptRecord, ProtocolError, StorageError
from engine.foundation.java_properties import changed
from engine.foundation.observing import FlushDone, LifecycleEvent, Observer, report
from engine.protocol.fastjson import dumps, loads
from engine.runtime import Disk, Runtime
from engine.runtime.durable import make_durable

_log = logging.getLogger(__name__)

CHANGED = "is not as it was written: changed by hand, or damaged; it is taken as it is"


class Source(Enum):
    """Where a table came from."""

    FILE = "the file itself"
    BACKUP = "the version before it"
    NOTHING = "there is none"


@dataclass(frozen=True, slots=True)
class Written:
    """One version on disk: its length, its checksum, and how long it took."""

    size_bytes: int
    crc: int
    duration_us: int

    def persisted(self, component: str, cause: str) -> FlushDone:
        """The fact of it. See table flush_checkpoints."""
        return FlushDone(
            component,
            "PERSIST",
            cause,
            written=self.size_bytes,
            flushed=None,
            store_time_ms=None,
            duration_us=self.duration_us,
            content_crc=self.crc,
        )


class TableFile:
    """One file and its .bak."""

    def __init__(self, runtime: Runtime, path: str, store_id: str | None = None) -> None:
        """`store_id`: of the store whose table this is; None: of none, any is taken."""
        self._store_id = store_id
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._under_way: asyncio.Task[tuple[int, int]] | None = None
        self._is_changed = False
        """Was what was read last not as it was written?"""
        self._written_ms = 0
        """When the newest version that is known was written."""
        self.path = path

    @property
    def is_there(self) -> bool:
        """Is there the file itself? The version before it does not count."""
        return self._disk.exists(self.path)

    def load(self, observer: Observer, accept: Callable[[Mapping[str, object]], None]) -> Source:
        """Hand the table to `accept`, that of .bak when the file cannot be read or is missing;
        report where it came from. No file at all is fine.

        `accept` raises CorruptRecord for a table of the wrong form. A damaged file is kept as
        <name>.damaged; damage and loss are reported as DAMAGED_FILE and in one log line. Raises
        CorruptRecord when nothing readable is left: to begin with an empty table would silently
        forget what was in it.
        """
        path, backup = self.path, f"{self.path}.bak"
        faults = []
        if self._disk.exists(path):
            fault = self._older_than(backup) or self._fault_of(path, accept)
            if fault is None:
                if self._is_changed:
                    self._report_change(observer)
                return Source.FILE
            faults.append(fault)
        elif self._finish_replacing(accept):
            return Source.FILE
        if self._disk.exists(backup):
            fault = self._fault_of(backup, accept)
            if fault is None:
                self._report_damage(
                    observer, f"{(*faults, f'{path} is missing')[0]}; read {backup}"
                )
                return Source.BACKUP
            faults.append(fault)
        if faults:
            raise CorruptRecord(
                f"{'; '.join(faults)}: remove the damaged files to begin with an empty table"
            )
        return Source.NOTHING

    def _older_than(self, backup: str) -> str | None:
        """Why the version before is the newer one: they were swapped; None when it is not."""
        if not self._disk.exists(backup):
            return None
        here, there = (seal_of(self._disk.read(path)) for path in (self.path, backup))
        if here is None or there is None or here.written_ms >= there.written_ms:
            return None
        if not (here.fits and there.fits) or here.store_id != there.store_id:
            return None
        return f"{self.path} is older than {backup}"

    def _fault_of(self, path: str, accept: Callable[[Mapping[str, object]], None]) -> str | None:
        """Why the table at `path` cannot be taken over; None when it was."""
        self._is_changed = False
        try:
            data = self._disk.read(path)
            document = _parse(data, path)
            self._check_store(document, path)
            for name in SEAL_FIELDS:
                document.pop(name, None)
            accept(document)
        except (CorruptRecord, ProtocolError, StorageError) as error:
            return str(error)
        seal = seal_of(data)
        self._is_changed = seal is not None and not seal.fits
        self._written_ms = max(self._written_ms, seal.written_ms if seal is not None else 0)
        return None

    def _check_store(self, document: Mapping[str, object], path: str) -> None:
        store_id = document.get(STORE_ID)
        if self._store_id is not None and store_id not in (None, self._store_id):
            raise CorruptRecord(
                f"{path} is of another store, {store_id}; this one is {self._store_id} (without "
                f"its field {STORE_ID!r} it is taken)"
            )

    def _finish_replacing(self, accept: Callable[[Mapping[str, object]], None]) -> bool:
        """Between the two renames of a write only the fresh version and .bak have names: the fresh
        one, whole and synced before, is the table.
        """
        fresh = f"{self.path}.tmp"
        if not self._disk.exists(f"{self.path}.bak") or not self._disk.exists(fresh):
            return False
        if self._fault_of(fresh, accept) is not None or self._is_changed:
            return False
        self._disk.rename(fresh, self.path)
        return True

    def _report_change(self, observer: Observer) -> None:
        report(observer, _log, LifecycleEvent("CHANGED_FILE", f"{self.path} {CHANGED}"))

    def _report_damage(self, observer: Observer, detail: str) -> None:
        detail += f" instead{self._put_aside()}"
        report(observer, _log, LifecycleEvent("DAMAGED_FILE", detail))

    def _put_aside(self) -> str:
        """Out of the way of the version that was read; where the damaged one is now, in words."""
        if not self._disk.exists(self.path):
            return ""
        kept = f"{self.path}.damaged"
        self._disk.rename(self.path, kept)
        return f"; kept it as {kept}"

    def report_missing(self, observer: Observer, consequence: str) -> None:
        """Nothing is left of a table that had been written: say so, and what that means."""
        detail = f"{self.path} and its .bak are gone: {consequence}"
        report(observer, _log, LifecycleEvent("DAMAGED_FILE", detail))

    async def write(self, document: Mapping[str, object], *, both: bool = False) -> Written:
        """Make `document` the file, sealed, beside the loop; `both`: and the version before it, so
        that what was deleted is in neither. Raises DiskFull or StorageError.
        """
        return await self.write_sealed(dumps(document), both=both)

    async def write_sealed(self, data: bytes, *, both: bool = False) -> Written:
        """As `write`, of an object in JSON."""
        if both:
            await self.write_sealed(data)
        self._written_ms = written_ms = max(self._clock.now_ms(), self._written_ms + 1)
        return await self._write(lambda: sealed(data, written_ms, self._store_id))

    async def write_data(self, data: bytes) -> Written:
        """Make `data` the file, beside the loop. Raises DiskFull or StorageError."""
        return await self._write(lambda: data)

    async def _write(self, content: Callable[[], bytes]) -> Written:
        """Make `content` the file, beside the loop, where its checksums are made as well: those of
        30 MB take 0.1 s.

        A cancelled write goes on beside the loop, for nobody can stop it; the next one waits for
        its end, because two at a time would take each other's files away.
        """
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])
        begun_us = self._clock.steady_us()
        self._under_way = asyncio.create_task(self._replace_beside(content))
        self._under_way.add_done_callback(_take_note)
        size_bytes, crc = await asyncio.shield(self._under_way)
        return Written(size_bytes, crc, self._clock.steady_us() - begun_us)

    async def _replace_beside(self, content: Callable[[], bytes]) -> tuple[int, int]:
        return await self._disk.off_loop(lambda: self._replace(content()))

    def _replace(self, data: bytes) -> tuple[int, int]:
        """Replace the file; its length and its CRC-32."""
        disk, fresh = self._disk, f"{self.path}.tmp"
        folder = self.path.rpartition("/")[0]
        make_durable(disk, folder)
        disk.write(fresh, data)
        disk.sync_file(fresh)
        if disk.exists(self.path):
            disk.rename(self.path, f"{self.path}.bak")
        disk.rename(fresh, self.path)
        disk.sync_directory(folder)
        return len(data), zlib.crc32(data)


class SettingsFile:
    """One .properties file, made when missing."""

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._disk = runtime.disk
        self._file = TableFile(runtime, path)

    async def change(self, changes: Mapping[str, str]) -> None:
        """Set these keys. Raises DiskFull or StorageError; then nothing has changed."""
        path = self._file.path
        text = text_of(self._disk.read(path)) if self._disk.exists(path) else ""
        await self._file.write_data(changed(text, changes).encode())


STORE_ID = "store"
SEAL_FIELDS = ("crc32", "written", STORE_ID)
"""Fields of ours that stand before a table's own; RocketMQ ignores them."""
_SEALED = re.compile(
    rb'\{"crc32":"([0-9a-f]{8})",("written":(\d{1,18}),(?:"store":"([0-9a-f]*)",)?.*)', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Seal:
    """What a table's file says about itself."""

    fits: bool
    """Is the file as it was written?"""
    written_ms: int
    store_id: str | None


def sealed(data: bytes, written_ms: int, store_id: str | None) -> bytes:
    """An object in JSON with the checksum of the rest as its first field, then when and for which
    store it was written.

    A flipped bit often leaves a good document that says something else.
    """
    assert len(data) > 2, "a table has fields"
    seal = b'"written":%d,' % written_ms
    if store_id is not None:
        seal += b'"store":"%s",' % store_id.encode()
    rest = seal + data[1:]
    return b'{"crc32":"%08x",%s' % (zlib.crc32(rest), rest)


def seal_of(data: bytes) -> Seal | None:
    """The seal of a file; None for one without, which is RocketMQ's, or somebody's."""
    found = _SEALED.fullmatch(data)
    if found is None:
        return None
    fits = int(found[1], 16) == zlib.crc32(found[2])
    return Seal(fits, int(found[3]), found[4].decode() if found[4] is not None else None)


def store_id_of(runtime: Runtime, folder: str) -> str:
    """The store's id: that of most of its tables, else a new one."""
    return store_id_in(runtime.disk, folder) or runtime.entropy.token(8).hex()


def store_id_in(disk: Disk, folder: str) -> str | None:
    """The id that most of a store's tables name; None when none does."""
    ids: dict[str, int] = {}
    for name in disk.names(folder):
        if not name.endswith((".json", ".json.bak")):
            continue
        seal = seal_of(disk.read(f"{folder}/{name}"))
        if seal is not None and seal.fits and seal.store_id:
            ids[seal.store_id] = ids.get(seal.store_id, 0) + 1
    return max(sorted(ids), key=ids.__getitem__) if ids else None


def _take_note(done: asyncio.Task[tuple[int, int]]) -> None:
    """Whoever began the write may have been cancelled before it failed: its error ends here."""
    if not done.cancelled():
        done.exception()


def _parse(data: bytes, path: str) -> dict[str, object]:
    if not data.strip(b"\0 \t\r\n"):
        raise CorruptRecord(f"{path} is empty")
    try:
        document = loads(data)
    except (ProtocolError, ValueError) as error:
        raise CorruptRecord(f"{path} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise CorruptRecord(f"{path} is damaged: it holds no table")
    return document
