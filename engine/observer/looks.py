"""What one look at a broker found: plain values, as its answers had them.

Place in the walk: `asking` fills it, `facts` reads it. Pure.

Invariant: what was not asked in this look, or not answered, is not there; nothing is made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.client.admin.groups import QueueProgress
from engine.observer.own_figures import OwnFigures
from engine.observer.time_spans import Estimate
from engine.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    TopicConfig,
    TopicOffset,
)

BrokerKey = tuple[str, str]
"""(cluster, broker)"""
Place = tuple[str, int]
"""(topic, queue_id)"""

Member = tuple[str, str]
"""(group, client id)"""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """What a copy of a message that failed says, in a retry or dead-letter topic."""

    group: str
    is_dead: bool
    message_id: str | None
    origin_topic: str | None
    reconsume_times: int


@dataclass(slots=True)
class Look:
    """The answers of one broker, all asked within one period."""

    at_ms: int
    """The observer's clock when it began."""
    boot_ms: int
    """When the broker's life began, by its own clock."""
    skew_ms: int | None
    """How far the broker's clock is ahead, to a second; None when it does not tell its age."""
    progress: Mapping[str, Mapping[Place, QueueProgress]]
    """Of every group with consume offsets: how far it is in each of its queues."""
    topics: Mapping[str, TopicConfig] | None = None
    """All topics of the broker; None: not asked."""
    groups: frozenset[str] | None = None
    """All groups it has settings of; None: not asked."""
    ends: dict[Place, TopicOffset] = field(default_factory=dict)
    """Of the topics that were asked for."""
    connections: dict[str, ConsumerConnection | None] = field(default_factory=dict)
    """Of the groups that were asked for; None: nobody is connected."""
    running: dict[Member, ConsumerRunningInfo] = field(default_factory=dict)
    """Of the members that were asked, and answered."""
    figures: OwnFigures = field(default_factory=OwnFigures)
    """What the broker says of its own log and delay levels."""
    delays_ms: Mapping[int, int] = field(default_factory=dict)
    """The delay of each level, as its settings had them last."""
    address: str | None = None
    """Where the broker was asked."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """Broker ids by address, as the name servers listed them last: 0 is the master."""
    stored_ms: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """When the messages at these (topic, queue_id, offset) were stored."""
    estimates: Mapping[tuple[str, str, int], Estimate] = field(default_factory=dict)
    """The same, where messages are not read, by (group, topic, queue_id)."""
    failed: list[FailedMessage] = field(default_factory=list)
    """Copies of messages that failed, which have come since they were read last."""
