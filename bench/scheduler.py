"""Measures how late runs start when 10,000 jobs are due within one minute.

Run by `python -m bench --only scheduler`.

Jobs by a cron rule, one in sixty of them at each second of the minute; centres as processes over
one database, SQLite or PostgreSQL; and this process, which is the executor: it accepts each run as
it comes, notes when, and reports the results in batches. The minute that counts begins when each
job has run once. Figures: from the planned time to the arrival at the executor, what never came,
what came twice, and CPU time of the centres.

    python -m bench.scheduler [JOBS [KIND ...]]     kinds: sqlite postgresql two
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from bench.analytics.cost import cpu_seconds
from bench.bars import SCHEDULER_LOST, SCHEDULER_P99, SCHEDULER_TWICE, Bar
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED, OK
from pipelines.scheduler.store import groups, registry, tables
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import AdminClient, opened_caller
from pipelines.scheduler.wire.messages import LogRequest, RunRequest, RunResult
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.scheduler.parties import TOKEN
from tests.integration.scheduler.processes import centre_process

JOBS: Final = 10_000
APP: Final = "bench"
COUNTED_S: Final = 60
SETTLE_S: Final = 60
"""So long after the minute what is late may come still: a run whose call was not answered goes out
again within half a minute or so.
"""
REPORT_EACH_S: Final = 0.2
BEAT_EACH_S: Final = 20
ACCEPTED: Final = b'{"code":200}'
NO_LOG: Final = b'{"code":200,"content":{"fromLineNum":1,"toLineNum":0,"isEnd":true}}'
A_LOG: Final = b'{"code":200,"content":{"fromLineNum":1,"toLineNum":1,"logContent":"x"}}'
KINDS: Final = ("sqlite", "postgresql", "two")
XXL_JOB: Final = (
    "300 + 200 triggers at once (200 + 100 until 3.2), 5,000 jobs read a pass; "
    "a full queue (2,000) and a killed admin lose triggers; it publishes no delays"
)
"""What its code and documentation state; no admin runs here."""


@dataclass
class Arrivals:
    """What came to the executor."""

    delay_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """By job and planned time."""
    count: Counter[tuple[int, int]] = field(default_factory=Counter)
    unreported: list[RunResult] = field(default_factory=list)
    log_ids: set[int] = field(default_factory=set)

    def note(self, run: RunRequest) -> None:
        """A run came, now."""
        assert run.fire_time_ms is not None, "our centre says what a run is for"
        key = (run.job_id, run.fire_time_ms)
        self.delay_ms.setdefault(key, time.time_ns() // 1_000_000 - run.fire_time_ms)
        self.count[key] += 1
        self.log_ids.add(run.log_id)
        self.unreported.append(RunResult(run.log_id, run.log_time_ms, OK))


class Connection(asyncio.Protocol):
    """One connection of a centre: POSTs with a length come in, each is accepted."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._held += data
        while True:
            head, end, rest = self._held.partition(b"\r\n\r\n")
            if not end:
                return
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            body, self._held = rest[:length], rest[length:]
            answer = self._answer(head, body)
            status = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
            self._transport.write(status + answer)

    def _answer(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"POST /run"):
            self._arrivals.note(RunRequest.decode(body))
        elif head.startswith(b"POST /log"):
            return A_LOG if LogRequest.decode(body).log_id in self._arrivals.log_ids else NO_LOG
        return ACCEPTED


@asynccontextmanager
async def executing(arrivals: Arrivals, admins: list[AdminClient]) -> AsyncIterator[str]:
    """The executor: where it is. It reports results to the admins in turn."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(arrivals), "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def report() -> None:
        turn = 0
        while True:
            await asyncio.sleep(REPORT_EACH_S)
            results, arrivals.unreported = arrivals.unreported, []
            if results:
                turn += 1
                assert (await admins[turn % len(admins)].report(results)).is_success

    reporting = asyncio.create_task(report())
    try:
        yield address
    finally:
        reporting.cancel()
        server.close()


def with_jobs(database: Database, count: int, first_ms: int) -> None:
    """So many jobs, each due once a minute from `first_ms` on, spread over its seconds."""
    change = Change("bench", machine_ms())
    group_id = groups.add_group(database, APP, change)
    rows = [
        {
            "group_id": group_id,
            "title": f"job {number}",
            "author": "",
            "schedule_kind": "CRON",
            "schedule_text": f"{number % 60} * * * * ?",
            "zone": "UTC",
            "misfire": "FIRE_ONCE_NOW",
            "route": "ROUND",
            "handler": "work",
            "parameters": "",
            "blocking": "SERIAL_EXECUTION",
            "timeout_s": 0,
            "retries": 0,
            "children": "[]",
            "glue_type": "BEAN",
            "glue_source": "",
            "glue_changed_ms": 0,
            "is_active": True,
            "next_ms": first_ms + number % 60 * 1000,
            "counters": "{}",
            "changed_ms": change.now_ms,
        }
        for number in range(count)
    ]
    with database.writing() as connection:
        connection.execute(sa.insert(tables.jobs), rows)


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of set-up."""

    kind: str
    delays_ms: list[int]
    """In order."""
    lost: int
    twice: int
    unended: int
    cpu_share: float
    """Of one core, all centres together, while the minute went."""

    def delay_s(self, share: float) -> float:
        """The delay that so great a share of the runs had at most."""
        return self.delays_ms[min(len(self.delays_ms) - 1, int(share * len(self.delays_ms)))] / 1000


