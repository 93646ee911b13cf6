"""A store that copies another's log holds the same bytes, queues and index, and goes on in them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.foundation.errors import CorruptRecord, DiskFull, OffsetOutOfRange
from engine.store import MessageStore
from engine.store.sound_records import copied_entries
from tests.failing_disk import FailingDisk
from tests.seeds import one_seed
from tests.store_support import (
    Listener,
    abandon,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    turn,
    until,
)

FILE_BYTES = 4096


async def filled(root: Path, count: int = 60) -> MessageStore:
    """A store of three files and more, with batches and a half message."""
    store = await open_store(small_config(root))
    for number in range(count):
        store.put(
            draft(b"%d" % number * 90, queue_id=number % 3, properties=f"KEYS\x01k{number}\x02")
        )
    store.put_batch([draft(b"batch", queue_id=1) for _ in range(5)])
    store.put(draft(b"half", sys_flag=0x4))
    await turn()
    return store


def log_bytes(store: MessageStore) -> bytes:
    """The log from its first byte to its end, with the blanks between files."""
    starts = range(0, store.physical_max, FILE_BYTES)
    whole = b"".join(bytes(store._log.file_view(start)) for start in starts)
    return whole[: store.physical_max]


def copy(source: bytes, store: MessageStore, chunk_bytes: int) -> None:
    """As a replica does: what is no whole entry yet comes again with what follows."""
    sent = store.physical_max
    while store.physical_max < len(source):
        sent = min(len(source), sent + chunk_bytes)
        begin = store.physical_max
        assert store.append_at(begin, source[begin:sent]) == store.physical_max


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("chunk_bytes", [7, 512, 5000, 1 << 20])
async def test_a_copy_equals_its_source_however_it_is_cut_into_pieces(
    tmp_path: Path, chunk_bytes: int, *, pool: bool
) -> None:
    source = await filled(tmp_path / "source")
    config = small_config(tmp_path / "copy", transient_store_pool_enable=pool)
    store = await open_store(config)
    copy(log_bytes(source), store, chunk_bytes)
    await turn()
    assert store.physical_max > 3 * FILE_BYTES
    assert log_bytes(store) == log_bytes(source)
    assert store.queues() == source.queues()
    for topic, queue_id in source.queues():
        assert bodies_of(store, topic, queue_id) == bodies_of(source, topic, queue_id)
    for number in range(60):
        found = [
            each.query_by_key("TopicA", f"k{number}", max_count=9, begin_ms=0, end_ms=1 << 60)
            for each in (store, source)
        ]
        assert found[0] == found[1]
        assert found[0].physical_offsets
    assert store.put(draft(b"own")) == source.put(draft(b"own")), "a copy goes on where it ends"
    await source.close()
    await store.close()


async def test_bytes_for_another_place_than_the_logs_end_are_refused(tmp_path: Path) -> None:
    source = await filled(tmp_path / "source", 5)
    store = await open_store(small_config(tmp_path / "copy"))
    data = log_bytes(source)
    end = store.append_at(0, data)
    for offset in (0, end - 1, end + 1):
        with pytest.raises(OffsetOutOfRange, match=f"for {offset} cannot follow .* {end}"):
            store._log.append_at(offset, b"bytes")
    with pytest.raises(OffsetOutOfRange):
        store.append_at(0, data)
    await turn()
    assert log_bytes(store) == data
    assert store.max_offset("TopicA", 1) == source.max_offset("TopicA", 1)
    await source.close()
    await store.close()


@pytest.mark.parametrize("harm", ["body", "place", "size", "blank"])
async def test_bytes_that_no_log_can_hold_are_refused_and_nothing_of_them_is_stored(
    tmp_path: Path, harm: str
) -> None:
    source = await filled(tmp_path / "source", 5)
    store = await open_store(small_config(tmp_path / "copy"))
    data = bytearray(log_bytes(source))
    at = {"body": 100, "place": 35, "size": 0, "blank": 4}[harm]
    data[at : at + 4] = (
        (-875286124).to_bytes(4, "big", signed=True) if harm == "blank" else b"\x7f!!!"
    )
    with pytest.raises(CorruptRecord):
        store.append_at(0, data)
    await turn()
    assert store.physical_max == 0
    assert store.queues() == []
    await source.close()
    await store.close()


async def test_on_a_full_disk_a_copy_holds_whole_files_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    source = await filled(tmp_path / "source")
    disk, listener = FailingDisk(), Listener()
    store = await open_store(small_config(tmp_path / "copy"), listener, runtime_on(disk))
    disk.free_bytes = 2 * FILE_BYTES + 2
    data = log_bytes(source)
    with pytest.raises(DiskFull):
        store.append_at(0, data)
    assert store.physical_max == 2 * FILE_BYTES
    assert listener.lifecycle("DISK_FULL")
    disk.free_bytes = None
    store.append_at(2 * FILE_BYTES, data[2 * FILE_BYTES :])
    await turn()
    await turn()
    assert log_bytes(store) == data
    assert bodies_of(store, queue_id=1) == bodies_of(source, queue_id=1)
    await source.close()
    await store.close()


async def test_a_copy_that_ended_amid_an_entry_starts_again_without_a_hole(tmp_path: Path) -> None:
    source = await filled(tmp_path / "source")
    data, listener = log_bytes(source), Listener()
    store = await open_store(small_config(tmp_path / "copy"))
    end = store.append_at(0, data[:1000])
    assert 500 < end < 1000
    await store.close()
    store = await open_store(small_config(tmp_path / "copy"), listener)
    assert not listener.lifecycle("LOG_HOLE")
    assert store.physical_max == end
    store.append_at(end, data[end:])
    await turn()
    assert bodies_of(store, queue_id=2) == bodies_of(source, queue_id=2)
    await source.close()
    await store.close()


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("had_some", [False, True])
async def test_a_copy_begins_where_the_log_of_its_source_does(
    tmp_path: Path, *, had_some: bool, kill: bool
) -> None:
    source = await open_store(small_config(tmp_path / "source", file_reserved_time_ms=1))
    for number in range(60):
        source.put(draft(b"%d" % number * 90, queue_id=number % 3))
    await turn()
    await source.retention.run(1 << 60, by_hand=True)
    begin, end = source.physical_min, source.physical_max
    assert begin > 0
    data = b"".join(bytes(source._log.file_view(start)) for start in source._log.files.starts)
    store, listener = await open_store(small_config(tmp_path / "copy")), Listener()
    if had_some:
        store.put(draft(b"another log's"))
        await turn()
        with pytest.raises(OffsetOutOfRange, match="cannot begin at"):
            await store.begin_at(begin)
        await store.truncate(0)
    with pytest.raises(OffsetOutOfRange):
        await store.begin_at(begin + 1)
    await store.begin_at(begin)
    for _ in range(2):  # Empty, and with all of it.
        await (abandon(store) if kill else store.close())
        store = await open_store(small_config(tmp_path / "copy"), listener)
        assert not listener.lifecycle("LOG_HOLE") + listener.lifecycle("DAMAGED_FILE")
        if store.physical_max == begin:
            assert store.append_at(begin, data[: end - begin]) == end
            await turn()
        assert (store.physical_min, store.physical_max) == (begin, end)
        for queue_id in range(3):
            assert bodies_of(store, queue_id=queue_id) == bodies_of(source, queue_id=queue_id)
    await source.close()
    await store.close()


def found_in(data: bytes, *, with_requests: bool) -> tuple[object, ...] | str:
    """What `copied_entries` finds, or why it refuses."""
    try:
        found = copied_entries(
            data,
            0,
            file_size_bytes=FILE_BYTES,
            delay_levels_ms=(1_000,),
            with_requests=with_requests,
        )
        return found[1:]
    except CorruptRecord as error:
        return str(error)


async def test_a_look_at_the_bytes_alone_finds_what_a_look_at_each_record_does(
    tmp_path: Path,
) -> None:
    data, chance = log_bytes(await filled(tmp_path / "source", 30)), random.Random(one_seed())
    assert found_in(data, with_requests=False) == found_in(data, with_requests=True)
    kinds = set()
    for _ in range(4_000):
        place = chance.randrange(len(data))
        flipped = data[place] ^ 1 << chance.randrange(8)
        damaged = data[:place] + bytes([flipped]) + data[place + 1 :]
        found = found_in(damaged, with_requests=False)
        assert found == found_in(damaged, with_requests=True), f"{place}: {flipped}"
        kinds.add(type(found))
    assert kinds == {str, tuple}, "some bits are guarded, as those of a body, and others are not"


async def test_what_comes_in_a_stream_is_dispatched_when_that_rests_and_not_before(
    tmp_path: Path,
) -> None:
    source = await filled(tmp_path / "source")
    store, data = await open_store(small_config(tmp_path / "copy")), log_bytes(source)
    half = store.append_at(0, data[: len(data) // 2], more_follows=True)
    await turn()
    assert store.dispatch_behind_bytes == half, "more is on its way"
    store.append_at(half, data[half:], more_follows=True)
    assert store._queues.next_offset("TopicA", 1) == source._queues.next_offset("TopicA", 1)
    await until(lambda: not store.dispatch_behind_bytes)
    assert store.queues() == source.queues()
    for topic, queue_id in source.queues():
        assert bodies_of(store, topic, queue_id) == bodies_of(source, topic, queue_id)
