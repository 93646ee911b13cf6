"""Bits of synced files flip while a broker is down: it serves the rest and reports damage.

Each round some messages are acknowledged under SYNC_FLUSH, the broker stops, is killed or loses
power, and a bit flips in its log, a consume queue, the index, the sums of the index or a table.
Afterwards every message whose record was not hit is served as it was, by queue and by key, no key
leads to another message, and a body that was hit, and is not served, was reported. A consumer that
filters by its tag gets each, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import eq

from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import CorruptRecord, TidemarkError
from engine.protocol.hashes import tags_code
from engine.protocol.message import Message
from engine.protocol.message_record import decode_record
from engine.store.record_reading import HEADS
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.world import World, run_world

ROUNDS = 4
PLACES = ("commitlog", "consumequeue", "index", "indexSums")
TAGS = ("red", "green")
TABLES = "config"
"""In the last round only: a flip in a table and later one in the version before it leave none."""
FILE_DIGITS = 20
TOLD = ("LOG_HOLE", "DAMAGED_FILE", "CHANGED_FILE")


@dataclass(frozen=True)
class Kept:
    """An acknowledged message, and where its record lies."""

    body: bytes
    queue_id: int
    queue_offset: int
    begin: int
    end: int


class Shelf(SimCluster):
    """A cluster without consumers, whose broker's disk is flipped at."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.kept: dict[bytes, Kept] = {}
        self.hit: set[bytes] = set()
        """Bodies of messages whose records have a flipped bit."""
        self.must_be_reported: set[bytes] = set()
        """Those hit in their bodies: what else a record holds has no checksum."""
        self.how = ""
        """The last way to go down."""
        self.flipped = ("", 0)
        """The last file and the byte of it."""

    async def send_some(self, count: int) -> None:
        """Acknowledged messages with a key each; some sends may fail."""
        assert self.producer is not None
        assert self.broker is not None
        for _ in range(count):
            body = b"message %05d" % len(self.history.sent)
            self.history.sent.append(body)
            message = Message(TOPIC, body.ljust(self.world.random.randint(13, 600), b"."))
            message.tags = TAGS[len(self.history.sent) % 2]
            message.keys = body.decode().replace(" ", "-")
            try:
                sent = await self.node(PRODUCER).run(self.producer.send(message, timeout_ms=2_000))
            except TidemarkError:
                continue
            if sent.status is not SendStatus.SEND_OK:
                continue
            queue_id, offset = sent.queue.queue_id, sent.queue_offset
            units = self.broker.state.store.queue_units(TOPIC, queue_id, offset, 1)
            assert units, f"message {offset} of queue {queue_id} is acknowledged and not there"
            begin, size_bytes, _ = units[0]
            self.kept[message.body] = Kept(
                message.body, queue_id, offset, begin, begin + size_bytes
            )

    async def go_down(self) -> None:
        """A clean stop, SIGKILL or a power cut."""
        how = self.how = self.world.random.choice(("clean", "kill", "power"))
        if how == "clean":
            assert self.broker is not None
            await self.node(BROKER).run(self.broker.stop())
        self.crash(BROKER, power_cut=how == "power")

    def has_synced(self, place: str) -> bool:
        """Is there anything to flip?"""
        return self.node(BROKER).disk.has_synced(f"/store/{place}")

    def flip(self, place: str) -> None:
        path, position = self.flipped = self.node(BROKER).disk.flip_a_bit(f"/store/{place}")
        if place == "commitlog":
            at = int(path[-FILE_DIGITS:]) + position
            for each in self.kept.values():
                if each.begin <= at < each.end:
                    self.hit.add(each.body)
                    if at - each.begin - HEADS[0].size in range(len(each.body)):
                        self.must_be_reported.add(each.body)

    async def all_is_looked_at(self) -> None:
        """Queues and index were, and are whole again where they were damaged."""
        assert self.broker is not None
        store = self.broker.state.store
        scrubs = [task for task in store._life.tasks if task.get_name().endswith("scrub")]
        assert len(scrubs) == 2
        await self.world.until(
            "queues and index are whole",
            lambda: (
                all(scrub.done() for scrub in scrubs)
                and not (store._index is not None and store._index.is_behind)
            ),
            within_s=60.0,
        )

    def stored(self) -> dict[tuple[str, int, int], bytes]:
        """As always; a record whose head was hit may be none that a client can read."""
        assert self.broker is not None
        store, found = self.broker.state.store, dict[tuple[str, int, int], bytes]()
        for queue_id in range(QUEUES):
            offset = store.min_offset(TOPIC, queue_id)
            while offset < store.max_offset(TOPIC, queue_id):
                got = store.get(TOPIC, queue_id, offset, max_count=1, max_bytes=1 << 20)
                for part in got.records:
                    try:
                        message = decode_record(bytes(part))
                    except TidemarkError:
                        continue
                    found[TOPIC, queue_id, offset] = bytes(message.body)
                offset = max(offset + 1, got.next_begin_offset)
        return found

    def served_by_tag(self) -> set[tuple[int, int]]:
        """Queue id and offset of each message that a consumer of its tag gets."""
        assert self.broker is not None
        store, found = self.broker.state.store, set[tuple[int, int]]()
        for queue_id, tag in product(range(QUEUES), TAGS):
            offset, wanted = store.min_offset(TOPIC, queue_id), partial(eq, tags_code(tag))
            while offset < store.max_offset(TOPIC, queue_id):
                got = store.get(
                    TOPIC, queue_id, offset, max_count=1, max_bytes=1 << 20, wanted=wanted
                )
                if got.count:
                    found.add((queue_id, got.next_begin_offset - 1))
                offset = max(offset + 1, got.next_begin_offset)
        return found

    async def check(self) -> None:
        """Sound messages are served as they were, by queue and key; less than all was reported."""
        assert self.broker is not None
        store, served, by_tag = self.broker.state.store, self.stored(), self.served_by_tag()
        await asyncio.sleep(2.0)  # What a pull has met is in the spool.
        missing = 0
        for each in self.kept.values():
            found = served.get((TOPIC, each.queue_id, each.queue_offset))
            key = each.body.partition(b".")[0].decode().replace(" ", "-")
            asked = store.query_by_key(TOPIC, key, max_count=9, begin_ms=0, end_ms=1 << 60)
            if each.body in self.hit:
                missing += found is None and each.body in self.must_be_reported
                continue
            assert found == each.body, f"{each} is not served after {self.flipped}"
            place = each.queue_id, each.queue_offset
            assert place in by_tag, f"{each} is hidden from its tag after {self.flipped}"
            assert asked.physical_offsets == [each.begin], f"{each} by its key: {asked}"
        assert not missing or self.reported("LOG_HOLE"), (
            f"{missing} are gone, and nothing was reported"
        )


