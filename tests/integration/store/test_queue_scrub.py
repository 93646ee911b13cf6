"""A flipped bit in a consume queue hides no message for long: soon after the start every entry is
what the log says, and what was wrong is reported.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.protocol.hashes import tags_code
from engine.protocol.message_record import decode_records
from engine.protocol.tag_bits import tags_word
from engine.store import MessageStore
from engine.store.commands import app
from engine.store.config import StoreConfig
from engine.store.consume_queue import UNIT_BYTES, Unit
from engine.store.record_reading import MULTI_TAGS, SCHEDULE_TOPIC
from tests.store_support import (
    BIG,
    START_MS,
    HandClock,
    Listener,
    abandon,
    draft,
    messages_over_holes,
    open_store,
    runtime_on,
    sync_config,
    turn,
    until,
)

SHAPE = ["--set", "maxHashSlotNum=50", "--set", "maxIndexNum=40"]
COUNT = 24
TAGS = ("red", "green", "blue")
LEVELS_MS = (100, 5_000, 60_000)
STRIDE = 47
"""Of all bits of all entries: one in so many, which meets each bit of an entry."""
PHYSICAL_OFFSET, SIZE, TAGS_CODE = 0, 8, 12
"""Where the fields of an entry begin."""
STOPS = pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])


def config(root: Path, **changes: object) -> StoreConfig:
    return sync_config(root, **({"delay_levels_ms": LEVELS_MS} | changes))


async def prepare(root: Path, *, clean: bool) -> None:
    """Two plain queues of three tags, one of several tags at once, and one of delayed messages."""
    store = await open_store(config(root))
    for number in range(COUNT):
        tag = TAGS[number % 3]
        store.put(draft(b"%d" % number, queue_id=number % 2, properties=f"TAGS\x01{tag}\x02"))
        if number % 2:
            both = f"TAGS\x01{tag}||gold\x02"
            store.put(draft(b"%d" % number, topic="Many", properties=both, sys_flag=MULTI_TAGS))
            level = f"DELAY\x01{1 + number % 3}\x02TAGS\x01{tag}\x02"
            store.put(draft(b"%d" % number, topic=SCHEDULE_TOPIC, properties=level))
        await turn()
        await store._flusher.flush_log("GROUP")
        if not number % 5:
            await store._flusher.flush_derived("TIMER")
    await turn()
    await store._flusher.flush_derived("SHUTDOWN")
    await (store.close() if clean else abandon(store))


def flip(root: Path, queue: str, unit: int, bit: int) -> None:
    """Bit `bit` of the entry at queue offset `unit`, counted from the entry's first byte."""
    position = unit * UNIT_BYTES
    path = root / "consumequeue" / queue / f"{position - position % 160:020d}"
    content = bytearray(path.read_bytes())
    content[position % 160 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


async def scrubbed(store: MessageStore) -> None:
    store.start()
    (scrub,) = [task for task in store._life.tasks if task.get_name() == "store queue scrub"]
    await until(scrub.done)


Seen = dict[str, list[bytes]]


def seen_by(store: MessageStore) -> Seen:
    """What consumers of all and of each tag get."""
    found: Seen = {}
    for topic, queue_id in store.queues():
        for tag in ("*", *TAGS):
            wanted: Callable[[int], bool] | None
            if tag == "*":
                wanted = None
            elif topic == "Many":
                wanted = partial(_has_bits, tags_word(tag))
            else:
                wanted = partial(eq, tags_code(tag))
            bodies: list[bytes] = []
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                got = store.get(topic, queue_id, offset, max_count=2, max_bytes=BIG, wanted=wanted)
                bodies += [one.body for one in decode_records(got.body())] if got.count else []
                offset = max(offset + 1, got.next_begin_offset)
            found[f"{topic}/{queue_id} {tag}"] = bodies
    return found


def _has_bits(bits: int, code: int) -> bool:
    return code & bits == bits


Units = dict[tuple[str, int], list[Unit] | None]


def units_of(store: MessageStore) -> Units:
    return {key: store.queue_units(*key, 0, COUNT) for key in store.queues()}


async def looked(root: Path, **changes: object) -> tuple[Seen, Units, Listener]:
    """A life of the store until its queues were held against the log."""
    listener = Listener()
    store = await open_store(config(root, **changes), listener)
    await scrubbed(store)
    seen, units = seen_by(store), units_of(store)
    await store.close()
    return seen, units, listener


def damage_reported(listener: Listener) -> list[str]:
    return [
        str(row.detail) for kind in ("DAMAGED_FILE", "LOG_HOLE") for row in listener.lifecycle(kind)
    ]


QUEUES = {"TopicA/0": 12, "TopicA/1": 12, "Many/0": 12, f"{SCHEDULE_TOPIC}/0": 12}


def every_bit(stride: int) -> Iterator[tuple[str, int, int]]:
    every = [
        (queue, unit, bit)
        for queue, count in QUEUES.items()
        for unit in range(count)
        for bit in range(UNIT_BYTES * 8)
    ]
    yield from every[::stride]


@STOPS
async def test_no_flipped_bit_of_any_entry_hides_a_message(tmp_path: Path, clean: bool) -> None:
    sound = tmp_path / "sound"
    await prepare(sound, clean=clean)
    shutil.copytree(sound, tmp_path / "first")
    seen, units, listener = await looked(tmp_path / "first")
    assert not damage_reported(listener), "a sound store has nothing to report"
    assert len(seen["TopicA/0 red"]) == len(seen["Many/0 red"]) == 4
    for queue, unit, bit in every_bit(STRIDE):
        root = tmp_path / "flipped"
        shutil.copytree(sound, root)
        flip(root, queue, unit, bit)
        after, units_after, listener = await looked(root)
        what = f"bit {bit} of entry {unit} of {queue}"
        assert units_after == units, what
        assert after == seen, what
        # What lies at the log's end every start reads, and an unclean one all that is new.
        is_newest = (queue, unit) == (f"{SCHEDULE_TOPIC}/0", 11)
        assert damage_reported(listener) or not clean or is_newest, f"{what} is not reported"
        shutil.rmtree(root)


@pytest.mark.parametrize("byte", [PHYSICAL_OFFSET + 7, SIZE + 3, TAGS_CODE + 7])
async def test_a_mended_entry_is_reported_once_is_durable_and_costs_no_rebuilding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, byte: int
) -> None:
    """A pull that meets it first calls for the queue to be built again: no more, once it is."""
    await prepare(tmp_path, clean=True)
    flip(tmp_path, "TopicA/1", 3, byte * 8)
    listener = Listener()
    store = await open_store(config(tmp_path), listener)
    seen_by(store)
    with caplog.at_level(logging.WARNING):
        await scrubbed(store)
    path = f"{tmp_path}/consumequeue/TopicA/1/{0:020d}"
    (row,) = listener.lifecycle("DAMAGED_FILE")
    assert row.detail == (
        f"{path}: entry 3 was not what the log says, and written again from it; whoever read "
        f"there before may have been led past messages"
    )
    assert [record.message for record in caplog.records].count(str(row.detail)) == 1
    await store.close()
    seen, _, listener = await looked(tmp_path)
    assert seen["TopicA/1 red"] == [b"3", b"9", b"15", b"21"]
    assert not damage_reported(listener)
    assert "0 bytes dropped" in str(listener.recovery.detail)
    assert "from 0," not in str(listener.recovery.detail)


