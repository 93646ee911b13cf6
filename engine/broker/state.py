"""The tables and external interfaces that a broker's services share.

Place in the walk: made first, when the store is open. `services` and `handler_table` hand each of
these to whoever names it (`assembled`); nobody else is given the whole.

Invariant: each table is made once. Absent on purpose: life cycle (broker), decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import TypeVar

from engine.broker.access_gate import gate_of
from engine.broker.accounts import AgreedAccounts
from engine.broker.config import BrokerConfig, BrokerRole
from engine.broker.groups.consumer_filters import ConsumerFilters
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import DeletedGroups, GroupConfigs
from engine.broker.groups.members import ClientIds
from engine.broker.groups.open_requests import Questions
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import DoubtfulReaders, QueueKey, Readers, Reading
from engine.broker.identity import BrokerNode, Role
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.outage_offsets import OutageOffsets
from engine.broker.offsets.topic_lives import TopicLives
from engine.broker.pulling.cold_reads import ColdReadSums
from engine.broker.pulling.long_poll import HeldPulls
from engine.broker.reporting.offset_reuse import UnsyncedReads
from engine.broker.sending.deduplication import Deduplication
from engine.broker.sending.resends import DuplicateCopies
from engine.broker.sending.safety import Safety
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.stats.client_stats import ClientStats
from engine.broker.stats.runtime_info import PutTimes
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.broker.transactions.transactions import Transactions
from engine.delay import DelayLevels, LevelMarks, TimeWheel
from engine.foundation.chunked_work import ChunkedWork
from engine.foundation.observing import Observer
from engine.protocol.message_ids import UniqueIds
from engine.remoting.gate import Gate
from engine.remoting.latencies import Latencies
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.store import MessageStore
from engine.store.table_file import TableFile

Made = TypeVar("Made")


def assembled(kind: Callable[..., Made], *holders: object, **given: object) -> Made:
    """One of this kind, with all that its constructor names.

    What is not `given` comes from the first of the holders that has it under the same name. Raises
    TypeError when nobody has a name that has no default.
    """
    for name in signature(kind).parameters:
        holder = next((one for one in holders if hasattr(one, name)), None)
        if name not in given and holder is not None:
            given[name] = getattr(holder, name)
    return kind(**given)


@dataclass(frozen=True, slots=True)
class Signals:
    """Those whom tables notify in the step in which something happens."""

    topic_made: Callable[[str], None]
    """A topic is here that was not."""
    last_offset_forgotten: Callable[[str], None]
    """A group that is not deleted itself has lost its last offset."""
    reading_forgotten: Callable[[QueueKey, Reading], None]
    """What a group had read of a queue is void: its topic or the group was deleted."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker's tables."""

    runtime: Runtime
    clock: Clock
    node: BrokerNode
    store: MessageStore
    safety: Safety
    """When a put is safe; replication adds its conditions."""
    observer: Observer
    delay_levels: DelayLevels
    time_wheel: TimeWheel
    gate: Gate
    """The permissions of accounts."""
    accounts: AgreedAccounts
    topics: Topics
    group_configs: GroupConfigs
    offsets: ConsumerOffsets
    readers: Readers
    """How far groups have pulled, and which client did."""
    stats: BrokerStats
    put_times: PutTimes
    transactions: Transactions
    client_ids: ClientIds
    """Which account goes by which client id."""
    unique_ids: UniqueIds
    changes: TableChanges = field(default_factory=TableChanges)
    groups: ConsumerGroups = field(default_factory=ConsumerGroups)
    producers: ProducerGroups = field(default_factory=ProducerGroups)
    filters: ConsumerFilters = field(default_factory=ConsumerFilters)
    """What consumer groups select by SQL92."""
    locks: QueueLocks = field(default_factory=QueueLocks)
    outage_offsets: OutageOffsets = field(default_factory=OutageOffsets)
    """Committed here while this node was no master, and not merged yet."""
    deleted_groups: DeletedGroups = field(default_factory=DeletedGroups)
    """Groups whose offsets the file of offsets may still hold."""
    doubtful_readers: DoubtfulReaders = field(default_factory=DoubtfulReaders)
    """Clients that may read a queue as well as its reader."""
    questions: Questions = field(default_factory=Questions)
    """What may be replied to."""
    lives: TopicLives = field(default_factory=TopicLives)
    """Which topics were deleted and made again, and who may remember it."""
    holds: HeldPulls = field(default_factory=HeldPulls)
    cold_reads: ColdReadSums = field(default_factory=ColdReadSums)
    """Answers that were read from far behind the end of the log."""
    deduplication: Deduplication = field(default_factory=Deduplication)
    duplicate_copies: DuplicateCopies = field(default_factory=DuplicateCopies)
    """Messages stored twice, because their producer sent them again."""
    unsynced: UnsyncedReads = field(default_factory=UnsyncedReads)
    """What groups pulled beyond the synced log, and what an earlier life lost of it."""
    client_stats: ClientStats = field(default_factory=ClientStats)
    """How fast members of groups say that they consume."""
    latencies: Latencies = field(default_factory=Latencies)
    """How long requests took."""
    work: ChunkedWork = field(default_factory=ChunkedWork)
    """Work that would hold the loop for too long in one step."""


def state_of(
    runtime: Runtime,
    config: BrokerConfig,
    *,
    store: MessageStore,
    observer: Observer,
    signals: Signals,
    broker_epoch: int,
) -> BrokerState:
    """The empty tables of a broker with this store; `broker_epoch`: the life of its telemetry."""
    clock, transactions, client_ids = runtime.clock, Transactions(), ClientIds()
    node = BrokerNode(config, boot_ms=clock.now_ms())
    if config.broker_role is BrokerRole.SLAVE:
        node.slave_id = config.broker_id
        node.take_role(Role.SLAVE, 0)
    elif config.raft_enable:
        node.slave_id = int(config.raft_self_id[1:]) + 1
        node.take_role(Role.NONE, 0)
    latencies = Latencies()
    gate = gate_of(config.access, store=store, transactions=transactions, client_ids=client_ids)
    return BrokerState(
        runtime=runtime,
        clock=clock,
        node=node,
        store=store,
        safety=Safety(node, store.when_flushed),
        observer=observer,
        delay_levels=DelayLevels(
            runtime,
            store,
            levels_ms=config.store.delay_levels_ms,
            cursor_file=TableFile(runtime, config.delay_offset_path, store.store_id),
            observer=observer,
            marks=LevelMarks() if config.raft_enable else None,
        ),
        time_wheel=TimeWheel(
            runtime,
            store,
            folder=f"{config.store.root}/delaylog",
            snapshot=TableFile(runtime, config.timer_snapshot_path, store.store_id),
            rocketmq_path=config.rocketmq_timers_path,
            observer=observer,
        ),
        gate=gate,
        accounts=AgreedAccounts(gate, config.access),
        topics=Topics(on_made=signals.topic_made),
        group_configs=GroupConfigs(auto_create=config.auto_create_subscription_group),
        offsets=ConsumerOffsets(on_last_forgotten=signals.last_offset_forgotten),
        readers=Readers(broker_epoch, on_forgotten=signals.reading_forgotten),
        stats=BrokerStats(clock.steady_ms),
        latencies=latencies,
        put_times=PutTimes(latencies, clock.steady_ms()),
        transactions=transactions,
        client_ids=client_ids,
        unique_ids=UniqueIds(
            config.host, runtime.entropy.process_id(), runtime.entropy.below(1 << 32)
        ),
    )
