"""Loads and saves broker tables: topics, group settings, selectors and consume offsets.

Place in the walk: loaded before the port opens; offsets are written on a timer and at shutdown,
topics and groups soon after they changed.

Invariant: a table that could not be written stays marked as changed and is tried again. Absent on
purpose: the delay cursors, which are the delay service's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.broker.groups.consumer_filters import ConsumerFilters
from engine.broker.groups.group_configs import GROUP_DELETIONS, DeletedGroups, GroupConfigs
from engine.broker.groups.readers import QueueKey
from engine.broker.groups.removals import Removals
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import (
    ConsumerOffsets,
    Lowered,
    Table,
    encoded_table,
    from_document,
    in_words,
    lowered_to,
)
from engine.broker.offsets.outage_offsets import FIELD, OutageOffsets
from engine.broker.offsets.topic_lives import NEW_STORE_MS, TopicLives
from engine.broker.reporting.boot_audit import Spooled
from engine.broker.rocketmq_settings import FILE_NAME
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import READ_WRITE, Topics
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.errors import LocalProtocolError, StorageError
from engine.foundation.limits import QUEUES_PER_TOPIC_MAX
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import TopicConfig
from engine.protocol.names import DLQ_PREFIX, TABLES_TOPIC
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.store import MessageStore
from engine.store.table_file import Source, TableFile
from engine.telemetry import Telemetry

RETRY_MS = SECOND_MS
TOPICS_GONE = "topics are made again from their queues, without their settings"
GROUPS_GONE = "groups are made again when their members come, without their settings"
FILTERS_GONE = "selectors are known again when members of their groups come"
OFFSETS_GONE = "groups begin anew"
SETTINGS_GONE = "settings that were changed while running are those of the start again"
DELETIONS = "deletions"
"""Field of our own in topics.json and consumerOffset.json: after how many deletions of topics they
were written. What an older one says of a topic that was deleted since is void.
"""
SETTINGS_KEPT = "settingsKept"
"""Field of our own in topics.json: was there a file of kept settings when it was written?"""
NEW_SINCE = "newSince"
"""Field of our own in topics.json: when the store was opened for the first time, or had lost every
message, in ms since 1970; while it counts as new.
"""
SPOOLED = "spooled"
"""Field of our own in consumerOffset.json: how far the spool was when it was written."""
LISTED_MAX = 20
"""Topics a line names; of the others it says how many."""
OFFSETS_PER_TURN_MAX = 2000
"""Offsets held against their queues before others of the event loop have their turn."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _HeldBack:
    """What is to be said of offsets that are lower on disk than reported."""

    is_news: bool = False
    """Was any of them not reported before?"""
    waits_for_disk: bool = False
    """Is any lower only because its messages are not synced yet?"""


