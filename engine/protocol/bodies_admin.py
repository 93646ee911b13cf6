"""Request and response bodies for admin tools, such as progress and connections.

Invariant: names are RocketMQ's, in snake case. Absent on purpose: deciding what follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import msgspec

from engine.foundation.units import Buffer
from engine.protocol import fastjson
from engine.protocol.bodies_broker import TopicConfig
from engine.protocol.bodies_client import SubscriptionData
from engine.protocol.body_codec import (
    CONSUME_FROM_WHERE,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    REQUEST_MODES,
    Body,
    EnumName,
    Part,
    WireQueue,
    by_queue,
    convert,
    encode_object_keyed,
    enum_name,
    language_name,
    table_of,
)
from engine.protocol.header_fields import Int32, Int64
from engine.protocol.message import MessageQueue


class QueueTimeSpan(Part):
    """Store times of a queue's ends, and of what a group consumed last."""

    message_queue: WireQueue
    min_timestamp_ms: Int64 = msgspec.field(name="minTimeStamp", default=0)
    max_timestamp_ms: Int64 = msgspec.field(name="maxTimeStamp", default=0)
    consume_timestamp_ms: Int64 = msgspec.field(name="consumeTimeStamp", default=0)
    delay_time_ms: Int64 = msgspec.field(name="delayTime", default=0)
    """How long the first message not consumed has been waiting; 0 when none waits."""


class ConsumeTimeSpans(Body):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)


class ConsumeQueueData(Part):
    """One unit of a consume queue."""

    physic_offset: Int64
    physic_size: Int64
    tags_code: Int64
    eval: bool = False
    """Does the group's filter pass it? Reported for compiled filters only."""


class ConsumeQueueUnits(Body, omit_defaults=True):
    """QUERY_CONSUME_QUEUE (321)."""

    max_queue_index: Int64
    min_queue_index: Int64
    queue_data: list[ConsumeQueueData]
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class HaClientRuntimeInfo(Part):
    """A slave's connection with its master."""

    activated: bool = False
    last_read_timestamp_ms: Int64 = msgspec.field(name="lastReadTimestamp", default=0)
    last_write_timestamp_ms: Int64 = msgspec.field(name="lastWriteTimestamp", default=0)
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HaConnectionInfo(Part):
    """A master's connection with a slave."""

    addr: str
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HaRuntimeInfo(Body):
    """GET_BROKER_HA_STATUS (907)."""

    master_commit_log_max_offset: Int64
    master: bool = True
    in_sync_slave_nums: Int64 = 0
    ha_connection_info: list[HaConnectionInfo] = msgspec.field(default_factory=list)
    ha_client_runtime_info: HaClientRuntimeInfo = msgspec.field(default_factory=HaClientRuntimeInfo)


class EpochEntry(Part):
    """One master's part of a log; the newest one has no end yet."""

    epoch: Int32
    start_offset: Int64
    end_offset: Int64 = (1 << 63) - 1


class EpochEntryCache(Body):
    """GET_BROKER_EPOCH_CACHE (1007)."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    max_offset: Int64
    epoch_list: list[EpochEntry] = msgspec.field(default_factory=list)


class ReplicaState(Body):
    """GET_REPLICA_STATE (720208): one copy of a broker's log."""

    broker_id: Int64
    role: str
    """MASTER, SLAVE or NONE."""
    broker_role: str
    """The setting that is in force."""
    in_sync_replicas: Int64
    log_begin: Int64
    log_end: Int64
    log_synced: Int64
    highest_epoch: Int64
    epochs: list[dict[str, Int64]]
    following: str = ""
    """Of a slave: how it stands to its master."""
    reason: str = ""
    master_address: str = ""
    master_end: Int64 = -1
    """Of a slave: where its master's log ended at its last word; -1: it has heard none."""
    member: str = ""
    """Of a Raft group: this node's name."""
    voters: list[str] = msgspec.field(default_factory=list)
    """Of a Raft group: the nodes that decide, as this one knows."""
    learners: list[str] = msgspec.field(default_factory=list)
    """Of a Raft group: the nodes that get the log and do not decide."""


