"""Headers of producers and consumers: what an ordinary client sends and gets (spec: wire, section
1).

Invariant: a Python name says kind and unit, the wire name is RocketMQ's. Absent on purpose: what
fields mean beyond that; the handlers know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.protocol.header_codec import Header, decode_fields, encode_fields, wire


@dataclass(slots=True, kw_only=True)
class SendMessageRequestHeader(Header):
    """SEND_MESSAGE, and with one-letter names SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    producer_group: str = wire("producerGroup", str, short="a")
    topic: str = wire("topic", str, short="b")
    default_topic: str = wire("defaultTopic", str, short="c")
    default_topic_queue_nums: int = wire("defaultTopicQueueNums", int, short="d")
    queue_id: int = wire("queueId", int, short="e")
    sys_flag: int = wire("sysFlag", int, short="f")
    born_timestamp_ms: int = wire("bornTimestamp", int, short="g")
    flag: int = wire("flag", int, short="h")
    properties: str | None = wire("properties", str, default=None, short="i")
    reconsume_times: int | None = wire("reconsumeTimes", int, default=None, short="j")
    unit_mode: bool | None = wire("unitMode", bool, default=None, short="k")
    max_reconsume_times: int | None = wire("maxReconsumeTimes", int, default=None, short="l")
    batch: bool | None = wire("batch", bool, default=None, short="m")
    broker_name: str | None = wire("bname", str, default=None, short="n")

    @classmethod
    def decode_v2(cls, given: Mapping[str, str]) -> SendMessageRequestHeader:
        """As `decode`, by the one-letter names of V2."""
        return decode_fields(cls, given, short=True)

    def encode_v2(self) -> dict[str, str]:
        """As `encode`, by the one-letter names of V2."""
        return encode_fields(self, short=True)


@dataclass(slots=True, kw_only=True)
class SendMessageResponseHeader(Header):
    """Where the message was stored; of a batch, message_id is a comma list."""

    message_id: str = wire("msgId", str)
    queue_id: int = wire("queueId", int)
    queue_offset: int = wire("queueOffset", int)
    transaction_id: str | None = wire("transactionId", str, default=None)
    batch_uniq_id: str | None = wire("batchUniqId", str, default=None)


