"""Runs the centre's loops and serves HTTP calls from executors and other programs.

Place in the walk: `tidemark scheduler run`. Calls are let in by an access token; without one only
this machine is listened to. Results that come while a transaction is under way share the next one.

Invariant: an executor registers an address that may be asked (`wire.addresses`), and speaks for
itself alone when its token is its own: in registering and in reporting results. A result is stored
before its executor gets the answer that it was received; what a failed transaction held, executors
report again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from pipelines.database.clock import SharedClock, database_ms, machine_ms
from pipelines.database.database import CONNECTIONS_MAX, Database
from pipelines.scheduler.centre.calls import WiredExecutors
from pipelines.scheduler.centre.centre import DATABASE_CALLS_MAX, Centre, Doors
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.open_api import open_calls
from pipelines.scheduler.store import registry, results
from pipelines.scheduler.store.results import LOG_DAYS, Delivery, NotTheirs
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import TIMEOUT_S, opened_caller
from pipelines.scheduler.wire.messages import Answer, Registration, decode_results, refused
from pipelines.scheduler.wire.server import (
    LOOPBACK,
    Call,
    WireApplication,
    WireRequest,
    listening,
    served,
)
from pipelines.scheduler.wire.tokens import Tokens

CONTEXT_PATHS: Final = ("", "/xxl-job-admin")
"""Below which executors look for `api/...`: that of XXL-Job up to 3.3, and none."""

EXECUTOR_GROUP: Final = "EXECUTOR"

OffLoop: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs what may block, beside the loop."""
RESULTS_MAX: Final = 5_000
"""In one transaction, but for what one callback has."""

Store = Callable[[Sequence[Delivery]], Awaitable[Sequence[frozenset[int]]]]
"""Stores deliveries; returns, for each, the runs that do not belong to its sender."""


def calls_of(
    database: Database, tokens: Tokens, clock: Callable[[], int], off_loop: OffLoop
) -> dict[str, Call]:
    """What executors and programs may ask, by path. `clock` gives the moment, in ms; `off_loop`
    runs what may block, beside the loop.
    """

    async def store(deliveries: Sequence[results.Delivery]) -> list[frozenset[int]]:
        def stored() -> list[frozenset[int]]:
            return results.note_deliveries(database, deliveries, now_ms=clock())

        found: list[frozenset[int]] = await off_loop(stored)
        return found

    inbox = Inbox(store)

    async def register(request: WireRequest) -> Answer:
        registration = Registration.decode(request.body)
        if registration.group != EXECUTOR_GROUP:
            return refused("only executors register")
        if not tokens.may_speak_for(request.speaker, registration.app):
            return refused("the access token is another executor's")
        address = Address.parse(registration.address).text
        now_ms = clock()
        if tokens.has_own and await off_loop(
            partial(registry.is_of_another, database, registration.app, address, now_ms=now_ms)
        ):
            return refused("the address is another executor's")
        await off_loop(partial(registry.beat, database, registration.app, address, now_ms=now_ms))
        return Answer()

    async def remove(request: WireRequest) -> Answer:
        registration = Registration.decode(request.body)
        if not tokens.may_speak_for(request.speaker, registration.app):
            return refused("the access token is another executor's")
        await off_loop(partial(registry.leave, database, registration.app, registration.address))
        return Answer()

    async def callback(request: WireRequest) -> Answer:
        registration = [
            results.Result(one.log_id, one.code, one.message)
            for one in decode_results(request.body)
        ]
        await inbox.deliver(
            results.Delivery(registration, partial(tokens.may_speak_for, request.speaker))
        )
        return Answer()

    calls: dict[str, Call] = {
        "registry": register,
        "registryRemove": remove,
        "callback": callback,
        **open_calls(database, clock, off_loop),
    }
    return {
        f"{context}/api/{name}": call for context in CONTEXT_PATHS for name, call in calls.items()
    }


async def serve(
    database: Database,
    *,
    host: str,
    port: int,
    token: str | None,
    on_ready: Callable[[str], None],
    for_s: float = 0,
    log_days: int = LOG_DAYS,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Serve as a centre until cancelled, or for so many seconds; `on_ready` gets the address that
    it listens on. Runs are stored for `log_days`; an executor has `timeout_s` to answer a call.
    """
    clock = SharedClock(machine_ms, lambda: database_ms(database))
    holder = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
    async with AsyncExitStack() as held:
        own = held.enter_context(_threads("centre", DATABASE_CALLS_MAX))
        # Executors that storm in wait for each other, and not the centre for them.
        outside = held.enter_context(_threads("calls", CONNECTIONS_MAX - DATABASE_CALLS_MAX))
        book = TokenBook(database, token, outside, may_be_open=host in LOOPBACK)
        await outside(book.read)
        listener = listening(host, port, book.tokens)
        await own(clock.set)
        calls = calls_of(database, book.tokens, clock.now_ms, outside)
        await held.enter_async_context(served(WireApplication(calls, book.tokens), listener))
        caller = await held.enter_async_context(opened_caller(timeout_s=timeout_s))
        executors = WiredExecutors(caller, book)
        doors = Doors(executors, clock.now_ms, lambda: secrets.randbits(32), own, clock.set)
        bound_host, bound_port = listener.getsockname()[:2]
        on_ready(f"http://{bound_host}:{bound_port}/")
        try:
            async with asyncio.timeout(for_s or None), asyncio.TaskGroup() as tasks:
                tasks.create_task(book.keep_up())
                tasks.create_task(Centre(database, holder, doors, log_days=log_days).run())
        except TimeoutError:
            return


@contextmanager
def _threads(name: str, count: int) -> Iterator[OffLoop]:
    """Runs what may block in so many threads of its own."""
    with ThreadPoolExecutor(count, thread_name_prefix=name) as pool:

        async def off_loop(work: Callable[[], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(pool, work)

        yield off_loop


@dataclass(slots=True)
class _Waiting:
    delivery: Delivery
    foreign: frozenset[int] | None = None
    """None until it is stored."""


class Inbox:
    """Results that wait for the transaction under way to end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._line: deque[_Waiting] = deque()
        self._turn = asyncio.Lock()

    async def deliver(self, delivery: Delivery) -> None:
        """Have results stored. Raises NotTheirs when some are of others' runs, and as the store
        does.
        """
        mine = _Waiting(delivery)
        self._line.append(mine)
        try:
            async with self._turn:
                while mine.foreign is None:
                    await self._store_next()
        finally:
            if mine.foreign is None:
                self._line.remove(mine)
        if mine.foreign:
            raise NotTheirs(mine.foreign)

    async def _store_next(self) -> None:
        """Store the head of the line. When that fails, the line stays as it was: whoever asked gets
        the error, and the others try when their turns come.
        """
        taken: list[_Waiting] = []
        count = 0
        while self._line and count < RESULTS_MAX:
            taken.append(self._line.popleft())
            count += len(taken[-1].delivery.results)
        try:
            found = await self._store([one.delivery for one in taken])
        except BaseException:
            self._line.extendleft(reversed(taken))
            raise
        for one, foreign in zip(taken, found, strict=True):
            one.foreign = foreign
