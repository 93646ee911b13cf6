"""Request and response bodies for client heartbeats, members, locks and running info.

Place in the walk: membership, order locks and the questions a broker asks its clients.

Invariant: names are RocketMQ's, in snake case. Absent on purpose: deciding what follows from them.
Row D3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.foundation.limits import (
    MEMBER_ANSWER_BYTES_MAX,
    MEMBER_ANSWER_QUEUES_MAX,
    SUBSCRIPTION_CHARS_MAX,
    SUBSCRIPTION_TAGS_MAX,
)
from engine.foundation.units import Buffer
from engine.protocol import fastjson
from engine.protocol.body_codec import (
    CONSUME_FROM_WHERE,
    CONSUME_RESULTS,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    Body,
    EnumName,
    Part,
    WireQueue,
    by_queue,
    convert,
    encode_object_keyed,
    enum_name,
    queue_key,
    table_of,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.hashes import tags_code
from engine.protocol.header_fields import Int64
from engine.protocol.message import MessageQueue
from engine.protocol.tag_bits import split_tags

SUBSCRIBE_ALL = "*"
TAG_EXPRESSION = "TAG"


class SubscriptionData(Body):
    """What is wanted of a topic."""

    topic: str
    sub_string: str
    """`*`, or tags joined by `||`."""
    tags_set: list[str] = msgspec.field(default_factory=list)
    """The tags; none for `*`."""
    code_set: list[Int64] = msgspec.field(default_factory=list)
    """Their hash codes, which the broker tests."""
    sub_version: Int64 = 0
    expression_type: str | None = TAG_EXPRESSION
    class_filter_mode: bool = False

    @classmethod
    def build(cls, topic: str, expression: str | None, *, sub_version: int = 0) -> Self:
        """From an expression: trimmed tags, empty ones dropped, none for nothing or `*`.

        Raises RequestRefused with SUBSCRIPTION_PARSE_FAILED when there is no tag in it.
        """
        if not expression or expression == SUBSCRIBE_ALL:
            return cls(topic, SUBSCRIBE_ALL, sub_version=sub_version)
        if len(expression) > SUBSCRIPTION_CHARS_MAX:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the expression {expression[:40]!r}… has {len(expression)} characters: "
                f"{SUBSCRIPTION_CHARS_MAX} at most",
            )
        tags = split_tags(expression)
        if not tags:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the expression {expression!r} holds no tag: `*`, or tags joined by `||`",
            )
        if len(tags) > SUBSCRIPTION_TAGS_MAX:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the expression {expression[:40]!r}… has {len(tags)} tags: "
                f"{SUBSCRIPTION_TAGS_MAX} at most",
            )
        codes = list(dict.fromkeys(tags_code(tag) for tag in tags))
        return cls(topic, expression, tags, codes, sub_version)

    @classmethod
    def by_selector(
        cls, topic: str, expression: str | None, expression_type: str, *, sub_version: int = 0
    ) -> Self:
        """From a selector over properties, which only a broker evaluates; it is not looked into.

        Raises RequestRefused with SUBSCRIPTION_PARSE_FAILED when there is none.
        """
        if not expression:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"Expression can't be null! a subscription of type {expression_type} needs one",
            )
        return cls(topic, expression, sub_version=sub_version, expression_type=expression_type)

    @property
    def weight_bytes(self) -> int:
        """About the memory it takes as long as it is kept."""
        texts = len(self.topic) + len(self.sub_string) + sum(map(len, self.tags_set))
        return 400 + texts + 64 * len(self.tags_set) + 40 * len(self.code_set)

    @property
    def is_by_tags(self) -> bool:
        """Is it by tags, as all are that say nothing else?"""
        return self.expression_type in (None, "", TAG_EXPRESSION)


class ProducerData(Part):
    """A producer group of a client."""

    group_name: str


class ConsumerData(Part):
    """A consumer group of a client."""

    group_name: str
    consume_type: EnumName = "CONSUME_PASSIVELY"
    message_model: EnumName = "CLUSTERING"
    consume_from_where: EnumName = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False

    def __post_init__(self) -> None:
        """Names for places. Raises ValueError."""
        self.consume_type = enum_name(self.consume_type, CONSUME_TYPES, "consumeType")
        self.message_model = enum_name(self.message_model, MESSAGE_MODELS, "messageModel")
        self.consume_from_where = enum_name(
            self.consume_from_where, CONSUME_FROM_WHERE, "consumeFromWhere"
        )


class HeartbeatData(Body):
    """HEART_BEAT (34): what a client is."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Int64 = 0
    """Not 0: version 2, in which unchanged subscriptions may be left out."""
    without_sub: bool = False
    """Are they left out?"""


