"""Stores sent messages, each one only once on topics with deduplication.

Place in the walk: between the checks of `handlers/send` and `message_store.put`.

Invariant: on a topic with deduplication one message is stored once within the window of
`sending/deduplication`, and every resend is answered what the first send was, as durable as it. A
batch that was torn by a crash is completed: only its missing messages are stored, behind the
others. Absent on purpose: answers and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import chain

import msgspec

from engine.broker.identity import BrokerNode
from engine.broker.sending.deduplication import Deduplication, FirstCopy, body_digest, name_of
from engine.broker.sending.durability import no_record, not_stored
from engine.broker.topics.topics import BITMAP, DEDUPLICATION, Topics, is_on, tag_filter
from engine.foundation.errors import CorruptRecord, LocalProtocolError, RequestRefused, StorageError
from engine.foundation.limits import COPY_ROOM_BYTES
from engine.foundation.observing import LifecycleEvent, Observer
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import WAITING_TOPICS
from engine.protocol.properties import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    whole_number,
)
from engine.runtime.clock import Clock
from engine.store import BatchDraft, MessageDraft, MessageStore, PutResult
from engine.store.record_reading import MULTI_TAGS, property_value

READ_UNITS_MAX = 1024
_ORIGIN = f"{PROPERTY_ORIGIN_MESSAGE_ID}\x01".encode()


class Put(msgspec.Struct):
    """Where a send's messages are."""

    puts: list[PutResult]
    queue_id: int
    """The queue to name in the answer."""
    term: int
    """The term in which it was put."""

    @property
    def end_offset(self) -> int:
        """What must be durable before the answer leaves."""
        return max([put.end_offset for put in self.puts])


