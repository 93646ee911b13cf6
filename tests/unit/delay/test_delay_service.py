"""Delay levels over a real store, with a clock set by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import process_time, thread_time

import pytest

from engine.delay import DelayService
from engine.delay.delay_levels import STEP_COUNT_MAX, DelayLevels
from engine.delay.level_marks import LevelMarks
from engine.delay.waiting_messages import scheduled
from engine.foundation.errors import WritesStopped
from engine.foundation.observing import FlushDone, RetryStep
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_records
from engine.protocol.names import SCHEDULE_TOPIC
from engine.runtime import Runtime, SystemDisk, SystemEntropy, SystemNetwork
from engine.store import MessageDraft, MessageStore, StoreConfig
from engine.store.table_file import TableFile
from tests.asynchronous import run_by
from tests.store_support import HandClock, Listener

LEVELS_MS = (1000, 5000)
BIG = 1 << 20


class Bench:
    """A store, a service over it, and the clock that both believe."""

    def __init__(
        self, store: MessageStore, runtime: Runtime, clock: HandClock, folder: Path
    ) -> None:
        self.store, self.clock, self.listener = store, clock, Listener()
        self.runtime = runtime
        self.dead_letter_groups: list[str] = []
        self.levels = DelayLevels(
            runtime,
            store,
            levels_ms=store._config.delay_levels_ms,
            cursor_file=TableFile(runtime, str(folder / "config" / "delayOffset.json")),
            observer=self.listener,
        )
        self.service = DelayService(
            store,
            self.levels,
            observer=self.listener,
            make_dead_letter_topic=self.dead_letter_groups.append,
        )

    async def put(self, body: bytes, level: int, topic: str = "orders") -> None:
        """Store a message that waits at `level`, and let dispatch see it."""
        self.put_now(body, level, topic)
        await asyncio.sleep(0)

    def put_now(self, body: bytes, level: int, topic: str = "orders") -> None:
        """Store a message that waits at `level`."""
        draft = MessageDraft(
            topic=topic,
            queue_id=0,
            body=body,
            properties="UNIQ_KEY\x01U1\x02",
            born_timestamp_ms=self.clock.now_ms(),
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
        )
        self.store.put(scheduled(draft, level))

    async def after(self, passed_ms: int) -> int:
        """Let time pass and deliver; how many were delivered."""
        self.clock.value_ms += passed_ms
        delivered_count = await self.service.deliver_due()
        await asyncio.sleep(0)
        return delivered_count

    def delivered(self, topic: str = "orders", count: int = 100) -> list[MessageExt]:
        """What stands at the real topic now."""
        found = self.store.get(topic, 0, 0, max_count=count, max_bytes=BIG)
        return decode_records(found.body())


def on_a_bench(
    folder: Path,
    story: Callable[[Bench], Awaitable[None]],
    *,
    levels_ms: Sequence[int] = LEVELS_MS,
    log_bytes: int = BIG,
) -> None:
    async def run() -> None:
        clock = HandClock()
        runtime = Runtime(clock, SystemNetwork(), SystemDisk(), SystemEntropy())
        config = StoreConfig(
            root=str(folder),
            mapped_file_size_commit_log_bytes=log_bytes,
            max_hash_slot_count=10,
            max_index_count=100,
            delay_levels_ms=levels_ms,
            max_transfer_count_in_memory=100,
        )
        store = await MessageStore.open(runtime, config, Listener())
        try:
            await story(Bench(store, runtime, clock, folder))
        finally:
            await store.close()

    asyncio.run(run())


@run_by(on_a_bench, "tmp_path")
async def test_a_message_is_delivered_when_its_level_has_passed_and_not_a_moment_before(
    bench: Bench,
) -> None:
    await bench.put(b"later", level=2)
    assert await bench.after(4999) == 0
    assert bench.delivered() == []
    assert await bench.after(1) == 1
    (message,) = bench.delivered()
    assert (message.body, message.topic, message.queue_id) == (b"later", "orders", 0)
    assert message.properties["REAL_TOPIC"] == "orders"
    assert await bench.after(60_000) == 0, "once, and not again"


@run_by(on_a_bench, "tmp_path")
async def test_levels_do_not_wait_for_each_other(bench: Bench) -> None:
    await bench.put(b"long", level=2)
    await bench.put(b"short", level=1)
    await bench.after(1000)
    await bench.after(4000)
    assert [message.body for message in bench.delivered()] == [b"short", b"long"]


@run_by(on_a_bench, "tmp_path")
async def test_a_level_keeps_its_order_and_stops_at_the_first_that_is_not_due(bench: Bench) -> None:
    await bench.put(b"a", level=1)
    await bench.put(b"b", level=1)
    bench.clock.value_ms += 600
    await bench.put(b"c", level=1)
    assert await bench.after(400) == 2
    assert await bench.after(599) == 0
    assert await bench.after(1) == 1
    assert [message.body for message in bench.delivered()] == [b"a", b"b", b"c"]


@run_by(on_a_bench, "tmp_path")
async def test_the_cursors_survive_and_a_crash_before_their_persist_delivers_again(
    bench: Bench, *, tmp_path: Path
) -> None:
    await bench.put(b"a", level=1)
    await bench.after(1000)
    await bench.levels.persist("TIMER")
    await bench.put(b"b", level=1)
    await bench.after(1000)
    runtime = Runtime(bench.clock, SystemNetwork(), SystemDisk(), SystemEntropy())
    reborn = Bench(bench.store, runtime, bench.clock, tmp_path)
    reborn.levels.load()
    assert reborn.levels.cursors() == {1: 1}
    await reborn.after(0)
    assert [message.body for message in reborn.delivered()] == [b"a", b"b", b"b"]


@run_by(on_a_bench, "tmp_path")
async def test_a_persist_is_reported_and_one_without_news_is_left_out(bench: Bench) -> None:
    await bench.put(b"a", level=1)
    await bench.after(1000)
    await bench.levels.persist("TIMER")
    await bench.levels.persist("TIMER")
    (reported,) = [fact for fact in bench.listener.facts if isinstance(fact, FlushDone)]
    assert (reported.component, reported.action, reported.cause) == ("DELAY", "PERSIST", "TIMER")


@run_by(on_a_bench, "tmp_path")
async def test_only_retries_are_reported_as_steps_of_a_failed_message(bench: Bench) -> None:
    await bench.put(b"plain", level=1)
    await bench.put(b"retry", level=1, topic="%RETRY%g")
    await bench.after(1000)
    (step,) = [fact for fact in bench.listener.facts if isinstance(fact, RetryStep)]
    assert (step.step, step.group, step.message_id) == ("DELIVERED", "g", "U1")


def test_a_draft_that_waits_again_says_once_where_it_belongs() -> None:
    before = "a\x01b\x02REAL_TOPIC\x01%RETRY%old\x02REAL_QID\x017\x02"
    draft = MessageDraft("%RETRY%g", 0, b"again", before, 1, "127.0.0.1:1", "127.0.0.1:2")
    assert scheduled(draft, 1).properties == "a\x01b\x02REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x010\x02"


async def put_raw(bench: Bench, properties: str, body: bytes = b"lost", level: int = 1) -> int:
    """Put a record straight into a level's queue; where it lies."""
    draft = MessageDraft(
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        body=body,
        properties=properties,
        born_timestamp_ms=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
    )
    place = bench.store.put(draft).physical_offset
    await asyncio.sleep(0)
    return place


