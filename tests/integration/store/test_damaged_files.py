"""500 seeded damages of a killed store's real files: recovery keeps everything sound below what was
synced, a prefix of the rest, and says how much it dropped; derived files cost nothing but time.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.store import PutResult
from tests.failing_disk import FailingDisk
from tests.store_support import (
    Listener,
    abandon,
    draft,
    file_bytes,
    messages_over_holes,
    open_store,
    runtime_on,
    small_config,
    turn,
)

CASES = 500
SHARDS = 5
SECTOR_BYTES = 512
COUNT = 40


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def zero_a_sector(content: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(content)) // SECTOR_BYTES * SECTOR_BYTES
    content[at : at + SECTOR_BYTES] = bytes(len(content[at : at + SECTOR_BYTES]))


def flip(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def tear(content: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(content))
    content[at : at + 64] = chance.randbytes(len(content[at : at + 64]))


def flip_in_a_record(content: bytearray, chance: random.Random) -> None:
    """Of the log only what can be seen: times, hosts, flags and properties have no check."""
    starts, at = [], 0
    while content[at + 4 : at + 8] == MAGIC:
        starts.append(at)
        at += int.from_bytes(content[at : at + 4], "big")
    start = chance.choice(starts)
    body_bytes = int.from_bytes(content[start + 84 : start + 88], "big")
    seen = [*range(12), *range(20, 36), *range(84, 88 + body_bytes)]
    content[start + chance.choice(seen)] ^= 1 << chance.randrange(8)


Damage = Callable[[bytearray, random.Random], None]
OF_LOGS: list[Damage] = [cut, zero_a_sector, flip_in_a_record]
OF_DERIVED: list[Damage] = [cut, zero_a_sector, flip, tear]
MAGIC = b"\xda\xa3\x20\xa7"


def unsynced() -> FailingDisk:
    disk = FailingDisk()
    disk.skip_syncs = True
    return disk


def killed_store(root: Path) -> list[PutResult]:
    """Two queues, three commit-log files, everything flushed once on the way."""
    return asyncio.run(_killed_store(root))


async def _killed_store(root: Path) -> list[PutResult]:
    store = await open_store(small_config(root), runtime=runtime_on(unsynced()))
    put = []
    for number in range(COUNT):
        body = b"%d:" % number + b"x" * (number * 31 % 300)
        properties = f"UNIQ_KEY\x01{number}\x02"
        put.append(store.put(draft(body, queue_id=number % 2, properties=properties)))
        await turn()
        if number == COUNT // 2:
            await store._flusher.flush_log("TIMER")
            await store._flusher.flush_derived("TIMER")
    await abandon(store)
    return put


async def recovered(root: Path, *, keys: bool) -> tuple[list[int], Listener]:
    """Recover and check; `keys`: each survivor is found by its key. Once more: no change."""
    listener = Listener()
    store = await open_store(small_config(root), listener, runtime_on(unsynced()))
    found = sorted(
        (message.physical_offset, int(message.body.partition(b":")[0]))
        for queue_id in (0, 1)
        for message in messages_over_holes(store, queue_id=queue_id)
    )
    for physical_offset, number in found if keys else []:
        key = store.query_by_key("TopicA", str(number), max_count=99, begin_ms=0, end_ms=1 << 60)
        assert physical_offset in key.physical_offsets, f"message {number} by its key"
    await abandon(store)
    settled = file_bytes(root)
    again = Listener()
    store = await open_store(small_config(root), again, runtime_on(unsynced()))
    assert again.recovery.truncated_from is None
    await abandon(store)
    assert file_bytes(root) == settled
    return [number for _, number in found], listener


@pytest.mark.parametrize(
    "shard", [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, SHARDS))]
)
def test_damaged_files_cost_what_was_hit_and_what_was_never_synced(
    tmp_path: Path, shard: int
) -> None:
    whole = tmp_path / "whole"
    put = killed_store(whole)
    synced_to = put[COUNT // 2].end_offset
    files = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.name != "lock"]
    logs = [path for path in files if path.parent.name == "commitlog"]
    derived = [path for path in files if path not in logs and path.stat().st_size > 0]
    for case in range(shard, CASES, SHARDS):
        chance = random.Random(case)
        root = tmp_path / f"case-{case}"
        shutil.copytree(whole, root)
        in_log = chance.random() < 0.6
        victim = chance.choice(logs if in_log else derived).relative_to(whole)
        damage = chance.choice(OF_LOGS if in_log else OF_DERIVED)
        content = bytearray((root / victim).read_bytes())
        damage(content, chance)
        (root / victim).write_bytes(content)
        story = f"case {case}: {damage.__name__} in {victim}"
        left = sound(whole, root, put, synced_to)
        numbers, listener = asyncio.run(recovered(root, keys="index" not in victim.parts))
        assert numbers == left, story
        report = listener.recovery
        hit_below = [n for n in range(COUNT // 2 + 1) if n not in left]
        assert bool(hit_below) <= bool(listener.lifecycle("LOG_HOLE")), story
        if left[-1:] != [COUNT - 1] and report.truncated_to is not None:
            first_gone = next(n for n in range(COUNT) if n not in left and n > COUNT // 2)
            assert report.truncated_from is not None, story
            assert report.truncated_from >= put[first_gone - 1].end_offset, story
            assert "bytes dropped" in str(report.detail), story
        shutil.rmtree(root)


def sound(whole: Path, root: Path, put: list[PutResult], synced_to: int) -> list[int]:
    """Numbers of the messages that must be left: of those synced each one that was not hit, of the
    others those before the first thing that was.
    """
    logs = {path.name: path.read_bytes() for path in (whole / "commitlog").iterdir()}
    left: list[int] = []
    for number, result in enumerate(put):
        start = result.physical_offset - result.physical_offset % 4096
        before = put[number - 1].end_offset if number else 0
        places = [(result.physical_offset, result.end_offset)]
        if before < start:
            places.append((before, before + 8))  # The blank that closes the file before.
        is_sound = [
            (root / "commitlog" / f"{begin - begin % 4096:020d}").read_bytes()[
                begin % 4096 : (end - 1) % 4096 + 1
            ]
            == logs[f"{begin - begin % 4096:020d}"][begin % 4096 : (end - 1) % 4096 + 1]
            for begin, end in places
        ]
        if result.physical_offset >= synced_to and not all(is_sound):
            break
        if is_sound[0]:
            left.append(number)
    return left
