"""Keeps a Delta table's log short by moving old entries aside and later removing them.

delta-rs lists the whole folder `_delta_log` each time it opens a table or follows one, and several
times for each commit: 0.01 ms of CPU an entry and commit, so that a log of two days (69,000 entries
at a commit each few seconds) makes an append of 4 ms one of half a second. An object store begins a
listing at the checkpoint, so its logs may be long, if nobody asks for all of them (`HOOKS`).

An entry that nobody needs to open the table any more is moved aside, into a folder beside the log:
a reader that follows a table entry by entry (`pipelines.lake.tail`) asks for a number and finds it
there, as long as the table keeps its log. Older ones are removed.

Rules:

    moved     entries below a checkpoint that is whole, on stable storage, HELD_S old, and neither
              newer than the pointer to the newest one nor than what shippers know to be synced
    removed   checkpoints below that one, and what was aside for LOG_DAYS
    at once   ENTRIES_AT_ONCE at most; a log of an earlier version is worked off commit by commit

Invariant: what is in the log always describes the whole table; an entry is in the log, or aside, or
in both; entries go oldest first. A writer that stood still for longer than HELD_S may find its next
number free that was taken long ago: delta-rs would take it, and its rows were in no table. So
behind a commit it is asked whether its number is aside: then it was none, and is made again.

In an object store delta-rs removes what is over its days, now and then; nothing is moved there.
Absent on purpose: locks (each step is one link or one unlink, which two tidiers may do at the same
time), and Arrow.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable, PostCommitHookProperties

from engine.foundation.errors import LakeError

HELD_S: Final = 300.0
"""Whoever opens a table has read its log within this: it takes milliseconds, Spark some seconds."""

LOG_DAYS: Final = 2
"""Entries stay aside for so long: who follows a table may stand still that long."""

TIDY_EACH: Final = 16
"""Commits of a writer from one look at the log to the next."""

STORE_TIDY_EACH: Final = 500
"""The same in an object store, where delta-rs cleans: it asks for all names, 1,000 at a time."""

HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Behind a commit: delta-rs would list the whole log each time to see whether entries are over
their days, in an object store as well."""

ENTRIES_AT_ONCE: Final = 2_000
"""Entries that one look moves or removes at most; some 30 ms."""

SYNCED_NAME: Final = "_tidemark_synced"
"""Where shippers note up to which version a table is on stable storage."""

ASIDE: Final = "_log_aside"
"""Both names begin with an underscore: Delta's readers and its vacuum leave them alone."""

FOLDER_ENTRIES: Final = 1_000
"""Entries aside that share a folder, which is removed as one."""

_LOG: Final = "_delta_log"
_POINTER: Final = "_last_checkpoint"
_OVER: Final = ".over"
_ENTRY: Final = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT: Final = re.compile(r"^(\d{20})\.checkpoint\.parquet$")
_NUMBERED: Final = re.compile(r"^(\d{20})\.(checkpoint\..*parquet|crc)$")
_PARQUET: Final = b"PAR1"
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Tidied:
    """What one look at a log has done."""

    moved: int = 0
    """Entries that were put aside, or were old enough to be removed at once."""
    left: int = 0
    """Entries that could go as well, and will with the next looks."""


def folder_of(uri: str) -> Path | None:
    """The folder of a table; None when it lies in an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


def aside_path(table: Path | str, version: int) -> str:
    """Where the entry of a version lies once it was moved."""
    return f"{table}/{ASIDE}/{version // FOLDER_ENTRIES:017d}/{version:020d}.json"


def is_passed(table: Path | str, version: int) -> bool:
    """Does the entry of a version lie aside, so that none in the log at its number counts? What is
    aside beside a log that was put back from an older copy is of no account.
    """
    if not os.path.exists(aside_path(table, version)):
        return False
    names = os.listdir(f"{table}/{_LOG}")
    return any((found := _CHECKPOINT.match(one)) and int(found[1]) > version for one in names)


def tidy(table: Path, *, now_s: float, held_s: float, at_once: int) -> Tidied:
    """Shorten the log of a table; a table without a log, or without a checkpoint that is old
    enough, is left as it is.

    Raises OSError.
    """
    log = table / _LOG
    try:
        names = os.listdir(log)
    except FileNotFoundError:
        return Tidied()
    keep_from = _old_checkpoint(table, names, before_s=now_s - held_s)
    if keep_from is None:
        return Tidied()
    there = sorted(one for one in names if _ENTRY.match(one))
    _forget_another_log(table / ASIDE, there[-1] if there else "")
    entries = [one for one in there if int(one[:20]) < keep_from]
    if entries:
        _make_sure(log, keep_from)
    for name in entries[:at_once]:
        _put_aside(table, name, over_s=now_s - LOG_DAYS * _DAY_S)
    if len(entries) <= at_once:
        for name in names:  # Then nothing below the checkpoint is needed.
            if (found := _NUMBERED.match(name)) and int(found[1]) < keep_from:
                (log / name).unlink(missing_ok=True)
    _remove_old(table / ASIDE, before_s=now_s - LOG_DAYS * _DAY_S, at_once=at_once)
    return Tidied(min(len(entries), at_once), max(0, len(entries) - at_once))


@dataclass(frozen=True, slots=True)
class Manner:
    """How short a log is kept."""

    held_s: float = HELD_S
    tidy_each: int = TIDY_EACH
    store_tidy_each: int = STORE_TIDY_EACH
    at_once: int = ENTRIES_AT_ONCE


class NoCommit(LakeError):
    """What was committed may not be in the table."""


class ShortLog:
    """The log of one table, as one of its writers looks after it."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        manner: Manner | None = None,
    ) -> None:
        self._uri = uri
        self._manner = manner or Manner()
        self._storage_options = dict(storage_options or {})
        self._table = folder_of(uri)
        self._each = self._manner.tidy_each
        if self._table is None:
            self._each = self._manner.store_tidy_each
        self._commits = 0 if self._table is None else self._each

    def shorten(self) -> Tidied:
        """Look at the log when there were commits enough since the last time, or when that left
        something to do: the first time at once. Raises OSError, DeltaError.
        """
        if self._commits < self._each:
            return Tidied()
        if self._table is None:
            self._commits = 0
            DeltaTable(self._uri, storage_options=self._storage_options).cleanup_metadata()
            return Tidied()
        held_s, at_once = self._manner.held_s, self._manner.at_once
        done = tidy(self._table, now_s=time.time(), held_s=held_s, at_once=at_once)
        self._commits = self._each if done.left else 0
        return done

    def committed(self, read_version: int) -> None:
        """Count a commit that was made behind a version. Raises NoCommit when it may be none: its
        number had been taken, and moved aside, while the writer stood still. It is taken out of the
        log, and the writer has to ask the table what it has.
        """
        self._commits += 1
        if self._table is None or not is_passed(self._table, read_version + 1):
            return
        version = read_version + 1
        while is_passed(self._table, version):
            (self._table / _LOG / f"{version:020d}.json").unlink(missing_ok=True)
            version += 1
        raise NoCommit(
            f"{self._table}: this process stood still for minutes behind version {read_version}, "
            "before it wrote the next one: what it wrote may not be in the table; it asks again"
        )


