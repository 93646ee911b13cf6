"""Handles message queries by key, unique key or offset message id.

Place in the walk: beside it; tools and the dashboard look single messages up here.

Invariant: an answer holds whole records of the topic asked for, the newest ones: by unique key at
most `defaultQueryMaxNum`, by key as many as were asked for and at most `maxMsgsNumBatch`, as
RocketMQ has it. An answer that was cut says so. The index knows hashes only: the requester compares
the keys. Absent on purpose: searching by content.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.transactions.stored_messages import no_message, stored_record
from engine.broker.transactions.transactions import Transactions
from engine.foundation.units import MIB
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from engine.protocol.message_record import decode_record
from engine.remoting import Handlers, Peer, serves
from engine.store import MessageStore

ANSWER_BYTES_MAX = 4 * MIB
LOOKED_AT_BYTES_MAX = 4 * ANSWER_BYTES_MAX
"""Of records that one question reads: keys of other topics may have the same hash, even on
purpose.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class QueryHandlers(Handlers):
    """Looks messages up."""

    node: BrokerNode
    store: MessageStore
    transactions: Transactions

    @serves(RequestCode.QUERY_MESSAGE)
    def by_key(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_MESSAGE (12): by one of KEYS, or by UNIQ_KEY."""
        asked, store = QueryMessageRequestHeader.decode(request.fields), self.store
        config = self.node.config
        wanted = config.default_query_max_count
        if not asked.unique_key_query:
            wanted = max(1, min(asked.max_num, config.query_max_count))
        looked_at = max(wanted, config.query_max_count) + 1  # One more shows that there is more.
        found = store.query_by_key(
            asked.topic,
            asked.key,
            max_count=looked_at,
            begin_ms=asked.begin_timestamp_ms,
            end_ms=asked.end_timestamp_ms,
        )
        is_cut = len(found.physical_offsets) == looked_at
        records: list[bytes] = []
        size_bytes = looked_at_bytes = 0
        for physical_offset in reversed(found.physical_offsets):  # The newest are wanted.
            if looked_at_bytes > LOOKED_AT_BYTES_MAX:
                is_cut = True
                break
            record = store.record_at(physical_offset)
            looked_at_bytes += 0 if record is None else len(record)
            # Hashes collide, also on purpose: another topic's message is none of the asker's.
            if record is None or decode_record(record).topic != asked.topic:
                continue
            if len(records) >= wanted or size_bytes + len(record) > ANSWER_BYTES_MAX:
                is_cut = True
                break
            records.append(record)
            size_bytes += len(record)
        records.reverse()
        header = QueryMessageResponseHeader(
            index_last_update_timestamp_ms=found.index_last_update_timestamp_ms,
            index_last_update_physical_offset=found.index_last_update_physical_offset,
            more_exist=is_cut or None,
        ).encode()
        if not records:
            return request.respond(
                ResponseCode.QUERY_NOT_FOUND,
                f"can not find message, maybe time range not correct: topic {asked.topic}, "
                f"key {asked.key}"
                + (", among the newest that are indexed like it" if is_cut else ""),
                header,
            )
        remark = None
        if is_cut:
            remark = (
                f"these are the newest {len(records)} messages of topic {asked.topic} with the key "
                f"{asked.key}, and there may be more: ask for an earlier time"
            )
        return request.respond(ResponseCode.SUCCESS, remark, header, b"".join(records))

    @serves(RequestCode.VIEW_MESSAGE_BY_ID)
    def by_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID (33): the record at a physical offset of this broker."""
        physical_offset = ViewMessageRequestHeader.decode(request.fields).offset
        record = stored_record(self.store, self.transactions, physical_offset)
        if record is None:
            raise no_message(
                physical_offset, f"can not find message by the offset, {physical_offset}"
            )
        return request.respond(ResponseCode.SUCCESS, body=record)
