"""Settings of a broker that tools may change while it runs.

Place in the walk: beside it, behind UPDATE_BROKER_CONFIG. A change is checked as a whole, written
to the file that a restart reads, and only then in force.

Invariant: all keys of a request change or none; what is in force is what a restart would read.
Absent on purpose: who may ask (access).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from engine.broker.config import BrokerConfig
from engine.broker.parts import BrokerParts
from engine.broker.rocketmq_settings import FILE_NAME, known_keys, with_rocketmq_settings
from engine.broker.setting_ranges import LIVE
from engine.foundation.errors import ConfigError
from engine.foundation.live_settings import check_changes
from engine.store.kept_settings import KeptSettings
from engine.store.table_file import SettingsFile

assert not [key for key in LIVE if key not in known_keys()]


def kept_settings(parts: BrokerParts) -> KeptSettings:
    """The file in the broker's store."""
    path = f"{parts.config.config_folder}/{FILE_NAME}"
    return KeptSettings(parts.runtime, path, parts.store.store_id, parts.observer)


class LiveConfig:
    """Changes of one broker's settings, one after the other."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        origin = parts.origin
        self._file = (
            SettingsFile(parts.runtime, origin.path)
            if origin.path and not origin.is_kept
            else kept_settings(parts)
        )
        self._changing = asyncio.Lock()
        self.counter = 0
        """Counter of the configuration's data version."""

    async def change(self, changes: Mapping[str, str]) -> None:
        """Put all of them in force, for good.

        Raises NotChangeable, ConfigError or StorageError; then none is.
        """
        async with self._changing:
            words = {key: value.strip() for key, value in changes.items()}
            if not words:
                raise ConfigError("body", "", "at least one key=value")
            check_changes(words, allowed=LIVE, pinned=self._parts.origin.pinned)
            config = with_rocketmq_settings(self._parts.config, words)
            await self._file.change(words)
            self._put_in_force(config)
            self.counter += 1
            self._parts.settings_kept()

    def _put_in_force(self, config: BrokerConfig) -> None:
        parts, before = self._parts, self._parts.config
        parts.config = config
        parts.store.change_settings(config.store)
        parts.group_configs.auto_create = config.auto_create_subscription_group
        template = (config.auto_create_topic_enable, config.default_topic_queue_nums)
        if template != (before.auto_create_topic_enable, before.default_topic_queue_nums):
            parts.topics.set_template(config.default_topic_queue_nums if template[0] else None)
            parts.topics.touch()
            parts.topics_changed()
        if config.broker_permission != before.broker_permission:
            parts.topics.touch()
            parts.topics_changed()
