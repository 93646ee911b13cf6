"""Dispatches a request to its handler and turns the result into a response.

A handler returns a response (answered at the end of the turn), an awaitable (run as a task of this
party, answered with its result), or None (one-way, or it answers later by `peer.answer`).

Invariant: every request that wants an answer gets one, whatever its handler does; a handler's error
harms nobody but its own request. Only a broken invariant (AssertionError) ends the party. Absent
on purpose: permissions, which handlers check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from engine.foundation.errors import LocalProtocolError, RequestRefused, TidemarkError
from engine.foundation.limits import HANDLER_TASKS_MAX
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting.peer import Peer

HandlerResult = RemotingCommand | Awaitable[RemotingCommand | None] | None
Handler = Callable[[Peer, RemotingCommand], HandlerResult]
Method = TypeVar("Method", bound=Callable[..., HandlerResult])

_log = logging.getLogger(__name__)


def serves(*codes: int) -> Callable[[Method], Method]:
    """Marks a method of `Handlers` as the handler of requests with these codes."""

    def mark(method: Method) -> Method:
        vars(method)["codes"] = codes
        return method

    return mark


class Handlers:
    """A class some of whose methods serve requests."""

    __slots__ = ()

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            code: getattr(self, name)
            for name, method in vars(type(self)).items()
            for code in getattr(method, "codes", ())
        }


class Dispatcher:
    """The handlers of one party and the tasks they started."""

    __slots__ = (
        *("_broken", "_ends_when_broken", "_handlers", "_is_broken", "_is_stopped", "_tasks"),
    )

    def __init__(self, handlers: Mapping[int, Handler], *, ends_when_broken: bool = False) -> None:
        """`ends_when_broken`: is this the party of a process that ends for a broken invariant?"""
        self._ends_when_broken = ends_when_broken
        self._handlers = handlers
        self._tasks: dict[asyncio.Task[None], HandlerResult] = {}
        """The tasks, each with what it waits for."""
        self._is_stopped = False
        self._broken: AssertionError | None = None
        self._is_broken = asyncio.Event()

    def dispatch(self, peer: Peer, request: RemotingCommand) -> None:
        """Run the handler of `request`, or say that there is none. Nothing from `stop` on: the
        connection is about to end.
        """
        if self._broken is not None or self._is_stopped:
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            peer.answer(request, request.respond(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        if len(self._tasks) >= HANDLER_TASKS_MAX:  # Before the handler: nothing is half done.
            remark = f"{HANDLER_TASKS_MAX} requests are under way; try again later"
            peer.answer(request, request.respond(ResponseCode.SYSTEM_BUSY, remark))
            return
        try:
            result = handler(peer, request)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes its answer.
            if not self._breaks(error):
                peer.answer(request, answer_to(request, error))
            return
        if isinstance(result, RemotingCommand):
            _answer(peer, request, result)
        elif result is not None:
            peer.keep(request)  # A one-way one as well: it takes as much while it waits.
            self._own(self._finish(peer, request, result), result)

    async def failed(self) -> None:
        """Return never, while every invariant holds; raise the AssertionError of the first that
        did not. From then on nothing is answered: what would be true of it is unknown.
        """
        await self._is_broken.wait()
        assert self._broken is not None
        raise self._broken

    def _breaks(self, error: Exception) -> bool:
        """Is it the end of the party?"""
        if not self._ends_when_broken or not isinstance(error, AssertionError):
            return False
        if self._broken is None:
            self._broken = error
            self._is_broken.set()
            asyncio.get_running_loop().call_exception_handler(
                {"message": "an invariant is broken, the party ends", "exception": error}
            )
        return True

    def _own(self, work: Coroutine[Any, Any, None], result: HandlerResult) -> None:
        """Run `work`, which waits for `result`, as a task that ends no later than this party."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = result
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        """Cancel what still runs and wait for its end; nothing begins any more."""
        self._is_stopped = True
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for result in tasks.values():
            if isinstance(result, Coroutine):
                result.close()  # Its task may have been cancelled before its first step.

    async def _finish(
        self, peer: Peer, request: RemotingCommand, result: Awaitable[RemotingCommand | None]
    ) -> None:
        try:
            response = await result
        except Exception as error:  # noqa: BLE001 - as in `dispatch`.
            if self._breaks(error):
                return
            response = answer_to(request, error)
        if response is not None:
            _answer(peer, request, response)
        if request.is_oneway:
            peer.let_go(request)


def _answer(peer: Peer, request: RemotingCommand, response: RemotingCommand) -> None:
    """Answer with `response`, or with the reason for which no frame can carry it."""
    try:
        peer.answer(request, response)
    except LocalProtocolError as error:
        _log.error("the answer to request code %d cannot be sent: %s", request.code, error)
        peer.answer(request, request.respond(ResponseCode.SYSTEM_ERROR, str(error)))


def answer_to(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """The response that states `error`: a refusal with its code, all else SYSTEM_ERROR."""
    if isinstance(error, RequestRefused):
        return request.respond(error.code, error.remark)
    if isinstance(error, TidemarkError):
        return request.respond(ResponseCode.SYSTEM_ERROR, str(error))
    _log.error("request code %d failed", request.code, exc_info=error)
    return request.respond(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
