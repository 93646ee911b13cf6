"""RPC server that accepts connections, runs handlers and sends responses in batches.

Place in the walk: where bytes of the network become requests of a name server or broker. Invariant:
every answer of the process passes through the turn (see `engine.remoting.turn`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, cast

from engine.foundation.errors import ProtocolError, TidemarkError
from engine.foundation.limits import (
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEADER_BYTES_MAX,
    LOOP_STEP_ANSWERS_MAX,
    STRANGER_HEADER_BYTES_MAX,
)
from engine.foundation.units import SECOND_MS
from engine.protocol.body_limits import BODY_BYTES_ALWAYS_READ, check_body_length
from engine.protocol.command import RemotingCommand
from engine.remoting.accounts import LOOK_MS
from engine.remoting.connection import READ_BUFFER_BYTES, Connection, close_all
from engine.remoting.dispatcher import Dispatcher, Handler, answer_to
from engine.remoting.gate import Gate
from engine.remoting.latencies import Latencies, MeasuredConnection, MeasuredTurn
from engine.remoting.load import Load
from engine.remoting.peer import Peer
from engine.runtime import Runtime, ServerTls
from engine.runtime.network import Listener

IDLE_MS_MAX: Final = 120 * SECOND_MS
"""A connection that says nothing for this long is closed (RocketMQ: 120 s)."""
IDLE_CHECK_MS: Final = 10 * SECOND_MS

_OnCommand = Callable[[Connection, RemotingCommand], None]

_log = logging.getLogger(__name__)


def _nothing() -> None:
    """No facts are to be written."""


def _nobody(peer: Peer) -> None:
    del peer


def _unreported(peer: Peer, error: ProtocolError) -> None:
    del peer, error


class RpcServer:
    """One party's listening ports. `before_answers` runs once per turn, before answers leave."""

    def __init__(
        self,
        runtime: Runtime,
        handlers: Mapping[int, Handler],
        *,
        before_answers: Callable[[], None] = _nothing,
        on_lost: Callable[[Peer], None] = _nobody,
        on_protocol_error: Callable[[Peer, ProtocolError], None] = _unreported,
        idle_ms_max: int = IDLE_MS_MAX,
        idle_check_ms: int = IDLE_CHECK_MS,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX,
        load: Load | None = None,
        latencies: Latencies | None = None,
        gate: Gate | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """`gate` says who may pass; without one everybody may. `tls` encrypts the ports. How long
        answers take is counted in `latencies`.
        """
        self._runtime = runtime
        self._dispatcher = Dispatcher(handlers, ends_when_broken=True)
        self._gate = gate
        self._tls = tls
        self._on_lost = on_lost
        self._on_protocol_error = on_protocol_error
        self._idle_ms_max = idle_ms_max
        self._idle_check_ms = idle_check_ms
        self._connections_max = connections_max
        self._connections_per_address_max = connections_per_address_max
        self._per_address: dict[str, int] = {}
        self.load: Final = load or Load()
        self.turn: Final = MeasuredTurn(
            before_answers, latencies or Latencies(), runtime.clock.steady_us
        )
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._connections: dict[Connection, None] = {}
        self._listeners: list[Listener] = []
        self._minding: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self, host: str, port: int) -> int:
        """Listen on host:port too; return the port in use. Raises ConfigError when it is taken."""
        listener = await self._runtime.network.listen(host, port, self._accept, tls=self._tls)
        self._listeners.append(listener)
        if not self._minding:
            self._minding.append(asyncio.create_task(self._sweep(), name="idle connections"))
            if self._gate is not None and self._gate.look is not None:
                look = _watch(self._gate.look)
                self._minding.append(asyncio.create_task(look, name="accounts"))
        return listener.port

    async def stop_listening(self) -> None:
        """Accept nobody any more; those connected are still served."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()

    async def stop(self) -> None:
        """Send what is queued, close every connection, end every handler.

        What the party observes of that is reported before this returns, and nothing afterwards.
        """
        self._stopping = True
        await self.stop_listening()
        for minding in self._minding:
            minding.cancel()
        await asyncio.gather(*self._minding, return_exceptions=True)
        await self._dispatcher.stop()
        self.turn.finish()
        await close_all(list(self._connections), "the server stops")
        self.turn.finish()

    async def failed(self) -> None:
        """See `Dispatcher.failed`."""
        await self._dispatcher.failed()

    def peers(self) -> list[Peer]:
        """Everybody connected, in the order in which they came."""
        return list(self._connections)

    def _accept(self) -> Connection:
        gate = self._gate
        strangers = gate is not None and gate.has_accounts
        connection = MeasuredConnection(
            turn=self.turn,
            buffer=self._buffer,
            steady_ms=self._runtime.clock.steady_ms,
            on_made=self._made,
            on_command=cast("_OnCommand", self._admit),  # All connections are ours, and measured.
            on_lost=self._lost,
            on_protocol_error=self._on_protocol_error,
            header_bytes_max=STRANGER_HEADER_BYTES_MAX if strangers else HEADER_BYTES_MAX,
            load=self.load,
        )
        return connection.measured_in(self.turn)

    def _admit(self, connection: MeasuredConnection, request: RemotingCommand) -> None:
        """To its handler when the gate lets it pass; else the refusal is its answer. Hot."""
        turn = self.turn
        if not turn.began_us:
            turn.began_us = turn.steady_us()
        connection.is_answered = False
        gate = self._gate
        is_open = gate is None or (
            request.code in gate.open_codes and len(request.body) <= BODY_BYTES_ALWAYS_READ
        )
        if is_open or self._passes(connection, request):
            self._dispatcher.dispatch(connection, request)
        if not connection.is_answered:
            connection.answered_later(request)

    def _passes(self, connection: Connection, request: RemotingCommand) -> bool:
        gate = self._gate
        if gate is None:
            return True
        try:
            check_body_length(request)  # Before the gate, which may look into it.
            if request.code not in gate.open_codes:
                gate.check(connection, request)
        except TidemarkError as error:
            if not connection.is_refusal_logged:  # Once a connection: a log is no place for floods.
                connection.is_refusal_logged = True
                _log.warning("refused %s: %s", connection.address, error)
            connection.answer(request, answer_to(request, error))
            return False
        if not connection.is_known:
            connection.know()
        return True

    def _made(self, connection: Connection) -> None:
        self._connections[connection] = None
        host = _host(connection)
        count = self._per_address[host] = self._per_address.get(host, 0) + 1
        if self._stopping:
            connection.close("the server stops")
        elif len(self._connections) > self._connections_max:
            connection.close(f"{self._connections_max} are open already", level=logging.WARNING)
        elif count > self._connections_per_address_max:
            connection.close(
                f"{self._connections_per_address_max} are open from {host} already",
                level=logging.WARNING,
            )

    def _lost(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            host = _host(connection)
            self._per_address[host] -= 1
            if not self._per_address[host]:
                del self._per_address[host]
        self._on_lost(connection)
        self.turn.open()  # What the party observed of the end is reported now.

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_check_ms / 1000)
            await self._close_silent()

    async def _close_silent(self) -> None:
        oldest_ms = self._runtime.clock.steady_ms() - self._idle_ms_max
        for number, connection in enumerate(list(self._connections), 1):
            if not number % LOOP_STEP_ANSWERS_MAX:  # To close one costs what an answer does.
                await asyncio.sleep(0)
            if connection.closed:
                connection.abort()  # It had an interval to take what was left for it.
            elif connection.last_heard_ms < oldest_ms:
                connection.close(f"nothing heard for {self._idle_ms_max} ms")


async def _watch(look: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_MS / 1000)
        look()


def _host(connection: Connection) -> str:
    return connection.address.rpartition(":")[0]
