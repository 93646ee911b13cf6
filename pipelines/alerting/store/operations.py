"""Long actions: they answer at once with an id, and this is where their state is asked for.

Invariant: an operation ends once. One of which nobody said how it ended until its time was over has
EXPIRED, whatever became of its process; who comes later is told so. Absent on purpose: doing them.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import ConfigError
from pipelines.alerting.store.database import Database
from pipelines.alerting.store.tables import Ended, operations


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


def begin(
    database: Database, operation_id: str, kind: str, *, now_us: int, expires_us: int
) -> None:
    """Note that it runs; raises ConfigError when the id is taken."""
    assert expires_us > now_us, "an operation has time"
    try:
        with database.writing() as connection:
            connection.execute(
                sa.insert(operations).values(
                    operation_id=operation_id,
                    kind=kind,
                    state=Ended.RUNNING.value,
                    created_us=now_us,
                    expires_us=expires_us,
                )
            )
    except IntegrityError as error:
        raise ConfigError("id", operation_id, "one that no operation has yet") from error


def end(database: Database, operation_id: str, state: Ended, *, result: str, now_us: int) -> bool:
    """Say how it ended, DONE or FAILED; False when it is over already, or unknown."""
    assert state in {Ended.DONE, Ended.FAILED}, "others are not said"
    with database.writing() as connection:
        done = connection.execute(
            sa.update(operations)
            .where(
                operations.c.operation_id == operation_id,
                operations.c.state == Ended.RUNNING.value,
                operations.c.expires_us > now_us,
            )
            .values(state=state.value, ended_us=now_us, result=result)
        )
    return done.rowcount == 1


def operation(database: Database, operation_id: str, *, now_us: int) -> Operation | None:
    """How it stands; None when it is unknown, or forgotten."""
    with database.reading() as connection:
        row = connection.execute(
            sa.select(operations).where(operations.c.operation_id == operation_id)
        ).one_or_none()
    return None if row is None else _operation(row, now_us=now_us)


def running(database: Database, kind: str, *, now_us: int) -> tuple[Operation, ...]:
    """Those of a kind that run, the oldest first."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(operations)
            .where(
                operations.c.kind == kind,
                operations.c.state == Ended.RUNNING.value,
                operations.c.expires_us > now_us,
            )
            .order_by(operations.c.created_us, operations.c.operation_id)
        ).all()
    return tuple(_operation(row, now_us=now_us) for row in rows)


def _operation(row: sa.Row[tuple[object, ...]], *, now_us: int) -> Operation:
    values = {name: getattr(row, name) for name in Operation.__slots__}
    state = Ended(row.state)
    if state is Ended.RUNNING and row.expires_us <= now_us:
        return Operation(**values | {"state": Ended.EXPIRED, "ended_us": row.expires_us})
    return Operation(**values | {"state": state})
