"""A centre that listens: a job of its database runs on an executor that speaks the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pipelines.alerting.store.database import Database
from pipelines.scheduler.centre.serving import serve
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.store import jobs, registry, results
from pipelines.scheduler.store.clock import machine_ms
from pipelines.scheduler.store.jobs import Change
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import AdminClient, Caller, opened_caller
from pipelines.scheduler.wire.messages import Answer, Registration, RunRequest, RunResult, refused
from pipelines.scheduler.wire.server import Asked, WireApplication, listening, served
from pipelines.scheduler.wire.tokens import Tokens
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, settings

TOKEN = "a token"


@asynccontextmanager
async def an_executor(admin: AdminClient) -> AsyncIterator[tuple[str, list[RunRequest]]]:
    """One that accepts what it is sent, and tells its success at once."""
    taken: list[RunRequest] = []

    async def run(asked: Asked) -> Answer:
        request = RunRequest.decode(asked.body)
        if request.parameters == "no":
            return refused("job handler [report] not found.")
        taken.append(request)
        done = RunResult(request.log_id, request.log_time_ms, 200, "well")
        assert (await admin.report([done, done])).is_success
        return Answer()

    tokens = Tokens(TOKEN)
    listener = listening("127.0.0.1", 0, tokens)
    async with served(WireApplication({"/run": run}, tokens), listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", taken


@asynccontextmanager
async def a_centre(
    database: Database, caller: Caller, *, token: str = TOKEN
) -> AsyncIterator[Address]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(database, host="127.0.0.1", port=0, token=token, on_ready=told.set_result)
    )
    try:
        yield Address.parse(f"{await told}xxl-job-admin")
    finally:
        serving.cancel()
        await asyncio.wait({serving})


async def ended(database: Database, log_id: int) -> results.Run:
    async with asyncio.timeout(60):
        while (run := results.run_of(database, log_id)).state not in ENDED:  # noqa: ASYNC110 - a row
            await asyncio.sleep(0.02)
    return run


async def test_a_job_runs_on_an_executor_that_registered(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    group_id = jobs.add_group(database, APP, Change("ann", machine_ms()))
    job_id = jobs.add_job(database, group_id, settings(), Change("ann", machine_ms()))
    async with opened_caller() as caller, a_centre(database, caller) as at:
        stranger = AdminClient(caller, at, token="another", app=APP)
        admin = AdminClient(caller, at, token=TOKEN, app=APP)
        async with an_executor(admin) as (address, taken):
            assert not (await stranger.register(Registration(APP, address))).is_success
            metadata = Registration(APP, "http://169.254.169.254/")
            assert "can have" in (await admin.register(metadata)).message
            assert (await admin.register(Registration(APP, address))).is_success
            assert registry.registered(database, now_ms=machine_ms()) == {APP: (address,)}

            good = results.run_by_hand(database, job_id, "1", Change("ann", machine_ms()))
            run = await ended(database, good)
            assert (run.state, run.result_message) == (RunState.DONE, "well")
            assert [(one.log_id, one.handler) for one in taken] == [(good, "report")]
            assert taken[0].fire_time_ms == run.planned_ms

            bad = results.run_by_hand(
                database, job_id, "2", Change("ann", machine_ms()), parameters="no"
            )
            refusal = await ended(database, bad)
            assert refusal.state is RunState.REFUSED
            assert refusal.trigger_message == "job handler [report] not found."

            assert (await admin.remove(Registration(APP, address))).is_success
            assert registry.registered(database, now_ms=machine_ms()) == {}
    database.close()