@dataclass(slots=True, kw_only=True, eq=False)
class Placement:
    """The puts of one broker's sends."""

    clock: Clock
    deduplication: Deduplication
    node: BrokerNode
    observer: Observer
    store: MessageStore
    topics: Topics

    def put(
        self,
        config: TopicConfig,
        drafts: Sequence[MessageDraft],
        unique_keys: Sequence[str],
        *,
        queue_id: int,
        put_one: Callable[[MessageDraft], PutResult] | None = None,
        room_bytes: int = COPY_ROOM_BYTES,
    ) -> Put:
        """Store messages for one queue, or find the copies of those that are stored already.

        `queue_id` is the one their answer names; `put_one` stores a message that is alone, None as
        the store does, with `room_bytes` left for further copies. Raises RequestRefused.
        """
        if not self.node.is_master:  # Also who finds copies acknowledges a put.
            self.node.check_master()
        put_one = put_one or partial(self.store.put, room_bytes=room_bytes)
        if config.attributes:
            for draft in drafts:
                draft.sys_flag |= self.flags_of(config)
            if self.is_once(config):
                return self._put_once(
                    config.topic_name, drafts, unique_keys, queue_id=queue_id, put_one=put_one
                )
        return Put(self._put_all(drafts, put_one), queue_id, self.node.term)

    def new_batch(self) -> BatchDraft:
        """An empty batch; see `put_batch`."""
        return self.store.new_batch()

    def put_batch(self, batch: BatchDraft, *, queue_id: int) -> Put:
        """Store a batch that was encoded with the flags of its topic, which stores each message it
        is sent. Raises RequestRefused.
        """
        self.node.check_master()
        try:
            puts = self.store.put_batch(batch, room_bytes=COPY_ROOM_BYTES)
        except LocalProtocolError as error:
            raise no_record(error) from error
        except StorageError as error:
            raise not_stored(error) from error
        return Put(puts, queue_id, self.node.term)

    @staticmethod
    def flags_of(config: TopicConfig) -> int:
        """Bits that the messages of a topic have in their sysFlag."""
        return MULTI_TAGS if tag_filter(config.attributes) == BITMAP else 0

    @staticmethod
    def is_once(config: TopicConfig) -> bool:
        """Does the topic store a message once, however often it is sent?"""
        return is_on(config.attributes, DEDUPLICATION)

    def _put_all(
        self,
        drafts: Sequence[MessageDraft],
        put_one: Callable[[MessageDraft], PutResult],
    ) -> list[PutResult]:
        store = self.store
        try:
            if len(drafts) == 1:
                return [put_one(drafts[0])]
            return store.put_batch(drafts, room_bytes=COPY_ROOM_BYTES)
        except LocalProtocolError as error:
            raise no_record(error) from error
        except StorageError as error:
            raise not_stored(error) from error

    def _put_once(
        self,
        topic: str,
        drafts: Sequence[MessageDraft],
        unique_keys: Sequence[str],
        *,
        queue_id: int,
        put_one: Callable[[MessageDraft], PutResult],
    ) -> Put:
        window, now_ms = self.deduplication, self.clock.now_ms()
        digests = [body_digest(draft.body) for draft in drafts]
        known: dict[str, FirstCopy] = {}
        fresh: dict[str | int, int] = {}  # By key; a copy on purpose by its place in the batch.
        for at, (draft, key) in enumerate(zip(drafts, unique_keys, strict=True)):
            if _is_new_copy(draft):
                fresh[at] = at
                continue
            copy = window.first_copy(topic, key, digests[at], now_ms=now_ms)
            if copy is not None:
                known[key] = copy
            elif digests[fresh.setdefault(key, at)] != digests[at]:
                raise RequestRefused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the batch holds two bodies under one UNIQ_KEY {key}; topic {topic} stores a "
                    "message once, so each needs an id of its own",
                )
        if known:
            queue_id = next(iter(known.values())).queue_id
        missing = [drafts[at] for at in fresh.values()]
        for draft in missing:
            if draft.topic == topic:
                draft.queue_id = queue_id
        placed = dict(zip(fresh, self._put_all(missing, put_one), strict=True)) if missing else {}
        for place, put in placed.items():
            if isinstance(place, str):
                window.remember(topic, place, FirstCopy(digests[fresh[place]], queue_id, put))
        puts = [
            placed[at] if at in placed else known[key].put if key in known else placed[key]
            for at, key in enumerate(unique_keys)
        ]
        return Put(puts, queue_id, self.node.term)

    # ---- the window over a restart, and what is reported of it -----------------------------------

    def load_window(self) -> None:
        """Read the window back from the log; before the first send."""
        topics = {
            config.topic_name
            for config in self.topics.all()
            if is_on(config.attributes, DEDUPLICATION)
        }
        if not topics:
            return
        window, queues = self.deduplication, self.store.queues()
        own = (key for key in queues if key[0] in topics)
        places = nlargest(window.entries_max, chain.from_iterable(map(self._places, own)))
        for key in queues:
            if key[0] in WAITING_TOPICS:
                places += self._places(key)
        found: dict[tuple[str, str], FirstCopy] = {}
        for place in sorted(places, reverse=True):
            if len(found) == window.entries_max:
                break
            sent = self._sent_at(place)
            if sent is not None and sent[0] in topics and not self._is_deleted(sent[0], place):
                topic, name, copy = sent
                found.pop((topic, name), None)  # An earlier copy stands for both.
                found[topic, name] = copy
        for (topic, name), copy in reversed(found.items()):
            window.remember(topic, name, copy)

    def _is_deleted(self, topic: str, place: int) -> bool:
        """Was it put before the topic was made again? It waits still, and no longer comes."""
        return self.store.was_deleted(topic, place)

    def _places(self, queue: tuple[str, int]) -> Iterator[int]:
        """Physical offsets of a queue's newest messages, as far as the window reaches."""
        store, window = self.store, self.deduplication
        offset = max(
            store.min_offset(*queue),
            store.offset_at_time(*queue, self.clock.now_ms() - window.window_ms),
            store.max_offset(*queue) - window.entries_max,
        )
        while units := store.queue_units(*queue, offset, READ_UNITS_MAX):
            for physical_offset, *_ in units:
                yield physical_offset
            offset += len(units)

    def _sent_at(self, place: int) -> tuple[str, str, FirstCopy] | None:
        """Topic, name and copy of the message there; None for one that is nobody's first."""
        record = self.store.record_at(place)
        try:
            message = None if record is None else decode_record(record, check_crc=False)
        except CorruptRecord:  # Properties that are no text, in a store of another broker's.
            return None
        if message is None or PROPERTY_ORIGIN_MESSAGE_ID in message.properties:
            return None
        topic, queue_id = _sent_to(message)
        key = message.uniq_key
        return (topic, name_of(key), _copy_of(message, queue_id)) if key else None

    def emit_resends(self) -> None:
        """Report what became of resends since the last report."""
        for topic, counts in self.deduplication.take_counts().items():
            self.observer.observe(
                LifecycleEvent(
                    "RESENDS",
                    f"topic {topic}: {counts.answered} resends answered with their first copy, "
                    f"{counts.refused} refused for another body under the same UNIQ_KEY",
                )
            )


def _is_new_copy(draft: MessageDraft) -> bool:
    """A retry or a re-drive: a new copy on purpose, though it keeps its UNIQ_KEY."""
    properties = draft.properties
    encoded = properties.encode() if isinstance(properties, str) else properties
    return bool(property_value(encoded, _ORIGIN))


def _sent_to(message: MessageExt) -> tuple[str, int]:
    """Topic and queue its producer meant."""
    queue_id = whole_number(message.properties.get(PROPERTY_REAL_QUEUE_ID, ""), -1)
    if message.topic in WAITING_TOPICS and queue_id >= 0:
        return message.properties.get(PROPERTY_REAL_TOPIC, ""), queue_id
    return message.topic, message.queue_id


def _copy_of(message: MessageExt, queue_id: int) -> FirstCopy:
    return FirstCopy(
        body_digest(message.body),
        queue_id,
        PutResult(
            message.queue_offset,
            message.physical_offset,
            message.store_size_bytes,
            message.store_timestamp_ms,
            message.physical_offset + message.store_size_bytes,
        ),
    )
