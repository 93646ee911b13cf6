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
from dataclasses import dataclass

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
from engine.protocol.names import DLQ_PREFIX
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


class Persistence:
    """Loads and saves the tables of one broker."""

    def __init__(
        self,
        *,
        changes: TableChanges,
        clock: Clock,
        filters: ConsumerFilters,
        deleted_groups: DeletedGroups,
        group_configs: GroupConfigs,
        node: BrokerNode,
        lives: TopicLives,
        observer: Observer,
        offsets: ConsumerOffsets,
        outage: OutageOffsets,
        removals: Removals,
        runtime: Runtime,
        store: MessageStore,
        topics: Topics,
        telemetry: Telemetry | None,
    ) -> None:
        """`telemetry` makes facts durable before the offsets that they explain."""
        self._changes = changes
        self._clock = clock
        self._filters = filters
        self._deleted_groups = deleted_groups
        self._group_configs = group_configs
        self._node = node
        self._lives = lives
        self._observer = observer
        self._offsets = offsets
        self._outage = outage
        self._removals = removals
        self._runtime = runtime
        self._store = store
        self._topics = topics
        self._telemetry = telemetry
        folder, store_id = node.config.config_folder, store.store_id
        self._offsets_file = TableFile(self._runtime, f"{folder}/consumerOffset.json", store_id)
        self._topics_file = TableFile(self._runtime, f"{folder}/topics.json", store_id)
        self._groups_file = TableFile(self._runtime, f"{folder}/subscriptionGroup.json", store_id)
        self._saving = asyncio.Lock()
        self._topics_written = (-1, False)
        self._groups_written = (-1, -1)
        self._filters_file = TableFile(self._runtime, f"{folder}/consumerFilter.json", store_id)
        self._filters_written = 0
        self._held_back: dict[QueueKey, int] = {}
        """Queues whose offsets on disk are lower than reported, a fact of its own once; for each
        the number of the last time.
        """
        self._times_held_back = 0
        self.all_written = False
        """Was the store's last life one that writes every table, empty ones too, at its start?"""
        self._new_since_ms: int | None = None
        """When the store was without any message, a while ago at most."""
        self.topics_are_whole = False
        """Was topics.json itself read?"""
        self._settings_path = f"{folder}/{FILE_NAME}"
        self.settings_were_kept = False
        """Were settings kept in the store when topics.json was written?"""
        self.spooled: Spooled | None = None
        """How far the spool was when consumerOffset.json was written; None: nobody knows."""

    def load(self, *, stopped_cleanly: bool) -> None:
        """Take over what the last life left, and report what is missing of it.

        Raises CorruptRecord when a table and its .bak are both unreadable.
        """
        observer = self._observer
        files = (self._topics_file, self._groups_file, self._filters_file, self._offsets_file)
        is_new = not self._store.physical_max and not any(file.is_there for file in files)
        topics = self._topics_file.load(observer, self._take_topics)
        groups = self._groups_file.load(observer, self._take_groups)
        filters = self._filters_file.load(
            observer, lambda found: self._filters.load(found, now_ms=self._clock.now_ms())
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
        self.take_back_to_the_log()

    def _take_topics(self, found: Mapping[str, object]) -> None:
        self.settings_were_kept = found.get(SETTINGS_KEPT) is True
        since_ms = found.get(NEW_SINCE)
        self._new_since_ms = since_ms if type(since_ms) is int else None
        self._topics.load(found)
        for topic in self._deleted_since(found):
            if self._topics.delete(topic):
                self._removals.topic_gone(topic)

    def _take_groups(self, found: Mapping[str, object]) -> None:
        self._group_configs.load(found)
        self._deleted_groups.load(found)

    def _take_offsets(self, found: Mapping[str, object]) -> None:
        self._offsets.load(from_document(found), counter_of(found))
        self._outage.load(found.get(FIELD))
        self.spooled = spooled_in(found)
        for topic in self._deleted_since(found):
            for _ in self._offsets.forget_topic(topic):  # Nobody is served yet.
                pass
        for group in self._groups_deleted_since(found):
            for _ in self._offsets.forget_group(group):
                pass

    def _groups_deleted_since(self, document: Mapping[str, object]) -> list[str]:
        """As `_deleted_since`, of groups: where the file of groups and that of offsets agree."""
        deletions = document.get(GROUP_DELETIONS)
        if type(deletions) is not int:
            return []
        self._deleted_groups.expect(deletions)
        return self._deleted_groups.after(deletions)

    def _deleted_since(self, document: Mapping[str, object]) -> list[str]:
        """Topics that were deleted after a table was written; what it says of them is void.

        A table without the number of deletions was written by another broker, which knows best.
        """
        deletions = document.get(DELETIONS)
        if type(deletions) is not int:
            return []
        self.all_written = True
        tombstones = self._store.tombstones
        tombstones.expect(deletions, self._observer)
        return tombstones.after(deletions)

    def take_back_to_the_log(self) -> None:
        """Offsets beyond their queue are of messages that are gone: others will get these offsets,
        and would never be delivered.
        """
        lowered = self._offsets.take_back(self._store.max_offset)
        if not lowered:
            return
        detail = (
            "consume offsets lay beyond their queues, whose messages are gone; the groups go on "
            f"where the queues end: {in_words(lowered)}"
        )
        report(self._observer, _log, LifecycleEvent("OFFSETS_TAKEN_BACK", detail))

    def make_topics_of_queues(self) -> None:
        """Topics whose queues exist are there, whatever topics.json lost: what was acknowledged in
        them can be read. Deleted ones stay deleted, unless topics.json itself was lost.
        """
        queue_nums: dict[str, int] = {}
        for topic, queue_id in self._store.queues():
            queue_nums[topic] = max(queue_nums.get(topic, 0), queue_id + 1)
        made = []
        for topic, found_nums in queue_nums.items():
            is_deleted = topic in self._store.tombstones.ends and self.topics_are_whole
            if is_deleted or self._topics.find(topic) is not None:
                continue
            count = min(found_nums, QUEUES_PER_TOPIC_MAX)
            perm = self._node.config.dlq_topic_perm if topic.startswith(DLQ_PREFIX) else READ_WRITE
            self._topics.put(
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
        report(self._observer, _log, LifecycleEvent("TOPICS_MADE_AGAIN", detail))

    def watch_lives(self) -> None:
        """Find out whether the store is new: its clients may come from one that stood there."""
        store, now_ms = self._store, self._clock.now_ms()
        is_empty = not any(store.max_offset(*queue) for queue in store.queues())
        is_copy = not self._node.is_master  # What it holds is as old as its master's.
        if is_copy:
            self._new_since_ms = None
        elif is_empty:
            self._new_since_ms = now_ms
        elif self._new_since_ms is not None and now_ms - self._new_since_ms >= NEW_STORE_MS:
            self._new_since_ms = None
        left_ms = None
        if self._new_since_ms is not None:
            left_ms = min(NEW_STORE_MS, self._new_since_ms + NEW_STORE_MS - now_ms)
        self._lives.watch(
            store.tombstones.ends,
            new_until_ms=None if left_ms is None else self._clock.steady_ms() + left_ms,
            is_first_start=is_empty and not is_copy,
        )

    async def run_settings(self) -> None:
        """Save topics and groups' settings after each change, until cancelled."""
        while True:
            await self._changes.to_save.wait()
            self._changes.to_save.clear()
            try:
                await self.save_settings()
            except (StorageError, LocalProtocolError) as error:  # Never the end of the broker.
                _log.warning("topics and groups are not saved yet: %s", error)
                self._changes.to_save.set()
                await asyncio.sleep(RETRY_MS / SECOND_MS)

    async def run_offsets(self) -> None:
        """Persist the consume offsets at most an interval after they changed, until cancelled.

        RocketMQ waits 10 s before the first time: a broker that dies each 8 s never gets there.
        """
        clock = self._runtime.clock
        due_ms = clock.steady_ms()
        while True:
            interval_ms = self._node.config.flush_consumer_offset_interval_ms
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
            counter, deletions = self._group_configs.counter, self._deleted_groups.deletions
            if (counter, deletions) != self._groups_written:
                notes: dict[str, object] = {
                    "dataVersion": self._node.data_version(counter).to_json()
                }
                notes |= self._deleted_groups.to_document()
                pieces: list[bytes] = []
                await in_steps(self._group_configs.encoded(pieces, notes))
                both = deletions != self._groups_written[1]
                await self._groups_file.write_sealed(b"".join(pieces), both=both)
                self._groups_written = counter, deletions
            counter = self._filters.counter
            if counter != self._filters_written or not self._filters_file.is_there:
                await self._filters_file.write(self._filters.to_document())
                self._filters_written = counter
            counter = self._topics.counter
            kept = self._runtime.disk.exists(self._settings_path)
            if (counter, kept) != self._topics_written:
                document = await self._topics_document(counter, settings_kept=kept)
                await self._topics_file.write_sealed(document)
                self._topics_written = counter, kept
                self._changes.topics_unsaved = self._topics.counter != counter

    async def _topics_document(self, counter: int, *, settings_kept: bool) -> bytes:
        """topics.json; fields of our own stand before what RocketMQ writes. The number of deletions
        is that of when the first topic was copied: of what is deleted later the document is void.
        """
        pieces = [b'{"%s":%d,' % (DELETIONS.encode(), self._deletions)]
        if settings_kept:
            pieces[0] += b'"%s":true,' % SETTINGS_KEPT.encode()
        if self._new_since_ms is not None:
            pieces[0] += b'"%s":%d,' % (NEW_SINCE.encode(), self._new_since_ms)
        await in_steps(self._topics.encoded(pieces, self._node.data_version(counter)))
        pieces[1] = pieces[1][1:]
        return b"".join(pieces)

    @property
    def _deletions(self) -> int:
        return self._store.tombstones.deletions

    async def save_offsets_now(self) -> None:
        """Return when deleted offsets are in neither version of their file. Raises StorageError."""
        for _ in range(2):
            self._offsets.changed = True
            await self.save_offsets("ADMIN")

    async def save_offsets(self, cause: str) -> None:
        """Write consumerOffset.json when it changed, and report that. Raises StorageError.

        The reports are durable before it, so that no crash leaves a file that says more than was
        reported.
        """
        offsets = self._offsets
        async with self._saving:
            if not offsets.changed and not (cause != "TIMER" and self._is_of_an_earlier_life):
                return
            table: Table = {}
            pieces: list[bytes] = []
            version = self._node.data_version(offsets.counter).to_json()
            group_deletions = self._deleted_groups.deletions
            notes: dict[str, object] = {DELETIONS: self._deletions}
            notes[GROUP_DELETIONS] = group_deletions
            if self._outage:
                notes[FIELD] = self._outage.to_document()
            try:
                await in_steps(stepped(offsets.snapshot(table)))
                held_back = await self._hold_back(table)
                if self._telemetry is not None:
                    await self._telemetry.settle()
                    epoch, seq = self._telemetry.broker_epoch, self._telemetry.next_seq
                    notes[SPOOLED] = {"epoch": epoch, "seq": seq}
                    self.spooled = Spooled(epoch, seq)
                await in_steps(encoded_table(pieces, table, notes | {"dataVersion": version}))
                written = await self._offsets_file.write_sealed(b"".join(pieces))
            except BaseException:  # Cancelled as well: whether it is on disk is unknown.
                offsets.changed = True
                raise
            self._deleted_groups.written(group_deletions)
            await in_steps(stepped(offsets.mark_persisted(table)))
            await self._emit_held_back(held_back)
        self._observer.observe(written.persisted("CONSUMER_OFFSETS", cause))

    @property
    def _is_of_an_earlier_life(self) -> bool:
        """Is the offsets file, if any, of an earlier life? Each life leaves one of its own, so that
        its absence, and that of the spool's rows before it, says that somebody took them away.
        """
        if not self._offsets_file.is_there:
            return True
        epoch = None if self.spooled is None else self.spooled.epoch
        return self._telemetry is not None and epoch != self._telemetry.broker_epoch

    async def _hold_back(self, table: Table) -> list[Lowered]:
        """Lower what of a snapshot lies beyond the synced part of its queue; return which.

        The log is synced before, so that this is what no message explains, or what a slow disk
        has not taken yet: after a power cut other messages would get those offsets.
        """
        store, lowered, looked_at = self._store, [], 0
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
            self._offsets.changed = True
        if not noted.is_news:
            return
        detail = (
            "consumerOffset.json holds offsets only up to the messages that are on stable "
            f"storage: {words}"
        )
        report(self._observer, _log, LifecycleEvent("OFFSETS_HELD_BACK", detail))

    def _note_held_back(self, lowered: list[Lowered], noted: _HeldBack) -> Iterator[None]:
        """Take the queues over one after the other, and drop those that are held back no more."""
        store, held_back = self._store, self._held_back
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