def damage(folder: Path, place: int, within: int, to: bytes) -> None:
    """Change bytes of a record, as a bad disk does; a running store sees it."""
    (file,) = (folder / "commitlog").glob("0*0")
    with file.open("r+b") as log:
        log.seek(place + within)
        log.write(to)


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x011\x02",
        "REAL_TOPIC\x01../../etc\x02REAL_QID\x010\x02",
        "REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02REAL_QID\x010\x02",
        "REAL_TOPIC\x01orders\x02REAL_QID\x01-5\x02",
        "REAL_TOPIC\x01orders\x02REAL_QID\x012147483648\x02",
        "REAL_TOPIC\x01orders\x02REAL_QID\x01" + "9" * 18 + "\x02",
        "REAL_TOPIC\x01" + "t" * 300 + "\x02REAL_QID\x010\x02",
        "REAL_TOPIC\x01\x01\x02REAL_QID\x01\x01\x02",
    ],
)
@run_by(on_a_bench, "tmp_path")
async def test_a_message_for_no_possible_place_is_buried_and_reported_and_holds_nobody_up(
    bench: Bench, *, properties: str
) -> None:
    await put_raw(bench, properties + "UNIQ_KEY\x01U9\x02")
    await bench.put(b"next", level=1)
    await bench.put(b"other level", level=2)
    assert await bench.after(1000) == 1
    assert await bench.after(4000) == 1
    assert [message.body for message in bench.delivered()] == [b"next", b"other level"]
    (letter,) = bench.delivered("%DLQ%SCHEDULE_CONSUMER")
    assert (letter.body, letter.uniq_key) == (b"lost", "U9")
    assert bench.dead_letter_groups == ["SCHEDULE_CONSUMER"]
    (reported,) = bench.listener.lifecycle("UNDELIVERABLE_MESSAGE")
    assert "message 0 of delay level 1" in str(reported.detail)
    assert await bench.after(1000) == 0, "once"


