"""Finds the original queue and offset of a message that failed.

Place in the walk: each step of a failed message (`retry_dlq_flow`) names the place, so that "sent
back and delivered again" is a duplicate of a message that stands somewhere.

A copy keeps the broker's id of the first record (ORIGIN_MESSAGE_ID) over all tries: it leads to the
record, whose topic and UNIQ_KEY prove that it is the one. Invariant: a place is named only if
the message stands there now, in the present life of its topic. Absent on purpose: the key index. A
copy that its consumer sent by itself names the first message by its UNIQ_KEY; looking that up costs
a search of files, in a step of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.broker.transactions.stored_messages import stored_message, stored_record
from engine.broker.transactions.transactions import Transactions
from engine.foundation.errors import CorruptRecord, RemoteProtocolError
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record
from engine.protocol.properties import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQ_KEY,
)
from engine.store import MessageStore


class Origin(NamedTuple):
    """A place in the topic of origin; None: not known here."""

    queue_id: int | None
    queue_offset: int | None


UNKNOWN = Origin(None, None)


class Origins:
    """Finds where failed messages stood first."""

    def __init__(
        self,
        *,
        store: MessageStore,
        transactions: Transactions,
    ) -> None:
        self._store = store
        self._transactions = transactions

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """The message that begins at an offset somebody named; None when none does."""
        return stored_message(self._store, self._transactions, physical_offset)

    def origin_of(self, properties: Mapping[str, str]) -> Origin:
        """Where the message was first whose copy has these properties."""
        try:
            _, physical_offset = parse_offset_message_id(
                properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")
            )
            record = stored_record(self._store, self._transactions, physical_offset)
            if record is None:
                return UNKNOWN
            message = decode_record(record, check_crc=False, read_body=False)
        except (RemoteProtocolError, CorruptRecord):
            return UNKNOWN
        uniq_key = properties.get(PROPERTY_UNIQ_KEY)
        is_named = uniq_key is not None and message.uniq_key == uniq_key
        if not is_named or message.topic != properties.get(PROPERTY_RETRY_TOPIC):
            return UNKNOWN
        return Origin(message.queue_id, message.queue_offset)
