"""A virtual network of named hosts with delay, loss, partitions, resets and crashes.

It carries byte streams as TCP does: in order and once, or the connection is lost. A lost segment
is therefore a delay (the retransmission), a partition holds bytes back and, when it lasts, resets
the connection on each side that tries to send. Chunks are cut at random places, because a stream
has no message borders.

Fault model, drawn from the world's seed: delay 0.1–2 ms, sometimes 50 ms; loss probability per
chunk adds 200 ms; `partition(a, b)` is two-way; `reset_after_ms` of silence under a partition
breaks the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.foundation.errors import ConfigError, ConnectFailed

if TYPE_CHECKING:
    from tests.simulation.world.world import World

RESET_AFTER_MS = 15_000
RETRANSMISSION_MS = 200


class SimListener:
    """An open port of a virtual host."""

    def __init__(self, network: VirtualNetwork, host: str, port: int) -> None:
        self._network = network
        self._key = (host, port)

    @property
    def port(self) -> int:
        return self._key[1]

    async def close(self) -> None:
        self._network.listeners.pop(self._key, None)


class SimTransport(asyncio.Transport):
    """One end of a connection. `other` is the far end; `inbox` holds chunks on their way to this
    end.
    """

    def __init__(self, network: VirtualNetwork, host: str, local: str, remote: str) -> None:
        super().__init__({"sockname": _address(local), "peername": _address(remote)})
        self._network = network
        self._loop = network.world.loop
        self.host = host
        self.protocol: Any = None
        self.other: SimTransport | None = None
        self._inbox: deque[tuple[float, bytes]] = deque()
        self._last_arrival_s = 0.0
        self._reading = True
        self._pumping = False
        self._closed = False
        self._lost = False

    # What the production code calls.
    def write(self, data: Any) -> None:
        if self._closed or self.other is None or not data:
            return
        self._network.carry(self, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._shut(None)

    def abort(self) -> None:
        self._shut(None)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._pump_later()

    def is_reading(self) -> bool:
        return self._reading

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    # What the network calls.
    def arrive(self, data: bytes, delay_s: float) -> None:
        """`data` will be readable after `delay_s`, never before what was sent earlier."""
        self._last_arrival_s = max(self._last_arrival_s, self._loop.time() + delay_s)
        self._inbox.append((self._last_arrival_s, data))
        self._pump_later()

    def _pump_later(self) -> None:
        if not self._pumping and self._inbox and self._reading:
            self._pumping = True
            self._loop.call_at(self._inbox[0][0], self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while self._inbox and self._reading and not self._closed:
            due_s, data = self._inbox[0]
            if due_s > self._loop.time():
                break
            self._inbox.popleft()
            self._deliver(data)
        if not self._closed:
            self._pump_later()

    def _deliver(self, data: bytes) -> None:
        self._network.world.trace_event("deliver", self.host, data)
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view:
                buffer = self.protocol.get_buffer(len(view))
                taken = min(len(buffer), len(view))
                buffer[:taken] = view[:taken]  # type: ignore[index]
                self.protocol.buffer_updated(taken)
                view = view[taken:]
        else:
            self.protocol.data_received(data)

    def _shut(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._network.transports.discard(self)
        self._loop.call_soon(self._connection_lost, error)
        if self.other is not None:
            self._network.notify_end(self, self.other)

    def lose(self, error: Exception | None) -> None:
        """The far end is gone."""
        if not self._closed:
            self._closed = True
            self._network.transports.discard(self)
            self._connection_lost(error)

    def vanish(self) -> None:
        """This end's host died: nobody here hears of it any more."""
        self._closed = self._lost = True
        self._network.transports.discard(self)

    def _connection_lost(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.protocol.connection_lost(error)


class VirtualNetwork:
    """All hosts' connections, and the faults between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], Callable[[], Any]] = {}
        self.transports = _OrderedSet()
        self.loss_percent = 0
        self._cut: dict[frozenset[str], None] = {}
        self._next_port = 40_000

    def partition(self, one: str, other: str) -> None:
        """No byte passes between two hosts until `heal`."""
        self._cut[frozenset((one, other))] = None

    def heal(self) -> None:
        """All hosts reach each other again."""
        self._cut.clear()

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cut

    def delay_s(self) -> float:
        choice = self.world.random
        delay_ms = choice.uniform(0.1, 2.0) if choice.random() < 0.97 else choice.uniform(2.0, 50.0)
        if self.loss_percent and choice.random() * 100 < self.loss_percent:
            delay_ms += RETRANSMISSION_MS
        return delay_ms / 1000

    def carry(self, sender: SimTransport, data: bytes) -> None:
        receiver = sender.other
        assert receiver is not None
        if self.is_cut(sender.host, receiver.host):
            self.world.loop.call_later(RESET_AFTER_MS / 1000, self._retry, sender, data)
            return
        if len(data) > 1 and self.world.random.random() < 0.3:
            cut = self.world.random.randrange(1, len(data))
            receiver.arrive(data[:cut], self.delay_s())
            data = data[cut:]
        receiver.arrive(data, self.delay_s())

    def _retry(self, sender: SimTransport, data: bytes) -> None:
        """Bytes held back by a partition for so long break the connection: TCP has given up."""
        del data
        if sender.other is not None and not sender.is_closing():
            other = sender.other
            sender.lose(ConnectionResetError("the peer did not acknowledge"))
            if not self.is_cut(sender.host, other.host):
                self.notify_end(sender, other)

    def notify_end(self, ended: SimTransport, other: SimTransport) -> None:
        """The far end hears of a clean end, once the cut that holds it back is healed."""
        if not self.is_cut(ended.host, other.host):
            self.world.loop.call_later(0.2, other.lose, None)
        elif not other.is_closing():
            self.world.loop.call_later(RETRANSMISSION_MS / 1000, self.notify_end, ended, other)

    def crash_host(self, host: str, *, resets: bool) -> None:
        """Everything of a host ends; far ends learn of it by a reset, or (power cut) only when
        they send.
        """
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]
        for transport in [t for t in self.transports if t.host == host]:
            other = transport.other
            transport.vanish()
            if other is not None and not other.is_closing():
                wait_s = 0.001 if resets else RESET_AFTER_MS / 1000
                self.world.loop.call_later(
                    wait_s, other.lose, ConnectionResetError("reset by peer")
                )

    def pair(
        self, client_host: str, server_host: str, port: int
    ) -> tuple[SimTransport, SimTransport]:
        self._next_port += 1
        here, there = f"{client_host}:{self._next_port}", f"{server_host}:{port}"
        near = SimTransport(self, client_host, here, there)
        far = SimTransport(self, server_host, there, here)
        near.other, far.other = far, near
        self.transports[near] = None
        self.transports[far] = None
        return near, far


class HostNetwork:
    """The network as one host sees it: the `Network` port of the engine."""

    def __init__(self, network: VirtualNetwork, host: str) -> None:
        self._network = network
        self._host = host

    def local_ip(self) -> str:
        return self._host

    async def listen(
        self, host: str, port: int, factory: Callable[[], Any], *, tls: object = None
    ) -> SimListener:
        assert tls is None, "nothing is encrypted here"
        del host  # A virtual host has one address: its own.
        if (self._host, port) in self._network.listeners:
            raise ConfigError("port", f"{self._host}:{port}", "a free port of this host")
        self._network.listeners[(self._host, port)] = factory
        return SimListener(self._network, self._host, port)

    async def connect(
        self,
        host: str,
        port: int,
        factory: Callable[[], Any],
        *,
        timeout_ms: int,
        tls: object = None,
    ) -> asyncio.BaseProtocol:
        assert tls is None, "nothing is encrypted here"
        network = self._network
        if network.is_cut(self._host, host):
            await asyncio.sleep(timeout_ms / 1000)
            raise ConnectFailed(f"no connection to {host}:{port} within {timeout_ms} ms")
        await asyncio.sleep(network.delay_s())
        accept = network.listeners.get((host, port))
        if accept is None:
            raise ConnectFailed(f"no connection to {host}:{port}: refused")
        near, far = network.pair(self._host, host, port)
        far.protocol = accept()
        far.protocol.connection_made(far)
        near.protocol = factory()
        near.protocol.connection_made(near)
        return near.protocol


class _OrderedSet(dict[SimTransport, None]):
    def discard(self, transport: SimTransport) -> None:
        self.pop(transport, None)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
