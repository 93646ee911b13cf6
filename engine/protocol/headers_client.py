"""Custom headers for message, pull, offset and client requests.

Place in the walk: the first thing a handler reads, the last thing a client writes. Names are
RocketMQ's, in snake case and with their unit; `wire_name` gives the ones that differ.

Invariant: a field without a default is required, as it is in RocketMQ. Absent on purpose: fields
every topic request may carry besides (lo, ns, nsd, bname, oway): nobody here looks at them; headers
of administration and name server (headers_admin).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from engine.protocol.header_fields import (
    UNREADABLE,
    Int32,
    Int64,
    RequestHeader,
    ResponseHeader,
    as_text,
    wire_name,
)

# ---- sending -------------------------------------------------------------------------------


class SendMessageRequestHeader(RequestHeader, kw_only=True):
    """SEND_MESSAGE (10); by one letter a field SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""

    producer_group: str
    topic: str
    default_topic: str
    """Template for a topic made on demand."""
    default_topic_queue_nums: Int32
    queue_id: Int32
    """A negative number leaves the choice to the broker."""
    sys_flag: Int32
    born_timestamp_ms: Int64 = wire_name("bornTimestamp")
    flag: Int32
    properties: str | None = None
    """In the string form (properties)."""
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = wire_name("bname", None)

    @classmethod
    def decode_v2(cls, fields: Mapping[str, str]) -> SendMessageRequestHeader:
        """As `decode`, from one-letter names alone: a long one beside them would be a second
        topic. Hot.
        """
        try:
            return msgspec.convert(fields, _ByLetters, strict=False)
        except UNREADABLE:  # Once more, for the error that names the field.
            return cls.decode(
                {_LONG_NAMES[name]: fields[name] for name in fields if name in _LONG_NAMES}
            )

    def encode_v2(self) -> dict[str, str]:
        """As `encode`, with one-letter names."""
        values = zip(_LONG_NAMES, msgspec.structs.astuple(self), strict=True)
        return {letter: as_text(value) for letter, value in values if value is not None}


_SHORT_NAMES = dict(
    zip(SendMessageRequestHeader.__struct_encode_fields__, "abcdefghijklmn", strict=True)
)
_LONG_NAMES = {short: name for name, short in _SHORT_NAMES.items()}
assert _SHORT_NAMES["producerGroup"] == "a", "the letters follow the order of the fields"
assert _SHORT_NAMES["bname"] == "n", "the letters follow the order of the fields"

_ByLetters = cast(
    "type[SendMessageRequestHeader]",
    msgspec.defstruct(
        "_ByLetters",
        [
            (
                one.name,
                one.type,
                msgspec.field(name=_SHORT_NAMES[one.encode_name], default=one.default),
            )
            for one in msgspec.structs.fields(SendMessageRequestHeader)
        ],
        bases=(SendMessageRequestHeader,),
        kw_only=True,
    ),
)
"""The same header as it stands in V2, read in one conversion."""


