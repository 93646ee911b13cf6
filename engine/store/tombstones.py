"""Tombstones for deleted topics, with the log offset before which their records are void.

Place in the walk: `message_store.delete_topic` writes one before it removes the topic's queues;
dispatch and queries pass over the topic's records before it; the broker's tables say up to which
deletion they were written, so that a boot drops what an older file still holds of a deleted topic.

The log keeps the records of a deleted topic until retention takes them. Whoever reads it again (a
recovery, queues to be built anew) would find the topic as it was; a tombstone outlives those
records, and a topic made again under the name has its own, behind it.

    deletedTopics.json  {"deletedTopics": {topic: {"physicalOffset": .., "deletion": ..,
                                                   "readers": [group, ..],
                                                   "pollers": [group, ..],
                                                   "broadcasters": [group, ..],
                                                   "moreReaders": true where some have no room}},
                         "deletions": ..}

A tombstone names the groups that read the topic when it was deleted: made again, the topic has
messages that they have not consumed from its beginning on. One of an earlier version has no list
at all (no reader is known) or null in its place (too many to name).

Invariant: a tombstone is durable before anything of the topic is removed, and goes only when the
log files before it are gone for good. Absent on purpose: topics' settings, queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.limits import (
    TOMBSTONE_READERS_MAX,
    TOMBSTONES_MAX,
    TOMBSTONES_READERS_MAX,
)
from engine.foundation.observing import LifecycleEvent, Observer
from engine.runtime import Runtime
from engine.store.config import StoreConfig
from engine.store.table_file import Source, TableFile

FILE_NAME = "deletedTopics.json"


@dataclass(frozen=True, slots=True)
class EarlierReaders:
    """Groups that read a topic when it was deleted; each tuple is sorted."""

    sharing: tuple[str, ...] = ()
    """Groups that had an offset or a member: the broker knows how far they are."""
    polling: tuple[str, ...] = ()
    """Groups that only pulled: they keep their offsets themselves."""
    broadcasting: tuple[str, ...] = ()
    """Groups whose members each read all of it, and keep their offsets themselves."""
    has_more: bool = False
    """Were there more than have room? Any group may be one of them."""

    @property
    def count(self) -> int:
        """Groups that are named."""
        return len(self.sharing) + len(self.polling) + len(self.broadcasting)

    def names(self, group: str) -> bool:
        """Is the group one of them, and did it not broadcast?"""
        return _has(self.sharing, group) or _has(self.polling, group)

    def broadcast_to(self, group: str) -> bool:
        """Did the group broadcast the topic?"""
        return _has(self.broadcasting, group)

    def cut_to(self, count: int) -> EarlierReaders:
        """As many of them as have room."""
        if self.count <= count:
            return self
        sharing = self.sharing[:count]
        polling = self.polling[: count - len(sharing)]
        broadcasting = self.broadcasting[: count - len(sharing) - len(polling)]
        return EarlierReaders(sharing, polling, broadcasting, has_more=True)


NO_READERS = EarlierReaders()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One deletion."""

    end: int
    """The topic's records before this physical offset are deleted."""
    deletion: int
    """The how manieth deletion of the store it was."""
    readers: EarlierReaders = NO_READERS

    def was_read_by(self, group: str) -> bool:
        """Did the group read the topic when it was deleted, as far as that is known?"""
        return self.readers.has_more or self.readers.names(group)


