"""Name-server settings and their conversion to and from RocketMQ's keys.

Place in the walk: once at start, and when a tool reads the configuration or changes it. Absent on
purpose: options (commands).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from engine.foundation.config import keys_of, values_of, with_settings
from engine.foundation.config_layers import (
    PartyStart,
    Setting,
    applied,
    from_environment,
    start_with,
)
from engine.foundation.errors import ConfigError
from engine.foundation.limits import CONNECTIONS_MAX
from engine.foundation.units import SECOND_MS
from engine.remoting.access import Access
from engine.runtime import Disk


def _setting(default: Any, rocketmq_key: str) -> Any:
    return field(default=default, metadata={"rocketmq": rocketmq_key})


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Where it listens and how it minds brokers. Raises ConfigError for values that cannot work."""

    host: str = _setting("127.0.0.1", "bindAddress")
    """Loopback, unless the user says otherwise."""
    port: int = _setting(9876, "listenPort")
    """0 lets the machine choose."""
    scan_interval_ms: int = _setting(5 * SECOND_MS, "scanNotActiveBrokerInterval")
    """How often silent brokers are looked for (RocketMQ: 5 s)."""
    kv_path: str | None = _setting(None, "kvConfigPath")
    """File of the key-value settings; None keeps them in memory only."""
    order_message_enable: bool = _setting(False, "orderMessageEnable")
    """Do routes carry what ORDER_TOPIC_CONFIG says of their topic?"""
    access: Access = field(default_factory=Access)
    """The accounts that may use it, and the protection of its connections."""
    connections_max: int = CONNECTIONS_MAX
    """Connections at the same time; less where the system allows fewer descriptors."""

    def __post_init__(self) -> None:
        """Check each value."""
        if not 0 <= self.port <= 65_535:
            raise ConfigError("listenPort", self.port, "0 to 65535")
        try:
            ip_address(self.host)
        except ValueError as error:
            raise ConfigError("bindAddress", self.host, "an IP address") from error
        if self.scan_interval_ms < 1:
            raise ConfigError("scanNotActiveBrokerInterval", self.scan_interval_ms, "at least 1 ms")


FILE_NAME = "namesrv.properties"
ENVIRONMENT_PREFIX = "TIDEMARK_NAMESRV_"

WITHOUT_EFFECT = {"configStorePath": "changes are kept in the file that was read at start"}


def read_start(
    disk: Disk,
    path: str | None,
    *,
    folder: str | None,
    environment: Mapping[str, str],
    flags: Sequence[Setting],
) -> PartyStart[NameServerConfig]:
    """The configuration by file, environment and flags.

    Without a path the file is the one in `folder`, if it is there. Raises ConfigError, and
    StorageError for a file that cannot be read.
    """
    known = keys_of(NameServerConfig)
    data = b""
    if path is not None:
        data = disk.read(path)
    elif folder is not None:
        path = f"{folder}/{FILE_NAME}"
        data = disk.read(path) if disk.exists(path) else b""
    above = [*from_environment(environment, ENVIRONMENT_PREFIX, known), *flags]
    return start_with(
        data, path, above, known=known, without_effect=WITHOUT_EFFECT, make=name_server_config_of
    )


def name_server_config_of(settings: Mapping[str, Setting]) -> NameServerConfig:
    """The configuration that these settings make over the defaults. Raises ConfigError."""
    return applied(settings, lambda values: with_rocketmq_settings(NameServerConfig(), values))


def with_rocketmq_settings(
    config: NameServerConfig, settings: Mapping[str, str]
) -> NameServerConfig:
    """Apply settings by RocketMQ's keys. Raises ConfigError."""
    return with_settings(config, settings, readers={})


def rocketmq_values(config: NameServerConfig) -> dict[str, str]:
    """Every key with the value in force, in RocketMQ's words."""
    return values_of(config, {})
