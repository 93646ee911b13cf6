"""Producer whose messages become visible only if a local transaction succeeds.

Place in the walk: `send_in_transaction` sends a half message, which nobody sees, runs the local
executor, and reports to the broker how it ended: COMMIT, the message appears in its topic;
ROLLBACK, it never does; UNKNOWN, or no report: the broker asks any producer of the group, up to its
limit, and the checker answers from what the business has on record (row D4). The broker's word is
final, as it may have ended the transaction otherwise meanwhile:

    broker's answer                           TransactionEnd   state
    SUCCESS, FLUSH_DISK_TIMEOUT               ACCEPTED         as the local transaction said
    TRANSACTION_FAILED                        CONTRADICTED     the other one
    no such half message, or another's        GONE             UNKNOWN: the broker cannot say
    any other refusal, no answer              OPEN             UNKNOWN: the broker asks

Invariant: the message appears at least once if the executor or the checker said COMMIT and a broker
heard it, and never if they said nothing but ROLLBACK. `state` is COMMIT or ROLLBACK only on the
broker's word. Executor and checker must agree: both answer from the same record. Absent on purpose:
that record; it is the business's own transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.client.config import ClientConfig, ProducerConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.producer import Producer
from engine.client.sending.send_result import SendResult, SendStatus, status_of
from engine.foundation.errors import LocalProtocolError, RequestRefused, TidemarkError
from engine.foundation.limits import CLIENT_CHECKS_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import decompress
from engine.protocol.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record
from engine.protocol.names import (
    AUTO_CREATE_TOPIC,
    HALF_GONE_REMARK,
    HALF_GROUP_WRONG_REMARK,
    HALF_ID_WRONG_REMARK,
    HALF_OFFSET_WRONG_REMARK,
    NO_MESSAGE_REMARK,
)
from engine.protocol.properties import (
    PROPERTY_CHECK_IMMUNITY_SECONDS,
    PROPERTY_DELAY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    TIMERS,
)
from engine.protocol.trace import TransactionState as TracedState
from engine.remoting import Handler, Peer
from engine.runtime import Runtime


class TransactionState(Enum):
    """How a local transaction ended; the value is the wire's commitOrRollback."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class TransactionEnd(Enum):
    """What the broker made of the end that a producer reported."""

    ACCEPTED = "ACCEPTED"
    """The transaction ended as reported."""
    CONTRADICTED = "CONTRADICTED"
    """It had ended the other way before. Final."""
    GONE = "GONE"
    """The broker holds no such half message (any more). Final: nobody asks about it."""
    OPEN = "OPEN"
    """The broker did not hear the end, or does not take it: it asks the checker."""


_OTHER_STATE = {
    TransactionState.COMMIT: TransactionState.ROLLBACK,
    TransactionState.ROLLBACK: TransactionState.COMMIT,
    TransactionState.UNKNOWN: TransactionState.UNKNOWN,
}

_GONE_REMARKS = (
    *(HALF_GONE_REMARK, HALF_GROUP_WRONG_REMARK),
    *(HALF_OFFSET_WRONG_REMARK, HALF_ID_WRONG_REMARK, NO_MESSAGE_REMARK),
)
"""Their code, SYSTEM_ERROR, also stands for failures that pass; RocketMQ's words make the
difference.
"""


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The half message's place, the result of its local transaction, and the outcome."""

    half: SendResult
    local_state: TransactionState
    """What the local executor said; ROLLBACK when the half message was not stored as safely as
    promised and nothing ran.
    """
    end: TransactionEnd
    """What the broker made of it."""
    reason: str | None = None
    """Why the transaction did not simply end as the executor said, in the broker's words where it
    has any; None when it did.
    """

    @property
    def state(self) -> TransactionState:
        """How the transaction stands at the broker: COMMIT and ROLLBACK are final, UNKNOWN is left
        to the checker or, when `end` is GONE, past finding out.
        """
        match self.end:
            case TransactionEnd.ACCEPTED:
                return self.local_state
            case TransactionEnd.CONTRADICTED:
                return _OTHER_STATE[self.local_state]
            case TransactionEnd.GONE | TransactionEnd.OPEN:
                return TransactionState.UNKNOWN

    @property
    def is_final(self) -> bool:
        """Will nothing the producer or its checker says change this any more?"""
        return self.end is not TransactionEnd.OPEN


