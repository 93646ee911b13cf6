"""Where a put message came to lie: what `message_store.put` tells its caller."""

from __future__ import annotations

import msgspec


class PutResult(msgspec.Struct):
    """Where a message was stored."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_timestamp_ms: int
    end_offset: int
    """First byte behind the record: what `when_flushed` wants."""
