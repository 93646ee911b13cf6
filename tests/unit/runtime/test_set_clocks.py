"""The machine's clock is set while a broker runs: its time goes on and comes round slowly.

Rows C7, E1 under clock faults: store times never go back, delayed messages are never early.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from engine.delay.delay_service import DelayService, scheduled
from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.runtime import Runtime, SystemClock, SystemDisk, SystemEntropy, SystemNetwork
from engine.runtime.clock import SLEW_DIVISOR
from engine.store.table_file import TableFile
from tests.store_support import Listener, draft, messages_of, open_store, small_config, turn

START_NS = 1_800_000_000 * 10**9
MS = 10**6


class Machine:
    """True time, and what the machine's wall clock makes of it."""

    def __init__(self) -> None:
        self.true_ns = 5 * 10**9
        self.set_by_ns = 0
        self.clock = SystemClock(lambda: START_NS + self.true_ns + self.set_by_ns, self.steady_ns)

    def steady_ns(self) -> int:
        return self.true_ns

    def passes(self, milliseconds: int) -> None:
        self.true_ns += milliseconds * MS


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 500, -500])
def test_a_step_is_followed_slowly_and_time_never_goes_back(step_ms: int) -> None:
    machine = Machine()
    before_ms = last_ms = machine.clock.now_ms()
    machine.set_by_ns = step_ms * MS
    for _ in range(600):
        machine.passes(SECOND_MS)
        now_ms = machine.clock.now_ms()
        assert now_ms > last_ms
        assert abs(now_ms - last_ms - SECOND_MS) <= SECOND_MS // SLEW_DIVISOR
        last_ms = now_ms
    followed_ms = last_ms - before_ms - 600 * SECOND_MS
    expected_ms = max(-3000, min(3000, step_ms))
    assert abs(followed_ms - expected_ms) <= 1


@pytest.mark.parametrize(
    ("zone", "at_s", "hour"),
    [
        ("UTC0", 1_774_744_200, 0),
        ("CET-1CEST,M3.5.0,M10.5.0/3", 1_774_744_200, 1),  # 2026-03-29, 00:30 UTC
        ("CET-1CEST,M3.5.0,M10.5.0/3", 1_774_747_800, 3),  # An hour later it is summer.
        ("CET-1CEST,M3.5.0,M10.5.0/3", 1_792_888_200, 2),  # 2026-10-25, 00:30 UTC
        ("CET-1CEST,M3.5.0,M10.5.0/3", 1_792_891_800, 2),  # The hour comes twice.
        ("CST-8", 1_774_744_200, 8),
    ],
)
def test_the_hour_of_the_day_is_local_and_knows_summer_time(
    monkeypatch: pytest.MonkeyPatch, zone: str, at_s: int, hour: int
) -> None:
    try:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert SystemClock().local_hour(at_s * SECOND_MS) == hour
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_clock_that_agrees_is_taken_as_it_is() -> None:
    machine = Machine()
    for _ in range(100):
        machine.passes(777)
        assert machine.clock.now_us() == (START_NS + machine.true_ns) // 1000


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_never_early_however_the_clock_is_set(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        chance, machine = random.Random(seed), Machine()
        runtime = Runtime(machine.clock, SystemNetwork(), SystemDisk(), SystemEntropy())
        levels_ms = (10 * SECOND_MS, 60 * SECOND_MS)
        store = await open_store(
            small_config(
                tmp_path, delay_levels_ms=levels_ms, mapped_file_size_commit_log_bytes=1 << 20
            ),
            runtime=runtime,
        )
        service = DelayService(
            runtime,
            store,
            levels_ms=levels_ms,
            cursor_file=TableFile(runtime, str(tmp_path / "delayOffset.json")),
            observer=Listener(),
        )
        put_at: dict[bytes, tuple[int, int]] = {}
        seen = 0
        for number in range(120):
            machine.passes(chance.randint(1, 4000))
            if chance.random() < 0.3:
                machine.set_by_ns = chance.choice([0, 1, -1, 24, -24]) * HOUR_MS * MS
            if number < 60:
                body, level = b"%d" % number, chance.randint(1, 2)
                put_at[body] = (machine.true_ns, levels_ms[level - 1])
                store.put(scheduled(draft(body), level))
                await turn()
            service.deliver_due(machine.clock.now_ms())
            await turn()
            delivered = messages_of(store)
            for message in delivered[seen:]:
                since_ns, delay_ms = put_at[message.body]
                waited_ms = (machine.true_ns - since_ns) / MS
                assert waited_ms >= delay_ms * (1 - 1 / SLEW_DIVISOR) - 1, message.body
            seen = len(delivered)
        assert seen == 60
        times = [message.store_timestamp_ms for message in messages_of(store)]
        assert times == sorted(times)
        await store.close()

    asyncio.run(story())
