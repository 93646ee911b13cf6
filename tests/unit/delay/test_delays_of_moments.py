"""The port of delays with another implementer: messages wait for a moment of its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from pathlib import Path

import pytest

from engine.delay import DelayLevels, DelayService
from engine.delay.delays import Delays, Due
from engine.delay.waiting_messages import scheduled
from engine.foundation.errors import WritesStopped
from engine.store import MessageDraft, MessageStore
from engine.store.record import DispatchRequest
from engine.store.table_file import TableFile
from tests.store_support import (
    HandClock,
    Listener,
    draft,
    messages_of,
    open_store,
    runtime_on,
    small_config,
)

TIMER_TOPIC = "rmq_sys_wheel_timer"


class MomentDelays:
    """What waits for a moment of the clock on the wall, found by its record alone."""

    def __init__(self, store: MessageStore, clock: HandClock) -> None:
        self._store, self._clock = store, clock
        self._waiting: list[tuple[int, int, int]] = []

    def park(self, draft: MessageDraft, wait: int) -> MessageDraft:
        scheduled(draft, 1)
        draft.topic, draft.properties = TIMER_TOPIC, f"{draft.properties!s}DUE\x01{wait}\x02"
        return draft

    def on_stored(self, requests: Sequence[DispatchRequest]) -> None:
        for one in requests:
            if one.topic == TIMER_TOPIC:
                due_ms = int(one.properties.decode().split("DUE\x01")[1].rstrip("\x02"))
                heappush(self._waiting, (due_ms, one.physical_offset, one.size_bytes))

    def due(self) -> Iterator[Due | None]:
        while self._waiting and self._waiting[0][0] <= self._clock.now_ms():
            due_ms, place, size_bytes = self._waiting[0]
            record = self._store.bytes_at(place, size_bytes)
            assert record is not None
            yield Due(TIMER_TOPIC, f"the timer of {due_ms}", due_ms, place, record)
            heappop(self._waiting)
            yield None

    def floor(self) -> int:
        return min((place for _, place, _ in self._waiting), default=self._store.physical_max)


class Bench:
    """A store with both kinds of delays, each with its own clock."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self.listener = store, Listener()
        self.moments_clock, self.letters = HandClock(), list[str]()
        self.moments = MomentDelays(store, self.moments_clock)
        store.on_arrival(self.moments.on_stored)
        self.by_moment = self.service_of(self.moments)

    def service_of(self, delays: Delays[int]) -> DelayService:
        return DelayService(
            self.store, delays, observer=self.listener, make_dead_letter_topic=self.letters.append
        )

    async def put(self, body: bytes, due_ms: int) -> int:
        put = self.store.put(self.moments.park(draft(body), due_ms))
        await asyncio.sleep(0)
        return put.physical_offset

    async def at(self, moment_ms: int) -> list[bytes]:
        """What was delivered by then, oldest first."""
        self.moments_clock.value_ms = moment_ms
        await self.by_moment.deliver_due()
        await asyncio.sleep(0)
        return [message.body for message in messages_of(self.store)]


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    store = await open_store(small_config(folder))
    try:
        yield Bench(store)
    finally:
        await store.close()


async def test_messages_are_delivered_at_their_moments_whatever_the_order_of_their_puts(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as a_bench:
        await a_bench.put(b"later", 2000)
        await a_bench.put(b"sooner", 1000)
        assert await a_bench.at(999) == []
        assert await a_bench.at(1000) == [b"sooner"]
        assert await a_bench.at(2000) == [b"sooner", b"later"]


async def test_the_floor_is_the_oldest_record_that_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as a_bench:
        first = await a_bench.put(b"later", 2000)
        await a_bench.put(b"sooner", 1000)
        await a_bench.at(1000)
        assert a_bench.moments.floor() == first
        await a_bench.at(2000)
        assert a_bench.moments.floor() == a_bench.store.physical_max


async def test_what_the_store_does_not_take_stays_due(tmp_path: Path) -> None:
    async with bench(tmp_path) as a_bench:
        await a_bench.put(b"a", 1000)
        a_bench.store.retention.stop_writes = True
        with pytest.raises(WritesStopped):
            await a_bench.at(1000)
        a_bench.store.retention.stop_writes = False
        assert await a_bench.at(1000) == [b"a"]


async def test_what_cannot_be_delivered_is_buried_and_holds_nobody_up(tmp_path: Path) -> None:
    async with bench(tmp_path) as a_bench:
        lost = a_bench.moments.park(draft(b"lost"), 1000)
        lost.properties = str(lost.properties).replace("REAL_QID\x010", "REAL_QID\x01-1")
        a_bench.store.put(lost)
        await a_bench.put(b"next", 1001)
        assert await a_bench.at(1001) == [b"next"]
        (event,) = a_bench.listener.lifecycle("UNDELIVERABLE_MESSAGE")
        assert "the timer of 1000" in str(event.detail)


async def test_levels_and_moments_wait_side_by_side_each_by_its_clock(tmp_path: Path) -> None:
    async with bench(tmp_path) as a_bench:
        clock = HandClock()
        levels = levels_of(a_bench.store, clock, tmp_path)
        by_level = a_bench.service_of(levels)
        waits = a_bench.store.put(levels.park(draft(b"level"), 1)).physical_offset
        await a_bench.put(b"moment", 10**15)
        assert await a_bench.at(10**15) == [b"moment"]
        assert levels.floor() == waits, "the other clock says nothing of it"
        clock.value_ms += 1000
        assert await by_level.deliver_due() == 1
        assert levels.floor() == a_bench.store.physical_max
        await asyncio.sleep(0)
        assert [message.body for message in messages_of(a_bench.store)] == [b"moment", b"level"]


def levels_of(store: MessageStore, clock: HandClock, folder: Path) -> DelayLevels:
    runtime = runtime_on(clock=clock)
    return DelayLevels(
        runtime,
        store,
        levels_ms=(1000,),
        cursor_file=TableFile(runtime, str(folder / "delayOffset.json")),
        observer=Listener(),
    )