class ReplyMessageRequestHeader(RequestHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply, to whoever sent the request; its body is the
    message's.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp_ms: Int64 = wire_name("bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp_ms: Int64 = wire_name("storeTimestamp")


class SendMessageResponseHeader(ResponseHeader, kw_only=True):
    """Where the message is."""

    msg_id: str
    """Offset message id; of a batch all of them, with commas between."""
    queue_id: Int32
    queue_offset: Int64
    """Of a batch, that of its first message."""
    transaction_id: str | None = None
    """The UNIQ_KEY."""
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ConsumerSendMessageBackRequestHeader(RequestHeader, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36)."""

    offset: Int64
    """Physical offset of the message to retry."""
    group: str
    delay_level: Int32
    """0: the broker decides; below 0: the dead-letter queue."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = wire_name("bname", None)


class RecallMessageRequestHeader(RequestHeader, kw_only=True):
    """RECALL_MESSAGE (370)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str
    """From the answer to the send."""
    broker_name: str | None = wire_name("bname", None)


class RecallMessageResponseHeader(ResponseHeader, kw_only=True):
    """Which message does not appear."""

    msg_id: str
    """Its UNIQ_KEY."""


class EndTransactionRequestHeader(RequestHeader, kw_only=True):
    """END_TRANSACTION (37)."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    """Queue offset of the half message."""
    commit_log_offset: Int64
    """Physical offset of the half message."""
    commit_or_rollback: Int32
    """The sys flag's transaction bits: 8 commit, 12 roll back, 0 unknown."""
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    broker_name: str | None = wire_name("bname", None)


class CheckTransactionStateRequestHeader(RequestHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), to a producer; the half message is the body."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(RequestHeader, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323)."""

    topic: str | None = None
    msg_id: str
    """Offset message id of a message in TRANS_CHECK_MAX_TIME_TOPIC."""
    broker_name: str | None = wire_name("bname", None)


# ---- pulling -------------------------------------------------------------------------------


class PullMessageRequestHeader(RequestHeader, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    """First offset wanted."""
    max_msg_nums: Int32
    sys_flag: Int32
    """Bits of PullSysFlag."""
    commit_offset: Int64
    """Consume offset to store, when the flag says so."""
    suspend_timeout_ms: Int64 = wire_name("suspendTimeoutMillis")
    """How long the broker may hold the pull."""
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = wire_name("proxyFrowardClientId", None)
    broker_name: str | None = wire_name("bname", None)


class PullMessageResponseHeader(ResponseHeader, kw_only=True):
    """The result of a pull, and the offset of the next one."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageRequestHeader(RequestHeader, kw_only=True):
    """QUERY_MESSAGE (12)."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp_ms: Int64 = wire_name("beginTimestamp")
    end_timestamp_ms: Int64 = wire_name("endTimestamp")
    unique_key_query: bool = wire_name("_UNIQUE_KEY_QUERY", False)
    """Is the key a UNIQ_KEY?"""
    index_type: str | None = None
    last_key: str | None = None
    broker_name: str | None = wire_name("bname", None)


class QueryMessageResponseHeader(ResponseHeader, kw_only=True):
    """How far the index reaches; the records are the body."""

    index_last_update_timestamp_ms: Int64 = wire_name("indexLastUpdateTimestamp")
    index_last_update_physical_offset: Int64 = wire_name("indexLastUpdatePhyoffset")
    more_exist: bool | None = None
    """True when the answer was cut: older messages may have the key as well. Ours alone report it.
    """


class ViewMessageRequestHeader(RequestHeader, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33)."""

    offset: Int64
    """Physical offset."""
    topic: str | None = None
    broker_name: str | None = wire_name("bname", None)


# ---- offsets -------------------------------------------------------------------------------


class QueryConsumerOffsetRequestHeader(RequestHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = wire_name("bname", None)


class UpdateConsumerOffsetRequestHeader(RequestHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    """The NEXT message to consume."""
    trigger: str | None = None
    """Reported by our own clients only: TIMER, SHUTDOWN or HAND_OVER."""
    broker_name: str | None = wire_name("bname", None)


class QueueRequestHeader(RequestHeader, kw_only=True):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32
    committed: bool | None = None
    broker_name: str | None = wire_name("bname", None)


class SearchOffsetRequestHeader(RequestHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    topic: str
    queue_id: Int32
    timestamp_ms: Int64 = wire_name("timestamp")
    boundary_type: str | None = None
    """LOWER (the default): first message at or after; UPPER: last one at or before."""
    broker_name: str | None = wire_name("bname", None)


class OffsetResponseHeader(ResponseHeader, kw_only=True):
    """An offset asked for (14, 29, 30, 31)."""

    offset: Int64


NO_STORE_TIME = -1
"""What the wire has for the store time of no message (RocketMQ)."""


class TimestampResponseHeader(ResponseHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    timestamp_ms: Int64 = wire_name("timestamp")
    """NO_STORE_TIME: there is no message."""


# ---- clients -------------------------------------------------------------------------------


class HeartbeatResponseHeader(ResponseHeader, kw_only=True):
    """May heartbeats leave the subscriptions out, and did they change?"""

    heartbeat_v2: bool | None = wire_name("IS_SUPPORT_HEART_BEAT_V2", None)
    subscription_changed: bool | None = wire_name("IS_SUB_CHANGE", None)


class UnregisterClientRequestHeader(RequestHeader, kw_only=True):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = wire_name("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    broker_name: str | None = wire_name("bname", None)


class GroupRequestHeader(RequestHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38), GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str
    broker_name: str | None = wire_name("bname", None)


class ConsumerRunningInfoRequestHeader(RequestHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), to the broker and from there to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False
    broker_name: str | None = wire_name("bname", None)


class ConsumeMessageDirectlyRequestHeader(RequestHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309).

    The broker is sent the message's id; it sends the client the message in the body.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ResetOffsetRequestHeader(RequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), RESET_CONSUMER_CLIENT_OFFSET (220)."""

    topic: str
    group: str
    timestamp_ms: Int64 = wire_name("timestamp")
    """-1: to the end."""
    is_force: bool = True
    queue_id: Int32 = -1
    """-1: every queue."""
    offset: Int64 | None = None
    """Wins over the timestamp when it is not negative."""
    broker_name: str | None = wire_name("bname", None)


class ConsumerStatusRequestHeader(RequestHeader, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221), INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""

    topic: str
    group: str
    client_addr: str | None = None