RETRY = "REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x010\x02RETRY_TOPIC\x01orders\x02UNIQ_KEY\x01U9\x02"
BODY_AT = 88


@pytest.mark.parametrize(
    ("within", "to", "readable"),
    [
        (BODY_AT, b"X", True),
        (BODY_AT + 4 + 1, b"\xff\xfe", True),
        (0, b"\0\0\0\0", True),
        (4, b"\0\0\0\0", True),
        (28, b"\x7f", True),
        (84, b"\x7f\xff\xff\xff", False),
        (84, b"\xff\xff\xff\xff", False),
        (BODY_AT + 4, b"\xff", False),
        (0, bytes(100), False),
    ],
)
@run_by(on_a_bench, "tmp_path")
async def test_a_damaged_record_is_stepped_over_and_its_readable_part_buried(
    bench: Bench, *, tmp_path: Path, within: int, to: bytes, readable: bool
) -> None:
    await bench.put(b"before", level=1)
    place = await put_raw(bench, RETRY)
    await bench.put(b"behind", level=1)
    await bench.put(b"other level", level=2)
    damage(tmp_path, place, within, to)
    assert await bench.after(1000) == 2
    assert await bench.after(4000) == 1
    bodies = [message.body for message in bench.delivered()]
    assert bodies == [b"before", b"behind", b"other level"]
    (reported,) = bench.listener.lifecycle("UNDELIVERABLE_MESSAGE")
    assert "message 1 of delay level 1" in str(reported.detail)
    assert ("nothing of it can be read" in str(reported.detail)) != readable
    if readable:
        assert bench.dead_letter_groups in (["g"], ["SCHEDULE_CONSUMER"])
        (letter,) = bench.delivered(f"%DLQ%{bench.dead_letter_groups[0]}")
        assert len(letter.body) == 4
    assert bench.levels.cursors()[1] == 3


@run_by(on_a_bench, "tmp_path")
async def test_a_retry_that_cannot_be_delivered_is_its_groups_dead_letter_and_a_step_of_it(
    bench: Bench, *, tmp_path: Path
) -> None:
    damage(tmp_path, await put_raw(bench, RETRY), BODY_AT, b"X")
    assert await bench.after(1000) == 0
    (letter,) = bench.delivered("%DLQ%g")
    assert (letter.body, letter.properties["DLQ_ORIGIN_TOPIC"]) == (b"Xost", "%RETRY%g")
    (step,) = [fact for fact in bench.listener.facts if isinstance(fact, RetryStep)]
    assert (step.step, step.group, step.message_id) == ("DEAD_LETTERED", "g", "U9")
    assert "CRC" in str(step.reason)


@run_by(on_a_bench, "tmp_path")
async def test_what_a_store_does_not_take_stays_due(bench: Bench) -> None:
    await bench.put(b"a", level=1)
    bench.store.retention.stop_writes = True
    with pytest.raises(WritesStopped):
        await bench.after(1000)
    assert bench.levels.cursors() == {}
    bench.store.retention.stop_writes = False
    assert await bench.after(0) == 1


LEVELS, EACH = 18, 256
STEP_MS_ALLOWED = 50


@run_by(on_a_bench, "tmp_path", levels_ms=tuple(range(1000, LEVELS * 1000 + 1, 1000)))
async def test_eighteen_full_levels_leave_in_steps_that_never_hold_the_loop(bench: Bench) -> None:
    began_s = process_time()
    for number in range(LEVELS * EACH):
        bench.put_now(b"%d" % number * 100, level=number % LEVELS + 1)
        if number % 64 == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    put_s, steps_ms = process_time() - began_s, [0.0]

    async def watch() -> None:
        while True:
            began_s = thread_time()
            await asyncio.sleep(0)
            steps_ms.append((thread_time() - began_s) * 1000)

    watching = asyncio.create_task(watch())
    began_s = process_time()
    assert await bench.after(LEVELS * 1000) == LEVELS * EACH, "at one tick, whatever is due"
    drained_s = process_time() - began_s
    watching.cancel()
    assert max(steps_ms) < STEP_MS_ALLOWED, "others have their turn"
    assert len(steps_ms) >= LEVELS * EACH // STEP_COUNT_MAX
    assert drained_s < 4 * put_s, "as fast as sends, which cost more than their put alone"


