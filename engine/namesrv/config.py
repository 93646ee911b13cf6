"""Settings of a name server. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from engine.foundation.errors import ConfigError
from engine.foundation.limits import CONNECTIONS_MAX
from engine.foundation.units import SECOND_MS
from engine.remoting.access import Access


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
