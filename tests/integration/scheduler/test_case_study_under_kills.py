"""Row F6: files in an S3 store, converted by executors that are killed, leave and join, as a centre
triggers them; each file has one entry in the history, and what was done again is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest
import sqlalchemy as sa
from obstore.store import S3Store

from demo.ports import free_port_block
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.centre.serving import serve
from pipelines.scheduler.executor.serving import TOKEN_VARIABLE
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.store import groups, jobs, registry
from pipelines.scheduler.store.audit import Change
from tests.amounts import kills as kill_so_many
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.pipelines.s3_server import BUCKET, s3_server
from tests.integration.scheduler.parties import PATIENCE_S, TOKEN
from tests.integration.scheduler.test_executor_under_kills import COMMAND, ROOT, children_of

APP = "files"
FILES = 24
"""Added before each kill."""
BAD_PATH = "nowhere/at-all.csv"
STUCK_AFTER_S = 3
LOOK_AGAIN_S = 0.05
LEFT = "SELECT count(*) FROM conversions"
CLAIMS = "SELECT claim FROM conversions WHERE status = 2"
ENTRIES = "SELECT source, target, status, claims, failures FROM conversion_history"
READINGS = "sensor,degrees\nroof,{}\n"

pytestmark = pytest.mark.timeout(900)


@contextmanager
def business_database(kind: str, folder: Path) -> Iterator[str]:
    """An address of SQLAlchemy's."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'business.db'}"
        return
    with postgresql_address() as address:
        yield address.replace("postgresql:", "postgresql+psycopg:")


async def until(happened: Callable[[], Any]) -> None:
    """Wait for what other processes do; many share the machine."""
    async with asyncio.timeout(4 * PATIENCE_S):
        while not happened():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(LOOK_AGAIN_S)


class Business:
    """The table, its history and the store, as whoever adds files sees them."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self.address = address
        patience = {"timeout": PATIENCE_S} if address.startswith("sqlite") else {}
        self.engine = sa.create_engine(address, poolclass=sa.NullPool, connect_args=patience)
        subprocess.run(
            [sys.executable, "-m", "file_conversion.rows", address, BAD_PATH],
            cwd=ROOT / "docs" / "examples",
            check=True,
        )
        self.store = S3Store(BUCKET, **_without_prefix(options))  # type: ignore[arg-type]
        self.added = 0

    def add_files(self, count: int) -> None:
        sources = []
        for number in range(self.added, self.added + count):
            sources.append(f"day/{number}.csv")
            self.upload(sources[-1], number)
        self.added += count
        self.add_rows(sources)

    def upload(self, source: str, number: int) -> None:
        obstore.put(self.store, source, READINGS.format(number).encode())

    def add_rows(self, sources: list[str]) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                sa.text(
                    "INSERT INTO conversions (source, status, claim, claimed_ms, claims, failures,"
                    " losses, error) VALUES (:source, 1, '', 0, 0, 0, 0, '')"
                ),
                [{"source": source} for source in sources],
            )

    def ask(self, statement: str) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(sa.text(statement)))

    def number(self, statement: str) -> int:
        return int(self.ask(statement)[0][0] or 0)


def _without_prefix(options: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name.removeprefix("AWS_").lower(): text for name, text in options.items()
    }
    del fields["allow_http"]
    return fields | {"client_options": {"allow_http": True}}


class Fleet:
    """Executors of one name, each with a home and a port of its own."""

    def __init__(self, admin: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.admin, self.folder, self.environment = admin, folder, environment
        self.members: dict[int, asyncio.subprocess.Process] = {}
        self.ports: dict[int, int] = {}

    async def start(self, *numbers: int) -> None:
        """Begin, or begin again, at the same address."""
        for number in numbers:
            self.ports.setdefault(number, free_port_block(1))
            self.members[number] = await asyncio.create_subprocess_exec(
                *(COMMAND, "executor", "--admin", self.admin, "--app", APP, "--module"),
                *("file_conversion.handlers", "--home", self.folder / f"executor-{number}"),
                *("--port", str(self.ports[number])),
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | self.environment | {TOKEN_VARIABLE: TOKEN},
                cwd=ROOT / "docs" / "examples",
            )
        for number in numbers:
            output = self.members[number].stdout
            assert output is not None
            async with asyncio.timeout(PATIENCE_S):
                assert b"ready executor=" in await output.readline()

    async def kill(self, number: int) -> None:
        self.members[number].kill()
        await self.members.pop(number).wait()

    async def leave(self, number: int) -> None:
        self.members[number].terminate()
        assert await self.members.pop(number).wait() == 0

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("executor-*/logs/*/*.log"))


@asynccontextmanager
async def a_fleet(admin: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Fleet]:
    fleet = Fleet(admin, folder, environment)
    try:
        yield fleet
    finally:
        for process in fleet.members.values():
            process.kill()
            await process.wait()


@asynccontextmanager
async def a_centre(database: Database) -> AsyncIterator[str]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(database, host="127.0.0.1", port=0, token=TOKEN, on_ready=address.set_result)
    )
    try:
        yield f"{await address}xxl-job-admin"
    finally:
        serving.cancel()
        await asyncio.wait({serving})


def start_jobs(database: Database) -> None:
    """The three jobs of the case, each as often as a schedule may be."""
    group = groups.add_group(database, APP, Change("ann", machine_ms()))
    stuck = {"route": "FIRST", "parameters": json.dumps({"stuck_after_s": STUCK_AFTER_S})}
    hopeless = {"route": "FIRST", "blocking": "DISCARD_LATER"}
    broadcast = {"route": "SHARDING_BROADCAST", "blocking": "DISCARD_LATER"}
    for seconds, handler, more in (
        (1, "convert-files", broadcast),
        (2, "give-back-stuck-files", stuck),
        (5, "retry-hopeless-files", hopeless),
    ):
        settings = JobSettings(
            title=handler,
            handler=handler,
            schedule_kind="FIX_RATE",
            schedule_text=str(seconds),
            misfire="DO_NOTHING",
            **more,  # type: ignore[arg-type]
        )
        job = jobs.add_job(database, group, settings, Change("ann", machine_ms()))
        jobs.start_job(database, job, Change("ann", machine_ms()))


@kill_so_many(1, in_full=30)
@pytest.mark.parametrize(
    "business_kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
)
async def test_executors_killed_at_random_leave_each_file_one_entry_in_the_history(
    kills: int, business_kind: str, tmp_path: Path
) -> None:
    choice = random.Random(kills)
    with s3_server() as options, business_database(business_kind, tmp_path) as address:
        database = Database.at(sqlite_address(tmp_path))
        environment = {
            **options,
            "CONVERSION_DATABASE": address,
            "CONVERSION_STORE": f"s3://{BUCKET}",
        }
        business = Business(address, options)
        async with (
            a_centre(database) as admin,
            a_fleet(admin, tmp_path, environment) as fleet,
        ):
            await fleet.start(1, 2)
            start_jobs(database)
            await one_joins(business, fleet)
            for _ in range(kills):
                business.add_files(FILES)
                victim = await at_work(business, fleet, choice)
                await fleet.kill(victim)
                await fleet.start(victim)
            await one_leaves(business, fleet, database)
            await the_bad_path_is_reported_and_mended(business, fleet)
            log = fleet.logs()
        database.close()
        the_history_has_each_file_once(business, log)
        business.engine.dispose()


async def at_work(business: Business, fleet: Fleet, choice: random.Random) -> int:
    """One of the executors that have a row now."""
    found: list[int] = []

    def somebody() -> list[int]:
        children = {int(claim.split()[1]) for (claim,) in business.ask(CLAIMS)}
        for number, process in sorted(fleet.members.items()):
            found.extend([number] * bool(children.intersection(children_of(process.pid))))
        return found

    await until(somebody)
    return choice.choice(found)


async def one_joins(business: Business, fleet: Fleet) -> None:
    """Shards are counted anew at each trigger: whose files they were, they become others'."""
    await until(lambda: "shard 1 of 2" in fleet.logs())
    business.add_files(FILES)
    await fleet.start(3)
    await until(lambda: "shard 2 of 3" in fleet.logs())


