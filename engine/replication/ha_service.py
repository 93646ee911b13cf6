"""A master's HA service, which sends the commit log to its slaves as it grows.

Place in the walk: behind every put; `acknowledgements` hears how far each slave has it.

A slave begins by reporting where it is. It is sent what follows, and sends its end whenever it has
stored something. What it reports counts only up to what it was sent on this connection: a log that
is longer than the master's is another log.

Invariant: what is sent is what the log shows, in order; a slave that reads slowly costs no more
than its connection's buffer. A slave that is silent for SILENT_MS_MAX is given up. A slave whose
log ends before the master's begins is sent the log from there; one with nothing is sent all of it,
where RocketMQ's master sends its last file. Absent on purpose: who is master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from engine.foundation.errors import ProtocolError
from engine.foundation.limits import HA_TURN_BYTES, REPLICAS_MAX
from engine.foundation.units import KIB, SECOND_MS
from engine.replication.acknowledgements import Acknowledgements
from engine.replication.ha_frames import HEARTBEAT_MS, PIECE, SILENT_MS_MAX, TICK_MS, Reports
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.runtime.network import Listener
from engine.runtime.tls import ServerTls
from engine.store import MessageStore

PIECE_BYTES: Final = 256 * KIB
"""Sent under one header (RocketMQ: 32 KiB; its slaves take up to 4 MiB)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replica:
    """A connected slave."""

    address: str
    sent_end: int
    """Behind the last byte that was sent."""
    end: int | None
    """Behind the last byte that it has of what it was sent; None: it has said nothing of it yet."""
    bytes_per_second: int


class HaService:
    """Serves the slaves of one master."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        acknowledgements: Acknowledgements,
    ) -> None:
        self._runtime = runtime
        self.store = store
        self.acknowledgements = acknowledgements
        self._connections: dict[HaConnection, None] = {}
        self._listener: Listener | None = None
        self._planned = False
        acknowledgements.on_wait = self._plan

    async def start(self, host: str, port: int, tls: ServerTls | None) -> int:
        """Accept slaves; return the port in use. Raises ConfigError when it is taken."""
        self._listener = await self._runtime.network.listen(host, port, self._accept, tls=tls)
        return self._listener.port

    async def stop(self) -> None:
        """Serve no slave any more."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close("the master stops")

    def replicas(self) -> Iterator[Replica]:
        """The slaves that have reported where they are, in the order in which they came."""
        return (one.replica() for one in self._connections if one.has_begun)

    def wake(self) -> None:
        """Something was appended: have it sent in this turn of the loop. Hot."""
        if self._connections:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._planned = False
        self.acknowledgements.close_turn()
        for connection in list(self._connections):
            connection.send()

    async def run(self) -> None:
        """Send heartbeats and give up silent slaves, until cancelled."""
        while True:
            await asyncio.sleep(TICK_MS / SECOND_MS)
            now_ms = self._runtime.clock.steady_ms()
            for connection in list(self._connections):
                connection.tick(now_ms)

    def _accept(self) -> HaConnection:
        return HaConnection(self, self._runtime.clock)

    def connected(self, connection: HaConnection) -> bool:
        """Is there room for one more slave?"""
        if len(self._connections) >= REPLICAS_MAX:
            return False
        self._connections[connection] = None
        return True

    def lost(self, connection: HaConnection) -> None:
        """This slave is gone."""
        self._connections.pop(connection, None)
        self.acknowledgements.forget(connection)


class HaConnection(asyncio.Protocol):
    """One slave."""

    def __init__(self, service: HaService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._reports = Reports()
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._next: int | None = None
        self._begin = 0
        self._end: int | None = None
        self._paused = False
        self._sent_ms = self._heard_ms = clock.steady_ms()
        self._sent_bytes = self._sent_before = self._bytes_per_second = 0

    @property
    def has_begun(self) -> bool:
        """Has it reported where it is?"""
        return self._next is not None

    def replica(self) -> Replica:
        """How far it is."""
        return Replica(self._address, self._next or 0, self._end, self._bytes_per_second)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A slave is here."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HA_TURN_BYTES)
        peer = transport.get_extra_info("peername")
        self._address = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self._service.connected(self):
            self.close(f"{REPLICAS_MAX} slaves are connected already")

    def connection_lost(self, exc: Exception | None) -> None:
        """The slave is gone."""
        if self._transport is not None and self.has_begun:
            _log.warning("slave %s is gone: %s", self._address, exc or "it closed its connection")
        self._transport = None
        self._service.lost(self)

    def pause_writing(self) -> None:
        """Its buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """It has room again."""
        self._paused = False
        self.send()

    def data_received(self, data: bytes) -> None:
        """It reports."""
        self._heard_ms = self._clock.steady_ms()
        try:
            offset = self._reports.feed(data)
        except ProtocolError as error:
            self.close(str(error))
            return
        if offset is None or self._transport is None:
            return
        if self._next is None:
            self._follow_from(offset)
        elif self._begin < offset <= self._next:
            self._end = max(offset, self._end or 0)
            acknowledgements = self._service.acknowledgements
            acknowledgements.note(self, self._end)
            self._service.store.replicated_end = acknowledgements.replicated_end
        elif offset > self._next:
            self.close(f"it reports {offset}, and was sent what lies before {self._next} only")

    def _follow_from(self, offset: int) -> None:
        store = self._service.store
        if offset > store.physical_max:
            self.close(
                f"its log ends at {offset}, this master's at {store.physical_max}: "
                "one of them holds what the other never had"
            )
            return
        self._begin = self._next = max(offset, store.physical_min)
        _log.info("slave %s follows from %d", self._address, self._next)
        if self._begin != offset:
            _log.warning("slave %s has %d, the log begins at %d", self._address, offset, self._next)
        self._service.wake()
        self.send()

    def send(self) -> None:
        """Send what it has not been sent, as far as its buffer and one turn go. Hot."""
        transport, begin = self._transport, self._next
        if transport is None or begin is None or self._paused:
            return
        at = begin
        store = self._service.store
        end = min(store.physical_committed, store.visible_end, at + HA_TURN_BYTES)
        while at < end and not self._paused:
            size = min(PIECE_BYTES, end - at, store.room_in_file(at))
            view = store.bytes_at(at, size)
            if view is None:
                self.close(f"what begins at {at} is not in the log any more")
                return
            transport.writelines((PIECE.pack(at, size), view))
            at += size
        if at != begin:
            self._sent_bytes += at - begin
            self._sent_ms = self._clock.steady_ms()
            self._next = at
            if not self._paused and at < min(store.physical_committed, store.visible_end):
                asyncio.get_running_loop().call_soon(self.send)

    def tick(self, now_ms: int) -> None:
        """A second has passed."""
        self._bytes_per_second = self._sent_bytes - self._sent_before
        self._sent_before = self._sent_bytes
        if now_ms - self._heard_ms > SILENT_MS_MAX:
            self.close(f"it has said nothing for {SILENT_MS_MAX // SECOND_MS} s")
        elif self._transport is not None and self._next is not None:
            self.send()
            if now_ms - self._sent_ms >= HEARTBEAT_MS and not self._paused:
                self._sent_ms = now_ms
                self._transport.write(PIECE.pack(self._next, 0))

    def close(self, why: str) -> None:
        """Serve it no more."""
        if self._transport is not None:
            _log.warning("the connection of slave %s ends: %s", self._address, why)
            self._transport.abort()
            self._transport = None
            self._service.lost(self)
