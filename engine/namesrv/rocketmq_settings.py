"""RocketMQ's keys ↔ a name server's configuration, in both directions.

Place in the walk: once at start, and when a tool reads the configuration or changes it. Absent on
purpose: options (commands).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.foundation.config import keys_of, values_of, with_settings
from engine.foundation.config_layers import (
    Origin,
    Setting,
    applied,
    from_environment,
    from_file,
    layered,
    origin_of,
    sift,
    text_of,
)
from engine.namesrv.config import NameServerConfig
from engine.runtime import Disk

FILE_NAME = "namesrv.properties"
ENVIRONMENT_PREFIX = "TIDEMARK_NAMESRV_"

WITHOUT_EFFECT = {"configStorePath": "changes are kept in the file that was read at start"}


@dataclass(frozen=True, slots=True)
class Start:
    """What a name server starts with."""

    config: NameServerConfig
    origin: Origin
    warnings: tuple[str, ...]
    """A sentence about each setting that means nothing here."""


def read_start(
    disk: Disk,
    path: str | None,
    *,
    folder: str | None,
    environment: Mapping[str, str],
    flags: Sequence[Setting],
) -> Start:
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
    settings = layered(
        [
            *from_file(text_of(data), path or ""),
            *from_environment(environment, ENVIRONMENT_PREFIX, known),
            *flags,
        ]
    )
    kept, warnings = sift(settings, known, WITHOUT_EFFECT)
    config = applied(kept, lambda values: with_rocketmq_settings(NameServerConfig(), values))
    return Start(config, origin_of(kept, path or ""), tuple(warnings))


def with_rocketmq_settings(
    config: NameServerConfig, settings: Mapping[str, str]
) -> NameServerConfig:
    """Apply settings by RocketMQ's keys. Raises ConfigError."""
    return with_settings(config, settings, readers={})


def rocketmq_values(config: NameServerConfig) -> dict[str, str]:
    """Every key with the value in force, in RocketMQ's words."""
    return values_of(config, {})
