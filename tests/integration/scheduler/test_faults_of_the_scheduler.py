"""Executors that answer late, twice or never; storms of callbacks; zones that change; many jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.centre.calls import WiredExecutors
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.run_life import OK, RunEvent, RunState
from pipelines.scheduler.store import groups, jobs, passes, registry, results, tables
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.sending import Sending
from pipelines.scheduler.wire.client import AdminClient, opened_caller
from pipelines.scheduler.wire.messages import Registration, RunResult
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.scheduler.stores import (
    APP,
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    a_group,
    by,
    settings,
    started,
)
from tests.integration.scheduler.test_centre_process import TOKEN, a_centre
from tests.integration.scheduler.test_wire_over_sockets import strange_peer

MANY = 100_000


def a_sending(address: str) -> Sending:
    return Sending(
        log_id=1,
        token=1,
        job_id=7,
        address=address,
        planned_ms=NOW_MS,
        sent_ms=NOW_MS,
        shard_index=0,
        shard_total=1,
        claim_until_ms=NOW_MS + 10_000,
        settings=settings(),
        glue_changed_ms=0,
    )


async def whole_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


def response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def open_book(folder: Path) -> TokenBook:
    """No executor has a token, and none is needed."""
    database = Database.at(sqlite_address(folder))
    return TokenBook(database, None, asyncio.to_thread, may_be_open=True)


async def test_an_executor_that_answers_late_or_never_leaves_it_unknown(tmp_path: Path) -> None:
    is_late = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_request(reader)
        await is_late.wait()
        writer.write(response(b'{"code":500,"msg":"busy"}'))

    async with (
        strange_peer(late) as at,
        opened_caller(timeout_s=0.2) as hasty,
        opened_caller(timeout_s=20) as patient,
    ):
        outcome = await WiredExecutors(hasty, open_book(tmp_path)).run(a_sending(at.text))
        assert outcome.event is RunEvent.LOSE_SIGHT
        is_late.set()
        again = await WiredExecutors(patient, open_book(tmp_path)).run(a_sending(at.text))
        assert (again.event, again.message) == (RunEvent.REFUSE, "busy")


async def test_a_second_answer_is_not_taken_for_that_of_the_next_call(tmp_path: Path) -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_request(reader)
        writer.write(response(b'{"code":200,"msg":"first"}') * 2)
        await whole_request(reader)
        writer.write(response(b'{"code":500,"msg":"second"}'))

    async with strange_peer(twice) as at, opened_caller(timeout_s=20) as caller:
        executors = WiredExecutors(caller, open_book(tmp_path))
        for _ in range(3):
            outcome = await executors.run(a_sending(at.text))
            assert (outcome.event, outcome.message) == (RunEvent.ACCEPT, "first")


async def test_a_storm_of_callbacks_is_stored_and_beats_are_heard_in_it(tmp_path: Path) -> None:
    """Each result is reported four times over, by forty callers at once."""
    database = Database.at(sqlite_address(tmp_path))
    now = by("ann", machine_ms())
    group_id = groups.add_group(database, APP, now)
    job_id = jobs.add_job(database, group_id, settings(), now)
    sent = [
        planned_row(job_id, f"hand:{number}", now_ms=now.now_ms)
        | {
            "state": RunState.SENT.value,
            "sendings": 1,
            "sent_ms": now.now_ms,
            "address": "http://x/",
        }
        for number in range(2_000)
    ]
    with database.writing() as connection:
        connection.execute(sa.insert(tables.runs), sent)
        log_ids = list(connection.scalars(sa.select(tables.runs.c.log_id)))
    batches = [
        [RunResult(log_id, now.now_ms, OK) for log_id in log_ids[first : first + 50]]
        for first in range(0, len(log_ids), 50)
    ] * 4
    async with opened_caller(timeout_s=60) as caller, a_centre(database, caller) as at:
        admin = AdminClient(caller, at, token=TOKEN, app=APP)
        storm = [asyncio.create_task(admin.report(part)) for part in batches]
        assert (await admin.register(Registration(APP, "http://127.0.0.1:9/"))).is_success
        assert all(answer.is_success for answer in await asyncio.gather(*storm))
    counted = results.report(database, "d", from_ms=0, to_ms=2 * NOW_MS)
    assert counted == (0, len(log_ids), 0)
    assert registry.registered(database, now_ms=machine_ms()) == {APP: ("http://127.0.0.1:9/",)}
    database.close()


def test_a_change_of_zone_moves_what_waits_and_fires_no_time_twice(tmp_path: Path) -> None:
    """8 o'clock is planned in Berlin, and then is to be in Lisbon: an hour later."""
    database = Database.at(sqlite_address(tmp_path))
    wanted = {"schedule_kind": "CRON", "schedule_text": "0 0 8 * * ?"}
    job_id = started(database, a_group(database), zone="Europe/Berlin", **wanted)
    berlin_ms = jobs.job_of(database, job_id).next_ms
    assert berlin_ms is not None
    before_ms = berlin_ms - 2 * SECOND_MS
    assert len(passes.plan_due(database, "one", now_ms=before_ms).claims) == 1
    changed = settings(zone="Europe/Lisbon", **wanted)
    jobs.edit_job(database, job_id, changed, by(now_ms=before_ms))

    lisbon_ms = jobs.job_of(database, job_id).next_ms
    assert lisbon_ms == berlin_ms + 60 * MINUTE_MS
    assert passes.plan_due(database, "one", now_ms=berlin_ms).claims == ()
    [claim] = passes.plan_due(database, "one", now_ms=lisbon_ms).claims
    assert claim.due_ms == lisbon_ms
    states = [run.state for run in results.runs_of(database, job_id)]
    assert states == [RunState.CLAIMED, RunState.CANCELLED]
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_address(tmp_path)
    else:
        with postgresql_address() as at:
            yield at


@pytest.mark.slow
def test_a_hundred_thousand_jobs_are_planned_each_once(address: str) -> None:
    """All of them due within a minute; and listed, a thousand at a time."""
    database = Database.at(address)
    of_one = started(database, a_group(database))
    with database.writing() as connection:
        row = connection.execute(sa.select(tables.jobs)).one()._asdict()
        del row["job_id"]
        rows = [row | {"next_ms": NOW_MS + number % 60 * SECOND_MS} for number in range(MANY - 1)]
        connection.execute(sa.insert(tables.jobs), rows)
    planned: set[int] = set()
    for second in range(62):
        read_count = passes.JOBS_PER_PASS
        while read_count == passes.JOBS_PER_PASS:
            done = passes.plan_due(database, "one", now_ms=NOW_MS + second * SECOND_MS)
            read_count = done.read_count
            assert done.missed == ()
            ids = {claim.job_id for claim in done.claims if claim.due_ms < NOW_MS + MINUTE_MS}
            assert len(ids) == len([one for one in done.claims if one.due_ms < NOW_MS + MINUTE_MS])
            assert not ids & planned
            planned |= ids
    assert len(planned | {of_one}) == MANY
    listed, last = 0, 0
    while shown := jobs.jobs_after(database, last):
        listed, last = listed + len(shown), shown[-1].job_id
    assert listed == MANY
    database.close()
