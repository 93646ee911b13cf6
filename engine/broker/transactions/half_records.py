"""Pure functions that build a transaction's log records in RocketMQ 5.5's formats.

Place in the walk: made here, put by `half_queue`.

    half     RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with its real topic and queue in properties
    commit   the real topic, sysFlag 0x8, prepared offset = physical offset of the half message
    op       RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag d: a list of ended half queue offsets
    given up TRANS_CHECK_MAX_TIME_TOPIC, queue 0

Invariant: body, flag, compression bits, hosts and birth of a message are the same in all of them.
Absent on purpose: what is open (transactions/transactions), the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.broker.transactions.transactions import encode_op_body, first_offset_of
from engine.delay.waiting_messages import real_place
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.copy_room import fits_with_copies, without_room
from engine.protocol.message import MessageExt
from engine.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_BITS,
    SysFlag,
)
from engine.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRACE_ON,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_FIRST_OFFSET,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    decode_properties,
    encode_properties,
)
from engine.store import MessageDraft
from engine.store.record_writing import redraft

QUEUE_ID = 0
"""Of all queues of transactions; RocketMQ uses no other."""
OP_TAG = "d"
OWN_OF_A_HALF = (
    *(PROPERTY_CLUSTER, PROPERTY_MSG_REGION, PROPERTY_TRACE_ON),
    *(PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_TRANSACTION_ID),
)
"""Properties that a half message has from its broker."""


def make_half(draft: MessageDraft) -> dict[str, str]:
    """Turn an ordinary draft into a half message's; return its properties.

    Raises RequestRefused when they are too long.
    """
    text = draft.properties.decode() if isinstance(draft.properties, bytes) else draft.properties
    properties = decode_properties(text)
    properties.pop(PROPERTY_TRANSACTION_FIRST_OFFSET, None)  # The broker's own: a client that set
    properties.pop(PROPERTY_TRANSACTION_CHECK_TIMES, None)  # them would name another's.
    if PROPERTY_UNIQ_KEY in properties:
        properties[PROPERTY_TRANSACTION_ID] = properties[PROPERTY_UNIQ_KEY]
    properties[PROPERTY_REAL_TOPIC] = draft.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(draft.queue_id)
    draft.properties = encode_properties(properties)
    length = len(draft.properties.encode())
    if not fits_with_copies(length, properties):
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the half message is illegal: {without_room(length, properties, OWN_OF_A_HALF)}",
        )
    draft.topic, draft.queue_id = HALF_TOPIC, QUEUE_ID
    draft.sys_flag &= ~TRANSACTION_BITS  # So that it gets a place in the half queue.
    return properties


def further_properties(half: MessageExt, check_times: int) -> dict[str, str]:
    """Properties of the next copy of a half message: who it is, how often it was asked about."""
    properties = {**half.properties, PROPERTY_TRANSACTION_FIRST_OFFSET: str(first_offset_of(half))}
    if check_times:
        properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(check_times)
    return properties


def properties_of(half: MessageExt) -> dict[str, str]:
    """Properties of a half message as others see them: without the name of its transaction, which
    RocketMQ 5.5.0 writes only when it puts one again whose producer has asked for time.
    """
    properties = dict(half.properties)
    properties.pop(PROPERTY_TRANSACTION_FIRST_OFFSET, None)
    return properties


def further_copy(half: MessageExt, properties: dict[str, str]) -> MessageDraft:
    """The next copy of a half message."""
    return _copy(half, HALF_TOPIC, QUEUE_ID, properties)


def committed_message(half: MessageExt) -> MessageDraft:
    """The message under its real name. Raises RequestRefused when it has none."""
    place = real_place(half)
    if place is None:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"half message {half.message_id} names no real topic"
        )
    properties = properties_of(half)  # As in RocketMQ 5.5.0, TRAN_MSG, PGROUP and the count of
    del properties[PROPERTY_REAL_TOPIC]  # questions stay, the real place goes.
    del properties[PROPERTY_REAL_QUEUE_ID]
    draft = _copy(half, *place, properties)
    draft.sys_flag |= SysFlag.TRANSACTION_COMMIT
    draft.prepared_transaction_offset = half.physical_offset
    return draft


def given_up(half: MessageExt) -> MessageDraft:
    """The record of a transaction that is rolled back for its producer."""
    return _copy(half, CHECK_MAX_TIME_TOPIC, QUEUE_ID, properties_of(half))


def begun_anew(record: MessageExt) -> MessageDraft:
    """The ordinary draft that a given-up transaction once was. Raises RequestRefused for another
    record.
    """
    place = real_place(record)
    if place is None or record.topic != CHECK_MAX_TIME_TOPIC:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"Put message back to {HALF_TOPIC} failed: {record.message_id} is of topic "
            f"{record.topic}, not of {CHECK_MAX_TIME_TOPIC}",
        )
    return _copy(record, *place, record.properties)


def op_message(half_offsets: Sequence[int], *, now_ms: int, address: str) -> MessageDraft:
    """The list of ended half messages."""
    return MessageDraft(
        topic=OP_HALF_TOPIC,
        queue_id=QUEUE_ID,
        body=encode_op_body(half_offsets),
        properties=encode_properties({PROPERTY_WAIT: "true", PROPERTY_TAGS: OP_TAG}),
        born_timestamp_ms=now_ms,
        born_host=address,
        store_host=address,
    )


def _copy(
    message: MessageExt, topic: str, queue_id: int, properties: dict[str, str]
) -> MessageDraft:
    draft = redraft(message, topic, queue_id, properties)
    draft.sys_flag &= ~TRANSACTION_BITS
    return draft
