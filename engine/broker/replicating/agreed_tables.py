"""Keeps topics, groups, offsets and accounts the same in all brokers of a Raft group.

Place in the walk: a state that follows the log (`store/log_states`). The leader changes its tables
at once and puts what changed into the log, as records of TABLES_TOPIC; followers apply them. What a
request changed is answered when its record is committed (`raft_group`).

    leader     change in memory → record → committed → answer
    follower   record, once visible → the same change in memory
    deletion   of a topic: record → committed → each node deletes what its log holds before it

A snapshot names the place of the log up to which it has everything, so that a start applies only
what follows. Who led and does not any more has changes that nobody agreed on: it goes back to the
snapshot and applies the log again.

Invariant: nothing behind the record of a deletion is visible before the deletion is durable, and no
deletion is carried out a second time. Absent on purpose: messages, transactions, timers and
deduplication, which are in the log themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from engine.broker.accounts import AgreedAccounts
from engine.broker.config import BrokerConfig
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import (
    ConsumerOffsets,
    Table,
    encoded_table,
    from_document,
)
from engine.broker.removing.topic_changes import is_own
from engine.broker.replicating.table_records import TableRecords
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.errors import CorruptRecord, RequestRefused, StorageError
from engine.foundation.observing import SilentObserver
from engine.foundation.units import SECOND_MS
from engine.protocol import fastjson
from engine.protocol.codes import ResponseCode
from engine.protocol.message_record import decode_record
from engine.protocol.names import TABLES_TOPIC
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.store import MessageDraft, MessageStore
from engine.store.record_reading import DispatchRequest
from engine.store.table_file import TableFile

FILE_NAME: Final = "groupTables.json"
RETRY_MS: Final = SECOND_MS
DELETES: Final = "TAGS\x01DELETE_TOPIC\x02"
"""Properties of the record of a deletion; its body is the topic."""
_DELETES: Final = DELETES.encode()

_log = logging.getLogger(__name__)


class AgreedTables:
    """Those of one broker: a `LogState`."""

    def __init__(
        self,
        *,
        accounts: AgreedAccounts,
        clock: Clock,
        delete_here: Callable[[str, int], Awaitable[None]],
        deletions_ended: Callable[[], Awaitable[None]],
        file: TableFile,
        group_configs: GroupConfigs,
        node: BrokerNode,
        offsets: ConsumerOffsets,
        records: TableRecords,
        store: MessageStore,
        topics: Topics,
    ) -> None:
        """`delete_here` deletes a topic as far as the log holds it before an offset;
        `deletions_ended` returns when those are over that this node has begun.
        """
        self._accounts = accounts
        self._clock = clock
        self._delete_here = delete_here
        self._deletions_ended = deletions_ended
        self._file = file
        self._groups = group_configs
        self._node = node
        self._offsets = offsets
        self._records = records
        self._store = store
        self._topics = topics
        self.applied_offset = 0
        """See `LogState`."""
        self.leads = False
        """Are changes of this node's own recorded?"""
        self.is_sound = False
        """Do the tables hold nothing but what was agreed on, or is on its way to be?"""
        self.is_saved = False
        """Is the snapshot on disk what the tables hold?"""
        self.saved_offset = 0
        """Up to where the snapshot on disk has everything: the log is needed from there on."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is something to record."""
        self.on_deleted: Callable[[], None] = lambda: None
        """Called when a deletion is durable: more of the log may be visible."""
        self.on_failed: Callable[[BaseException], None] = lambda _error: None
        """Called when a deletion cannot be carried out: this node cannot go on."""
        self._deletions: dict[int, asyncio.Future[None]] = {}
        """Where the record of a deletion ends that was not carried out → who waits for it."""
        self._carrying: dict[int, tuple[str, asyncio.Task[None]]] = {}
        """Those that are being carried out, by where their records end."""
        self._is_deposed = False
        """Led this node, and are its tables still to go back to what was agreed on?"""
        self._terms_ended = 0
        """How often this node led and does not any more."""

    def attach(self) -> None:
        """Hear of what changes in the tables, and of what is appended to the log."""
        self._topics.on_put = self._topic_put
        self._groups.on_changed = self._group_changed
        self._offsets.on_set = self._offset_set
        self._offsets.on_forgotten = self._offsets_forgotten
        self._accounts.on_changed = self._accounts_changed
        self._store.on_appended = self._note_deletions
        self._store.on_cut(self._cut_deletions)

    # ---- what changes here ------------------------------------------------------------------

    def _topic_put(self, topic: str) -> None:
        if not is_own(topic, self._node.config):
            self.is_saved = False
            if self.leads:
                self._records.topic_put(topic)
                self.on_change()

    def _group_changed(self, group: str) -> None:
        self.is_saved = False
        if self.leads:
            self._records.group_changed(group)
            self.on_change()

    def _offset_set(self, key: QueueKey) -> None:
        self.is_saved = False
        if self.leads:
            self._records.offset_set(key)
            self.on_change()

    def _offsets_forgotten(self, topic: str, group: str) -> None:
        self.is_saved = False
        if self.leads and topic not in self._topics.being_deleted:
            self._records.offsets_forgotten(topic, group)
            self.on_change()

    def _accounts_changed(self) -> None:
        self.is_saved = False
        if self.leads:
            self._records.accounts_changed()
            self.on_change()

    @property
    def has_news(self) -> bool:
        """Has something changed here that no record says?"""
        return len(self._records) > 0

    def record(self) -> None:
        """Put what changed into the log. Raises StorageError: then this node does not lead, or its
        disk takes nothing; what changed is in memory alone, and still to be put.
        """
        while self.has_news:
            self._put(fastjson.dumps(self._records.next_document()), "")
            self._records.drop_next()

    def _put(self, body: bytes, properties: str) -> int:
        """Put a record; where it ends."""
        address = self._node.address or f"{self._node.config.host}:{self._node.config.port}"
        draft = MessageDraft(
            topic=TABLES_TOPIC,
            queue_id=0,
            body=body,
            properties=properties,
            born_timestamp_ms=self._clock.now_ms(),
            born_host=address,
            store_host=address,
        )
        return self._store.put(draft).end_offset

    def begin_term(self) -> None:
        """This node leads: what changes from now on is recorded."""
        self.leads = True
        self._accounts.found()

    def end_term(self) -> None:
        """This node leads no more: what it changed and nobody agreed on is to go (`load`)."""
        if not self.leads:
            return
        self.leads = self.is_sound = False
        self._is_deposed = True
        self._terms_ended += 1
        self._records.forget()
        for end, done in list(self._deletions.items()):
            done.cancel()  # Who waits is answered; what was committed is carried out all the same.
            self._deletions[end] = asyncio.get_running_loop().create_future()

    # ---- deletions of topics ----------------------------------------------------------------

    @property
    def visible_limit(self) -> int | None:
        """Nothing behind this place may be visible yet; None: everything may."""
        return min(self._deletions, default=None)

    async def delete_topic(self, topic: str) -> None:
        """Have every node of the group delete the topic; returns when this one has. Raises
        RequestRefused when that is not agreed on.
        """
        try:
            self._store.refuse_puts_to(topic)
            self._topics.being_deleted[topic] = None
            self._offsets.refuse_of(topic)
            self.record()  # What changed before stands before.
            end = self._put(topic.encode(), DELETES)
        except StorageError as error:
            self._allow(topic)
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions[end] = done
        await asyncio.wait([done])
        if done.cancelled():
            if all(topic != carried for carried, _ in self._carrying.values()):
                self._allow(topic)
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker leads no more: whether topic {topic} is deleted, whoever leads knows",
            )

    def _allow(self, topic: str) -> None:
        """The topic is not deleted after all."""
        self._store.allow_puts_to(topic)
        self._topics.being_deleted.pop(topic, None)
        self._offsets.allow_of(topic)

    async def find_deletions(self, begin: int) -> None:
        """A start: what the log holds from `begin` on was not carried out."""
        self.saved_offset = begin
        async for records in self._store.records(begin):
            self._note_deletions(records)

    def _note_deletions(self, records: Sequence[DispatchRequest]) -> None:
        for one in records:
            if one.topic == TABLES_TOPIC and _DELETES in one.properties:
                self._deletions[_end_of(one)] = asyncio.get_running_loop().create_future()

    def _cut_deletions(self, end_offset: int) -> None:
        for end in [end for end in self._deletions if end > end_offset]:
            self._deletions.pop(end).cancel()

    def _begin_deletion(self, topic: str, record: DispatchRequest) -> None:
        end = _end_of(record)
        if end in self._carrying:
            return
        if end in self._deletions:
            task = asyncio.get_running_loop().create_task(self._carry_out(topic, record))
            self._carrying[end] = topic, task
            task.add_done_callback(partial(self._deletion_ended, end))
            return
        # It was carried out; the tables are being made again from a snapshot of before.
        self._topics.delete(topic)
        for _ in self._offsets.forget_topic(topic):
            pass

    def _deletion_ended(self, end: int, task: asyncio.Task[None]) -> None:
        del self._carrying[end]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_failed(error)

    async def _carry_out(self, topic: str, record: DispatchRequest) -> None:
        while True:
            try:
                await self._delete_here(topic, record.physical_offset)
                break
            except RequestRefused as error:
                _log.warning("topic %s is not deleted yet: %s", topic, error)
                await asyncio.sleep(RETRY_MS / SECOND_MS)
        done = self._deletions.pop(_end_of(record), None)
        if done is not None and not done.done():
            done.set_result(None)
        self.is_saved = False
        self.on_deleted()

    # ---- as a `LogState` --------------------------------------------------------------------

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        """See `LogState`. Hot for what is no record of tables."""
        for one in entries:
            if one.topic == TABLES_TOPIC:
                self._apply(one)
        self.applied_offset = end_offset

    def _apply(self, one: DispatchRequest) -> None:
        record = self._store.record_at(one.physical_offset)
        assert record is not None, f"what is visible at {one.physical_offset} is not there"
        body = bytes(decode_record(record, 0).body)
        if _DELETES in one.properties:
            self._begin_deletion(body.decode(), one)
        elif not self.leads and not self._is_deposed:
            document = fastjson.loads(body)
            assert isinstance(document, dict), "a record of tables is no object"
            self._records.apply(document)

    def cut(self, end_offset: int) -> None:
        """See `LogState`: what the rest of the log says is applied again."""
        self.applied_offset = end_offset

    def begin_at(self, offset: int) -> None:
        """See `LogState`."""
        self.applied_offset = offset

    # ---- snapshots --------------------------------------------------------------------------

    async def load(self) -> None:
        """Hold what the snapshot on disk says and nothing else, and apply what the log says since.
        Raises CorruptRecord, and OffsetOutOfRange when the log begins behind it.
        """
        await self._deletions_ended()  # What is under way was begun by the leader of before.
        while self._carrying:
            await asyncio.wait([task for _, task in self._carrying.values()])
        self._is_deposed = False
        with self._accounts.loading():
            await self._hold(read_snapshot(self._file))
            self.is_saved = True  # Until the log says more.
            await self._store.follow(self)
        self.is_sound = True

    async def take(self, tables: bytes, log_begin: int) -> None:
        """Hold what a leader's tables say: of this log, which is to begin there, everything is
        still to be applied. Raises StorageError.
        """
        await self._write(tables, log_begin)
        await self._hold(read_snapshot(self._file))

    async def _write(self, tables: bytes, applied: int) -> None:
        await self._file.write_sealed(b'{"applied":%d,%s' % (applied, tables[1:]))
        self.saved_offset = applied

    async def _hold(self, document: dict[str, Any]) -> None:
        self._records.forget()
        topics = document.get("topics", {}).get("topicConfigTable", {})
        groups = document.get("groups", {}).get("subscriptionGroupTable", {})
        await in_steps(stepped(self._records.hold_topics(topics)))
        await in_steps(stepped(self._records.hold_groups(groups)))
        offsets = from_document(document.get("offsets", {"offsetTable": {}}))
        await in_steps(self._offsets.copy(offsets))
        self._accounts.hold(document.get("accounts", ()))
        self.applied_offset = self.saved_offset = applied_in(document)

    async def save(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Write the snapshot; `settled` returns when all that was recorded is committed. Raises
        StorageError, and RequestRefused when it may never be: then nothing is written.
        """
        if self._deletions or not self.is_sound:
            return
        self.is_saved, applied = True, self.applied_offset
        try:
            await self._write(await self.snapshot(settled), applied)
        except BaseException:
            self.is_saved = False
            raise

    async def snapshot(self, settled: Callable[[], Awaitable[None]]) -> bytes:
        """All tables, with everything that was applied at the call, and perhaps more: to apply that
        again does no harm. Raises RequestRefused as `save`.
        """
        terms_ended = self._terms_ended
        topics: list[bytes] = []
        groups: list[bytes] = []
        offsets: list[bytes] = []
        table: Table = {}
        await in_steps(self._topics.encoded(topics, self._node.data_version(self._topics.counter)))
        await in_steps(self._groups.encoded(groups, {"count": len(self._groups)}))
        await in_steps(stepped(self._offsets.copied(table)))
        await in_steps(encoded_table(offsets, table, {"count": len(table)}))
        accounts = fastjson.dumps(self._accounts.documents())
        await settled()
        if terms_ended != self._terms_ended:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "who leads has changed: some of it was not agreed on"
            )
        return b'{"topics":%s,"groups":%s,"offsets":%s,"accounts":%s}' % (
            b"".join(topics),
            b"".join(groups),
            b"".join(offsets),
            accounts,
        )


def read_snapshot(file: TableFile) -> dict[str, Any]:
    """The snapshot on disk; empty when there is none. Raises CorruptRecord."""
    found: dict[str, Any] = {}
    file.load(SilentObserver(), found.update)
    return found


def table_file(runtime: Runtime, config: BrokerConfig, store_id: str | None = None) -> TableFile:
    """The file of the tables; `store_id` as in TableFile."""
    return TableFile(runtime, f"{config.config_folder}/{FILE_NAME}", store_id)


def applied_in(snapshot: dict[str, Any]) -> int:
    """Up to where it has everything; 0 of none. Raises CorruptRecord."""
    applied = snapshot.get("applied", 0)
    if type(applied) is not int or applied < 0:
        raise CorruptRecord(f"{FILE_NAME} does not say up to where it was applied: {applied!r}")
    return applied


def _end_of(record: DispatchRequest) -> int:
    return record.physical_offset + record.size_bytes