def end_after(error: TidemarkError) -> TransactionEnd:
    """The outcome of a transaction whose reported end met this error."""
    if not isinstance(error, RequestRefused):
        return TransactionEnd.OPEN
    if error.code == ResponseCode.TRANSACTION_FAILED:
        return TransactionEnd.CONTRADICTED
    if error.code == ResponseCode.SYSTEM_ERROR and error.remark.startswith(_GONE_REMARKS):
        return TransactionEnd.GONE
    return TransactionEnd.OPEN


DELAYS = (PROPERTY_DELAY, *TIMERS)

_log = logging.getLogger(__name__)

_STORED_LESS_SAFELY = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)


_TRACED_STATE = {
    TransactionState.COMMIT: TracedState.COMMIT_MESSAGE,
    TransactionState.ROLLBACK: TracedState.ROLLBACK_MESSAGE,
    TransactionState.UNKNOWN: TracedState.UNKNOW,
}
"""The trace has RocketMQ's own words."""

StateAnswer = TransactionState | Awaitable[TransactionState]
LocalExecutor = Callable[[Message, object], StateAnswer]
"""Runs the local transaction of a half message that is stored. A plain function runs in the event
loop and must not block; any exception means UNKNOWN.
"""
StateChecker = Callable[[MessageExt], StateAnswer]
"""Says how the local transaction of a half message ended, perhaps in another process's life."""


