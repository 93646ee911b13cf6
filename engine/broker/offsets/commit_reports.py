"""Decides whether to accept each reported consume offset, and emits the resulting facts.

Place in the walk: `handlers/offset` and the piggyback of `handlers/pull` report what clients say;
resets, progress of transactions and what a boot finds are reported from here as well.

Invariant: while a client holds a queue's order lock only its own reports move the offset: one that
lost the lock and does not know it yet is refused. When nobody holds it any more, one that held it
once takes no offset back. A report counts from nobody when it lies beyond the end of its queue, or
when its client remembers it of what is gone (`offsets/remembered_offsets`); what a tool or a reset
chooses counts all the same. A refused report is a fact, now and then when it is made again and
again (`offsets/offset_facts`). Absent on purpose: judging a report otherwise. A lower offset is
stored, as RocketMQ does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import client_id_of
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import Commit, ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts, RefusedReports
from engine.broker.offsets.outage_offsets import OutageOffsets
from engine.broker.offsets.remembered_offsets import Client, RememberedOffsets
from engine.broker.offsets.topic_lives import TopicLives
from engine.protocol.message import MessageQueue
from engine.remoting import Peer
from engine.runtime.clock import Clock
from engine.store import MessageStore


@dataclass(slots=True, kw_only=True, eq=False)
class CommitReports:
    """Judges the offsets that clients report, and stores those that count."""

    clock: Clock
    facts: OffsetFacts
    groups: ConsumerGroups
    node: BrokerNode
    lives: TopicLives
    locks: QueueLocks
    offsets: ConsumerOffsets
    outage: OutageOffsets
    remembered: RememberedOffsets
    store: MessageStore
    _refused_reports: RefusedReports = field(default_factory=RefusedReports, init=False)

    def commit(
        self,
        peer: Peer,
        key: QueueKey,
        offset: int,
        *,
        path: str,
        trigger: str,
        is_chosen: bool = False,
        pulled_from: int | None = None,
    ) -> str | None:
        """Store a reported offset and report what it changed; why it was refused, or None.
        `is_chosen`: somebody wants the group to go on there, whatever it remembers. `pulled_from`:
        where the pull begins that carries the report.
        """
        group, topic, queue_id = key
        client_id = client_id_of(peer)
        refused = self._why_beyond_the_end(key, offset) or self._why_fenced(key, client_id)
        if refused is None and not is_chosen:
            client = Client(client_id, peer.address)
            refused = self._why_late(key, client_id, offset) or self.remembered.why_report_is_void(
                key, offset, client, pulled_from=pulled_from
            )
        if refused is None:
            commit = self.offsets.commit(group, topic, queue_id, offset, now_ms=self.clock.now_ms())
            if commit.accepted and not self.node.is_master:
                self.outage.note(key, offset, steady_ms=self.clock.steady_ms())
            if not commit.accepted:  # Odd, and RocketMQ's own: it is a success with a remark.
                refused = "Offset has been previously reset"
        else:
            commit = Commit(self.offsets.committed(group, topic, queue_id), accepted=False)
        held_back = None if commit.accepted else self._held_back(peer, key, offset)
        if held_back is not None or (commit.accepted and commit.previous_offset != offset):
            self.facts.emit(
                key,
                offset,
                commit.previous_offset,
                path=path,
                trigger=trigger,
                client_id=client_id,
                accepted=commit.accepted,
                held_back=held_back,
            )
        return refused

    def _held_back(self, peer: Peer, key: QueueKey, offset: int) -> int | None:
        """How often this refused report was made since its last row; None when it has none now."""
        client = client_id_of(peer) or peer.address
        report = (key, self.lives.number(key[1]), client, offset)
        return self._refused_reports.take(report, now_ms=self.clock.steady_ms())

    def _why_beyond_the_end(self, key: QueueKey, offset: int) -> str | None:
        """Why no report counts that names messages which the queue has not given anybody yet."""
        _, topic, queue_id = key
        end = self.store.max_offset(topic, queue_id)
        if offset <= end:
            return None
        return (
            f"offset {offset} lies beyond the end of queue {queue_id} of {topic}, {end}: its "
            f"messages are not of the queue's present life; report {end} at most"
        )

    def _why_fenced(self, key: QueueKey, client_id: str | None) -> str | None:
        """Why a report does not count, when it is of another client than the one that holds the
        queue's order lock.

        A connection that has sent no heartbeat yet is nobody's: its next report, after it, may
        count.
        """
        group, topic, queue_id = key
        queue = MessageQueue(topic, self.node.config.broker_name, queue_id)
        holder = self.locks.holder(group, queue, now_ms=self.clock.steady_ms())
        if holder is None or holder == client_id:
            return None
        return (
            f"client {holder} holds the order lock of queue {queue_id} of {topic}; the offset is "
            f"its own to report, not {client_id or 'an unknown client'}'s"
        )

    def _why_late(self, key: QueueKey, client_id: str | None, offset: int) -> str | None:
        """Why a report does not count, when its client held the queue's order lock once and the
        offset is further: others went on from there, and may have gone since.
        """
        group, topic, queue_id = key
        queue = MessageQueue(topic, self.node.config.broker_name, queue_id)
        committed = self.offsets.committed(group, topic, queue_id)
        if client_id is None or committed is None or offset >= committed:
            return None
        holds = self.locks.holder(group, queue, now_ms=self.clock.steady_ms()) == client_id
        if holds or not self.locks.was_held_by(group, queue, client_id):
            return None
        return (
            f"client {client_id} held the order lock of queue {queue_id} of {topic} and does not "
            f"now; the offset stays at {committed} and does not go back to {offset}"
        )

    def is_of_a_tool(self, peer: Peer, key: QueueKey, offset: int) -> bool:
        """Does a tool set an offset that waits for the answer and does not say why it reports?

        Tools do so over a connection of which the group knows no member. Consumers of RocketMQ
        report one-way, in every language, and often before their first heartbeat after a restart of
        the broker; those of ours that wait say why they report. A consumer of another make may
        wait, and shows by its pulls that it is none (`may_set`).
        """
        members, client_id = self.groups.of(key[0]), client_id_of(peer)
        if client_id is None:
            return self.remembered.may_set(key, offset, peer.address)
        return members is None or client_id not in members.members
