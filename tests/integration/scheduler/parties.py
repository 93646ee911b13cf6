"""An admin that writes down what executors report, and an executor to talk to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.scheduler.executor.serving import Settings, serve
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import Caller, ExecutorClient, opened_caller
from pipelines.scheduler.wire.messages import (
    Answer,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    decode_results,
    refused,
)
from pipelines.scheduler.wire.server import WireApplication, WireRequest, listening, served
from pipelines.scheduler.wire.tokens import Tokens

TOKEN = "a token of tests"
MODULE = "tests.integration.scheduler.job_handlers"
LOG_TIME_MS = 1_795_239_931_064
PATIENCE_S = 60
LOOK_AGAIN_S = 0.02
CONTEXT = "/xxl-job-admin"


@dataclass
class Admin:
    """What executors have reported."""

    url: str = ""
    registered: list[Registration] = field(default_factory=list)
    removed: list[Registration] = field(default_factory=list)
    results: list[RunResult] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """In which order it got beats and farewells."""
    refuses: bool = False
    reads_beats: asyncio.Event | None = None
    """A beat is not read before this."""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, happened: Callable[[Admin], Any]) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: happened(self))

    async def result_of(self, log_id: int) -> RunResult:
        """How a run has ended."""
        await self.until(lambda admin: any(one.log_id == log_id for one in admin.results))
        return next(one for one in self.results if one.log_id == log_id)

    async def registry(self, asked: WireRequest) -> Answer:
        if self.reads_beats is not None:
            await self.reads_beats.wait()
        self.order.append("beat")
        return await self._report(self.registered, [Registration.decode(asked.body)])

    async def remove(self, asked: WireRequest) -> Answer:
        self.order.append("farewell")
        return await self._report(self.removed, [Registration.decode(asked.body)])

    async def callback(self, asked: WireRequest) -> Answer:
        return await self._report(self.results, decode_results(asked.body))

    async def _report(self, ledger: list[Any], results: list[Any]) -> Answer:
        if self.refuses:
            return refused("not today")
        async with self._news:
            ledger.extend(results)
            self._news.notify_all()
        return Answer()


@asynccontextmanager
async def receiving_admin(*, port: int = 0, token: str = TOKEN) -> AsyncIterator[Admin]:
    """An admin at work."""
    admin = Admin()
    tokens = Tokens(token)
    listener = listening("127.0.0.1", port, tokens)
    admin.url = f"http://127.0.0.1:{listener.getsockname()[1]}{CONTEXT}"
    calls = {
        f"{CONTEXT}/api/registry": admin.registry,
        f"{CONTEXT}/api/registryRemove": admin.remove,
        f"{CONTEXT}/api/callback": admin.callback,
    }
    async with served(WireApplication(calls, tokens), listener):
        yield admin


@dataclass
class Party:
    """An executor, and a centre's client of it."""

    client: ExecutorClient
    at: Address
    caller: Caller

    async def run(self, log_id: int, handler: str = "demo", **fields: Any) -> Answer:
        """Ask for a run."""
        values = {"job_id": 7, "log_time_ms": LOG_TIME_MS, "handler": handler} | fields
        return await self.client.run(RunRequest(log_id=log_id, **values))

    async def log(self, log_id: int, from_line: int = 1) -> LogPage:
        """What its log has."""
        return await self.client.log(LogRequest(log_id, LOG_TIME_MS, from_line))

    async def log_with(self, log_id: int, text: str) -> LogPage:
        """Its log, as soon as it has this."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in (page := await self.log(log_id)).text:  # noqa: ASYNC110 - a file
                await asyncio.sleep(LOOK_AGAIN_S)
        return page


@asynccontextmanager
async def executor_here(home: Path, *admins: str, **settings: Any) -> AsyncIterator[Party]:
    """An executor in this process; its handlers run in children, as ever."""
    until, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    given = {"app": "tests", "module": MODULE, "home": home, "port": 0, "token": TOKEN} | settings
    serving = asyncio.create_task(
        serve(Settings(admins=admins, **given), until, ready.set_result), name="executor"
    )
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        ready.cancel()
        serving.result()
    try:
        async with client_of(ready.result()) as party:
            yield party
    finally:
        until.set()
        await serving


@asynccontextmanager
async def client_of(ready: str) -> AsyncIterator[Party]:
    """A centre's client of the executor that said this when it was ready."""
    at = Address.parse(ready.split("executor=", 1)[1].split(maxsplit=1)[0])
    async with opened_caller(timeout_s=PATIENCE_S) as caller:
        yield Party(ExecutorClient(caller, at, token=TOKEN), at, caller)


async def until(happened: Callable[[], Any]) -> None:
    """Wait for what another process does to files."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(LOOK_AGAIN_S)


def is_alive(pid: int) -> bool:
    """A zombie that nobody has waited for is not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False
