"""Short lives of one part of the engine on a recording disk, with their promises.

`record` plays the life, its sizes and rhythm drawn by seed; `check` opens what a power cut left,
holds it against the last promise made before, opens it once more (which must change nothing), and
lets it go on.
"""

from __future__ import annotations

import asyncio
import random
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.client.consuming.offset_store import CommitTrigger, LocalOffsetStore
from engine.foundation.java_properties import parse
from engine.foundation.observing import LifecycleEvent
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime, SystemEntropy, SystemNetwork
from engine.store import FlushDiskType, MessageStore, PutResult
from engine.store.record_reading import HEADS, MAGIC_V1
from engine.store.record_writing import DraftRecord
from engine.store.stored_settings import KeptSettings, read_kept
from engine.store.table_file import TableFile
from engine.store.upkeep.checkpoint import decode_checkpoint
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.frames import Frame, Turn, decode_frames
from engine.telemetry.tables import BY_NAME
from tests.simulation.crash_states.recording import RecordingDisk, Tree
from tests.store_support import (
    HandClock,
    Listener,
    draft,
    messages_of,
    messages_over_holes,
    small_config,
)
from tests.unit.telemetry.lives import missing_in

MASTER = EmitterIdentity("cluster-1", "broker-a", 0)
LATER_MS = 1_900_000_000_000
NEVER_MS = 3_600_000
FORGED_KEY = "forged"
MAGIC = (MAGIC_V1 & 0xFFFFFFFF).to_bytes(4, "big")
BLANK_BYTES = 8
"""A file is closed by a blank of at least so many."""
PlaceOfBody = Callable[[int], int]
"""Where the body of the next message will lie, if it has so many bytes."""
BodyOf = Callable[[int, random.Random, PlaceOfBody], bytes]


@dataclass
class Life:
    """A recording and the promises made along it: (changes made so far, promise)."""

    disk: RecordingDisk
    promises: list[tuple[int, Any]]
    story: Any = None
    """What `check` must know besides."""

    def promise(self, promise: Any) -> None:
        """From here on this holds."""
        self.promises.append((len(self.disk.changes), promise))

    def promised(self, done: int) -> Any:
        """The last promise made before change number `done` was followed by another."""
        at = bisect_right(self.promises, done, key=lambda each: each[0])
        return self.promises[at - 1][1]


@dataclass(frozen=True)
class Workload:
    """One part of the engine under power cuts."""

    name: str
    record: Callable[[random.Random], Awaitable[Life]]
    check: Callable[[Life, Tree, Any], Awaitable[None]]


def runtime_on(disk: RecordingDisk, clock: HandClock) -> Runtime:
    """Everything real but the disk and the clock."""
    return Runtime(clock, SystemNetwork(), disk, SystemEntropy())  # type: ignore[arg-type]


# ---- the message store ---------------------------------------------------------------------


@dataclass
class StoreStory:
    """What was put, and the settings of the store."""

    settings: Mapping[str, Any]
    put: list[tuple[int, bytes, PutResult]] = field(default_factory=list)
    """(queue id, body, where)"""


@dataclass(frozen=True)
class StorePromise:
    """Of the messages put, this many must survive; none before `first` need to."""

    kept: int
    first: int = 0


def settings_of(**changes: Any) -> dict[str, Any]:
    """Tiny files, and timers that never fire: every step is taken by hand."""
    return {
        "mapped_file_size_commit_log_bytes": 2048,
        "mapped_file_size_consume_queue_bytes": 160,
        "max_hash_slot_count": 10,
        "max_index_count": 12,
        "flush_interval_commit_log_ms": NEVER_MS,
        "flush_interval_consume_queue_ms": NEVER_MS,
        "commit_interval_commit_log_ms": NEVER_MS,
        "clean_resource_interval_ms": NEVER_MS,
    } | changes


def plain_body(number: int, chance: random.Random, place_of_body: PlaceOfBody) -> bytes:
    """Some bytes that begin with the message's number."""
    del place_of_body
    return (b"%d:" % number).ljust(chance.randint(3, 700), b"%d" % (number % 10))


