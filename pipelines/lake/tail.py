"""Follows a Delta table's log to find the files that its newest commits added.

Place in the walk: the driver learns names, sizes and bounds of new bronze files from log entries
alone; executors read the files. The cost depends on what is new, not on the table's age.

Invariant: every row is in exactly one data-changing `add`, so the files of the versions (a, b] hold
each row appended between them once, whatever compaction has done meanwhile. A place in the log
carries the fingerprint of its entry: a log put back from a copy, or cut, is noticed. When entries
are gone, `LogTruncated` says so, and `snapshot` names the present files less those read whole; the
reader drops rows at or below the seq it has read of an emitter. Absent on purpose: reading of data
files, waiting, Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from engine.foundation.errors import LakeError
from engine.telemetry.shipper.short_logs import aside_path, is_passed
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import Held, SmallFiles

ENTRIES_MAX: Final = 1_000
"""Log entries one call reads at most; a longer tail is read in several calls."""

ENTRIES_AT_ONCE: Final = 16
"""Entries asked of an object store at the same time; each takes it some ten milliseconds."""


class LogTruncated(LakeError):
    """Entries that were not read are gone, or are other ones than they were: read the snapshot."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a column in a file."""

    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file, as the log reports on it."""

    path: str
    """Relative to the table's folder, as the file is called there."""
    size_bytes: int
    rows: int | None
    """None when the writer reported no statistics."""
    partition: Mapping[str, str | None]
    version: int
    """Of the commit that added it, or of the snapshot it was found in."""
    emitters: Bounds | None
    """None when not reported: then the file may hold rows of anybody."""
    seqs: Bounds | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One log entry, as far as a reader of new rows is concerned."""

    version: int
    committed_at_ms: int | None
    """By the writer's clock; None when it did not report."""
    operation: str | None
    engine: str | None
    """Which library wrote it, in its own words: delta-rs:..., Apache-Spark/..."""
    added: tuple[AddedFile, ...]
    """Files with new rows; those that only hold old rows anew are left out."""
    transactions: Mapping[str, int]
    """Application id -> the version it reached with this commit."""
    removes_rows: bool
    """It took rows away, as retention does."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a table was read: up to the commit `version`, itself included."""

    version: int
    """-1: nothing was read."""
    fingerprint: str
    """Of that commit's log entry; empty before the first."""

    @staticmethod
    def start() -> Place:
        """Before the first commit."""
        return Place(-1, "")


@dataclass(frozen=True, slots=True)
class Tail:
    """What lies between two places."""

    commits: tuple[Commit, ...]
    """In order; those without new rows too."""
    end: Place
    """The place of the next call: equal to this one's begin when nothing is new."""

    @property
    def files(self) -> tuple[AddedFile, ...]:
        """Every file with new rows, in the order of their commits."""
        return tuple(file for commit in self.commits for file in commit.added)


