"""A store whose timers were RocketMQ's: what it delivered does not come again, the rest comes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.protocol.names import TIMER_TOPIC
from engine.protocol.properties import encode_properties
from tests.store_support import START_MS, HandClock, bodies_of, draft
from tests.unit.delay.wheel_bench import WheelBench, wheel_bench

NOW = START_MS


def put_as_rocketmq(bench: WheelBench, body: bytes, out_ms: int, **more: str) -> None:
    """A record as RocketMQ parks a timer: it counts in seconds and has no millisecond."""
    waiting = draft(body)
    own = {"REAL_TOPIC": waiting.topic, "REAL_QID": "0", "TIMER_OUT_MS": str(out_ms)}
    waiting.properties = encode_properties({"UNIQ_KEY": body.decode()} | own | more)
    waiting.topic = TIMER_TOPIC
    bench.store.put(waiting)


def note_delivered(folder: Path, delivered_ms: int, next_offset: int) -> None:
    check_point = struct.pack(">qqqqqqq", delivered_ms, 0, next_offset, 0, 0, 0, 0)
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "timercheck").write_bytes(check_point.ljust(4096, b"\0"))


async def left_by_rocketmq(folder: Path) -> None:
    """Three timers, of which it had delivered the first; a fourth that it had not read yet."""
    async with wheel_bench(folder) as bench:
        for body, out_ms in ((b"done", -60_000), (b"due soon", 5_000), (b"far", 90_000)):
            put_as_rocketmq(bench, body, NOW + out_ms)
        put_as_rocketmq(bench, b"not read yet", NOW - 50_000)
        await bench.turn()
    note_delivered(folder, NOW - 10_000, 3)


async def test_what_it_delivered_does_not_come_again(tmp_path: Path) -> None:
    await left_by_rocketmq(tmp_path)
    async with wheel_bench(tmp_path) as bench:
        assert await bench.pass_to(NOW) == [b"not read yet"]
        assert await bench.pass_to(NOW + 6_000) == [b"not read yet", b"due soon"]
        assert (await bench.pass_to(NOW + 91_000))[2:] == [b"far"]


async def test_that_holds_when_the_wheel_is_made_again(tmp_path: Path) -> None:
    await left_by_rocketmq(tmp_path)
    async with wheel_bench(tmp_path) as bench:
        await bench.pass_to(NOW)
    async with wheel_bench(tmp_path) as bench:
        await bench.wheel._make_again()
        assert await bench.pass_to(NOW + 91_000) == [b"not read yet", b"due soon", b"far"]


async def test_what_it_may_have_delivered_in_its_last_second_comes(tmp_path: Path) -> None:
    async with wheel_bench(tmp_path) as bench:
        put_as_rocketmq(bench, b"in doubt", NOW - 10_000)
        await bench.turn()
    note_delivered(tmp_path, NOW - 9_500, 1)
    async with wheel_bench(tmp_path) as bench:
        assert await bench.pass_to(NOW) == [b"in doubt"]


@pytest.mark.parametrize("data", [b"", b"\0" * 10, b"\0" * 4096, b"\xff" * 4096])
async def test_a_check_point_that_says_nothing_lets_all_come(tmp_path: Path, data: bytes) -> None:
    await left_by_rocketmq(tmp_path)
    (tmp_path / "config" / "timercheck").write_bytes(data)
    async with wheel_bench(tmp_path) as bench:
        assert await bench.pass_to(NOW) == [b"done", b"not read yet"]


async def test_a_timer_that_it_rolled_comes_once(tmp_path: Path) -> None:
    clock = HandClock()
    async with wheel_bench(tmp_path, clock) as bench:
        put_as_rocketmq(bench, b"days away", NOW + 60_000)
        put_as_rocketmq(bench, b"another", NOW + 60_000)
        put_as_rocketmq(bench, b"days away", NOW + 60_000, TIMER_ROLL_TIMES="1")
        assert await bench.pass_to(NOW + 61_000) == [b"another", b"days away"]
        assert bodies_of(bench.store) == [b"another", b"days away"]
