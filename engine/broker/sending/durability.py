"""Stores a message for all handlers that put, and answers when it is safe.

Place in the walk: `handlers/send`, `send_back`, `reply` and `transaction` put, and then leave their
answer to `answer_put`. `Safety` composes "when is a put safe?" of flush, replicas and majority.

A put waits for an end in a term: an end alone would be met by the bytes that another leader put
there. When the node steps down, every waiter is settled UNKNOWN: whoever leads next may have its
message, or cut it.

Invariant: an answer of success leaves when what it promises is safe, the topic made for it among
it, in the term in which it was put. A waiter is settled once; puts that wait for one sync and
nothing else share theirs. A refusal by the disk is SERVICE_NOT_AVAILABLE, after which reads go on;
a message that was put is never answered as failed, only as not (yet) durable or as unknown. Absent
on purpose: how a condition is met.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TypeVar

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode
from engine.broker.table_changes import TableChanges
from engine.foundation.errors import LocalProtocolError, RequestRefused, StorageError
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.remoting.dispatcher import HandlerResult
from engine.store import GroupCommit, MessageDraft, MessageStore, PutResult


class PutStatus(IntEnum):
    """How safe a stored message is. Of several conditions that are not met, the greater one."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    UNKNOWN = 3
    """The node stepped down, or a majority did not answer: it may be stored, it may be cut."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the things that make a put safe, beside its flush."""

    when_met: Callable[[int, int], GroupCommit | None]
    """What settles True when it is met for (term, end offset), False when it is not in time; None:
    it is met already.
    """
    otherwise: PutStatus
    """The status of a put for which it is not met."""


class Waiter:
    """Puts that are not safe yet."""

    __slots__ = ("_calls", "_status", "_unmet", "_waiting")

    def __init__(
        self, unmet: Sequence[tuple[GroupCommit, PutStatus]], waiting: dict[Waiter, None]
    ) -> None:
        """`unmet`: what has to be met, and the status if it is not; `waiting` holds the waiter
        until it is settled.
        """
        self._waiting = waiting
        self._unmet = len(unmet)
        self._status = PutStatus.PUT_OK
        self._calls: list[Callable[[PutStatus], None]] = []
        waiting[self] = None
        for met, otherwise in unmet:
            met.call_when_settled(partial(self._note, otherwise))

    def when_settled(self, call: Callable[[PutStatus], None]) -> None:
        """Have `call` made with the status, as soon as it is known. Hot."""
        if self in self._waiting:
            self._calls.append(call)
        else:
            call(self._status)

    def settle(self, status: PutStatus) -> None:
        """This is the status, unless there is one already."""
        if self not in self._waiting:
            return
        del self._waiting[self]
        self._status = status
        for call in self._calls:
            try:
                call(status)
            except Exception as error:  # noqa: BLE001 - nobody else's answer may depend on it.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a waiter for a safe put failed", "exception": error}
                )

    def _note(self, otherwise: PutStatus, is_met: bool) -> None:
        if not is_met:
            self._status = max(self._status, otherwise)
        self._unmet -= 1
        if not self._unmet:
            self.settle(self._status)


class Safety:
    """Knows when the puts of one broker are safe."""

    def __init__(
        self,
        node: BrokerNode,
        when_flushed: Callable[[int], GroupCommit | None],
        *conditions: Condition,
    ) -> None:
        """`when_flushed` as the store has it."""
        self._node = node
        self._when_flushed = when_flushed
        self.conditions = conditions
        """What else has to be met; replication adds its own."""
        self._waiting: dict[Waiter, None] = {}
        self._shared: tuple[GroupCommit | None, Waiter | None] = (None, None)
        """The sync that puts wait for and nothing else, and their waiter."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def when_safe(self, end_offset: int) -> Waiter | None:
        """Who gets the status of a put of this step that ends there; None: it is safe. Hot."""
        commit = self._when_flushed(end_offset)
        if not self.conditions:
            shared, waiter = self._shared
            if commit is shared:  # None: nothing is to be waited for.
                return waiter
            if commit is None:
                return None
        unmet = [] if commit is None else [(commit, PutStatus.FLUSH_DISK_TIMEOUT)]
        for condition in self.conditions:
            met = condition.when_met(self._node.term, end_offset)
            if met is not None:
                unmet.append((met, condition.otherwise))
        if not unmet:
            return None
        waiter = Waiter(unmet, self._waiting)
        if not self.conditions:
            self._shared = (commit, waiter)
        return waiter

    def end_term(self) -> None:
        """The node stepped down, or leads in another term: nobody knows what becomes of what was
        put before, and whoever waits hears so.
        """
        self._shared = (None, None)
        for waiter in list(self._waiting):
            waiter.settle(PutStatus.UNKNOWN)


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