async def test_many_wrong_entries_of_a_file_are_one_line(tmp_path: Path) -> None:
    await prepare(tmp_path, clean=True)
    for unit in range(1, 8):
        flip(tmp_path, "TopicA/0", unit, 8 * TAGS_CODE + unit)
    _, _, listener = await looked(tmp_path)
    (words,) = damage_reported(listener)
    assert "7 entries (1 to 7) were not what the log says" in words


async def test_other_delay_levels_make_no_damage_of_delayed_messages(tmp_path: Path) -> None:
    """A unit of theirs holds the time when they are due, by the levels of its day."""
    await prepare(tmp_path, clean=True)
    _, units, _ = await looked(tmp_path)
    levels = (700, 9_000, 70_001)
    _, after, listener = await looked(tmp_path, delay_levels_ms=levels)
    assert not damage_reported(listener)
    assert after[SCHEDULE_TOPIC, 0][:-1] == units[SCHEDULE_TOPIC, 0][:-1]  # type: ignore[index]
    flip(tmp_path, f"{SCHEDULE_TOPIC}/0", 4, 8 * (PHYSICAL_OFFSET + 6))
    _, after, listener = await looked(tmp_path, delay_levels_ms=levels)
    assert damage_reported(listener)
    assert after[SCHEDULE_TOPIC, 0][4] == units[SCHEDULE_TOPIC, 0][4]  # type: ignore[index]


async def test_deleted_and_made_again_a_topic_keeps_its_new_entries(tmp_path: Path) -> None:
    store = await open_store(config(tmp_path))
    for life in (b"old", b"new"):
        for number in range(9):
            store.put(draft(life + b"%d" % number))
        await turn()
        await store._flusher.flush_log("GROUP")
        await turn()
        if life == b"old":
            await store.delete_topic("TopicA")
    await store.close()
    flip(tmp_path, "TopicA/0", 4, 8 * PHYSICAL_OFFSET + 8 * 6)
    store = await open_store(config(tmp_path))
    await scrubbed(store)
    bodies = [message.body for message in messages_over_holes(store)]
    await store.close()
    assert bodies == [b"new%d" % number for number in range(9)]


