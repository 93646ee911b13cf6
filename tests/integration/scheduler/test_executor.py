"""Row F2: an executor with real children and sockets: how runs end, and what is reported of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import time
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.scheduler.centre.calls import Sight, WiredExecutors
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.executor.worker import Worker
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store.results import Doubt
from pipelines.scheduler.wire.client import opened_caller
from pipelines.scheduler.wire.messages import Blocking, LogRequest
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import (
    LOG_TIME_MS,
    TOKEN,
    Party,
    executor_here,
    is_alive,
    receiving_admin,
    until,
)
from tests.recorded_xxl import to_executor


async def test_what_a_real_admin_sends_is_answered_as_the_java_executor_does(
    tmp_path: Path,
) -> None:
    """All that was recorded, in its order; of logs the form, for the lines are not Java's."""
    token = "default_token"
    async with (
        receiving_admin(token=token) as admin,
        executor_here(tmp_path, admin.url, token=token) as executor,
    ):
        reader, writer = await asyncio.open_connection(executor.at.host, executor.at.port)
        for call in to_executor():
            if call.path == "/log":
                await admin.result_of(101)
            if b'"boom"' in (call.request or b"") or b'"fail"' in (call.request or b""):
                await admin.until(lambda admin: admin.results)
            if b'"logId": 104' in (call.request or b""):
                await admin.result_of(103)
            verb = "GET" if call.request is None else "POST"
            body = call.request or b""
            head = f"{verb} {call.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}XXL-JOB-ACCESS-TOKEN: {call.token}\r\n\r\n".encode() + body)
            answer_head = await reader.readuntil(b"\r\n\r\n")
            length = int(answer_head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            got = await reader.readexactly(length)
            assert b"content-type: text/html;charset=UTF-8" in answer_head
            assert call.response is not None
            if call.path != "/log":
                assert got == call.response, call
            else:
                sent, recorded = json.loads(got), json.loads(call.response)
                assert sent["code"] == recorded["code"]
                assert sent["content"].keys() == recorded["content"].keys()
                assert sent["content"]["fromLineNum"] == recorded["content"]["fromLineNum"]
                is_beyond = sent["content"]["fromLineNum"] == 99
                assert ("hello p1 shard 1/3" in sent["content"]["logContent"]) != is_beyond
        writer.close()
        assert (await admin.result_of(107)).message == "job execute timeout "
    ends = {result.log_id: (result.code, result.message) for result in admin.results}
    assert ends[101] == (200, "")
    assert ends[102] == (500, "bad")
    assert ends[103][0] == 500
    assert ends[103][1].endswith("RuntimeError: boom\n")
    assert ends[104] == (500, "scheduling center kill job. [job running, killed]")
    assert ends[107] == (502, "job execute timeout ")
    assert len(admin.results) == 5, "104 was asked for twice, and has run once"
    assert [one.app for one in admin.registered] == ["tests"]
    assert admin.removed == admin.registered[:1]


async def test_a_run_that_is_sent_again_is_not_begun_again_whatever_became_of_its_log(
    tmp_path: Path,
) -> None:
    """Nor after a restart; and who asks what it is for gets whether it was taken."""
    place = tmp_path / "marks"
    place.with_suffix(".go").touch()
    fields = {"handler": "marks-and-waits", "parameters": str(place), "fire_time_ms": LOG_TIME_MS}
    later_ms = int(time.time() * 1000) + 60_000

    async def says(executor: Party, log_id: int, sent_ms: int = later_ms) -> str | None:
        return (await executor.client.log(LogRequest(log_id, sent_ms, 1, LOG_TIME_MS))).taken

    async with receiving_admin() as admin:
        async with executor_here(tmp_path / "x", admin.url) as executor:
            await executor.run(1, log_time_ms=later_ms, **fields)
            await admin.result_of(1)
            assert (await executor.log(1)).taken is None, "an admin of XXL-Job does not ask"
        shutil.rmtree(tmp_path / "x" / "logs")
        async with executor_here(tmp_path / "x", admin.url) as executor:
            assert await says(executor, 1, later_ms + 20_000) == "YES"
            assert await says(executor, 2) == "NO"
            assert await says(executor, 2, LOG_TIME_MS) == "UNSURE", "before it was there"
            again = await executor.run(1, log_time_ms=later_ms + 20_000, **fields)
            assert again.is_success, "it has it"
            too_late = await executor.run(2, log_time_ms=later_ms, **fields)
            assert not too_late.is_success, "it has said that it has none of it"
            assert (await executor.run(2, log_time_ms=later_ms + 1, **fields)).is_success
            await admin.result_of(2)
            async with opened_caller() as caller:
                book = TokenBook(Database.at(sqlite_address(tmp_path)), TOKEN, asyncio.to_thread,
                                 may_be_open=False)  # fmt: skip
                centre = WiredExecutors(caller, book)
                at, state = executor.at.text, RunState.UNKNOWN
                known = [
                    await centre.sight_of(Doubt(of, 7, at, state, later_ms, LOG_TIME_MS, later_ms))
                    for of in (1, 9)
                ]
                assert known == [Sight.HERE, Sight.NEVER]
    assert place.read_text() == "1\n2\n"


async def test_a_run_that_was_refused_may_come_again(tmp_path: Path) -> None:
    fields = {"handler": "demo", "fire_time_ms": LOG_TIME_MS}
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, parameters="sleep400", **fields)
        discarding = {"blocking": Blocking.DISCARD_LATER}
        assert not (await executor.run(2, **fields, **discarding)).is_success
        await admin.result_of(1)
        await until(lambda: not list((tmp_path / "runs").iterdir()))
        assert (await executor.run(2, **fields, **discarding)).is_success
        assert (await admin.result_of(2)).code == 200


