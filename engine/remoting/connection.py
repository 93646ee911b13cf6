"""One end of a connection, which decodes incoming bytes and sends outgoing frames.

Place in the walk: between the network door and the dispatcher, on both sides. Bytes are read into
one buffer that all connections of a party share, because they are decoded before the next read.

Invariant: a malformed frame ends this connection, with one log line, and no other. Frames of ours
leave through the party's turn. Every future of a request ends: by its response, by an error of its
own, or by the one the connection ended with. Absent on purpose: retries and reconnecting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import IntFlag
from functools import partial
from typing import Final

from engine.foundation.errors import (
    ConnectionLost,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestTimedOut,
)
from engine.foundation.limits import (
    CONNECTION_OUTPUT_BYTES_MAX,
    CONNECTION_OUTPUT_PAUSE_BYTES,
    CONNECTION_REQUEST_BYTES_MAX,
    HEADER_BYTES_MAX,
    PENDING_REQUESTS_MAX,
    TURN_OUTPUT_BYTES_MAX,
)
from engine.foundation.units import KIB, SECOND_MS
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_parts
from engine.remoting.load import Load
from engine.remoting.turn import Turn
from engine.runtime.gathering import Part, let_go, write_parts

_OPAQUE_MAX = 0x7FFFFFFF


class PendingRequests:
    """The requests under way on one connection."""

    __slots__ = ("_last_opaque", "_waiting")

    def __init__(self) -> None:
        self._last_opaque = 0
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}

    def next_opaque(self) -> int:
        """A number no request under way has."""
        self._last_opaque = self._last_opaque + 1 if self._last_opaque < _OPAQUE_MAX else 1
        return self._last_opaque

    def expect(self, request: RemotingCommand) -> asyncio.Future[RemotingCommand]:
        """Number `request` and return the future of its response.

        Raises LocalProtocolError when too many are under way.
        """
        if len(self._waiting) >= PENDING_REQUESTS_MAX:
            raise LocalProtocolError(
                f"{len(self._waiting)} requests wait for an answer on one connection: "
                f"at most {PENDING_REQUESTS_MAX} are allowed"
            )
        request.opaque = self.next_opaque()
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[request.opaque] = future
        return future

    def resolve(self, response: RemotingCommand) -> None:
        """Hand a response to who waits for it; one that nobody waits for any more is dropped."""
        future = self._waiting.pop(response.opaque, None)
        if future is not None and not future.done():
            future.set_result(response)

    def fail(self, opaque: int, error: Exception) -> None:
        """No response will be taken for this one: who waits gets `error`."""
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def forget(self, opaque: int) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(opaque, None)

    def fail_all(self, error: Exception) -> None:
        """The connection has ended: all who wait get `error`."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)


READ_BUFFER_BYTES: Final = 256 * KIB

CLOSE_PATIENCE_MS: Final = 2 * SECOND_MS
"""What is queued when a party stops may take this long to leave; then the connection is cut."""

_log = logging.getLogger(__name__)


class _Pause(IntFlag):
    """Why nothing is read from a connection."""

    NONE = 0
    OUTPUT = 1
    """It does not take its answers."""
    REQUESTS = 2
    """Too much of what it asked is under way."""
    CROWD = 4
    """Too much of what all asked is under way."""


