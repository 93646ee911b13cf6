"""A time wheel over a real store, with a clock set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from engine.delay import DelayService, TimeWheel
from engine.protocol.properties import encode_properties
from engine.store import MessageStore
from engine.store.record_writing import PutResult
from engine.store.table_file import TableFile
from tests.store_support import (
    HandClock,
    Listener,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    until,
)


class WheelBench:
    """One life of a store with its wheel."""

    def __init__(self, store: MessageStore, clock: HandClock, folder: Path) -> None:
        self.store, self.clock, self.listener = store, clock, Listener()
        self.letters: list[str] = []
        self.seal = crc32(store.store_id.encode())
        runtime = runtime_on(clock=clock)
        self.folder = folder / "delaylog"
        self.snapshot = folder / "config" / "timerWheel.json"
        self.wheel = TimeWheel(
            runtime,
            store,
            folder=str(self.folder),
            snapshot=TableFile(runtime, str(self.snapshot), store.store_id),
            rocketmq_path=str(folder / "config" / "timercheck"),
            observer=self.listener,
        )
        self.service = DelayService(
            store,
            self.wheel,
            observer=self.listener,
            make_dead_letter_topic=self.letters.append,
        )

    def put(self, body: bytes, due_ms: int, **properties: str) -> PutResult:
        """A message for the topic of `draft` that waits until then."""
        waiting = draft(body)
        waiting.properties = encode_properties({"UNIQ_KEY": body.decode()} | properties)
        self.wheel.park(waiting, due_ms)
        put = self.store.put(waiting)
        self.wheel.announce(waiting, put.physical_offset)
        return put

    def cancel(self, body: bytes, due_ms: int) -> PutResult:
        """Cancel the timer with this body that is due then."""
        topic = draft(b"").topic
        return self.put(
            b"0", due_ms, UNIQ_KEY=body.decode(), TIMER_DEL_UNIQKEY=f"{topic}+{body.decode()}"
        )

    async def pass_to(self, moment_ms: int) -> list[bytes]:
        """Let it be that time, and return all that was delivered by then, oldest first."""
        self.clock.value_ms = max(self.clock.value_ms, moment_ms)
        await self.turn()
        await self.service.deliver_due()
        await self.turn()
        return bodies_of(self.store)

    async def turn(self) -> None:
        """Let dispatch hand over what was put."""
        await until(lambda: not self.store.dispatch_behind_bytes)
        await asyncio.sleep(0)


@asynccontextmanager
async def wheel_bench(
    folder: Path, clock: HandClock | None = None, **config: Any
) -> AsyncIterator[WheelBench]:
    """The next life of the store in this folder."""
    store = await open_store(
        small_config(folder, **({"max_transfer_count_in_memory": 10_000} | config))
    )
    try:
        bench = WheelBench(store, clock or HandClock(), folder)
        await bench.wheel.follow_log()
        yield bench
    finally:
        await store.close()
