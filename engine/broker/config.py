"""Settings of a broker, under RocketMQ's own names.

Place in the walk: built once by the command line or a test, then passed down as a value. Defaults
are RocketMQ's unless a field says otherwise. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from engine.foundation.config import keys_of, read_spans_ms, with_settings
from engine.foundation.errors import ConfigError
from engine.foundation.limits import (
    BROKER_EXPIRY_MS,
    BROKER_REGISTER_MS,
    CLIENT_EXPIRY_MS,
    QUEUES_PER_TOPIC_MAX,
)
from engine.foundation.units import HOUR_MS, KIB, SECOND_MS
from engine.store.config import StoreConfig

PAGE_BYTES = 4 * KIB


def _setting(default: Any, rocketmq_key: str) -> Any:
    return field(default=default, metadata={"rocketmq": rocketmq_key})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Who the broker is and how it behaves. Raises ConfigError for values that cannot work."""

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
    namesrv_addresses: tuple[str, ...] = ()
    """`host:port` of each name server; none for a broker that nobody looks up."""
    telemetry: bool = True
    """Keep a spool of facts below the store, for a shipper to bring into a lake."""
    auto_create_topic_enable: bool = _setting(True, "autoCreateTopicEnable")
    auto_create_subscription_group: bool = _setting(True, "autoCreateSubscriptionGroup")
    default_topic_queue_nums: int = _setting(8, "defaultTopicQueueNums")
    register_interval_ms: int = _setting(BROKER_REGISTER_MS, "registerNameServerPeriod")
    flush_consumer_offset_interval_ms: int = _setting(5 * SECOND_MS, "flushConsumerOffsetInterval")
    flush_consumer_offset_first_ms: int = 10 * SECOND_MS
    """Delay before the first persist; RocketMQ fixes it."""
    flush_delay_offset_interval_ms: int = _setting(10 * SECOND_MS, "flushDelayOffsetInterval")
    client_expiry_ms: int = _setting(CLIENT_EXPIRY_MS, "channelExpiredTimeout")
    housekeeping_interval_ms: int = 10 * SECOND_MS
    """How often silent clients are looked for; RocketMQ fixes it."""
    long_polling_enable: bool = _setting(True, "longPollingEnable")
    short_polling_time_ms: int = _setting(SECOND_MS, "shortPollingTimeMills")
    """How long a pull is held when long polling is off."""
    hold_check_interval_ms: int = 5 * SECOND_MS
    """How often held pulls are looked at besides arrivals; RocketMQ fixes it."""
    default_query_max_count: int = _setting(32, "defaultQueryMaxNum")
    sample_interval_ms: int = SECOND_MS
    """Grid of the watermarks."""
    full_sample_interval_ms: int = 30 * SECOND_MS
    """How often unchanged watermarks are told as well."""
    window_sample_interval_ms: int = 5 * SECOND_MS
    """How often consumers are asked what they hold."""
    window_ask_timeout_ms: int = 3 * SECOND_MS
    """How long their answer may take."""

    def __post_init__(self) -> None:
        """Check each value, then how they fit together."""
        if not 0 <= self.port <= 65_535:
            raise ConfigError("listenPort", self.port, "0 to 65535")
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
        for key, name in (
    use_server_side_reset_offset: bool = _setting(True, "useServerSideResetOffset")
    """Tell a reset by the next pull; else push it to the members, as older brokers do."""
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.cluster_name),
        ):
            if not name or "/" in name or any(char.isspace() for char in name):
                raise ConfigError(key, name, "a word without spaces and slashes")
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
            self.window_sample_interval_ms,
        ):
            if interval < 1:
                raise ConfigError("interval", interval, "at least 1 ms")
        if self.register_interval_ms * 2 > BROKER_EXPIRY_MS:
            raise ConfigError(
                "registerNameServerPeriod",
                self.register_interval_ms,
                f"at most {BROKER_EXPIRY_MS // 2} ms: name servers forget a broker that is silent "
                f"for {BROKER_EXPIRY_MS} ms",
            )

    @property
    def config_folder(self) -> str:
        """Folder of the tables kept as JSON."""
        return f"{self.store.root}/config"


_READERS = {
    "messageDelayLevel": read_spans_ms,
    "fileReservedTime": lambda text: int(text) * HOUR_MS,
    "flushCommitLogLeastPages": lambda text: int(text) * PAGE_BYTES,
}
"""Keys whose words are in another unit than our field: levels as spans, hours, pages."""

_UNSETTABLE = {
    "storePathRootDir": "given by --store",
    "accessMessageInMemoryMaxRatio": "a share of the RAM in RocketMQ, a number of bytes here",
}


def with_rocketmq_settings(config: BrokerConfig, settings: Mapping[str, str]) -> BrokerConfig:
    """Apply `key=value` settings by RocketMQ's keys to the broker and its store.

    Raises ConfigError for a key nobody knows, with the keys there are.
    """
    known = [
        key for key in (*keys_of(BrokerConfig), *keys_of(StoreConfig)) if key not in _UNSETTABLE
    ]
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(key, value, _UNSETTABLE.get(key) or f"one of {', '.join(known)}")
    store = with_settings(config.store, settings, readers=_READERS)
    return with_settings(replace(config, store=store), settings, readers=_READERS)
