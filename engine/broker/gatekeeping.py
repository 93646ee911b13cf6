"""The broker's gate: accounts from its configuration, topics of stored messages from its store.

Place in the walk: before every handler. A request that names a message by its place is judged by
the topic that message belongs to, also while it waits in a topic of the broker's own (delayed, half
of a transaction). What a producer has not committed is nobody's to read but its producers'. A pull
that waits is answered when the accounts change, with nothing (handlers/pull): its reader asks
again, and only who still may read gets what comes now. A client id belongs to the account whose
client is connected under it.

Invariant: an offset that leads to no message does not pass (stored_messages).
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts
from engine.broker.stored_messages import no_message, stored_message
from engine.protocol.message import MessageExt
from engine.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, WAITING_TOPICS
from engine.protocol.properties import PROPERTY_REAL_TOPIC
from engine.remoting.accounts import Demand, Permission, topic_demand
from engine.remoting.gate import Gate

UNCOMMITTED_TOPICS = (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)
"""Where messages lie that their producers have not committed, or never did."""


def gate_of(parts: BrokerParts) -> Gate:
    """Who may pass at this broker."""

    def demand_at(physical_offset: int, permission: Permission) -> Demand:
        message = stored_message(parts.store, parts.transactions, physical_offset)
        if message is None:
            raise no_message(physical_offset)
        return demand_for(message, permission)

    return parts.config.access.gate(demand_at, parts.client_ids.accounts)


def demand_for(message: MessageExt, permission: Permission) -> Demand:
    """What one must be allowed to get at a stored message.

    REAL_TOPIC is believed only where the broker alone writes: elsewhere it is its sender's word.
    """
    if message.topic in UNCOMMITTED_TOPICS:
        permission = Permission.PUB
    if message.topic in (*WAITING_TOPICS, CHECK_MAX_TIME_TOPIC):
        return topic_demand(message.properties.get(PROPERTY_REAL_TOPIC, message.topic), permission)
    return topic_demand(message.topic, permission)
