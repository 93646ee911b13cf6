"""Tombstones: which topics were deleted, and up to where the log speaks of what they were.

Place in the walk: `message_store.delete_topic` writes one before it removes the topic's queues;
dispatch and queries pass over the topic's records before it; the broker's tables say up to which
deletion they were written, so that a boot drops what an older file still holds of a deleted topic.

The log keeps the records of a deleted topic until retention takes them. Whoever reads it again (a
recovery, queues to be built anew) would find the topic as it was; a tombstone outlives those
records, and a topic made again under the name has its own, behind it.

    deletedTopics.json  {"deletedTopics": {topic: {"physicalOffset": .., "deletion": ..,
                                                   "readers": [group, ..] or null}},
                         "deletions": ..}

A tombstone names the groups that read the topic when it was deleted: made again, the topic has
messages that they have not consumed from its beginning on.

Invariant: a tombstone is durable before anything of the topic is removed, and goes only when the
log files before it are gone for good. Absent on purpose: topics' settings, queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.limits import TOMBSTONE_READERS_MAX, TOMBSTONES_MAX
from engine.foundation.observing import LifecycleEvent, Observer
from engine.runtime import Runtime
from engine.store.config import StoreConfig
from engine.store.table_file import Source, TableFile

FILE_NAME = "deletedTopics.json"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One deletion."""

    end: int
    """The topic's records before this physical offset are deleted."""
    deletion: int
    """The how manieth deletion of the store it was."""
    readers: frozenset[str] | None = frozenset()
    """Groups that read the topic then; None: too many to name, any group may be one of them."""

    def was_read_by(self, group: str) -> bool:
        """Did the group read the topic when it was deleted, as far as that is known?"""
        return self.readers is None or group in self.readers


class Tombstones:
    """The table of one store."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        *,
        store_id: str | None = None,
        count_max: int = TOMBSTONES_MAX,
    ) -> None:
        self._disk = runtime.disk
        self._file = TableFile(runtime, f"{config.tables_folder}/{FILE_NAME}", store_id)
        self._log_folder = config.commit_log_folder
        self._count_max = count_max
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
            self._file.tell_missing(
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
        self, topic: str, end: int, *, log_begin: int, readers: Sequence[str] | None = ()
    ) -> None:
        """Everything of `topic` before `end` is deleted, durably when this returns; one at a time.
        `readers` are the groups that read it, None too many to name.

        Raises StorageError when there are too many, DiskFull, StorageError.
        """
        table = {name: one for name, one in self._table.items() if one.end > log_begin}
        if len(table) < len(self._table):  # Files that are gone must not come back after it.
            await self._disk.off_loop(lambda: self._disk.sync_directory(self._log_folder))
        deletions = self.deletions + 1
        named = None if readers is None or len(readers) > TOMBSTONE_READERS_MAX else readers
        table[topic] = Tombstone(end, deletions, None if named is None else frozenset(named))
        await self._file.write(_document(table, deletions))
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
        "deletedTopics": {
            topic: {
                "physicalOffset": one.end,
                "deletion": one.deletion,
                "readers": None if one.readers is None else sorted(one.readers),
            }
            for topic, one in table.items()
        },
        "deletions": deletions,
    }


def _readers_in(entry: Mapping[str, object]) -> frozenset[str] | None:
    """The groups that a tombstone names; one of an earlier version names none."""
    readers = entry.get("readers", [])
    if readers is None:
        return None
    if not isinstance(readers, list):
        raise CorruptRecord(f"a tombstone's readers={readers!r} are no list of groups")
    return frozenset(str(group) for group in readers)
