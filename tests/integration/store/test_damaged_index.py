"""Bits that flip in the index of a store: what a question, a start and `store check` make of it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.limits import INDEX_FILL_RECORDS
from engine.store import MessageStore, PutResult
from engine.store.commands import app
from engine.store.index.index_layout import HEADER, IndexShape
from engine.store.record_writing import DraftRecord
from tests.store_support import Listener, abandon, draft, open_store, small_config, turn, until

SHAPE = IndexShape(50, 40)
COUNT = 100
HEAD_BYTES = 88
SLOT_BIT = 8 * HEADER.size + 1


async def play(root: Path, *, clean: bool, count: int = COUNT) -> list[PutResult]:
    """So many messages with a key each, in files of 39 entries."""
    store = await open_store(small_config(root))
    put = []
    for number in range(count):
        put.append(store.put(draft(b"x" * 100, properties=f"UNIQ_KEY\x01{number}\x02")))
        if number % 7 == 0:
            await turn()
            await store._flusher.flush_log("TIMER")
            await store._flusher.flush_derived("TIMER")
    await store._flusher.flush_log("TIMER")
    await turn()
    await store._flusher.flush_derived("TIMER")
    if clean:
        await store.close()
    else:
        await abandon(store)
    return put


def files_of(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def asked(store: MessageStore, number: int) -> list[int]:
    return store.query_by_key(
        "TopicA", str(number), max_count=9, begin_ms=0, end_ms=1 << 60
    ).physical_offsets


def missing(store: MessageStore, put: list[PutResult]) -> list[int]:
    """Messages that their keys do not lead to; no key leads anywhere else."""
    gone = []
    for number, result in enumerate(put):
        found = asked(store, number)
        assert set(found) <= {result.physical_offset}, f"message {number}: {found}"
        gone += [] if found else [number]
    return gone


def is_whole(store: MessageStore) -> bool:
    return store._index is not None and not store._index.is_behind


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("seed", range(12))
async def test_a_flipped_bit_is_reported_and_every_key_is_found_again(
    tmp_path: Path, seed: int, clean: bool
) -> None:
    put = await play(tmp_path, clean=clean)
    chance = random.Random(seed)
    victim = chance.choice(files_of(tmp_path))
    used = HEADER.unpack_from(victim.read_bytes())[5]
    flip(victim, chance.randrange(8 * SHAPE.entry_position(used)))
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    if missing(store, put):
        assert listener.lifecycle("DAMAGED_FILE"), "keys are missing, and nothing was reported"
    store.start()
    scrub = next(task for task in store._life.tasks if task.get_name() == "store index scrub")
    await asyncio.wait([scrub])
    assert listener.lifecycle("DAMAGED_FILE"), "nothing was reported"
    more = store.put(draft(b"live", properties=f"UNIQ_KEY\x01{len(put)}\x02"))
    await until(lambda: is_whole(store))
    await turn()
    assert missing(store, [*put, more]) == []
    await store.close()
    reports_before = len(listener.lifecycle("DAMAGED_FILE"))
    store = await open_store(small_config(tmp_path), listener)
    assert missing(store, [*put, more]) == []
    assert len(listener.lifecycle("DAMAGED_FILE")) == reports_before, "it is reported once"
    await store.close()


async def test_a_stop_amid_the_filling_is_gone_on_with_by_the_next_start(tmp_path: Path) -> None:
    put = await play(tmp_path, clean=True, count=3 * INDEX_FILL_RECORDS)
    flip(files_of(tmp_path)[0], SLOT_BIT)
    store = await open_store(small_config(tmp_path))
    assert is_whole(store), "the start does not look at the slots of older files"
    assert missing(store, put[:30])
    assert not is_whole(store)
    await store.close()
    assert (tmp_path / "abort").exists(), "what is not whole was not stopped cleanly"
    store = await open_store(small_config(tmp_path))
    assert missing(store, put) == []
    await store.close()


async def test_a_hole_in_the_log_under_the_index_ends_no_filling(tmp_path: Path) -> None:
    """Twice damaged: the records are gone, their keys with them, and nothing goes on for ever."""
    put = await play(tmp_path, clean=True)
    flip(files_of(tmp_path)[0], SLOT_BIT)
    hit = put[20]
    log = tmp_path / "commitlog" / f"{hit.physical_offset // 4096 * 4096:020d}"
    flip(log, 8 * (hit.physical_offset % 4096 + 4) + 3)
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    store.start()
    asked(store, 4)
    assert not is_whole(store)
    await until(lambda: is_whole(store))
    assert missing(store, put) == [20]
    await store.close()
    store = await open_store(small_config(tmp_path), listener)
    store.start()
    assert missing(store, put) == [20]
    assert is_whole(store), "it is not built anew again"
    await store.close()


async def test_a_forged_record_inside_a_damaged_message_gets_no_key(tmp_path: Path) -> None:
    """The filling reads the log; bytes in a body are no message, however sound they look."""
    store = await open_store(small_config(tmp_path))
    put = [store.put(draft(b"a", properties="UNIQ_KEY\x01a\x02"))]
    place = put[-1].end_offset
    forged = DraftRecord(draft(b"f", properties="UNIQ_KEY\x01forged\x02"))
    inner = forged.encode(1, place + HEAD_BYTES, 1_700_000_000_000)
    carrier = store.put(draft(inner, properties="UNIQ_KEY\x01carrier\x02"))
    put.append(store.put(draft(b"b", properties="UNIQ_KEY\x01b\x02")))
    for number in range(60):
        store.put(draft(b"x", properties=f"UNIQ_KEY\x01{number}\x02"))
    await turn()
    await store.close()
    log = tmp_path / "commitlog" / f"{0:020d}"
    assert log.read_bytes()[place + HEAD_BYTES :][: len(inner)] == inner
    flip(log, 8 * (carrier.physical_offset + 8))
    flip(files_of(tmp_path)[0], SLOT_BIT)
    store = await open_store(small_config(tmp_path))
    store.query_by_key("TopicA", "a", max_count=9, begin_ms=0, end_ms=1 << 60)
    assert not is_whole(store)
    await until(lambda: is_whole(store))
    for key, wanted in (("a", [0]), ("forged", []), ("b", [put[1].physical_offset])):
        found = store.query_by_key("TopicA", key, max_count=9, begin_ms=0, end_ms=1 << 60)
        assert found.physical_offsets == wanted, key
    await store.close()


@pytest.mark.parametrize("part", ["header", "slots", "entries"])
def test_store_check_names_what_is_not_as_it_was_flushed(tmp_path: Path, part: str) -> None:
    asyncio.run(play(tmp_path, clean=True))
    shape = ["--set", "maxHashSlotNum=50", "--set", "maxIndexNum=40"]
    command = ["store", "check", str(tmp_path), *shape]
    before = CliRunner().invoke(app, command)
    bit = {"header": 3, "slots": 8 * HEADER.size, "entries": 8 * SHAPE.entry_position(3)}[part]
    flip(files_of(tmp_path)[0], bit)
    found = CliRunner().invoke(app, command)
    assert "not as" not in before.output
    assert "not as" in found.output, found.output
    assert found.exit_code == 3
