"""Topics are deleted and recreated through kills and power cuts, by seed.

Once a deletion was answered, no earlier message appears again, in any life; later messages
acknowledged under SYNC_FLUSH are there, from offset 0 on.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.runtime import Runtime
from engine.store import FlushDiskType, MessageStore
from tests.seeds import seeded
from tests.simulation.world import World, run_world
from tests.store_support import Listener, draft, messages_of, small_config

TOPICS = ("TopicA", "TopicB")
LIVES = 6


class Story:
    """What was put and acknowledged in each topic since its last deletion that was answered."""

    def __init__(self, world: World, flush: FlushDiskType) -> None:
        self.world = world
        self.flush = flush
        self.put: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.acked: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.pending: str | None = None
        """A deletion under way when the life ended: done or not, both are right."""
        self.next_number = 0
        self.deletions = 0

    async def live(self, runtime: Runtime) -> None:
        listener = Listener()
        config = small_config("/store", flush_disk_type=self.flush)
        store = await MessageStore.open(runtime, config, listener)
        damage = [str(row.detail) for row in listener.lifecycle("DAMAGED_FILE")]
        assert not [words for words in damage if "built again" in words], damage
        self.check(store)
        store.start()
        chance = self.world.random
        while True:
            topic = chance.choice(TOPICS)
            if chance.random() < 0.15:
                self.pending = topic
                await store.delete_topic(topic)
                self.pending = None
                self.put[topic], self.acked[topic] = [], 0
                self.deletions += 1
            else:
                await self.append(store, topic)
            await asyncio.sleep(chance.uniform(0, 0.03))

    async def append(self, store: MessageStore, topic: str) -> None:
        for _ in range(self.world.random.randint(1, 5)):
            body = str(self.next_number).encode().ljust(self.next_number * 53 % 400, b".")
            store.put(draft(body, topic=topic, properties=f"UNIQ_KEY\x01{self.next_number}\x02"))
            self.put[topic].append(self.next_number)
            self.next_number += 1
        waiting = store.when_flushed(store.physical_max)
        if waiting is not None and await waiting:
            self.acked[topic] = len(self.put[topic])

    def check(self, store: MessageStore) -> None:
        for topic in TOPICS:
            found = [int(message.properties["UNIQ_KEY"]) for message in messages_of(store, topic)]
            known = self.put[topic]
            is_pending = topic == self.pending
            assert found == known[: len(found)], f"{topic}: {found} of {known}"
            assert store.min_offset(topic, 0) == 0
            if not (is_pending and not found):
                assert len(found) >= self.acked[topic], f"{topic}: {found} of {known}"
            self.put[topic], self.acked[topic] = found, min(self.acked[topic], len(found))
        self.pending = None


@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
@seeded(10)
def test_nothing_of_a_deleted_topic_comes_back(seed: int, flush: FlushDiskType) -> None:
    async def scenario(world: World) -> None:
        story, node = Story(world, flush), world.node("10.0.0.1")
        for _ in range(LIVES):
            life = asyncio.ensure_future(node.boot(story.live))
            await asyncio.sleep(world.random.uniform(0.05, 2.0))
            if life.done():
                life.result()
            node.crash(power_cut=world.random.random() < 0.6)
            await asyncio.gather(life, return_exceptions=True)
        listener = Listener()

        async def last_look(runtime: Runtime) -> None:
            store = await MessageStore.open(
                runtime, small_config("/store", flush_disk_type=flush), listener
            )
            story.check(store)
            await store.close()

        await node.boot(last_look)
        node.end()
        assert story.deletions, "a run without a deletion proves nothing"

    run_world(seed, scenario)