async def test_a_handler_knows_when_its_run_was_planned_for(tmp_path: Path) -> None:
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, "says-its-time", fire_time_ms=1_700_000_000_000)
        await executor.run(2, "says-its-time")
        assert (await admin.result_of(1)).message == "2023-11-14T22:13:20+00:00 planned"
        assert (await admin.result_of(2)).message == "2026-11-21T05:45:31.064000+00:00 as triggered"


async def test_a_stuck_handler_leaves_its_stack_in_the_log(tmp_path: Path) -> None:
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, "waits-for-ever", timeout_s=1)
        assert (await admin.result_of(1)).code == 502
        page = await executor.log(1)
        assert "_a_lock_that_nobody_gives_back" in page.text
        assert page.text.index("will not come back") < page.text.index("takes longer than 1 s")
        assert "and tidies up" in page.text
        assert page.is_end
        assert (await executor.run(2)).is_success
        assert (await admin.result_of(2)).code == 200


async def test_what_a_module_does_as_its_process_ends_is_waited_for(tmp_path: Path) -> None:
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, "tidies-up-at-the-end-of-its-process")
        await executor.log_with(1, "will not come back")
        await executor.client.kill(7)
        killed = "scheduling center kill job. [job running, killed]"
        assert (await admin.result_of(1)).message == killed
        text = (await executor.log(1)).text
        assert "and has tidied up" in text
        assert "ended with status 1" in text, "it was not killed"


async def test_a_handler_that_will_not_stop_is_killed_with_all_it_has_started(
    tmp_path: Path,
) -> None:
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, "is-stubborn")
        await executor.run(2, "leaves-a-child", job_id=8, parameters=str(tmp_path / "pid"))
        await executor.log_with(1, "begins")
        pid = tmp_path / "pid"
        await until(lambda: pid.exists() and pid.read_text())
        await executor.client.kill(7)
        await executor.client.kill(8)
        assert not (await executor.client.idle_beat(7)).is_success, "it is not gone yet"
        killed = "scheduling center kill job. [job running, killed]"
        assert (await admin.result_of(1)).message == killed
        assert (await admin.result_of(2)).message == killed
        await until(lambda: not is_alive(int(pid.read_text())))
        assert (await executor.client.idle_beat(7)).is_success


async def test_a_handler_whose_process_dies_has_failed_and_the_next_run_has_another(
    tmp_path: Path,
) -> None:
    async with receiving_admin() as admin, executor_here(tmp_path, admin.url) as executor:
        await executor.run(1, "is-killed")
        await executor.run(2, "is-killed")
        await executor.run(3, "exits", job_id=8)
        await executor.run(4, "says-odd-things", job_id=9)
        assert "ended by SIGKILL" in (await admin.result_of(1)).message
        assert "ended by SIGKILL" in (await admin.result_of(2)).message
        assert (await admin.result_of(3)).message.endswith("SystemExit: 3\n")
        assert (await admin.result_of(4)).message == "half a pair ?"
        assert "last words" in (await executor.log(1)).text
        assert "raw bytes" in (await executor.log(4)).text


async def test_runs_of_a_job_share_a_process_and_never_the_moment(tmp_path: Path) -> None:
    place = tmp_path / "marks"
    async with receiving_admin() as admin, executor_here(tmp_path / "x", admin.url) as executor:
        for log_id in (1, 2):
            await executor.run(log_id, "marks-and-waits", parameters=str(place))
        discarded = await executor.run(3, "marks-and-waits", blocking=Blocking.DISCARD_LATER)
        assert discarded.message == "block strategy effect：Discard Later"
        again = await executor.run(1, "marks-and-waits", parameters=str(place))
        assert again.is_success, "the same run is accepted again, and is not another"
        place.with_suffix(".go").touch()
        first, second = await admin.result_of(1), await admin.result_of(2)
        assert first.message == second.message
        assert (await executor.run(1, "marks-and-waits")).is_success, "nor when it has ended"
        await executor.run(4, "marks-and-waits", parameters=str(place))
        await admin.result_of(4)
        await until(lambda: not list((tmp_path / "x" / "runs").iterdir()))
    assert place.read_text() == "1\n2\n4\n"