async def test_a_record_that_says_another_place_takes_none(tmp_path: Path) -> None:
    """Nothing covers what a record says of its queue: a flipped bit there displaces nobody."""
    await prepare(tmp_path, clean=True)
    _, units, _ = await looked(tmp_path)
    unit = units["TopicA", 0][6]  # type: ignore[index]
    at = unit[0] + 20 + 7  # The last byte of its queue offset.
    path = tmp_path / "commitlog" / f"{at - at % 4096:020d}"
    content = bytearray(path.read_bytes())
    content[at % 4096] ^= 2  # 6 becomes 4.
    path.write_bytes(content)
    seen, after, _ = await looked(tmp_path)
    assert after == units
    assert b"8" in seen["TopicA/0 *"], "the message whose place it names"


async def test_damage_of_the_log_that_nobody_pulls_is_reported(tmp_path: Path) -> None:
    await prepare(tmp_path, clean=True)
    _, units, _ = await looked(tmp_path)
    unit = units["TopicA", 0][2]  # type: ignore[index]
    at = unit[0] + 88
    path = tmp_path / "commitlog" / f"{at - at % 4096:020d}"
    content = bytearray(path.read_bytes())
    content[at % 4096] ^= 1
    path.write_bytes(content)
    listener = Listener()
    store = await open_store(config(tmp_path), listener)
    await scrubbed(store)
    (row,) = listener.lifecycle("LOG_HOLE")
    assert f"hole [{unit[0]}, {unit[0] + unit[1]})" in str(row.detail)
    seen_by(store)
    assert len(listener.lifecycle("LOG_HOLE")) == 1, "once, whoever meets it"
    await store.close()


async def test_a_check_shows_a_wrong_tags_code(tmp_path: Path) -> None:
    await prepare(tmp_path, clean=True)
    flip(tmp_path, "Many/0", 5, 8 * TAGS_CODE + 3)
    answer = await asyncio.to_thread(
        CliRunner().invoke, app, ["store", "check", str(tmp_path), *SHAPE]
    )
    assert answer.exit_code == 3
    assert "consume queue Many/0: entry 5 has another tags code than its message" in answer.output


async def test_a_stop_amid_the_scrub_lets_the_next_start_begin_anew(tmp_path: Path) -> None:
    await prepare(tmp_path, clean=True)
    flip(tmp_path, "TopicA/1", 3, 8 * TAGS_CODE)
    store = await open_store(config(tmp_path))
    store.start()
    await store.close()
    seen, _, _ = await looked(tmp_path)
    assert len(seen["TopicA/1 red"]) == 4


OLD = 9


async def grown_old(root: Path, reported_by: bytes = b"") -> None:
    """A queue whose messages are older than all that an unclean start reads again; each body begins
    with `reported_by`.
    """
    clock = HandClock(START_MS)
    store = await open_store(config(root), runtime=runtime_on(clock=clock))
    for number in range(OLD):
        store.put(draft(reported_by + b"%d" % number, properties=f"TAGS\x01{TAGS[number % 3]}\x02"))
    for number in range(60):
        clock.value_ms += 1_000
        keys = f"UNIQ_KEY\x01{number}\x02"
        store.put(draft(reported_by + b"%d" % number + b"x" * 300, topic="Busy", properties=keys))
        await turn()
        await store._flusher.flush_log("GROUP")
        await turn()
        await store._flusher.flush_derived("SHUTDOWN")
    await abandon(store)


@pytest.mark.parametrize("unit", [3, 7, 8], ids=["amid", "last of a file", "newest"])
@pytest.mark.parametrize(
    "bit",
    [
        *(8 * PHYSICAL_OFFSET + bit for bit in (7, 18, 56, 50)),
        *(8 * SIZE + bit for bit in (7, 18, 24)),
    ],
)
async def test_after_a_kill_an_old_queue_ends_where_it_ended(
    tmp_path: Path, unit: int, bit: int
) -> None:
    """Nothing that is read again shows that it was longer: its offsets were given a second time."""
    await grown_old(tmp_path)
    flip(tmp_path, "TopicA/0", unit, bit)
    seen, _, listener = await looked(tmp_path)
    assert seen["TopicA/0 *"] == [b"%d" % number for number in range(OLD)]
    assert damage_reported(listener)
    assert not any("built again" in words for words in damage_reported(listener)), (
        "one entry is put right"
    )


async def test_after_a_kill_a_queue_with_more_damage_is_built_again(tmp_path: Path) -> None:
    await grown_old(tmp_path)
    path = tmp_path / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[60:80] = b"\xa5" * 20
    path.write_bytes(content)
    seen, _, listener = await looked(tmp_path)
    assert seen["TopicA/0 *"] == [b"%d" % number for number in range(OLD)]
    assert any("it is built again" in words for words in damage_reported(listener))