async def one_leaves(business: Business, fleet: Fleet, database: Database) -> None:
    """As `one_joins`."""
    business.add_files(FILES)
    before = fleet.logs().count("shard 1 of 2")
    await fleet.leave(1)
    await until(lambda: fleet.logs().count("shard 1 of 2") > before)
    assert len(registry.registered(database, now_ms=machine_ms())[APP]) == 2
    business.add_files(FILES)


async def the_bad_path_is_reported_and_mended(business: Business, fleet: Fleet) -> None:
    await until(lambda: business.number(LEFT) == 1)
    await until(lambda: business.number("SELECT failures FROM conversions") > 4)
    assert business.ask("SELECT source FROM conversions") == [(BAD_PATH,)]
    assert f"{BAD_PATH}: Object at location {BAD_PATH} not found" in fleet.logs()
    business.upload(BAD_PATH, 0)
    await until(lambda: business.number(LEFT) == 0)


def the_history_has_each_file_once(business: Business, log: str) -> None:
    entries = business.ask(
        "SELECT source, target, status, claims, failures FROM conversion_history"
    )
    sources = [f"day/{number}.csv" for number in range(business.added)]
    assert sorted(entry.source for entry in entries) == sorted([BAD_PATH, *sources])
    assert {entry.status for entry in entries} == {4}
    assert all(entry.claims == entry.failures + 1 for entry in entries), "nothing uncounted"
    for number, source in enumerate(sources):
        target = next(entry.target for entry in entries if entry.source == source)
        made = json.loads(bytes(obstore.get(business.store, target).bytes()))
        assert made == {"sensor": "roof", "degrees": float(number)}
    claims = business.number("SELECT sum(claims) FROM conversion_history")
    again = business.number("SELECT sum(losses) FROM conversion_history")
    assert claims >= log.count("is taken") >= len(entries)
    assert again > 0, "what was done again is counted"
    sys.stdout.write(f"{len(entries)} files, taken {claims} times; {again} after a kill\n")
