"""RPC client that keeps one connection per address, times out requests and answers pushes.

Place in the walk: the first step out of producers, consumers and administration, and the broker's
way to its name servers.

Invariant: at most one connection per address at a time; callers that need it while it is being
made share the attempt. With credentials nothing is asked unsigned, also not by a handler that was
given the connection as its peer. Absent on purpose: retries, which only the caller can judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.foundation.errors import ConnectFailed, ProtocolError, TidemarkError
from engine.foundation.limits import FRAME_BYTES_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.command import RemotingCommand
from engine.remoting.connection import READ_BUFFER_BYTES, Connection, close_all
from engine.remoting.dispatcher import Dispatcher, Handler
from engine.remoting.signing import Signer
from engine.remoting.turn import Turn
from engine.runtime import ClientTls, Runtime

CONNECT_TIMEOUT_MS: Final = 3 * SECOND_MS


def _nothing() -> None:
    """A client reports nothing before it sends."""


def _nobody(address: str) -> None:
    del address


class RpcClient:
    """Connections of one client to any number of servers."""

    def __init__(
        self,
        runtime: Runtime,
        handlers: Mapping[int, Handler] | None = None,
        *,
        on_lost: Callable[[str], None] = _nobody,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Signer | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """`handlers` serve what servers push; `on_lost` hears the address of a connection's end.

        With `credentials` every request is signed, with `tls` every connection encrypted.
        """
        self._runtime = runtime
        self._dispatcher = Dispatcher(handlers or {})
        self._on_lost = on_lost
        self._connect_timeout_ms = connect_timeout_ms
        self._credentials = credentials
        self._tls = tls
        self._turn = Turn(_nothing)
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    async def invoke(
        self, address: str, command: RemotingCommand, *, timeout_ms: int
    ) -> RemotingCommand:
        """Ask the server at host:port; `timeout_ms` begins when there is a connection.

        Raises ConnectFailed, RequestTimedOut (outcome unknown) or ConnectionLost (outcome unknown).
        """
        connection = await self._connection(address)
        return await connection.invoke(command, timeout_ms=timeout_ms)

    def begin(
        self, address: str, command: RemotingCommand, *, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """As `invoke`, for who leaves a callback instead of waiting: thousands of requests may be
        under way without a task for each. All errors are the future's; cancelling it gives the
        answer up.
        """
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            try:
                return connection.begin(command, timeout_ms=timeout_ms)
            except TidemarkError as error:
                return _failed(error)
        try:
            attempt = self._attempt_at(address)
        except ConnectFailed as error:
            return _failed(error)
        answered: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        attempt.add_done_callback(
            lambda ended: self._begin_over(ended, command, timeout_ms, answered)
        )
        return answered

    async def invoke_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send the server something that has no answer. Raises ConnectFailed."""
        connection = await self._connection(address)
        connection.send(command)

    def post(self, address: str, command: RemotingCommand) -> bool:
        """Send something that has no answer, if there is a connection; was there one? Hot."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            return False
        connection.send(command)
        return True

    def when_connected(self, address: str, call: Callable[[], None]) -> None:
        """Connect, if need be, and have `call` made once that has ended, well or not."""
        try:
            attempt = self._attempt_at(address)
        except ConnectFailed:
            asyncio.get_running_loop().call_soon(call)
        else:
            attempt.add_done_callback(lambda _ended: call())

    def drop(self, address: str) -> None:
        """End the connection to this address, if there is one: nothing comes through it."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.abort()

    async def close(self) -> None:
        """End everything.

        Calls under way fail with ConnectionLost, those that wait for a connection with
        ConnectFailed.
        """
        self._closed = True
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        await self._dispatcher.stop()
        self._turn.finish()
        await close_all(list(self._connections.values()), "the client stops")

    async def _connection(self, address: str) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        attempt = self._attempt_at(address)
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if attempt.cancelled() and caller is not None and not caller.cancelling():
                # It is `close` that ended the attempt; nobody asked its caller to stop.
                raise _closed(address) from None
            raise

    def _attempt_at(self, address: str) -> asyncio.Task[Connection]:
        """The attempt to connect that all who need the connection share. Raises ConnectFailed."""
        if self._closed:
            raise _closed(address)
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(address), name=address)
            self._connecting[address] = attempt
            attempt.add_done_callback(self._attempt_ended)
        return attempt

    def _begin_over(
        self,
        attempt: asyncio.Task[Connection],
        command: RemotingCommand,
        timeout_ms: int,
        answered: asyncio.Future[RemotingCommand],
    ) -> None:
        """The attempt to connect has ended: ask, or pass its error on."""
        if answered.done():
            return  # Given up meanwhile.
        try:
            if attempt.cancelled():
                raise _closed(attempt.get_name())
            under_way = attempt.result().begin(command, timeout_ms=timeout_ms)
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked has to hear of it.
            answered.set_exception(error)
        else:
            under_way.add_done_callback(lambda ended: _pass_on(ended, answered))

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not port.isascii() or len(port) > 5:
            raise ConnectFailed(f"no connection to {address!r}: host:port is expected")
        protocol = await self._runtime.network.connect(
            host,
            int(port),
            lambda: self._make(address),
            timeout_ms=self._connect_timeout_ms,
            tls=self._tls,
        )
        assert isinstance(protocol, Connection)
        if protocol.closed:
            raise ConnectFailed(f"no connection to {address}: it ended at once")
        self._connections[address] = protocol
        return protocol

    def _attempt_ended(self, attempt: asyncio.Task[Connection]) -> None:
        """Every caller may have left before the attempt failed: its error is taken note of here."""
        del self._connecting[attempt.get_name()]
        if not attempt.cancelled():
            attempt.exception()

    def _make(self, address: str) -> Connection:
        return _ClientConnection(
            signer=self._credentials,
            turn=self._turn,
            buffer=self._buffer,
            steady_ms=self._runtime.clock.steady_ms,
            on_made=_ignore_made,
            on_command=self._dispatcher.dispatch,
            on_lost=lambda connection: self._lost(address, connection),
            on_protocol_error=_ignore_error,
            header_bytes_max=FRAME_BYTES_MAX,  # An answer to a batch lists its ids there.
        )

    def _lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        self._on_lost(address)


