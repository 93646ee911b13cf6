"""Looks up stored messages by requested offset, and verifies that each is genuine.

Place in the walk: the gate judges what is found here, and the handler behind it works with what is
found here; both in one turn of the loop, so both see the same record.

A record of ours can be written into the body of a message, byte for byte, and an offset into that
body sent with a request. So bytes that look like a record prove nothing. What proves that a
message begins somewhere is the broker's own book-keeping: the unit of its consume queue, or, while
dispatch has not come to it, the table of open transactions.

Invariant: what is found here was put by this broker as a message of its own. Absent on purpose:
permissions (access_gate), messages whose queue unit retention or the deletion of their topic has
taken away: they are gone.
"""

from __future__ import annotations

from typing import Final

from engine.broker.transactions.transactions import Transactions, first_offset_of
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record
from engine.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    NO_MESSAGE_REMARK,
    TABLES_TOPIC,
    WAITING_TOPICS,
)
from engine.protocol.properties import PROPERTY_REAL_TOPIC
from engine.remoting.accounts import Demand, Permission, topic_demand
from engine.store import MessageStore
from engine.store.record_reading import is_of_topic

_TABLES: Final = TABLES_TOPIC.encode()

UNCOMMITTED_TOPICS = (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)
"""Where messages lie that their producers have not committed, or never did."""


def stored_record(
    store: MessageStore, transactions: Transactions, physical_offset: int
) -> bytes | None:
    """The record that begins at an offset somebody named; None when no message does, or one that is
    a group's own: its tables have secrets in them.
    """
    record = store.known_record_at(physical_offset)
    if record is not None:
        return None if is_of_topic(memoryview(record), 0, _TABLES) else record
    record = store.record_at(physical_offset)
    if record is None:
        return None
    message = decode_record(record)
    if message.topic != HALF_TOPIC:
        return None
    half = transactions.find(first_offset_of(message))
    return record if half is not None and half.physical_offset == physical_offset else None


def stored_message(
    store: MessageStore, transactions: Transactions, physical_offset: int
) -> MessageExt | None:
    """The message that begins at an offset somebody named; None when none does."""
    record = stored_record(store, transactions, physical_offset)
    return None if record is None else decode_record(record)


def is_named_by(message: MessageExt, named_id: str | None, physical_offset: int) -> bool:
    """Does a client mean this message, which stands at the offset that it named? In a store that
    stands where another was, the offset leads to what happens to be there now.

    A client names a message by its UNIQ_KEY; an old one by the broker's id, which is the offset.
    """
    if not named_id or message.uniq_key in (None, named_id):
        return True
    try:
        return parse_offset_message_id(named_id)[1] == physical_offset
    except RemoteProtocolError:
        return False


def no_message(physical_offset: int, of_rocketmq: str = "") -> RequestRefused:
    """The refusal of an offset that leads to no message; `of_rocketmq`: RocketMQ's words for it."""
    words = f"{NO_MESSAGE_REMARK} {physical_offset}, or it is gone"
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR, f"{of_rocketmq}: {words}" if of_rocketmq else words
    )


def demand_for(message: MessageExt, permission: Permission) -> Demand:
    """What one must be allowed to get at a stored message.

    REAL_TOPIC is believed only where the broker alone writes: elsewhere it is its sender's word.
    """
    if message.topic in UNCOMMITTED_TOPICS:
        permission = Permission.PUB
    if message.topic in (*WAITING_TOPICS, CHECK_MAX_TIME_TOPIC):
        return topic_demand(message.properties.get(PROPERTY_REAL_TOPIC, message.topic), permission)
    return topic_demand(message.topic, permission)
