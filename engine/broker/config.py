"""Broker settings under RocketMQ's own names.

Place in the walk: built once by the command line or a test, then passed down as a value. Defaults
are RocketMQ's unless a field says otherwise. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import Any, Final

from engine.foundation.errors import ConfigError
from engine.foundation.limits import (
    BODY_BYTES_MAX,
    BROKER_EXPIRY_MS,
    BROKER_REGISTER_MS,
    CLIENT_EXPIRY_MS,
    CONNECTIONS_MAX,
    QUEUES_PER_TOPIC_MAX,
    REPLICAS_MAX,
)
from engine.foundation.units import KIB, SECOND_MS
from engine.remoting.access import Access
from engine.store.config import StoreConfig


class MetricsExporter(Enum):
    """How metrics leave the broker."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    """An HTTP port that a Prometheus scrapes."""


class BrokerRole(Enum):
    """What a broker begins as."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """Answers a put whatever its slaves have."""
    SYNC_MASTER = "SYNC_MASTER"
    """Answers a put when enough slaves have it."""
    SLAVE = "SLAVE"
    """Copies a master."""


SNAPSHOT_INTERVAL_MS: Final = 600 * SECOND_MS
"""From the begin of a snapshot of all marks to that of the next. Between two of them what moves is
reported, and what is gone.
"""

OP_BYTES_MIN = 32
"""An op message lists at least one offset of up to 19 digits."""


def _setting(default: Any, rocketmq_key: str) -> Any:
    return field(default=default, metadata={"rocketmq": rocketmq_key})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's identity and behaviour. Raises ConfigError for values that cannot work."""

    store: StoreConfig
    """The message store's settings; its root is also where the tables and the spool live."""
    cluster_name: str = _setting("DefaultCluster", "brokerClusterName")
    broker_name: str = _setting("broker-a", "brokerName")
    broker_id: int = _setting(0, "brokerId")
    """0 is the master."""
    host: str = _setting("127.0.0.1", "brokerIP1")
    """Address the broker listens on and is known by; loopback unless the user says otherwise."""
    port: int = _setting(10911, "listenPort")
    """0 lets the machine choose."""
    namesrv_addresses: tuple[str, ...] = _setting((), "namesrvAddr")
    """`host:port` of each name server; none for a broker that nobody looks up."""
    broker_role: BrokerRole = field(
        default=BrokerRole.ASYNC_MASTER, metadata={"rocketmq": "brokerRole"}
    )
    ha_listen_port: int = _setting(0, "haListenPort")
    """Where slaves connect; 0: the port after `port` for a SYNC_MASTER, none for others."""
    in_sync_replicas: int = _setting(1, "inSyncReplicas")
    """Copies that a SYNC_MASTER waits for, its own among them."""
    slave_timeout_ms: int = _setting(3 * SECOND_MS, "slaveTimeout")
    """How long a put waits for them."""
    raft_enable: bool = _setting(False, "enableDLegerCommitLog")
    """Is it one of a Raft group, whose nodes elect their master? Then `broker_role` says nothing.
    """
    raft_group: str = _setting("", "dLegerGroup")
    """The group's name; empty: the broker's."""
    raft_peers: tuple[str, ...] = _setting((), "dLegerPeers")
    """Its first members, each a name and where it listens for the others: `n0-127.0.0.1:40911`."""
    raft_self_id: str = _setting("", "dLegerSelfId")
    """Which of them this broker is: `n0`."""
    slave_read_enable: bool = _setting(False, "slaveReadEnable")
    """Do slaves give messages to readers, and masters send readers that are far behind to them?"""
    broker_permission: int = _setting(6, "brokerPermission")
    """What the broker allows on top of each topic's own perm: 4 read, 2 write, 6 both."""
    metrics_exporter: MetricsExporter = field(
        default=MetricsExporter.DISABLE, metadata={"rocketmq": "metricsExporterType"}
    )
    metrics_port: int = _setting(5557, "metricsPromExporterPort")
    """0 lets the machine choose."""
    metrics_host: str = _setting("127.0.0.1", "metricsPromExporterHost")
    """Address of the metrics' port; whoever reaches it reads topic and group names."""
    metrics_hosts: tuple[str, ...] = _setting((), "metricsPromExporterAllowedHosts")
    """Names under which others scrape, beside loopback's and the addresses of the port and broker;
    a request for any other name is refused: a web page may bind a name of its own to this address.
    """
    access: Access = field(default_factory=Access)
    """The accounts that may use it, and the protection of its connections."""
    connections_max: int = CONNECTIONS_MAX
    """Connections at the same time; less where the system allows fewer descriptors."""
    telemetry: bool = True
    """Keep a spool of facts below the store, for a shipper to bring into a lake."""
    auto_create_topic_enable: bool = _setting(True, "autoCreateTopicEnable")
    auto_create_subscription_group: bool = _setting(True, "autoCreateSubscriptionGroup")
    default_topic_queue_nums: int = _setting(8, "defaultTopicQueueNums")
    register_interval_ms: int = _setting(BROKER_REGISTER_MS, "registerNameServerPeriod")
    flush_consumer_offset_interval_ms: int = _setting(5 * SECOND_MS, "flushConsumerOffsetInterval")
    """How long a report may wait to be persisted, from the boot on; RocketMQ waits 10 s for the
    first time.
    """
    flush_delay_offset_interval_ms: int = _setting(5 * SECOND_MS, "flushDelayOffsetInterval")
    """How long a moved delay cursor may wait to be persisted. RocketMQ waits 10 s: a broker that
    dies each 8 s delivers in each life what all lives before it have delivered.
    """
    timer_wheel_enable: bool = _setting(True, "timerWheelEnable")
    """Keep messages that name the moment at which they are to appear; else such a send is refused.
    """
    timer_stop_dequeue: bool = _setting(False, "timerStopDequeue")
    """Deliver no message that waits for a moment: what is due waits on, as when all that waits is
    handed over to another broker.
    """
    recall_message_enable: bool = _setting(False, "recallMessageEnable")
    """Cancel a message that waits for its time, for who has the handle of its send's answer."""
    reject_transaction_message: bool = _setting(False, "rejectTransactionMessage")
    enable_property_filter: bool = _setting(False, "enablePropertyFilter")
    """Evaluate SQL92 selectors; else subscriptions by them are refused."""
    filter_support_retry: bool = _setting(False, "filterSupportRetry")
    """Select failed messages by the selector of the topic they came from, where a consumer
    subscribes to its retry topic by one.
    """
    transaction_timeout_ms: int = _setting(6 * SECOND_MS, "transactionTimeOut")
    """Age from which on a half message's producer is asked how its transaction ended."""
    transaction_check_max: int = _setting(15, "transactionCheckMax")
    """Questions after which a transaction is rolled back, with a record of it."""
    transaction_check_interval_ms: int = _setting(30 * SECOND_MS, "transactionCheckInterval")
    transaction_op_bytes_max: int = _setting(4 * KIB, "transactionOpMsgMaxSize")
    """Longest body of an op message; a batch that reaches it is written at once."""
    transaction_op_batch_interval_ms: int = _setting(3 * SECOND_MS, "transactionOpBatchInterval")
    client_expiry_ms: int = _setting(CLIENT_EXPIRY_MS, "channelExpiredTimeout")
    housekeeping_interval_ms: int = 10 * SECOND_MS
    """How often silent clients are looked for; RocketMQ fixes it."""
    long_polling_enable: bool = _setting(True, "longPollingEnable")
    short_polling_time_ms: int = _setting(SECOND_MS, "shortPollingTimeMills")
    """How long a pull is held when long polling is off."""
    hold_check_interval_ms: int = 5 * SECOND_MS
    """How often held pulls are looked at besides arrivals; RocketMQ fixes it."""
    use_server_side_reset_offset: bool = _setting(True, "useServerSideResetOffset")
    """Hand a reset out with the next pull; else push it to the members, as older brokers do."""
    dlq_topic_perm: int = _setting(6, "dlqTopicPerm")
    """Permission of a new dead-letter topic: 6 as in 5.x; 2 as in 4.x before 4.8, where reading one
    has to be allowed first.
    """
    default_query_max_count: int = _setting(32, "defaultQueryMaxNum")
    """Messages that a query by unique key is answered with, whatever it asks for."""
    query_max_count: int = _setting(64, "maxMsgsNumBatch")
    """Messages that a query by key is answered with, however many it asks for."""
    sample_interval_ms: int = SECOND_MS
    """Grid of the watermarks."""
    full_sample_interval_ms: int = SNAPSHOT_INTERVAL_MS
    """How often a snapshot reports unchanged watermarks as well; unchanged windows of clients are
    reported as often.
    """
    window_sample_interval_ms: int = 5 * SECOND_MS
    """How often consumers are asked what they hold."""
    window_ask_timeout_ms: int = 3 * SECOND_MS
    """How long their answer may take."""

    def __post_init__(self) -> None:
        """Check each value, then how they fit together."""
        for key, port in (
            ("listenPort", self.port),
            ("metricsPromExporterPort", self.metrics_port),
            ("haListenPort", self.ha_listen_port),
        ):
            if not 0 <= port <= 65_535:
                raise ConfigError(key, port, "0 to 65535")
        if self.broker_permission not in (2, 4, 6):
            raise ConfigError(
                "brokerPermission", self.broker_permission, "4 (read), 2 (write) or 6 (both)"
            )
        self._check_addresses()
        self._check_role()
        if self.dlq_topic_perm not in (2, 6):
            raise ConfigError("dlqTopicPerm", self.dlq_topic_perm, "2 (write) or 6 (read, write)")
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.cluster_name),
        ):
            if not name or "/" in name or any(char.isspace() for char in name):
                raise ConfigError(key, name, "a word without spaces and slashes")
        if self.store.transient_store_pool_enable and self.broker_id != 0:
            raise ConfigError(
                "transientStorePoolEnable",
                True,
                "false on a slave (brokerId other than 0): only a master has puts to pool",
            )
        if not 1 <= self.default_topic_queue_nums <= QUEUES_PER_TOPIC_MAX:
            raise ConfigError(
                "defaultTopicQueueNums",
                self.default_topic_queue_nums,
                f"1 to {QUEUES_PER_TOPIC_MAX}",
            )
        for interval in (
            self.register_interval_ms,
            self.flush_consumer_offset_interval_ms,
            self.flush_delay_offset_interval_ms,
            self.housekeeping_interval_ms,
            self.hold_check_interval_ms,
            self.sample_interval_ms,
            self.full_sample_interval_ms,
            self.window_sample_interval_ms,
        ):
            if interval < 1:
                raise ConfigError("interval", interval, "at least 1 ms")
        self._check_transactions()
        if self.register_interval_ms * 2 > BROKER_EXPIRY_MS:
            raise ConfigError(
                "registerNameServerPeriod",
                self.register_interval_ms,
                f"at most {BROKER_EXPIRY_MS // 2} ms: name servers forget a broker that is silent "
                f"for {BROKER_EXPIRY_MS} ms",
            )

    def _check_addresses(self) -> None:
        for name in self.metrics_hosts:
            if not name or not name.isascii() or any(char in name for char in " /:[]"):
                raise ConfigError(
                    "metricsPromExporterAllowedHosts", name, "host names without ports, joined by ;"
                )
        try:
            ip_address(self.metrics_host)
        except ValueError as error:
            raise ConfigError(
                "metricsPromExporterHost", self.metrics_host, "an IP address"
            ) from error
        try:
            ip_address(self.host)
        except ValueError as error:
            raise ConfigError(
                "brokerIP1", self.host, "an IP address: messages carry it in their ids"
            ) from error
        for address in self.namesrv_addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or int(port) > 65_535:
                raise ConfigError("namesrvAddr", address, "host:port, the port at most 65535")

    def _check_role(self) -> None:
        if self.raft_enable:
            self._check_raft()
        is_slave = self.broker_role is BrokerRole.SLAVE
        if is_slave and self.broker_id < 1:
            raise ConfigError("brokerRole", "SLAVE", "a brokerId of 1 or more beside it")
        if not is_slave and self.broker_id != 0:
            raise ConfigError("brokerId", self.broker_id, f"0 for {self.broker_role.name}")
        if is_slave and not self.namesrv_addresses:
            raise ConfigError("namesrvAddr", "", "a name server, which knows a slave's master")
        if not 1 <= self.in_sync_replicas <= REPLICAS_MAX + 1:
            raise ConfigError("inSyncReplicas", self.in_sync_replicas, f"1 to {REPLICAS_MAX + 1}")
        if self.slave_timeout_ms < 1:
            raise ConfigError("slaveTimeout", self.slave_timeout_ms, "at least 1 ms")

    def _check_raft(self) -> None:
        if self.broker_role is not BrokerRole.ASYNC_MASTER or self.ha_listen_port:
            raise ConfigError(
                "brokerRole",
                self.broker_role.value,
                "none, and no haListenPort, beside enableDLegerCommitLog: the group elects masters",
            )
        if self.store.transient_store_pool_enable:
            raise ConfigError("transientStorePoolEnable", True, "false in a Raft group")
        if not self.raft_peers:
            raise ConfigError("dLegerPeers", "", "n0-IP:PORT;n1-IP:PORT and so on")
        for peer in self.raft_peers:
            name, _, address = peer.partition("-")
            host, _, port = address.rpartition(":")
            is_name = name[:1] == "n" and name[1:].isdecimal() and "#" not in peer
            try:
                ip_address(host)
            except ValueError:
                is_name = False
            if not is_name or not port.isdecimal() or not 0 < int(port) <= 65_535:
                raise ConfigError("dLegerPeers", peer, "n0-IP:PORT;n1-IP:PORT and so on")
        names = [peer.partition("-")[0] for peer in self.raft_peers]
        if len(set(names)) < len(names):
            raise ConfigError("dLegerPeers", ";".join(self.raft_peers), "each name once")
        if self.raft_self_id not in names:
            raise ConfigError("dLegerSelfId", self.raft_self_id, f"one of {', '.join(names)}")

    def _check_transactions(self) -> None:
        for key, value in (
            ("transactionCheckInterval", self.transaction_check_interval_ms),
            ("transactionOpBatchInterval", self.transaction_op_batch_interval_ms),
            ("transactionCheckMax", self.transaction_check_max),
        ):
            if value < 1:
                raise ConfigError(key, value, "at least 1")
        if not OP_BYTES_MIN <= self.transaction_op_bytes_max <= BODY_BYTES_MAX:
            raise ConfigError(
                "transactionOpMsgMaxSize",
                self.transaction_op_bytes_max,
                f"{OP_BYTES_MIN} to {BODY_BYTES_MAX} bytes",
            )
        if self.transaction_timeout_ms <= self.transaction_op_batch_interval_ms:
            raise ConfigError(
                "transactionTimeOut",
                self.transaction_timeout_ms,
                f"more than transactionOpBatchInterval ({self.transaction_op_batch_interval_ms} "
                "ms): producers would be asked about transactions that have just ended",
            )

    @property
    def config_folder(self) -> str:
        """Folder of the tables kept as JSON."""
        return self.store.tables_folder

    @property
    def timer_snapshot_path(self) -> str:
        """File of how far the time wheel is."""
        return f"{self.config_folder}/timerWheel.json"

    @property
    def rocketmq_timers_path(self) -> str:
        """File of how far RocketMQ's timers were, where they had the store before."""
        return f"{self.config_folder}/timercheck"

    @property
    def delay_offset_path(self) -> str:
        """File of the delay levels' cursors."""
        return f"{self.config_folder}/delayOffset.json"