def parse_entry(version: int, entry: bytes) -> Commit:
    """What a log entry says. Raises LakeError when it is torn, or speaks of deletion vectors: rows
    of such files are only partly there."""
    try:
        actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
        if not actions or not all(isinstance(action, dict) for action in actions):
            raise ValueError("it holds no actions")
        added = [_added(action["add"], version) for action in actions if _has_new_rows(action)]
        infos: list[dict[str, Any]] = [one["commitInfo"] for one in actions if "commitInfo" in one]
        info = infos[0] if infos else {}
        written_at_ms = info.get("timestamp")
        return Commit(
            version=version,
            committed_at_ms=None if written_at_ms is None else int(written_at_ms),
            operation=info.get("operation"),
            engine=info.get("engineInfo"),
            added=tuple(added),
            transactions={
                one["txn"]["appId"]: int(one["txn"]["version"]) for one in actions if "txn" in one
            },
            removes_rows=any(
                one["remove"].get("dataChange", True) for one in actions if "remove" in one
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(
            f"log entry {version} cannot be understood ({type(error).__name__}: {error}): it is "
            "damaged; put the table's _delta_log back from a copy"
        ) from error


def read_tail(lake: Lake, address: str, after: Place, *, entries_max: int = ENTRIES_MAX) -> Tail:
    """The commits after a place, at most `entries_max` of them, oldest first.

    Raises LogTruncated when the entry of that place is gone or another one, LakeError when an entry
    is damaged.
    """
    files = SmallFiles(lake)
    _verify(files, address, after)
    entries = _entries(files, address, after.version + 1, entries_max)
    if not entries and after.version < 0:
        lake.table(address)  # Says whether there is a table at all.
        raise LogTruncated(_gone(address, 0))
    commits = tuple(
        parse_entry(version, entry) for version, entry in enumerate(entries, after.version + 1)
    )
    end = Place(commits[-1].version, fingerprint(entries[-1])) if commits else after
    return Tail(commits, end)


def snapshot(
    lake: Lake, address: str, read: Mapping[str, int]
) -> tuple[tuple[AddedFile, ...], Place]:
    """The table's present files that may hold rows which were not read yet, and the place after
    which `read_tail` goes on.

    `read` is emitter -> highest seq read. A file is left out only when its statistics prove that it
    holds nothing new: rows of one known emitter, none beyond its seq. A file with rows of several
    emitters stays: one that nobody has heard of may be among them.
    """
    table = lake.table(address)
    entry = read_entry(SmallFiles(lake), address, table.version())
    if entry is None:
        raise LakeError(
            f"the Delta table at {address} lost the newest entry of its log, {table.version()}: "
            "put its _delta_log back from a copy"
        )
    present = pa.table(table.get_add_actions()).to_pylist()
    partitions = table.metadata().partition_columns
    files = [_present(row, table.version(), partitions) for row in present]
    return (
        tuple(file for file in files if not is_read(file, read)),
        Place(table.version(), fingerprint(entry.data)),
    )


def newest_place(lake: Lake, address: str) -> Place:
    """The end of the table's log as it is now: what comes later is new."""
    version = lake.table(address).version()
    entry = read_entry(SmallFiles(lake), address, version)
    if entry is None:
        raise LogTruncated(_gone(address, version))
    return Place(version, fingerprint(entry.data))


def is_read(file: AddedFile, read: Mapping[str, int]) -> bool:
    """Do a file's statistics prove that all its rows were read?"""
    if file.rows == 0:
        return True
    if file.emitters is None or file.seqs is None:
        return False
    emitter, same = file.emitters.least, file.emitters.least == file.emitters.greatest
    return same and emitter in read and int(file.seqs.greatest) <= read[emitter]


def may_hold(file: AddedFile, begins: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    """May a file hold rows that lie behind `begins` and not behind `ends`, both emitter -> seq?"""
    return begins_by(file, ends) and not is_read(file, begins)


def begins_by(file: AddedFile, marks: Mapping[str, int]) -> bool:
    """May a file hold rows at or below the mark of an emitter? Emitters without one have none."""
    if file.emitters is None or file.seqs is None:
        return True
    least, greatest, seq = file.emitters.least, file.emitters.greatest, int(file.seqs.least)
    if least == greatest:
        return least in marks and seq <= marks[least]
    return any(seq <= mark for emitter, mark in marks.items() if least <= emitter <= greatest)


def fingerprint(entry: bytes) -> str:
    """What distinguishes a log entry from any other of its number: 32 hexadecimal digits."""
    return hashlib.sha256(entry).hexdigest()[:32]


def entry_address(address: str, version: int) -> str:
    """Where the log entry of a version of a table lies."""
    return f"{address}/_delta_log/{version:020d}.json"


def read_entry(files: SmallFiles, address: str, version: int) -> Held | None:
    """The log entry of a version: in the log, or aside once it was moved; None when it is gone, or
    not there yet. LakeError when it cannot be read.

    Where it is in both, the log's may be one that a writer which stood still has put at a number
    that was free there.
    """
    entry = files.read(entry_address(address, version))
    if not files.is_local or (entry is not None and not is_passed(address, version)):
        return entry
    return files.read(aside_path(address, version)) or entry


def _verify(files: SmallFiles, address: str, place: Place) -> None:
    """Is the log still the one in which `place` was noted?"""
    if place.version < 0:
        return
    entry = read_entry(files, address, place.version)
    if entry is None:
        raise LogTruncated(_gone(address, place.version))
    if fingerprint(entry.data) != place.fingerprint:
        raise LogTruncated(
            f"log entry {place.version} of {address} is not the one that was read: the table was "
            "made anew or put back from a copy; read its snapshot and drop rows at or below the "
            "seq read of each emitter"
        )


def _entries(files: SmallFiles, address: str, first: int, count_max: int) -> list[bytes]:
    """The entries from `first` on, until one is not there.

    One at a time first: most calls find none or one. Then several at once, where each takes long.
    """
    entries: list[bytes] = []
    at_once = 1
    with ThreadPoolExecutor(ENTRIES_AT_ONCE) as readers:
        while len(entries) < count_max:
            begin = first + len(entries)
            end = begin + min(at_once, count_max - len(entries))
            found = list(readers.map(partial(read_entry, files, address), range(begin, end)))
            whole = found[: found.index(None)] if None in found else found
            entries.extend(one.data for one in whole if one is not None)
            if len(whole) < len(found):
                break
            at_once = 1 if files.is_local else ENTRIES_AT_ONCE
    return entries


def _gone(address: str, version: int) -> str:
    return (
        f"log entry {version} of {address} is gone: it is older than the table keeps its log; read "
        "its snapshot and drop rows at or below the seq read of each emitter"
    )


def _has_new_rows(action: Mapping[str, Any]) -> bool:
    return "add" in action and bool(action["add"].get("dataChange", True))


def _added(add: Mapping[str, Any], version: int) -> AddedFile:
    if add.get("deletionVector"):
        raise ValueError(f"{add['path']} has a deletion vector")
    stats = json.loads(add["stats"]) if add.get("stats") else {}
    least, greatest = stats.get("minValues") or {}, stats.get("maxValues") or {}
    rows = stats.get("numRecords")
    return AddedFile(
        path=unquote(add["path"]),
        size_bytes=int(add["size"]),
        rows=None if rows is None else int(rows),
        partition=dict(add.get("partitionValues") or {}),
        version=version,
        emitters=_bounds(least, greatest, "emitter"),
        seqs=_bounds(least, greatest, "seq"),
    )


def _present(row: Mapping[str, Any], version: int, partitions: Sequence[str]) -> AddedFile:
    """A file of a snapshot, from delta-rs's table of them."""
    values = row.get("partition") or row.get("partition_values") or {}
    least, greatest = row.get("min") or {}, row.get("max") or {}
    return AddedFile(
        path=unquote(row["path"]),
        size_bytes=int(row["size_bytes"]),
        rows=row.get("num_records"),
        partition={
            name: None if values.get(name) is None else str(values[name]) for name in partitions
        },
        version=version,
        emitters=_bounds(least, greatest, "emitter"),
        seqs=_bounds(least, greatest, "seq"),
    )


def _bounds(least: Mapping[str, Any], greatest: Mapping[str, Any], column: str) -> Bounds | None:
    low, high = least.get(column), greatest.get(column)
    return None if low is None or high is None else Bounds(low, high)
