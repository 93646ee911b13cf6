"""Shared by all handlers that put: storing a message and answering for it.

Place in the walk: `handlers/send`, `send_back`, `reply` and `transaction` put, and then leave their
answer to `answer_put`.

Invariant: an answer of success leaves when what it promises is as durable as the flush mode makes
it, the topic made for it among it. A refusal by the disk is SERVICE_NOT_AVAILABLE, after which
reads go on; a message that was put is never answered as failed, only as not (yet) durable. Absent
on purpose: a second way to wait for a sync; a test drives every handler against a held one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.broker.changes import TableChanges
from engine.broker.config import BrokerConfig
from engine.foundation.errors import LocalProtocolError, RequestRefused, StorageError
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.remoting.dispatcher import HandlerResult
from engine.store import GroupCommit, MessageDraft, MessageStore, PutResult

Put = TypeVar("Put")

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


class Durability:
    """Answers puts when they are as safe as the broker promises."""

    def __init__(
        self,
        *,
        changes: TableChanges,
        save_settings: Callable[[], Awaitable[None]],
        store: MessageStore,
    ) -> None:
        self._changes = changes
        self._save_settings = save_settings
        self._store = store

    def put(self, draft: MessageDraft) -> PutResult:
        """Store a message that the broker makes itself. Raises RequestRefused as `stored` does."""
        return stored(lambda: self._store.put(draft))

    def answer_put(
        self,
        peer: Peer,
        request: RemotingCommand,
        response: RemotingCommand,
        *,
        end_offset: int | None,
    ) -> HandlerResult:
        """`response` when the log is durable up to `end_offset`; None: its sender waits for no
        sync.

        A handler that has put returns what this returns.
        """
        flushed = None if end_offset is None else self._store.when_flushed(end_offset)
        if self._changes.topics_unsaved:  # A killed broker would know the message only.
            return self._answer_when_topics_saved(peer, request, response, flushed=flushed)
        if flushed is None:
            return response
        _answer_when_flushed(peer, request, response, flushed)
        return None

    async def _answer_when_topics_saved(
        self,
        peer: Peer,
        request: RemotingCommand,
        response: RemotingCommand,
        *,
        flushed: GroupCommit | None,
    ) -> RemotingCommand | None:
        """`response` once the topic that was made for its message is on disk, and the message is
        flushed.

        A topic that cannot be saved is tried again each second (`Tables`); its message is stored.
        """
        try:
            await self._save_settings()
        except StorageError as error:
            _log.warning("a topic made for a message is not saved yet: %s", error)
        if flushed is None:
            return response
        _answer_when_flushed(peer, request, response, flushed)
        return None


def _answer_when_flushed(
    peer: Peer, request: RemotingCommand, response: RemotingCommand, flushed: GroupCommit
) -> None:
    """Queue `response` once the group commit it waits for has ended."""
    if request.is_oneway:
        return

    def answer(is_flushed: bool) -> None:
        if not is_flushed and response.code == ResponseCode.SUCCESS:
            response.code = ResponseCode.FLUSH_DISK_TIMEOUT
            response.remark = "flush disk timeout: stored, but not yet on stable storage"
        peer.answer(request, response)

    flushed.tell(answer)
