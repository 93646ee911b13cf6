"""A stored message as a draft again, for another place in the log.

Place in the walk: whatever moves a message puts a new record of it: its delay is over, its consumer
failed on it, its transaction was asked about or has ended. Pure.

Invariant: body, flags, birth, hosts and tries are those of the message; who changes one of them
says so where the draft is made. Absent on purpose: what makes a copy part of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as struct_error

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import NAMES_REMEMBERED_MAX
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import join_host
from engine.protocol.properties import encode_properties
from engine.store.draft_record import MessageDraft
from engine.store.record import BORN_HOST_V6, HEADS, STORE_HOST_V6, check_lengths, properties_of

_SYS_FLAG = Struct(">36xi")
_PORT = Struct(">i")


def redraft(
    message: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
) -> MessageDraft:
    """The draft of a further record of `message`."""
    return MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=encode_properties(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
    )


def draft_of(record: memoryview) -> MessageDraft:
    """The draft of a further record, under the same topic and queue, of one whose bytes are still
    in its log: without reading its properties, and without copying its body. Hot.

    Raises CorruptRecord when its lengths do not add up; nothing else is checked.
    """
    try:
        (sys_flag,) = _SYS_FLAG.unpack_from(record)
        head = HEADS[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
        (
            _,
            _,
            _,
            queue_id,
            flag,
            _,
            place,
            _,
            born_ms,
            born,
            _,
            stored,
            times,
            prepared,
            length,
        ) = head.unpack_from(record)
    except struct_error as error:
        raise CorruptRecord(f"{len(record)} bytes are no record") from error
    topic_at = check_lengths(record, head.size, length, place)
    properties = properties_of(record)
    return MessageDraft(
        topic=bytes(record[topic_at : len(record) - 2 - len(properties)]).decode(
            "utf-8", "replace"
        ),
        queue_id=queue_id,
        body=record[head.size : head.size + length],
        properties=properties,
        born_timestamp_ms=born_ms,
        born_host=_host(born),
        store_host=_host(stored),
        flag=flag,
        sys_flag=sys_flag,
        reconsume_times=times,
        prepared_transaction_offset=prepared,
    )


@lru_cache(NAMES_REMEMBERED_MAX)
def _host(packed: bytes) -> str:
    return join_host(packed[:-4], _PORT.unpack(packed[-4:])[0])
