"""States that follow the log get each entry once, in order, from wherever they were applied to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.foundation.errors import OffsetOutOfRange
from engine.foundation.limits import INDEX_FILL_RECORDS
from engine.store import MessageStore
from engine.store.record_reading import DispatchRequest
from tests.store_support import draft, open_store, small_config, turn


class Places:
    """Where each entry lies."""

    def __init__(self, applied_offset: int = 0) -> None:
        self.applied_offset = applied_offset
        self.found: list[int] = []

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        self.found += [entry.physical_offset for entry in entries]
        self.applied_offset = end_offset

    def cut(self, end_offset: int) -> None:
        self.found = [place for place in self.found if place < end_offset]
        self.applied_offset = end_offset


def put_some(store: MessageStore, count: int) -> list[int]:
    """Messages and half messages; where they lie."""
    return [
        store.put(draft(b"m", sys_flag=0x4 if number % 5 == 0 else 0)).physical_offset
        for number in range(count)
    ]


async def test_a_state_that_catches_up_while_messages_come_gets_each_of_them_once(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    store = await open_store(config)
    places = put_some(store, 2 * INDEX_FILL_RECORDS)
    await turn()
    early, late = Places(), Places()
    await store.follow(early)
    following = asyncio.ensure_future(store.follow(late))
    while not following.done():
        places += put_some(store, 3)
        await turn()
    places += put_some(store, 3)
    await turn()
    assert early.found == late.found == places
    assert early.applied_offset == late.applied_offset == store.physical_max
    await store.close()


async def test_a_state_goes_on_behind_what_its_snapshot_holds(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    places = put_some(store, 60)
    await store.close()
    store = await open_store(small_config(tmp_path))
    state = Places(places[25])
    await store.follow(state)
    assert state.found == places[25:]
    await store.truncate(places[40])
    assert state.found == places[25:40]
    more = put_some(store, 3)
    await turn()
    assert state.found == places[25:40] + more
    await store.close()


async def test_a_snapshot_from_before_the_logs_begin_is_refused(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path, file_reserved_time_ms=1))
    put_some(store, 60)
    await turn()
    await store.retention.run(1 << 60, by_hand=True)
    assert store.physical_min > 0
    state = Places()
    with pytest.raises(OffsetOutOfRange, match="needs a newer snapshot"):
        await store.follow(state)
    put_some(store, 3)
    await turn()
    assert state.found == [], "it does not follow"
    state = Places(store.physical_min)
    await store.follow(state)
    assert state.applied_offset == store.physical_max
    await store.close()


async def test_a_snapshot_that_is_ahead_of_what_is_visible_is_taken_back_to_it(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    places = put_some(store, 60)
    await store.close()
    store = await open_store(small_config(tmp_path), visible_end=places[10])
    state = Places(places[25])
    state.found = places[:25]
    await store.follow(state)
    assert state.found == places[:10]
    store.visible_end = places[30]
    await turn()
    assert state.found == places[:30]
    await store.close()
