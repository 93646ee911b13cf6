"""Interface through which lower layers report facts without knowing who receives them.

Place in the walk: where a fact is decided (an offset stored, a pull answered, a file synced), the
deciding code calls one method here; `engine.telemetry.events` turns it into a row. Field
meanings: `engine.telemetry.tables`.

Invariant: an observer never raises, never waits and never changes what it receives. Absent on
purpose: rows, sequence numbers and common columns, which belong to the listener.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class OffsetReport:
    """A consume offset was reported for a queue. See table consume_offsets."""

    group: str
    topic: str
    queue_id: int
    offset: int
    previous_offset: int | None
    path: str
    trigger: str
    client_id: str | None
    accepted: bool
    min_offset: int | None
    max_offset: int | None
    held_back: int | None = None


@dataclass(slots=True)
class OwnedQueue:
    """A queue of a group with its offsets at one instant."""

    topic: str
    queue_id: int
    committed: int | None
    pulled: int | None


@dataclass(slots=True)
class RebalanceEvent:
    """A group's membership, subscription or ownership changed. See table rebalance_events."""

    group: str
    client_id: str | None
    kind: str
    inferred: bool
    generation: int
    strategy: str | None = None
    before: Sequence[str] | None = None
    after: Sequence[str] | None = None
    queues: Sequence[OwnedQueue] | None = None
    reason: str | None = None
    language: str | None = None
    client_version: int | None = None
    proxy: str | None = None
    subscription: Sequence[str] | None = None


@dataclass(slots=True)
class RetryStep:
    """A failed message took a step. See table retry_dlq_flow."""

    message_id: str | None
    origin_topic: str | None
    origin_queue_id: int | None
    origin_offset: int | None
    group: str
    reconsume_times: int
    step: str
    delay_ms: int | None
    reason: str | None


@dataclass(slots=True)
class Redelivery:
    """A pull started below what the group had pulled. See table redeliveries."""

    group: str
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    client_id: str | None
    previous_client_id: str | None
    broker_epoch_before: int
    delivered_count: int | None


@dataclass(slots=True)
class FlushDone:
    """One flush, commit or persist ended; the listener sums them. See table flush_checkpoints."""

    component: str
    action: str
    cause: str
    written: int | None
    flushed: int | None
    store_time_ms: int | None
    duration_us: int
    committed: int | None = None
    content_crc: int | None = None
    kernel_dirty: int | None = None
    kernel_writeback: int | None = None
    at_risk_bytes: int | None = None
    """The most that a crash could have cost since the one before: a SIGKILL before a commit, a
    power cut before a flush."""
    ended: int = 1
    """0: none has ended; it is reported how far the file is. Who watches from outside knows of one
    that has ended, not of how many, nor how long they took.
    """
    replica: str | None = None
    """Whose copy it is about; None: the broker's own."""
    due_by_hour: Sequence[int] | None = None
    """Messages that wait for a moment, by the hour in which they are due, this one first."""


@dataclass(slots=True)
class DelayLevel:
    """Where a delay level of a broker stands. See table delay_levels."""

    group: str
    level: int
    delay_ms: int
    next_offset: int
    end_offset: int
    overdue: int


@dataclass(slots=True)
class LifecycleEvent:
    """The process or a file of it changed state. See table lifecycle."""

    kind: str
    detail: str | None
    clean: bool | None = None
    truncated_from: int | None = None
    truncated_to: int | None = None
    term: int | None = None
    group: str | None = None
    topic: str | None = None
    queue_id_from: int | None = None
    seq_from: int | None = None
    time_from_ms: int | None = None
    step_ms: int | None = None
    observed_by: str | None = None
    report_each_ms: int | None = None
    skew_ms: int | None = None
    address: str | None = None
    name_servers: str | None = None
    first_seen: bool | None = None
    role: str | None = None


