"""After a kill no consume queue is shorter than it was on stable storage, however old it is: what
is missing is built again before anybody is served, and no queue offset is given a second time.
"""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from engine.store import MessageStore
from engine.store.consume_queue import UNIT_BYTES
from engine.store.upkeep.noted_ends import FILE_NAME
from tests.integration.store.test_queue_scrub import OLD, config, damage_reported, grown_old
from tests.store_support import (
    Listener,
    abandon,
    draft,
    messages_of,
    open_store,
    turn,
)

FILE_UNITS = 8
QUEUE = "consumequeue/TopicA/0"
FIRST, LAST = f"{0:020d}", f"{FILE_UNITS * UNIT_BYTES:020d}"
IN_ANOTHER = struct.pack(">qiq", 10, 50, 0)
AT_ANOTHER = struct.pack(">qiq", 4096, 100, 7)
FAR = struct.pack(">qiq", 1 << 50, 100, 0)
"""Units that lead amid a record, to a record of another queue, and beyond the log."""


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content + path.read_bytes()[len(content) :])


def newest(root: Path, unit: bytes) -> None:
    overwrite(root / QUEUE / LAST, unit)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES = {
    "newest entry of any bytes": lambda root: newest(root, b"\xa5" * UNIT_BYTES),
    "newest entry of zeros": lambda root: newest(root, bytes(UNIT_BYTES)),
    "newest entry leads amid a record": lambda root: newest(root, IN_ANOTHER),
    "newest entry leads to another queue's": lambda root: newest(root, AT_ANOTHER),
    "newest entry leads beyond the log": lambda root: newest(root, FAR),
    "last file is missing": lambda root: (root / QUEUE / LAST).unlink(),
    "first file is missing": lambda root: (root / QUEUE / FIRST).unlink(),
    "last file is zeros": lambda root: zeroed(root / QUEUE / LAST),
    "first file is zeros": lambda root: zeroed(root / QUEUE / FIRST),
    "folder is missing": lambda root: shutil.rmtree(root / QUEUE),
    "folder of the topic is missing": lambda root: shutil.rmtree((root / QUEUE).parent),
    "all queues are missing": lambda root: shutil.rmtree(root / "consumequeue"),
}


async def opened(root: Path, **changes: object) -> tuple[MessageStore, Listener]:
    listener = Listener()
    return await open_store(config(root, **changes), listener), listener


def bodies(store: MessageStore) -> list[bytes]:
    return [bytes(message.body) for message in messages_of(store)]


def checked_from(listener: Listener) -> int:
    found = re.search(r"records checked from (\d+),", str(listener.recovery.detail))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_an_old_queue_has_lost_is_built_again_before_anybody_is_served(
    tmp_path: Path, damage: str
) -> None:
    await grown_old(tmp_path)
    DAMAGES[damage](tmp_path)
    store, listener = await opened(tmp_path)
    assert bodies(store) == [b"%d" % number for number in range(OLD)]
    assert any(
        "they are built again from the log's start" in words for words in damage_reported(listener)
    )
    assert store.put(draft(b"next")).queue_offset == OLD
    await store.close()
    store, listener = await opened(tmp_path)
    assert store.max_offset("TopicA", 0) == OLD + 1
    assert not damage_reported(listener)
    await store.close()


async def test_a_sound_store_reads_no_more_than_the_checkpoint_does_not_vouch_for(
    tmp_path: Path,
) -> None:
    await grown_old(tmp_path)
    store, listener = await opened(tmp_path)
    assert not damage_reported(listener)
    assert 0 < checked_from(listener) < store.physical_max
    await abandon(store)
    store, listener = await opened(tmp_path)
    assert not damage_reported(listener)
    await store.close()


