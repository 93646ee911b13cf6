"""Converts RocketMQ's keys to a name server's configuration and back.

Place in the walk: once at start, and when a tool reads the configuration or changes it. Absent on
purpose: options (commands).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.foundation.config import keys_of, values_of, with_settings
from engine.foundation.config_layers import (
    PartyStart,
    Setting,
    applied,
    from_environment,
    start_with,
)
from engine.namesrv.config import NameServerConfig
from engine.runtime import Disk

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
