"""Puts messages for all handlers, and delays each response until the message is safe.

Place in the walk: `handlers/send`, `send_back`, `reply` and `transaction` put, and then leave their
answer to `answer_put`.

Invariant: an answer of success leaves when what it promises is safe (`safety`), the topic made for
it among it, in the term in which it was put. A refusal by the disk is SERVICE_NOT_AVAILABLE, after
which reads go on; a message that was put is never answered as failed, only as not (yet) durable or
as unknown. Absent on purpose: a second way to wait; a test drives every handler against a held one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode
from engine.broker.sending.safety import PutStatus, Safety, Waiter
from engine.broker.table_changes import TableChanges
from engine.foundation.errors import LocalProtocolError, RequestRefused, StorageError
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.remoting.dispatcher import HandlerResult
from engine.store import MessageDraft, MessageStore, PutResult

Put = TypeVar("Put")

_NOT_SAFE = {
    PutStatus.FLUSH_DISK_TIMEOUT: (
        ResponseCode.FLUSH_DISK_TIMEOUT,
        "flush disk timeout: stored, but not yet on stable storage",
    ),
    PutStatus.FLUSH_SLAVE_TIMEOUT: (
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        "flush slave timeout: stored, but not yet on enough slaves",
    ),
    PutStatus.UNKNOWN: (
        ResponseCode.SYSTEM_ERROR,
        "the broker is no longer the master that took the message: it may or may not be stored",
    ),
}
"""RocketMQ's codes; an unknown outcome is 1, as when DLedger's majority does not answer in time."""

_log = logging.getLogger(__name__)


def stored(put: Callable[[], Put]) -> Put:
    """The outcome of `put`; a store that cannot write is refused with SERVICE_NOT_AVAILABLE, what
    no record can hold with MESSAGE_ILLEGAL.
    """
    try:
        return put()
    except LocalProtocolError as error:
        raise no_record(error) from error
    except StorageError as error:
        raise not_stored(error) from error


def no_record(error: LocalProtocolError) -> RequestRefused:
    """The refusal of a message that no record can hold, however often it is sent."""
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}")


def not_stored(error: StorageError) -> RequestRefused:
    """The refusal of a store that cannot write."""
    return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")


def broker_takes_nothing(config: BrokerConfig) -> RequestRefused:
    """The refusal of a broker without write permission."""
    return RequestRefused(
        ResponseCode.NO_PERMISSION,
        f"the broker[{config.host}] sending message is forbidden: its brokerPermission "
        f"{config.broker_permission} has no write bit",
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Durability:
    """Answers puts when they are as safe as the broker promises."""

    changes: TableChanges
    node: BrokerNode
    safety: Safety
    save_settings: Callable[[], Awaitable[None]]
    store: MessageStore

    def put(self, draft: MessageDraft) -> PutResult:
        """Store a message of the broker's own. Raises RequestRefused, also when it is no master."""
        self.node.check_master()
        return stored(lambda: self.store.put(draft))

    def answer_put(
        self,
        peer: Peer,
        request: RemotingCommand,
        response: RemotingCommand,
        *,
        end_offset: int | None,
        term: int | None = None,
    ) -> HandlerResult:
        """`response` when what ends at `end_offset` is safe; None: its sender waits for nothing.

        A handler that has put returns what this returns. `term` is the one in which it put; None:
        it put in this very step.
        """
        node = self.node
        if term is not None and (term != node.term or not node.is_master):
            return _with_status(response, PutStatus.UNKNOWN)
        waiter = None if end_offset is None else self.safety.when_safe(end_offset)
        if self.changes.topics_unsaved:  # A killed broker would know the message only.
            return self._answer_when_topics_saved(peer, request, response, waiter=waiter)
        if waiter is None:
            return response
        _answer_when_settled(peer, request, response, waiter)
        return None

    async def _answer_when_topics_saved(
        self,
        peer: Peer,
        request: RemotingCommand,
        response: RemotingCommand,
        *,
        waiter: Waiter | None,
    ) -> RemotingCommand | None:
        """`response` once the topic that was made for its message is on disk, and the message is
        safe.

        A topic that cannot be saved is tried again each second (`Tables`); its message is stored.
        """
        term = self.node.term
        try:
            await self.save_settings()
        except StorageError as error:
            _log.warning("a topic made for a message is not saved yet: %s", error)
        if not self.node.leads(term):
            return _with_status(response, PutStatus.UNKNOWN)
        if waiter is None:
            return response
        _answer_when_settled(peer, request, response, waiter)
        return None


def _answer_when_settled(
    peer: Peer, request: RemotingCommand, response: RemotingCommand, waiter: Waiter
) -> None:
    """Queue `response` once it is known how safe its message is."""
    if not request.is_oneway:
        waiter.when_settled(lambda status: peer.answer(request, _with_status(response, status)))


def _with_status(response: RemotingCommand, status: PutStatus) -> RemotingCommand:
    """`response`, which says that its message is not safe if it is not. Hot."""
    if status is not PutStatus.PUT_OK and response.code == ResponseCode.SUCCESS:
        response.code, response.remark = _NOT_SAFE[status]
    return response
