"""Runs a name server, which serves its routing tables and expires silent brokers.

Place in the walk: brokers and clients find each other here. It keeps nothing that brokers do not
send again within seconds; only the key-value settings may have a file.

Invariant: a broker whose connection ends or that stays silent leaves the routes at once. Absent on
purpose: any other name server; clients and brokers know them all.
"""

from __future__ import annotations

import asyncio
import logging

from engine.foundation.config_layers import Origin
from engine.foundation.errors import StorageError
from engine.foundation.observing import SilentObserver
from engine.foundation.units import SECOND_MS
from engine.namesrv.config import NameServerConfig
from engine.namesrv.handlers import ConfigHandlers, NameServerHandlers
from engine.namesrv.key_values import KeyValues
from engine.namesrv.routes import Routes
from engine.remoting import Peer, RpcServer
from engine.runtime import Runtime
from engine.store.table_file import TableFile

_log = logging.getLogger(__name__)


class NameServer:
    """One name server. `start`, then `wait` or go on, then `stop`."""

    def __init__(
        self, runtime: Runtime, config: NameServerConfig, origin: Origin | None = None
    ) -> None:
        self._clock = runtime.clock
        self.config = config
        """The settings in force."""
        self.routes = Routes()
        """The tables, for whoever looks inside."""
        self._key_values = KeyValues()
        self._key_values_changed = asyncio.Event()
        self._kv_file = None if config.kv_path is None else TableFile(runtime, config.kv_path)
        handlers = NameServerHandlers(
            self.routes,
            self._key_values,
            now_ms=runtime.clock.steady_ms,
            key_values_changed=self._key_values_changed.set,
            orders_in_routes=lambda: self.config.order_message_enable,
        )
        settings = ConfigHandlers(
            runtime, config, origin or Origin(), in_force=self._change_settings
        )
        table = handlers.handlers() | settings.handlers()
        self._server = RpcServer(
            runtime,
            table,
            on_lost=self._lost,
            gate=config.access.gate(),
            tls=config.access.server_tls,
            connections_max=config.connections_max,
        )
        self._loops: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Open the port and return it. Raises ConfigError when it is taken."""
        if self._kv_file is not None:
            self._kv_file.load(SilentObserver(), self._key_values.load)
        port = await self._server.start(self.config.host, self.config.port)
        self._loops = asyncio.create_task(self._run_loops(), name="name server loops")
        return port

    async def wait(self) -> None:
        """Return never, while all goes well; raise what ended one of the loops."""
        assert self._loops is not None, "the name server has not started"
        await self._loops

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._loops is not None:
            self._loops.cancel()
            await asyncio.gather(self._loops, return_exceptions=True)
            self._loops = None
        await self._server.stop()

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._expire_brokers(), name="expire brokers")
            loops.create_task(self._save_key_values(), name="save key values")
            loops.create_task(self._server.failed(), name="broken invariants")

    async def _expire_brokers(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_interval_ms / SECOND_MS)
            for address in self.routes.expire(self._clock.steady_ms()):
                _log.warning("broker %s is silent and leaves the routes", address)

    async def _save_key_values(self) -> None:
        while True:
            await self._key_values_changed.wait()
            self._key_values_changed.clear()
            if self._kv_file is None:
                continue
            try:
                await self._kv_file.write(self._key_values.to_document())
            except StorageError as error:
                _log.warning("key-value settings are not saved yet: %s", error)
                self._key_values_changed.set()
                await asyncio.sleep(1)

    def _change_settings(self, config: NameServerConfig) -> None:
        self.config = config

    def _lost(self, peer: Peer) -> None:
        for address in self.routes.lost(peer):
            _log.warning("broker %s is disconnected and leaves the routes", address)