class TransactionProducer(Producer):
    """Sends the messages of one producer group, in transactions or without."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        *,
        execute: LocalExecutor,
        check: StateChecker,
        topics: Sequence[str] = (),
        producer: ProducerConfig | None = None,
    ) -> None:
        """`topics` are those an earlier life of this group sent to: their brokers may ask from the
        start, before anything is sent. Brokers that make topics by themselves are found anyway.
        """
        handlers: dict[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._on_check}
        super().__init__(runtime, config, group, producer=producer, handlers=handlers)
        self._execute = execute
        self._check = check
        self._topics = (*topics, AUTO_CREATE_TOPIC)
        self._route_poll_ms = config.route_poll_ms
        self._checks = OwnedTasks(f"transaction checks {group}")

    async def start(self) -> None:
        """As `Producer.start`; brokers with open transactions of the group hear of it and ask."""
        if not self._started:
            self._checks.start(self._find_brokers(), "routes")
        await super().start()

    async def stop(self) -> None:
        """As `Producer.stop`; questions under way stay open, and the broker asks another one."""
        await self._checks.close()
        await super().stop()

    async def send_in_transaction(
        self,
        message: Message,
        argument: object = None,
        *,
        queue: MessageQueue | None = None,
        immunity_s: int | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, report to the broker how it ended.

        `immunity_s` keeps the broker from asking before; its own time-out is the default. A half
        message that is stored, but not as safely as promised, is rolled back without running
        anything. The result holds what the broker made of it: `end` OPEN leaves it to the checker,
        anything else is final, also where the broker had ended it the other way meanwhile. Raises
        what `send` raises; nothing has run then.
        """
        delay = next((name for name in DELAYS if name in message.properties), None)
        if delay is not None:
            raise LocalProtocolError(
                f"property {delay}: a message of a transaction appears when it is committed and "
                "cannot be delayed"
            )
        message.properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        message.properties[PROPERTY_PRODUCER_GROUP] = self.group
        if immunity_s is not None:
            message.properties[PROPERTY_CHECK_IMMUNITY_SECONDS] = str(immunity_s)
        half = await self.send(message, queue=queue, timeout_ms=timeout_ms)
        state, failure = TransactionState.ROLLBACK, None
        if half.status is SendStatus.SEND_OK:
            state, failure = await _state_of(
                lambda: self._execute(message, argument), half.message_id
            )
        result = await self._result_of(half, state, failure)
        broker = self._connection.routes.master_address(half.queue.broker_name) or ""
        self._trace_end(message, result.state, half.message_id, store_host=broker, from_check=False)
        return result

    async def end_transaction(self, half: SendResult, state: TransactionState) -> SendStatus:
        """Report to the broker how the transaction of a half message ended; return how safely the
        broker stored that (UNKNOWN is sent and not answered).

        Doing it again is safe. Raises RequestRefused when the broker does not accept it (it ended
        the other way, or the time for it is over), Unreachable.
        """
        fields = EndTransactionRequestHeader(
            topic=half.queue.topic,
            producer_group=self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_message_id(half.offset_message_id)[1],
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=half.message_id,
            transaction_id=half.message_id,
            broker_name=half.queue.broker_name,
        ).encode()
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, fields)
        address = await self._connection.routes.find_master(half.queue)
        if state is TransactionState.UNKNOWN:  # RocketMQ gives no answer to this one.
            await self._connection.invoke_oneway(address, request)
            return SendStatus.SEND_OK
        try:
            await self._connection.ask(address, request)
        except RequestRefused as error:
            if error.code not in _STORED_LESS_SAFELY:
                raise
            return status_of(error.code, error.remark)
        return SendStatus.SEND_OK

    async def _result_of(
        self, half: SendResult, state: TransactionState, failure: Exception | None
    ) -> TransactionSendResult:
        """Report the end of the local transaction, and note what the broker makes of it."""
        try:
            stored = await self.end_transaction(half, state)
        except TidemarkError as error:
            end = end_after(error)
            log = _log.warning if end is TransactionEnd.OPEN else _log.error
            log("%s is not ended as %s, %s: %s", half.message_id, state.name, end.name, error)
            return TransactionSendResult(half, state, end, str(error))
        if state is TransactionState.UNKNOWN:
            why = f": {failure!r}" if failure is not None else ""
            unknown = f"the local transaction came to no end the executor knows{why}"
            return TransactionSendResult(half, state, TransactionEnd.OPEN, unknown)
        reason: str | None = None
        if half.status is not SendStatus.SEND_OK:
            reason = f"the half message is stored with {half.status.value}; nothing was executed"
        elif stored is not SendStatus.SEND_OK:
            reason = f"{stored.value}: a power cut of the broker may make it ask again"
        return TransactionSendResult(half, state, TransactionEnd.ACCEPTED, reason)

    def _trace_end(
        self,
        message: Message | MessageExt,
        state: TransactionState,
        message_id: str,
        *,
        store_host: str,
        from_check: bool,
    ) -> None:
        if self._tracer is not None:
            self._tracer.ended_transaction(
                message,
                _TRACED_STATE[state],
                message_id=message_id,
                store_host=store_host,
                from_check=from_check,
            )

    # What brokers ask.

    async def _find_brokers(self) -> None:
        """Ask for each topic's route once; known routes are refreshed, and their brokers get our
        heartbeats.
        """
        for topic in self._topics:
            while True:
                try:
                    await self._connection.routes.refresh(topic)
                    break
                except TidemarkError as error:
                    _log.warning("brokers of %s cannot ask us yet: %s", topic, error)
                    await asyncio.sleep(self._route_poll_ms / SECOND_MS)

    def _on_check(self, peer: Peer, request: RemotingCommand) -> None:
        """CHECK_TRANSACTION_STATE (39), one-way; answered by an END_TRANSACTION."""
        header = CheckTransactionStateRequestHeader.decode(request.fields)
        message = decode_record(request.body)
        message.body = decompress(message.body, message.sys_flag)
        group = message.properties.get(PROPERTY_PRODUCER_GROUP)
        if group != self.group:
            _log.warning("%s asks about a transaction of group %r, not ours", peer.address, group)
        elif len(self._checks) >= CLIENT_CHECKS_MAX:
            _log.warning(
                "%d questions are under way; the broker will ask again about %s",
                *(CLIENT_CHECKS_MAX, message.message_id),
            )
        else:
            broker_name = request.fields.get("bname")
            self._checks.start(self._answer(peer, header, message, broker_name), "check")

    async def _answer(
        self,
        peer: Peer,
        header: CheckTransactionStateRequestHeader,
        message: MessageExt,
        broker_name: str | None,
    ) -> None:
        state, error = await _state_of(lambda: self._check(message), message.message_id)
        self._trace_end(
            message, state, message.message_id, store_host=peer.address, from_check=True
        )
        fields = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            broker_name=broker_name,
        ).encode()
        answer = RemotingCommand.request(RequestCode.END_TRANSACTION, fields)
        if error is not None:
            answer.remark = f"the checker raised {error!r}"
        peer.send(answer)


async def _state_of(
    ask: Callable[[], StateAnswer], message_id: str
) -> tuple[TransactionState, Exception | None]:
    """The result of user code, and what it raised; cancellation passes."""
    try:
        said = ask()
        state = await said if inspect.isawaitable(said) else said
    except Exception as error:  # noqa: BLE001 - user code may raise anything; it means "unknown"
        _log.warning("how %s ended is unknown: %r", message_id, error, exc_info=error)
        return TransactionState.UNKNOWN, error
    if isinstance(state, TransactionState):
        return state, None
    _log.warning("how %s ended is unknown: %r is no TransactionState", message_id, state)
    return TransactionState.UNKNOWN, None
