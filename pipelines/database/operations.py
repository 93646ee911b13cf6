"""Records long-running operations so that their state can be queried by id.

Invariant: an operation ends once. One of which nobody said how it ended until its time was over has
EXPIRED; one whose process has been silent for SILENT_US, or was found dead, is LOST; who comes
later reads whatever became of it. All readers see the same, for all go by one clock, that of the
database. Absent on purpose: doing them, and looking for processes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.database.limits import OPERATIONS_KEPT_US
from pipelines.database.tables import Ended, operations

ID_CHARS_MAX: Final = 64
RUNNING_MAX: Final = 20
"""Operations with a command, at once: each is a process, and most have a Spark."""
SHOWN_MAX: Final = 100
COMMAND_CHARS_MAX: Final = 8_000
BEAT_US: Final = 2_000_000
SILENT_US: Final = 30_000_000
"""A process that has said nothing for so long counts as gone, for good."""
SAID_CHARS_MAX: Final = 500

assert 5 * BEAT_US < SILENT_US, "a process may miss some beats"


@dataclass(frozen=True, slots=True)
class Operation:
    """A long action."""

    operation_id: str
    kind: str
    state: Ended
    created_us: int
    expires_us: int
    ended_us: int | None
    result: str | None
    """JSON of a result, or the sentence of an error."""
    command: tuple[str, ...] = ()
    """The arguments of `tidemark`; none, when no command of ours does it."""
    author: str = ""
    host: str | None = None
    pid: int | None = None
    process: str | None = None
    """As which process of that number (`processes.identity`)."""
    seen_us: int | None = None
    """When its process said last that it is there; None: no process keeps it."""
    said: str = ""
    """The last line that its command wrote."""


_COLUMNS: Final = tuple(operations.c[name] for name in Operation.__slots__)


def begin(
    database: Database,
    operation_id: str,
    kind: str,
    *,
    now_us: int,
    expires_us: int,
    command: Sequence[str] = (),
    author: str = "",
) -> None:
    """Note that it runs; of one with a command a process has SILENT_US to say that it keeps it.

    Raises ConfigError when the id is taken, and for a command when as many run as may.
    """
    assert expires_us > now_us, "an operation has time"
    if not 1 <= len(operation_id) <= ID_CHARS_MAX or not operation_id.isascii():
        raise ConfigError("id", operation_id[:ID_CHARS_MAX], f"1 to {ID_CHARS_MAX} letters")
    words = json.dumps(list(command))
    if len(words) > COMMAND_CHARS_MAX:
        raise ConfigError("command", command[0], f"at most {COMMAND_CHARS_MAX:,} characters")
    values: dict[str, Any] = {"operation_id": operation_id, "kind": kind, "created_us": now_us}
    values |= {"state": Ended.RUNNING.value, "expires_us": expires_us, "author": author}
    if command:
        values |= {"command": words, "seen_us": now_us}
    try:
        with database.writing() as connection:
            _forget(connection, now_us)
            if command and _count(connection, now_us) >= RUNNING_MAX:
                raise ConfigError("operation", kind, f"at most {RUNNING_MAX} at once: wait for one")
            connection.execute(sa.insert(operations).values(values))
    except IntegrityError as error:
        raise ConfigError("id", operation_id, "one that no operation has yet") from error


def keep(
    database: Database, operation_id: str, *, host: str, pid: int, process: str | None, now_us: int
) -> bool:
    """A process says that it is the one that keeps it; False when another does, or it is over."""
    with database.writing() as connection:
        return _updated(
            connection,
            operation_id,
            {"host": host, "pid": pid, "process": process, "seen_us": now_us},
            now_us=now_us,
            also=operations.c.pid.is_(None),
        )


def beat(database: Database, operation_id: str, *, said: str, now_us: int) -> bool:
    """Its process says that it is there, and what its command said last; False: it is over."""
    values = {"seen_us": now_us, "said": said[:SAID_CHARS_MAX]}
    with database.writing() as connection:
        return _updated(connection, operation_id, values, now_us=now_us)


def end(database: Database, operation_id: str, state: Ended, *, result: str, now_us: int) -> bool:
    """Say how it ended, DONE or FAILED; False when it is over already, or unknown."""
    assert state in {Ended.DONE, Ended.FAILED}, "others are not said"
    values = {"state": state.value, "ended_us": now_us, "result": result}
    with database.writing() as connection:
        return _updated(connection, operation_id, values, now_us=now_us)


def lose(database: Database, one: Operation, *, result: str, now_us: int) -> bool:
    """Its process was found dead; False when it is over already, or another process keeps it."""
    values = {"state": Ended.LOST.value, "ended_us": now_us, "result": result}
    is_same = operations.c.process == one.process
    with database.writing() as connection:
        return _updated(connection, one.operation_id, values, now_us=now_us, also=is_same)


def operation(database: Database, operation_id: str, *, now_us: int) -> Operation | None:
    """How it stands; None when it is unknown, or forgotten."""
    with database.reading() as connection:
        row = connection.execute(
            sa.select(*_COLUMNS).where(operations.c.operation_id == operation_id)
        ).one_or_none()
    return None if row is None else _operation(row, now_us=now_us)


def newest(database: Database, *, now_us: int) -> list[Operation]:
    """The newest ones, SHOWN_MAX at most."""
    order = (operations.c.created_us.desc(), operations.c.operation_id)
    with database.reading() as connection:
        rows = connection.execute(sa.select(*_COLUMNS).order_by(*order).limit(SHOWN_MAX)).all()
    return [_operation(row, now_us=now_us) for row in rows]


def running(database: Database, kind: str, *, now_us: int) -> tuple[Operation, ...]:
    """Those of a kind that run, the oldest first."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(*_COLUMNS)
            .where(operations.c.kind == kind, _runs(now_us))
            .order_by(operations.c.created_us, operations.c.operation_id)
        ).all()
    return tuple(_operation(row, now_us=now_us) for row in rows)


