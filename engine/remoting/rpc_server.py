"""The listening side: accepts connections, runs handlers, answers in turns.

Place in the walk: where bytes of the network become requests of a name server or broker. Invariant:
every answer of the process passes through the turn (see `engine.remoting.turn`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from engine.foundation.errors import ProtocolError
from engine.foundation.limits import CONNECTIONS_MAX
from engine.foundation.units import SECOND_MS
from engine.remoting.connection import READ_BUFFER_BYTES, Connection, Peer, close_all
from engine.remoting.dispatcher import Dispatcher, Handler
from engine.remoting.turn import Turn
from engine.runtime import Runtime
from engine.runtime.network import Listener

IDLE_MS_MAX: Final = 120 * SECOND_MS
"""A connection that says nothing for this long is closed (RocketMQ: 120 s)."""
IDLE_CHECK_MS: Final = 10 * SECOND_MS


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
    ) -> None:
        self._runtime = runtime
        self._dispatcher = Dispatcher(handlers)
        self._on_lost = on_lost
        self._on_protocol_error = on_protocol_error
        self._idle_ms_max = idle_ms_max
        self._idle_check_ms = idle_check_ms
        self._connections_max = connections_max
        self.turn: Final = Turn(before_answers)
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._connections: dict[Connection, None] = {}
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, host: str, port: int) -> int:
        """Listen on host:port too; return the port in use. Raises ConfigError when it is taken."""
        listener = await self._runtime.network.listen(host, port, self._accept)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="idle connections")
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
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._dispatcher.stop()
        self.turn.end()
        await close_all(list(self._connections), "the server stops")
        self.turn.end()

    def peers(self) -> list[Peer]:
        """Everybody connected, in the order in which they came."""
        return list(self._connections)

    def _accept(self) -> Connection:
        return Connection(
            turn=self.turn,
            buffer=self._buffer,
            steady_ms=self._runtime.clock.steady_ms,
            on_made=self._made,
            on_command=self._dispatcher.dispatch,
            on_lost=self._lost,
            on_protocol_error=self._on_protocol_error,
        )

    def _made(self, connection: Connection) -> None:
        self._connections[connection] = None
        if self._stopping:
            connection.close("the server stops")
        elif len(self._connections) > self._connections_max:
            connection.close(f"{self._connections_max} are open already", level=logging.WARNING)

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._on_lost(connection)
        self.turn.open()  # What the party observed of the end is reported now.

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_check_ms / 1000)
            oldest_ms = self._runtime.clock.steady_ms() - self._idle_ms_max
            for connection in list(self._connections):
                if connection.closed:
                    connection.abort()  # It had an interval to take what was left for it.
                elif connection.last_heard_ms < oldest_ms:
                    connection.close(f"nothing heard for {self._idle_ms_max} ms")
