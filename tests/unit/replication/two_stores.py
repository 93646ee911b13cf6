"""A master's store and a slave's, joined by a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.replication import Acknowledgements, Following, HaClient, HaService, MasterAddress
from engine.runtime import system_runtime
from engine.runtime.disk import SystemDisk
from engine.store import MessageStore
from tests.store_support import draft, open_store, runtime_on, small_config

FILE_BYTES = 4096
LOOPBACK = "127.0.0.1"


async def eventually(condition: Callable[[], bool], *, within_s: float = 15) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - it is about threads of the kernel.
            await asyncio.sleep(0.005)


def log_bytes(store: MessageStore) -> bytes:
    """The log from its first byte to its end, with the blanks between files."""
    begin = store.physical_min - store.physical_min % FILE_BYTES
    starts = range(begin, store.physical_max, FILE_BYTES)
    whole = b"".join(bytes(store._log.file_view(start)) for start in starts)
    return whole[: store.physical_max - begin]


@dataclass
class Pair:
    """A master, whose slave comes and goes."""

    master: MessageStore
    slave: MessageStore
    service: HaService
    acknowledgements: Acknowledgements
    port: int
    client: HaClient
    following: asyncio.Task[None] | None = None

    async def find_master(self) -> MasterAddress | None:
        return MasterAddress(
            LOOPBACK, self.port, self.master.physical_min, self.master.physical_max
        )

    def follow(self) -> None:
        self.following = asyncio.create_task(self.client.run())

    async def leave(self) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.gather(self.following, return_exceptions=True)
            self.following = None
        await eventually(lambda: not list(self.service.replicas()))

    async def caught_up(self) -> None:
        await eventually(lambda: self.slave.physical_max == self.master.physical_max)

    def put(self, *bodies: bytes) -> int:
        """Where the log ends then."""
        for number, body in enumerate(bodies):
            self.master.put(draft(body, queue_id=number % 3))
        self.service.wake()
        return self.master.physical_max

    def is_diverged(self) -> bool:
        return self.client.following is Following.DIVERGED


@asynccontextmanager
async def pair(
    root: Path, *, needed: int = 1, disk: SystemDisk | None = None, **settings: Any
) -> AsyncIterator[Pair]:
    """Stores of both, and the master's port; the slave does not follow yet."""
    runtime = system_runtime()
    master = await open_store(small_config(root / "master"))
    slave = await open_store(small_config(root / "slave", **settings), runtime=runtime_on(disk))
    acknowledgements = Acknowledgements(needed=needed, timeout_ms=500)
    service = HaService(runtime, master, acknowledgements)
    port = await service.start(LOOPBACK, 0, None)
    ticking = asyncio.create_task(service.run())
    stage = Pair(master, slave, service, acknowledgements, port, None)  # type: ignore[arg-type]
    stage.client = HaClient(
        runtime, slave, find_master=stage.find_master, is_slave=lambda: True, tls=None
    )
    try:
        yield stage
    finally:
        if stage.following is not None:
            await stage.leave()
        ticking.cancel()
        await service.stop()
        await master.close()
        await slave.close()