async def flips(world: World) -> None:
    shelf = Shelf(world)
    await shelf.start_name_server()
    await shelf.start_broker()
    await shelf.start_producer()
    for number in range(ROUNDS):
        await shelf.send_some(world.random.randint(10, 60))
        await asyncio.sleep(world.random.uniform(0.0, 3.0))
        await shelf.go_down()
        last = number == ROUNDS - 1
        # A power cut takes the newest note of how far the log was synced: damage beyond the one
        # before it ends the log.
        places = [place for place in PLACES if shelf.has_synced(place)]
        if shelf.how == "power":
            places.remove("commitlog")
        place = (
            TABLES if last and world.random.random() < 0.5 else world.random.choice([*places, ""])
        )
        if place:
            shelf.flip(place)
        await asyncio.sleep(world.random.uniform(0.1, 3.0))
        try:
            await shelf.restart(BROKER)
        except CorruptRecord as error:  # The first version of a table has none before it.
            if "remove the damaged files" in str(error):
                return
            raise
        await shelf.all_is_looked_at()
        await shelf.check()
    assert len(shelf.kept) > 20, "a run in which nothing was acknowledged proves nothing"


@seeded(40)
def test_what_is_sound_is_served_and_what_is_damaged_is_reported(seed: int) -> None:
    run_world(seed, flips)


def test_a_flip_is_the_same_for_a_seed_and_outlives_a_power_cut() -> None:
    async def scenario(world: World) -> None:
        disk = world.node(BROKER).disk
        mounted = disk.mount()
        mounted.make_directories("/store")
        file = mounted.open("/store/file", create=True)
        file.pwrite(b"synced", 0)
        file.sync()
        mounted.sync_directory("/store")
        path, position = disk.flip_a_bit("/store")
        disk.crash(power_cut=True)
        after = disk.mount().read(path)
        assert len(after) == 6
        assert [at for at in range(6) if after[at] != b"synced"[at]] == [position]

    assert run_world(5, scenario).trace == run_world(5, scenario).trace