async def measure(kind: str, address: str, *, job_count: int, centres: int) -> Measured:
    """Two minutes, of which the second counts."""
    database = Database.at(address)
    first_ms = (machine_ms() // 60_000 + 1) * 60_000
    if first_ms - machine_ms() < 15_000:
        first_ms += 60_000
    with_jobs(database, job_count, first_ms)
    from_ms = first_ms + 60_000
    to_ms = from_ms + COUNTED_S * 1000
    arrivals = Arrivals()
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(opened_caller(timeout_s=30))
        begun = [await stack.enter_async_context(centre_process(address)) for _ in range(centres)]
        admins = [AdminClient(caller, at, token=TOKEN, app=APP) for _, at in begun]
        here = await stack.enter_async_context(executing(arrivals, admins))
        beating = asyncio.create_task(_beat(database, here))
        await _until(from_ms)
        cpu_s = sum(cpu_seconds(process.pid) for process, _ in begun)
        await _until(to_ms)
        cpu_s = sum(cpu_seconds(process.pid) for process, _ in begun) - cpu_s
        await _until(to_ms + SETTLE_S * 1000)
        beating.cancel()
    with database.reading() as connection:
        in_the_minute = (tables.runs.c.planned_ms >= from_ms) & (tables.runs.c.planned_ms < to_ms)
        unended = connection.execute(
            sa.select(sa.func.count()).where(
                in_the_minute, tables.runs.c.state.not_in([state.value for state in ENDED])
            )
        ).scalar_one()
    database.close()
    wanted = {key for key in arrivals.count if from_ms <= key[1] < to_ms}
    return Measured(
        kind,
        sorted(arrivals.delay_ms[key] for key in wanted) or [0],
        job_count - len(wanted),
        sum(arrivals.count[key] > 1 for key in wanted),
        unended,
        100 * cpu_s / COUNTED_S,
    )


async def _beat(database: Database, address: str) -> None:
    where = Address.parse(address).text
    while True:
        await asyncio.to_thread(registry.beat, database, APP, where, now_ms=machine_ms())
        await asyncio.sleep(BEAT_EACH_S)


async def _until(moment_ms: int) -> None:
    await asyncio.sleep(max(0, moment_ms - machine_ms()) / 1000)


@contextmanager
def address_of(kind: str, folder: Path) -> Iterator[str]:
    """A database for a kind of set-up."""
    if kind == "sqlite":
        yield sqlite_address(folder)
    else:
        with postgresql_address() as address:
            yield address


def main() -> None:
    """Measure the kinds that are asked for, and print the table."""
    job_count = int(sys.argv[1]) if sys.argv[1:] else JOBS
    kinds = sys.argv[2:] or KINDS
    title = f"{job_count:,} jobs due in a minute, from the planned time to the executor"
    heads = ("centres", "p50", "p99", "bar", "longest", "lost", "twice", "open", "CPU")
    table = Table(*heads, title=title, caption=f"XXL-Job, as published: {XXL_JOB}")
    try:
        for kind in kinds:
            with (
                TemporaryDirectory(prefix="tidemark-bench-") as folder,
                address_of(kind, Path(folder)) as at,
            ):
                centres = 2 if kind == "two" else 1
                done = asyncio.run(measure(kind, at, job_count=job_count, centres=centres))
            row = _row(done)
            table.add_row(*row)
            # As it goes: whoever waits for ten minutes wants to know, whatever the next one does.
            line = ", ".join(f"{head} {cell}" for head, cell in zip(heads, row, strict=True))
            print(line, flush=True)
    finally:
        Console(width=120).print(table)
        sys.stdout.flush()


def _row(done: Measured) -> tuple[str, ...]:
    """A line of the table: figures that miss their bar say so."""
    names = {"sqlite": "1, SQLite", "postgresql": "1, PostgreSQL", "two": "2, PostgreSQL"}
    return (
        names[done.kind],
        f"{done.delay_s(0.5):.3f} s",
        _beside(done.delay_s(0.99), SCHEDULER_P99),
        str(SCHEDULER_P99),
        f"{done.delays_ms[-1] / 1000:.3f} s",
        _beside(done.lost, SCHEDULER_LOST),
        _beside(done.twice, SCHEDULER_TWICE),
        str(done.unended),
        f"{done.cpu_share:.0f} %",
    )


def _beside(value: float, bar: Bar) -> str:
    shown = f"{value:.3f} s" if bar.unit == "s" else f"{value:g}"
    return shown if bar.is_held(value) else f"{shown} (missed)"


if __name__ == "__main__":
    main()