@dataclass(slots=True, kw_only=True)
class PullMessageRequestHeader(Header):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    consumer_group: str = wire("consumerGroup", str)
    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    queue_offset: int = wire("queueOffset", int)
    max_msg_nums: int = wire("maxMsgNums", int)
    sys_flag: int = wire("sysFlag", int)
    commit_offset: int = wire("commitOffset", int)
    suspend_timeout_ms: int = wire("suspendTimeoutMillis", int)
    subscription: str | None = wire("subscription", str, default=None)
    sub_version: int = wire("subVersion", int)
    expression_type: str | None = wire("expressionType", str, default=None)
    max_msg_bytes: int | None = wire("maxMsgBytes", int, default=None)
    request_source: int | None = wire("requestSource", int, default=None)
    proxy_forward_client_id: str | None = wire("proxyFrowardClientId", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class PullMessageResponseHeader(Header):
    """Where to go on, and the ends of the queue."""

    suggest_which_broker_id: int = wire("suggestWhichBrokerId", int)
    next_begin_offset: int = wire("nextBeginOffset", int)
    min_offset: int = wire("minOffset", int)
    max_offset: int = wire("maxOffset", int)
    offset_delta: int | None = wire("offsetDelta", int, default=None)
    topic_sys_flag: int | None = wire("topicSysFlag", int, default=None)
    group_sys_flag: int | None = wire("groupSysFlag", int, default=None)
    forbidden_type: int | None = wire("forbiddenType", int, default=None)


@dataclass(slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(Header):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str = wire("consumerGroup", str)
    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    set_zero_if_not_found: bool | None = wire("setZeroIfNotFound", bool, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(Header):
    """UPDATE_CONSUMER_OFFSET; `trigger` is told by our own clients only: TIMER, SHUTDOWN or
    HAND_OVER.
    """

    consumer_group: str = wire("consumerGroup", str)
    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    commit_offset: int = wire("commitOffset", int)
    trigger: str | None = wire("trigger", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class OffsetResponseHeader(Header):
    """One queue offset."""

    offset: int = wire("offset", int)


@dataclass(slots=True, kw_only=True)
class QueueRequestHeader(Header):
    """GET_MAX_OFFSET, GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME."""

    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    committed: bool | None = wire("committed", bool, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class SearchOffsetRequestHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    timestamp_ms: int = wire("timestamp", int)
    boundary_type: str | None = wire("boundaryType", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class TimestampResponseHeader(Header):
    """One store time."""

    timestamp_ms: int = wire("timestamp", int)


@dataclass(slots=True, kw_only=True)
class HeartbeatRequestHeader(Header):
    """HEART_BEAT; everything else is in its body."""

    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class HeartbeatResponseHeader(Header):
    """Does the broker understand heartbeats without subscriptions, and did the subscription change?"""

    heartbeat_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", bool, default=None)
    subscription_changed: bool | None = wire("IS_SUB_CHANGE", bool, default=None)


@dataclass(slots=True, kw_only=True)
class UnregisterClientRequestHeader(Header):
    """UNREGISTER_CLIENT."""

    client_id: str = wire("clientID", str)
    producer_group: str | None = wire("producerGroup", str, default=None)
    consumer_group: str | None = wire("consumerGroup", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class GroupRequestHeader(Header):
    """Requests about one consumer group: its members, its topics."""

    consumer_group: str = wire("consumerGroup", str)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class ConsumerSendMsgBackRequestHeader(Header):
    """CONSUMER_SEND_MSG_BACK; `physical_offset` is the failed record in the commit log."""

    physical_offset: int = wire("offset", int)
    group: str = wire("group", str)
    delay_level: int = wire("delayLevel", int)
    origin_message_id: str | None = wire("originMsgId", str, default=None)
    origin_topic: str | None = wire("originTopic", str, default=None)
    unit_mode: bool | None = wire("unitMode", bool, default=None)
    max_reconsume_times: int | None = wire("maxReconsumeTimes", int, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class EndTransactionRequestHeader(Header):
    """END_TRANSACTION."""

    topic: str | None = wire("topic", str, default=None)
    producer_group: str = wire("producerGroup", str)
    tran_state_table_offset: int = wire("tranStateTableOffset", int)
    commit_log_offset: int = wire("commitLogOffset", int)
    commit_or_rollback: int = wire("commitOrRollback", int)
    from_transaction_check: bool | None = wire("fromTransactionCheck", bool, default=None)
    message_id: str = wire("msgId", str)
    transaction_id: str | None = wire("transactionId", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED, to the client."""

    consumer_group: str = wire("consumerGroup", str)


@dataclass(slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(Header):
    """GET_CONSUMER_RUNNING_INFO, to the broker and on to the client."""

    consumer_group: str = wire("consumerGroup", str)
    client_id: str = wire("clientId", str)
    jstack_enable: bool | None = wire("jstackEnable", bool, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class ConsumeMessageDirectlyRequestHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY, to the client."""

    consumer_group: str = wire("consumerGroup", str)
    client_id: str | None = wire("clientId", str, default=None)
    message_id: str | None = wire("msgId", str, default=None)
    broker_name: str | None = wire("brokerName", str, default=None)
    topic: str | None = wire("topic", str, default=None)
    topic_sys_flag: int | None = wire("topicSysFlag", int, default=None)
    group_sys_flag: int | None = wire("groupSysFlag", int, default=None)


@dataclass(slots=True, kw_only=True)
class QueryMessageRequestHeader(Header):
    """QUERY_MESSAGE; with extField _UNIQUE_KEY_QUERY=true the key is a UNIQ_KEY."""

    topic: str = wire("topic", str)
    key: str = wire("key", str)
    max_num: int = wire("maxNum", int)
    begin_timestamp_ms: int = wire("beginTimestamp", int)
    end_timestamp_ms: int = wire("endTimestamp", int)
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", bool, default=None)
    index_type: str | None = wire("indexType", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class QueryMessageResponseHeader(Header):
    """How far the index reaches."""

    index_last_update_timestamp_ms: int = wire("indexLastUpdateTimestamp", int)
    index_last_update_physical_offset: int = wire("indexLastUpdatePhyoffset", int)


@dataclass(slots=True, kw_only=True)
class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID."""

    topic: str | None = wire("topic", str, default=None)
    physical_offset: int = wire("offset", int)
    broker_name: str | None = wire("bname", str, default=None)
