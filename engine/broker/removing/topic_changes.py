"""Applies changes of topics that administrators ask for.

Place in the walk: behind `handlers/admin_topics`; a changed number of queues makes the groups that
read the topic rebalance. Absent on purpose: what a shrunk topic strands (shrinking).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.broker.changes import TableChanges
from engine.broker.config import BrokerConfig
from engine.broker.groups.membership import Membership
from engine.broker.groups.removals import Removals
from engine.broker.node import BrokerNode
from engine.broker.topics.attributes import TAG_FILTER, changed_attributes, tag_filter
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.names import check_topic, is_system_topic, reply_topic
from engine.store import MessageStore


def is_own(topic: str, config: BrokerConfig) -> bool:
    """Is it a topic that every broker has, or this one for itself?"""
    own = (config.cluster_name, config.broker_name, reply_topic(config.cluster_name))
    return is_system_topic(topic) or topic in own


class TopicChanges:
    """Changes of one broker's topics."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        store: MessageStore,
        topics: Topics,
        changes: TableChanges,
        removals: Removals,
        membership: Membership,
    ) -> None:
        self._node = node
        self._store = store
        self._topics = topics
        self._changes = changes
        self._removals = removals
        self._membership = membership

    def check_name(self, topic: str) -> None:
        """Raise RequestRefused for an illegal name, and for a topic of the broker's own."""
        check_topic(topic)
        if is_own(topic, self._node.config):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic.",
            )

    def take_attributes(self, config: TopicConfig, change: str) -> None:
        """What the topic has after `change`, in the words of RocketMQ's tools. Raises
        RequestRefused.
        """
        topic = config.topic_name
        before = self._topics.find(topic)
        old = {} if before is None else before.attributes
        config.attributes = changed_attributes(None if before is None else old, change)
        self._refuse_another_tag_filter(topic, tag_filter(old), tag_filter(config.attributes))

    def put_all(self, configs: Sequence[TopicConfig]) -> None:
        """Create or change these topics; none when one is refused. Raises RequestRefused."""
        for config in configs:
            self._topics.check(config)
        self._topics.check_room([config.topic_name for config in configs])
        for config in configs:
            self._put(config)

    def _put(self, config: TopicConfig) -> None:
        """Create or change a topic."""
        topic = config.topic_name
        before = self._topics.find(topic)
        self._topics.put(config)
        self._changes.of_topics()
        if before is not None and before.read_queue_nums > config.read_queue_nums:
            self._removals.queues_removed(topic, config.read_queue_nums)
        if before is not None and before.read_queue_nums != config.read_queue_nums:
            self._membership.queues_changed(topic, before.read_queue_nums, config.read_queue_nums)

    def _refuse_another_tag_filter(self, topic: str, old: str, new: str) -> None:
        """Refuse to change what the units of a queue mean once there are any."""
        if old != new and self._store.has_held(topic):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"attempt to update an unchangeable attribute. key: {TAG_FILTER}: topic {topic} "
                f"holds messages filtered by {old}; make a new topic with {new}, or delete this "
                "one first",
            )
