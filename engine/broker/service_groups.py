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
from engine.broker.state import BrokerState, assembled
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
    facts = assembled(OffsetFacts, state)
    remembered = assembled(RememberedOffsets, state, boot_ends=boot_ends)
    new_lives = assembled(NewLives, state, facts=facts)
    return OffsetServices(
        removals=assembled(Removals, state, has_offsets=state.offsets.has_any),
        facts=facts,
        remembered=remembered,
        reports=assembled(
            CommitReports, state, facts=facts, outage=state.outage_offsets, remembered=remembered
        ),
        new_lives=new_lives,
        queues=assembled(GroupQueues, state),
        starting_points=assembled(
            StartingPoints, state, new_lives=new_lives, remembered=remembered
        ),
        progress=assembled(Progress, state),
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
    left_topics = assembled(LeavingTopics, state, group_queues=offsets.queues, pairs=pairs)
    reuse = assembled(OffsetReuse, state)
    watermarks = assembled(
        Watermarks,
        state,
        config=state.node.config,
        marks=assembled(MarkReader, state),
        moved=assembled(MovedMarks, state),
        left_topics=left_topics,
        pairs=pairs,
        reuse=reuse,
    )
    emit_marks = watermarks.emit
    return Reporters(
        watermarks=watermarks,
        left_topics=left_topics,
        client_windows=assembled(
            ClientWindows,
            state,
            offsets,
            emit_marks=emit_marks,
            is_mark_emitted=watermarks.is_emitted,
        ),
        offset_answers=assembled(OffsetAnswers, state),
        boot_audit=assembled(BootAudit, state, offsets, emit_marks=emit_marks, reuse=reuse),
        retention_losses=assembled(
            RetentionLosses, state, emit_marks=emit_marks, has_left=left_topics.__contains__
        ),
        expired=assembled(ExpiredDeadLetters, state),
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
    origins = assembled(Origins, state)
    dead_letters = assembled(DeadLetterTopics, state)
    return SendServices(
        queues=assembled(TargetQueues, state, entropy=state.runtime.entropy),
        drafts=assembled(
            Drafts,
            state,
            delays=state.delay_levels,
            timers=assembled(Timers, state, wheel=state.time_wheel),
        ),
        placement=assembled(Placement, state),
        durability=assembled(Durability, state, save_settings=save_settings),
        origins=origins,
        dead_letters=dead_letters,
        retry_copies=assembled(RetryCopies, state, dead_letters=dead_letters, origins=origins),
        half_queue=assembled(HalfQueue, state, offsets),
        resends=assembled(Resends, state),
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
        checks=assembled(PullChecks, state, filters=assembled(PullFilters, state)),
        positions=assembled(PullPositions, state, offsets, membership=membership),
        answers=assembled(PullAnswers, state, offsets, handed=handed),
    )