class Tombstones:
    """The table of one store."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        *,
        store_id: str | None = None,
        count_max: int = TOMBSTONES_MAX,
        readers_max: int = TOMBSTONE_READERS_MAX,
        all_readers_max: int = TOMBSTONES_READERS_MAX,
    ) -> None:
        self._disk = runtime.disk
        self._file = TableFile(runtime, f"{config.tables_folder}/{FILE_NAME}", store_id)
        self._log_folder = config.commit_log_folder
        self._count_max = count_max
        self._readers_max = readers_max
        self._all_readers_max = all_readers_max
        self._table: dict[str, Tombstone] = {}
        self.ends: dict[str, int] = {}
        """Deleted topic → end of its deleted records; always the same mapping."""
        self.deletions = 0
        """How many topics were deleted in all lives of the store."""
        self._is_missing = False

    def load(self, observer: Observer) -> None:
        """Take over the table of the last life. Raises CorruptRecord when it is unreadable."""
        self._is_missing = self._file.load(observer, self._accept) is Source.NOTHING

    def _accept(self, document: Mapping[str, object]) -> None:
        table, deletions = document.get("deletedTopics"), document.get("deletions")
        if not isinstance(table, Mapping) or type(deletions) is not int:
            raise CorruptRecord(f"{self._file.path} holds no deletedTopics with their deletions")
        found: dict[str, Tombstone] = {}
        for topic, entry in table.items():
            end = entry.get("physicalOffset") if isinstance(entry, Mapping) else None
            deletion = entry.get("deletion") if isinstance(entry, Mapping) else None
            if type(end) is not int or type(deletion) is not int or min(end, deletion) < 0:
                raise CorruptRecord(f"{self._file.path}: {topic!r}: {entry!r} is no tombstone")
            found[str(topic)] = Tombstone(end, deletion, _readers_in(entry))
        self._take(found, max([deletions, *(one.deletion for one in found.values())]))

    def _take(self, table: dict[str, Tombstone], deletions: int) -> None:
        self._table, self.deletions = table, deletions
        self.ends.clear()
        self.ends.update({topic: one.end for topic, one in table.items()})

    def expect(self, deletions: int, observer: Observer) -> None:
        """Another table was written after so many deletions: numbers go on behind them."""
        if self._is_missing and deletions > self.deletions:
            self._file.report_missing(
                observer,
                f"{deletions} topics were deleted, and as far as the log still holds their "
                "messages these can show again",
            )
        self.deletions = max(self.deletions, deletions)

    def of(self, topic: str) -> Tombstone | None:
        """The newest deletion of the topic; None when the log holds nothing from before one."""
        return self._table.get(topic)

    def after(self, deletions: int) -> list[str]:
        """The topics that were deleted later than so many deletions ago."""
        return [topic for topic, one in self._table.items() if one.deletion > deletions]

    async def take_back(self, log_end: int, observer: Observer) -> None:
        """A log that ends before a tombstone has lost its tail: what is stored there from now on
        is not deleted. Raises DiskFull, StorageError.
        """
        beyond = sorted(topic for topic, one in self._table.items() if one.end > log_end)
        if not beyond:
            return
        table = {
            topic: replace(one, end=min(one.end, log_end)) for topic, one in self._table.items()
        }
        await self._file.write(_document(table, self.deletions))
        self._take(table, self.deletions)
        observer.observe(
            LifecycleEvent(
                "OFFSETS_TAKEN_BACK",
                f"deletions of {', '.join(beyond[:20])} lay beyond the log's end; they are taken "
                f"back to it, at {log_end}",
            )
        )

    async def add(
        self, topic: str, end: int, *, log_begin: int, readers: EarlierReaders = NO_READERS
    ) -> None:
        """Everything of `topic` before `end` is deleted, durably when this returns; one at a time.
        Of `readers` as many are named as have room.

        Raises StorageError when there are too many, DiskFull, StorageError.
        """
        table = {name: one for name, one in self._table.items() if one.end > log_begin}
        if len(table) < len(self._table):  # Files that are gone must not come back after it.
            await self._disk.off_loop(lambda: self._disk.sync_directory(self._log_folder))
        deletions = self.deletions + 1
        named = sum(one.readers.count for name, one in table.items() if name != topic)
        room = min(self._readers_max, self._all_readers_max - named)
        table[topic] = Tombstone(end, deletions, readers.cut_to(max(0, room)))
        await self._file.write(_document(table, deletions), both=True)
        self._take(table, deletions)

    def check_room(self, topic: str, *, log_begin: int) -> None:
        """Raise StorageError when `add` would be one too many."""
        kept = sum(one.end > log_begin for name, one in self._table.items() if name != topic)
        if kept >= self._count_max:
            raise StorageError(
                f"topic {topic} cannot be deleted yet: the log still holds messages of "
                f"{kept} deleted topics, as many as are kept apart; retention makes room"
            )


def _document(table: Mapping[str, Tombstone], deletions: int) -> dict[str, object]:
    return {
        "deletedTopics": {topic: _entry(one) for topic, one in table.items()},
        "deletions": deletions,
    }


def _entry(one: Tombstone) -> dict[str, object]:
    entry: dict[str, object] = {"physicalOffset": one.end, "deletion": one.deletion}
    entry["readers"] = one.readers.sharing
    if one.readers.polling:
        entry["pollers"] = one.readers.polling
    if one.readers.broadcasting:
        entry["broadcasters"] = one.readers.broadcasting
    if one.readers.has_more:
        entry["moreReaders"] = True
    return entry


def _readers_in(entry: Mapping[str, object]) -> EarlierReaders:
    """The groups that a tombstone names."""
    sharing, polling = entry.get("readers", []), entry.get("pollers", [])
    has_more = sharing is None or entry.get("moreReaders") is True
    if sharing is None:  # As an earlier version wrote that there were too many.
        sharing = []
    named = {"readers": sharing, "pollers": polling, "broadcasters": entry.get("broadcasters", [])}
    for name, groups in named.items():
        if not isinstance(groups, list):
            raise CorruptRecord(f"a tombstone's {name}={groups!r} is no list of groups")
    sharing, polling, broadcasting = map(_in_order, named.values())
    return EarlierReaders(sharing, polling, broadcasting, has_more=has_more)


def _in_order(groups: Any) -> tuple[str, ...]:
    return tuple(sorted({str(group) for group in groups}))


def _has(groups: tuple[str, ...], group: str) -> bool:
    place = bisect_left(groups, group)
    return place < len(groups) and groups[place] == group
