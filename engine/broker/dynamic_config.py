"""Broker settings that tools may change at run time.

Place in the walk: beside it, behind UPDATE_BROKER_CONFIG. A change is checked as a whole, written
to the file that a restart reads, and only then in force.

Invariant: all keys of a request change or none; what is in force is what a restart would read.
Absent on purpose: who may ask (access).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(slots=True, kw_only=True, eq=False)
class ConfigChanges:
    """Changes of one broker's settings, one after the other.

    `origin`: where the settings of the start came from; `file`: where a changed one is
    written, so that the next start reads it.
    """

    node: BrokerNode
    origin: Origin
    file: SettingsFile | KeptSettings
    changes: TableChanges
    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    counter: int = field(default=0, init=False)
    """Counter of the configuration's data version."""

    async def change(self, changes: Mapping[str, str]) -> None:
        """Put all of them in force, for good.

        Raises NotChangeable, ConfigError or StorageError; then none is.
        """
        async with self._changing:
            words = {key: value.strip() for key, value in changes.items()}
            if not words:
                raise ConfigError("body", "", "at least one key=value")
            check_changes(words, allowed=LIVE, pinned=self.origin.pinned)
            config = with_rocketmq_settings(self.node.config, words)
            await self.file.change(words)
            self._put_in_force(config)
            self.counter += 1
            self.changes.of_settings()

    def _put_in_force(self, config: BrokerConfig) -> None:
        before, self.node.config = self.node.config, config
        self.store.change_settings(config.store)
        self.group_configs.auto_create = config.auto_create_subscription_group
        template = (config.auto_create_topic_enable, config.default_topic_queue_nums)
        if template != (before.auto_create_topic_enable, before.default_topic_queue_nums):
            self.topics.set_template(config.default_topic_queue_nums if template[0] else None)
            self.topics.touch()
            self.changes.of_topics()
        if config.broker_permission != before.broker_permission:
            self.topics.touch()
            self.changes.of_topics()