class CheckClientRequest(Body):
    """CHECK_CLIENT_CONFIG (46): would the broker take this subscription?"""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerList(Body):
    """GET_CONSUMER_LIST_BY_GROUP (38): ids of a group's members."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class _LockWire(Body):
    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: list[WireQueue] = msgspec.field(default_factory=list)


class _LockedWire(Body):
    locked: list[WireQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


@dataclass(slots=True, kw_only=True)
class LockBatchRequest:
    """LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue]
    only_this_broker: bool = False

    def encode(self) -> bytes:
        """As bytes."""
        queues = [WireQueue.of(queue) for queue in self.mq_set]
        return _LockWire(
            self.consumer_group, self.client_id, self.only_this_broker, queues
        ).encode()

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes. Raises RemoteProtocolError."""
        wire = _LockWire.decode(body)
        return cls(
            consumer_group=wire.consumer_group or "",
            client_id=wire.client_id or "",
            mq_set=[queue.queue() for queue in wire.mq_set],
            only_this_broker=wire.only_this_broker,
        )


@dataclass(slots=True, kw_only=True)
class LockBatchResponse:
    """LOCK_BATCH_MQ (41): the queues that are the asker's now."""

    lock_ok_mq_set: list[MessageQueue]

    def encode(self) -> bytes:
        """As bytes."""
        return _LockedWire([WireQueue.of(queue) for queue in self.lock_ok_mq_set]).encode()

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes. Raises RemoteProtocolError."""
        return cls(lock_ok_mq_set=[queue.queue() for queue in _LockedWire.decode(body).locked])


class ProcessQueueInfo(Part):
    """What a consumer holds of one queue; fields with None are our own clients' only."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int64 = 0
    cached_msg_size_in_mib: Int64 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int64 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp_ms: Int64 = msgspec.field(name="lastLockTimestamp", default=0)
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pull_timestamp_ms: Int64 = msgspec.field(name="lastPullTimestamp", default=0)
    last_consume_timestamp_ms: Int64 = msgspec.field(name="lastConsumeTimestamp", default=0)
    held_bytes: Int64 | None = None
    finished_count: Int64 | None = None
    held_ranges: list[tuple[Int64, Int64]] | None = None
    filtered_count: Int64 | None = None
    head_message_id: str | None = None
    head_since_ms: Int64 | None = msgspec.field(name="headSince", default=None)
    processed_offset: Int64 | None = None
    client_committed: Int64 | None = None
    local_retries: list[tuple[Int64, str, Int64, Int64]] | None = None
    """When, message id, queue offset and failed tries of messages that no way back took."""
    head_stack: str | None = None
    """Where the listener of the head stands; reported when stacks are asked for."""
    top_key: str | None = None
    """Sharding key, or else keys, of most of the held messages that have one."""
    top_key_messages: Int64 | None = None
    """Of the lowest held messages, as many as were looked at, those that have it."""
    keyed_messages: Int64 | None = None
    """Of these, those that have any."""
    resting: str | None = None
    """Why the queue was not pulled when it was its turn: COUNT, BYTES or SPAN; None: it was."""


class ConsumeStatus(Part):
    """How fast a consumer pulls and consumes a topic; None: it does not say. Times in ms."""

    pull_rt: float | None = msgspec.field(name="pullRT", default=None)
    pull_tps: float | None = msgspec.field(name="pullTPS", default=None)
    consume_rt: float | None = msgspec.field(name="consumeRT", default=None)
    consume_ok_tps: float | None = msgspec.field(name="consumeOKTPS", default=None)
    consume_failed_tps: float | None = msgspec.field(name="consumeFailedTPS", default=None)
    consume_failed_msgs: float | None = None
    """Of the last hour."""
    calls: Int64 | None = None
    """Listener calls that ended; this field and those below are reported by our own clients only,
    of the last minute.
    """
    consume_p50: Int64 | None = None
    """Half of the listener calls took no longer, in ms."""
    consume_p99: Int64 | None = None
    flow_count_ms: Int64 | None = None
    """How long pulls rested since their windows held too many messages, summed over the queues."""
    flow_bytes_ms: Int64 | None = None
    """The same, since they held too many bytes."""
    flow_span_ms: Int64 | None = None
    """The same, since what they handed out lay too far beyond an unfinished message."""
    topic_queues: Int64 | None = None
    """Readable queues of the topic over all brokers, when the member divided them last."""
    group_members: Int64 | None = None
    """Members among which it divided them."""


