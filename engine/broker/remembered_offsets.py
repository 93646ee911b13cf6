"""Offsets that a client remembers of what is gone: of messages that a power cut took, of a topic
that was deleted and made again, of a store that stood where a new one is.

Place in the walk: `handlers/pull` asks before it reads, `reported_offsets` before it stores, and
`handlers/offset` when a group asks where to begin.

A client keeps offsets in memory and notices none of this. In a queue that begins anew they name
other messages: it would pass over all before them, acknowledged or not, and report them as
consumed. So an offset counts if the client can have it from the present life of the queue:

    it passes over nothing      at or below the first message, or what the group has committed
    the client was given it     it has pulled the queue in this life, or asked for this offset; of
                                a witness of the deletion only what it has pulled counts
    it has a store of its own   a consumer that polls and is no witness, within the queue

Any other client begins where its group is, or at the queue's first message. One that has sent no
heartbeat yet may be known by its name: where others of its group were as far, it waits until it
has. Of a life that began before the broker's last start only the last puller of each queue is
known: others that may remember another life, the readers of a topic made again and all clients of
a new store, go back to what their group has committed.

Invariant: what is not known makes a client begin too early, never too late. A topic that nobody can
remember from another life costs one look-up a pull. Absent on purpose: what a tool or a reset
chooses, which counts all the same; answers and facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.broker.parts import BrokerParts
from engine.broker.state.group_configs import SYSTEM_GROUPS
from engine.broker.state.groups import ConsumerGroup
from engine.broker.state.readers import QueueKey
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode

PUSH = "CONSUME_PASSIVELY"


class Store(Enum):
    """Where a client has the offset from which it begins to pull."""

    BROKER = "it asks the broker: a push consumer"
    BROKER_OR_USER = "it asks the broker, or seeks within what the broker said: a lite consumer"
    OWN = "it may have one of its own: any other"


@dataclass(slots=True)
class Client:
    """Who names an offset; made for each pull."""

    client_id: str | None
    """None: it has sent no heartbeat on this connection."""
    address: str
    store: Store = Store.BROKER

    @property
    def name(self) -> str:
        """By what it is remembered."""
        return self.client_id or self.address


def goes_back_to(
    parts: BrokerParts, key: QueueKey, offset: int, client: Client, *, shared: bool
) -> int | None:
    """Where a client has to begin that pulls from an offset which does not count; None when it
    does. `shared`: do the members of its group share the queues? Hot.

    Raises RequestRefused for a client that has to say first who it is.
    """
    group, topic, queue_id = key
    after_power_cut = _taken_by_a_power_cut(parts, key, offset) if shared else None
    if after_power_cut is not None:
        return after_power_cut
    lives = parts.lives
    if not lives.may_have_had_another(topic):
        return None
    first = parts.store.min_offset(topic, queue_id)
    committed = parts.offsets.told(group, topic, queue_id) if shared else None
    begin = first if committed is None else max(first, committed)
    if offset <= begin or _can_have(parts, key, offset, client):
        return None
    if client.client_id is None and offset <= _reached(parts, key):
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"offset {offset} of queue {queue_id} of {topic} may be of an earlier life of the "
            f"topic: {client.address} has sent no heartbeat; pull again after it",
        )
    lives.answered(client.address, topic, queue_id, begin)
    return begin


def note_pull(parts: BrokerParts, key: QueueKey, offset: int, client: Client) -> None:
    """A client pulls from an offset that counts: from now on it knows the queue's life. Hot."""
    group, topic, queue_id = key
    if parts.lives.may_have_had_another(topic):
        parts.readers.reached(key, client.name, offset)
        parts.lives.reads(topic, queue_id, group, client.client_id)


def note_answer(parts: BrokerParts, key: QueueKey, offset: int, address: str) -> None:
    """The client on this connection is given an offset of the queue's present life."""
    if parts.lives.may_have_had_another(key[1]):
        parts.lives.answered(address, *key[1:], offset)


def why_report_is_void(
    parts: BrokerParts, key: QueueKey, offset: int, client: Client, *, pulled_from: int | None
) -> str | None:
    """Why a report does not count that its client made of its own accord; None when it does.
    `pulled_from`: where the pull begins that carries it.
    """
    group, topic, queue_id = key
    if _taken_by_a_power_cut(parts, key, offset) is not None:
        return (
            f"offset {offset} counts messages of queue {queue_id} of {topic} that an unclean stop "
            "of the broker took; pull before you report"
        )
    if not parts.lives.may_have_had_another(topic):
        return None
    first = parts.store.min_offset(topic, queue_id)
    committed = parts.offsets.told(group, topic, queue_id)
    if offset <= max(first, committed or 0) or _can_report(
        parts, key, offset, client, pulled_from=pulled_from
    ):
        return None
    return (
        f"offset {offset} of queue {queue_id} of {topic} is none of the queue's present life, "
        f"which group {group} has pulled up to {_reached(parts, key)}: the topic was made again, "
        f"or the store is another; {client.name} has to pull before it reports"
    )


