"""Writes transaction records to the half queue and op queue, and reads them back.

Place in the walk: a send marked TRAN_MSG is put here instead of into its topic; END_TRANSACTION and
the check rounds end it. What is open and what is settled is `transactions`' to say; here are
the records put and read back (row D4; their forms: half_records).

Op messages are written in batches. A process killed in between comes back with ended transactions
open: one whose commit is in the log is recognised by that and ended again without a second copy,
for all others the producer is asked once more. In a Raft group an end and its op message are one
entry: whoever leads next has both, or the transaction is open.

Invariant: one transaction puts at most one message into its topic while keys are indexed. Progress
offsets, consume offsets of CID_RMQ_SYS_TRANS, pass only what is durable.
Absent on purpose: requests (handlers/transaction), asking producers (transaction_checks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.broker.transactions.half_records import (
    QUEUE_ID,
    begun_anew,
    committed_message,
    further_copy,
    further_properties,
    given_up,
    make_half,
    op_message,
)
from engine.broker.transactions.stored_messages import no_message, stored_message
from engine.broker.transactions.transactions import (
    HalfMessage,
    Transactions,
    decode_op_body,
    first_offset_of,
    half_message,
    immunity_seconds,
)
from engine.delay.waiting_messages import real_place
from engine.foundation.errors import CorruptRecord, LocalProtocolError, RequestRefused, StorageError
from engine.foundation.limits import COPY_ROOM_BYTES, TRANSACTIONS_HELD_MAX
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.foundation.units import DAY_MS, SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_GONE_REMARK,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_BITS,
    TRANSACTION_GROUP,
    SysFlag,
)
from engine.protocol.properties import PROPERTY_CHECK_IMMUNITY_SECONDS, PROPERTY_REAL_TOPIC
from engine.runtime.clock import Clock
from engine.store import GetStatus, MessageDraft, MessageStore, PutResult

READ_COUNT = 512
INDEX_GRAIN_MS = 2 * SECOND_MS
"""The index knows times to the second."""
NAMESAKES_MAX = 1024
"""Index entries looked at for one key; hashes may collide."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class HalfQueue:
    """Half and op messages of one broker."""

    changes: TableChanges
    clock: Clock
    facts: OffsetFacts
    node: BrokerNode
    observer: Observer
    offsets: ConsumerOffsets
    store: MessageStore
    topics: Topics
    stats: BrokerStats
    transactions: Transactions
    _batch_due: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    # ---- life -------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the open transactions of the last life, also those whose end it could not note."""
        half_begin, half_end = self._kept(HALF_TOPIC)
        op_begin, _ = self._kept(OP_HALF_TOPIC)
        self.transactions.restore(
            (half_message(message) for message in self._read(HALF_TOPIC, half_begin)),
            (
                (op.queue_offset, decode_op_body(op.body))
                for op in self._read(OP_HALF_TOPIC, op_begin)
            ),
            half_begin=half_begin,
            half_end=half_end,
            op_begin=op_begin,
        )
        for half in self.transactions.open_halves():
            message = self.message_of(half)
            if message is not None and self._is_committed(message):
                self.transactions.end(half.first_offset, committed=True)
        open_count = len(self.transactions.open_halves())
        if open_count:
            _log.info("%d transactions are open; their producers will be asked", open_count)

    async def run(self) -> None:
        """Write op messages in batches and move the progress offsets, until cancelled."""
        interval_s = self.node.config.transaction_op_batch_interval_ms / SECOND_MS
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._batch_due.wait()
            except TimeoutError:
                pass  # The batch is old enough.
            self._batch_due.clear()
            self.settle("TIMER")

    def settle(self, trigger: str) -> None:
        """Write due op messages and move the progress offsets, at whoever leads; what cannot be
        written stays due.
        """
        if not self.node.is_master:
            return
        try:
            self.write_ops()
        except StorageError as error:
            _log.warning("ended transactions are not written down yet: %s", error)
        self.transactions.advance(self.store.physical_flushed)
        self._report(HALF_TOPIC, self.transactions.half_offset, trigger)
        self._report(OP_HALF_TOPIC, self.transactions.op_offset, trigger)

    # ---- putting ----------------------------------------------------------------------------

    def put_half(self, draft: MessageDraft) -> PutResult:
        """Put an ordinary draft as a half message: nobody sees it before it is committed.

        Raises RequestRefused for too many open transactions or too long properties, StorageError.
        """
        if self.transactions.is_full:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{TRANSACTIONS_HELD_MAX} half messages wait behind the oldest open transaction; "
                "end transactions, or try again after the next check round",
            )
        properties = make_half(draft)
        put = self.store.put(draft, room_bytes=COPY_ROOM_BYTES)
        immunity = properties.get(PROPERTY_CHECK_IMMUNITY_SECONDS)
        half = HalfMessage(
            put.queue_offset,
            put.queue_offset,
            put.physical_offset,
            draft.born_timestamp_ms,
            put.store_timestamp_ms,
            immunity_seconds(immunity) if immunity else None,
            0,
            properties.get(PROPERTY_REAL_TOPIC),
        )
        self.transactions.note_half(half, end_offset=put.end_offset)
        return put

    def put_again(self, message: MessageExt, *, check_times: int) -> MessageExt:
        """Put a further copy of an open half message at the tail; return it. Raises StorageError,
        LocalProtocolError when its properties do not fit.
        """
        properties = further_properties(message, check_times)
        put = self.store.put(further_copy(message, properties))
        message.properties = properties
        message.queue_offset, message.physical_offset = put.queue_offset, put.physical_offset
        message.store_timestamp_ms = put.store_timestamp_ms
        self.transactions.note_half(half_message(message), end_offset=put.end_offset)
        return message

    def end(self, half: MessageExt, *, commit: bool) -> int | None:
        """End the transaction of a half message, named by any of its copies; return the end of the
        record that has to be durable, None when there is none (yet).

        A transaction that has ended before stays as it is. Raises RequestRefused when it ended the
        other way, StorageError.
        """
        if not self.is_open(half):
            self._check_ended_alike(half, commit=commit)
            return None
        end_offset = None
        if commit:
            draft = committed_message(half)
            draft.queue_id = self.topics.queue_there(draft.topic, draft.queue_id)
            end_offset = self.store.put(draft).end_offset
        self._note_end(first_offset_of(half), committed=commit)
        place = real_place(half)
        if place is not None:
            age_ms = self.clock.now_ms() - half.born_timestamp_ms
            self.stats.transaction_ended(place[0], age_ms, committed=commit)
        return end_offset

    def was_deleted(self, half: MessageExt) -> bool:
        """Was the topic that the message is for deleted since the first copy of it was put?"""
        store, place = self.store, real_place(half)
        if place is None or store.tombstones.of(place[0]) is None:
            return False
        units = store.queue_units(HALF_TOPIC, QUEUE_ID, first_offset_of(half), 1)
        return store.was_deleted(place[0], units[0][0] if units else half.physical_offset)

    def was_committed(self, half: MessageExt) -> bool | None:
        """Has the transaction ended with a commit? None: it is open, or nobody knows any more."""
        return self.transactions.was_committed(first_offset_of(half))

    def roll_back_deleted(self, half: MessageExt) -> None:
        """Roll back a transaction whose topic was deleted; one that has ended stays as it is.
        Raises StorageError.
        """
        if self.is_open(half):
            self._note_end(first_offset_of(half), committed=False)

    def is_open(self, half: MessageExt) -> bool:
        """Does the transaction of a half message, named by any of its copies, wait for its end?"""
        return self.transactions.find(first_offset_of(half)) is not None

    def discard(self, half: HalfMessage, message: MessageExt | None) -> None:
        """Roll an open transaction back for its producer, and keep the message where operators can
        find it, if a record can hold what that says; None: retention has deleted it. Raises
        StorageError.
        """
        if message is not None:
            _, made = self.topics.ensure(CHECK_MAX_TIME_TOPIC, 1)
            if made:
                self.changes.of_topics()
            try:
                self.store.put(given_up(message))
            except LocalProtocolError as error:  # Of another broker; the half message itself stays.
                _log.error(
                    "%s is not kept in %s: %s", message.message_id, CHECK_MAX_TIME_TOPIC, error
                )
        self._note_end(half.first_offset, committed=False)

    def resume(self, physical_offset: int) -> PutResult:
        """Begin a transaction anew that was given up, from the record that was kept of it.

        Raises RequestRefused when there is none, and as `put_half`; StorageError.
        """
        record = self._stored(physical_offset)
        if record is None:
            raise no_message(physical_offset, f"Put message back to {HALF_TOPIC} failed")
        return self.put_half(begun_anew(record))

    def write_ops(self) -> int | None:
        """Write every op message that is due; return the end of the last, None when none was, or
        when this node is no master. Raises StorageError.
        """
        end_offset = None
        while self.node.is_master and (
            batch := self.transactions.op_batch(self.node.config.transaction_op_bytes_max)
        ):
            put = self.store.put(
                op_message(batch, now_ms=self.clock.now_ms(), address=self.node.address)
            )
            self.transactions.note_op(put.queue_offset, batch, end_offset=put.end_offset)
            end_offset = put.end_offset
        return end_offset

    # ---- reading ----------------------------------------------------------------------------

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """The half message, any copy, that begins there; None when none does."""
        message = self._stored(physical_offset)
        return message if message is not None and message.topic == HALF_TOPIC else None

    def message_of(self, half: HalfMessage) -> MessageExt | None:
        """The whole message of an open transaction; None when retention has deleted it."""
        return self.message_at(half.physical_offset)

    def _stored(self, physical_offset: int) -> MessageExt | None:
        return stored_message(self.store, self.transactions, physical_offset)

    def _kept(self, topic: str) -> tuple[int, int]:
        """The offsets between which a queue is read."""
        store = self.store
        minimum, maximum = store.min_offset(topic, QUEUE_ID), store.max_offset(topic, QUEUE_ID)
        stored = self.offsets.committed(TRANSACTION_GROUP, topic, QUEUE_ID)
        return min(max(minimum, stored or 0), maximum), maximum

    def _read(self, topic: str, offset: int) -> Iterator[MessageExt]:
        """The queue's messages; one that cannot be read is reported and passed over: a broker that
        did not start for it would keep all others.
        """
        store = self.store
        while True:
            for physical_offset, size_bytes, _ in (
                store.queue_units(topic, QUEUE_ID, offset, READ_COUNT) or ()
            ):
                record = store.bytes_at(physical_offset, size_bytes)
                offset += 1
                if record is None:
                    continue
                try:
                    yield decode_record(record, check_crc=False, read_body=topic == OP_HALF_TOPIC)
                except CorruptRecord as error:
                    self._emit_unreadable(topic, offset - 1, error)
            found = store.get(topic, QUEUE_ID, offset, max_count=1, max_bytes=1)
            if found.status is not GetStatus.FOUND:
                if found.next_begin_offset <= offset:
                    return
                offset = found.next_begin_offset

    def _emit_unreadable(self, topic: str, queue_offset: int, error: CorruptRecord) -> None:
        meaning = (
            "a transaction whose end it noted may be asked about again"
            if topic == OP_HALF_TOPIC
            else "its transaction is lost, if it was open"
        )
        detail = f"message {queue_offset} of {topic} cannot be read: {error}; {meaning}"
        event = LifecycleEvent("UNREADABLE_MESSAGE", detail)
        report(self.observer, _log, event, level=logging.ERROR)

    # ---- endings ----------------------------------------------------------------------------

    def _note_end(self, first_offset: int, *, committed: bool) -> None:
        self.transactions.end(first_offset, committed=committed)
        if self.node.config.raft_enable:  # In the step of its message: one entry, or none.
            self.write_ops()
        elif self.transactions.pending_bytes >= self.node.config.transaction_op_bytes_max:
            self._batch_due.set()

    def _check_ended_alike(self, half: MessageExt, *, commit: bool) -> None:
        committed = self.transactions.was_committed(first_offset_of(half))
        if committed is None and not self.node.config.store.message_index_enable:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{HALF_GONE_REMARK}: the transaction of {half.message_id} has ended before, and "
                "how is not known any more: messages are not indexed (messageIndexEnable)",
            )
        if committed is None:
            committed = self._is_committed(half)
        if committed != commit:
            raise RequestRefused(
                ResponseCode.TRANSACTION_FAILED,
                f"the transaction of {half.message_id} has ended before: it was "
                f"{'committed' if committed else 'rolled back'}",
            )

    def _is_committed(self, half: MessageExt) -> bool:
        """Is the message in its topic already? Its key leads there; False without an index."""
        store, key, place = self.store, half.uniq_key, real_place(half)
        if key is None or place is None:
            return False
        found = store.query_by_key(
            place[0],
            key,
            max_count=NAMESAKES_MAX,
            begin_ms=half.store_timestamp_ms - INDEX_GRAIN_MS,  # No copy follows the commit.
            end_ms=self.clock.now_ms() + DAY_MS,
        )
        for physical_offset in found.physical_offsets:
            copy = self._head_at(physical_offset)
            if copy is None or copy.sys_flag & TRANSACTION_BITS != SysFlag.TRANSACTION_COMMIT:
                continue
            prepared = self.message_at(copy.prepared_transaction_offset)
            if prepared is not None and first_offset_of(prepared) == first_offset_of(half):
                return True
        return False

    def _head_at(self, physical_offset: int) -> MessageExt | None:
        """The message at a place that the index named, without its body: others may have the same
        key, and bodies of megabytes.
        """
        store = self.store
        size = store.bytes_at(physical_offset, 4)
        record = size and store.bytes_at(physical_offset, int.from_bytes(size, "big", signed=True))
        try:
            return decode_record(record, check_crc=False, read_body=False) if record else None
        except CorruptRecord:
            return None

    # ---- facts ------------------------------------------------------------------------------

    def _report(self, topic: str, offset: int, trigger: str) -> None:
        """Store a progress offset as the internal group's consume offset, and report it."""
        offsets = self.offsets
        if (offsets.committed(TRANSACTION_GROUP, topic, QUEUE_ID) or 0) == offset:
            return
        if offsets.is_being_forgotten(topic, TRANSACTION_GROUP):
            return  # It is reported again when the next one has ended.
        offsets.take_reset(TRANSACTION_GROUP, topic, QUEUE_ID)  # Nobody pulls: it would wait on.
        commit = offsets.commit(
            TRANSACTION_GROUP, topic, QUEUE_ID, offset, now_ms=self.clock.now_ms()
        )
        self.facts.emit(
            (TRANSACTION_GROUP, topic, QUEUE_ID),
            offset,
            commit.previous_offset,
            path="TRANSACTION",
            trigger=trigger,
            accepted=commit.accepted,
        )
