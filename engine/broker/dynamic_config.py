"""Broker settings that tools may change at run time.

Place in the walk: beside it, behind UPDATE_BROKER_CONFIG. A change is checked as a whole, written
to the file that a restart reads, and only then in force.

Invariant: all keys of a request change or none; what is in force is what a restart would read.
Absent on purpose: who may ask (access).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from engine.broker.config import BrokerConfig
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.identity import BrokerNode
from engine.broker.rocketmq_settings import LIVE, known_keys, with_rocketmq_settings
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.foundation.config import check_changes
from engine.foundation.config_layers import Origin
from engine.foundation.errors import ConfigError
from engine.store import MessageStore
from engine.store.stored_settings import KeptSettings
from engine.store.table_file import SettingsFile

assert not [key for key in LIVE if key not in known_keys()]


class ConfigChanges:
    """Changes of one broker's settings, one after the other."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        origin: Origin,
        file: SettingsFile | KeptSettings,
        changes: TableChanges,
        store: MessageStore,
        topics: Topics,
        group_configs: GroupConfigs,
    ) -> None:
        """`origin`: where the settings of the start came from; `file`: where a changed one is
        written, so that the next start reads it.
        """
        self._node = node
        self._origin = origin
        self._file = file
        self._changes = changes
        self._store = store
        self._topics = topics
        self._group_configs = group_configs
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
            check_changes(words, allowed=LIVE, pinned=self._origin.pinned)
            config = with_rocketmq_settings(self._node.config, words)
            await self._file.change(words)
            self._put_in_force(config)
            self.counter += 1
            self._changes.of_settings()

    def _put_in_force(self, config: BrokerConfig) -> None:
        before, self._node.config = self._node.config, config
        self._store.change_settings(config.store)
        self._group_configs.auto_create = config.auto_create_subscription_group
        template = (config.auto_create_topic_enable, config.default_topic_queue_nums)
        if template != (before.auto_create_topic_enable, before.default_topic_queue_nums):
            self._topics.set_template(config.default_topic_queue_nums if template[0] else None)
            self._topics.touch()
            self._changes.of_topics()
        if config.broker_permission != before.broker_permission:
            self._topics.touch()
            self._changes.of_topics()