def holds_present_life(parts: BrokerParts, key: QueueKey, client: Client) -> bool:
    """Are the messages of the queue that a client says it holds those of its present life?"""
    group, topic, _ = key
    if not parts.lives.may_have_had_another(topic) or _knows(parts, key, client):
        return True
    members = parts.groups.of(group)
    shares = members is None or not members.broadcasting
    if shares and parts.lives.began_since_boot(topic):
        return False
    return not _is_witness(parts, key, client)


def beginning_of(parts: BrokerParts, key: QueueKey) -> int | None:
    """Where a group without an offset has to begin, whatever it would choose: at the first message
    of a topic made again whose earlier life it read; None for any other.
    """
    group, topic, queue_id = key
    if group in SYSTEM_GROUPS or not _was_read(parts, key):
        return None
    return parts.store.min_offset(topic, queue_id)


def _taken_by_a_power_cut(parts: BrokerParts, key: QueueKey, offset: int) -> int | None:
    """Where a group goes on whose client remembers an offset of messages that a power cut took;
    None for any other.

    Nobody of the group has pulled the queue since and gone on from there, so what lies between its
    end at boot and `offset` are other messages, which the client would pass over. So it is until
    somebody has done as told: clients of RocketMQ 4 do so after ten seconds, and report meanwhile.
    Where a tool has set an offset behind that end, it is those behind this offset. A group without
    any offset may be a new one that begins at the end.
    """
    if parts.boot_ends is None or parts.readers.has_pulled(key):
        return None
    group, topic, queue_id = key
    end = parts.boot_ends.get((topic, queue_id), 0)
    if offset <= end:
        return None
    committed = parts.offsets.told(group, topic, queue_id)
    return committed if committed is not None and committed < offset else None


def _can_have(parts: BrokerParts, key: QueueKey, offset: int, client: Client) -> bool:
    """Can the client have such an offset from the present life of the queue?"""
    _, topic, queue_id = key
    lives, store = parts.lives, client.store
    if _knows(parts, key, client):
        return True
    if _is_witness(parts, key, client):  # Who asks where a queue ends may only measure its lag.
        return False
    answers = lives.answers(client.address, topic, queue_id)
    if offset in answers or (store is Store.BROKER_OR_USER and offset <= max(answers, default=-1)):
        return True
    if offset > parts.store.max_offset(topic, queue_id):
        return False
    if lives.began_since_boot(topic):
        return store is Store.OWN
    return _is_trusted(parts, key) or (store is Store.OWN and not _was_read(parts, key))


def _can_report(
    parts: BrokerParts,
    key: QueueKey,
    offset: int,
    client: Client,
    *,
    pulled_from: int | None,
) -> bool:
    """Can the client have consumed the present life of the queue up to `offset`? One of RocketMQ's
    C++ clients reports the end of the earlier life whenever it holds no message of the next one.
    """
    _, topic, queue_id = key
    if pulled_from is not None and offset > pulled_from:
        return False
    if _knows(parts, key, client):
        answers = parts.lives.answers(client.address, topic, queue_id)
        return offset <= max((_reached(parts, key), *answers))
    return not parts.lives.began_since_boot(topic) and _is_trusted(parts, key)


def _reached(parts: BrokerParts, key: QueueKey) -> int:
    """How far anybody of the group has pulled the queue's present life."""
    reading = parts.readers.of(key)
    return 0 if reading is None else max(reading.pulled_offset or 0, reading.reached_offset)


def _knows(parts: BrokerParts, key: QueueKey, client: Client) -> bool:
    """Has the client pulled the queue in its present life?"""
    group, topic, queue_id = key
    reading = parts.readers.of(key)
    known_by = (*parts.lives.known_by(key), *(() if reading is None else reading.known_by))
    if client.name in known_by or client.address in known_by:
        return True
    return parts.lives.has_read(topic, queue_id, group, client.client_id)


def _is_witness(parts: BrokerParts, key: QueueKey, client: Client) -> bool:
    group, topic, _ = key
    return parts.lives.is_witness(topic, group, client.client_id)


def _is_trusted(parts: BrokerParts, key: QueueKey) -> bool:
    """Is a client of the group believed in a life that began before the broker's last start, whose
    last puller it was not?
    """
    return not parts.lives.is_of_a_new_store and not _was_read(parts, key)


def _was_read(parts: BrokerParts, key: QueueKey) -> bool:
    """Did the group read an earlier life of the topic, as far as that is known?"""
    group, topic, _ = key
    tombstone = parts.store.tombstones.of(topic)
    return tombstone is not None and tombstone.was_read_by(group)


def pull_store(group: ConsumerGroup | None, *, is_lite: bool, suspends: bool) -> Store:
    """Where a pull's offset comes from, as its kind and its group show. One that comes before the
    first heartbeat is a push consumer's if it may be held.
    """
    if is_lite:
        return Store.BROKER_OR_USER
    if group is None:
        return Store.BROKER if suspends else Store.OWN
    return Store.BROKER if group.consume_type == PUSH and not group.broadcasting else Store.OWN