@run_by(on_a_bench, "tmp_path", log_bytes=1 << 23)
async def test_long_messages_leave_in_shorter_steps(bench: Bench) -> None:
    for _ in range(12):
        bench.put_now(bytes(300_000), level=1)
    await asyncio.sleep(0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    assert await bench.after(1000) == 12
    counting.cancel()
    assert turns >= 3, "4 of them are a step"


@run_by(on_a_bench, "tmp_path")
async def test_levels_are_emptied_by_turns(bench: Bench) -> None:
    for number in range(STEP_COUNT_MAX * 2):
        bench.put_now(b"%d" % number, level=1)
    await bench.put(b"the other", level=2)
    await bench.after(5000)
    first = [m.body for m in bench.delivered(count=STEP_COUNT_MAX + 1)]
    assert first[-1] == b"the other", "it did not wait for the whole of the first level"


@run_by(on_a_bench, "tmp_path")
async def test_a_cursor_beyond_its_queue_is_taken_back_to_its_end_and_reported(
    bench: Bench, *, tmp_path: Path
) -> None:
    await bench.put(b"first", level=1)
    cursors = tmp_path / "config" / "delayOffset.json"
    cursors.parent.mkdir()
    cursors.write_text('{"offsetTable":{"1":5,"2":0}}')
    bench.levels.load()
    assert bench.levels.cursors() == {1: 1, 2: 0}
    (reported,) = bench.listener.lifecycle("OFFSETS_TAKEN_BACK")
    assert "at 1 instead of 5" in str(reported.detail)
    await bench.put(b"second", level=1)
    assert await bench.after(LEVELS_MS[0]) == 1, "what gets offset 1 now is delivered"


@run_by(on_a_bench, "tmp_path")
async def test_cursors_are_on_disk_only_when_what_they_passed_is(
    bench: Bench, *, tmp_path: Path
) -> None:
    """Under ASYNC_FLUSH, too: a power cut would take the copies and leave the cursors."""
    await bench.put(b"due", level=1)
    assert await bench.after(LEVELS_MS[0]) == 1
    assert bench.store.physical_flushed < bench.store.physical_max
    await bench.levels.persist("TIMER")
    assert bench.store.physical_flushed == bench.store.physical_max
    assert (tmp_path / "config" / "delayOffset.json").exists()


@run_by(on_a_bench, "tmp_path")
async def test_a_group_that_delivers_nothing_writes_how_far_the_log_was_read_for_that(
    bench: Bench, *, tmp_path: Path
) -> None:
    """Else a start would read all of it again, before it serves anybody."""
    cursors, marks = tmp_path / "config" / "delayOffset.json", LevelMarks()
    levels = DelayLevels(
        bench.runtime,
        bench.store,
        levels_ms=LEVELS_MS,
        cursor_file=TableFile(bench.runtime, str(cursors)),
        observer=bench.listener,
        marks=marks,
        read_again_bytes_max=1_000,
    )
    written = []
    for _ in range(10):
        await bench.put(b"due in an hour", level=2)
        marks.apply((), bench.store.physical_max)
        await levels.persist("TIMER")
        written.append(json.loads(cursors.read_text())["applied"])
    assert bench.store.physical_max - written[-1] < 1_000
    assert len(set(written)) < len(written), "and not for each message"


@run_by(on_a_bench, "tmp_path")
async def test_cursors_stay_behind_while_the_disk_cannot_sync(
    bench: Bench, *, tmp_path: Path
) -> None:
    await bench.put(b"due", level=1)
    assert await bench.after(LEVELS_MS[0]) == 1
    bench.store._flusher.fail("a failing disk")
    for _ in range(2):
        await bench.levels.persist("TIMER")
    assert not (tmp_path / "config" / "delayOffset.json").exists()
    (reported,) = bench.listener.lifecycle("OFFSETS_HELD_BACK")
    put_end, synced_to = bench.store.physical_max, bench.store.physical_flushed
    assert reported.detail == (
        f"delayOffset.json stays behind: messages were delivered up to commit log offset {put_end},"
        f" which is on stable storage up to {synced_to}"
    )


@run_by(on_a_bench, "tmp_path")
async def test_what_waited_for_a_topic_is_deleted_with_it(bench: Bench) -> None:
    await bench.put(b"of before", level=1)
    await bench.store.delete_topic("orders")
    await bench.put(b"of the topic made again", level=1)
    assert await bench.after(LEVELS_MS[0]) == 1
    assert [message.body for message in bench.delivered()] == [b"of the topic made again"]
    assert bench.levels.cursors() == {1: 2}


@run_by(on_a_bench, "tmp_path")
async def test_the_floor_is_the_oldest_record_that_waits_in_any_level(bench: Bench) -> None:
    assert bench.levels.floor() == bench.store.physical_max
    await put_raw(bench, RETRY, level=1)
    oldest = await put_raw(bench, RETRY, level=2)
    await put_raw(bench, RETRY, level=1)
    assert bench.levels.floor() < oldest
    await bench.after(1000)
    assert bench.levels.floor() == oldest
    newest = await put_raw(bench, RETRY, level=1)
    assert bench.levels.floor() == oldest < newest
    await bench.after(4000)
    assert bench.levels.floor() == bench.store.physical_max
