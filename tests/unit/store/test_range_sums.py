"""Sums of ranges, and a search for records in bytes that were made to be dear."""

from __future__ import annotations

import random
from pathlib import Path
from zlib import crc32

from engine.runtime import SystemDisk
from engine.store.behind_damage import BehindDamage
from engine.store.commit_log import CommitLog
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.range_sums import RangeSums
from engine.store.record_reading import HEADS
from engine.store.record_writing import DraftRecord
from engine.store.sound_records import last_sound_end, sound_places
from tests.store_support import draft, open_store, small_config, turn

BODY_BYTES = 512 * 1024
TAIL = b"\x06TopicA\0\0"


def nested_heads(count_max: int) -> bytearray:
    """Heads side by side, each of a record that reaches to the end of all: every field of each is
    right but the CRC of its body.
    """
    head = HEADS[0]
    (encoded,) = [DraftRecord(draft(b"", properties="")).encode(0, 0, 1_700_000_000_000)]
    content = bytearray(BODY_BYTES)
    content[-len(TAIL) :] = TAIL
    for at in range(0, BODY_BYTES - 4096, head.size)[:count_max]:
        content[at : at + head.size] = encoded[: head.size]
        content[at : at + 4] = (BODY_BYTES - at).to_bytes(4, "big")
        content[at + 28 : at + 36] = at.to_bytes(8, "big")
        length = BODY_BYTES - at - head.size - len(TAIL)
        content[at + head.size - 4 : at + head.size] = length.to_bytes(4, "big")
    return content


def test_the_sum_of_a_range_is_its_crc() -> None:
    chance = random.Random(3)
    data = chance.randbytes(300_000)
    sums = RangeSums(memoryview(data), 1000)
    for _ in range(300):
        begin = chance.randint(1000, len(data))
        end = chance.randint(begin, len(data))
        assert sums.of(begin, end) == crc32(data[begin:end]), (begin, end)


def test_a_body_of_heads_is_searched_by_summing_each_byte_a_few_times() -> None:
    content = nested_heads(10_000)
    view = memoryview(bytes(content)).toreadonly()
    sums = RangeSums(view)
    assert list(sound_places(view, 0, 0, len(view), sums=sums)) == []
    heads = (BODY_BYTES - 4096) // HEADS[0].size
    assert heads > 5000, "each of them would sum the rest of the body"
    assert sums.summed_bytes < len(view) + heads * 3 * 4096
    assert last_sound_end(view, 0, len(view)) is None


def test_of_nested_records_the_sound_ones_are_found() -> None:
    content = nested_heads(3)
    head = HEADS[0].size
    body = bytes(content[head + head : len(content) - len(TAIL)])
    content[head + 8 : head + 12] = (crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    view = memoryview(bytes(content)).toreadonly()
    assert list(sound_places(view, 0, 0, len(view))) == [head]
    assert last_sound_end(view, 0, len(view)) == len(view)


async def test_records_side_by_side_in_a_damaged_body_are_each_followed_once(
    tmp_path: Path,
) -> None:
    """Sound ones at their own offsets, of a queue each, that end where nothing can begin: no queue
    knows the message around them.
    """
    store = await open_store(small_config(tmp_path, mapped_file_size_commit_log_bytes=1 << 19))
    store.put(draft(b"before"))
    place = store.physical_max
    body, count = b"", 1500
    for number in range(count):
        record = DraftRecord(draft(b"f", topic=f"forged-{number}"))
        body += record.encode(7, place + HEADS[0].size + len(body), 1_700_000_000_000)
    store.put(draft(body + b"\1" * 400))
    after = store.put(draft(b"after"))
    await turn()
    await store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[place : place + HEADS[0].size] = b"\1" * HEADS[0].size
    path.write_bytes(content)
    log = CommitLog(SystemDisk(), str(tmp_path / "commitlog"), 1 << 19, FilePool())
    log.load(1 << 62)
    log.end_offset = log.committed_offset = 1 << 19
    behind = BehindDamage(log, QueueTable(SystemDisk(), str(tmp_path / "none"), 160, FilePool()))
    assert behind.find(place, 1 << 19) == after.physical_offset, "none of the forged ones"
    assert behind.looked_at < 3 * count