async def test_more_jobs_than_processes_wait_their_turn_and_may_be_killed_meanwhile(
    tmp_path: Path,
) -> None:
    place = tmp_path / "marks"
    async with (
        receiving_admin() as admin,
        executor_here(tmp_path / "x", admin.url, processes=1) as executor,
    ):
        await executor.run(1, "marks-and-waits", job_id=1, parameters=str(place))
        await until(place.exists)
        for job in (2, 3):
            late = {"timeout_s": 1} if job == 3 else {}
            await executor.run(job, "marks-and-waits", job_id=job, parameters=str(place), **late)
            assert not (await executor.client.idle_beat(job)).is_success
        await executor.client.kill(2)
        assert "job running, killed" in (await admin.result_of(2)).message
        place.with_suffix(".go").touch()
        first, third = await admin.result_of(1), await admin.result_of(3)
        assert first == dataclasses.replace(third, log_id=1), "done, and by the same process"
    assert place.read_text() == "1\n3\n"


async def test_results_wait_for_an_admin_that_is_gone(tmp_path: Path) -> None:
    async with receiving_admin() as admin:
        port = int(admin.url.split(":")[2].split("/")[0])
    async with executor_here(tmp_path, admin.url) as executor:
        await executor.run(1)
        await executor.log_with(1, "ends")
        async with receiving_admin(port=port) as back:
            back.refuses = True
            assert (await executor.run(2)).is_success
            await executor.log_with(2, "ends")
            back.refuses = False
            assert {(await back.result_of(log_id)).code for log_id in (1, 2)} == {200}


async def test_an_executor_that_ends_reports_what_it_has_stopped(tmp_path: Path) -> None:
    async with receiving_admin() as admin:
        async with executor_here(tmp_path, admin.url) as executor:
            await executor.run(1, "waits-for-ever")
            await executor.run(2, "waits-for-ever")
            await executor.log_with(1, "will not come back")
        messages = {result.log_id: result.message for result in admin.results}
    why = "web container destroy and kill the job."
    assert messages == {
        1: f"{why} [job running, killed]",
        2: f"{why} [job not executed, in the job queue, killed.]",
    }
    assert len(admin.removed) == 1


async def test_a_farewell_comes_after_the_last_beat_however_slowly_that_is_read(
    tmp_path: Path,
) -> None:
    """An admin that read them the other way round would send runs to nobody for 90 s."""
    async with receiving_admin() as admin:
        admin.reads_beats = asyncio.Event()
        async with executor_here(tmp_path, admin.url) as executor:
            assert (await executor.client.beat()).is_success
            asyncio.get_running_loop().call_later(0.3, admin.reads_beats.set)
        assert admin.order == ["beat", "farewell"]


async def test_scripts_are_refused_unless_they_were_switched_on(tmp_path: Path) -> None:
    script = {"handler": "", "glue_type": "GLUE_SHELL", "glue_source": 'echo "$@"; exit 4'}
    async with receiving_admin() as admin:
        async with executor_here(tmp_path, admin.url) as executor:
            answer = await executor.run(1, **script)
            assert answer.message == "scripts are switched off on this executor"
        async with executor_here(tmp_path, admin.url, scripts=True) as executor:
            parameters = "$(touch bad); `touch bad`"
            await executor.run(2, **script, parameters=parameters, shard_index=1, shard_total=3)
            assert (await admin.result_of(2)).message == "script exit value(4)"
            assert f"{parameters} 1 3\n" in (await executor.log(2)).text
            groovy = await executor.run(3, glue_type="GLUE_GROOVY", glue_source="x")
            assert groovy.message == "glueType[GLUE_GROOVY] is not valid."
            await executor.run(4, handler="", glue_type="GLUE_SHELL", glue_source="sleep 600")
            await executor.log_with(4, "begins")
            await executor.client.kill(7)
            assert "job running, killed" in (await admin.result_of(4)).message


async def test_scripts_without_a_token_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--scripts.*TIDEMARK_JOBS_TOKEN or --token-file"):
        async with executor_here(tmp_path, "http://127.0.0.1:1/", scripts=True, token=None):
            pass


async def test_what_is_wrong_at_the_start_is_said_before_anything_is_served(
    tmp_path: Path,
) -> None:
    for wrong in (
        {"module": "no_such_module"},
        {"module": "os; import sys"},
        {"app": "a b"},
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "address": "http://10.0.0.1:9999/", "token": None},
        {"address": "http://169.254.169.254/"},
    ):
        with pytest.raises(ConfigError):
            async with executor_here(tmp_path, "http://127.0.0.1:1/", **wrong):
                pass


async def test_a_module_that_fails_to_import_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No module named 'no_such_module'"):
        await Worker.start("no_such_module", {})


def test_the_time_of_the_tests_is_the_one_that_was_recorded() -> None:
    assert str(LOG_TIME_MS).encode() in (to_executor()[6].request or b"")
