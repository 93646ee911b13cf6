"""A master and its slaves in this process, with one name server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.broker.broker import Broker
from engine.broker.config import BrokerRole
from engine.broker.offsets.topic_lives import NEW_STORE_MS
from engine.runtime import system_runtime
from engine.store import MessageStore
from tests.integration.broker.cluster import Cluster, broker_config, cluster, eventually


@dataclass
class Replicated:
    """The running parts."""

    master: Cluster
    slave: Broker | None
    folder: Path
    settings: dict[str, Any]
    role: BrokerRole
    again: Broker | None = None
    """The master, when it was started again."""

    async def start_master_again(self) -> Broker:
        """The master comes back, configured as it was; its store has been there for long."""
        config = broker_config(
            self.folder / "master",
            broker_role=self.role,
            namesrv_addresses=(self.master.name_server_address,),
            **{"in_sync_replicas": 2, **self.settings},
        )
        self.again = Broker(system_runtime(), config)
        await self.again.start()
        state = self.again.state
        state.lives.grow_older(state.clock.steady_ms() + NEW_STORE_MS)
        return self.again

    async def start_slave(self) -> Broker:
        config = broker_config(
            self.folder / "slave",
            broker_role=BrokerRole.SLAVE,
            broker_id=1,
            namesrv_addresses=(self.master.name_server_address,),
            **self.settings,
        )
        self.slave = Broker(system_runtime(), config)
        await self.slave.start()
        return self.slave

    async def stop_slave(self) -> None:
        if self.slave is not None:
            await self.slave.stop()
            self.slave = None

    async def stop(self) -> None:
        """Stop what the cluster does not know."""
        await self.stop_slave()
        if self.again is not None:
            await self.again.stop()

    async def caught_up(self) -> None:
        async def same_end() -> bool:
            assert self.slave is not None
            ours, theirs = self.master.broker.state.store, self.slave.state.store
            return ours.physical_max == theirs.physical_max

        await eventually(same_end, "the slave has the master's log")


def log_of(store: MessageStore) -> bytes:
    """Every byte of the log."""
    at, parts = store.physical_min, list[bytes]()
    while at < store.physical_max:
        size = min(store.room_in_file(at), store.physical_max - at)
        view = store.bytes_at(at, size)
        assert view is not None
        parts.append(bytes(view))
        at += size
    return b"".join(parts)


@asynccontextmanager
async def replicated(
    folder: Path, role: BrokerRole = BrokerRole.SYNC_MASTER, **settings: Any
) -> AsyncIterator[Replicated]:
    """A master with one slave."""
    async with AsyncExitStack() as stack:
        config = broker_config(
            folder / "master", broker_role=role, **{"in_sync_replicas": 2, **settings}
        )
        master = await stack.enter_async_context(cluster(config))
        stage = Replicated(master, None, folder, settings, role)
        stack.push_async_callback(stage.stop)
        await stage.start_slave()
        yield stage
