"""What the handlers of a broker work with: the store, the tables, the port for facts.

Place in the walk: made once by `broker.Broker`, handed to every handler and loop. It decides
nothing.

Absent on purpose: life cycle (broker), decisions (state and handlers).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.broker.config import BrokerConfig
from engine.broker.long_poll import HeldPull, HeldPulls
from engine.broker.state.client_figures import ClientFigures
from engine.broker.state.client_ids import ClientIds
from engine.broker.state.cold_reads import ColdReadSums
from engine.broker.state.consumer_filters import ConsumerFilters
from engine.broker.state.deduplication import Deduplication
from engine.broker.state.group_configs import GroupConfigs
from engine.broker.state.groups import ConsumerGroups
from engine.broker.state.handed_tails import HandedTails
from engine.broker.state.members import ClientChannel
from engine.broker.state.offsets import ConsumerOffsets
from engine.broker.state.producer_groups import ProducerGroups
from engine.broker.state.put_times import PutTimes
from engine.broker.state.questions import Questions
from engine.broker.state.queue_locks import QueueLocks
from engine.broker.state.readers import QueueKey, Readers
from engine.broker.state.second_copies import SecondCopies
from engine.broker.state.topic_lives import TopicLives
from engine.broker.state.topics import Topics
from engine.broker.state.traffic import Traffic
from engine.broker.state.transactions import Transactions
from engine.broker.work_in_steps import WorkInSteps
from engine.foundation.config_layers import Origin
from engine.foundation.observing import Observer
from engine.foundation.units import Buffer
from engine.protocol.bodies import DataVersion
from engine.protocol.message_ids import UniqueIds
from engine.remoting import Peer
from engine.remoting.gate import Gate
from engine.remoting.latencies import Latencies
from engine.runtime import Runtime
from engine.store import MessageStore


@dataclass(slots=True)
class BrokerParts:
    """One broker's state, and how to tell that some of it changed."""

    runtime: Runtime
    config: BrokerConfig
    store: MessageStore
    observer: Observer
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    producers: ProducerGroups
    offsets: ConsumerOffsets
    readers: Readers
    locks: QueueLocks
    holds: HeldPulls
    unique_ids: UniqueIds
    boot_ms: int
    origin: Origin = field(default_factory=Origin)
    """Where the settings came from."""
    traffic: Traffic = field(init=False)
    latencies: Latencies = field(default_factory=Latencies)
    """How long requests took."""
    put_times: PutTimes = field(init=False)
    filters: ConsumerFilters = field(default_factory=ConsumerFilters)
    """What consumer groups select by SQL92."""
    boot_ends: dict[tuple[str, int], int] | None = None
    """Where each queue ended at boot, when a power cut may have taken what lay behind; else None.
    """
    lives: TopicLives = field(default_factory=TopicLives)
    """Which topics were deleted and made again, and who may remember it."""
    address: str = ""
    """`ip:port` under which the broker is known; set when its port is bound."""
    deduplication: Deduplication = field(default_factory=Deduplication)
    resends_answered: int = 0
    """Resends answered with their first copy since boot."""
    resends_refused: int = 0
    """Resends refused since boot: another body under the same UNIQ_KEY."""
    second_copies: SecondCopies = field(default_factory=SecondCopies)
    """Messages stored twice, because their producer sent them again."""
    handed_tails: HandedTails = field(default_factory=HandedTails)
    """What groups have pulled beyond what is synced, and what an earlier life lost of it."""
    transactions: Transactions = field(default_factory=Transactions)
    """Transactions under way."""
    gate: Gate = field(init=False)
    """Who may do what."""
    client_ids: ClientIds = field(default_factory=ClientIds)
    """Which account goes by which client id."""
    questions: Questions = field(default_factory=Questions)
    """What may be replied to."""
    cold_reads: ColdReadSums = field(default_factory=ColdReadSums)
    """Answers that were read from far behind the end of the log."""
    client_figures: ClientFigures = field(default_factory=ClientFigures)
    """How fast members of groups say that they consume."""
    work: WorkInSteps = field(default_factory=WorkInSteps)
    """What would hold the loop for too long when it is done at once."""
    deletions: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """What is being deleted: "topic ..." or "group ..."."""
    forgetting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while all that is known of a group, or of a topic that is not here, is forgotten."""
    topics_changed: Callable[[], None] = lambda: None
    """Persist the topics and register at the name servers, soon."""
    topics_unsaved: bool = False
    """Were topics changed that are not on disk yet?"""
    topics_told: Callable[[], Awaitable[None]] = field(init=False)
    """Wait until the name servers have heard of the topics, for a moment at most."""
    group_configs_changed: Callable[[], None] = lambda: None
    """Persist the groups' settings, soon."""
    settings_saved: Callable[[], Awaitable[None]] = field(init=False)
    """Wait until what changed of topics and groups' settings is on disk. Raises StorageError."""
    settings_kept: Callable[[], None] = lambda: None
    """Have it noted, soon, that the store keeps settings of the broker."""
    filters_changed: Callable[[], None] = lambda: None
    """Persist the groups' selectors, soon."""
    watermarks_wanted: Callable[[list[QueueKey]], None] = lambda _keys: None
    """Tell the watermarks of these (group, topic, queue) now."""
    topic_marks_void: Callable[[str], Iterator[None]] = lambda _topic: iter(())
    """The topic was deleted: what was told of its marks is void, in steps."""
    group_marks_void: Callable[[str], Iterator[None]] = lambda _group: iter(())
    """The group was deleted: as `topic_marks_void`."""
    is_watermark_told: Callable[[QueueKey], bool] = lambda _key: True
    """Was anything told of how far this group is on this queue?"""
    pulls_woken: Callable[[Sequence[HeldPull]], None] = lambda _pulls: None
    """Answer these held pulls, soon."""
    handed: Callable[[QueueKey, range, Sequence[Buffer]], None] = lambda _key, _span, _bodies: None
    """An answer over these queue offsets, with these messages, brought a group further."""

    def __post_init__(self) -> None:
        """Counting begins now."""
        self.traffic = Traffic(self.runtime.clock.steady_ms)
        self.put_times = PutTimes(self.latencies, self.steady_ms())

    def now_ms(self) -> int:
        """The broker's time: what rows and records are stamped with."""
        return self.runtime.clock.now_ms()

    def steady_ms(self) -> int:
        """For durations, leases and deadlines: nobody sets it, and its zero has no meaning."""
        return self.runtime.clock.steady_ms()

    def data_version(self, counter: int) -> DataVersion:
        """The version of one of the broker's tables."""
        return DataVersion(state_version=0, timestamp=self.boot_ms, counter=counter)


def client_id_of(peer: Peer) -> str | None:
    """The client on a connection, once it has sent a heartbeat."""
    channel = peer.attachment
    return channel.client_id if isinstance(channel, ClientChannel) else None
