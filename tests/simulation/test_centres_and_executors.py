"""Centres and executors on virtual time, with losses, partitions and kills: each run begins once.

The centres are those of production, over one SQLite file; executors and the network between are
played, two of XXL-Job's and one of ours. Meanwhile people edit jobs, and pause and start them. The
history is judged at the end, when all faults are healed: each planned time has its run, one alone,
no run began twice, and each ended; of a workflow, each step began once, after all before it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.alerting.store.database import Database
from pipelines.alerting.store.errors import StoreUnavailable
from pipelines.scheduler.centre.calls import Outcome, Sight
from pipelines.scheduler.centre.centre import Centre, Doors
from pipelines.scheduler.run_life import ENDED, FAILED, OK, RunEvent, RunState
from pipelines.scheduler.schedules import schedule_of
from pipelines.scheduler.store import flows, groups, jobs, registry, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.store.clock import SharedClock
from pipelines.scheduler.store.sending import Sending
from pipelines.scheduler.workflows import StepState
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, NOW_MS, by, settings
from tests.seeds import seeded
from tests.simulation.world.loop import VirtualLoop

FAULTS_S = 60
HEALED_S = 260
CALL_TIMEOUT_S = 3.0
CLOCKS_APART_MS = {"a": -4_000, "b": 6_000}
"""What the machines of the centres show beside the database's clock."""
FAULTS = ("kill", "stop", "restart", "loss", "cut", "lock", "heal", "edit", "pause and start")
SCHEDULES = (
    ("CRON", "0/5 * * * * ?", "ROUND"),
    ("FIX_RATE", "7", "LEAST_RECENTLY_USED"),
    ("CRON", "3/11 * * * * ?", "FAILOVER"),
    ("FIX_RATE", "13", "SHARDING_BROADCAST"),
)
STEPS = """
[steps.split]
job = {0}
[steps.left]
job = {1}
after = ["split"]
[steps.right]
job = {2}
after = ["split"]
[steps.join]
job = {0}
after = ["left", "right"]
[steps.tidy]
job = {1}
after = ["split", "join"]
always = true
"""


