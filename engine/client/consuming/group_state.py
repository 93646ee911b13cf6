"""State shared by a push consumer's parts: group, subscriptions, windows and offsets.

Invariant: `windows` holds exactly the queues this member reads; one that is removed is marked
dropped first. Absent on purpose: behaviour. Rebalance decides who is in, pulling fills, the consume
service empties.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.client.config import ConsumerConfig, MessageModel
from engine.client.consuming.consume_stats import Speeds
from engine.client.consuming.listeners import ConsumeTracer, MessageListener
from engine.client.consuming.offset_store import OffsetStore
from engine.client.consuming.process_queue import ProcessQueue
from engine.protocol.bodies import SubscriptionData
from engine.protocol.message import MessageQueue

MAX_RECONSUME_TIMES_DEFAULT = 16
"""Failed tries of a concurrent consumer's message before it is dead (RocketMQ: retryMaxTimes)."""

RECONSUME_WITHOUT_END = 2**31 - 1
"""Orderly consumers try the same message until it succeeds."""


@dataclass(slots=True)
class Subscription:
    """A topic of the consumer: what is wanted of it, and who takes it."""

    data: SubscriptionData
    """What heartbeats carry; its version also rises when this member reads other queues."""
    listener: MessageListener | None
    """None for the retry topic: its messages go to the listener of the topic they came from."""
    pull_version: int = field(init=False)
    """The version pulls carry: that of the expression. A broker that has not heard of a later one
    yet would refuse them (SUBSCRIPTION_NOT_LATEST), though it filters by the same expression.
    """

    def __post_init__(self) -> None:
        self.pull_version = self.data.sub_version


@dataclass(slots=True)
class GroupState:
    """One member's view of its group."""

    group: str
    client_id: str
    config: ConsumerConfig
    offsets: OffsetStore
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    windows: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)
    paused: bool = False
    tracer: ConsumeTracer | None = None
    consume_type: str = "CONSUME_PASSIVELY"
    """The type in heartbeats: CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull)."""
    speeds: Speeds = field(default_factory=Speeds)
    divided: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Topic → among how many members how many queues of all brokers were divided last, as (queues,
    members); of topics that were subscribed to.
    """

    @property
    def polls(self) -> bool:
        """Does the application ask for its messages itself?"""
        return self.consume_type == "CONSUME_ACTIVELY"

    @property
    def is_clustering(self) -> bool:
        """Do the members share the messages?"""
        return self.config.message_model is MessageModel.CLUSTERING

    @property
    def max_reconsume_times(self) -> int:
        """Failed tries before a message is dead."""
        if self.config.max_reconsume_times is not None:
            return self.config.max_reconsume_times
        return RECONSUME_WITHOUT_END if self.config.orderly else MAX_RECONSUME_TIMES_DEFAULT

    def listener_for(self, topic: str) -> MessageListener:
        """The listener of `topic`; the first one for a retried message of a topic that only other
        members read.

        RocketMQ's consumers have a single listener, so there such a message goes to it as well.
        """
        own = self.subscriptions.get(topic)
        if own is not None and own.listener is not None:
            return own.listener
        for subscription in self.subscriptions.values():
            if subscription.listener is not None:
                return subscription.listener
        raise AssertionError("a started consumer has a listener")