@pytest.mark.parametrize("fault", ["missing", "cut", "a flipped bit", "of another store"])
async def test_without_a_note_the_log_is_read_from_its_start(tmp_path: Path, fault: str) -> None:
    await grown_old(tmp_path / "own")
    await grown_old(tmp_path / "another", b"of another store ")
    note = tmp_path / "own" / FILE_NAME
    content = note.read_bytes()
    match fault:
        case "missing":
            note.unlink()
        case "cut":
            note.write_bytes(content[:-1])
        case "a flipped bit":
            note.write_bytes(content[:50] + bytes([content[50] ^ 4]) + content[51:])
        case _:
            shutil.copy(tmp_path / "another" / FILE_NAME, note)
    shutil.rmtree(tmp_path / "own" / QUEUE)
    store, listener = await opened(tmp_path / "own")
    assert bodies(store) == [b"%d" % number for number in range(OLD)]
    assert any(
        "the log is read from its start instead" in words for words in damage_reported(listener)
    )
    await store.close()


async def test_offsets_go_on_behind_messages_that_are_gone_from_the_log(tmp_path: Path) -> None:
    """Consumers stand at OLD: a message below it would never be seen by them."""
    await grown_old(tmp_path)
    store, _ = await opened(tmp_path, file_reserved_time_ms=1, delete_when_hours=(0,))
    await turn()
    await store.retention.run(1 << 50, by_hand=True)
    await store._flusher.flush_derived("SHUTDOWN")
    assert store.min_offset("TopicA", 0) == OLD
    await abandon(store)
    shutil.rmtree(tmp_path / QUEUE)
    store, listener = await opened(tmp_path)
    assert damage_reported(listener)
    assert store.put(draft(b"next")).queue_offset == OLD
    await store.close()


async def test_an_entry_torn_before_it_was_on_stable_storage_is_written_again_without_a_word(
    tmp_path: Path,
) -> None:
    """Pages of a power cut: the entry behind it came to the disk as a whole."""
    await grown_old(tmp_path)
    store, _ = await opened(tmp_path)
    for number in range(OLD, OLD + 5):
        store.put(draft(b"%d" % number))
        await turn()
        await store._flusher.flush_log("GROUP")
        await turn()
        await store._flusher.flush_derived("SHUTDOWN")
    await abandon(store)
    torn = (tmp_path / QUEUE / LAST).read_bytes()
    at = (OLD + 3 - FILE_UNITS) * UNIT_BYTES
    assert any(torn[at + UNIT_BYTES : at + 2 * UNIT_BYTES]), "the entry behind it is there"
    overwrite(tmp_path / QUEUE / LAST, torn[:at] + struct.pack(">qiq", 1 << 16, 0, 0))
    store, listener = await opened(tmp_path)
    assert bodies(store) == [b"%d" % number for number in range(OLD + 5)]
    assert not damage_reported(listener)
    assert checked_from(listener) > 0
    await store.close()


async def test_a_topic_that_was_deleted_after_the_note_is_not_missed(tmp_path: Path) -> None:
    await grown_old(tmp_path)
    store, _ = await opened(tmp_path)
    await store.delete_topic("TopicA")
    await abandon(store)
    store, listener = await opened(tmp_path)
    assert not damage_reported(listener)
    assert ("TopicA", 0) not in store.queues()
    assert store.put(draft(b"anew")).queue_offset == 0
    await store.close()


async def test_a_topic_that_rocketmq_has_deleted_since_does_not_come_back(tmp_path: Path) -> None:
    """It writes its times into the checkpoint, and leaves what it does not know as it was."""
    await grown_old(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    physic_ms, logics_ms, *others = struct.unpack_from(">5q", checkpoint.read_bytes())
    later = struct.pack(">5q", physic_ms + 1, logics_ms + 1, *others)
    overwrite(checkpoint, later)
    shutil.rmtree((tmp_path / QUEUE).parent)
    store, listener = await opened(tmp_path)
    assert not any("they are built again" in words for words in damage_reported(listener))
    assert ("TopicA", 0) not in store.queues()
    await store.close()