class PlayedExecutor:
    """An executor: a queue in memory, logs and untold results on its disk."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_up = True
        self.queue: list[tuple[int, int]] = []
        self.is_ours = address.endswith("1/")
        self.taken: set[int] = set()
        """On the disk of one of ours: the runs that it took."""
        self.voided: set[int] = set()
        """It took these, and told that it ended before they began."""
        self.logs: set[int] = set()
        self.untold: dict[int, int] = {}
        self.working_on: tuple[int, int] | None = None


@dataclass
class Active:
    """A stretch of time in which a job is active, by its planned times."""

    first_ms: int
    until_ms: int | None = None
    left_out: frozenset[int] = frozenset()

    def end(self, until_ms: int, left_out: Iterable[int]) -> None:
        self.until_ms, self.left_out = until_ms, frozenset(left_out)


class World:
    """The database, the executors, the network, and what happened."""

    def __init__(self, seed: int, loop: VirtualLoop, database: Database) -> None:
        self.chance = random.Random(seed)
        self.loop = loop
        self.database = database
        self.executors = {
            address: PlayedExecutor(address) for address in (f"http://e{n}/" for n in (1, 2, 3))
        }
        self.cut: set[tuple[str, str]] = set()
        self.loss = 0.3
        self.unanswered = self.early_ms = 0
        self.awake = {centre: asyncio.Event() for centre in CLOCKS_APART_MS}
        for event in self.awake.values():
            event.set()
        self.begun: Counter[int] = Counter()
        self.active: dict[int, list[Active]] = {}
        """Of each job, the stretches in which it was active."""
        self.is_locked = False
        self.damaged = 0

    def now_ms(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    async def stored(self, centre: str, work: Callable[[], Any]) -> Any:
        """What a centre's work in the database gives. One that is stopped does it when it goes on,
        as if nothing had been."""
        await asyncio.sleep(self.chance.uniform(0.0005, 0.01))
        await self.awake[centre].wait()
        if self.is_locked:
            raise StoreUnavailable("the database is locked")
        return work()

    def stop(self, centre: str, for_s: float) -> None:
        """SIGSTOP, and after a while SIGCONT. It stops at its work in the database: one that stops
        between its look at the clock and a write to a socket may send late (docs/adr/0043).
        """
        self.awake[centre].clear()
        self.loop.call_later(for_s, self.awake[centre].set)

    def doors(self, centre: str) -> Doors:
        apart_ms = CLOCKS_APART_MS[centre]
        clock = SharedClock(lambda: self.now_ms() + apart_ms, self.now_ms)
        clock.set()
        return Doors(
            Network(self, centre),
            clock.now_ms,
            lambda: self.chance.getrandbits(32),
            partial(self.stored, centre),
            clock.set,
        )

    async def live(self, executor: PlayedExecutor) -> None:
        """What an executor does: beat, work, tell results."""
        beat_at = done_at = 0.0
        while True:
            await asyncio.sleep(self.chance.uniform(0.05, 0.4))
            if not executor.is_up or self.is_locked:
                continue
            if self.loop.time() >= beat_at:
                registry.beat(self.database, APP, executor.address, now_ms=self.now_ms())
                beat_at = self.loop.time() + 30
            if executor.working_on is not None and self.loop.time() < done_at:
                pass
            elif executor.working_on is not None:
                log_id, _ = executor.working_on
                executor.untold[log_id] = self.chance.choice([OK, OK, OK, FAILED])
                executor.working_on = None
            elif executor.queue:
                executor.working_on = executor.queue.pop(0)
                done_at = self.loop.time() + self.chance.uniform(0.2, 2)
                executor.logs.add(executor.working_on[0])
                self.begun[executor.working_on[0]] += 1
            for log_id, code in list(executor.untold.items()):
                if self.chance.random() >= self.loss:
                    told = [results.Result(log_id, code)]
                    results.note_results(self.database, told, now_ms=self.now_ms())
                if self.chance.random() >= self.loss:
                    executor.untold.pop(log_id)

    def kill(self, executor: PlayedExecutor) -> None:
        """One of ours tells at its next start of what it had taken and not begun, or not ended; of
        one of XXL-Job nothing is heard."""
        held = [*executor.queue, *([executor.working_on] if executor.working_on else [])]
        if executor.is_ours:
            executor.untold |= {log_id: FAILED for log_id, _ in held}
            executor.voided |= {log_id for log_id, _ in executor.queue}
        executor.is_up, executor.working_on = False, None
        executor.queue.clear()

    def change(self, how: str, job_id: int) -> None:
        """What people do to jobs at any moment: a time within the next seconds is planned then."""
        now = Change("bob", self.now_ms())
        if how == "edit":
            job = jobs.job_of(self.database, job_id)
            told = replace(job.settings, title=f"at {now.now_ms}")
            if told != job.settings:
                jobs.edit_job(self.database, job_id, told, now)
            return
        waits = {
            run.planned_ms
            for run in results.runs_of(self.database, job_id)
            if run.sent_ms is None and run.state not in ENDED
        }
        next_ms = jobs.job_of(self.database, job_id).next_ms
        jobs.pause_job(self.database, job_id, now)
        # What was due and not sent yet is left out: it was paused. What is to come is not.
        until_ms = now.now_ms if next_ms is None else min(now.now_ms, next_ms - 1)
        self.active[job_id][-1].end(until_ms, waits)
        begun = jobs.start_job(self.database, job_id, now).job
        assert begun is not None
        assert begun.next_ms is not None
        self.active[job_id].append(Active(begun.next_ms))


class Network:
    """What lies between one centre and the executors."""

    def __init__(self, world: World, centre: str) -> None:
        self.world = world
        self.centre = centre

    async def _reaches(self, address: str) -> bool:
        chance = self.world.chance
        await asyncio.sleep(chance.uniform(0.001, 0.05))
        is_lost = (self.centre, address) in self.world.cut or chance.random() < self.world.loss
        if is_lost or not self.world.executors[address].is_up:
            self.world.unanswered += is_lost
            await asyncio.sleep(CALL_TIMEOUT_S)
            return False
        return True

    async def run(self, sending: Sending) -> Outcome:
        self.world.early_ms = max(self.world.early_ms, sending.planned_ms - self.world.now_ms())
        if await self._reaches(sending.address):
            executor = self.world.executors[sending.address]
            if self.world.chance.random() < 0.03:
                return Outcome(RunEvent.REFUSE, FAILED, "block strategy effect")
            if not executor.is_ours or sending.log_id not in executor.taken:
                executor.queue.append((sending.log_id, sending.job_id))
            executor.taken.add(sending.log_id)
            if await self._reaches(sending.address):
                return Outcome(RunEvent.ACCEPT, OK)
        return Outcome(RunEvent.LOSE_SIGHT, FAILED, "no answer")

    async def is_there(self, address: str) -> bool:
        return await self._reaches(address)

    async def is_idle(self, address: str, job_id: int) -> bool | None:
        if not await self._reaches(address):
            return None
        executor = self.world.executors[address]
        held = [*executor.queue, *([executor.working_on] if executor.working_on else [])]
        return all(job != job_id for _, job in held)

    async def sight_of(self, doubt: results.Doubt) -> Sight | None:
        """Executors of XXL-Job know by their logs alone; one of ours has a book besides."""
        if not await self._reaches(doubt.address):
            return None
        executor = self.world.executors[doubt.address]
        if doubt.log_id in executor.logs:
            return Sight.HERE
        if not executor.is_ours:
            return Sight.NO_LOG
        return Sight.HERE if doubt.log_id in executor.taken else Sight.NEVER


async def keep_centre(world: World, name: str, deaths: list[asyncio.Event]) -> None:
    """A centre that is killed when told, and comes again some seconds later."""
    for number, death in enumerate(deaths):
        life = asyncio.create_task(
            Centre(world.database, f"{name}{number}", world.doors(name)).run()
        )
        killed = asyncio.create_task(death.wait())
        await asyncio.wait({life, killed}, return_when=asyncio.FIRST_COMPLETED)
        assert not life.done(), "a centre ended by itself"
        life.cancel()
        await asyncio.wait({life})
        await asyncio.sleep(world.chance.uniform(0.1, 4.0))


async def break_things(world: World, deaths: dict[str, list[asyncio.Event]]) -> None:
    """Faults, one after the other; at the end all is healed."""
    until = world.loop.time() + FAULTS_S
    while world.loop.time() < until:
        await asyncio.sleep(world.chance.uniform(0.5, 5))
        executor = world.chance.choice(list(world.executors.values()))
        centre = world.chance.choice(sorted(deaths))
        match world.chance.choice(FAULTS):
            case ("edit" | "pause and start") as how if not world.is_locked:
                for _ in range(world.chance.randrange(1, 4)):
                    world.change(how, world.chance.choice(sorted(world.active)))
            case "kill":
                left = [death for death in deaths[centre] if not death.is_set()]
                if len(left) > 1:
                    left[0].set()
            case "stop":
                world.stop(centre, world.chance.uniform(3, 25))
            case "restart":
                world.kill(executor)
                world.loop.call_later(world.chance.uniform(1, 40), setattr, executor, "is_up", True)
            case "loss":
                world.loss = world.chance.uniform(0.05, 0.4)
            case "cut":
                world.cut.add((centre, executor.address))
            case "lock":
                world.is_locked = True
                world.loop.call_later(
                    world.chance.uniform(0.2, 3), setattr, world, "is_locked", False
                )
            case "heal":
                world.cut.clear()
                world.loss = 0.15
    world.cut.clear()
    world.loss = 0.0
    await asyncio.sleep(45)
    for executor in world.executors.values():
        executor.is_up = True


async def played(world: World) -> None:
    """Two centres over three executors, through all faults and the healing after them."""
    deaths = {name: [asyncio.Event() for _ in range(9)] for name in ("a", "b")}
    tasks = [asyncio.create_task(world.live(one)) for one in world.executors.values()]
    tasks += [asyncio.create_task(keep_centre(world, name, deaths[name])) for name in deaths]
    await break_things(world, deaths)
    await asyncio.sleep(HEALED_S - 45)
    failed = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert not failed, failed[0].exception()


@seeded(2)
def test_no_run_begins_twice_and_no_time_is_left_out(seed: int, tmp_path: Path) -> None:
    loop = VirtualLoop(random.Random(f"{seed}/interleaving"))
    database = Database.at(sqlite_address(tmp_path))
    world = World(seed, loop, database)
    group_id = groups.add_group(database, APP, by())
    made = {}
    for kind, text, route in SCHEDULES:
        told = settings(
            schedule_kind=kind, schedule_text=text, route=route, misfire="FIRE_ONCE_NOW", retries=2
        )
        made[jobs.add_job(database, group_id, told, by())] = schedule_of(kind, text)
    flow_id = a_workflow(database, group_id)
    made[flow_id] = schedule_of("FIX_RATE", "45")
    for job_id in made:
        job = jobs.start_job(database, job_id, by()).job
        assert job is not None
        assert job.next_ms is not None
        world.active[job_id] = [Active(job.next_ms)]
    try:
        loop.run_until_complete(played(world))
        assert world.unanswered > 0, "nothing was lost: nothing was tried"
        assert max(world.begun.values()) == 1, "a run began twice"
        assert world.early_ms <= 0, "a centre whose clock is ahead sent early"
        for job_id, schedule in made.items():
            judge(database, job_id, schedule, world)
        judge_steps(database, flow_id)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
        database.close()


def a_workflow(database: Database, group_id: int) -> int:
    """A diamond with an end that begins always; one of its sides is a broadcast."""
    steps = [
        jobs.add_job(
            database,
            group_id,
            settings(schedule_kind="NONE", schedule_text="", retries=1, route=route),
            by(),
        )
        for route in ("ROUND", "SHARDING_BROADCAST", "FIRST")
    ]
    told = settings(
        schedule_kind="FIX_RATE", schedule_text="45", misfire="FIRE_ONCE_NOW", handler="",
        glue_type="WORKFLOW", glue_source=STEPS.format(*steps),
    )  # fmt: skip
    return jobs.add_job(database, group_id, told, by())


def judge_steps(database: Database, job_id: int) -> None:
    """The history of a workflow's runs that are over."""
    ended = [one for one in results.runs_of(database, job_id) if one.state in ENDED]
    assert ended, "none has ended"  # Handlers fail by chance: with some seeds none is done.
    for run in ended:
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            continue  # As many as may wait did; or its job was changed.
        shown = {step.name: step for step in flows.steps_of(database, run.log_id)}
        theirs = {
            name: [results.run_of(database, one) for one in step.log_ids]
            for name, step in shown.items()
        }
        for name, step in shown.items():
            if step.state is StepState.LEFT_OUT:
                assert not theirs[name]
                assert any(shown[one].state is not StepState.DONE for one in step.after)
                continue
            assert len({(one.shard_index, one.attempt) for one in theirs[name]}) == len(
                theirs[name]
            ), "a step began twice"
            assert {one.planned_ms for one in theirs[name]} == {run.planned_ms}
            latest_before = max(
                (one.ended_ms or 0 for before in step.after for one in theirs[before]), default=0
            )
            for one in theirs[name]:
                assert one.state in ENDED, "the workflow is over"
                assert one.sent_ms is None or one.sent_ms >= latest_before, "it did not wait"
        all_done = all(step.state is StepState.DONE for step in shown.values())
        assert all_done is (run.state is RunState.DONE)


