"""Determines the target topic and queue of each send.

Place in the walk: a producer's send passes here first. A topic that is not here is made on demand
when that is allowed. Absent on purpose: who may send (access_gate), putting (placement).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.sending.durability import broker_takes_nothing
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.names import (
    DLQ_PREFIX,
    FORBIDDEN_TO_CLIENTS,
    PERM_WRITE,
    RETRY_PREFIX,
    check_topic,
)
from engine.runtime.entropy import Entropy


@dataclass(slots=True, kw_only=True, eq=False)
class TargetQueues:
    """The queues of one broker that take messages."""

    node: BrokerNode
    topics: Topics
    changes: TableChanges
    entropy: Entropy

    def topic_for(self, header: SendMessageRequestHeader) -> TopicConfig:
        """The topic, made on demand when that is allowed. Raises RequestRefused."""
        if not self.node.is_master:
            self.node.check_master()
        topic = header.topic
        if topic in FORBIDDEN_TO_CLIENTS:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"sending message to topic[{topic}] is forbidden: the broker alone writes it",
            )
        if not self.node.config.broker_permission & PERM_WRITE:
            raise broker_takes_nothing(self.node.config)
        config = self.topics.find(topic)
        if config is None:
            check_topic(topic)
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                config, _ = self.topics.ensure(topic, 1)
            else:
                config = self.topics.create_like_template(
                    topic, header.default_topic, header.default_topic_queue_nums
                )
            if config is None:
                self.topics.require(topic)
            self.changes.of_topics()
        assert config is not None, "require has raised"
        if not config.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.node.config.host}] sending message to topic[{topic}] is "
                f"forbidden: its perm {config.perm} has no write bit",
            )
        return config

    def queue_for(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """The queue asked for; any writable one for a negative number. Raises RequestRefused."""
        queue_id = header.queue_id
        if queue_id < 0:
            return self.entropy.below(config.write_queue_nums)
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal: topic {config.topic_name} has "
                f"{config.read_queue_nums} read and {config.write_queue_nums} write queues",
            )
        return queue_id

    def reply_topic_for(self, header: SendMessageRequestHeader) -> TopicConfig:
        """An existing topic that clients may write. Raises RequestRefused."""
        self.node.check_master()
        check_topic(header.topic)
        config = self.topics.require(header.topic)
        if not self.node.config.broker_permission & PERM_WRITE:
            raise broker_takes_nothing(self.node.config)
        if header.topic in FORBIDDEN_TO_CLIENTS or not config.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"sending a reply to topic[{header.topic}] is forbidden"
            )
        return config

    def reply_queue_for(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """A queue of the topic that replies may go to. Raises RequestRefused."""
        if header.queue_id < 0:
            return self.entropy.below(config.write_queue_nums)
        if header.queue_id >= config.write_queue_nums:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic {header.topic} has "
                f"{config.write_queue_nums} write queues",
            )
        return header.queue_id

    def retry_queue_for(self, topic: str, queue_nums: int) -> int:
        """A queue of a group's retry topic, which is made when it is missing. Raises RequestRefused
        when it may not be written.
        """
        config, made = self.topics.ensure(topic, queue_nums)
        if made:
            self.changes.of_topics()
        if not config.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] sending message is forbidden: its perm {config.perm} has no "
                "write bit",
            )
        return self.entropy.below(queue_nums)

    def queue_there(self, topic: str, queue_id: int) -> int:
        """The queue, or another of the topic when it is not there any more."""
        return self.topics.queue_there(topic, queue_id)
