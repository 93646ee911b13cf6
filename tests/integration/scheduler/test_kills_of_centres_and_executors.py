"""Row F1: centres and executors, killed at random, while people change the jobs: each planned time
has its run, none begins twice. `make kill-scheduler` prints what came of it.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.database.clock import machine_ms
from pipelines.scheduler.schedules import WINDOW_MS
from pipelines.scheduler.store import results
from tests.amounts import kills
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.scheduler.kill_story import CENTRES, killed_at_random, playing, settled

pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_address(tmp_path)
    else:
        with postgresql_address() as at:
            yield at


@kills(3, in_full=100)
async def test_no_run_begins_twice_and_no_time_is_left_out_however_often_a_party_is_killed(
    kills: int, address: str, tmp_path: Path
) -> None:
    figures = await killed_at_random(address, tmp_path, kills)
    lost, kind = figures["lost"], address.partition(":")[0]
    # Of one that began twice the judge has reported before this.
    print(f"\n{kind}: {kills} kills, {figures['runs']} runs began, 0 twice, {lost} lost")  # noqa: T201


@pytest.mark.slow
async def test_a_centre_that_is_stopped_and_goes_on_sends_nothing_that_others_have_sent(
    address: str, tmp_path: Path
) -> None:
    """Each time for longer than its claims last."""
    chance = random.Random(1)
    stopped = []
    async with playing(address, tmp_path) as scene:
        for turn in range(4):
            victim = scene.centres[turn % CENTRES]
            begin_ms = machine_ms()
            scene.here.kill(victim, signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(11, 14))
            scene.here.kill(victim, signal.SIGCONT)
            # One that stops within a transaction holds up the other meanwhile.
            stopped.append((begin_ms - WINDOW_MS, machine_ms()))
            await asyncio.sleep(chance.uniform(1, 3))
        await scene.end(missed=stopped)


@pytest.mark.slow
async def test_whoever_stops_with_the_schedule_lock_is_left_behind_or_waited_for(
    address: str, tmp_path: Path
) -> None:
    """PostgreSQL ends its session after a while, and the others go on; SQLite waits for it."""
    async with playing(address, tmp_path) as scene:
        begin_ms = machine_ms()
        await scene.here.begin("holder", holds=address)
        job_id, *_ = scene.schedules
        if address.startswith("sqlite"):
            await asyncio.sleep(8)
            scene.here.kill("holder", signal.SIGCONT)
            assert await scene.here.said.get() == "kept"
        planned_later = begin_ms + 2 * WINDOW_MS

        def goes_on() -> bool:
            return any(
                run.planned_ms > planned_later for run in results.runs_of(scene.database, job_id)
            )

        await settled(goes_on)
        if not address.startswith("sqlite"):
            scene.here.kill("holder", signal.SIGCONT)
            assert await scene.here.said.get() == "lost"
        await scene.end(missed=[(begin_ms, machine_ms())])
