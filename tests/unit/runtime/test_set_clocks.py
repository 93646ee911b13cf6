"""The machine's clock is set while a broker runs: stamps follow it, durations do not, and whoever
wants to know hears it.

Rows C7, E1 under clock faults: store times never go back, delayed messages are never early, nor
late by more than a tick and a mark.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from engine.delay import DelayLevels, DelayService
from engine.delay.delay_levels import MARK_EVERY_MS, TICK_MS
from engine.delay.waiting_messages import scheduled
from engine.foundation.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from engine.runtime import Runtime, SystemClock, SystemDisk, SystemEntropy, SystemNetwork
from engine.runtime.clock import CATCH_UP_DIVISOR, STEP_NS, ClockStep
from engine.store import MessageStore
from engine.store.table_file import TableFile
from tests.store_support import Listener, draft, messages_of, open_store, small_config, turn

START_NS = 1_800_000_000 * 10**9
MS = 10**6


class Machine:
    """True time, and what the machine's wall clock makes of it."""

    def __init__(self) -> None:
        self.true_ns = 5 * 10**9
        self.set_by_ns = 0
        self.clock = SystemClock(self.wall_ns, self.steady_ns)
        self.steps: list[ClockStep] = []
        self.clock.on_step(self.steps.append)

    def wall_ns(self) -> int:
        return START_NS + self.true_ns + self.set_by_ns

    def steady_ns(self) -> int:
        return self.true_ns

    def passes(self, milliseconds: int) -> None:
        self.true_ns += milliseconds * MS

    def set_by(self, milliseconds: int) -> None:
        """Somebody sets the clock, from where it is now."""
        self.set_by_ns += milliseconds * MS

    @property
    def ahead_ms(self) -> int:
        """How far stamps are ahead of the wall clock."""
        return self.clock.now_ms() - self.wall_ns() // MS


@pytest.mark.parametrize("step_ms", [HOUR_MS, 500, 60, 400 * DAY_MS])
def test_a_step_forward_is_followed_at_once_and_reported(step_ms: int) -> None:
    machine = Machine()
    before_ms = machine.clock.now_ms()
    machine.set_by(step_ms)
    assert machine.clock.now_ms() == before_ms + step_ms
    assert [step.by_ms for step in machine.steps] == [step_ms]
    machine.passes(777)
    assert machine.clock.now_ms() == before_ms + step_ms + 777
    assert len(machine.steps) == 1, "once"


