"""Reads queue and group watermarks as of a single instant.

Place in the walk: `watermarks` asks here for what it emits.

Invariant: all columns of a mark are read in one step of the loop; what several marks of a step have
in common is read once. Absent on purpose: which marks are emitted, and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from engine.broker.groups.consumer_groups import BROADCASTING, ConsumerGroups
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, Reported
from engine.broker.reporting.offset_reuse import UnsyncedReads
from engine.broker.topics.topics import Topics
from engine.foundation.limits import BROADCASTING_GROUPS_MAX
from engine.foundation.observing import GroupWatermark, committed_state
from engine.protocol.names import PERM_READ
from engine.store import MessageStore
from engine.store.queue_table import QueueMarks


@dataclass(slots=True)
class QueueRead:
    """What one step of the loop has read of a queue, for all groups on it."""

    marks: QueueMarks
    is_readable: bool
    at: dict[int | None, tuple[str, int | None]]
    """The message at each requested offset: what it is, and when it was stored (ms)."""


NO_MESSAGES: Final = QueueMarks(0, 0, 0, None, None)

GroupRead = tuple[str | None, int, bool]
"""(message model, members, may it have leases?)"""


@dataclass(slots=True)
class Reads:
    """What one step of the loop has read, for all of its rows that need it."""

    queues: dict[tuple[str, int], QueueRead] = field(default_factory=dict)
    groups: dict[str, GroupRead] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class MarkReader:
    """Reads the marks of one broker."""

    node: BrokerNode
    store: MessageStore
    topics: Topics
    groups: ConsumerGroups
    locks: QueueLocks
    offsets: ConsumerOffsets
    readers: Readers
    unsynced: UnsyncedReads
    _broadcasting: dict[str, None] = field(default_factory=dict, init=False)
    """Groups whose members broadcast, or did when the last of them left."""

    @property
    def has_replicas(self) -> bool:
        """Has a slave reported what it has?"""
        return self.store.replicated_end is not None

    def of_queue(self, topic: str, queue_id: int) -> tuple[QueueMarks, bool] | None:
        """The marks of a queue, and may anybody pull from it? None when there is no such queue."""
        marks = self.store.marks_of(topic, queue_id)
        return None if marks is None else (marks, self._is_readable(topic, queue_id))

    def is_waited_for(self, key: QueueKey, pulled: int | None) -> bool:
        """Are there messages on the queue that the group, which pulled so far, has not consumed?"""
        return are_waiting(self.offsets.committed(*key), pulled, self.store.max_offset(*key[1:]))

    def forget_group(self, group: str) -> None:
        """The group was deleted."""
        self._broadcasting.pop(group, None)

    def _is_readable(self, topic: str, queue_id: int) -> bool:
        """May anybody pull from it? Not beyond readQueueNums, nor without read permission."""
        config = self.topics.find(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and bool(config.perm & PERM_READ)
        )

    def _read(self, topic: str, queue_id: int) -> QueueRead:
        marks = self.store.marks_of(topic, queue_id)
        return QueueRead(marks or NO_MESSAGES, self._is_readable(topic, queue_id), {})

    def _read_group(self, group: str) -> GroupRead:
        members, may_have_leases = self.groups.of(group), self.locks.may_have(group)
        if members is None:
            return BROADCASTING if group in self._broadcasting else None, 0, may_have_leases
        self._note_model(group, is_broadcasting=members.broadcasting)
        return members.message_model, len(members.members), may_have_leases

    def _note_model(self, group: str, *, is_broadcasting: bool) -> None:
        """A group whose members have left stays what it was: its offsets are with them."""
        if not is_broadcasting:
            self._broadcasting.pop(group, None)
        elif len(self._broadcasting) < BROADCASTING_GROUPS_MAX:
            self._broadcasting[group] = None

    def of_group(
        self, key: QueueKey, now_ms: int, reads: Reads
    ) -> tuple[GroupWatermark | None, Reported | None]:
        """The marks of one group on one queue, with the reports since they were reported, and those
        reports; no marks when the group never pulled it and has no offset for it. Hot.
        """
        group, topic, queue_id = key
        committed, persisted, reported = self.offsets.standing(key)
        reading = self.readers.of(key)
        if committed is None and reading is None:
            return None, reported
        read = reads.queues.get((topic, queue_id))
        if read is None:
            read = reads.queues[topic, queue_id] = self._read(topic, queue_id)
        of_group = reads.groups.get(group)
        if of_group is None:
            of_group = reads.groups[group] = self._read_group(group)
        message_model, members, may_have_leases = of_group
        minimum, maximum, flushed, _, last_store_time_ms = read.marks
        pulled = processed = last_puller = last_pull_ms = None
        if reading is not None:
            pulled, processed = reading.pulled_offset, reading.processed_offset
            last_puller, last_pull_ms = reading.last_puller, reading.last_pull_ms
            if pulled is not None and pulled > flushed:
                self.unsynced.pulled(key, pulled, reading.pulled_by)
        holder = None
        if may_have_leases:
            holder = self.locks.holder_of(key, self.node.config.broker_name, now_ms=now_ms)
        at = read.at.get(committed)  # Groups that keep pace are at the same message.
        if at is None:
            at = read.at[committed] = self._message_at(topic, queue_id, committed, read)
        state, store_time_ms = at
        began = None
        if committed is None and reading is not None and reading.began_offset is not None:
            began = reading.began_offset
            store_time_ms = self._store_time_from(topic, queue_id, began, read.marks)
        mark = GroupWatermark(  # By position: names cost a microsecond more.
            group,
            topic,
            queue_id,
            pulled,
            processed,
            committed,
            persisted,
            state,
            store_time_ms,
            minimum,
            maximum,
            last_store_time_ms,
            last_puller,
            holder,
            last_pull_ms,
            None if reported is None else reported.last_commit_ms,
            0 if reported is None else reported.count,
            message_model,
            members,
            None,
            None,
            began,
        )
        return mark, reported

    def _store_time_from(
        self, topic: str, queue_id: int, began: int, marks: QueueMarks
    ) -> int | None:
        """When the first message was stored (ms) that a group without an offset has to read."""
        first = max(began, marks.min_offset)
        if first >= marks.max_offset:
            return None
        return self.store.store_time_at(topic, queue_id, first)

    def _message_at(
        self, topic: str, queue_id: int, committed: int | None, read: QueueRead
    ) -> tuple[str, int | None]:
        """State of the message at a consume offset (`committed_state`), and its store time."""
        marks = read.marks
        state = committed_state(
            committed, marks.min_offset, marks.max_offset, readable=read.is_readable
        )
        if committed is None or state not in {"EXACT", "UNREADABLE"}:
            return state, None
        store_time_ms = self.store.store_time_at(topic, queue_id, committed)
        if store_time_ms is None:  # Its bytes went between the two looks: retention was faster.
            return "PURGED", None
        return state, store_time_ms


def are_waiting(committed: int | None, pulled: int | None, maximum: int) -> bool:
    """Are there messages that the group has not consumed? One without an offset has consumed what
    it has pulled, for all that is known here.
    """
    reached = pulled if committed is None else committed
    return reached is None or reached < maximum
