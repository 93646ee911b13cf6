"""A consumer process that issues a card per payment under a guard, and dies where it is to.

    python -m tests.integration.client.guarded_consumer NAME_SERVER GROUP STORE WHERE DIES

It reads the topic that is called like its group. STORE is sqlite, postgresql or redis, WHERE the
file, the connection or the port; DIES is `before-commit`, `after-commit` or `never`. It prints one
line for each message it has finished.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any

import psycopg
import redis

from engine.client import ConsumeContext
from engine.client.consuming.idempotence import (
    Guard,
    RedisGuard,
    SqlGuard,
    once_per_key,
)
from engine.client.consuming.listeners import ListenerAnswer
from engine.client.sql import SqlDialect
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import consuming

LEASE_MS = 1500


def guard_of(store: str, where: str) -> tuple[Guard, str]:
    """The guard, and how its statements write a parameter."""
    if store == "redis":
        return RedisGuard(redis.Redis(port=int(where)), "cards", lease_ms=LEASE_MS), ""
    if store == "sqlite":
        guard = SqlGuard(lambda: sqlite3.connect(where), "cards", SqlDialect.SQLITE)
    else:
        guard = SqlGuard(lambda: psycopg.connect(where), "cards", SqlDialect.POSTGRESQL)
    guard.prepare()
    return guard, "?" if store == "sqlite" else "%s"


def die() -> None:
    """As `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(name_server: str, group: str, store: str, where: str, dies: str) -> None:
    """Consume until somebody ends the process."""
    guard, place = guard_of(store, where)
    runtime = system_runtime()

    def issue_card(message: MessageExt, handle: Any) -> None:
        if store == "redis":
            handle.rpush("cards", message.keys or "")
        else:
            handle.execute(f"INSERT INTO cards (payment_id) VALUES ({place})", (message.keys,))
        if dies == "before-commit":
            die()

    inner = once_per_key(runtime, guard, lambda message: message.keys, issue_card)

    async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
        answer = await inner(messages, context)  # type: ignore[misc]
        if dies == "after-commit":
            die()
        for message in messages:
            sys.stdout.write(f"{message.keys}\n")
        sys.stdout.flush()
        context.delay_level_when_next_consume = 1
        return answer

    async with consuming(name_server, group, {group: listen}):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:6]))