@pytest.mark.parametrize("step_ms", [HOUR_MS, 500, 60])
def test_a_step_back_is_reported_and_made_up_for_in_twice_its_time_without_time_going_back(
    step_ms: int,
) -> None:
    machine = Machine()
    last_ms = machine.clock.now_ms()
    machine.set_by(-step_ms)
    assert machine.clock.now_ms() == last_ms
    assert [step.by_ms for step in machine.steps] == [-step_ms]
    for _ in range(10):
        machine.passes(step_ms // 10)
        now_ms = machine.clock.now_ms()
        assert abs(now_ms - last_ms - step_ms // 10 // CATCH_UP_DIVISOR) <= 1, "it goes on, slowly"
        last_ms = now_ms
    machine.passes(step_ms)
    assert machine.ahead_ms == 0
    assert len(machine.steps) == 1


def test_nobody_saw_the_time_before_a_step_back_so_it_need_not_be_made_up_for() -> None:
    machine = Machine()
    machine.clock.now_ms()
    machine.passes(2 * HOUR_MS)
    machine.set_by(-HOUR_MS)
    assert machine.ahead_ms == 0


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
    assert not machine.steps


def test_what_is_less_than_a_step_adds_up_to_one() -> None:
    machine = Machine()
    shown = [machine.clock.now_ms()]
    for _ in range(100):
        machine.passes(5)
        machine.set_by(-10)
        shown.append(machine.clock.now_ms())
    assert shown == sorted(shown)
    stepped_ms = sum(step.by_ms for step in machine.steps)
    assert abs(stepped_ms + 1000) < STEP_NS // MS
    assert all(abs(step.by_ms) * MS >= STEP_NS for step in machine.steps)


def test_steady_time_takes_no_part_in_any_of_it() -> None:
    machine = Machine()
    began_ms = machine.clock.steady_ms()
    for step_ms in (HOUR_MS, -DAY_MS, DAY_MS, 10):
        machine.set_by(step_ms)
        machine.clock.now_ms()
        machine.passes(1000)
    assert machine.clock.steady_ms() - began_ms == 4000


def test_a_thread_that_loses_its_processor_between_two_readings_has_seen_no_step() -> None:
    machine = Machine()
    asked = 0

    def late_wall_ns() -> int:
        nonlocal asked
        asked += 1
        if asked % 3 == 0:
            machine.passes(200)
        return machine.wall_ns()

    clock = SystemClock(late_wall_ns, machine.steady_ns)
    steps: list[ClockStep] = []
    clock.on_step(steps.append)
    machine.set_by(10)  # Less than a step, and seen when the readings are repeated.
    for _ in range(50):
        clock.now_ms()
    assert not steps


# ---- delayed messages ---------------------------------------------------------------------------

LEVELS_MS = (10 * SECOND_MS, 60 * SECOND_MS, HOUR_MS)


class Host:
    """A store with its delay levels on a machine whose clock is set."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.machine = folder, Machine()
        self.put_at: dict[bytes, tuple[int, int]] = {}
        self.delivered_at: dict[bytes, int] = {}
        self.store: MessageStore
        self.levels: DelayLevels
        self.service: DelayService

    async def boot(self) -> None:
        runtime = Runtime(self.machine.clock, SystemNetwork(), SystemDisk(), SystemEntropy())
        config = small_config(
            self.folder, delay_levels_ms=LEVELS_MS, mapped_file_size_commit_log_bytes=1 << 20
        )
        self.store = await open_store(config, runtime=runtime)
        self.levels = DelayLevels(
            runtime,
            self.store,
            levels_ms=LEVELS_MS,
            cursor_file=TableFile(runtime, str(self.folder / "delayOffset.json")),
            observer=Listener(),
        )
        self.service = DelayService(
            self.store,
            self.levels,
            observer=Listener(),
            make_dead_letter_topic=lambda group: None,
        )
        self.levels.load()

    async def restart(self) -> None:
        await self.levels.persist("SHUTDOWN")
        await self.store.close()
        self.machine.clock = SystemClock(self.machine.wall_ns, self.machine.steady_ns)
        await self.boot()

    async def put(self, body: bytes, level: int) -> None:
        self.put_at[body] = (self.machine.true_ns, LEVELS_MS[level - 1])
        self.store.put(scheduled(draft(body), level))
        await turn()

    async def pass_and_deliver(self, milliseconds: int, every_ms: int = TICK_MS) -> None:
        """Let time pass, a tick at a time."""
        while milliseconds > 0:
            self.machine.passes(min(every_ms, milliseconds))
            milliseconds -= every_ms
            await self.service.deliver_due()
            await turn()
            for message in messages_of(self.store)[len(self.delivered_at) :]:
                self.delivered_at[message.body] = self.machine.true_ns

    def lateness_ms(self, body: bytes) -> float:
        """How much longer than its delay it waited; negative: it was early."""
        since_ns, delay_ms = self.put_at[body]
        return (self.delivered_at[body] - since_ns) / MS - delay_ms


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 300, -300])
async def test_a_step_makes_no_message_early_and_none_late(tmp_path: Path, step_ms: int) -> None:
    host = Host(tmp_path)
    await host.boot()
    await host.put(b"waits over the step", 1)
    await host.put(b"waits long", 2)
    await host.pass_and_deliver(4000)
    host.machine.set_by(step_ms)
    await host.put(b"put behind the step", 1)
    await host.pass_and_deliver(2000)
    await host.put(b"and a moment later", 1)
    await host.pass_and_deliver(70 * SECOND_MS)
    for body in host.put_at:
        assert 0 <= host.lateness_ms(body) <= 2 * TICK_MS + MARK_EVERY_MS, body
    times = [message.store_timestamp_ms for message in messages_of(host.store)]
    assert times == sorted(times)
    await host.store.close()


async def test_a_search_by_time_skips_nothing_over_a_step(tmp_path: Path) -> None:
    for step_ms in (HOUR_MS, -HOUR_MS):
        host = Host(tmp_path / str(step_ms))
        await host.boot()
        shown: list[int] = []
        for number in range(40):
            if number == 20:
                host.machine.set_by(step_ms)
            shown.append(host.machine.wall_ns() // MS)
            host.store.put(draft(b"%d" % number))
            host.machine.passes(MINUTE_MS)
        await turn()
        search = host.store.offset_at_time
        for number, wall_ms in enumerate(shown):
            found = search("TopicA", 0, wall_ms)
            assert found <= number, "what was stored then or later is not skipped"
            if step_ms > 0 or number < 20:
                assert found == number
        if step_ms > 0:
            assert search("TopicA", 0, shown[19] + HOUR_MS // 2) == 20, "none in the gap"
        assert search("TopicA", 0, shown[39] + 2 * HOUR_MS) == 40
        await host.store.close()


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, -DAY_MS])
async def test_a_step_is_known_after_a_restart_too(tmp_path: Path, step_ms: int) -> None:
    host = Host(tmp_path)
    await host.boot()
    await host.put(b"waits over step and restart", 2)
    await host.pass_and_deliver(4000)
    host.machine.set_by(step_ms)
    await host.put(b"behind the step", 2)
    await host.restart()
    await host.pass_and_deliver(70 * SECOND_MS)
    assert host.lateness_ms(b"waits over step and restart") >= 0, "not early"
    for body in host.put_at:  # How long it had waited before the restart is not always known.
        assert 0 <= host.lateness_ms(body) <= 4000 + 2 * TICK_MS + MARK_EVERY_MS, body
    await host.store.close()


async def test_a_store_whose_stamps_are_ahead_of_the_clock_delays_no_longer_than_asked(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    host.machine.set_by(DAY_MS)
    host.machine.clock = SystemClock(host.machine.wall_ns, host.machine.steady_ns)
    await host.boot()
    await host.put(b"of another day", 1)
    await host.levels.persist("SHUTDOWN")
    await host.store.close()
    host.machine.set_by(-DAY_MS)  # While nobody looks.
    host.machine.clock = SystemClock(host.machine.wall_ns, host.machine.steady_ns)
    await host.boot()
    await host.put(b"of today", 1)
    await host.pass_and_deliver(20 * SECOND_MS)
    for body in host.put_at:
        assert 0 <= host.lateness_ms(body) <= 2 * TICK_MS + MARK_EVERY_MS
    await host.store.close()


@pytest.mark.parametrize("seed", range(5))
async def test_messages_are_never_early_and_never_late_however_often_the_clock_is_set(
    tmp_path: Path, seed: int
) -> None:
    chance, host = random.Random(seed), Host(tmp_path)
    await host.boot()
    for number in range(60):
        if chance.random() < 0.5:
            host.machine.set_by(
                chance.choice([HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 300, -300, 40, -40])
            )
        await host.put(b"%d" % number, chance.randint(1, 2))
        await host.pass_and_deliver(chance.randint(1, 3000))
    await host.pass_and_deliver(2 * MINUTE_MS, every_ms=SECOND_MS)
    assert len(host.delivered_at) == 60
    for body in host.put_at:
        assert -STEP_NS / MS <= host.lateness_ms(body) <= SECOND_MS + 2 * MARK_EVERY_MS, body
    times = [message.store_timestamp_ms for message in messages_of(host.store)]
    assert times == sorted(times)
    await host.store.close()
