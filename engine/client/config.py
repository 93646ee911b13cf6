"""Client settings for producers and consumers, including credentials files.

Every default is RocketMQ's own unless its docstring says otherwise. RocketMQ's name of a setting
stands in the field's metadata. A credentials file is named on a command line or by
TIDEMARK_CREDENTIALS; its words mean what `remoting/access` says.

Invariant: a value that exists is valid; relations are checked when it is made. Absent on purpose:
reading other files or the environment. The command line and the demo do that and pass values down.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_address

from engine.client.consuming.allocation import AllocationStrategy, Averagely
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.foundation.errors import ConfigError, StorageError
from engine.foundation.limits import (
    BODY_BYTES_MAX,
    CLIENT_EXPIRY_MS,
    CLIENT_HEARTBEAT_MS,
    PENDING_REQUESTS_MAX,
    PULL_MESSAGES_MAX,
    PULL_SUSPEND_MS_MAX,
    QUEUE_LOCK_LEASE_MS,
)
from engine.foundation.units import KIB, MIB, MINUTE_MS, SECOND_MS
from engine.protocol.compression import CompressionType
from engine.protocol.names import TRACE_TOPIC
from engine.remoting.access import read_credentials
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, Disk

DEFAULT_INSTANCE = "DEFAULT"
"""An instance name that means: make one that no other client of this host has."""


class MessageModel(Enum):
    """How the members of a group share messages."""

    CLUSTERING = "CLUSTERING"
    """One member of the group."""
    BROADCASTING = "BROADCASTING"
    """Every member; offsets are each member's own, and a failed message is not tried again."""


