"""Broker settings saved in a store, as a .properties file with a `.bak` copy.

Place in the walk: read before anything of the store is open, because the settings say how it is
opened; looked after once the store is ours; written when a tool changes a setting.

The file stays one that a person can read and edit. Its last line is its seal, a comment:

    fileReservedTime=240
                                                             ↓ CRC-32 of all before it
    # sealed: written=1700000000000 store=0123456789abcdef crc32=89abcdef

Invariant: a setting that was changed for good is served by the next start, or the start reports it.
The copy holds what the file holds, so that one of them may be lost or damaged without harm; each
takes its name in one step, the file first. Absent on purpose: which settings there are, and what
they mean; the file that a broker was started with, which is its user's.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from engine.foundation.config_layers import text_of
from engine.foundation.errors import ConfigError, CorruptRecord, StorageError
from engine.foundation.java_properties import changed, parse
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.runtime import Disk, Runtime
from engine.runtime.durable import make_durable, replace_durably
from engine.store.table_file import CHANGED, Seal, TableFile, store_id_in

Made = TypeVar("Made")

_log = logging.getLogger(__name__)

_SEAL_LINE = re.compile(rb"^# sealed: written=[^\n]*(?:\n|\Z)", re.MULTILINE)
_SEAL = re.compile(
    rb"^# sealed: written=(\d{1,18})(?: store=([0-9a-f]+))? crc32=([0-9a-f]{8})\n\Z", re.MULTILINE
)
_CRC_BYTES = len("89abcdef\n")


@dataclass(frozen=True, slots=True)
class _Version:
    """The file or its copy, as it is."""

    path: str
    data: bytes | None
    """None: it is not there."""
    seal: Seal | None

    @property
    def fits(self) -> bool:
        """Is it as it was written?"""
        return self.seal is not None and self.seal.fits

    @property
    def body(self) -> bytes:
        """The settings, without the seal."""
        return _SEAL_LINE.sub(b"", self.data or b"")

    def fault(self, store_id: str | None) -> str | None:
        """Why nobody can take it, whatever the other one says."""
        if self.data is None:
            return f"{self.path} is missing"
        if not self.data.strip(b"\0 \t\r\n"):
            return f"{self.path} is empty"
        its_store = None if self.seal is None else self.seal.store_id
        if its_store is not None and store_id is not None and its_store != store_id:
            return f"{self.path} is of another store, {its_store}; this one is {store_id}"
        return None


def sealed_settings(body: bytes, written_ms: int, store_id: str | None) -> bytes:
    """A .properties file with its seal."""
    lines = body.rstrip(b"\r\n")
    seal = b"# sealed: written=%d " % written_ms
    if store_id is not None:
        seal += b"store=%s " % store_id.encode()
    whole = lines + (b"\n\n" if lines else b"") + seal + b"crc32="
    return whole + b"%08x\n" % zlib.crc32(whole)


def read_kept(
    disk: Disk, path: str, *, known: Collection[str], make: Callable[[bytes], Made]
) -> tuple[Made, LifecycleEvent | None]:
    """What `make` makes of the settings at `path`, those of its copy when the file is damaged or
    missing; and what an operator has to know of that. Neither of them there: of none. Nothing is
    changed: another process may be at work on the store.

    A file that is not as it was written is taken, as any table is, unless it says what no broker
    understands: a key that is not among the `known` ones and not in the copy, or a value that
    `make` refuses. Raises ConfigError of `make`, CorruptRecord when no readable version is left.
    """
    file, copy = _version_at(disk, path), _version_at(disk, f"{path}.bak")
    if file.data is None and copy.data is None:
        return make(b""), None
    store_id = store_id_in(disk, path.rpartition("/")[0])
    refusal: ConfigError | None = None
    fault = _fault_of(file, copy, store_id)
    if fault is None:
        if file.fits or (file.seal is None and not copy.fits):
            return make(file.body), None
        try:
            _check_keys(file, copy, known)
            return make(file.body), LifecycleEvent("CHANGED_FILE", f"{path} {CHANGED}")
        except ConfigError as error:
            refusal, fault = error, str(error)
    other = copy.fault(store_id)
    if other is None:
        try:
            made = make(copy.body)
        except ConfigError as error:
            raise refusal or error from error
        return made, LifecycleEvent("DAMAGED_FILE", f"{fault}; read {copy.path} instead")
    if refusal is not None:
        raise refusal
    raise CorruptRecord(
        f"{fault}; {other}: remove the damaged files to begin with the settings that a broker has "
        "without them"
    )


def _fault_of(file: _Version, copy: _Version, store_id: str | None) -> str | None:
    """Why the copy is to be read; None when the file is to be taken."""
    if copy.data is None and not (file.data or b"").strip(b"\0 \t\r\n"):
        return None  # Nobody has kept a setting yet; an earlier version may have left nothing.
    fault = file.fault(store_id)
    if fault is not None or not copy.fits or copy.fault(store_id) is not None:
        return fault
    assert file.data is not None
    assert copy.data is not None
    assert copy.seal is not None
    if not file.fits and copy.data.startswith(file.data.rstrip(b"\0")):
        return f"{file.path} is cut off: {len(file.data)} of {len(copy.data)} bytes"
    if file.seal is not None and file.fits and file.seal.written_ms < copy.seal.written_ms:
        return f"{file.path} is older than {copy.path}"
    return None


def _check_keys(file: _Version, copy: _Version, known: Collection[str]) -> None:
    """A flipped bit in a key hides its setting. Raises ConfigError."""
    before = {one.key for one in parse(text_of(copy.body))}
    for one in parse(text_of(file.body)):
        if one.key not in known and one.key not in before:
            place = f"{file.path}, line {one.line}"
            raise ConfigError(one.key, one.value, "a key of this party", place)


class KeptSettings(TableFile):
    """The file of one store whose folder is ours."""

    def __init__(self, runtime: Runtime, path: str, store_id: str, observer: Observer) -> None:
        super().__init__(runtime, path, store_id)
        self._observer = observer

    async def settle(self, found: LifecycleEvent | None) -> None:
        """Report what `read_kept` found, and make file and copy what was read: a damaged file stays
        as <name>.damaged, one of an earlier version is sealed. Without room that is left to the
        next time.
        """
        if found is not None:
            aside = self._put_aside() if found.kind == "DAMAGED_FILE" else ""
            report(self._observer, _log, LifecycleEvent(found.kind, f"{found.detail}{aside}"))
        file, copy = self._versions()
        read = copy if file.data is None else file
        if not read.body.strip() or (file.fits and file.data == copy.data):
            return
        try:
            if read.fits and read.data is not None:
                await self.write_data(read.data)
            else:
                await self._write_body(read.body, file, copy)
        except StorageError as error:
            _log.warning("%s is not sealed yet: %s", self.path, error)

    async def change(self, changes: Mapping[str, str]) -> None:
        """Set these keys. Raises DiskFull or StorageError; then nothing has changed.

        What was damaged since the start is reported, and taken from the copy.
        """
        file, copy = self._versions()
        fault = _fault_of(file, copy, self._store_id)
        if fault is not None and copy.fault(self._store_id) is None:
            self._report_damage(self._observer, f"{fault}; read {copy.path}")
            file = copy
        await self._write_body(changed(text_of(file.body), changes).encode(), file, copy)

    def _versions(self) -> tuple[_Version, _Version]:
        return _version_at(self._disk, self.path), _version_at(self._disk, f"{self.path}.bak")

    async def _write_body(self, body: bytes, *before: _Version) -> None:
        latest_ms = max(0 if one.seal is None else one.seal.written_ms for one in before)
        written_ms = max(self._clock.now_ms(), latest_ms + 1)
        await self.write_data(sealed_settings(body, written_ms, self._store_id))

    def _replace(self, data: bytes) -> tuple[int, int]:
        """The file, then its copy: without room for that one, it stays the version before."""
        make_durable(self._disk, self.path.rpartition("/")[0])
        replace_durably(self._disk, self.path, data)
        try:
            replace_durably(self._disk, f"{self.path}.bak", data)
        except StorageError as error:
            _log.warning("%s.bak is the version before %s: %s", self.path, self.path, error)
        return len(data), zlib.crc32(data)


def _version_at(disk: Disk, path: str) -> _Version:
    if not disk.exists(path):
        return _Version(path, None, None)
    data = disk.read(path)
    return _Version(path, data, _seal_of(data))


def _seal_of(data: bytes) -> Seal | None:
    """What the last line says; one that does not fit when a seal is there in any other form."""
    found = _SEAL.search(data)
    if found is None:
        return Seal(False, 0, None) if _SEAL_LINE.search(data) else None
    fits = int(found[3], 16) == zlib.crc32(data[:-_CRC_BYTES])
    return Seal(fits, int(found[1]), found[2].decode() if found[2] is not None else None)
