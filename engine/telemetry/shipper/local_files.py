"""Syncs a local Delta table's files after each commit and repairs them after a power cut.

delta-rs puts a commit in place atomically (no two writers get the same version) and syncs nothing.
So this module syncs what a commit added, bottom up: data files, their folders, log entry, log
folder, and then notes the version in a file of its own. A power cut can tear only what lies beyond
that version, and none of it was dropped from a spool.

Invariant: the noted version is never ahead of what is synced. Several shippers may serve one table:
each syncs from the version noted to its own, also what others wrote in between.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from engine.foundation.errors import LakeError
from engine.telemetry.shipper.short_logs import SYNCED_NAME

_LOG: Final = "_delta_log"
_POINTER: Final = "_last_checkpoint"
_LOOKED_AT_MAX: Final = 256
"""Log entries that are checked at start: more than a checkpoint leaves to be read by anybody."""


_log = logging.getLogger(__name__)


class LocalTableFiles:
    """The folder of one table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced_version: int | None = None

    @classmethod
    def of(cls, uri: str) -> LocalTableFiles | None:
        """The folder that `uri` names; None when it names an object store."""
        parts = urlsplit(uri)
        if parts.scheme == "file":
            return cls(Path(unquote(parts.path)))
        return None if "://" in uri else cls(Path(uri))

    def arrow_files(self) -> SubTreeFileSystem:
        """The folder as Arrow reads it by itself."""
        return SubTreeFileSystem(str(self._folder), LocalFileSystem())

    def has_leftovers(self) -> bool:
        """Is there anything in the folder that a table still to be made would not bring?"""
        if not self._folder.exists():
            return False
        if not self._folder.is_dir():
            return True
        return any(entry.name not in (_LOG, SYNCED_NAME) for entry in self._folder.iterdir())

    def sync_through(self, version: int) -> None:
        """Sync every commit up to `version` that is not known to be synced, then note it.

        Raises OSError.
        """
        if self._synced_version is None:
            self._synced_version = self.written_version()
        if version <= self._synced_version:
            return
        folders: set[Path] = {self._folder, self._folder / _LOG}
        for number in range(self._synced_version + 1, version + 1):
            entry = self._entry(number)
            if not entry.exists():
                continue  # Below a checkpoint and cleaned away: older than anything torn.
            for path in _added(entry.read_bytes()):
                file = self._folder / path
                if file.exists():  # A later compaction and vacuum may have removed it.
                    _sync(file)
                    folders.add(file.parent)
            _sync(entry)
        for file in self._checkpoint_files():
            _sync(file)
        for folder in sorted(folders, key=str):
            _sync(folder)
        self._note(version)

    def refuse_lost_commits(self, version: int, *, written: int) -> None:
        """Raise LakeError when the table's version is lower than one written before."""
        if version < written:
            raise LakeError(
                f"{self._folder} is at version {version}, but {written} was written: its log "
                "lost commits. Put the table back from a copy, then start the shipper again"
            )

    def mend(self) -> None:
        """Set aside torn commits beyond the synced version, newest state first; leave a whole table
        as it is.

        Raises LakeError when a commit that was synced is torn: then it was not a power cut.
        """
        log = self._folder / _LOG
        if not log.is_dir():
            return
        with _exclusive(log):
            self._mend()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the lock of the log's folder, if it is free: False when another merges or mends."""
        try:
            with _exclusive(self._folder / _LOG, wait=False):
                yield True
        except BlockingIOError:
            yield False

    def _mend(self) -> None:
        noted = self.written_version()
        log = self._folder / _LOG
        numbers = sorted(int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit())
        self._drop_torn_checkpoints()
        # Without a note (a table somebody brought here) only the entries themselves can be judged.
        torn = next(
            (n for n in numbers if n > noted and not self._is_whole(n, with_data=noted >= 0)), None
        )
        for number in numbers[-_LOOKED_AT_MAX:]:
            if number <= noted and not self._is_whole(number, with_data=False):
                raise LakeError(
                    f"{self._entry(number)} is damaged, although it was whole once: no power cut "
                    "did that. Put the table back from a copy, then start the shipper again"
                )
        if torn is None:
            return
        _log.warning(
            "%s: commits from version %d on were torn by a power cut; they are set aside, "
            "their rows come again from the spool",
            self._folder,
            torn,
        )
        for number in reversed(numbers):
            if number >= torn:
                entry = self._entry(number)
                entry.rename(entry.with_suffix(".torn"))
        for (
            file
        ) in self._checkpoint_files():  # None is younger than its commit, so these are all of them.
            file.unlink()
        _sync(log)

    def _drop_torn_checkpoints(self) -> None:
        """Checkpoints only repeat the log; a torn one would stop every reader."""
        for file in self._checkpoint_files():
            if file.name == _POINTER:
                whole = _is_json(file.read_bytes())
            else:
                whole = _is_whole_parquet(file)
            if not whole:
                _log.warning(
                    "%s was torn by a power cut and is removed; the log says the same", file
                )
                file.unlink()

    def _is_whole(self, number: int, *, with_data: bool) -> bool:
        try:
            paths = _added(self._entry(number).read_bytes())
        except (ValueError, KeyError, TypeError):
            return False
        return not with_data or all(_is_whole_parquet(self._folder / path) for path in paths)

    def _entry(self, number: int) -> Path:
        return self._folder / _LOG / f"{number:020d}.json"

    def _checkpoint_files(self) -> list[Path]:
        """Checkpoints beyond the synced version and the pointer to the newest."""
        log = self._folder / _LOG
        synced = self.written_version() if self._synced_version is None else self._synced_version
        found = [
            file
            for file in sorted(log.glob("*.checkpoint*.parquet"))
            if int(file.name.split(".")[0]) > synced
        ]
        pointer = log / _POINTER
        return [*found, pointer] if pointer.exists() and found else found

    def written_version(self) -> int:
        """The version that was once synced; another writer moves it on at any moment."""
        path = self._folder / SYNCED_NAME
        try:
            return int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return -1
        except ValueError as error:
            raise LakeError(
                f"{path} holds no version number; remove it, the table is then checked anew"
            ) from error

    def _note(self, version: int) -> None:
        path = self._folder / SYNCED_NAME
        # A name of its own: two writers may have one process number, each in its container.
        descriptor, draft = tempfile.mkstemp(prefix=f"{SYNCED_NAME}.", dir=self._folder)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(str(version))
            file.flush()
            os.fsync(file.fileno())
        Path(draft).rename(path)
        _sync(self._folder)
        self._synced_version = version


def _added(entry: bytes) -> list[str]:
    """Paths of the data files that a log entry adds. Raises ValueError when it is torn."""
    if not entry.strip():
        raise ValueError("an empty log entry")
    actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _is_whole_parquet(path: Path) -> bool:
    """Can every value of it be read? A torn file may have its right length, and zeros in it."""
    try:
        with pq.ParquetFile(path) as file:
            file.read()
    except (OSError, pa.ArrowException):
        return False
    return True


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _exclusive(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the folder's lock: only one mends or merges at a time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
