"""Bounds the duration of PostgreSQL queries, even when the server stops responding.

Place in the walk: `database` loads it when an address names a PostgreSQL. A server bounds its own
work (`statement_timeout`); one whose machine stands still says nothing, so a query is given up
after a silence and its connection closed. The kernel's bounds (SOCKET_BOUNDS) find a machine that
is gone earlier. Absent on purpose: asking again; whether the query was done there is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, Final, TypeVar, cast

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from sqlalchemy import event

PING_WAIT_S = 5.0
"""How long the first question of a transaction may go unanswered; it asks for nothing else."""

SOCKET_BOUNDS: Final[Mapping[str, int]] = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""libpq's names; in seconds, and the last one in milliseconds."""

_NOTHING_CAME: Final = 0
Value = TypeVar("Value")


def bound(engine: sa.Engine, *, silence_s: float) -> None:
    """Let no question over connections of this engine wait for longer than this for a byte, and no
    ping for longer than PING_WAIT_S. Set it before the first one connects.
    """

    def connected(
        _dialect: object, _record: object, given: list[str], named: dict[str, Any]
    ) -> Any:
        connection = _Bounded.connect(*given, **named)
        connection.silence_s = silence_s
        return connection

    event.listen(engine, "do_connect", connected)


class _Bounded(psycopg.Connection[Any]):
    """A connection that closes itself when its server is silent."""

    silence_s = float("inf")

    def wait(self, gen: PQGen[Value], *args: Any, **named: Any) -> Value:
        """As psycopg's. Raises OperationalError after a silence; the connection is closed then."""
        return super().wait(self._bounded(gen), *args, **named)

    def _bounded(self, asked: PQGen[Value]) -> PQGen[Value]:
        """psycopg says several times a second that nothing came."""
        allowed_s = PING_WAIT_S if self.autocommit else self.silence_s  # Only pings commit alone.
        ends_s = time.monotonic() + allowed_s
        steps = cast(Generator[Any, Any, Value], asked)
        try:
            wanted = next(steps)
            while True:
                came = yield wanted
                if came != _NOTHING_CAME:
                    ends_s = time.monotonic() + allowed_s
                elif time.monotonic() > ends_s:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {allowed_s:g} s")
                wanted = steps.send(came)
        except StopIteration as end:
            return cast(Value, end.value)
