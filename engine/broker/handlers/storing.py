"""What all handlers that put share: putting into the store, and the one way to answer for it.

Place in the walk: `handlers/send`, `send_back`, `reply` and `transaction` put, and then leave their
answer to `answer_put`.

Invariant: an answer of success leaves when what it promises is as durable as the flush mode makes
it, the topic made for it among it. A refusal by the disk is SERVICE_NOT_AVAILABLE, after which
reads go on; a message that was put is never answered as failed, only as not (yet) durable. Absent
on purpose: a second way to wait for a sync; a test drives every handler against a held one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from engine.broker.config import BrokerConfig
from engine.broker.parts import BrokerParts
from engine.foundation.errors import LocalProtocolError, RequestRefused, StorageError
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.remoting.dispatcher import HandlerResult
from engine.store import GroupCommit

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


def answer_put(
    parts: BrokerParts,
    peer: Peer,
    request: RemotingCommand,
    response: RemotingCommand,
    *,
    end_offset: int | None,
) -> HandlerResult:
    """`response` when the log is durable up to `end_offset`; None: its sender waits for no sync.

    A handler that has put returns what this returns.
    """
    flushed = None if end_offset is None else parts.store.when_flushed(end_offset)
    if parts.topics_unsaved:  # A killed broker would know the message only.
        return _answer_when_topics_saved(parts, peer, request, response, flushed=flushed)
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


async def _answer_when_topics_saved(
    parts: BrokerParts,
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
        await parts.settings_saved()
    except StorageError as error:
        _log.warning("a topic made for a message is not saved yet: %s", error)
    if flushed is None:
        return response
    _answer_when_flushed(peer, request, response, flushed)
    return None