class ListenerPool(Part):
    """The listeners of a consumer at the moment; reported by our own clients only."""

    slots: Int64
    """Calls that may be under way at once."""
    busy: Int64
    """Calls that are."""
    queued: Int64
    """Batches (concurrent) or queues (orderly) that wait for their turn."""
    paused: bool = False
    """Did the application suspend the consumer?"""


@dataclass(slots=True)
class ConsumerRunningInfo:
    """GET_CONSUMER_RUNNING_INFO (307): a consumer's answer."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    jstack: str | None = None
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    """By topic."""
    listener_pool: ListenerPool | None = None
    """None: it does not say, or has no listeners."""
    says_nothing: bool = False
    """Was the answer empty, as that of a Go client that broadcasts?"""

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes; figures of consumption speed that are none are passed over. An empty body is
        an answer that says nothing.

        Raises RemoteProtocolError.
        """
        if not len(body):
            return cls(says_nothing=True)
        document = _member_answer(body)
        properties = table_of(document, "properties")
        return cls(
            convert(properties, dict[str, str]),
            convert(document.get("subscriptionSet") or [], list[SubscriptionData]),
            by_queue(table_of(document, "mqTable"), ProcessQueueInfo),
            convert(document.get("jstack"), str | None),  # type: ignore[arg-type]
            _status_table(document),
            _listener_pool(document),
        )


def _status_table(document: object) -> dict[str, ConsumeStatus]:
    try:
        return convert(table_of(document, "statusTable"), dict[str, ConsumeStatus])
    except RemoteProtocolError:
        return {}  # What the client holds is reported all the same.


def _listener_pool(document: object) -> ListenerPool | None:
    try:
        pool = table_of(document, "listenerPool")
        return convert(pool, ListenerPool) if pool else None
    except RemoteProtocolError:
        return None  # As above.


def encode_running_info(
    properties: Mapping[str, str],
    subscriptions: Sequence[SubscriptionData],
    queue_infos: Mapping[MessageQueue, Mapping[str, Any]],
    speeds: Mapping[str, ConsumeStatus],
    *,
    jstack: str | None = None,
    listener_pool: ListenerPool | None = None,
) -> bytes:
    """A consumer's answer to GET_CONSUMER_RUNNING_INFO; entries are under their wire names."""
    return encode_object_keyed(
        "mqTable",
        queue_infos,
        jstack=jstack,
        listenerPool=None if listener_pool is None else listener_pool.to_json(),
        mqPopTable={},
        properties=dict(properties),
        statusTable={topic: speed.to_json() for topic, speed in speeds.items()},
        subscriptionSet=[data.to_json() for data in subscriptions],
        userConsumerInfo={},
    )


class ConsumeMessageDirectlyResult(Body):
    """CONSUME_MESSAGE_DIRECTLY (309): what the listener said."""

    consume_result: EnumName
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL."""
    order: bool = False
    auto_commit: bool = True
    spent_time_ms: Int64 = msgspec.field(name="spentTimeMills", default=0)
    remark: str | None = None

    def __post_init__(self) -> None:
        """Names for places. Raises ValueError."""
        self.consume_result = enum_name(self.consume_result, CONSUME_RESULTS, "consumeResult")


def encode_direct_result(consume_result: str, *, orderly: bool, spent_ms: int) -> bytes:
    """A consumer's answer to CONSUME_MESSAGE_DIRECTLY."""
    return ConsumeMessageDirectlyResult(consume_result, orderly, True, spent_ms).encode()


def member_offsets(body: Buffer) -> dict[MessageQueue, int]:
    """A consumer's answer to GET_CONSUMER_STATUS_FROM_CLIENT (221). Raises RemoteProtocolError."""
    return by_queue(table_of(_member_answer(body), "messageQueueTable"), int)


def _member_answer(body: Buffer) -> Any:
    """What a member answers, of bounded length. Raises RemoteProtocolError."""
    if len(body) > MEMBER_ANSWER_BYTES_MAX:
        raise RemoteProtocolError(
            f"an answer of {len(body)} bytes about a member's queues: {MEMBER_ANSWER_BYTES_MAX} at "
            "most are read"
        )
    return fastjson.loads(body, keys_max=MEMBER_ANSWER_QUEUES_MAX)


def encode_consumer_status(members: Mapping[str, Mapping[MessageQueue, int]]) -> bytes:
    """The broker's answer to 223: each member's offsets by queue."""
    table = {
        client_id: {queue_key(queue): offset for queue, offset in offsets.items()}
        for client_id, offsets in members.items()
    }
    return fastjson.dumps({"consumerTable": table, "messageQueueTable": {}})