@dataclass(slots=True)
class QueueWatermark:
    """State of a queue on a grid second. See table queue_watermarks. Times in ms since 1970."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    flushed_offset: int | None
    replicated_offset: int | None
    last_store_time_ms: int | None
    readable: bool


@dataclass(slots=True)
class GroupWatermark:
    """State of a group on a queue. See table group_watermarks. Times in ms since 1970."""

    group: str
    topic: str
    queue_id: int
    pulled: int | None
    processed: int | None
    committed: int | None
    persisted: int | None
    committed_state: str
    store_time_at_committed_ms: int | None
    min_offset: int
    max_offset: int
    last_store_time_ms: int | None
    last_puller: str | None
    lock_holder: str | None
    last_pull_time_ms: int | None
    last_commit_time_ms: int | None
    reports: int
    message_model: str | None
    members: int | None
    store_time_error_ms: int | None = None
    """How far store_time_at_committed may be off; None: it is that of the very message."""
    members_unknown_reason: str | None = None
    """Why nobody knows the members, of whom some are connected elsewhere."""
    began: int | None = None
    """Of a queue without a consume offset: where the group began to read it, as far as is known."""


@dataclass(slots=True)
class PopWatermark:
    """A group that reads a queue by POP. See table pop_watermarks. Times in ms since 1970."""

    group: str
    topic: str
    queue_id: int
    popped: int | None
    max_offset: int
    unacknowledged: int | None
    unacknowledged_ranges: Sequence[tuple[int, int]] | None
    handed_out_since_ms: int | None
    invisible_ms: int | None
    acknowledged: int
    expired: int
    unknown_reason: str | None


@dataclass(slots=True)
class ClientWindow:
    """What a client holds of one queue. See table client_windows. Times in ms since 1970."""

    client_id: str
    group: str
    topic: str
    queue_id: int
    first_held: int | None
    last_held: int | None
    held_count: int
    held_bytes: int
    held_ranges: Sequence[tuple[int, int]] | None
    finished_count: int | None
    filtered_count: int | None
    head_message_id: str | None
    head_since_ms: int | None
    client_committed: int | None
    locked: bool
    dropped: bool
    last_pull_time_ms: int | None
    last_consume_time_ms: int | None
    stack: str | None = None
    attended: bool | None = None
    answered: bool | None = None
    top_key: str | None = None
    top_key_messages: int | None = None
    keyed_messages: int | None = None
    resting: str | None = None
    takes_all: bool | None = None


@dataclass(slots=True)
class ConsumeStats:
    """How a member works on a topic, as it says. See table consume_stats."""

    client_id: str
    group: str
    topic: str
    listeners: int | None
    listeners_busy: int | None
    listeners_queued: int | None
    paused: bool | None
    calls: int | None
    consume_us_mean: int | None
    consume_ms_p50: int | None
    consume_ms_p99: int | None
    consumed: int | None
    failed: int | None
    flow_count_ms: int | None
    flow_bytes_ms: int | None
    flow_span_ms: int | None
    queues_held: int
    topic_queues: int | None
    group_members: int | None


@dataclass(slots=True)
class ColdReads:
    """A group was given messages that lay far behind the end of the log. See table cold_reads."""

    group: str
    topic: str
    pulls: int
    messages: int
    size_bytes: int
    behind_bytes_max: int
    resident_bytes: int
    messages_a_pull_max: int
    disk_read_bytes: int | None = None


@dataclass(slots=True)
class OffsetAnswer:
    """A client was answered where its group is to go on. See table offset_answers."""

    client_id: str | None
    group: str
    topic: str
    queue_id: int
    told_offset: int | None
    committed: int | None
    pulled: int | None
    last_puller: str | None


@dataclass(slots=True)
class ReusedOffset:
    """A queue offset was given a second time. See table reused_offsets."""

    group: str
    topic: str
    queue_id: int
    offset: int
    queue_end: int
    message_id_before: str | None
    message_id: str | None
    client_id: str | None


@dataclass(slots=True)
class UnreadDeletion:
    """Messages were deleted that a group had not read. See table unread_deletions."""

    group: str
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    unread: int


@dataclass(frozen=True, slots=True)
class HandedTail:
    """The newest message of a queue that a group had pulled before it was on stable storage: no
    fact yet, but what the next life needs to report one.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str | None
    """Its UNIQ_KEY; None when its producer has set none."""
    group: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class EmittedUpTo:
    """How far reports to the listener have come: what comes next has this `seq` or a higher one,
    and so many losses came before it.
    """

    seq: int
    losses: int


Fact = (
    OffsetReport
    | RebalanceEvent
    | RetryStep
    | Redelivery
    | FlushDone
    | LifecycleEvent
    | QueueWatermark
    | GroupWatermark
    | ClientWindow
    | OffsetAnswer
    | ConsumeStats
    | ColdReads
    | ReusedOffset
    | UnreadDeletion
    | DelayLevel
    | PopWatermark
)


class Observer(Protocol):
    """Receives the facts of an engine."""

    def observe(self, fact: Fact) -> None:
        """Take note of `fact`; the listener stamps it with the time at which it is reported."""
        ...

    def observe_all(self, facts: Sequence[Fact]) -> None:
        """As `observe`, of facts of one kind that were read in the same step of the loop."""
        ...

    def pulled(
        self, group: str, topic: str, queue_id: int, pulled_offset: int, client_id: str | None
    ) -> None:
        """A pull answer moved a group's mark on a queue: `pulled_offset` is the next not pulled; 0
        when the queue's topic, or the group, was deleted: its mark is void.
        """
        ...

    def handed(self, tail: HandedTail) -> None:
        """A group has pulled a message that a power cut could still take."""
        ...

    def emitted_up_to(self) -> EmittedUpTo | None:
        """Where in its facts the listener is; None while it loses them, or numbers none. Equal
        `losses` at two times: no fact between them was lost."""
        ...


def committed_state(
    committed: int | None, minimum: int, maximum: int, *, readable: bool = True
) -> str:
    """What the message AT the consume offset is: EXACT (kept), AT_END (not there yet), PURGED (no
    longer there), NONE (no offset), UNREADABLE (kept where nobody may read). An offset beyond the
    end waits for messages as one at the end.
    """
    if committed is None:
        return "NONE"
    if committed >= maximum:
        return "AT_END"
    if committed < minimum:
        return "PURGED"
    return "EXACT" if readable else "UNREADABLE"


def report(
    observer: Observer, log: logging.Logger, event: LifecycleEvent, *, level: int = logging.WARNING
) -> None:
    """Report a change of state that an operator has to know: as a row, and as one line of the log
    that says the same.
    """
    log.log(level, "%s", event.detail)
    observer.observe(event)


class SilentObserver:
    """Nobody listens."""

    __slots__ = ()

    def observe(self, fact: Fact) -> None:
        """See `Observer.observe`."""

    def observe_all(self, facts: Sequence[Fact]) -> None:
        """See `Observer.observe_all`."""

    def pulled(
        self, group: str, topic: str, queue_id: int, pulled_offset: int, client_id: str | None
    ) -> None:
        """See `Observer.pulled`."""

    def handed(self, tail: HandedTail) -> None:
        """See `Observer.handed`."""

    def emitted_up_to(self) -> EmittedUpTo | None:
        """See `Observer.emitted_up_to`."""
        return None
