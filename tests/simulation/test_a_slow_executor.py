"""Row F4: a job with a slow executor does not hold up the runs of another job."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.centre.calls import Outcome, Sight
from pipelines.scheduler.centre.centre import Centre, Doors
from pipelines.scheduler.run_life import OK, RunEvent
from pipelines.scheduler.store import groups, jobs, tables
from pipelines.scheduler.store.results import Doubt
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.sending import Sending
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import NOW_MS, by, settings
from tests.seeds import seeded
from tests.simulation.world.loop import VirtualLoop

SLOW_S = 2.9
"""An answer just before the centre would wait no longer."""
SLOW_RUNS = 1_500
KNOWN_MS = 4_000
"""By then the first calls have ended, and the job is known to be slow."""
LATE_MS_MAX = 500
PLAYED_S = 25


class Played:
    """Two executors; when what was sent to each."""

    def __init__(self, now_ms: Any) -> None:
        self.now_ms = now_ms
        self.sent: dict[str, list[tuple[int, int]]] = {"http://fast/": [], "http://slow/": []}
        """Planned, and sent."""

    async def run(self, sending: Sending) -> Outcome:
        self.sent[sending.address].append((sending.planned_ms, self.now_ms()))
        await asyncio.sleep(SLOW_S if "slow" in sending.address else 0.005)
        return Outcome(RunEvent.ACCEPT, OK)

    async def is_there(self, address: str) -> bool:
        return bool(address)

    async def is_idle(self, address: str, job_id: int) -> bool | None:
        return bool(address) and job_id > 0

    async def sight_of(self, doubt: Doubt) -> Sight | None:
        return Sight.HERE if doubt.address else None


@seeded(2)
def test_a_slow_executor_holds_up_its_own_job_alone(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    loop = VirtualLoop(chance)
    database = Database.at(sqlite_address(tmp_path))

    def now_ms() -> int:
        return NOW_MS + int(loop.time() * 1000)

    made = {}
    for name in ("fast", "slow"):
        group_id = groups.add_group(database, name, by(), manual_addresses=[f"http://{name}/"])
        each_second = settings(schedule_kind="FIX_RATE", schedule_text="1")
        made[name] = jobs.add_job(database, group_id, each_second, by())
    jobs.start_job(database, made["fast"], by())
    rows = [planned_row(made["slow"], f"hand:{n}", now_ms=NOW_MS) for n in range(SLOW_RUNS)]
    with database.writing() as connection:
        connection.execute(sa.insert(tables.runs), rows)
    played = Played(now_ms)

    async def off_loop(work: Any) -> Any:
        await asyncio.sleep(chance.uniform(0.0005, 0.01))
        return work()

    async def play() -> None:
        doors = Doors(played, now_ms, lambda: chance.getrandbits(32), off_loop)
        life = asyncio.create_task(Centre(database, "one", doors).run())
        await asyncio.sleep(PLAYED_S)
        assert not life.done()
        life.cancel()
        await asyncio.wait({life})

    loop.run_until_complete(play())
    loop.close()
    database.close()
    fast, slow = played.sent["http://fast/"], played.sent["http://slow/"]
    later = [(planned, sent) for planned, sent in fast if planned >= NOW_MS + KNOWN_MS]
    assert len(later) >= PLAYED_S - 6
    assert len(slow) > 1_000
    assert slow[-1][1] - NOW_MS > 10_000, "meanwhile the slow one was kept busy"
    assert max(sent - planned for planned, sent in later) <= LATE_MS_MAX
