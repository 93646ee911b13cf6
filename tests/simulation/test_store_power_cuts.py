"""A store keeps the promise of each flush type through many kills and power cuts.

SYNC_FLUSH: every acknowledged message survives. ASYNC_FLUSH: what survives a power cut is a prefix
of the log that holds at least what was flushed, and all that was put longer ago than one flush
interval and one flush, however little that was; a kill loses nothing that was put, or, with the
transient pool, nothing that was committed. The last row of flush_checkpoints bounds what is lost
of what it counts, and recovery says how much (rows C4, C7).
"""

from __future__ import annotations

import asyncio

import pytest

from engine.runtime import Runtime
from engine.store import FlushDiskType, MessageStore, StoreConfig
from tests.seeds import seeded
from tests.simulation.world import World, run_world
from tests.store_support import Listener, draft, messages_of, small_config

HOST = "10.0.0.1"
QUEUES = 2
LIVES = 6


FLUSH_S_MAX = 0.006
"""What a flush of the log takes at most on a virtual disk that is not slow: see `take_time`."""

MODES = {
    "SYNC_FLUSH": {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
    "ASYNC_FLUSH": {},
    "QUEUES_WAIT": {
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "flush_consume_queues_at_once": 0,
        "flush_consume_queue_least_bytes": 60,
        "flush_consume_queue_thorough_interval_ms": 500,
    },
    "POOL": {"transient_store_pool_enable": True, "commit_interval_commit_log_ms": 15},
}


def config(mode: str) -> StoreConfig:
    return small_config("/store", max_index_count=60, **MODES[mode])


class Story:
    """What was put and what was promised, over all lives of the store."""

    def __init__(self, world: World, mode: str) -> None:
        self.world = world
        self.mode = mode
        self.slow = world.random.random() < 0.5
        """Slow lives outlast the checkpoint's margin: recovery begins inside the log."""
        self.put: list[int] = []
        self.acked = 0
        self.flushed = self.committed = 0
        self.recovered = False
        """Has this life come through its recovery, so that `put` is what is there?"""
        self.killed_with = 0
        """How many were put when the process was killed; only a power cut may lose of them."""
        self.next_number = 0
        self.put_s: dict[int, float] = {}
        """When each message was put, by its number."""
        self.ends: dict[int, int] = {}
        """End offset of each message, by its number."""
        self.listener = Listener()
        """What the life that ended last had reported."""
        self.power_cut = False
        """Did that life, or one after it that never came through its recovery, end by one?"""

    async def live(self, runtime: Runtime) -> None:
        """Recover, check what must be there, then put until somebody pulls the plug."""
        listener = Listener()
        store = await MessageStore.open(runtime, config(self.mode), listener)
        self.check(store, listener)
        self.listener = listener
        store.start()
        while True:
            for _ in range(self.world.random.randint(1, 6)):
                self.append(store)
            waiting = store.when_flushed(store.physical_max)
            if waiting is not None and await waiting:
                self.acked = len(self.put)
            await asyncio.sleep(self.world.random.uniform(0, 0.4 if self.slow else 0.01))
            self.flushed = max(self.flushed, self.count_before(store.physical_flushed))
            self.committed = self.count_before(store.physical_committed)

    def append(self, store: MessageStore) -> None:
        number = self.next_number
        self.next_number += 1
        body = str(number).encode().ljust(number * 53 % 700, b".")
        result = store.put(
            draft(body, queue_id=number % QUEUES, properties=f"UNIQ_KEY\x01{number}\x02")
        )
        self.put.append(number)
        self.put_s[number] = asyncio.get_running_loop().time()
        self.ends[number] = result.end_offset

    def count_aged(self) -> int:
        """How many were put longer ago than one flush interval and one flush."""
        window_s = config(self.mode).flush_interval_commit_log_ms / 1000 + FLUSH_S_MAX
        aged_s = asyncio.get_running_loop().time() - window_s
        return sum(self.put_s[number] < aged_s for number in self.put)

    def count_before(self, end_offset: int) -> int:
        return sum(self.ends[number] <= end_offset for number in self.put)

    def check(self, store: MessageStore, listener: Listener) -> None:
        """Survivors are a prefix of what was put, no shorter than what was promised."""
        found = sorted(
            (message.physical_offset, int(message.properties["UNIQ_KEY"]))
            for queue_id in range(QUEUES)
            for message in messages_of(store, queue_id=queue_id)
        )
        numbers = [number for _, number in found]
        assert numbers == self.put[: len(numbers)], "not a prefix"
        assert len(numbers) >= self.acked, f"{self.acked} acknowledged, {len(numbers)} survived"
        assert len(numbers) >= self.flushed, f"{self.flushed} flushed, {len(numbers)} survived"
        assert len(numbers) >= self.killed_with, f"{len(numbers)} of {self.killed_with} after kill"
        if self.put:
            assert listener.recovery.clean is False
        self.check_rows(store, listener)
        for number in numbers[-30:]:
            found_by_key = store.query_by_key(
                "TopicA", str(number), max_count=32, begin_ms=0, end_ms=1 << 60
            )
            assert self.ends[number] in {
                offset + size_of(store, offset) for offset in found_by_key.physical_offsets
            }, f"message {number} is not found by its key"
        self.put = numbers
        self.acked = min(self.acked, len(numbers))
        self.flushed = self.committed = len(numbers)
        self.listener = Listener()
        self.recovered = True

    def check_rows(self, store: MessageStore, listener: Listener) -> None:
        """Of what the last row counted as written, at most written - flushed (after SIGKILL:
        written - committed) is lost, and recovery reports no less than the row knew.
        """
        rows = self.listener.flushes("COMMIT_LOG")
        if not rows or rows[-1].cause == "RECOVERY":
            return
        last, kept = rows[-1], store.physical_max
        safe = last.flushed if self.power_cut else last.committed
        assert last.written is not None
        assert safe is not None
        assert kept >= safe, f"{kept} kept, {safe} promised by {last}"
        if kept < last.written and not self.power_cut:
            recovery = listener.recovery
            assert recovery.truncated_from == kept
            assert recovery.truncated_to is not None
            assert recovery.truncated_to >= last.written


def size_of(store: MessageStore, physical_offset: int) -> int:
    record = store.record_at(physical_offset)
    assert record is not None
    return len(record)


@pytest.mark.parametrize("mode", MODES)
@seeded(6)
def test_promises_hold_over_kills_and_power_cuts(seed: int, mode: str) -> None:
    async def scenario(world: World) -> None:
        story = Story(world, mode)
        node = world.node(HOST)
        for _ in range(LIVES):
            life = asyncio.ensure_future(node.boot(story.live))
            await asyncio.sleep(world.random.uniform(0.001, 20 if story.slow else 0.6))
            if life.done():
                life.result()
            power_cut = world.random.random() < 0.7
            if mode == "ASYNC_FLUSH" and story.recovered:
                story.flushed = max(story.flushed, story.count_aged())
            before = story.committed if mode == "POOL" else len(story.put)
            # A life that ends before it has looked at what it found leaves that to the next one.
            story.power_cut = power_cut or (story.power_cut and not story.recovered)
            node.crash(power_cut=power_cut)
            await asyncio.gather(life, return_exceptions=True)
            if power_cut:
                story.killed_with = 0
            elif story.recovered:  # Else `put` may list what an earlier power cut took.
                story.killed_with = before
            story.recovered = False
        listener = Listener()

        async def last_look(runtime: Runtime) -> None:
            store = await MessageStore.open(runtime, config(mode), listener)
            story.check(store, listener)
            await store.close()

        await node.boot(last_look)
        node.end()
        assert story.next_number > 0

    world = run_world(seed, scenario)
    assert not world.failures, world.failures