class OutageOffset(Part):
    """An offset that a client committed on a slave."""

    group: str
    topic: str
    queue_id: Int32
    offset: Int64
    age_ms: Int64
    """How long ago; -1: in an earlier life of the slave."""


class OutageOffsetList(Body):
    """MERGE_CONSUMER_OFFSETS (720210), GET_OUTAGE_OFFSETS (720211)."""

    state_version: Int64
    """The epoch that the slave knows."""
    offsets: list[OutageOffset] = msgspec.field(default_factory=list)


class LogCut(Body):
    """CHANGE_REPLICA (720209): what a cut of a log takes, or has taken."""

    begin: Int64
    end: Int64
    messages: Int64
    topics: dict[str, Int64]
    """Messages by topic."""
    file: str = ""
    """Where its bytes were written to, before they were cut."""


class ProducerInfo(Part):
    """A producer on a broker."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: EnumName
    version: Int64
    last_update_timestamp_ms: Int64 = msgspec.field(name="lastUpdateTimestamp")

    def __post_init__(self) -> None:
        """Names for places."""
        self.language = language_name(self.language)


class ProducerTable(Body):
    """GET_ALL_PRODUCER_INFO (328): producers by group."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


class GroupSubscription(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class TopicConfigs(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = msgspec.field(default_factory=list)


class MessageRequestMode(Body):
    """SET_MESSAGE_REQUEST_MODE (401): how members of a group get a topic's messages."""

    topic: str
    consumer_group: str
    mode: EnumName = "PULL"
    pop_share_queue_num: Int64 = 0

    def __post_init__(self) -> None:
        """Names for places. Raises ValueError."""
        self.mode = enum_name(self.mode, REQUEST_MODES, "mode")


class OffsetWrapper(Part):
    """How far a group is on one queue."""

    broker_offset: Int64 = 0
    """The queue's max offset."""
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp_ms: Int64 = msgspec.field(name="lastTimestamp", default=0)
    """Store time of the message before the consume offset; 0 when it is gone."""


@dataclass(slots=True)
class ConsumeStats:
    """GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0

    def rows(self) -> list[OffsetWrapper]:
        """The marks of every queue."""
        return list(self.offset_table.values())

    def encode(self) -> bytes:
        """As bytes."""
        return encode_object_keyed("offsetTable", self.offset_table, consumeTps=self.consume_tps)

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes. Raises RemoteProtocolError."""
        document = fastjson.loads(body)
        table = by_queue(table_of(document, "offsetTable"), OffsetWrapper)
        return cls(table, convert(document.get("consumeTps", 0.0), float))


class TopicOffset(Part):
    """The ends of one queue."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp_ms: Int64 = msgspec.field(name="lastUpdateTimestamp", default=0)


@dataclass(slots=True)
class TopicStatsTable:
    """GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0

    def encode(self) -> bytes:
        """As bytes."""
        return encode_object_keyed("offsetTable", self.offset_table, topicPutTps=self.topic_put_tps)

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes. Raises RemoteProtocolError."""
        document = fastjson.loads(body)
        table = by_queue(table_of(document, "offsetTable"), TopicOffset)
        return cls(table, convert(document.get("topicPutTps", 0.0), float))


class ClientConnection(Part):
    """A client on a broker."""

    client_id: str
    client_addr: str
    language: EnumName
    version: Int64

    def __post_init__(self) -> None:
        """Names for places."""
        self.language = language_name(self.language)


class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[ClientConnection] = msgspec.field(default_factory=list)


class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[ClientConnection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: EnumName | None = None
    message_model: EnumName | None = None
    consume_from_where: EnumName | None = None

    def __post_init__(self) -> None:
        """Names for places. Raises ValueError."""
        if self.consume_type is not None:
            self.consume_type = enum_name(self.consume_type, CONSUME_TYPES, "consumeType")
        if self.message_model is not None:
            self.message_model = enum_name(self.message_model, MESSAGE_MODELS, "messageModel")
        if self.consume_from_where is not None:
            self.consume_from_where = enum_name(
                self.consume_from_where, CONSUME_FROM_WHERE, "consumeFromWhere"
            )