def forged_body(number: int, chance: random.Random, place_of_body: PlaceOfBody) -> bytes:
    """Records of messages that nobody put, at the very offsets where they will lie: they go on in
    the queue, or begin one, and end with the body or amid it.
    """
    before = b"%d:" % number + b"-" * chance.randint(0, 60)
    after = b"" if chance.random() < 0.5 else b"-" * chance.randint(1, 200)
    forged = [
        DraftRecord(
            draft(
                b"forged!" * chance.randint(0, 12),
                topic=chance.choice(["TopicA", "TopicB"]),
                queue_id=number % 2,
                properties=f"UNIQ_KEY\x01{FORGED_KEY}\x02",
            )
        )
        for _ in range(chance.randint(1, 3))
    ]
    size_bytes = sum(record.size_bytes for record in forged)
    place = place_of_body(len(before) + size_bytes + len(after)) + len(before)
    queue_offset, body = chance.choice([0, number // 2, number // 2 + 1]), before
    for offset, record in enumerate(forged, queue_offset):
        body += record.encode(offset, place, LATER_MS)
        place += record.size_bytes
    return body + after


async def life_of_a_store(
    chance: random.Random, settings: Mapping[str, Any], body_of: BodyOf = plain_body
) -> Life:
    """Puts, flushes of log and derived files, a roll now and then, a clean stop."""
    disk, clock = RecordingDisk(), HandClock()
    story = StoreStory(settings)
    life = Life(disk, [(0, StorePromise(0))], story)
    store = await MessageStore.open(
        runtime_on(disk, clock), small_config("/store", **settings), Listener()
    )
    store.start()
    flush_each, derived_each = chance.randint(1, 9), chance.randint(2, 12)
    for number in range(26):
        properties = f"UNIQ_KEY\x01{number}\x02TAGS\x01T\x02"
        around = DraftRecord(draft(b"", properties=properties)).size_bytes
        file_bytes, end = settings["mapped_file_size_commit_log_bytes"], store.physical_max

        def place_of_body(
            body_bytes: int, end: int = end, around: int = around, file_bytes: int = file_bytes
        ) -> int:
            fits = end % file_bytes + around + body_bytes + BLANK_BYTES <= file_bytes
            return HEADS[0].size + (end if fits else end - end % file_bytes + file_bytes)

        body = body_of(number, chance, place_of_body)
        result = store.put(draft(body, queue_id=number % 2, properties=properties))
        story.put.append((number % 2, body, result))
        clock.value_ms += 1700
        await asyncio.sleep(0)
        if number % flush_each == flush_each - 1:
            await flush_as_configured(store, life)
        if number % derived_each == derived_each - 1:
            await store._flusher.flush_derived("TIMER")
    await store.close()
    life.promise(StorePromise(len(story.put)))
    return life


async def flush_as_configured(store: MessageStore, life: Life) -> None:
    """One step of the flush mode; what it returned for is promised."""
    put = life.story.put
    if store._sync_flush:
        waiting = store.when_flushed(put[-1][2].end_offset)
        assert waiting is not None
        assert await waiting
    else:
        store._committer.commit("TIMER")
        await store._flusher.flush_log("TIMER")
    flushed = store.physical_flushed
    life.promise(StorePromise(sum(result.end_offset <= flushed for _, _, result in put)))


async def life_with_retention(chance: random.Random) -> Life:
    """As the store's, and on the way the oldest files go."""
    life = await life_of_a_store(chance, settings_of())
    disk = RecordingDisk(life.disk.tree())
    listener = Listener()
    story = life.story
    again = Life(disk, [(0, StorePromise(len(story.put)))], story)
    config = small_config("/store", **settings_of(file_reserved_time_ms=1, delete_when_hours=(0,)))
    store = await MessageStore.open(runtime_on(disk, HandClock(LATER_MS)), config, listener)
    await asyncio.sleep(0)
    await store.retention.run(1, by_hand=True)
    first = sum(result.physical_offset < store.physical_min for _, _, result in story.put)
    assert 0 < first < len(story.put)
    again.promises[0] = (0, StorePromise(len(story.put), first))
    await store._flusher.flush_derived("TIMER")
    await store.close()
    return again


async def life_of_a_recovery(chance: random.Random) -> Life:
    """A power cut during recovery is a power cut, too: begin with a torn log and no index."""
    settings = settings_of(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    life = await life_of_a_store(chance, settings)
    story = StoreStory(life.story.settings, life.story.put)
    kept = chance.randint(1, 24)
    end = story.put[kept][2].physical_offset
    tree = {path: data for path, data in life.disk.tree().items() if "/index/" not in path} | {
        "/store/abort": b"1"
    }
    name = f"/store/commitlog/{end - end % 2048:020d}"
    content = tree[name]
    assert content is not None
    tree[name] = content[: end % 2048 + 60].ljust(2048, b"\0")  # Message `kept` is torn.
    noted = decode_checkpoint(tree["/store/checkpoint"] or b"")
    noted.flushed_offset, noted.derived = end, None  # It was never synced.
    del tree["/store/consumequeueEnds"]  # Nor was what this says of later queue entries.
    tree["/store/checkpoint"] = noted.encode()
    for path in list(tree):
        if path > name and path.startswith("/store/commitlog/"):
            del tree[path]
    disk = RecordingDisk(tree)
    again = Life(disk, [(0, StorePromise(kept))], story)
    config = small_config("/store", **story.settings)
    store = await MessageStore.open(runtime_on(disk, HandClock()), config, Listener())
    await store.close()
    return again


async def life_of_a_damaged_store(chance: random.Random, body_of: BodyOf = plain_body) -> Life:
    """Everything was synced; then a file went or a bit flipped, and half the time the queues, too.
    The recovery of that is what is cut by power here. Forged bodies need the queues: without them
    nobody can know what they are.
    """
    settings = settings_of(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    life = await life_of_a_store(chance, settings, body_of)
    put = life.story.put
    tree = life.disk.tree() | {"/store/abort": b"1"}
    if chance.random() < 0.5 and body_of is plain_body:
        tree = {path: data for path, data in tree.items() if "/consumequeue/" not in path}
    logs = sorted(path for path in tree if path.startswith("/store/commitlog/"))
    victim = chance.choice(logs[:-1])
    hit = chance.choice([put[at] for at in range(len(put)) if place_of(put[at][2]) == victim])
    left = [number for number, each in enumerate(put) if each is not hit]
    if chance.random() < 0.5:
        del tree[victim]
        left = [number for number, each in enumerate(put) if place_of(each[2]) != victim]
    else:
        content = bytearray(tree[victim] or b"")
        content[hit[2].physical_offset % 2048 + chance.choice([1, 5, 9, 31, 89])] ^= 16
        tree[victim] = bytes(content)
    disk = RecordingDisk(tree)
    again = Life(disk, [(0, tuple(left))], StoreStory(settings, put))
    config = small_config("/store", **settings)
    store = await MessageStore.open(runtime_on(disk, HandClock()), config, Listener())
    await store.close()
    return again


def place_of(result: PutResult) -> str:
    """The file that holds a record."""
    return f"/store/commitlog/{result.physical_offset - result.physical_offset % 2048:020d}"


async def check_damaged(life: Life, tree: Tree, left: tuple[int, ...]) -> None:
    """All that was not hit is there, no byte of the log has changed, the second time as well."""
    story: StoreStory = life.story
    config = small_config("/store", **story.settings)
    disk, clock, listener = RecordingDisk(tree), HandClock(LATER_MS), Listener()
    store = await MessageStore.open(runtime_on(disk, clock), config, listener)
    found = sorted(
        int(message.properties["UNIQ_KEY"])
        for queue_id in (0, 1)
        for message in messages_over_holes(store, queue_id=queue_id)
    )
    assert found == list(left)
    for number in found:
        key = store.query_by_key("TopicA", str(number), max_count=9, begin_ms=0, end_ms=1 << 60)
        assert story.put[number][2].physical_offset in key.physical_offsets
    store._life.release()
    settled = disk.tree()
    for path, data in life.disk.start.items():
        if path.startswith("/store/commitlog/") and data is not None and data.strip(b"\0"):
            assert settled[path] == data, f"{path} has changed"
    store = await MessageStore.open(runtime_on(disk, clock), config, Listener())
    store._life.release()
    assert disk.tree() == settled, "a second recovery changes something"


async def check_store(life: Life, tree: Tree, promise: StorePromise) -> None:
    """Survivors are a run of what was put, as promised; queues and index say the same."""
    story: StoreStory = life.story
    config = small_config("/store", **story.settings)
    disk = RecordingDisk(tree)
    listener = Listener()
    clock = HandClock(LATER_MS)
    store = await MessageStore.open(runtime_on(disk, clock), config, listener)
    found = sorted(
        (message.physical_offset, queue_id, message.queue_offset, message.body)
        for queue_id in (0, 1)
        for message in messages_of(store, queue_id=queue_id)
    )
    expected = [
        (result.physical_offset, queue_id, result.queue_offset, body)
        for queue_id, body, result in story.put
    ]
    numbers = [expected.index(message) for message in found]  # Each exactly as it was put.
    end = max([*(number + 1 for number in numbers), promise.first])
    assert not listener.lifecycle("LOG_HOLE"), "what retention let go, or was never put, is missed"
    must = [number for number in numbers if number >= promise.first]
    assert must == list(range(promise.first, end)), "a hole"
    assert end >= promise.kept, f"{promise.kept} were promised, {end} are there"
    for number in must:
        key = store.query_by_key("TopicA", str(number), max_count=9, begin_ms=0, end_ms=1 << 60)
        assert key.physical_offsets == [expected[number][0]], f"message {number} by its key"
    gone = str(end)
    assert not store.query_by_key(
        "TopicA", gone, max_count=9, begin_ms=0, end_ms=1 << 60
    ).physical_offsets, "a key of a message that is gone"
    offsets = [store.max_offset("TopicA", queue_id) for queue_id in (0, 1)]
    store._life.release()
    settled = disk.tree()
    again = Listener()
    store = await MessageStore.open(runtime_on(disk, clock), config, again)
    assert again.recovery.truncated_from is None, again.recovery
    assert not again.lifecycle("DAMAGED_FILE"), again.lifecycle("DAMAGED_FILE")
    store._life.release()
    assert disk.tree() == settled, "a second recovery changes something"
    store = await MessageStore.open(runtime_on(disk, clock), config, again)
    assert store.put(draft(b"goes on", queue_id=1)).queue_offset == offsets[1]
    await store.close()


async def life_of_forged_bodies(chance: random.Random) -> Life:
    """As the store's; clients have put the bytes of records into their bodies."""
    return await life_of_a_store(chance, settings_of(), forged_body)


async def check_forged(life: Life, tree: Tree, promise: StorePromise) -> None:
    """As for any store, and no forged record is served, by its queue, key or offset."""
    await check_store(life, tree, promise)
    await check_nothing_forged(life, tree)


async def check_forged_and_damaged(life: Life, tree: Tree, left: tuple[int, ...]) -> None:
    """As for any damaged store, and no forged record is served."""
    await check_damaged(life, tree, left)
    await check_nothing_forged(life, tree)


async def check_nothing_forged(life: Life, tree: Tree) -> None:
    """No record inside a body is served, by its queue, key or offset."""
    story: StoreStory = life.story
    forged_at = [
        result.physical_offset + HEADS[0].size + at
        for _, body, result in story.put
        for at in range(len(body))
        if body[at + 4 : at + 8] == MAGIC
        and body[at + 28 : at + 36]
        == (result.physical_offset + HEADS[0].size + at).to_bytes(8, "big")
    ]
    assert forged_at, "a life without a forged record proves nothing"
    config = small_config("/store", **story.settings)
    runtime = runtime_on(RecordingDisk(tree), HandClock(LATER_MS))
    store = await MessageStore.open(runtime, config, Listener())
    assert {topic for topic, _ in store.queues()} <= {"TopicA"}
    for topic in ("TopicA", "TopicB"):
        key = store.query_by_key(topic, FORGED_KEY, max_count=9, begin_ms=0, end_ms=1 << 60)
        assert not key.physical_offsets, "a forged record is found by its key"
    assert not [at for at in forged_at if store.known_record_at(at) is not None]
    store._life.release()


# ---- a table in JSON -----------------------------------------------------------------------

TABLE = "/store/config/consumerOffset.json"


async def life_of_a_table(chance: random.Random) -> Life:
    """Versions written one after the other."""
    disk = RecordingDisk()
    life = Life(disk, [(0, (-1, 0))])
    file = TableFile(runtime_on(disk, HandClock()), TABLE)
    for version in range(6):
        life.promise((version - 1, version))
        groups = range(chance.randint(0, 120))
        offsets = {f"topic-{n}@group": {"0": version * 1000 + n} for n in groups}
        await file.write({"offsetTable": offsets, "version": version})
    life.promise((5, 5))
    return life


async def check_table(life: Life, tree: Tree, promise: tuple[int, int]) -> None:
    """The version last written, or the one being written: whole, and without a word of damage."""
    disk, listener = RecordingDisk(tree), Listener()
    disk.make_directories("/store/config")
    loaded: list[int] = []
    file = TableFile(runtime_on(disk, HandClock()), TABLE)
    file.load(listener, lambda found: loaded.append(int(str(found["version"]))))
    written, under_way = promise
    assert (loaded or [-1])[-1] in range(written, under_way + 1)
    assert not listener.facts or written == -1, listener.facts
    await file.write({"offsetTable": {}, "version": 99})
    file.load(listener, lambda found: loaded.append(int(str(found["version"]))))
    assert loaded[-1] == 99


# ---- settings that a store keeps --------------------------------------------------------------

SETTINGS = "/store/config/broker.properties"
HOURS = "fileReservedTime"


def stored_settings(disk: RecordingDisk, listener: Listener) -> KeptSettings:
    return KeptSettings(runtime_on(disk, HandClock()), SETTINGS, "0a" * 8, listener)


async def life_of_kept_settings(chance: random.Random) -> Life:
    """Changes one after the other."""
    disk = RecordingDisk()
    life = Life(disk, [(0, (-1, 0))])
    settings = stored_settings(disk, Listener())
    for version in range(6):
        life.promise((version - 1, version))
        others = {f"key{number}": "v" * number for number in range(chance.randint(0, 40))}
        await settings.change({HOURS: str(version)} | others)
    life.promise((5, 5))
    return life


async def check_kept_settings(life: Life, tree: Tree, promise: tuple[int, int]) -> None:
    """Those changed last, or those being changed: whole, and without a word of damage."""
    disk, listener = RecordingDisk(tree), Listener()
    disk.make_directories("/store/config")

    def read() -> tuple[int, LifecycleEvent | None]:
        found, read_back = read_kept(disk, SETTINGS, known=(HOURS,), make=hours_in)
        return found, read_back

    written, under_way = promise
    version, read_back = read()
    assert read_back is None, read_back
    assert version in range(written, under_way + 1)
    settings = stored_settings(disk, listener)
    await settings.settle(None)
    assert read() == (version, None)
    settled = disk.tree()
    await settings.settle(None)
    assert disk.tree() == settled, "a second start changes something"
    await settings.change({HOURS: "99"})
    assert read() == (99, None)
    assert not listener.facts, listener.facts


def hours_in(data: bytes) -> int:
    """What the settings say last; -1 when they do not."""
    return int({one.key: one.value for one in parse(data.decode())}.get(HOURS, "-1"))


# ---- a broadcast consumer's offsets --------------------------------------------------------

BROADCAST_QUEUE = MessageQueue("t", "broker-a", 0)


def local_offsets(disk: RecordingDisk) -> LocalOffsetStore:
    return LocalOffsetStore(disk, "/offsets", client_id="10.0.0.1@DEFAULT", group="g")


async def life_of_local_offsets(chance: random.Random) -> Life:
    """Offsets persisted one after the other, from a folder that is not there on."""
    disk = RecordingDisk()
    life = Life(disk, [(0, (0, 0))])
    store = local_offsets(disk)
    for offset in range(1, chance.randint(3, 7)):
        life.promise((offset - 1, offset))
        store.update(BROADCAST_QUEUE, offset, increase_only=True)
        await store.persist(BROADCAST_QUEUE, CommitTrigger.TIMER)
        life.promise((offset, offset))
    return life


async def check_local_offsets(life: Life, tree: Tree, promise: tuple[int, int]) -> None:
    """The offset persisted last, or the one being persisted."""
    store = local_offsets(RecordingDisk(tree))
    await store.load()
    persisted, under_way = promise
    assert (store.in_memory(BROADCAST_QUEUE) or 0) in range(persisted, under_way + 1)


# ---- the spool of facts --------------------------------------------------------------------


async def life_of_a_spool(chance: random.Random) -> Life:
    """Turns of rows, syncs, small segments that roll."""
    disk, clock = RecordingDisk(), HandClock()
    life = Life(disk, [(0, 0)])
    telemetry = Telemetry.open(runtime_on(disk, clock), "/spool", MASTER, segment_bytes=1500)
    disk.sync_directory("/")  # As the store does with its folder when it is opened.
    sync_each = chance.randint(2, 8)
    for number in range(24):
        for row in range(chance.randint(1, 3)):
            dots = "." * chance.randint(0, 400)
            telemetry.observe(LifecycleEvent("BOOT", f"fact {number} {row} {dots}"))
        telemetry.pulled("g", "t", 0, number, "c")
        telemetry.write_turn()
        clock.value_ms += 300
        if number % sync_each == sync_each - 1:
            telemetry.tick()
            await telemetry.sync()
            life.promise(len(rows_in(disk)))
    life.story = rows_in(disk)
    await telemetry.close()
    return life


DETAIL = BY_NAME["lifecycle"].own_names.index("detail")
"""Where a row of the lifecycle says it in words."""


def rows_in(disk: RecordingDisk) -> list[tuple[int, str]]:
    """(seq, detail) of every row in the segments, in order."""
    return [
        (seq, str(values[DETAIL]))
        for frame in frames_in(disk)
        if isinstance(frame, Turn)
        for seq, (_, _, values) in enumerate(frame.rows, frame.first_seq)
    ]


def frames_in(disk: RecordingDisk) -> list[Frame]:
    """Every frame of the segments, in order."""
    return [
        placed.frame
        for name in disk.names("/spool")
        if name.endswith(".seg")
        for placed in decode_frames(disk.read(f"/spool/{name}"))[0]
    ]


async def check_spool(life: Life, tree: Tree, promise: int) -> None:
    """All rows that were synced, no row that was not emitted; the next life's rows follow at once.

    A segment whose middle is lost, with a sound one behind it, is damage that is named row by row:
    only then may rows be missing before others.
    """
    disk, clock = RecordingDisk(tree), HandClock(LATER_MS)
    telemetry = Telemetry.open(runtime_on(disk, clock), "/spool", MASTER, segment_bytes=1500)
    kept = rows_in(disk)
    assert kept[:promise] == life.story[:promise], f"{promise} rows were synced"
    assert kept == [row for row in life.story if row in kept], "not what was emitted"
    assert telemetry.next_seq > max((seq for seq, _ in life.story), default=0)
    telemetry.observe(LifecycleEvent("BOOT", "next life"))
    await telemetry.close()
    rows = rows_in(disk)
    missing = missing_in(frames_in(disk))
    named = re.findall(r"rows (\d+) to (\d+) cannot be read", " ".join(each for _, each in rows))
    assert missing == [n for a, b in named for n in range(int(a), int(b) + 1)]
    assert [seq for seq, _ in rows] == sorted({seq for seq, _ in rows})
    settled = disk.tree()
    telemetry = Telemetry.open(runtime_on(disk, clock), "/spool", MASTER, segment_bytes=1500)
    assert rows_in(disk)[: len(kept)] == kept
    assert settled.keys() <= disk.tree().keys(), "a segment is gone"
    await telemetry.close()


WORKLOADS = [
    Workload(
        "SYNC_FLUSH",
        lambda chance: life_of_a_store(
            chance, settings_of(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        ),
        check_store,
    ),
    Workload("ASYNC_FLUSH", lambda chance: life_of_a_store(chance, settings_of()), check_store),
    Workload(
        "pool",
        lambda chance: life_of_a_store(chance, settings_of(transient_store_pool_enable=True)),
        check_store,
    ),
    Workload("forged bodies", life_of_forged_bodies, check_forged),
    Workload("retention", life_with_retention, check_store),
    Workload("recovery", life_of_a_recovery, check_store),
    Workload("damaged", life_of_a_damaged_store, check_damaged),
    Workload(
        "forged and damaged",
        lambda chance: life_of_a_damaged_store(chance, forged_body),
        check_forged_and_damaged,
    ),
    Workload("table", life_of_a_table, check_table),
    Workload("kept settings", life_of_kept_settings, check_kept_settings),
    Workload("local offsets", life_of_local_offsets, check_local_offsets),
    Workload("spool", life_of_a_spool, check_spool),
]
