"""The broker's gate: accounts from its configuration, topics of stored messages from its store.

Place in the walk: before every handler. A request that names a message by its place is judged by
the topic that message belongs to, also while it waits in a topic of the broker's own (delayed,
half of a transaction). A pull that waits is answered when the accounts change: its reader asks
again, and only who still may read gets what comes now.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.broker.config import BrokerConfig
from engine.broker.long_poll import HeldPulls
from engine.protocol.message_record import decode_record
from engine.protocol.names import is_system_topic
from engine.protocol.properties import PROPERTY_REAL_TOPIC
from engine.remoting.gate import Gate


def gate_of(
    config: BrokerConfig, record_at: Callable[[int], bytes | None], holds: HeldPulls
) -> Gate:
    """Who may pass; `record_at` reads the record that begins at a physical offset."""

    def topic_at(physical_offset: int) -> str | None:
        record = record_at(physical_offset)
        if record is None:
            return None
        message = decode_record(record)
        if is_system_topic(message.topic):
            return message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
        return message.topic

    def let_go() -> None:
        for pull in holds.take_all():
            pull.resume()

    gate = config.access.gate(topic_at)
    gate.on_change = let_go
    return gate
