"""What lies at or beyond the visible end is in the log, and nobody sees anything of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.store import GetStatus, MessageStore, PutResult, StoreConfig
from tests.store_support import (
    BIG,
    HandClock,
    Listener,
    abandon,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    sync_config,
    turn,
)


def put_some(store: MessageStore, count: int) -> list[PutResult]:
    """Messages of one queue, with their keys."""
    return [
        store.put(draft(b"m%d" % number + b"." * 200, properties=f"KEYS\x01k{number}\x02"))
        for number in range(count)
    ]


def shown(store: MessageStore, put: list[PutResult]) -> int:
    """How many messages show, by whatever question."""
    marks, count = store.marks_of("TopicA", 0), store.max_offset("TopicA", 0)
    assert (marks.max_offset if marks else 0) == count == len(bodies_of(store))
    end = store.get("TopicA", 0, count, max_count=9, max_bytes=BIG).status
    assert end in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
    for number, result in enumerate(put):
        found = store.query_by_key("TopicA", f"k{number}", max_count=9, begin_ms=0, end_ms=1 << 60)
        assert bool(found.physical_offsets) == (number < count)
        place, size_bytes = result.physical_offset, result.size_bytes
        assert (store.record_at(place) is not None) == (number < count)
        assert (store.known_record_at(place) is not None) == (number < count)
        assert (store.bytes_at(place, size_bytes) is not None) == (number < count)
    assert store.dispatch_behind_bytes == 0
    return count


CONFIGS = [small_config, sync_config]


@pytest.mark.parametrize("config", CONFIGS)
async def test_what_lies_beyond_shows_nowhere_until_the_end_moves_on(
    tmp_path: Path, config: Callable[..., StoreConfig]
) -> None:
    store = await open_store(config(tmp_path), visible_end=0)
    arrived: list[int] = []
    store.on_arrival(lambda requests: arrived.extend(one.queue_offset for one in requests))
    put = put_some(store, 20)
    await store.flush()
    await turn()
    assert shown(store, put) == 0
    for count in (3, 4, 19):
        store.visible_end = put[count - 1].end_offset
        await turn()
        assert shown(store, put) == count
        assert arrived == list(range(count))
    store.visible_end = put[-1].end_offset - 1
    await turn()
    assert store.max_offset("TopicA", 0) == 19, "a message shows when all of it is visible"
    assert store.put(draft(b"n")).queue_offset == 20, (
        "what is not visible has its offset all the same"
    )
    await store.close()


async def test_what_shows_is_hidden_by_a_cut_alone(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 9)
    await turn()
    with pytest.raises(AssertionError, match="cut the log"):
        store.visible_end = put[4].end_offset
    await store.close()


async def test_a_cut_moves_the_visible_end_back_and_nothing_else_moves_it(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path), visible_end=0)
    put = put_some(store, 9)
    store.visible_end = put[5].end_offset
    await turn()
    await store.truncate(put[7].end_offset)
    assert store.visible_end == put[5].end_offset
    await store.truncate(put[3].end_offset)
    assert store.visible_end == put[3].end_offset
    put = put[:4] + put_some(store, 3)
    await turn()
    assert store.max_offset("TopicA", 0) == 4
    await store.close()


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 8, 14, 20])
async def test_a_start_shows_no_more_than_it_is_to_and_the_rest_afterwards(
    tmp_path: Path, count: int, *, flushed: bool, kill: bool
) -> None:
    store = await open_store(small_config(tmp_path), visible_end=0)
    put = put_some(store, 20)
    store.visible_end = put[13].end_offset
    await turn()
    if flushed:
        await store._flusher.flush_log("TIMER")
        await store._flusher.flush_derived("TIMER")
    await (abandon(store) if kill else store.close())
    end = put[count - 1].end_offset if count else 0
    store = await open_store(small_config(tmp_path), visible_end=end)
    assert shown(store, put) == count
    assert store.physical_max == put[-1].end_offset
    assert store.put(draft(b"n")).queue_offset == 20
    await (abandon(store) if kill else store.close())
    store = await open_store(small_config(tmp_path), visible_end=end)
    assert shown(store, put) == count
    store.visible_end = max(end, put[-1].end_offset - 1)
    await turn()
    assert store.max_offset("TopicA", 0) == max(count, 19)
    store.visible_end = put[-1].end_offset
    await turn()
    assert shown(store, put) == 20
    await (abandon(store) if kill else store.close())
    store = await open_store(small_config(tmp_path))
    assert len(bodies_of(store)) == 21
    await store.close()


async def test_queues_vouch_for_nothing_that_was_not_visible(tmp_path: Path) -> None:
    clock, listener = HandClock(), Listener()
    config = small_config(tmp_path, message_index_enable=False)
    store = await open_store(config, runtime=runtime_on(clock=clock), visible_end=0)
    ends = []
    for number in range(60):
        clock.value_ms += 10_000
        ends.append(store.put(draft(b"." * 200, queue_id=int(5 <= number < 8))).end_offset)
    store.visible_end = ends[4]
    await turn()
    await store.flush()
    await abandon(store)
    store = await open_store(config, runtime=runtime_on(clock=clock), visible_end=ends[4])
    await abandon(store)
    store = await open_store(config, listener, runtime_on(clock=clock))
    assert (store.max_offset("TopicA", 0), store.max_offset("TopicA", 1)) == (57, 3)
    assert not listener.lifecycle("DAMAGED_FILE")
    await store.close()
