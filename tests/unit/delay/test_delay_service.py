"""Delay levels over a real store, with a clock set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.delay.delay_service import DelayService, scheduled
from engine.foundation.observing import FlushDone, RetryStep
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_records
from engine.runtime import Runtime, SystemDisk, SystemEntropy, SystemNetwork
from engine.store import MessageDraft, MessageStore, StoreConfig
from engine.store.table_file import TableFile
from tests.store_support import HandClock, Listener

LEVELS_MS = (1000, 5000)
BIG = 1 << 20


class Bench:
    """A store, a service over it, and the clock that both believe."""

    def __init__(
        self, store: MessageStore, runtime: Runtime, clock: HandClock, folder: Path
    ) -> None:
        self.store, self.clock, self.listener = store, clock, Listener()
        self.service = DelayService(
            runtime,
            store,
            levels_ms=LEVELS_MS,
            cursor_file=TableFile(runtime, str(folder / "config" / "delayOffset.json")),
            observer=self.listener,
        )

    async def put(self, body: bytes, level: int, topic: str = "orders") -> None:
        """Store a message that waits at `level`, and let dispatch see it."""
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
        await asyncio.sleep(0)

    async def after(self, passed_ms: int) -> int:
        """Let time pass and deliver; how many were delivered."""
        self.clock.value_ms += passed_ms
        delivered_count = self.service.deliver_due(self.clock.now_ms())
        await asyncio.sleep(0)
        return delivered_count

    def delivered(self, topic: str = "orders") -> list[MessageExt]:
        """What stands at the real topic now."""
        found = self.store.get(topic, 0, 0, max_count=100, max_bytes=BIG)
        return decode_records(found.body())


def on_a_bench(folder: Path, story: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = HandClock()
        runtime = Runtime(clock, SystemNetwork(), SystemDisk(), SystemEntropy())
        config = StoreConfig(
            root=str(folder),
            mapped_file_size_commit_log_bytes=BIG,
            max_hash_slot_count=10,
            max_index_count=100,
            delay_levels_ms=LEVELS_MS,
        )
        store = await MessageStore.open(runtime, config, Listener())
        try:
            await story(Bench(store, runtime, clock, folder))
        finally:
            await store.close()

    asyncio.run(run())


def test_a_message_is_delivered_when_its_level_has_passed_and_not_a_moment_before(
    tmp_path: Path,
) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"later", level=2)
        assert await bench.after(4999) == 0
        assert bench.delivered() == []
        assert await bench.after(1) == 1
        (message,) = bench.delivered()
        assert (message.body, message.topic, message.queue_id) == (b"later", "orders", 0)
        assert message.properties["REAL_TOPIC"] == "orders"
        assert await bench.after(60_000) == 0, "once, and not again"

    on_a_bench(tmp_path, story)


def test_levels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"long", level=2)
        await bench.put(b"short", level=1)
        await bench.after(1000)
        await bench.after(4000)
        assert [message.body for message in bench.delivered()] == [b"short", b"long"]

    on_a_bench(tmp_path, story)


def test_a_level_keeps_its_order_and_stops_at_the_first_that_is_not_due(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"a", level=1)
        await bench.put(b"b", level=1)
        bench.clock.value_ms += 600
        await bench.put(b"c", level=1)
        assert await bench.after(400) == 2
        assert await bench.after(599) == 0
        assert await bench.after(1) == 1
        assert [message.body for message in bench.delivered()] == [b"a", b"b", b"c"]

    on_a_bench(tmp_path, story)


def test_a_clock_set_back_by_more_than_the_delay_delivers_at_once(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"later", level=1)
        assert await bench.after(0) == 0
        assert await bench.after(-3_600_000) == 1

    on_a_bench(tmp_path, story)


def test_a_backlog_is_delivered_in_portions(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        for number in range(700):
            await bench.put(f"{number}".encode(), level=1)
        first = await bench.after(1000)
        second = await bench.after(0)
        assert 0 < first < 700
        assert first + second == 700

    on_a_bench(tmp_path, story)


def test_the_cursors_survive_and_a_crash_before_their_persist_delivers_again(
    tmp_path: Path,
) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"a", level=1)
        await bench.after(1000)
        await bench.service.persist("TIMER")
        await bench.put(b"b", level=1)
        await bench.after(1000)
        runtime = Runtime(bench.clock, SystemNetwork(), SystemDisk(), SystemEntropy())
        reborn = Bench(bench.store, runtime, bench.clock, tmp_path)
        reborn.service.load()
        assert reborn.service.cursors() == {1: 1}
        await reborn.after(0)
        assert [message.body for message in reborn.delivered()] == [b"a", b"b", b"b"]

    on_a_bench(tmp_path, story)


def test_a_persist_is_told_and_one_without_news_is_left_out(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"a", level=1)
        await bench.after(1000)
        await bench.service.persist("TIMER")
        await bench.service.persist("TIMER")
        (told,) = [fact for fact in bench.listener.facts if isinstance(fact, FlushDone)]
        assert (told.component, told.action, told.cause) == ("DELAY", "PERSIST", "TIMER")

    on_a_bench(tmp_path, story)


def test_only_retries_are_told_as_steps_of_a_failed_message(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"plain", level=1)
        await bench.put(b"retry", level=1, topic="%RETRY%g")
        await bench.after(1000)
        (step,) = [fact for fact in bench.listener.facts if isinstance(fact, RetryStep)]
        assert (step.step, step.group, step.message_id) == ("DELIVERED", "g", "U1")

    on_a_bench(tmp_path, story)


def test_a_message_that_names_no_real_topic_is_left_out_and_holds_nobody_up(
    tmp_path: Path,
) -> None:
    async def story(bench: Bench) -> None:
        lost = MessageDraft(
            topic="SCHEDULE_TOPIC_XXXX",
            queue_id=0,
            body=b"lost",
            properties="DELAY\x011\x02",
            born_timestamp_ms=0,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
        )
        bench.store.put(lost)
        await bench.put(b"next", level=1)
        await bench.after(1000)
        assert [message.body for message in bench.delivered()] == [b"next"]

    on_a_bench(tmp_path, story)


def test_a_cursor_beyond_its_queue_is_taken_back_to_its_end_and_told(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"first", level=1)
        cursors = tmp_path / "config" / "delayOffset.json"
        cursors.parent.mkdir()
        cursors.write_text('{"offsetTable":{"1":5,"2":0}}')
        bench.service.load()
        assert bench.service.cursors() == {1: 1, 2: 0}
        (told,) = bench.listener.lifecycle("OFFSETS_TAKEN_BACK")
        assert "at 1 instead of 5" in str(told.detail)
        await bench.put(b"second", level=1)
        assert await bench.after(LEVELS_MS[0]) == 1, "what gets offset 1 now is delivered"

    on_a_bench(tmp_path, story)


def test_cursors_are_on_disk_only_when_what_they_passed_is(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH, too: a power cut would take the copies and leave the cursors."""

    async def story(bench: Bench) -> None:
        await bench.put(b"due", level=1)
        assert await bench.after(LEVELS_MS[0]) == 1
        assert bench.store.physical_flushed < bench.store.physical_max
        await bench.service.persist("TIMER")
        assert bench.store.physical_flushed == bench.store.physical_max
        assert (tmp_path / "config" / "delayOffset.json").exists()

    on_a_bench(tmp_path, story)


def test_cursors_stay_behind_while_the_disk_cannot_sync(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(b"due", level=1)
        assert await bench.after(LEVELS_MS[0]) == 1
        bench.store._flusher.fail("a failing disk")
        await bench.service.persist("TIMER")
        assert not (tmp_path / "config" / "delayOffset.json").exists()

    on_a_bench(tmp_path, story)
