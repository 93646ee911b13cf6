"""Consume offsets as they are reported: which of them count, and what is told of each.

Place in the walk: `handlers/offset` and the piggyback of `handlers/pull` report what clients say;
resets, progress of transactions and what a boot finds are told from here as well.

Invariant: while a client holds a queue's order lock only its own reports move the offset: one that
lost the lock and does not know it yet is refused. When nobody holds it any more, one that held it
once takes no offset back. No report counts that lies beyond the end of its queue, whoever makes it,
or that its client remembers of what is gone (`remembered_offsets`); what a tool or a reset chooses
counts all the same. A refused report is a fact. Absent on purpose: judging a report otherwise. A
lower offset is stored, as RocketMQ does.
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts, client_id_of
from engine.broker.remembered_offsets import Client, why_report_is_void
from engine.broker.state.offsets import Commit
from engine.broker.state.readers import QueueKey
from engine.foundation.observing import OffsetReport
from engine.protocol.message import MessageQueue
from engine.remoting import Peer


def tell_commit(
    parts: BrokerParts,
    peer: Peer,
    key: QueueKey,
    offset: int,
    *,
    path: str,
    trigger: str,
    is_chosen: bool = False,
    pulled_from: int | None = None,
) -> str | None:
    """Store a reported offset and tell what it changed; why it was refused, or None. `is_chosen`:
    somebody wants the group to go on there, whatever it remembers. `pulled_from`: where the pull
    begins that carries the report.
    """
    group, topic, queue_id = key
    client_id = client_id_of(peer)
    refused = _why_beyond_the_end(parts, key, offset) or _why_fenced(parts, key, client_id)
    if refused is None and not is_chosen:
        client = Client(client_id, peer.address)
        refused = _why_late(parts, key, client_id, offset) or why_report_is_void(
            parts, key, offset, client, pulled_from=pulled_from
        )
    if refused is None:
        commit = parts.offsets.commit(group, topic, queue_id, offset, now_ms=parts.now_ms())
        if not commit.accepted:  # Odd, and RocketMQ's own: it is a success with a remark.
            refused = "Offset has been previously reset"
    else:
        commit = Commit(parts.offsets.committed(group, topic, queue_id), accepted=False)
    if commit.previous_offset != offset or not commit.accepted:
        tell_offset(
            parts,
            key,
            offset,
            commit.previous_offset,
            path=path,
            trigger=trigger,
            client_id=client_id,
            accepted=commit.accepted,
        )
    return refused


def tell_offset(
    parts: BrokerParts,
    key: QueueKey,
    offset: int,
    previous: int | None,
    *,
    path: str,
    trigger: str = "UNKNOWN",
    client_id: str | None = None,
    accepted: bool = True,
) -> None:
    """A group's offset of a queue was reported or set: one row. See table consume_offsets."""
    group, topic, queue_id = key
    parts.observer.observe(
        OffsetReport(
            group=group,
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            previous_offset=previous,
            path=path,
            trigger=trigger,
            client_id=client_id,
            accepted=accepted,
            min_offset=parts.store.min_offset(topic, queue_id),
            max_offset=parts.store.max_offset(topic, queue_id),
        )
    )


def _why_beyond_the_end(parts: BrokerParts, key: QueueKey, offset: int) -> str | None:
    """Why no report counts that names messages which the queue has not given anybody yet."""
    _, topic, queue_id = key
    end = parts.store.max_offset(topic, queue_id)
    if offset <= end:
        return None
    return (
        f"offset {offset} lies beyond the end of queue {queue_id} of {topic}, {end}: its messages "
        f"are not of the queue's present life; report {end} at most"
    )


def _why_fenced(parts: BrokerParts, key: QueueKey, client_id: str | None) -> str | None:
    """Why a report does not count, when it is of another client than the one that holds the queue's
    order lock.

    A connection that has sent no heartbeat yet is nobody's: its next report, after it, may count.
    """
    group, topic, queue_id = key
    queue = MessageQueue(topic, parts.config.broker_name, queue_id)
    holder = parts.locks.holder(group, queue, now_ms=parts.steady_ms())
    if holder is None or holder == client_id:
        return None
    return (
        f"client {holder} holds the order lock of queue {queue_id} of {topic}; the offset is its "
        f"own to report, not {client_id or 'an unknown client'}'s"
    )


def _why_late(parts: BrokerParts, key: QueueKey, client_id: str | None, offset: int) -> str | None:
    """Why a report does not count, when its client held the queue's order lock once and the offset
    is further: others went on from there, and may have gone since.
    """
    group, topic, queue_id = key
    queue = MessageQueue(topic, parts.config.broker_name, queue_id)
    committed = parts.offsets.committed(group, topic, queue_id)
    if client_id is None or committed is None or offset >= committed:
        return None
    holds = parts.locks.holder(group, queue, now_ms=parts.steady_ms()) == client_id
    if holds or not parts.locks.was_held_by(group, queue, client_id):
        return None
    return (
        f"client {client_id} held the order lock of queue {queue_id} of {topic} and does not now; "
        f"the offset stays at {committed} and does not go back to {offset}"
    )


def is_of_a_tool(
    parts: BrokerParts, peer: Peer, group: str, *, waits: bool, trigger: str | None
) -> bool:
    """Does a tool set an offset, and no consumer report its own? `waits`: for the answer.

    Tools wait for the answer, over a connection of which the group knows no member. Consumers of
    RocketMQ report one-way, in every language, and often before their first heartbeat after a
    restart of the broker; those of ours that wait say why they report.
    """
    if not waits or trigger is not None:
        return False
    members, client_id = parts.groups.of(group), client_id_of(peer)
    return members is None or client_id is None or client_id not in members.members
