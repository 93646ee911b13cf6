"""A centre with the platform's own jobs and an executor, in a thread beside a dashboard; and Ann,
who is an administrator, Bob, who has the jobs of another group, and Cy, who has those of ours.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.platform_jobs.installing import APP, install
from pipelines.scheduler.centre.serving import serve as serve_centre
from pipelines.scheduler.commands.context import acting
from pipelines.scheduler.executor.serving import Settings
from pipelines.scheduler.executor.serving import serve as serve_executor
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import people
from pipelines.scheduler.store.audit import Change
from tests.sqlite_databases import filled_by, laid_in

PASSWORD = "correct horse battery"
TOKEN = "a token of tests"
READY_WITHIN_S = 30


def write_jobs(folder: Path) -> Database:
    """Our own jobs, none of them started, and the three people."""
    return Database.at(laid_in(folder, _of_jobs()))


@cache
def _of_jobs() -> bytes:
    return filled_by(_write)[0]


def _write(database: Database) -> None:
    change = Change("root", machine_ms())
    service = JobService(database, Actor("root", is_admin=True), machine_ms)
    install(service, is_started=False)
    other = service.add_group("other")
    own = next(one.group_id for one in service.groups() if one.app_name == APP)
    people.add_user(database, "ann", change, is_admin=True, password=PASSWORD)
    people.add_user(database, "bob", change, group_ids=[other], password=PASSWORD)
    people.add_user(database, "cy", change, group_ids=[own], password=PASSWORD)
    assert acting(database, "cy").group_ids == {own}


@contextmanager
def at_work(database: Database, home: Path, module: str) -> Iterator[None]:
    """A centre of the database, and an executor of our application with the handlers of a module;
    it has registered."""
    ready, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    async def both() -> None:
        loop = asyncio.get_running_loop()
        address: asyncio.Future[str] = loop.create_future()
        centre = asyncio.create_task(
            serve_centre(
                database, host="127.0.0.1", port=0, token=TOKEN, on_ready=address.set_result
            )
        )
        at = await address
        end, began = asyncio.Event(), loop.create_future()
        settings = Settings(
            admins=(f"{at}xxl-job-admin",), app=APP, module=module, home=home, port=0, token=TOKEN
        )
        executor = asyncio.create_task(serve_executor(settings, end, began.set_result))
        await began
        ready.set()
        await asyncio.to_thread(over.wait)
        end.set()
        await executor
        centre.cancel()
        await asyncio.wait({centre})

    def work() -> None:
        try:
            asyncio.run(both())
        except BaseException as error:
            failed.append(error)
            ready.set()
            raise

    thread = threading.Thread(target=work, name="centre")
    thread.start()
    try:
        assert ready.wait(READY_WITHIN_S), "the centre did not start"
        assert not failed, failed
        yield
    finally:
        over.set()
        thread.join(READY_WITHIN_S)
