"""Builds a broker's services by package: offsets, reporting, sending and pulling.

Place in the walk: `services` makes these first, in this order, for each uses those before it.

Invariant: a service is given all that it uses when it is made. Absent on purpose: services that
stand across rooms (services), the order of a start (broker).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.broker.groups.membership import Membership
from engine.broker.groups.removals import Removals
from engine.broker.offsets.commit_reports import CommitReports
from engine.broker.offsets.new_lives import NewLives, StartingPoints
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.offsets.progress import GroupQueues, Progress
from engine.broker.offsets.remembered_offsets import BootEnds, RememberedOffsets
from engine.broker.pulling.pull_answers import Handed, PullAnswers
from engine.broker.pulling.pull_checks import PullChecks, PullPositions
from engine.broker.pulling.pull_filter import PullFilters
from engine.broker.reporting.boot_audit import BootAudit
from engine.broker.reporting.client_windows import ClientWindows
from engine.broker.reporting.dirty_marks import EmittedPairs, MovedMarks
from engine.broker.reporting.left_topics import LeavingTopics
from engine.broker.reporting.mark_reader import MarkReader
from engine.broker.reporting.offset_answers import OffsetAnswers
from engine.broker.reporting.offset_reuse import OffsetReuse
from engine.broker.reporting.retention_losses import ExpiredDeadLetters, RetentionLosses
from engine.broker.reporting.watermarks import Watermarks
from engine.broker.sending.drafts import Drafts
from engine.broker.sending.durability import Durability
from engine.broker.sending.placement import Placement
from engine.broker.sending.resends import Resends
from engine.broker.sending.retry_copies import DeadLetterTopics, Origins, RetryCopies
from engine.broker.sending.target_queues import TargetQueues
from engine.broker.sending.timers import Timers
from engine.broker.state import BrokerState
from engine.broker.transactions.half_queue import HalfQueue


@dataclass(frozen=True, slots=True)
class OffsetServices:
    """What judges, places and reports consume offsets."""

    removals: Removals
    facts: OffsetFacts
    remembered: RememberedOffsets
    reports: CommitReports
    new_lives: NewLives
    queues: GroupQueues
    starting_points: StartingPoints
    progress: Progress


def offset_services(state: BrokerState, boot_ends: BootEnds) -> OffsetServices:
    """Those of one broker; `boot_ends` as `RememberedOffsets` has it."""
    facts = OffsetFacts(store=state.store, observer=state.observer)
    remembered = RememberedOffsets(
        boot_ends=boot_ends,
        groups=state.groups,
        lives=state.lives,
        offsets=state.offsets,
        readers=state.readers,
        store=state.store,
    )
    new_lives = NewLives(
        facts=facts,
        group_configs=state.group_configs,
        groups=state.groups,
        lives=state.lives,
        observer=state.observer,
        offsets=state.offsets,
        readers=state.readers,
        store=state.store,
        topics=state.topics,
        work=state.work,
    )
    return OffsetServices(
        removals=Removals(
            group_configs=state.group_configs,
            groups=state.groups,
            has_offsets=state.offsets.has_any,
            observer=state.observer,
        ),
        facts=facts,
        remembered=remembered,
        reports=CommitReports(
            clock=state.clock,
            facts=facts,
            groups=state.groups,
            node=state.node,
            lives=state.lives,
            locks=state.locks,
            offsets=state.offsets,
            outage=state.outage_offsets,
            remembered=remembered,
            store=state.store,
        ),
        new_lives=new_lives,
        queues=GroupQueues(offsets=state.offsets, readers=state.readers, topics=state.topics),
        starting_points=StartingPoints(
            group_configs=state.group_configs,
            new_lives=new_lives,
            node=state.node,
            remembered=remembered,
            store=state.store,
            topics=state.topics,
        ),
        progress=Progress(
            clock=state.clock,
            node=state.node,
            offsets=state.offsets,
            readers=state.readers,
            stats=state.stats,
            store=state.store,
            topics=state.topics,
        ),
    )


@dataclass(frozen=True, slots=True)
class Reporters:
    """What emits facts about a broker into its telemetry."""

    watermarks: Watermarks
    left_topics: LeavingTopics
    client_windows: ClientWindows
    offset_answers: OffsetAnswers
    boot_audit: BootAudit
    retention_losses: RetentionLosses
    expired: ExpiredDeadLetters


def reporters(state: BrokerState, offsets: OffsetServices) -> Reporters:
    """Those of one broker."""
    pairs = EmittedPairs()
    left_topics = LeavingTopics(
        clock=state.clock,
        group_configs=state.group_configs,
        group_queues=offsets.queues,
        groups=state.groups,
        offsets=state.offsets,
        pairs=pairs,
        store=state.store,
        topics=state.topics,
    )
    reuse = OffsetReuse(
        node=state.node, observer=state.observer, store=state.store, unsynced=state.unsynced
    )
    watermarks = Watermarks(
        config=state.node.config,
        marks=_mark_reader(state),
        moved=_moved_marks(state),
        left_topics=left_topics,
        pairs=pairs,
        reuse=reuse,
        observer=state.observer,
        clock=state.clock,
        work=state.work,
    )
    return Reporters(
        watermarks=watermarks,
        left_topics=left_topics,
        client_windows=_client_windows(state, offsets, watermarks),
        offset_answers=OffsetAnswers(
            clock=state.clock,
            doubtful_readers=state.doubtful_readers,
            group_configs=state.group_configs,
            observer=state.observer,
            offsets=state.offsets,
            readers=state.readers,
            topics=state.topics,
        ),
        boot_audit=BootAudit(
            emit_marks=watermarks.emit,
            facts=offsets.facts,
            observer=state.observer,
            offsets=state.offsets,
            readers=state.readers,
            reuse=reuse,
            store=state.store,
            topics=state.topics,
        ),
        retention_losses=RetentionLosses(
            emit_marks=watermarks.emit,
            has_left=left_topics.__contains__,
            observer=state.observer,
            offsets=state.offsets,
        ),
        expired=ExpiredDeadLetters(observer=state.observer, store=state.store),
    )


def _client_windows(
    state: BrokerState, offsets: OffsetServices, watermarks: Watermarks
) -> ClientWindows:
    return ClientWindows(
        client_stats=state.client_stats,
        clock=state.clock,
        doubtful_readers=state.doubtful_readers,
        emit_marks=watermarks.emit,
        groups=state.groups,
        is_mark_emitted=watermarks.is_emitted,
        node=state.node,
        observer=state.observer,
        offsets=state.offsets,
        readers=state.readers,
        remembered=offsets.remembered,
        store=state.store,
        topics=state.topics,
    )


def _mark_reader(state: BrokerState) -> MarkReader:
    return MarkReader(
        node=state.node,
        store=state.store,
        topics=state.topics,
        groups=state.groups,
        locks=state.locks,
        offsets=state.offsets,
        readers=state.readers,
        unsynced=state.unsynced,
    )


def _moved_marks(state: BrokerState) -> MovedMarks:
    return MovedMarks(
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        groups=state.groups,
        locks=state.locks,
        offsets=state.offsets,
        readers=state.readers,
    )


@dataclass(frozen=True, slots=True)
class SendServices:
    """Services that put messages, and those for messages that fail."""

    queues: TargetQueues
    drafts: Drafts
    placement: Placement
    durability: Durability
    origins: Origins
    dead_letters: DeadLetterTopics
    retry_copies: RetryCopies
    half_queue: HalfQueue
    resends: Resends


def send_services(
    state: BrokerState, offsets: OffsetServices, save_settings: Callable[[], Awaitable[None]]
) -> SendServices:
    """Those of one broker; `save_settings` returns when changed topics are on disk."""
    origins = Origins(store=state.store, transactions=state.transactions)
    dead_letters = DeadLetterTopics(changes=state.changes, node=state.node, topics=state.topics)
    return SendServices(
        queues=TargetQueues(
            changes=state.changes,
            entropy=state.runtime.entropy,
            node=state.node,
            topics=state.topics,
        ),
        drafts=Drafts(
            clock=state.clock,
            delays=state.delay_levels,
            node=state.node,
            timers=Timers(clock=state.clock, node=state.node, wheel=state.time_wheel),
            unique_ids=state.unique_ids,
        ),
        placement=Placement(
            clock=state.clock,
            deduplication=state.deduplication,
            node=state.node,
            observer=state.observer,
            store=state.store,
            topics=state.topics,
        ),
        durability=Durability(
            changes=state.changes,
            node=state.node,
            safety=state.safety,
            save_settings=save_settings,
            store=state.store,
        ),
        origins=origins,
        dead_letters=dead_letters,
        retry_copies=RetryCopies(
            clock=state.clock,
            dead_letters=dead_letters,
            group_configs=state.group_configs,
            node=state.node,
            locks=state.locks,
            observer=state.observer,
            origins=origins,
        ),
        half_queue=HalfQueue(
            changes=state.changes,
            clock=state.clock,
            facts=offsets.facts,
            node=state.node,
            observer=state.observer,
            offsets=state.offsets,
            stats=state.stats,
            store=state.store,
            topics=state.topics,
            transactions=state.transactions,
        ),
        resends=Resends(
            duplicate_copies=state.duplicate_copies,
            node=state.node,
            observer=state.observer,
            store=state.store,
        ),
    )


@dataclass(frozen=True, slots=True)
class PullServices:
    """What checks and answers pulls."""

    checks: PullChecks
    positions: PullPositions
    answers: PullAnswers


def pull_services(
    state: BrokerState, offsets: OffsetServices, membership: Membership, *, handed: Handed
) -> PullServices:
    """Those of one broker; `handed` as `PullAnswers` has it."""
    return PullServices(
        checks=PullChecks(
            filters=PullFilters(filters=state.filters, groups=state.groups, node=state.node),
            gate=state.gate,
            group_configs=state.group_configs,
            groups=state.groups,
            lives=state.lives,
            node=state.node,
            topics=state.topics,
        ),
        positions=PullPositions(
            clock=state.clock,
            membership=membership,
            new_lives=offsets.new_lives,
            offsets=state.offsets,
            readers=state.readers,
            remembered=offsets.remembered,
            reports=offsets.reports,
        ),
        answers=PullAnswers(
            cold_reads=state.cold_reads,
            handed=handed,
            node=state.node,
            observer=state.observer,
            readers=state.readers,
            remembered=offsets.remembered,
            stats=state.stats,
            store=state.store,
        ),
    )
