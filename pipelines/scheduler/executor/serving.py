"""`tidemark executor`: runs one executor in the foreground until stopped.

Place in the walk: the entry point; it brings the party, its server, the admins and the clock
together. Three things go on beside the calls: a beat each 30 s says that the executor is there,
results are sent until an admin has them, and old logs are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.foundation.errors import MustBe, TidemarkError
from pipelines.scheduler.executor.party import Executor
from pipelines.scheduler.executor.run_files import only_one
from pipelines.scheduler.executor.worker import WorkerPool
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import AdminClient, headers_of, opened_caller
from pipelines.scheduler.wire.messages import (
    APP_NAME_RULE,
    Answer,
    Dialect,
    Registration,
    is_app_name,
)
from pipelines.scheduler.wire.server import (
    EXECUTOR_CONTENT_TYPE,
    WireApplication,
    listening,
    served,
)
from pipelines.scheduler.wire.tokens import Tokens

TOKEN_VARIABLE: Final = "TIDEMARK_JOBS_TOKEN"  # noqa: S105 - a name
BEAT_S: Final = 30.0
"""XXL-Job's; a centre takes an executor for dead after three."""
PROCESSES: Final = 32
TIDY_S: Final = 3600.0
LAST_WORDS_S: Final = 5.0
"""How long an executor that ends tries to report its results; they are on disk, too."""
ANY_HOST: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not listened on

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an executor is given at its start."""

    app: str
    """The name under which the centre knows it; several executors may share it."""
    module: str
    """The module with its handlers. No other is ever imported for a call."""
    admins: tuple[str, ...]
    """Addresses with the context path; each is tried until one accepts."""
    home: Path
    """Logs and results that are not reported yet."""
    host: str = "127.0.0.1"
    port: int = 9999
    """XXL-Job's; 0 takes a free one."""
    address: str | None = None
    """How the centre reaches it, where that is not host and port."""
    token: str | None = None
    """What the centre has to show, and is shown."""
    scripts: bool = False
    """May source that the centre keeps be run here?"""
    log_days: int = 30
    """Logs are removed after so many days; fewer than 3: never."""
    processes: int = PROCESSES
    """Runs that may be at work at once; others wait."""
    dialect: Dialect = Dialect.UP_TO_3_4
    beat_s: float = BEAT_S

    def __post_init__(self) -> None:
        if not is_app_name(self.app):
            raise MustBe("app", self.app, APP_NAME_RULE)
        if not all(part.isidentifier() for part in self.module.split(".")):
            raise MustBe("module", self.module, "a name as in `import NAME`")
        if not self.admins:
            raise MustBe("admin", "", "the address of an admin")
        if self.address is None and self.host in ANY_HOST:
            raise MustBe("address", None, f"given where the host is {self.host!r}")
        headers_of(self.token, self.app)
        if self.scripts and self.token is None:
            rule = (
                "off, or on with an access token: else whoever reaches the port may run anything. "
                f"Set {TOKEN_VARIABLE} or --token-file, to what the centre has"
            )
            raise MustBe("--scripts", True, rule)


async def serve_in_foreground(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; as `serve` raises."""
    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, until.set)
    await serve(settings, until, ready)


async def serve(settings: Settings, until: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve until the event; `ready` is called with a line when calls are answered. Raises
    ConfigError for what cannot be served.
    """
    tokens = Tokens(settings.token)
    admins = [Address.parse(text) for text in settings.admins]
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    with contextlib.ExitStack() as held:
        held.enter_context(only_one(settings.home))
        listener = held.enter_context(listening(settings.host, settings.port, tokens))
        at = settings.address or _address_of(listener.getsockname())
        registration = Registration(settings.app, Address.parse(at).text)
        pool = WorkerPool(settings.module, environment, size=settings.processes)
        executor = Executor(settings.home, pool, scripts=settings.scripts)
        names = await executor.begin()
        application = WireApplication(executor.calls(), tokens, content_type=EXECUTOR_CONTENT_TYPE)
        async with opened_caller() as caller:
            post = Post(
                executor,
                [
                    AdminClient(
                        caller,
                        admin,
                        token=settings.token,
                        app=settings.app,
                        dialect=settings.dialect,
                    )
                    for admin in admins
                ],
                registration,
            )
            async with served(application, listener):
                ready(f"ready executor={at} app={settings.app} handlers={','.join(names)}")
                await _until(until, post, settings)
                await post.remove()
                await executor.end()
            await post.last_words()


async def _until(until: asyncio.Event, post: Post, settings: Settings) -> None:
    """Beat, report and tidy until the event; a beat that is under way then is waited for."""
    beats = asyncio.create_task(post.beat(settings.beat_s, until), name="beats")
    tasks = [
        beats,
        asyncio.create_task(post.report(), name="results"),
        asyncio.create_task(post.tidy(settings.log_days), name="tidying"),
        asyncio.create_task(until.wait(), name="until"),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await beats
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Post:
    """What an executor says of itself to its admins."""

    def __init__(
        self, executor: Executor, admins: Sequence[AdminClient], registration: Registration
    ) -> None:
        self._executor = executor
        self._admins = admins
        self._registration = registration

    async def beat(self, period_s: float, until: asyncio.Event) -> None:
        """Say again and again that the executor is there, until the event. A beat that has begun is
        not left alone: an admin that reads it after the farewell would send runs for 90 s more."""
        while not until.is_set():
            await self._first(lambda admin: admin.register(self._registration), "registry")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period_s):
                    await until.wait()

    async def remove(self) -> None:
        """Say that it is no longer there."""
        await self._first(lambda admin: admin.remove(self._registration), "registryRemove")

    async def report(self) -> None:
        """Tell results as they come, again until an admin has them."""
        reports, news = self._executor.reports, self._executor.news
        while True:
            news.clear()
            if not await self._report_once():
                due_ms = reports.due_in_ms(now_ms=self._executor.ports.steady_ms())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due_ms is None else due_ms / 1000):
                        await news.wait()

    async def last_words(self) -> None:
        """Report what is left, as far as there is time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while await self._report_once():
                    pass

    async def tidy(self, retention_days: int) -> None:
        """Remove old logs, now and each hour."""
        while True:
            try:
                await asyncio.to_thread(self._executor.tidy, retention_days=retention_days)
            except OSError as error:  # Runs do not end for the logs of those before.
                _log.warning("old logs cannot be removed: %s", error)
            await asyncio.sleep(TIDY_S)

    async def _report_once(self) -> bool:
        """Tell one batch; True when an admin has it, so that the next can go at once."""
        reports = self._executor.reports
        batch = reports.take(now_ms=self._executor.ports.steady_ms())
        if not batch:
            return False
        answer: Answer | None = None
        try:
            answer = await self._first(lambda admin: admin.report(batch), "callback")
        finally:
            if answer is None:  # Cancelled, too.
                reports.unreachable(now_ms=self._executor.ports.steady_ms())
        if answer is None:
            return False
        if answer.is_success:
            self._executor.delivered()
        else:
            reports.refused(now_ms=self._executor.ports.steady_ms())
        return answer.is_success

    async def _first(
        self, call: Callable[[AdminClient], Awaitable[Answer]], what: str
    ) -> Answer | None:
        """The answer of the first admin that accepts, else of one that refused, else None."""
        answer: Answer | None = None
        for admin in self._admins:
            try:
                answer = await call(admin)
            except TidemarkError as error:
                _log.warning("%s: %s", what, error)
                continue
            if answer.is_success:
                return answer
            _log.warning("%s is refused: %s", what, answer.message)
        return answer


def _address_of(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