def _old_checkpoint(table: Path, names: list[str], *, before_s: float) -> int | None:
    """The newest checkpoint that everybody who opens the table now finds, or a newer one."""
    limit = _version_in(table / _LOG / _POINTER)
    if limit is None:
        return None
    if (table / SYNCED_NAME).exists():
        limit = min(limit, _synced(table / SYNCED_NAME))
    versions = sorted(int(found[1]) for one in names if (found := _CHECKPOINT.match(one)))
    for version in reversed(versions):
        file = table / _LOG / f"{version:020d}.checkpoint.parquet"
        if version <= limit and file.stat().st_mtime <= before_s:
            return version if _is_whole(file) else None
    return None


def _version_in(pointer: Path) -> int | None:
    try:
        pointer_read = json.loads(pointer.read_bytes())
        return int(pointer_read["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _synced(note: Path) -> int:
    try:
        return int(note.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return -1  # The shipper says what is wrong with it; here nothing is touched.


def _is_whole(file: Path) -> bool:
    """Does a parquet file begin and end as one?"""
    with file.open("rb") as data:
        begin = data.read(len(_PARQUET))
        size = data.seek(0, os.SEEK_END)
        data.seek(max(0, size - len(_PARQUET)))
        return size > 3 * len(_PARQUET) and begin == data.read() == _PARQUET


def _make_sure(log: Path, version: int) -> None:
    """Put the checkpoint on stable storage: from now on the table is reported by it alone."""
    for path in (log / f"{version:020d}.checkpoint.parquet", log):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_aside(table: Path, name: str, *, over_s: float) -> None:
    """By link and unlink: what is aside is never replaced. An entry whose number is aside already
    is one that `committed` would have taken out, of a writer that was killed before.
    """
    entry = table / _LOG / name
    try:
        if entry.stat().st_mtime > over_s:
            place = aside_path(table, int(name[:20]))
            try:
                os.link(entry, place)
            except FileExistsError:
                pass
            except FileNotFoundError:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                _link_new(entry, place)
        entry.unlink()
    except FileNotFoundError:
        return  # Another one tidies beside.


def _link_new(entry: Path, place: str) -> None:
    try:
        os.link(entry, place)
    except FileExistsError:
        return


def _forget_another_log(aside: Path, newest: str) -> None:
    """What is newer than the newest entry is of a log that was since put back from a copy."""
    try:
        folders = sorted(one for one in aside.iterdir() if one.suffix != _OVER)
        if folders and max(os.listdir(folders[-1]), default="") > newest:
            for folder in folders:
                folder.rename(folder.with_suffix(_OVER))
    except FileNotFoundError:
        return  # There is none, or another one tidies beside.


def _remove_old(aside: Path, *, before_s: float, at_once: int) -> None:
    """Folders into which nothing was moved since then. They get another name first: to remove the
    first entry would make them young again, and of those that are left none is followed.
    """
    try:
        folders = sorted(aside.iterdir())
    except FileNotFoundError:
        return
    left = at_once
    for folder in folders:
        try:
            if folder.suffix != _OVER:
                if folder.stat().st_mtime > before_s:
                    return
                folder.rename(folder.with_suffix(_OVER))
            over = folder.with_suffix(_OVER)
            for entry in sorted(over.iterdir()):
                if left == 0:
                    return
                entry.unlink(missing_ok=True)
                left -= 1
            over.rmdir()
        except FileNotFoundError:
            continue
