"""Row E3: messages for a moment are delivered once, in the order of moments, never early."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest

from engine.delay.wheel.delivered import Mark
from engine.delay.wheel.hour_log import ENTRY_BYTES, HEADS_BYTES, HourLog
from engine.foundation.errors import WritesStopped
from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.protocol.properties import PROPERTY_TIMER_DUE_MS, PROPERTY_TIMER_OUT_MS
from engine.runtime import SystemDisk
from engine.store.record_reading import DispatchRequest
from tests.store_support import START_MS, HandClock, bodies_of, draft, messages_of
from tests.unit.delay.wheel_bench import wheel_bench

NOW = START_MS
DAY_MS = 24 * HOUR_MS


async def test_messages_appear_at_their_millisecond_whatever_the_order_of_their_puts(
    tmp_path: Path,
) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"later", NOW + 2000)
        bench.put(b"sooner", NOW + 1001)
        bench.put(b"last", NOW + 3 * HOUR_MS + 5)
        assert await bench.pass_to(NOW + 1000) == []
        assert await bench.pass_to(NOW + 1001) == [b"sooner"]
        assert await bench.pass_to(NOW + 2000) == [b"sooner", b"later"]
        assert await bench.pass_to(NOW + 3 * HOUR_MS + 4) == [b"sooner", b"later"]
        assert await bench.pass_to(NOW + 3 * HOUR_MS + 5) == [b"sooner", b"later", b"last"]


async def test_a_delay_has_no_upper_limit(tmp_path: Path) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        bench.put(b"in ten years", NOW + 3650 * DAY_MS)
        await bench.pass_to(NOW)
    async with wheel_bench(tmp_path, clock) as bench:
        assert await bench.pass_to(NOW + 3650 * DAY_MS - 1) == []
        assert await bench.pass_to(NOW + 3650 * DAY_MS) == [b"in ten years"]


async def test_a_delivered_message_says_when_it_was_due_and_waited(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 1500)
        await bench.pass_to(NOW + 1700)
        (message,) = messages_of(bench.store)
        assert message.properties[PROPERTY_TIMER_DUE_MS] == str(NOW + 1500)
        assert message.properties[PROPERTY_TIMER_OUT_MS] == str(NOW + 1000)
        assert message.properties["TIMER_DEQUEUE_MS"] == str(NOW + 1700)


@pytest.mark.parametrize("lost", ["nothing", "delay logs", "snapshot", "both"])
@pytest.mark.parametrize("is_saved", [True, False], ids=["saved", "not saved"])
async def test_after_a_kill_each_is_delivered_once_whatever_files_are_lost(
    tmp_path: Path, lost: str, *, is_saved: bool
) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        for number in range(18):
            bench.put(b"%d" % number, NOW + 1000 + 100 * number)
        await bench.pass_to(NOW + 2000)
        if is_saved:
            await bench.wheel.persist("TIMER")
        for number in (18, 19):
            bench.put(b"%d" % number, NOW + 1000 + 100 * number)
        delivered = await bench.pass_to(NOW + 2500)
        assert len(delivered) == 16
    if lost in ("delay logs", "both"):
        shutil.rmtree(bench.folder)
    if lost in ("snapshot", "both"):
        for file in bench.snapshot.parent.glob("timerWheel.json*"):
            file.unlink()
    async with wheel_bench(tmp_path, clock) as bench:
        missed = is_saved and lost == "delay logs"
        assert len(bench.listener.lifecycle("DAMAGED_FILE")) == missed, "made again without need"
        assert await bench.pass_to(NOW + 2500) == delivered
        assert await bench.pass_to(NOW + 9000) == [b"%d" % number for number in range(20)]


async def test_a_damaged_delay_log_is_made_again_from_the_commit_log(tmp_path: Path) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        bench.put(b"a", NOW + 60_000)
        bench.put(b"b", NOW + 60_001)
        await bench.turn()
        (path,) = bench.folder.iterdir()
        flipped = bytearray(path.read_bytes())
        flipped[-10] ^= 1
        path.write_bytes(flipped)
        running = asyncio.create_task(bench.wheel.run(1))
        with pytest.raises(Exception, match="is damaged"):
            await bench.pass_to(NOW + 61_000)
        (event,) = bench.listener.lifecycle("DAMAGED_FILE")
        assert "made again from the commit log" in str(event.detail)
        await asyncio.sleep(0.2)
        running.cancel()
        assert await bench.pass_to(NOW + 61_000) == [b"a", b"b"]


async def test_a_cancelled_timer_does_not_appear_and_a_later_one_with_its_key_does(
    tmp_path: Path,
) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 5000)
        bench.put(b"b", NOW + 5000)
        await bench.turn()
        bench.cancel(b"a", NOW + 5000)
        bench.put(b"c", NOW + 5000, UNIQ_KEY="a")
        assert await bench.pass_to(NOW + 6000) == [b"b", b"c"]


async def test_a_cancellation_counts_from_its_put_on_though_dispatch_has_not_seen_it(
    tmp_path: Path,
) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 5000)
        await bench.turn()
        bench.clock.value_ms = NOW + 5000
        bench.cancel(b"a", NOW + 5000)
        assert await bench.service.deliver_due() == 0, "it may be void"
        assert await bench.pass_to(NOW + 6000) == []


async def test_what_comes_too_late_cancels_nothing(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 5000)
        assert await bench.pass_to(NOW + 5000) == [b"a"]
        bench.cancel(b"a", NOW + 5000)
        assert await bench.pass_to(NOW + 9000) == [b"a"]


async def test_a_replaced_timer_appears_at_its_new_time_alone(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        first = bench.put(b"a", NOW + 5000).physical_offset
        await bench.turn()
        bench.put(b"a", NOW + 9000, TIMER_REPLACES=f"{NOW + 5000},{first}")
        assert await bench.pass_to(NOW + 8999) == []
        assert await bench.pass_to(NOW + 9000) == [b"a"]


async def test_a_timer_that_was_delivered_is_not_replaced(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        first = bench.put(b"a", NOW + 5000).physical_offset
        assert await bench.pass_to(NOW + 5000) == [b"a"]
        bench.put(b"a", NOW + 9000, TIMER_REPLACES=f"{NOW + 5000},{first}")
        assert await bench.pass_to(NOW + 10_000) == [b"a"]


async def test_a_clock_set_back_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        bench.put(b"far", NOW + HOUR_MS)
        assert await bench.pass_to(NOW + HOUR_MS) == [b"far"]
        clock.value_ms = NOW
        bench.put(b"near", NOW + 1000)
        bench.put(b"nearer", NOW + 500)
        assert await bench.pass_to(NOW + 499) == [b"far"]
        assert await bench.pass_to(NOW + 1000) == [b"far", b"nearer", b"near"]
    async with wheel_bench(tmp_path, clock) as bench:
        bench.put(b"again", NOW + 2 * HOUR_MS)
        assert await bench.pass_to(NOW + HOUR_MS) == [b"far", b"nearer", b"near"]
        assert await bench.pass_to(NOW + 2 * HOUR_MS) == [b"far", b"nearer", b"near", b"again"]


async def test_what_the_store_does_not_take_stays_due(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 1000)
        await bench.turn()
        bench.store.retention.stop_writes = True
        with pytest.raises(WritesStopped):
            await bench.pass_to(NOW + 1000)
        bench.store.retention.stop_writes = False
        assert await bench.pass_to(NOW + 1000) == [b"a"]


async def test_what_cannot_be_delivered_is_buried_once_and_holds_nobody_up(tmp_path: Path) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        bench.put(b"lost", NOW + 1001, REAL_TOPIC="orders", REAL_QID="-1")
        bench.put(b"next", NOW + 1000)
        assert await bench.pass_to(NOW + 1001) == [b"next"]
        assert bench.letters == ["SCHEDULE_CONSUMER"]
        (event,) = bench.listener.lifecycle("UNDELIVERABLE_MESSAGE")
        assert "the timer at 0" in str(event.detail)
    shutil.rmtree(bench.folder)
    async with wheel_bench(tmp_path, clock) as bench:
        assert await bench.pass_to(NOW + 1001) == [b"next"]
        assert bench.letters == []


@pytest.mark.parametrize("saved_after", [0, 1, 2])
async def test_what_is_cut_from_the_log_is_gone_from_the_wheel(
    tmp_path: Path, saved_after: int
) -> None:
    async with wheel_bench(tmp_path) as bench:
        ends = []
        for number in range(3):
            ends.append(bench.put(b"cut %d" % number, NOW + 1000).end_offset)
            await bench.turn()
            if number == saved_after:
                await bench.wheel.persist("TIMER")
        await bench.store.truncate(ends[0])
        bench.put(b"instead", NOW + 1000)
        bench.put(b"and more", NOW + 1000)
        assert await bench.pass_to(NOW + 2000) == [b"cut 0", b"instead", b"and more"]


@pytest.mark.parametrize("fate", ["waits", "cancelled", "replaced"])
async def test_a_timer_outlives_the_file_of_the_log_that_it_lies_in(
    tmp_path: Path, fate: str
) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        first = bench.put(b"a", NOW + DAY_MS).physical_offset
        bench.put(b"done", NOW + 1000)
        await bench.turn()
        if fate == "cancelled":
            bench.cancel(b"a", NOW + DAY_MS)
        elif fate == "replaced":
            bench.put(b"a", NOW + 2 * DAY_MS, TIMER_REPLACES=f"{NOW + DAY_MS},{first}")
        await bench.pass_to(NOW + 1000)
        for _ in range(3):
            for _ in range(30):
                bench.store.put(draft(bytes(200), topic="fillers"))
            await bench.turn()
            bench.store.retention.on_doomed = bench.wheel.put_again
            bench.store.retention.change_settings(
                dataclasses.replace(bench.store._config, file_reserved_time_ms=0)
            )
            assert await bench.store.retention.run(10**15, by_hand=True)
            await bench.turn()
        assert bench.store.physical_min > first
    for file in bench.snapshot.parent.glob("timerWheel.json*"):
        file.unlink()
    async with wheel_bench(tmp_path, clock) as bench:
        by_a_day = await bench.pass_to(NOW + DAY_MS)
        assert by_a_day.count(b"a") == (fate == "waits")
        assert (await bench.pass_to(NOW + 2 * DAY_MS)).count(b"a") == (fate != "cancelled")
        assert by_a_day.count(b"done") <= 1


async def test_the_hour_files_link_the_entries_of_each_second(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        first_ms = NOW // HOUR_MS * HOUR_MS + 5 * HOUR_MS
        puts = [bench.put(b"%d" % n, first_ms + (n % 3) * SECOND_MS + n) for n in range(9)]
        bench.put(b"next hour", first_ms + HOUR_MS)
        await bench.turn()
        hour, following = sorted(bench.folder.iterdir())
        assert int(hour.name) * HOUR_MS == first_ms
        assert hour.stat().st_size == HEADS_BYTES + 9 * ENTRY_BYTES
        assert following.stat().st_size == HEADS_BYTES + ENTRY_BYTES
        log = HourLog(SystemDisk(), str(hour), int(hour.name), bench.seal)
        second = first_ms // SECOND_MS
        assert log.seconds() == [second, second + 1, second + 2]
        for number in range(3):
            offsets = [entry.log_offset for entry in log.of_second(second + number)]
            assert offsets == [put.physical_offset for put in puts[number::3]]
        log.close()


async def test_an_hour_goes_when_its_timers_are_delivered_and_saved(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 1000)
        bench.put(b"b", NOW + 3 * HOUR_MS)
        await bench.pass_to(NOW + HOUR_MS)
        assert len(list(bench.folder.iterdir())) == 2
        await bench.wheel.persist("TIMER")
        (left,) = bench.folder.iterdir()
        assert int(left.name) == (NOW + 3 * HOUR_MS) // HOUR_MS


async def test_messages_that_are_no_timers_leave_the_snapshot_as_it_is(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + HOUR_MS)
        await bench.turn()
        await bench.wheel.persist("TIMER")
        before = bench.snapshot.read_bytes()
        bench.store.put(draft(b"passes"))
        await bench.turn()
        await bench.wheel.persist("TIMER")
        assert bench.snapshot.read_bytes() == before
        await bench.wheel.persist("SHUTDOWN")
        assert bench.snapshot.read_bytes() != before


async def test_a_cancellation_of_no_key_cancels_no_message_without_one(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 5000, UNIQ_KEY="")
        bench.wheel._cancelled[(NOW + 5000) // SECOND_MS, b""] = 10**9
        assert await bench.pass_to(NOW + 5000) == [b"a"]


async def test_a_node_that_does_not_lead_rests_though_something_is_due(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        asked: list[int] = []

        def may_deliver() -> bool:
            asked.append(1)
            return False

        bench.service.may_deliver = may_deliver
        bench.put(b"a", NOW + 1)
        bench.clock.value_ms = NOW + 5000
        await bench.turn()
        running = asyncio.create_task(bench.service.run())
        await asyncio.sleep(1.3)
        running.cancel()
        assert 1 <= len(asked) <= 5
        assert bodies_of(bench.store) == []


async def test_a_lone_message_wakes_the_wheel_five_times_at_most(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        sleeps: list[float] = []

        async def sleep_until_woken() -> None:
            before = bench.clock.value_ms
            waiting = asyncio.create_task(bench.wheel.wait())
            await asyncio.sleep(0)
            until_ms = bench.wheel.next_ms()
            waiting.cancel()
            sleeps.append(until_ms - before)
            bench.clock.value_ms = until_ms

        bench.put(b"a", NOW + 500_000)
        await bench.turn()
        while not bodies_of(bench.store):
            await bench.service.deliver_due()
            await bench.turn()
            if not bodies_of(bench.store):
                await sleep_until_woken()
        assert len(sleeps) <= 5
        assert bench.clock.value_ms == NOW + 500_000


async def test_the_wheel_knows_what_was_delivered_without_reading_it_again(tmp_path: Path) -> None:
    """Marks of its own deliveries are not parsed, and stay the same as those in the log."""
    async with wheel_bench(tmp_path) as bench:
        for number in range(300):
            bench.put(b"%d" % number, NOW + 1000 + number % 7)
        assert len(await bench.pass_to(NOW + 2000)) == 300
        own = bench.wheel._delivered.marks()
        assert own == bench.wheel._sent.marks()
        assert not bench.wheel._under_way
        bench.wheel._saved = None
        bench.wheel.cut(bench.wheel.applied_offset)
        await bench.store.follow(bench.wheel)
        assert bench.wheel._delivered.marks() == own


async def test_marks_of_own_deliveries_that_are_cut_are_forgotten(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 1000)
        await bench.turn()
        bench.clock.value_ms = NOW + 1000
        end = bench.store.physical_max
        assert await bench.service.deliver_due() == 1
        assert bench.wheel._under_way
        bench.wheel.cut(end)
        assert not bench.wheel._under_way
        assert await bench.pass_to(NOW + 1000) == [b"a"]


async def test_of_own_deliveries_in_one_batch_each_mark_that_says_more_counts(
    tmp_path: Path,
) -> None:
    """One that is due earlier and knew more says nothing of the later one before it."""
    async with wheel_bench(tmp_path) as bench:
        marks = Mark(NOW + 100, 0, 50), Mark(NOW + 200, 10, 60), Mark(NOW + 90, 70, 200)
        bench.wheel._under_way.extend(zip((300, 400, 500), marks, strict=True))
        entries = [
            DispatchRequest("t", 0, number, place, 100, 0, NOW, 0, b"TIMER_MARK\x01?")
            for number, place in enumerate((300, 400, 500))
        ]
        bench.wheel.apply(entries, 600)
        assert set(bench.wheel._delivered.marks()) == {marks[1], marks[2]}


async def test_what_is_due_and_not_delivered_is_a_fact_until_it_is(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        bench.put(b"a", NOW + 1000)
        await bench.turn()

        def due_at(moment_ms: int) -> list[str]:
            bench.clock.value_ms = moment_ms
            bench.wheel._turn(moment_ms)
            bench.wheel.report_lateness()
            kinds = ("TIMERS_LATE", "TIMERS_IN_TIME")
            return [one.kind for kind in kinds for one in bench.listener.lifecycle(kind)]

        assert due_at(NOW + 10_999) == []
        assert due_at(NOW + 11_000) == ["TIMERS_LATE"]
        assert due_at(NOW + 12_000) == ["TIMERS_LATE"], "said once"
        assert await bench.pass_to(NOW + 12_000) == [b"a"]
        assert due_at(NOW + 13_000) == ["TIMERS_LATE", "TIMERS_IN_TIME"]


async def test_what_waits_is_counted_by_the_hour_in_which_it_is_due(tmp_path: Path) -> None:
    hour = NOW // HOUR_MS * HOUR_MS
    async with wheel_bench(tmp_path) as bench:
        for due_ms in (NOW + 500, NOW + 60_000, hour + HOUR_MS, hour + 5 * HOUR_MS + 7):
            bench.put(b"waits", due_ms)
        bench.put(b"later than is counted", hour + 48 * HOUR_MS)
        await bench.turn()
        figures = bench.wheel.figures()
        assert figures.due_by_hour == (2, 1, 0, 0, 0, 1, *[0] * 42)
        assert figures.dequeue_lag == 5
        await bench.pass_to(hour + HOUR_MS - 1000)
        assert bench.wheel.figures().due_by_hour[:2] == (1, 0), "read ahead, and due within seconds"
        await bench.pass_to(hour + 5 * HOUR_MS)
        assert bench.wheel.figures().due_by_hour == (1, *[0] * 42, 1, *[0] * 4)
