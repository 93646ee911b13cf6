"""Handles requests to commit, roll back or resume transactions.

An end comes from the producer itself or as its answer to a check.

Place in the walk: the half message is read from the log by its physical offset and checked against
what the producer says of it; then the half queue ends the transaction (row D4). RocketMQ's clients
send it one-way; a client that asks for an answer gets one, when what it promises is as durable as
the flush mode makes it.

Invariant: nothing changes unless group, queue offset, physical offset and message id all fit: in a
store that stands where another was, the same offsets name other messages. A transaction ends once;
ending it again the same way succeeds and changes nothing. One whose topic was deleted since it
began is rolled back, whatever its producer says.
Absent on purpose: what an end leaves in the log (half_queue).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.sending.durability import Durability, stored
from engine.broker.transactions.half_queue import HalfQueue
from engine.broker.transactions.stored_messages import is_named_by, no_message
from engine.broker.transactions.transactions import immunity_ms, immunity_seconds
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import (
    HALF_GONE_REMARK,
    HALF_GROUP_WRONG_REMARK,
    HALF_ID_WRONG_REMARK,
    HALF_OFFSET_WRONG_REMARK,
    SysFlag,
)
from engine.protocol.properties import PROPERTY_CHECK_IMMUNITY_SECONDS, PROPERTY_PRODUCER_GROUP
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.runtime.clock import Clock
from engine.store import MessageStore

UNKNOWN = 0
COMMIT = int(SysFlag.TRANSACTION_COMMIT)
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class TransactionHandlers(Handlers):
    """Takes producers' words for how their transactions ended."""

    clock: Clock
    durability: Durability
    node: BrokerNode
    store: MessageStore
    half_queue: HalfQueue

    @serves(RequestCode.END_TRANSACTION)
    def end_transaction(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """END_TRANSACTION (37)."""
        header = EndTransactionRequestHeader.decode(request.fields)
        try:
            self._check_master()
            return self._end(peer, request, header)
        except RequestRefused as error:
            if request.is_oneway:  # Nobody else would hear of it.
                _log.warning("%s ends %s in vain: %s", peer.address, header.msg_id, error)
            raise

    @serves(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    def resume_check(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """RESUME_CHECK_HALF_MESSAGE (323): a transaction that was given up begins anew, and its
        producer is asked from the next round on.
        """
        self.node.check_master()
        header = ResumeCheckHalfMessageRequestHeader.decode(request.fields)
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        put = stored(lambda: self.half_queue.resume(physical_offset))
        response = request.respond(ResponseCode.SUCCESS)
        return self.durability.answer_put(peer, request, response, end_offset=put.end_offset)

    def _check_master(self) -> None:
        """Raise RequestRefused with RocketMQ's code for the end of a transaction at a slave."""
        if not self.node.is_master:
            raise RequestRefused(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"the broker[{self.node.config.host}] is no master: it ends no transaction",
            )

    def _end(
        self, peer: Peer, request: RemotingCommand, header: EndTransactionRequestHeader
    ) -> HandlerResult:
        said = header.commit_or_rollback
        if said == UNKNOWN:  # RocketMQ leaves even a two-way request without an answer.
            return request.respond(
                ResponseCode.SUCCESS, "the transaction stays open; the producer will be asked"
            )
        if said not in (COMMIT, ROLLBACK):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback={said} is none of {COMMIT} (commit), {ROLLBACK} (rollback) and "
                f"{UNKNOWN} (unknown)",
            )
        half = self._half_message(header)
        self._check_topic_stands(half, commit=said == COMMIT)
        end_offset = stored(lambda: self.half_queue.end(half, commit=said == COMMIT))
        if end_offset is None and not request.is_oneway:
            stored(self.half_queue.write_ops)  # An answered rollback is for good, and so is an end
            end_offset = self.store.physical_max  # that was written before this request.
        response = request.respond(ResponseCode.SUCCESS)
        return self.durability.answer_put(peer, request, response, end_offset=end_offset)

    def _half_message(self, header: EndTransactionRequestHeader) -> MessageExt:
        """What the request is about, in RocketMQ's order of checks. Raises RequestRefused."""
        half = self.half_queue.message_at(header.commit_log_offset)
        if half is None:
            raise no_message(header.commit_log_offset, HALF_GONE_REMARK)
        if not header.from_transaction_check and self.half_queue.is_open(half):
            self._check_in_time(half)  # One that has ended answers how: no question will come.
        group = half.properties.get(PROPERTY_PRODUCER_GROUP)
        if group != header.producer_group:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{HALF_GROUP_WRONG_REMARK}: {half.message_id} is of group {group}, not of "
                f"{header.producer_group}",
            )
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{HALF_OFFSET_WRONG_REMARK}: {half.message_id} has queue offset "
                f"{half.queue_offset}, not {header.tran_state_table_offset}",
            )
        if header.transaction_id != half.uniq_key and not is_named_by(
            half, header.msg_id, header.commit_log_offset
        ):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{HALF_ID_WRONG_REMARK}: the half message at {header.commit_log_offset} is "
                f"{half.uniq_key}, not {header.msg_id}, which is of another store",
            )
        return half

    def _check_topic_stands(self, half: MessageExt, *, commit: bool) -> None:
        """A deleted topic takes its half messages with it. Raises RequestRefused for a commit, but
        for one that was done before the deletion.
        """
        if not self.half_queue.was_deleted(half):
            return
        committed = self.half_queue.was_committed(half)
        if committed:
            return
        is_known = committed is False or self.half_queue.is_open(half)
        stored(lambda: self.half_queue.roll_back_deleted(half))
        if commit:
            raise RequestRefused(
                ResponseCode.TRANSACTION_FAILED,
                f"the transaction of {half.message_id} has ended before: its topic was deleted "
                "since it began, "
                + (
                    "and the message with it; send it again"
                    if is_known
                    else "and whether it was committed before that is not known any more"
                ),
            )

    def _check_in_time(self, half: MessageExt) -> None:
        """A producer that named its own time until the first question keeps to it; the broker's
        time-out it always has.
        """
        word = half.properties.get(PROPERTY_CHECK_IMMUNITY_SECONDS)
        if not word:
            return
        timeout_ms = self.node.config.transaction_timeout_ms
        allowed_ms = max(immunity_ms(immunity_seconds(word), timeout_ms), timeout_ms)
        age_ms = self.clock.now_ms() - half.born_timestamp_ms
        if age_ms > allowed_ms:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"{half.message_id} is {age_ms} ms old, its CHECK_IMMUNITY_TIME_IN_SECONDS={word} "
                "is over; wait for the broker's question",
            )
