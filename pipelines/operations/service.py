"""Starts, queries and stops operations for the command line and the web pages.

Place in the walk: between those and the store. Who asks on the machine of an operation's process
sees whether that is still there; from elsewhere only its silence shows it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

from engine.foundation.errors import ConfigError, RuleBroken
from pipelines.base.time_units import moment_at
from pipelines.database import operations
from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.database.operations import Operation
from pipelines.database.tables import Ended
from pipelines.operations.keeper import DATABASE, identity
from pipelines.operations.kinds import kind_of

GONE: Final = "the process that kept it is gone: part of it may be done"


def begin(
    database: Database,
    command: Sequence[str],
    *,
    operation_id: str | None,
    hours: int,
    author: str,
    address: str | None,
) -> str:
    """Begin a command in a process of its own; its id. The same id with the same command is the
    same operation, however often it is asked for. Raises ConfigError.
    """
    kind = kind_of(command)
    now_us = database_ms(database) * 1000
    there = None if operation_id is None else found(database, operation_id)
    if there is not None and there.command == tuple(command):
        return there.operation_id
    made_id = operation_id or f"{kind}-{secrets.token_hex(6)}"
    expires_us = now_us + hours * 3_600_000_000
    operations.begin(
        database,
        made_id,
        kind,
        now_us=now_us,
        expires_us=expires_us,
        command=command,
        author=author,
    )
    try:
        launch(made_id, address)
    except OSError as error:
        result = json.dumps({"error": f"it could not be begun: {error}", "lines": []})
        operations.end(database, made_id, Ended.FAILED, result=result, now_us=now_us)
    return made_id


def launch(operation_id: str, address: str | None) -> None:
    """Begin the process that keeps it; raises OSError."""
    # Not by Popen, which wants to see the end of what it began: nobody here waits for that.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "pipelines.operations.keeper", operation_id],
        os.environ | {DATABASE: address or ""},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def found(database: Database, operation_id: str, *, now_us: int | None = None) -> Operation | None:
    """How it stands; None when it is unknown, or forgotten. `now_us`: by the database's clock,
    which is asked when it is not given.
    """
    now_us = now_us or database_ms(database) * 1000
    one = operations.operation(database, operation_id, now_us=now_us)
    return None if one is None else _looked_at(database, one, now_us)


def listed(database: Database, *, now_us: int | None = None) -> list[Operation]:
    """The newest ones."""
    now_us = now_us or database_ms(database) * 1000
    there = operations.newest(database, now_us=now_us)
    return [_looked_at(database, one, now_us) for one in there]


def stop(database: Database, operation_id: str) -> Operation:
    """Have its process end the command and say so. Raises ConfigError where that cannot be."""
    one = found(database, operation_id)
    if one is None:
        raise RuleBroken("operation", operation_id, f"there is no operation {operation_id!r}")
    if one.state is Ended.RUNNING:
        ask_to_end(one)
    return one


def ask_to_end(one: Operation) -> None:
    """Ask its process; raises ConfigError for one of another machine."""
    if one.pid is None or one.host != socket.gethostname():
        where = one.host or "nowhere yet"
        allowed = f"one of this machine; it is kept at {where}"
        raise ConfigError("operation", one.operation_id, allowed)
    if one.process is None or identity(one.pid) != one.process:
        raise ConfigError("operation", one.operation_id, "one whose process is known here")
    os.kill(one.pid, signal.SIGTERM)


def _looked_at(database: Database, one: Operation, now_us: int) -> Operation:
    """LOST at once when its process was of this machine and is gone."""
    is_here = one.host == socket.gethostname() and one.pid is not None and one.process is not None
    if one.state is not Ended.RUNNING or not is_here:
        return one
    assert one.pid is not None, "seen to above"
    if identity(one.pid) == one.process:
        return one
    result = json.dumps({"error": GONE, "lines": [one.said] if one.said else []})
    operations.lose(database, one, result=result, now_us=now_us)
    # It may have said how it ended before it went: what is stored counts.
    return operations.operation(database, one.operation_id, now_us=now_us) or one


def operation_json(one: Operation) -> dict[str, Any]:
    """An operation as JSON has it."""
    return {
        "operation_id": one.operation_id,
        "kind": one.kind,
        "state": one.state.value,
        "command": list(one.command),
        "author": one.author,
        "created": moment_at(one.created_us).isoformat(),
        "expires": moment_at(one.expires_us).isoformat(),
        "ended": None if one.ended_us is None else moment_at(one.ended_us).isoformat(),
        "said": one.said,
        "result": _result(one.result),
    }


def _result(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