def _rocketmq(name: str) -> dict[str, str]:
    return {"rocketmq": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client reaches its cluster and keeps in touch with it."""

    namesrv_addresses: tuple[str, ...] = field(metadata=_rocketmq("namesrvAddr"))
    """Name servers as host:port; one is asked at a time, the next one when it does not answer."""

    instance_name: str = field(default=DEFAULT_INSTANCE, metadata=_rocketmq("instanceName"))
    """Part of the client id. DEFAULT becomes a name of its own per client, except for broadcast
    consumers, whose offset folder must stay the same over restarts.
    """

    client_ip: str | None = field(default=None, metadata=_rocketmq("clientIP"))
    """Part of the client id; None: the network's own address."""

    heartbeat_first_ms: int = 1 * SECOND_MS
    """Milliseconds until the first timed heartbeat; one more is sent at start."""

    heartbeat_ms: int = field(
        default=CLIENT_HEARTBEAT_MS, metadata=_rocketmq("heartbeatBrokerInterval")
    )
    """Milliseconds between heartbeats to all brokers."""

    use_heartbeat_v2: bool = field(default=False, metadata=_rocketmq("useHeartbeatV2"))
    """Leave subscriptions out of heartbeats to brokers that know them."""

    route_poll_ms: int = field(default=30 * SECOND_MS, metadata=_rocketmq("pollNameServerInterval"))
    """Milliseconds between refreshes of all known routes."""

    request_timeout_ms: int = field(default=3 * SECOND_MS, metadata=_rocketmq("mqClientApiTimeout"))
    """Milliseconds a name server or broker has for an ordinary answer."""

    credentials: Credentials | None = None
    """Account that signs every request; None: nothing is signed."""

    tls: ClientTls | None = field(default=None, metadata=_rocketmq("useTLS"))
    """How connections are encrypted; None: they are not."""

    enable_trace: bool = field(default=False, metadata=_rocketmq("enableMsgTrace"))
    """Write what becomes of each message into the trace topic, in the background."""

    trace_topic: str = field(default=TRACE_TOPIC, metadata=_rocketmq("customizedTraceTopic"))
    """Where traces are written."""

    trace_batch_max: int = field(default=10, metadata=_rocketmq("traceMsgBatchNum"))
    """Traces written as one message, 1 to 20; fewer leave after 5 s."""

    stop_timeout_ms: int = 3 * SECOND_MS
    """Milliseconds that taking leave of the brokers may take when the client stops."""

    def __post_init__(self) -> None:
        if self.client_ip is not None and not _is_ip(self.client_ip):
            raise ConfigError("client_ip", self.client_ip, "an IPv4 or IPv6 address")
        if not self.namesrv_addresses:
            raise ConfigError("namesrv_addresses", self.namesrv_addresses, "at least one host:port")
        for address in self.namesrv_addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError("namesrv_addresses", address, "host:port")
        _positive(
            self,
            "heartbeat_first_ms",
            "heartbeat_ms",
            "route_poll_ms",
            "request_timeout_ms",
            "stop_timeout_ms",
            "trace_batch_max",
        )
        if self.heartbeat_ms * 3 > CLIENT_EXPIRY_MS:
            raise ConfigError(
                "heartbeat_ms", self.heartbeat_ms, f"at most a third of {CLIENT_EXPIRY_MS} ms"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer sends."""

    send_timeout_ms: int = field(default=3 * SECOND_MS, metadata=_rocketmq("sendMsgTimeout"))
    """Milliseconds for one message over all its tries."""

    retry_times: int = field(default=2, metadata=_rocketmq("retryTimesWhenSendFailed"))
    """Further tries after a failed one, each preferring another broker."""

    retry_another_broker_when_not_stored_ok: bool = field(
        default=False, metadata=_rocketmq("retryAnotherBrokerWhenNotStoreOK")
    )
    """Try again after an answer other than SEND_OK. The message is stored then, so this sends
    duplicates.
    """

    compress_over_bytes: int = field(
        default=4 * KIB, metadata=_rocketmq("compressMsgBodyOverHowmuch")
    )
    """A body as long as this or longer is sent compressed (the name is RocketMQ's)."""

    compress_type: CompressionType = field(
        default=CompressionType.ZLIB, metadata=_rocketmq("rocketmq.message.compressType")
    )
    """How bodies are compressed; consumers read all three kinds."""

    compress_level: int = field(default=5, metadata=_rocketmq("rocketmq.message.compressLevel"))
    """Level of zlib and zstd, 1 (fast) to 9 (small); LZ4 has none."""

    send_latency_fault_enable: bool = field(
        default=False, metadata=_rocketmq("sendLatencyFaultEnable")
    )
    """Leave brokers alone for a while whose answers were slow, missing or refusals."""

    resend_to_same_broker: bool = False
    """Send a message whose outcome on a broker is unknown to that broker only, over all tries and
    later sends of the same message. On a topic with the attribute message.deduplication it is so
    anyway; this is for those whose name server does not hand that on. Sends of such a message fail
    while that broker is away.
    """

    async_sends_max: int = field(default=1024, metadata=_rocketmq("backPressureForAsyncSendNum"))
    """Sends with a callback that may be under way at once."""

    async_bytes_max: int = field(
        default=100 * MIB, metadata=_rocketmq("backPressureForAsyncSendSize")
    )
    """Their body bytes together."""

    body_bytes_max: int = field(default=BODY_BYTES_MAX, metadata=_rocketmq("maxMessageSize"))
    """A longer body is refused before it is sent."""

    default_topic_queue_count: int = field(default=4, metadata=_rocketmq("defaultTopicQueueNums"))
    """Queues asked for when the broker makes an unknown topic by itself."""

    def __post_init__(self) -> None:
        _positive(
            self,
            *("send_timeout_ms", "body_bytes_max", "default_topic_queue_count"),
            *("async_sends_max", "async_bytes_max"),
        )
        if self.retry_times < 0:
            raise ConfigError("retry_times", self.retry_times, "0 or more")
        if self.compress_over_bytes < 0:
            raise ConfigError("compress_over_bytes", self.compress_over_bytes, "0 or more")
        if not 1 <= self.compress_level <= 9:
            raise ConfigError("compress_level", self.compress_level, "1 to 9")
        if self.async_sends_max > PENDING_REQUESTS_MAX:
            raise ConfigError("async_sends_max", self.async_sends_max, f"<= {PENDING_REQUESTS_MAX}")
        if self.body_bytes_max > BODY_BYTES_MAX:
            raise ConfigError("body_bytes_max", self.body_bytes_max, f"at most {BODY_BYTES_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a push consumer shares, pulls, consumes and reports."""

    message_model: MessageModel = field(
        default=MessageModel.CLUSTERING, metadata=_rocketmq("messageModel")
    )
    """Share messages within the group, or give every member all of them."""

    orderly: bool = False
    """Consume each queue strictly in order, one batch at a time, under a lock of the broker."""

    consume_from_where: ConsumeFromWhere = field(
        default=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, metadata=_rocketmq("consumeFromWhere")
    )
    """Where a queue begins for which the group has no offset yet."""

    consume_timestamp_ms: int | None = field(default=None, metadata=_rocketmq("consumeTimestamp"))
    """Milliseconds since 1970 for CONSUME_FROM_TIMESTAMP; None: 30 minutes before the start."""

    allocation: AllocationStrategy = field(
        default_factory=Averagely, metadata=_rocketmq("allocateMessageQueueStrategy")
    )
    """How the members of the group share the queues."""

    consume_concurrency: int = field(default=20, metadata=_rocketmq("consumeThreadMax"))
    """Listener calls that may be under way at once (RocketMQ's threads; here tasks of one event
    loop).
    """

    consume_batch_max: int = field(default=1, metadata=_rocketmq("consumeMessageBatchMaxSize"))
    """Messages given to one listener call."""

    consume_timeout_ms: int = field(default=15 * MINUTE_MS, metadata=_rocketmq("consumeTimeout"))
    """A message in a listener for longer is sent back and dropped from the window (concurrent
    only).
    """

    max_reconsume_times: int | None = field(default=None, metadata=_rocketmq("maxReconsumeTimes"))
    """Failed tries after which a message goes to the dead-letter queue; None: 16, orderly without
    end.
    """

    pull_batch_max: int = field(default=32, metadata=_rocketmq("pullBatchSize"))
    """Messages asked for in one pull."""

    pull_bytes_max: int = field(default=256 * KIB, metadata=_rocketmq("pullBatchSizeInBytes"))
    """Bytes asked for in one pull."""

    pull_interval_ms: int = field(default=0, metadata=_rocketmq("pullInterval"))
    """Milliseconds to wait after a pull that brought messages."""

    pull_suspend_ms: int = field(
        default=15 * SECOND_MS, metadata=_rocketmq("brokerSuspendMaxTimeMillis")
    )
    """Milliseconds the broker may hold a pull while there is nothing to answer."""

    pull_timeout_ms: int = field(
        default=30 * SECOND_MS, metadata=_rocketmq("consumerTimeoutMillisWhenSuspend")
    )
    """Milliseconds after which a held pull counts as lost."""

    pull_error_delay_ms: int = field(
        default=1 * SECOND_MS, metadata=_rocketmq("pullTimeDelayMillsWhenException")
    )
    """Milliseconds to wait after a failed pull."""

    first_pull_delay_ms: int = 500
    """Milliseconds between being given a queue and its first pull (fixed in RocketMQ): a rebalance
    that is not at its end yet may take the queue away again.
    """

    queue_messages_max: int = field(default=1000, metadata=_rocketmq("pullThresholdForQueue"))
    """Pulling of a queue pauses while more unfinished messages of it are held."""

    queue_bytes_max: int = field(default=100 * MIB, metadata=_rocketmq("pullThresholdSizeForQueue"))
    """Pulling of a queue pauses while more bytes of it are held."""

    topic_messages_max: int | None = field(
        default=None, metadata=_rocketmq("pullThresholdForTopic")
    )
    """As `queue_messages_max` for a whole topic, divided by the queues held; None: no such limit.
    """

    queue_span_max: int = field(default=2000, metadata=_rocketmq("consumeConcurrentlyMaxSpan"))
    """Pulling of a queue pauses while messages so far beyond its lowest unfinished one have been
    handed to listeners: a crash brings no more than these and one pull again. In order: while so
    many beyond the head are given up.
    """

    piggyback_commit: bool = True
    """Send the consume offset with each pull as well (clustering only)."""

    commit_acknowledged: bool = False
    """Wait for the broker's answer to each reported offset; RocketMQ's clients do not."""

    persist_first_ms: int = 5 * SECOND_MS
    """Milliseconds until offsets are written for the first time. RocketMQ waits 10 s, and a
    broadcast consumer that dies each 8 s reads the same messages in each life.
    """

    persist_ms: int = field(
        default=5 * SECOND_MS, metadata=_rocketmq("persistConsumerOffsetInterval")
    )
    """Milliseconds between writes of the offsets."""

    rebalance_ms: int = field(
        default=20 * SECOND_MS, metadata=_rocketmq("rocketmq.client.rebalance.waitInterval")
    )
    """Milliseconds between rebalances without a notification."""

    rebalance_retry_ms: int = field(
        default=1 * SECOND_MS, metadata=_rocketmq("rocketmq.client.rebalance.minInterval")
    )
    """Milliseconds between the end of a rebalance and the next one at least, however often the
    group changes; and until the next one when one could not give this member all its queues.
    """

    lock_ms: int = field(
        default=20 * SECOND_MS, metadata=_rocketmq("rocketmq.client.rebalance.lockInterval")
    )
    """Milliseconds between renewals of the order locks."""

    suspend_queue_ms: int = field(
        default=1 * SECOND_MS, metadata=_rocketmq("suspendCurrentQueueTimeMillis")
    )
    """Milliseconds an orderly queue rests after a failed batch, unless the listener says otherwise.
    """

    continuous_consume_ms: int = field(
        default=60 * SECOND_MS, metadata=_rocketmq("rocketmq.client.maxTimeConsumeContinuously")
    )
    """An orderly queue gives way to others after this many milliseconds without a pause."""

    send_back_retry_ms: int = 5 * SECOND_MS
    """Milliseconds until a message whose send-back failed is given to the listener again."""

    stop_wait_ms: int = field(
        default=5 * SECOND_MS, metadata=_rocketmq("awaitTerminationMillisWhenShutdown")
    )
    """Milliseconds that listeners at work have to finish when the consumer stops (RocketMQ's
    default is 0).
    """

    local_offset_directory: str = field(
        default=".rocketmq_offsets", metadata=_rocketmq("rocketmq.client.localOffsetStoreDir")
    )
    """Folder of a broadcast consumer's offsets; below it <client id>/<group>/offsets.json."""

    def __post_init__(self) -> None:
        _positive(
            self,
            *("consume_concurrency", "consume_batch_max", "consume_timeout_ms", "pull_batch_max"),
            *("pull_bytes_max", "pull_suspend_ms", "pull_timeout_ms", "pull_error_delay_ms"),
            *("queue_messages_max", "queue_bytes_max", "queue_span_max", "persist_first_ms"),
            *("persist_ms", "rebalance_ms", "rebalance_retry_ms", "lock_ms"),
            *("continuous_consume_ms", "send_back_retry_ms", "stop_wait_ms"),
        )
        if self.consume_batch_max > 1024:
            raise ConfigError("consume_batch_max", self.consume_batch_max, "1 to 1024")
        if self.pull_batch_max > PULL_MESSAGES_MAX:
            raise ConfigError("pull_batch_max", self.pull_batch_max, f"1 to {PULL_MESSAGES_MAX}")
        if self.pull_suspend_ms > PULL_SUSPEND_MS_MAX:
            raise ConfigError("pull_suspend_ms", self.pull_suspend_ms, f"<= {PULL_SUSPEND_MS_MAX}")
        if self.pull_timeout_ms <= self.pull_suspend_ms:
            raise ConfigError(
                "pull_timeout_ms",
                self.pull_timeout_ms,
                f"more than pull_suspend_ms ({self.pull_suspend_ms}): held pulls would all be lost",
            )
        if self.lock_ms * 2 > QUEUE_LOCK_LEASE_MS:
            raise ConfigError(
                "lock_ms", self.lock_ms, f"at most half of the lease of {QUEUE_LOCK_LEASE_MS} ms"
            )
        if not 10 <= self.suspend_queue_ms <= 30 * SECOND_MS:
            raise ConfigError("suspend_queue_ms", self.suspend_queue_ms, "10 to 30000")
        if self.max_reconsume_times is not None and self.max_reconsume_times < 0:
            raise ConfigError(
                "max_reconsume_times",
                self.max_reconsume_times,
                "0 or more, or None for the default",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig(ConsumerConfig):
    """How a lite pull consumer pulls ahead of its polls, and reports.

    Of a push consumer's settings those about listeners and their retries mean nothing here.
    """

    pull_batch_max: int = field(default=10, metadata=_rocketmq("pullBatchSize"))
    """Messages asked for in one pull, and so answered by one poll."""

    pull_suspend_ms: int = field(
        default=20 * SECOND_MS, metadata=_rocketmq("brokerSuspendMaxTimeMillis")
    )
    """Milliseconds the broker may hold a pull while there is nothing to answer."""

    commit_acknowledged: bool = True
    """Wait for the broker's answer to each reported offset."""

    auto_commit: bool = field(default=True, metadata=_rocketmq("autoCommit"))
    """Note what earlier polls answered as consumed, now and then, when polled again."""

    auto_commit_ms: int = field(
        default=5 * SECOND_MS, metadata=_rocketmq("autoCommitIntervalMillis")
    )
    """Milliseconds between those notes, at least 1000."""

    poll_timeout_ms: int = field(default=5 * SECOND_MS, metadata=_rocketmq("pollTimeoutMillis"))
    """Milliseconds a poll waits for messages unless it says otherwise."""

    held_messages_max: int = field(default=10_000, metadata=_rocketmq("pullThresholdForAll"))
    """Pulling pauses while more messages of all queues wait for a poll."""

    def __post_init__(self) -> None:
        ConsumerConfig.__post_init__(self)
        if self.orderly:
            raise ConfigError("orderly", True, "False: who polls decides on the order")
        if self.auto_commit_ms < SECOND_MS:
            raise ConfigError("auto_commit_ms", self.auto_commit_ms, f"at least {SECOND_MS}")
        for key in ("poll_timeout_ms", "held_messages_max"):
            if getattr(self, key) <= 0:
                raise ConfigError(key, getattr(self, key), "more than 0")


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _positive(config: object, *keys: str) -> None:
    for key in keys:
        value = getattr(config, key)
        if value <= 0:
            raise ConfigError(key, value, "more than 0")


def with_credentials(config: ClientConfig, disk: Disk, path: str | None) -> ClientConfig:
    """The configuration with what the file says; unchanged without a file. Raises ConfigError."""
    if path is None:
        return config
    try:
        text = disk.read(path).decode()
    except (StorageError, UnicodeDecodeError) as error:
        raise ConfigError("credentials", path, f"a file that can be read ({error})") from error
    credentials, tls = read_credentials(text, path)
    return replace(config, credentials=credentials, tls=tls)
