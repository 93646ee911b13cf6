"""Messages as a pull brings them, made from the few values a test is about."""

from __future__ import annotations

from engine.protocol.message import MessageExt


def message_at(
    offset: int,
    size: int = 1,
    *,
    topic: str = "T",
    queue_id: int = 0,
    properties: dict[str, str] | None = None,
    reconsume_times: int = 0,
) -> MessageExt:
    """A message of `size` body bytes at a queue offset."""
    return MessageExt(
        topic=topic,
        body=b"x" * size,
        properties=properties or {},
        flag=0,
        queue_id=queue_id,
        queue_offset=offset,
        physical_offset=offset * 1000,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host="127.0.0.1:1",
        store_timestamp_ms=2,
        store_host="127.0.0.1:10911",
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size_bytes=100 + size,
    )
