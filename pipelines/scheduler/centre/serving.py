"""The process of a centre: its loops, and the three calls by which executors speak to it.

Place in the walk: `tidemark scheduler run`. Calls are let in by an access token; without one only
this machine is listened to.

Invariant: an executor registers an address that may be asked (`wire.addresses`), for itself alone
when its token is its own, and a result is stored before its executor is told that it was heard.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Final

from pipelines.alerting.store.database import Database
from pipelines.scheduler.centre.calls import WiredExecutors
from pipelines.scheduler.centre.centre import Centre, Doors
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.store import registry, results
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import opened_caller
from pipelines.scheduler.wire.messages import Answer, Registration, decode_results, refused
from pipelines.scheduler.wire.server import (
    LOOPBACK,
    Asked,
    Call,
    WireApplication,
    listening,
    served,
)
from pipelines.scheduler.wire.tokens import Tokens

CONTEXT_PATHS: Final = ("", "/xxl-job-admin")
"""Below which executors look for `api/...`: that of XXL-Job up to 3.3, and none."""

EXECUTOR_GROUP: Final = "EXECUTOR"


def calls_of(
    database: Database, tokens: Tokens, now_ms: Callable[[], int] | None = None
) -> dict[str, Call]:
    """What executors may ask, by path."""
    clock = now_ms or clock_ms

    async def register(asked: Asked) -> Answer:
        told = Registration.decode(asked.body)
        if told.group != EXECUTOR_GROUP:
            return refused("only executors register")
        if not tokens.may_speak_for(asked.speaker, told.app):
            return refused("the access token is another executor's")
        address = Address.parse(told.address).text
        if tokens.has_own and await asyncio.to_thread(
            registry.is_of_another, database, told.app, address, now_ms=clock()
        ):
            return refused("the address is another executor's")
        await asyncio.to_thread(registry.beat, database, told.app, address, now_ms=clock())
        return Answer()

    async def remove(asked: Asked) -> Answer:
        told = Registration.decode(asked.body)
        if not tokens.may_speak_for(asked.speaker, told.app):
            return refused("the access token is another executor's")
        await asyncio.to_thread(registry.leave, database, told.app, told.address)
        return Answer()

    async def callback(asked: Asked) -> Answer:
        told = [
            results.Result(one.log_id, one.code, one.message) for one in decode_results(asked.body)
        ]
        if tokens.has_own:
            apps = await asyncio.to_thread(results.apps_of, database, [one.log_id for one in told])
            told = [
                one for one in told if tokens.may_speak_for(asked.speaker, apps.get(one.log_id, ""))
            ]
        await asyncio.to_thread(results.note_results, database, told, now_ms=clock())
        return Answer()

    calls = {"registry": register, "registryRemove": remove, "callback": callback}
    return {
        f"{context}/api/{name}": call for context in CONTEXT_PATHS for name, call in calls.items()
    }


def clock_ms() -> int:
    """ms since 1970, by the clock of this machine."""
    return time.time_ns() // 1_000_000


async def serve(
    database: Database,
    *,
    host: str,
    port: int,
    token: str | None,
    on_ready: Callable[[str], None],
    for_s: float = 0,
) -> None:
    """Be a centre until cancelled, or for so many seconds; `on_ready` is told where it listens."""
    book = TokenBook(database, token, asyncio.to_thread, may_be_open=host in LOOPBACK)
    await asyncio.to_thread(book.read)
    listener = listening(host, port, book.tokens)
    application = WireApplication(calls_of(database, book.tokens), book.tokens)
    holder = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
    async with served(application, listener), opened_caller() as caller:
        doors = Doors(
            WiredExecutors(caller, book), clock_ms, lambda: secrets.randbits(32), asyncio.to_thread
        )
        bound_host, bound_port = listener.getsockname()[:2]
        on_ready(f"http://{bound_host}:{bound_port}/")
        try:
            async with asyncio.timeout(for_s or None), asyncio.TaskGroup() as tasks:
                tasks.create_task(book.keep_up())
                tasks.create_task(Centre(database, holder, doors).run())
        except TimeoutError:
            return
