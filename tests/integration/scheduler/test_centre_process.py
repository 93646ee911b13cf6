"""A centre that listens: a job of its database runs on an executor that speaks the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, ConnectFailed
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.centre.serving import serve
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.job_settings import GLUE_TYPES
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.store import groups, jobs, registry, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import AdminClient, Caller, opened_caller
from pipelines.scheduler.wire.messages import Answer, Registration, RunRequest, RunResult, refused
from pipelines.scheduler.wire.server import WireApplication, WireRequest, listening, served
from pipelines.scheduler.wire.tokens import Speaker, Tokens
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, settings

TOKEN = "a token"
OWN = "a-token-of-its-own"


@asynccontextmanager
async def an_executor(
    admin: AdminClient, tokens: Tokens | None = None
) -> AsyncIterator[tuple[str, list[RunRequest]]]:
    """One that accepts what it is sent, and reports its success at once."""
    taken: list[RunRequest] = []

    async def run(asked: WireRequest) -> Answer:
        request = RunRequest.decode(asked.body)
        if request.parameters == "no":
            return refused("job handler [report] not found.")
        taken.append(request)
        done = RunResult(request.log_id, request.log_time_ms, 200, "well")
        assert (await admin.report([done, done])).is_success
        return Answer()

    tokens = tokens or Tokens(TOKEN)
    listener = listening("127.0.0.1", 0, tokens)
    async with served(WireApplication({"/run": run}, tokens), listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", taken


@asynccontextmanager
async def a_centre(
    database: Database, caller: Caller, *, token: str = TOKEN
) -> AsyncIterator[Address]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(database, host="127.0.0.1", port=0, token=token, on_ready=address.set_result)
    )
    try:
        yield Address.parse(f"{await address}xxl-job-admin")
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
    group_id = groups.add_group(database, APP, Change("ann", machine_ms()))
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

            sent = {}
            for glue_type in GLUE_TYPES[1:]:
                wanted = settings(glue_type=glue_type, glue_source=f"a {glue_type}", handler="")
                of_source = jobs.add_job(database, group_id, wanted, Change("ann", machine_ms()))
                sent[glue_type] = results.run_by_hand(
                    database, of_source, "1", Change("ann", machine_ms())
                )
            for log_id in sent.values():
                assert (await ended(database, log_id)).state is RunState.DONE
            assert {(one.glue_type, one.glue_source, one.log_id) for one in taken[1:]} == {
                (glue_type, f"a {glue_type}", log_id) for glue_type, log_id in sent.items()
            }

            assert (await admin.remove(Registration(APP, address))).is_success
            assert registry.registered(database, now_ms=machine_ms()) == {}
    database.close()


async def test_an_executor_with_a_token_of_its_own_is_nobody_elses(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    by_ann = Change("ann", machine_ms())
    own = groups.add_group(database, APP, by_ann, token=OWN)
    other = groups.add_group(database, "other", by_ann)
    job_id, their_job = (jobs.add_job(database, one, settings(), by_ann) for one in (own, other))
    async with opened_caller() as caller, a_centre(database, caller) as at:
        common = AdminClient(caller, at, token=TOKEN, app=APP)
        admin = AdminClient(caller, at, token=OWN, app=APP)
        async with an_executor(admin, Tokens(None, {APP: OWN})) as (address, taken):
            assert not (await common.register(Registration(APP, address))).is_success
            assert not (await admin.register(Registration("other", address))).is_success
            assert (await admin.register(Registration(APP, address))).is_success
            stranger = AdminClient(caller, at, token=TOKEN, app="other")
            stolen = await stranger.register(Registration("other", address))
            assert stolen.message == "the address is another executor's"

            run = await ended(database, results.run_by_hand(database, job_id, "2", by_ann))
            assert (run.state, len(taken)) == (RunState.DONE, 1), "it was shown its own token"
            theirs = results.run_by_hand(database, their_job, "3", by_ann)
            forged = RunResult(theirs, machine_ms(), 200, "forged")
            assert not (await admin.report([forged])).is_success
            refusal = await ended(database, theirs)
            assert (refusal.state, refusal.result_message) == (RunState.REFUSED, None)

            groups.set_token(database, own, None, by_ann)
            async with asyncio.timeout(60):
                while not (await common.register(Registration(APP, address))).is_success:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.2)
            assert not (await admin.register(Registration(APP, address))).is_success
    database.close()


async def test_without_any_token_nobody_is_let_in_from_elsewhere(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    by_ann = Change("ann", machine_ms())
    book = TokenBook(database, None, asyncio.to_thread, may_be_open=False)
    assert book.tokens.speaker(APP, "") is None
    group_id = groups.add_group(database, APP, by_ann, token=OWN)
    book.read()
    assert book.tokens.speaker(APP, OWN) == Speaker(APP)
    with pytest.raises(ConnectFailed, match="shown no token"):
        await book.key_for("http://10.0.0.9:1/")
    groups.set_token(database, group_id, None, by_ann)
    book.read()
    assert book.tokens.speaker(APP, "") is None
    groups.set_token(database, group_id, OWN, by_ann)
    clash = TokenBook(database, OWN, asyncio.to_thread, may_be_open=True)
    with pytest.raises(ConfigError, match="nobody else has"):
        clash.read()
    assert OWN not in repr(await clash.key_for("http://10.0.0.9:1/"))
    database.close()
