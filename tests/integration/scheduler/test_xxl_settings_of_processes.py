"""A centre and an executor that are set by XXL-Job's files alone find each other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.scheduler.store import registry
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import MODULE, PATIENCE_S
from tests.integration.scheduler.processes import COMMAND, ROOT


async def begun(*words: str, log_path: Path) -> asyncio.subprocess.Process:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"TIDEMARK_SCHEDULER_TOKEN", "TIDEMARK_JOBS_TOKEN"}
    }
    with log_path.open("wb") as errors:
        return await asyncio.create_subprocess_exec(
            *(COMMAND, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=ROOT,
        )


async def first_line(one: asyncio.subprocess.Process) -> str:
    assert one.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await one.stdout.readline()).decode().strip()


async def test_a_centre_and_an_executor_start_with_xxl_jobs_files(tmp_path: Path) -> None:
    address, errors = sqlite_address(tmp_path), tmp_path / "errors"
    admin, executor = tmp_path / "admin.properties", tmp_path / "executor.properties"
    admin.write_text("server.port=1\nxxl.job.accessToken=of both\nxxl.job.i18n=en\n")
    words = ("scheduler", "run", "-c", str(admin), "--port", "0", "--database", address)
    centre = await begun(*words, log_path=errors)
    started = [centre]
    try:
        url = (await first_line(centre)).removeprefix("ready address=").rstrip("/")
        assert "xxl.job.i18n is ignored: pages and messages are in English" in errors.read_text()
        logs = tmp_path / "logs"
        executor.write_text(
            f"xxl.job.admin.addresses={url}/xxl-job-admin\nxxl.job.accessToken=of both\n"
            f"xxl.job.executor.appname=by-file\nxxl.job.executor.port=0\n"
            f"xxl.job.executor.logpath={logs}\n"
        )
        its = ("executor", "--module", MODULE, "-c", str(executor))
        started.append(await begun(*its, log_path=tmp_path / "more"))
        assert "ready" in await first_line(started[-1])
        await until_registered(address, "by-file")
        assert logs.is_dir()
    finally:
        for one in started:
            if one.returncode is None:
                one.terminate()
            await one.wait()


async def until_registered(address: str, app: str) -> None:
    database = Database.at(address)

    def is_there() -> bool:
        known = registry.known(database, now_ms=database_ms(database))
        return any(one.app_name == app for one in known)

    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_there():  # noqa: ASYNC110 - a row
                await asyncio.sleep(0.05)
    finally:
        database.close()