def judge(database: Database, job_id: int, schedule: Any, world: World) -> None:
    """The history of one job."""
    shown = results.runs_of(database, job_id)
    kept = [run for run in shown if run.state is not RunState.CANCELLED]
    named = Counter((run.planned_ms, run.shard_index, run.attempt) for run in kept)
    assert max(named.values()) == 1, "a time has two runs"
    times = {run.planned_ms for run in kept}
    end_ms = world.now_ms() - 60_000
    for stretch in world.active[job_id]:
        planned_ms = stretch.first_ms
        until_ms = end_ms - 1 if stretch.until_ms is None else stretch.until_ms
        while planned_ms <= until_ms:
            is_there = planned_ms in times or planned_ms in stretch.left_out
            assert is_there, f"{planned_ms - NOW_MS} ms was left out"
            planned_ms = schedule.next_ms(planned_ms)
    old = [run for run in shown if run.planned_ms < end_ms - 30_000]
    stuck = [run for run in old if run.state not in ENDED]
    assert not stuck, stuck[0]
    for run in shown:
        if run.state in {RunState.DONE, RunState.FAILED} and run.address is not None:
            never = world.executors[run.address].voided
            assert world.begun[run.log_id] == 1 or run.log_id in never, "a result of nothing"
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            assert world.begun[run.log_id] == 0, "nobody had it, and yet it began"