class _ClientConnection(Connection):
    """Signs whatever is asked over it, also by a handler of the client that was asked something."""

    def __init__(self, *, signer: Signer | None, **settings: Any) -> None:
        """None: nothing is signed."""
        super().__init__(**settings)
        self._signer = signer

    def send(self, command: RemotingCommand) -> None:
        """See `Peer.send`."""
        if self._signer is not None:
            self._signer.sign(command)
        Connection.send(self, command)

    def begin(
        self, command: RemotingCommand, *, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """See `Connection.begin`; `invoke` comes through here as well."""
        if self._signer is not None:
            self._signer.sign(command)
        return Connection.begin(self, command, timeout_ms=timeout_ms)


def _closed(address: str) -> ConnectFailed:
    return ConnectFailed(f"no connection to {address}: this client is closed")


def _failed(error: TidemarkError) -> asyncio.Future[RemotingCommand]:
    future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _pass_on(
    ended: asyncio.Future[RemotingCommand], answered: asyncio.Future[RemotingCommand]
) -> None:
    """What a request under way came to, for who asked before there was a connection."""
    if answered.done():
        return
    if ended.cancelled():
        answered.cancel()
    elif (error := ended.exception()) is not None:
        answered.set_exception(error)
    else:
        answered.set_result(ended.result())


def _ignore_made(connection: Connection) -> None:
    """Nothing is to be done before the first request."""
    del connection


def _ignore_error(connection: Connection, error: ProtocolError) -> None:
    """The connection closes itself; callers get ConnectionLost."""
    del connection, error
