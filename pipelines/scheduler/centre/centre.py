"""Runs the centre's loops, which plan runs, send them and resolve those in doubt.

Place in the walk: the process `tidemark scheduler run`, or one of several in a simulation. Planned
runs wait in a ring of 60 slots, one a second; calls go by a fast and a slow pool, so that a job
with slow executors does not hold up the others.

Each loop is a step that may be taken again: what it changes is one transaction, and a centre that
is killed leaves nothing that another cannot go on with. For a database that does not answer it
waits, RETRY_S at a time; whatever else goes wrong is logged, and the step is taken again, ever more
seldom: no row, executor or defect of ours ends a centre.

Invariant: a run is sent only by a claim that lasts long enough (`may_send`), once SENT is written.
A claim that finds its pool's queue full is dropped and claimed again. Absent on purpose: sockets,
clocks and threads, which are handed in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pipelines.database.database import Database, StoreUnavailable
from pipelines.scheduler.centre.calls import Doubts, Executors, Outcome
from pipelines.scheduler.run_life import FAILED, RunEvent, may_send
from pipelines.scheduler.store import passes, registry, results, sending
from pipelines.scheduler.store.passes import JOBS_PER_PASS, Claim
from pipelines.scheduler.store.sending import CallEnd, Sending, Undecided
from pipelines.scheduler.time_ring import TimeRing

PLAN_EACH_S: Final = 1.0
LOOK_EACH_S: Final = 0.05
"""At the ring: so late at most a run leaves for this reason."""
ASK_EACH_S: Final = 10.0
TIDY_EACH_S: Final = 30.0
REPORT_EACH_S: Final = 60.0
REPORT_REST: Final = 20
"""It rests this many times as long as counting took, which costs at most a twentieth of a core."""
FORGOTTEN_BATCHES_MAX: Final = 50
"""In one go: 200,000 runs a minute, more than a centre sends."""
JOBS_SHOWN_MAX: Final = 10
"""Jobs that one line of the log names."""
RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 30.0
"""Between two steps that went wrong in a way that nobody foresaw."""
BATCH_MAX: Final = 500
"""Runs that one transaction writes as SENT."""
DATABASE_CALLS_MAX: Final = 4
"""At once; of the connections that the database has, one is left for calls from outside."""

_log = logging.getLogger(__name__)
Value = TypeVar("Value")
FAST_CALLS_MAX: Final = 300
SLOW_CALLS_MAX: Final = 200
QUEUE_MAX: Final = 20_000
SLOW_CALL_MS: Final = 500
SLOW_CALLS_A_MINUTE: Final = 10
"""XXL-Job's figures: a job with more slow calls within a minute goes to the slow pool for it."""


@dataclass(frozen=True, slots=True)
class Doors:
    """What a centre reaches the world by."""

    executors: Executors
    now_ms: Callable[[], int]
    entropy: Callable[[], int]
    """A number of 0 to 2^32-1, anew for each call."""
    off_loop: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Runs what may block, beside the loop."""
    set_clock: Callable[[], None] = lambda: None
    """Has `now_ms` follow the database's clock; may block."""


