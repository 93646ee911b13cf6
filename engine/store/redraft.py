"""A stored message as a draft again, for another place in the log.

Place in the walk: whatever moves a message puts a new record of it: its delay is over, its consumer
failed on it, its transaction was asked about or has ended. Pure.

Invariant: body, flags, birth, hosts and tries are those of the message; who changes one of them
says so where the draft is made. Absent on purpose: what makes a copy part of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.protocol.message import MessageExt
from engine.protocol.properties import encode_properties
from engine.store.draft_record import MessageDraft


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
