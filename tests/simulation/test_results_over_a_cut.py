"""Row F1: results that a cut keeps from all centres reach one of them once it is healed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.store import groups, jobs, results
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, NOW_MS, by, settings
from tests.seeds import seeded
from tests.simulation.scheduling_world import CENTRES, OURS, World
from tests.simulation.world.loop import VirtualLoop

SETTLED_S, CUT_S, HEALED_S = 30, 50, 120
EACH_S = 2
RETRY_S_MAX = 30
"""An executor reports again within so long."""


@seeded(2)
def test_results_that_a_cut_has_kept_from_the_centres_come_when_it_is_healed(
    seed: int, tmp_path: Path
) -> None:
    """Less than the 90 s after which a silent executor counts as gone: nothing is lost."""
    loop = VirtualLoop(random.Random(f"{seed}/interleaving"))
    database = Database.at(sqlite_address(tmp_path))
    world = World(seed, loop, database, tmp_path)
    world.loss = 0.0
    groups.add_group(database, APP, by())
    group_id = groups.groups(database)[0].group_id
    wanted = settings(schedule_kind="FIX_RATE", schedule_text=str(EACH_S))
    job_id = jobs.add_job(database, group_id, wanted, by())
    jobs.start_job(database, job_id, by())
    untold: list[int] = []

    def begun_and_open() -> list[int]:
        shown = results.runs_of(database, job_id)
        return [one.log_id for one in shown if world.begun[one.log_id] and not ended(one)]

    async def played() -> None:
        world.begin_executor(OURS[0])
        for name in CENTRES:
            world.begin_centre(name)
        await asyncio.sleep(SETTLED_S)
        while not (at_work := begun_and_open()):  # noqa: ASYNC110 - rows wake nobody
            await asyncio.sleep(0.05)
        world.cut |= {(centre, OURS[0]) for centre in CENTRES.values()}
        await asyncio.sleep(CUT_S)
        assert world.cut_off > 0, "it had nothing to say"
        untold.extend(begun_and_open())
        assert set(at_work) <= set(untold), "who cannot be asked is not lost yet"
        world.cut.clear()
        await asyncio.sleep(RETRY_S_MAX + 5)
        for log_id in untold:
            assert ended(results.run_of(database, log_id)), "its result came not when it could"
        await asyncio.sleep(HEALED_S)
        await world.end()

    try:
        loop.run_until_complete(played())
        assert untold, "the cut kept nothing back"
        assert max(world.begun.values()) == 1, "a run began twice"
        for log_id in untold:
            run = results.run_of(database, log_id)
            assert run.state in {RunState.DONE, RunState.FAILED}, "and yet its executor knew"
        old = [
            one
            for one in results.runs_of(database, job_id)
            if one.planned_ms < NOW_MS + 1000 * int(loop.time()) - 60_000
        ]
        assert all(ended(one) for one in old)
    finally:
        world.close()


def ended(run: results.Run) -> bool:
    return run.state in ENDED