class Centre:
    """One centre. `holder` is its name, which no other has."""

    def __init__(
        self, database: Database, holder: str, doors: Doors, *, log_days: int = results.LOG_DAYS
    ) -> None:
        """`log_days`: so long runs are kept; fewer than LOG_DAYS_MIN: for ever."""
        self._log_days = log_days
        self._reported_hour: int | None = None
        self._database = database
        self._holder = holder
        self._doors = doors
        self._ring = TimeRing(doors.now_ms())
        self._claims: dict[int, Claim] = {}
        self._pools = (Pool.fast(), Pool.slow())
        self._slowness = Slowness()
        self._ends: deque[CallEnd] = deque()
        self._asked_up_to = 0
        self._doubts = Doubts(doors.executors, doors.now_ms)
        self._has_ends = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._database_calls = asyncio.Semaphore(DATABASE_CALLS_MAX)

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._each(PLAN_EACH_S, self.plan))
                tasks.create_task(self._each(LOOK_EACH_S, self._give_out))
                tasks.create_task(self._each(ASK_EACH_S, self.ask_about_doubts))
                tasks.create_task(self._each(TIDY_EACH_S, self.tidy))
                tasks.create_task(self._each(REPORT_EACH_S, self.report))
                tasks.create_task(self._write_ends())
                for pool in self._pools:
                    tasks.create_task(self._send_from(pool))
        finally:
            for call in self._calls:
                call.cancel()

    async def _each(self, pause_s: float, step: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        wait_s = RETRY_S
        while True:
            began = loop.time()
            try:
                await step()
                wait_s = RETRY_S
            except StoreUnavailable as error:
                _log.warning("%s; again in %g s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)
            except Exception:  # noqa: BLE001 - it ends no centre
                _log.exception("%s went wrong; again in %g s", step.__name__, wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_S_MAX)
            await asyncio.sleep(max(0.0, pause_s - (loop.time() - began)))

    async def _stored(self, work: Callable[..., Value], *given: Any, **named: Any) -> Value:
        """What an operation of the store gives, beside the loop."""
        async with self._database_calls:
            done: Value = await self._doors.off_loop(lambda: work(self._database, *given, **named))
            return done

    async def plan(self) -> None:
        """Plan what is due, and take over what nobody sends; both go into the ring."""
        await self._stored(lambda _: self._doors.set_clock())
        while True:
            now_ms = self._doors.now_ms()
            done = await self._stored(passes.plan_due, self._holder, now_ms=now_ms)
            self._keep(done.claims)
            if done.missed:
                text = "%d missed times of theirs: %s; `tidemark scheduler audit` says which"
                _log.warning(text, len(done.missed), _shown(done.missed))
            if done.stopped:
                text = "%d stopped: %s; `tidemark jobs show` says why"
                _log.warning(text, len(done.stopped), _shown(done.stopped))
            if done.read_count < JOBS_PER_PASS:
                break
        left = await self._stored(passes.claim_due, self._holder, now_ms=self._doors.now_ms())
        self._keep(left)

    def _keep(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims[claim.log_id] = claim
            self._ring.put(claim.log_id, claim.due_ms)

    async def _give_out(self) -> None:
        now_ms = self._doors.now_ms()
        for log_id in self._ring.due(now_ms):
            claim = self._claims.get(log_id)
            if claim is None or claim.due_ms > now_ms:
                continue  # It was claimed anew since: the ring has it once more.
            del self._claims[log_id]
            self._pools[self._slowness.is_slow(claim.job_id, now_ms)].put(claim)

    async def _send_from(self, pool: Pool) -> None:
        while True:
            claims = self._in_their_pool(await pool.take(BATCH_MAX), pool)
            try:
                if claims:
                    await self._send(claims, pool)
            except StoreUnavailable as error:
                # The claims end, and who looks then goes on with the runs: perhaps this centre.
                _log.warning("%s; %d runs wait for their claims to end", error, len(claims))
                await asyncio.sleep(RETRY_S)
            except Exception:  # noqa: BLE001 - it ends no centre
                _log.exception("%d runs wait for their claims to end", len(claims))
                await asyncio.sleep(RETRY_S)

    def _in_their_pool(self, claims: list[Claim], pool: Pool) -> list[Claim]:
        """Those of the claims that are the pool's still; others wait in the slow one."""
        fast, slow = self._pools
        if pool is slow:
            return claims
        now_ms = self._doors.now_ms()
        moved = [one for one in claims if self._slowness.is_slow(one.job_id, now_ms)]
        for claim in moved:
            slow.put(claim)
        fast.give_back(len(moved))
        return [one for one in claims if one not in moved] if moved else claims

    async def _send(
        self, claims: list[Claim], pool: Pool, chosen: dict[int, str | None] | None = None
    ) -> None:
        """Write runs as SENT and begin their calls. Each has a place in the pool, which is given
        back when its call has ended, or there is none."""
        under_way = 0
        try:
            batch = await self._stored(
                sending.begin_sending,
                claims,
                now_ms=self._doors.now_ms(),
                entropy=self._doors.entropy,
                chosen=chosen,
            )
            under_way = len(batch.undecided) + len(batch.sendings)
        finally:
            pool.give_back(len(claims) - under_way)
        for one in batch.undecided:
            self._start(self._choose(one, pool), one.claim.log_id)
        for sent in batch.sendings:
            self._start(self._call(sent, pool), sent.log_id)

    def _start(self, work: Coroutine[Any, Any, None], log_id: int) -> None:
        async def watched() -> None:
            try:
                await work
            except StoreUnavailable as error:
                _log.warning("%s; run %d waits for its claim to end", error, log_id)
            except Exception:  # noqa: BLE001 - it ends no centre
                _log.exception("run %d waits for its claim to end", log_id)

        task = asyncio.create_task(watched(), name=f"run {log_id}")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _choose(self, one: Undecided, pool: Pool) -> None:
        """Ask one after the other, and send to the first that says yes."""
        chosen: dict[int, str | None] = {one.claim.log_id: None}
        for address in one.addresses:
            if await self._says_yes(one, address):
                chosen[one.claim.log_id] = address
                break
        await self._send([one.claim], pool, chosen)

    async def _says_yes(self, one: Undecided, address: str) -> bool:
        executors = self._doors.executors
        try:
            if one.must_be_idle:
                return bool(await executors.is_idle(address, one.claim.job_id))
            return await executors.is_there(address)
        except Exception:  # noqa: BLE001 - it ends no centre
            _log.exception("%s is not asked about run %d", address, one.claim.log_id)
            return False

    async def _call(self, sent: Sending, pool: Pool) -> None:
        """Send a run that is written as SENT, if its claim lasts; keep how the call ended."""
        try:
            began_ms = self._doors.now_ms()
            if not may_send(sent.claim_until_ms, began_ms):
                return  # Nothing was sent: its executor will say that it has none of it.
            outcome = await self._outcome(sent)
            ended_ms = self._doors.now_ms()
            self._slowness.note(sent.job_id, ended_ms - began_ms, ended_ms)
            end = CallEnd(sent.log_id, sent.token, outcome.event, outcome.code, outcome.message)
            self._ends.append(end)
            self._has_ends.set()
        finally:
            pool.give_back(1)

    async def _outcome(self, sent: Sending) -> Outcome:
        """How the call ended. One that broke in a way that nobody foresaw may have reached its
        executor: that is asked."""
        try:
            return await self._doors.executors.run(sent)
        except Exception as error:  # noqa: BLE001 - it ends no centre
            _log.exception("the call that sends run %d", sent.log_id)
            return Outcome(RunEvent.LOSE_SIGHT, FAILED, f"the call broke off: {error}")

    async def _write_ends(self) -> None:
        while True:
            await self._has_ends.wait()
            self._has_ends.clear()
            while self._ends:
                ends = [self._ends.popleft() for _ in range(min(BATCH_MAX, len(self._ends)))]
                try:
                    await self._stored(sending.note_call_ends, ends, now_ms=self._doors.now_ms())
                except Exception as error:  # noqa: BLE001 - it ends no centre
                    self._ends.extendleft(reversed(ends))
                    is_away = isinstance(error, StoreUnavailable)
                    _log.warning(
                        "%s; %d answers wait", error, len(self._ends), exc_info=not is_away
                    )
                    await asyncio.sleep(RETRY_S)

    async def ask_about_doubts(self) -> None:
        """Find out about runs that were sent and of which nothing is known, or too little."""
        now_ms = self._doors.now_ms()
        there = await self._stored(registry.everybody, now_ms=now_ms)
        doubts = await self._stored(results.doubtful, now_ms=now_ms)
        unheard = await self._stored(results.unheard, after=self._asked_up_to, now_ms=now_ms)
        self._asked_up_to = unheard[-1].log_id if unheard else 0
        doubts += unheard
        findings = await self._doubts.found_out(doubts, there)
        if findings:
            await self._stored(results.note_findings, findings, now_ms=self._doors.now_ms())

    async def tidy(self) -> None:
        """Forget executors that have not said for long that they are there, and old runs."""
        self._doubts.forget_old()
        await self._stored(registry.forget_silent, now_ms=self._doors.now_ms())
        for _ in range(FORGOTTEN_BATCHES_MAX):
            now_ms = self._doors.now_ms()
            if not await self._stored(results.forget_batch, log_days=self._log_days, now_ms=now_ms):
                break

    async def report(self) -> None:
        """Count the runs of today, and each hour those of the days before. What takes long is done
        less often.
        """
        began_ms = self._doors.now_ms()
        hour = began_ms // 3_600_000
        days = 1 if hour == self._reported_hour else results.REPORTED_DAYS
        await self._stored(results.report_days, days=days, now_ms=began_ms)
        self._reported_hour = hour
        await asyncio.sleep((self._doors.now_ms() - began_ms) / 1000 * REPORT_REST)

    def __repr__(self) -> str:
        waiting = sum(len(pool) for pool in self._pools)
        return f"Centre({self._holder}, {len(self._ring)} in the ring, {waiting} waiting)"


def _shown(job_ids: Sequence[int]) -> str:
    return ", ".join(map(str, job_ids[:JOBS_SHOWN_MAX]))


class Pool:
    """Claims that wait to be sent, and how many calls are under way."""

    def __init__(self, name: str, size: int, *, queue_max: int = QUEUE_MAX) -> None:
        self._name = name
        self._free = size
        self._queue_max = queue_max
        self._queue: deque[Claim] = deque()
        self._moved = asyncio.Event()

    @classmethod
    def fast(cls) -> Pool:
        """For jobs whose executors answer at once."""
        return cls("fast", FAST_CALLS_MAX)

    @classmethod
    def slow(cls) -> Pool:
        """For the others."""
        return cls("slow", SLOW_CALLS_MAX)

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, claim: Claim) -> None:
        """Have it wait for its turn."""
        if len(self._queue) >= self._queue_max:
            _log.warning("the %s pool is full: run %d is claimed anew", self._name, claim.log_id)
            return
        self._queue.append(claim)
        self._moved.set()

    async def take(self, count_max: int) -> list[Claim]:
        """The next claims, one at least, each with a place to give back when its call ends."""
        while not (self._queue and self._free > 0):
            self._moved.clear()
            await self._moved.wait()
        count = min(count_max, self._free, len(self._queue))
        self._free -= count
        return [self._queue.popleft() for _ in range(count)]

    def give_back(self, count: int) -> None:
        """How many places are free again; below 0 when a broadcast became several calls."""
        self._free += count
        self._moved.set()


class Slowness:
    """How many slow calls each job had in this minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._slow_calls: dict[int, int] = {}

    def note(self, job_id: int, took_ms: int, now_ms: int) -> None:
        """A call ended."""
        self._turn(now_ms)
        if took_ms > SLOW_CALL_MS:
            self._slow_calls[job_id] = self._slow_calls.get(job_id, 0) + 1

    def is_slow(self, job_id: int, now_ms: int) -> bool:
        """Does the job belong to the slow pool?"""
        self._turn(now_ms)
        return self._slow_calls.get(job_id, 0) > SLOW_CALLS_A_MINUTE

    def _turn(self, now_ms: int) -> None:
        if now_ms // 60_000 != self._minute:
            self._minute = now_ms // 60_000
            self._slow_calls.clear()
