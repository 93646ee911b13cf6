"""What putting and getting promise: offsets, visibility, statuses, limits, arrivals, times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.foundation.errors import LocalProtocolError, RecordTooLarge, StorageError
from engine.protocol.hashes import tags_code
from engine.protocol.message_record import decode_record
from engine.store import GetStatus, MessageStore
from tests.store_support import (
    BIG,
    START_MS,
    HandClock,
    Listener,
    bodies_of,
    draft,
    messages_of,
    open_store,
    runtime_on,
    small_config,
    sync_config,
    turn,
    until,
)

TAG_A, TAG_B = tags_code("TagA"), tags_code("TagB")


async def store_of(root: Path, count: int, *, body_bytes: int = 10) -> MessageStore:
    """A store with `count` messages in TopicA 0, tags TagA and TagB in turn."""
    store = await open_store(small_config(root))
    for number in range(count):
        tag = "TagA" if number % 2 == 0 else "TagB"
        body = b"%d" % number + b"." * body_bytes
        store.put(draft(body, properties=f"TAGS\x01{tag}\x02"))
        await turn()
    return store


@pytest.mark.parametrize(
    ("queue_offset", "status", "next_begin", "count"),
    [
        (0, GetStatus.FOUND, 3, 3),
        (6, GetStatus.FOUND, 8, 2),  # A consume-queue file holds 8 units.
        (8, GetStatus.FOUND, 10, 2),
        (10, GetStatus.OFFSET_OVERFLOW_ONE, 10, 0),
        (11, GetStatus.OFFSET_OVERFLOW_BADLY, 10, 0),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0, 0),
    ],
)
async def test_a_get_answers_as_rocketmq_does(
    tmp_path: Path, queue_offset: int, status: GetStatus, next_begin: int, count: int
) -> None:
    store = await store_of(tmp_path, 10)
    result = store.get("TopicA", 0, queue_offset, max_count=3, max_bytes=BIG)
    assert (result.status, result.next_begin_offset, result.count) == (
        status,
        next_begin,
        count,
    )
    assert (result.min_offset, result.max_offset) == (0, 10)
    unknown = store.get("TopicA", 9, queue_offset, max_count=3, max_bytes=BIG)
    assert (unknown.status, unknown.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    await store.close()


def flushed_offset(store: MessageStore, topic: str, queue_id: int) -> int:
    marks = store.marks_of(topic, queue_id)
    assert marks is not None
    return marks.flushed_offset


def offsets(store: MessageStore, wanted: Callable[[int], bool], **limits: int) -> list[int]:
    settings = {"max_count": 32, "max_bytes": BIG} | limits
    result = store.get("TopicA", 0, 0, wanted=wanted, **settings)
    return [decode_record(record).queue_offset for record in result.records]


async def test_a_tag_test_passes_over_messages_and_the_next_offset_moves_over_them(
    tmp_path: Path,
) -> None:
    store = await store_of(tmp_path, 8)
    assert offsets(store, lambda code: code == TAG_A) == [0, 2, 4, 6]
    assert offsets(store, lambda code: code == TAG_B, max_count=2) == [1, 3]
    nothing = store.get("TopicA", 0, 0, max_count=32, max_bytes=BIG, wanted=lambda code: code == 77)
    assert nothing.status is GetStatus.NO_MATCHED_MESSAGE
    assert nothing.next_begin_offset == 8
    await store.close()


async def test_neighbours_leave_as_one_view_and_the_byte_limit_never_starves_a_reader(
    tmp_path: Path,
) -> None:
    store = await store_of(tmp_path, 4, body_bytes=300)
    result = store.get("TopicA", 0, 0, max_count=32, max_bytes=BIG)
    assert len(result.records) == 1
    assert result.count == 4
    assert result.size_bytes == len(result.body())
    one = store.get("TopicA", 0, 0, max_count=32, max_bytes=1)
    assert (one.count, one.next_begin_offset) == (1, 1)
    two = store.get("TopicA", 0, 0, max_count=32, max_bytes=one.size_bytes * 2)
    assert two.count == 2
    await store.close()


async def test_an_answer_holds_no_more_than_the_store_s_own_limits(tmp_path: Path) -> None:
    near = small_config(tmp_path, max_transfer_count_in_memory=3)
    store = await open_store(near)
    for number in range(8):
        store.put(draft(b"%d" % number))
    await turn()
    result = store.get("TopicA", 0, 0, max_count=32, max_bytes=BIG)
    assert (result.count, result.suggest_pulling_from_slave) == (3, False)
    await store.close()
    far = small_config(tmp_path, resident_bytes=500, max_transfer_count_in_disk=2)
    store = await open_store(far)
    result = store.get("TopicA", 0, 0, max_count=32, max_bytes=BIG)
    assert (result.count, result.suggest_pulling_from_slave) == (2, True)
    await store.close()


async def test_async_messages_are_visible_one_turn_after_the_put(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    result = store.put(draft(b"first"))
    assert store.when_flushed(result.end_offset) is None
    assert store.max_offset("TopicA", 0) == 0
    assert store.dispatch_behind_bytes == result.size_bytes
    await turn()
    assert bodies_of(store) == [b"first"]
    assert store.dispatch_behind_bytes == 0
    await store.close()


async def test_sync_messages_are_visible_only_once_they_are_safe(tmp_path: Path) -> None:
    store = await open_store(sync_config(tmp_path))
    result = store.put(draft(b"first"))
    await turn()
    assert store.max_offset("TopicA", 0) == 0, "nobody flushes: the store is not started"
    store.start()
    waiting = store.when_flushed(result.end_offset)
    assert waiting is not None
    assert await waiting is True
    assert bodies_of(store) == [b"first"]
    assert flushed_offset(store, "TopicA", 0) == 1
    await store.close()


async def test_arrivals_are_reported_in_log_order_with_what_a_held_pull_needs(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(clock=clock))
    arrivals: list[tuple[str, int, int, int, int]] = []
    store.on_arrival(
        lambda messages: arrivals.extend(
            (
                *(message.topic, message.queue_id, message.queue_offset),
                *(message.tags_code, message.store_timestamp_ms),
            )
            for message in messages
        )
    )
    store.put(draft(b"1"))
    store.put(draft(b"half", sys_flag=0x4))
    clock.value_ms += 5
    store.put(draft(b"2", topic="TopicB", queue_id=3, properties=""))
    store.put(draft(b"3"))
    assert arrivals == []
    await turn()
    assert arrivals == [
        ("TopicA", 0, 0, TAG_A, START_MS),
        ("TopicB", 3, 0, 0, START_MS + 5),
        ("TopicA", 0, 1, TAG_A, START_MS + 5),
    ]
    assert store.max_offset("TopicA", 0) == 2
    await store.close()


async def test_what_waits_for_its_flush_is_counted_per_queue(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    store.put(draft(b"a"))
    store.put(draft(b"b", queue_id=1))
    await turn()
    assert flushed_offset(store, "TopicA", 0) == 0
    await store._flusher.flush_log("TIMER")
    store.put(draft(b"c"))
    await turn()
    assert flushed_offset(store, "TopicA", 0) == 1
    assert flushed_offset(store, "TopicA", 1) == 1
    assert store.marks_of("TopicZ", 0) is None
    await store.close()


async def test_store_times_never_go_back_though_the_clock_does(tmp_path: Path) -> None:
    clock = HandClock()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(clock=clock))
    first = store.put(draft(b"1"))
    clock.value_ms -= 3_600_000
    second = store.put(draft(b"2"))
    assert (first.store_timestamp_ms, second.store_timestamp_ms) == (START_MS, START_MS)
    await turn()
    await store.close()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(clock=clock))
    assert store.put(draft(b"3")).store_timestamp_ms == START_MS
    await turn()
    assert store.last_store_time("TopicA", 0) == START_MS
    await store.close()


async def test_a_batch_lies_in_one_file_and_a_single_write(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    store.put(draft(bytes(2500)))
    results = store.put_batch([draft(b"x" * 300) for _ in range(5)])
    assert results[0].physical_offset == 4096, "it did not fit behind the first"
    assert [result.queue_offset for result in results] == [1, 2, 3, 4, 5]
    ends = [result.end_offset for result in results]
    assert [result.physical_offset for result in results[1:]] == ends[:-1]
    longer = store.put_batch([draft(b"y" * 1500) for _ in range(4)])
    assert [result.queue_offset for result in longer] == [6, 7, 8, 9]
    assert store.put_batch([]) == []
    await turn()
    assert len(messages_of(store)) == 10
    await store.close()


async def test_what_no_record_can_hold_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    refused = [
        (draft(bytes(4096)), RecordTooLarge, "mappedFileSizeCommitLog"),
        (draft(properties="k\x01" + "v" * 32_768 + "\x02"), LocalProtocolError, "32767"),
        (draft(topic="../../etc/cron.d/x"), StorageError, "A-Za-z0-9"),
        (draft(topic=""), StorageError, "1 to 255"),
        (draft(queue_id=-1), StorageError, "queue id -1"),
        (draft(born_host="nowhere"), LocalProtocolError, "nowhere"),
    ]
    for message, error, words in refused:
        with pytest.raises(error, match=words):
            store.put(message)
    assert store.physical_max == 0
    assert store.queues() == []
    assert store.put(draft(b"taken")).queue_offset == 0
    await turn()
    await store.close()
    assert {path.name for path in (tmp_path / "consumequeue").iterdir()} == {"TopicA"}


async def test_a_topic_made_again_begins_at_0_and_stays_so_after_a_crash(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    for number in range(9):
        store.put(draft(b"old %d" % number))
    await turn()
    assert await store.delete_topic("TopicA") == 1
    assert store.queues() == []
    assert store.put(draft(b"new")).queue_offset == 0
    await turn()
    assert bodies_of(store) == [b"new"]
    store._life.release()  # As kill -9 leaves it.
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    assert bodies_of(store) == [b"new"]
    assert not listener.lifecycle("DAMAGED_FILE")
    await store.close()


async def test_flushes_are_reported_with_component_cause_and_place(tmp_path: Path) -> None:
    listener = Listener()
    store = await open_store(sync_config(tmp_path), listener)
    store.start()
    result = store.put(draft(b"x", properties="UNIQ_KEY\x01k\x02"))
    waiting = store.when_flushed(result.end_offset)
    assert waiting is not None
    await waiting
    (flush,) = listener.flushes("COMMIT_LOG")
    assert (flush.action, flush.cause) == ("FLUSH", "GROUP")
    assert (flush.written, flush.flushed) == (result.end_offset, result.end_offset)
    assert flush.store_time_ms == START_MS
    await store.close()
    assert {flush.cause for flush in listener.flushes("CONSUME_QUEUE")} <= {"TIMER", "SHUTDOWN"}
    assert listener.flushes("CONSUME_QUEUE")
    assert listener.flushes("INDEX")


async def test_recovery_of_an_unclean_stop_is_reported_as_its_own_flush(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    result = store.put(draft(b"x"))
    await turn()
    store._life.release()
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    (flush,) = listener.flushes("COMMIT_LOG")
    assert (flush.cause, flush.flushed) == ("RECOVERY", result.end_offset)
    assert listener.recovery.clean is False
    assert store.physical_flushed == result.end_offset
    await store.close()


async def test_under_sync_flush_a_put_that_nobody_waits_for_becomes_visible_too(
    tmp_path: Path,
) -> None:
    """One-way sends with WAIT=false, delayed messages that are due, op messages of transactions."""
    store = await open_store(sync_config(tmp_path))
    store.start()
    store.put(draft(b"alone"))
    await until(lambda: bodies_of(store) == [b"alone"])
    await store.close()


async def test_no_message_is_older_than_the_one_before_it_though_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    before = store.put(draft(b"x"))
    await store.close()
    runtime = runtime_on(clock=HandClock(START_MS - 3_600_000))
    store = await open_store(small_config(tmp_path), runtime=runtime)
    assert store.put(draft(b"y")).store_timestamp_ms >= before.store_timestamp_ms
    await store.close()