def _runs(now_us: int) -> sa.ColumnElement[bool]:
    is_heard = operations.c.seen_us.is_(None) | (operations.c.seen_us > now_us - SILENT_US)
    return (
        (operations.c.state == Ended.RUNNING.value) & (operations.c.expires_us > now_us) & is_heard
    )


def _updated(
    connection: sa.Connection,
    operation_id: str,
    values: dict[str, Any],
    *,
    now_us: int,
    also: sa.ColumnElement[bool] | None = None,
) -> bool:
    """Change one that runs; whether it did."""
    wanted = (operations.c.operation_id == operation_id) & _runs(now_us)
    if also is not None:
        wanted &= also
    return connection.execute(sa.update(operations).where(wanted).values(values)).rowcount == 1


def _count(connection: sa.Connection, now_us: int) -> int:
    counted = sa.select(sa.func.count()).where(_runs(now_us), operations.c.seen_us.is_not(None))
    return connection.scalar(counted.select_from(operations)) or 0


def _forget(connection: sa.Connection, now_us: int) -> None:
    """Those that are over for long, where no `alerts run` tidies."""
    is_old = operations.c.expires_us < now_us - OPERATIONS_KEPT_US
    connection.execute(sa.delete(operations).where(is_old))


def _operation(row: sa.Row[tuple[object, ...]], *, now_us: int) -> Operation:
    values = {name: getattr(row, name) for name in Operation.__slots__}
    words = tuple(json.loads(values["command"])) if values["command"] else ()
    values |= {"command": words, "author": values["author"] or "", "said": values["said"] or ""}
    state = Ended(values["state"])
    if state is Ended.RUNNING:
        silent_us = values["expires_us"] if row.seen_us is None else row.seen_us + SILENT_US
        over_us = min(silent_us, values["expires_us"])
        if over_us <= now_us:
            state = Ended.LOST if over_us < values["expires_us"] else Ended.EXPIRED
            values["ended_us"] = over_us
    return Operation(**values | {"state": state})