@dataclass(slots=True, kw_only=True, eq=False)
class Persistence:
    """Loads and saves the tables of one broker.

    `telemetry` makes facts durable before the offsets that they explain.
    """

    changes: TableChanges
    clock: Clock
    filters: ConsumerFilters
    deleted_groups: DeletedGroups
    group_configs: GroupConfigs
    node: BrokerNode
    lives: TopicLives
    observer: Observer
    offsets: ConsumerOffsets
    outage_offsets: OutageOffsets
    removals: Removals
    runtime: Runtime
    store: MessageStore
    topics: Topics
    telemetry: Telemetry | None
    _saving: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _topics_written: tuple[int, bool] = field(default=(-1, False), init=False)
    _groups_written: tuple[int, int] = field(default=(-1, -1), init=False)
    _filters_written: int = field(default=0, init=False)
    _held_back: dict[QueueKey, int] = field(default_factory=dict, init=False)
    """Queues whose offsets on disk are lower than reported, a fact of its own once; for each
    the number of the last time.
    """
    _times_held_back: int = field(default=0, init=False)
    all_written: bool = field(default=False, init=False)
    """Was the store's last life one that writes every table, empty ones too, at its start?"""
    _new_since_ms: int | None = field(default=None, init=False)
    """When the store was without any message, a while ago at most."""
    topics_are_whole: bool = field(default=False, init=False)
    """Was topics.json itself read?"""
    _settings_path: str = field(init=False)
    settings_were_kept: bool = field(default=False, init=False)
    """Were settings kept in the store when topics.json was written?"""
    spooled: Spooled | None = field(default=None, init=False)
    """How far the spool was when consumerOffset.json was written; None: nobody knows."""
    _offsets_file: TableFile = field(init=False)
    _topics_file: TableFile = field(init=False)
    _groups_file: TableFile = field(init=False)
    _filters_file: TableFile = field(init=False)

    def __post_init__(self) -> None:
        folder, store_id = self.node.config.config_folder, self.store.store_id
        self._settings_path = f"{folder}/{FILE_NAME}"
        self._offsets_file = TableFile(self.runtime, f"{folder}/consumerOffset.json", store_id)
        self._topics_file = TableFile(self.runtime, f"{folder}/topics.json", store_id)
        self._groups_file = TableFile(self.runtime, f"{folder}/subscriptionGroup.json", store_id)
        self._filters_file = TableFile(self.runtime, f"{folder}/consumerFilter.json", store_id)

    def load(self, *, stopped_cleanly: bool) -> None:
        """Take over what the last life left, and report what is missing of it.

        Raises CorruptRecord when a table and its .bak are both unreadable.
        """
        observer = self.observer
        files = (self._topics_file, self._groups_file, self._filters_file, self._offsets_file)
        is_new = not self.store.physical_max and not any(file.is_there for file in files)
        topics = self._topics_file.load(observer, self._take_topics)
        groups = self._groups_file.load(observer, self._take_groups)
        filters = self._filters_file.load(
            observer, lambda found: self.filters.load(found, now_ms=self.clock.now_ms())
        )
        offsets = self._offsets_file.load(observer, self._take_offsets)
        self.topics_are_whole = topics is Source.FILE
        if offsets is not Source.FILE:
            self.spooled = None
        for file, expected, consequence in (
            (self._topics_file, topics is Source.NOTHING and not is_new, TOPICS_GONE),
            (self._groups_file, groups is Source.NOTHING and not is_new, GROUPS_GONE),
            (self._filters_file, filters is Source.NOTHING and self.all_written, FILTERS_GONE),
            (
                self._offsets_file,
                offsets is Source.NOTHING
                and (self.all_written or (stopped_cleanly and not is_new)),
                OFFSETS_GONE,
            ),
        ):
            if expected:
                file.report_missing(observer, consequence)
        if not self.node.config.raft_enable:  # Else the group's tables come next.
            self.take_back_to_the_log()

    def _take_topics(self, found: Mapping[str, object]) -> None:
        self.settings_were_kept = found.get(SETTINGS_KEPT) is True
        since_ms = found.get(NEW_SINCE)
        self._new_since_ms = since_ms if type(since_ms) is int else None
        self.topics.load(found)
        for topic in self._deleted_since(found):
            if self.topics.delete(topic):
                self.removals.topic_gone(topic)

    def _take_groups(self, found: Mapping[str, object]) -> None:
        self.group_configs.load(found)
        self.deleted_groups.load(found)

    def _take_offsets(self, found: Mapping[str, object]) -> None:
        self.offsets.load(from_document(found), counter_of(found))
        self.outage_offsets.load(found.get(FIELD))
        self.spooled = spooled_in(found)
        for topic in self._deleted_since(found):
            for _ in self.offsets.forget_topic(topic):  # Nobody is served yet.
                pass
        for group in self._groups_deleted_since(found):
            for _ in self.offsets.forget_group(group):
                pass

    def _groups_deleted_since(self, document: Mapping[str, object]) -> list[str]:
        """As `_deleted_since`, of groups: where the file of groups and that of offsets agree."""
        deletions = document.get(GROUP_DELETIONS)
        if type(deletions) is not int:
            return []
        self.deleted_groups.expect(deletions)
        return self.deleted_groups.after(deletions)

    def _deleted_since(self, document: Mapping[str, object]) -> list[str]:
        """Topics that were deleted after a table was written; what it says of them is void.

        A table without the number of deletions was written by another broker, which knows best.
        """
        deletions = document.get(DELETIONS)
        if type(deletions) is not int:
            return []
        self.all_written = True
        tombstones = self.store.tombstones
        tombstones.expect(deletions, self.observer)
        return tombstones.after(deletions)

    def take_back_to_the_log(self) -> None:
        """Offsets beyond their queue are of messages that are gone: others will get these offsets,
        and would never be delivered.
        """
        lowered = self.offsets.take_back(self.store.max_offset)
        if not lowered:
            return
        detail = (
            "consume offsets lay beyond their queues, whose messages are gone; the groups go on "
            f"where the queues end: {in_words(lowered)}"
        )
        report(self.observer, _log, LifecycleEvent("OFFSETS_TAKEN_BACK", detail))

    def make_topics_of_queues(self) -> None:
        """Topics whose queues exist are there, whatever topics.json lost: what was acknowledged in
        them can be read. Deleted ones stay deleted, unless topics.json itself was lost.
        """
        queue_nums: dict[str, int] = {}
        for topic, queue_id in self.store.queues():
            queue_nums[topic] = max(queue_nums.get(topic, 0), queue_id + 1)
        made = []
        for topic, found_nums in queue_nums.items():
            is_deleted = topic in self.store.tombstones.ends and self.topics_are_whole
            if is_deleted or topic == TABLES_TOPIC or self.topics.find(topic) is not None:
                continue
            count = min(found_nums, QUEUES_PER_TOPIC_MAX)
            perm = self.node.config.dlq_topic_perm if topic.startswith(DLQ_PREFIX) else READ_WRITE
            self.topics.put(
                TopicConfig(
                    topic_name=topic, read_queue_nums=count, write_queue_nums=count, perm=perm
                )
            )
            made.append(f"{topic} ({count})")
        if not made:
            return
        detail = (
            "topics.json lacks topics that have messages; they are made again from their queues: "
            f"{', '.join(made[:LISTED_MAX])}"
        )
        if len(made) > LISTED_MAX:
            detail += f" and {len(made) - LISTED_MAX} more"
        report(self.observer, _log, LifecycleEvent("TOPICS_MADE_AGAIN", detail))

    def watch_lives(self) -> None:
        """Find out whether the store is new: its clients may come from one that stood there."""
        store, now_ms = self.store, self.clock.now_ms()
        is_empty = not any(store.max_offset(*queue) for queue in store.queues())
        is_copy = not self.node.is_master  # What it holds is as old as its master's.
        if is_copy:
            self._new_since_ms = None
        elif is_empty:
            self._new_since_ms = now_ms
        elif self._new_since_ms is not None and now_ms - self._new_since_ms >= NEW_STORE_MS:
            self._new_since_ms = None
        left_ms = None
        if self._new_since_ms is not None:
            left_ms = min(NEW_STORE_MS, self._new_since_ms + NEW_STORE_MS - now_ms)
        self.lives.watch(
            store.tombstones.ends,
            new_until_ms=None if left_ms is None else self.clock.steady_ms() + left_ms,
            is_first_start=is_empty and not is_copy,
        )

    async def run_settings(self) -> None:
        """Save topics and groups' settings after each change, until cancelled."""
        while True:
            await self.changes.to_save.wait()
            self.changes.to_save.clear()
            try:
                await self.save_settings()
            except (StorageError, LocalProtocolError) as error:  # Never the end of the broker.
                _log.warning("topics and groups are not saved yet: %s", error)
                self.changes.to_save.set()
                await asyncio.sleep(RETRY_MS / SECOND_MS)

    async def run_offsets(self) -> None:
        """Persist the consume offsets at most an interval after they changed, until cancelled.

        RocketMQ waits 10 s before the first time: a broker that dies each 8 s never gets there.
        """
        clock = self.runtime.clock
        due_ms = clock.steady_ms()
        while True:
            interval_ms = self.node.config.flush_consumer_offset_interval_ms
            due_ms = max(due_ms + interval_ms, clock.steady_ms())
            await asyncio.sleep((due_ms - clock.steady_ms()) / SECOND_MS)
            try:
                await self.save_offsets("TIMER")
            except (StorageError, LocalProtocolError) as error:
                _log.warning("consume offsets are not persisted yet: %s", error)

    async def save_settings(self) -> None:
        """Write topics.json, subscriptionGroup.json and consumerFilter.json when they changed.

        topics.json comes last: its number of deletions says that all others were written. Raises
        StorageError.
        """
        async with self._saving:
            counter, deletions = self.group_configs.counter, self.deleted_groups.deletions
            if (counter, deletions) != self._groups_written:
                notes: dict[str, object] = {
                    "dataVersion": self.node.data_version(counter).to_json()
                }
                notes |= self.deleted_groups.to_document()
                pieces: list[bytes] = []
                await in_steps(self.group_configs.encoded(pieces, notes))
                both = deletions != self._groups_written[1]
                await self._groups_file.write_sealed(b"".join(pieces), both=both)
                self._groups_written = counter, deletions
            counter = self.filters.counter
            if counter != self._filters_written or not self._filters_file.is_there:
                await self._filters_file.write(self.filters.to_document())
                self._filters_written = counter
            counter = self.topics.counter
            kept = self.runtime.disk.exists(self._settings_path)
            if (counter, kept) != self._topics_written:
                document = await self._topics_document(counter, settings_kept=kept)
                await self._topics_file.write_sealed(document)
                self._topics_written = counter, kept
                self.changes.topics_unsaved = self.topics.counter != counter

    async def _topics_document(self, counter: int, *, settings_kept: bool) -> bytes:
        """topics.json; fields of our own stand before what RocketMQ writes. The number of deletions
        is that of when the first topic was copied: of what is deleted later the document is void.
        """
        pieces = [b'{"%s":%d,' % (DELETIONS.encode(), self._deletions)]
        if settings_kept:
            pieces[0] += b'"%s":true,' % SETTINGS_KEPT.encode()
        if self._new_since_ms is not None:
            pieces[0] += b'"%s":%d,' % (NEW_SINCE.encode(), self._new_since_ms)
        await in_steps(self.topics.encoded(pieces, self.node.data_version(counter)))
        pieces[1] = pieces[1][1:]
        return b"".join(pieces)

    @property
    def _deletions(self) -> int:
        return self.store.tombstones.deletions

    async def save_offsets_now(self) -> None:
        """Return when deleted offsets are in neither version of their file. Raises StorageError."""
        for _ in range(2):
            self.offsets.changed = True
            await self.save_offsets("ADMIN")

    async def save_offsets(self, cause: str) -> None:
        """Write consumerOffset.json when it changed, and report that. Raises StorageError.

        The reports are durable before it, so that no crash leaves a file that says more than was
        reported.
        """
        offsets = self.offsets
        async with self._saving:
            if not offsets.changed and not (cause != "TIMER" and self._is_of_an_earlier_life):
                return
            table: Table = {}
            pieces: list[bytes] = []
            version = self.node.data_version(offsets.counter).to_json()
            group_deletions = self.deleted_groups.deletions
            notes: dict[str, object] = {DELETIONS: self._deletions}
            notes[GROUP_DELETIONS] = group_deletions
            if self.outage_offsets:
                notes[FIELD] = self.outage_offsets.to_document()
            try:
                await in_steps(stepped(offsets.snapshot(table)))
                held_back = await self._hold_back(table)
                if self.telemetry is not None:
                    await self.telemetry.settle()
                    epoch, seq = self.telemetry.broker_epoch, self.telemetry.next_seq
                    notes[SPOOLED] = {"epoch": epoch, "seq": seq}
                    self.spooled = Spooled(epoch, seq)
                await in_steps(encoded_table(pieces, table, notes | {"dataVersion": version}))
                written = await self._offsets_file.write_sealed(b"".join(pieces))
            except BaseException:  # Cancelled as well: whether it is on disk is unknown.
                offsets.changed = True
                raise
            self.deleted_groups.written(group_deletions)
            await in_steps(stepped(offsets.mark_persisted(table)))
            await self._emit_held_back(held_back)
        self.observer.observe(written.persisted("CONSUMER_OFFSETS", cause))

    @property
    def _is_of_an_earlier_life(self) -> bool:
        """Is the offsets file, if any, of an earlier life? Each life leaves one of its own, so that
        its absence, and that of the spool's rows before it, says that somebody took them away.
        """
        if not self._offsets_file.is_there:
            return True
        epoch = None if self.spooled is None else self.spooled.epoch
        return self.telemetry is not None and epoch != self.telemetry.broker_epoch

    async def _hold_back(self, table: Table) -> list[Lowered]:
        """Lower what of a snapshot lies beyond the synced part of its queue; return which.

        The log is synced before, so that this is what no message explains, or what a slow disk
        has not taken yet: after a power cut other messages would get those offsets.
        """
        store, lowered, looked_at = self.store, [], 0
        await store.flush()
        for (topic, group), queues in table.items():
            lowered += lowered_to(topic, group, queues, store.synced_offset)
            looked_at += len(queues)
            if looked_at >= OFFSETS_PER_TURN_MAX:
                looked_at = 0
                await asyncio.sleep(0)
        return lowered

    async def _emit_held_back(self, lowered: list[Lowered]) -> None:
        """Once for each set of queues; those that only wait for the disk are tried again."""
        words, noted = in_words(lowered), _HeldBack()
        await in_steps(stepped(self._note_held_back(lowered, noted), OFFSETS_PER_TURN_MAX))
        if noted.waits_for_disk:
            self.offsets.changed = True
        if not noted.is_news:
            return
        detail = (
            "consumerOffset.json holds offsets only up to the messages that are on stable "
            f"storage: {words}"
        )
        report(self.observer, _log, LifecycleEvent("OFFSETS_HELD_BACK", detail))

    def _note_held_back(self, lowered: list[Lowered], noted: _HeldBack) -> Iterator[None]:
        """Take the queues over one after the other, and drop those that are held back no more."""
        store, held_back = self.store, self._held_back
        self._times_held_back += 1
        while lowered:
            one = lowered.pop()
            key = (one.group, one.topic, one.queue_id)
            if key not in held_back:
                noted.is_news = True
            held_back[key] = self._times_held_back
            if one.instead_of <= store.max_offset(one.topic, one.queue_id):
                noted.waits_for_disk = True
            yield
        over = []
        for key, times in held_back.items():  # Nobody else changes it.
            if times != self._times_held_back:
                over.append(key)
            yield
        for key in over:
            del held_back[key]
            yield


def spooled_in(document: Mapping[str, object]) -> Spooled | None:
    """How far the spool was when the offsets were written."""
    noted = document.get(SPOOLED)
    epoch = noted.get("epoch") if isinstance(noted, Mapping) else None
    seq = noted.get("seq") if isinstance(noted, Mapping) else None
    return Spooled(epoch, seq) if type(epoch) is int and type(seq) is int else None


def counter_of(document: Mapping[str, object]) -> int:
    """Counter of a table's data version; 0 when it reports none."""
    version = document.get("dataVersion")
    counter = version.get("counter") if isinstance(version, Mapping) else None
    return counter if isinstance(counter, int) else 0
