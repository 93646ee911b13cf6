"""Finding messages: by key, by unique key, by offset message id.

Place in the walk: beside it; tools and the dashboard look single messages up here.

Invariant: an answer holds whole records of the topic asked for, at most `defaultQueryMaxNum` of
them. The index knows hashes only: whoever asked compares the keys. Absent on purpose: searching by
content.
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts
from engine.broker.stored_messages import no_message, stored_record
from engine.foundation.units import MIB
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from engine.protocol.message_record import decode_record
from engine.remoting import Handler, Peer

ANSWER_BYTES_MAX = 4 * MIB


class QueryHandlers:
    """Looks messages up."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset,
        }

    def by_key(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_MESSAGE (12): by one of KEYS, or by UNIQ_KEY."""
        asked, store = QueryMessageRequestHeader.decode(request.fields), self._parts.store
        limit = self._parts.config.default_query_max_count
        found = store.query_by_key(
            asked.topic,
            asked.key,
            max_count=limit,
            begin_ms=asked.begin_timestamp_ms,
            end_ms=asked.end_timestamp_ms,
        )
        wanted = limit if asked.unique_key_query else max(1, min(asked.max_num, limit))
        records: list[bytes] = []
        size_bytes = 0
        for physical_offset in reversed(found.physical_offsets):  # The newest are wanted.
            record = store.record_at(physical_offset)
            # Hashes collide, also on purpose: another topic's message is none of the asker's.
            if record is None or decode_record(record).topic != asked.topic:
                continue
            if len(records) < wanted and size_bytes + len(record) <= ANSWER_BYTES_MAX:
                records.append(record)
                size_bytes += len(record)
        records.reverse()
        header = QueryMessageResponseHeader(
            index_last_update_timestamp_ms=found.index_last_update_timestamp_ms,
            index_last_update_physical_offset=found.index_last_update_physical_offset,
        ).encode()
        if not records:
            return request.respond(
                ResponseCode.QUERY_NOT_FOUND,
                f"can not find message, maybe time range not correct: topic {asked.topic}, "
                f"key {asked.key}",
                header,
            )
        return request.respond(ResponseCode.SUCCESS, fields=header, body=b"".join(records))

    def by_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID (33): the record at a physical offset of this broker."""
        physical_offset = ViewMessageRequestHeader.decode(request.fields).offset
        parts = self._parts
        record = stored_record(parts.store, parts.transactions, physical_offset)
        if record is None:
            raise no_message(
                physical_offset, f"can not find message by the offset, {physical_offset}"
            )
        return request.respond(ResponseCode.SUCCESS, body=record)
