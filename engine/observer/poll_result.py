"""The result of a single broker poll, as plain values taken from its responses.

Place in the walk: `polling` fills it, `facts` reads it. Pure.

Invariant: what was not asked in this look, or not answered, is not there; nothing is made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.admin.api.groups import QueueProgress
from engine.observer.own_figures import OwnFigures
from engine.observer.store_time_estimates import Estimate
from engine.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, TopicConfig, TopicOffset

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
    is_expired: bool = False
    """Its invisible time ran out, so a POP group gets it once more: no failure."""
    origin_queue_id: int | None = None
    origin_offset: int | None = None
    """Where it was first; None: not known."""


@dataclass(frozen=True, slots=True)
class PopSeen:
    """A POP group in a queue: what was handed out and is neither acknowledged nor over."""

    popped: int | None
    """Next offset to be handed out; None: beyond the end of the queue, so of another life."""
    unacknowledged: int | None
    """None: not known, for the reason."""
    ranges: tuple[tuple[int, int], ...] | None = None
    oldest_ms: int | None = None
    """When the oldest of them was handed out, by the broker's clock."""
    invisible_ms: int | None = None
    acknowledged: int = 0
    """Since the look before."""
    expired: int = 0
    """Invisible times that ran out since the look before."""
    unknown_reason: str | None = None


@dataclass(slots=True)
class Look:
    """The answers of one broker, all asked within one period."""

    at_ms: int
    """The observer's clock when it began."""
    boot_ms: int
    """When the broker's life began, by its own clock."""
    skew_ms: int | None
    """How far the broker's clock is ahead, to a second; None when it does not report its age."""
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
    members_unknown: dict[str, str] = field(default_factory=dict)
    """Of the others that were asked for: why nobody knows who is connected."""
    proxy_of: dict[Member, str] = field(default_factory=dict)
    """Proxies with which members are connected that are not with the broker."""
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
    first_stored_ms: dict[Place, int] = field(default_factory=dict)
    """When the message at offset 0 was stored, in queues of topics that may be other ones."""
    stored_ms: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """When the messages at these (topic, queue_id, offset) were stored."""
    estimates: Mapping[tuple[str, str, int], Estimate] = field(default_factory=dict)
    """The same, where messages are not read, by (group, topic, queue_id)."""
    popped: dict[tuple[str, str, int], PopSeen] = field(default_factory=dict)
    """Of groups that read by POP, by (group, topic, queue_id)."""
    failed: list[FailedMessage] = field(default_factory=list)
    """Copies of messages that failed, which have come since they were read last."""

    def may_precede(self, place: Place, progress: QueueProgress, ends: TopicOffset) -> bool:
        """May how far a group is have been asked before its topic was made again?"""
        is_shown_by_first = any(topic == place[0] for topic, _ in self.first_stored_ms)
        return is_shown_by_first or progress.broker_offset > ends.max_offset


def unread_by_topic(rows: Mapping[Place, QueueProgress]) -> dict[str, int]:
    """How many messages a group has not finished, of each topic that it has offsets on."""
    unread: dict[str, int] = {}
    for (topic, _), one in rows.items():
        behind = max(0, one.broker_offset - max(0, one.consumer_offset))
        unread[topic] = unread.get(topic, 0) + behind
    return unread