class Connection(asyncio.BufferedProtocol):
    """See `Peer`. `on_command` gets every request; `on_lost` hears of the end, once."""

    def __init__(
        self,
        *,
        turn: Turn,
        buffer: memoryview,
        steady_ms: Callable[[], int],
        on_made: Callable[[Connection], None],
        on_command: Callable[[Connection, RemotingCommand], None],
        on_lost: Callable[[Connection], None],
        on_protocol_error: Callable[[Connection, ProtocolError], None],
        header_bytes_max: int = HEADER_BYTES_MAX,
        load: Load | None = None,
    ) -> None:
        """`load` is that of a listening party; without it nothing is counted and nobody waits."""
        self.attachment: object | None = None
        self.last_heard_ms = steady_ms()
        """When the last complete frame came: half a frame is no sign of life."""
        self.unfinished_bytes = 0
        self.unfinished_since_ms = 0
        self.is_known = False
        """Has it sent a request that was found genuine?"""
        self.is_refusal_logged = False
        """Was a refusal of one of its requests logged?"""
        self._turn = turn
        self._buffer = buffer
        self._steady_ms = steady_ms
        self._on_made = on_made
        self._on_command = on_command
        self._on_lost = on_lost
        self._on_protocol_error = on_protocol_error
        self._decoder = FrameDecoder(header_bytes_max)
        self._pending = PendingRequests()
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._closed = False
        self._queued_bytes = 0
        self._kept: list[RemotingCommand] = []
        """Read, but not acted on: the answers before are not taken."""
        self._load = load
        self._request_bytes = self._reported_request_bytes = 0
        self._output_bytes = 0
        self._is_dispatching = self._is_slow = False
        self._pauses = _Pause.NONE
        self._gone = asyncio.Event()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember who is at the other end."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = _text(transport.get_extra_info("peername"))
        self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The shared buffer: what is read into it is decoded before anybody reads again."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decode all frames that are complete and act on each."""
        try:
            commands = self._decoder.feed(self._buffer[:nbytes])
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        if commands:
            self.last_heard_ms = self._steady_ms()
        self.act_on(commands)
        self._count_input(begins_anew=bool(commands))

    def act_on(self, commands: list[RemotingCommand]) -> None:
        """Each in its order; once the other end does not take the answers, the rest waits for it.
        What is answered in between leaves now and then: a read may ask for very much.
        """
        turn = self._turn
        self._is_dispatching = True
        for position, command in enumerate(commands, 1):
            if self._closed:
                break
            if command.is_response:
                self._pending.resolve(command)
                continue
            self._on_command(self, command)
            if turn.queued_bytes > TURN_OUTPUT_BYTES_MAX:
                turn.end_for(self)
                if self._pauses & _Pause.OUTPUT:
                    self._kept = commands[position:]
                    break
        self._is_dispatching = False
        if self._decoder.fault is not None and not self._kept and not self._closed:
            turn.end_for(self)  # What came before the fault is answered.
            self._refuse(self._decoder.fault)

    def eof_received(self) -> bool:
        """The other end says no more: so do we."""
        return False

    def pause_writing(self) -> None:
        """The other end takes its answers more slowly than they come."""
        self._is_slow = True

    def resume_writing(self) -> None:
        """It has taken them: what was read before comes first, then it is read on."""
        self._is_slow = False
        self._count_output(0)
        self._resume(_Pause.OUTPUT)
        kept, self._kept = self._kept, []
        if kept:
            self.act_on(kept)
            self._count_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify everybody who waits; half a frame that nothing follows gets its log line."""
        if not self._closed and self._decoder.buffered_bytes:
            _log.warning(
                "connection %s ended inside a frame: its first %d bytes are dropped",
                self._address,
                self._decoder.buffered_bytes,
            )
        self._closed = True
        if self._load is not None:
            self._give_back(self._load)
        why = "" if exc is None else f": {exc}"
        self._pending.fail_all(ConnectionLost(f"connection to {self._address} ended{why}"))
        self._gone.set()
        if self._transport is not None:
            let_go(self._transport)
        self._on_lost(self)

    # What parties and handlers call.

    @property
    def address(self) -> str:
        """See `Peer.address`."""
        return self._address

    @property
    def closed(self) -> bool:
        """See `Peer.closed`."""
        return self._closed

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """See `Peer.answer`."""
        if not request.is_oneway:
            response.opaque = request.opaque
            response.serialize_type = request.serialize_type
            self._queue(response)
            if request.kept_bytes:
                self._end(request)

    def keep(self, request: RemotingCommand) -> None:
        """See `Peer.keep`."""
        if not request.kept_bytes:
            fields = request.fields
            request.kept_bytes = (
                len(request.body) + sum(map(len, fields)) + sum(map(len, fields.values()))
            )
            self._request_bytes += request.kept_bytes
            if not self._is_dispatching:
                self._count_requests()

    def let_go(self, request: RemotingCommand) -> None:
        """See `Peer.let_go`."""
        request.fields, request.body = {}, b""
        self._end(request)

    def send(self, command: RemotingCommand) -> None:
        """See `Peer.send`."""
        command.mark_oneway()
        command.opaque = self._pending.next_opaque()
        self._queue(command)

    async def invoke(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """See `Peer.invoke`."""
        return await self.begin(command, timeout_ms=timeout_ms)

    def begin(
        self, command: RemotingCommand, *, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """Ask the other end and go on: the future ends by the answer, by RequestTimedOut or by
        ConnectionLost. Nobody has to wait for it; cancelling it gives the answer up.

        Raises ConnectionLost or LocalProtocolError when the request cannot even be sent.
        """
        if self._closed:
            raise ConnectionLost(f"connection to {self._address} has ended")
        answered = self._pending.expect(command)
        try:
            self._queue(command)
        except BaseException:
            self._pending.forget(command.opaque)
            raise
        timer = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self._time_out, command.opaque, command.code, timeout_ms
        )
        answered.add_done_callback(partial(self._settled, command.opaque, timer))
        return answered

    def close(self, reason: str, *, level: int = logging.INFO) -> None:
        """See `Peer.close`; what is queued still leaves. One log line, of `level`."""
        if not self._closed:
            self._closed = True
            _log.log(level, "connection %s is closed: %s", self._address, reason)
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """End the connection without waiting for what is still to be written."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def read_on(self) -> None:
        """See `load.Holder.read_on`."""
        self._resume(_Pause.CROWD)

    def evict(self, reason: str) -> None:
        """See `load.Holder.evict`."""
        if self._load is not None:
            self._give_back(self._load)
        self.close(reason, level=logging.WARNING)
        self.abort()

    def know(self) -> None:
        """It has sent a request that was found genuine: its headers may have their full length."""
        self.is_known = True
        self._decoder.header_bytes_max = HEADER_BYTES_MAX

    async def gone(self) -> None:
        """Wait until the connection is lost, by whoever's doing."""
        await self._gone.wait()

    def write_frames(self, parts: list[Part]) -> None:
        """See `Outlet.write_frames`. A reader that lets too much pile up is cut off."""
        self._queued_bytes = 0
        transport = self._transport
        if self._closed or transport is None:
            return
        if transport.get_write_buffer_size() > CONNECTION_OUTPUT_BYTES_MAX:
            self._cut_off()
            return
        write_parts(transport, parts)
        if self._is_slow:
            self._count_output(transport.get_write_buffer_size())

    def _time_out(self, opaque: int, code: int, timeout_ms: int) -> None:
        self._pending.fail(
            opaque,
            RequestTimedOut(
                f"request code {code} to {self._address}: no answer within {timeout_ms} ms"
            ),
        )

    def _settled(
        self, opaque: int, timer: asyncio.TimerHandle, answered: asyncio.Future[RemotingCommand]
    ) -> None:
        """Answered, failed or given up."""
        timer.cancel()
        if answered.cancelled():
            self._pending.forget(opaque)

    def _queue(self, command: RemotingCommand) -> None:
        if not self._closed:
            head, body = encode_parts(command)
            frame_bytes = len(head) + len(body)
            part: Part = body
            if command.pieces:
                part = (body, *command.pieces)
                frame_bytes += sum(map(len, command.pieces))
            self._queued_bytes += frame_bytes
            if self._queued_bytes > CONNECTION_OUTPUT_BYTES_MAX:  # In one turn: it asked for this.
                self._cut_off()
            else:
                self._turn.add(self, head, part, frame_bytes)

    def _end(self, request: RemotingCommand) -> None:
        """Nothing of the request is counted any more."""
        self._request_bytes -= request.kept_bytes
        request.kept_bytes = 0
        if not self._is_dispatching:
            self._count_requests()

    def _cut_off(self) -> None:
        _log.warning(
            "connection %s is cut off: over %d bytes wait for it to read",
            self._address,
            CONNECTION_OUTPUT_BYTES_MAX,
        )
        self.abort()

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._on_protocol_error(self, error)
        self.close(f"it sent no frame of ours: {error}", level=logging.WARNING)

    # What is reported to the party's load.

    def _count_input(self, *, begins_anew: bool) -> None:
        """After a read: requests that are under way, and the frame that is not complete."""
        load = self._load
        if load is None:
            return
        self._count_requests()
        if load.is_crowded_by(self):
            self._pause(_Pause.CROWD)
        buffered = self._decoder.buffered_bytes
        if buffered != self.unfinished_bytes:
            if begins_anew or not self.unfinished_bytes:
                self.unfinished_since_ms = self._steady_ms()
            change, self.unfinished_bytes = buffered - self.unfinished_bytes, buffered
            load.add_unfinished(self, change)

    def _count_requests(self) -> None:
        load, request_bytes = self._load, self._request_bytes
        if load is None:
            return
        if request_bytes != self._reported_request_bytes:
            change, self._reported_request_bytes = (
                request_bytes - self._reported_request_bytes,
                request_bytes,
            )
            load.add_requests(change)
        if request_bytes > CONNECTION_REQUEST_BYTES_MAX:
            self._pause(_Pause.REQUESTS)
        elif self._pauses and request_bytes <= CONNECTION_REQUEST_BYTES_MAX // 2:
            self._resume(_Pause.REQUESTS)

    def _count_output(self, waiting_bytes: int) -> None:
        load = self._load
        if load is None or self._closed:
            return
        change, self._output_bytes = waiting_bytes - self._output_bytes, waiting_bytes
        if load.add_output(change) and change > 0:
            self.evict("the readers of this server leave too much unread together")
        elif waiting_bytes > CONNECTION_OUTPUT_PAUSE_BYTES:
            self._pause(_Pause.OUTPUT)

    def _give_back(self, load: Load) -> None:
        """What this end held, once; requests under way are given back as they end."""
        unfinished, self.unfinished_bytes = self.unfinished_bytes, 0
        output, self._output_bytes = self._output_bytes, 0
        load.add_unfinished(self, -unfinished)
        load.add_output(-output)
        load.forget(self)

    def _pause(self, why: _Pause) -> None:
        if not self._pauses and self._transport is not None and not self._closed:
            self._transport.pause_reading()
        self._pauses |= why

    def _resume(self, why: _Pause) -> None:
        if self._pauses:
            self._pauses &= ~why
            if not self._pauses and self._transport is not None and not self._closed:
                self._transport.resume_reading()


async def close_all(connections: Sequence[Connection], reason: str) -> None:
    """Close them and wait until all are gone; cut off those that take too long to read the rest."""
    for connection in connections:
        connection.close(reason)
    try:
        async with asyncio.timeout(CLOSE_PATIENCE_MS / 1000):
            for connection in connections:
                await connection.gone()
    except TimeoutError:
        for connection in connections:
            connection.abort()
        await asyncio.sleep(0)  # The loop shows their end in its next pass.


def _text(address: object) -> str:
    if not isinstance(address, tuple):
        return "?"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
