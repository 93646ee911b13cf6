"""Guards against repeating a message's work when the message arrives more than once.

Place in the walk: the listener step.

Whatever a broker does, a message arrives again when its acknowledgement was lost. What makes two
arrivals the same is a business key that the sender chose, such as a payment's number; the guard
notes it beside the work:

    begin → note the key → known? then nothing is left to do → work → commit → acknowledge

    SqlGuard    exactly once, for what the work writes through the cursor it is given: key and
                result commit together. Killed before the commit, neither is there; killed after
                it, the next arrival finds the key.
    RedisGuard  not exactly once; it says why, and when it is enough.

Invariant: the acknowledgement is the listener's own act, and comes after the commit. A known key
with another content is refused (KeyReused), never dropped: it is not the same message. Absent on
purpose: connections to databases, which the user opens and passes in, so that nothing is imported
here that is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerAnswer,
    MessageListener,
)
from engine.client.sql import SqlConnection, SqlDialect
from engine.foundation.errors import ClusterError, ConfigError, KeyReused
from engine.foundation.limits import GUARD_KEYS_KEPT_MS, GUARD_KEYS_PER_CLEANING
from engine.foundation.units import MINUTE_MS
from engine.protocol.message import MessageExt
from engine.runtime import Runtime

_log = logging.getLogger(__name__)


class Guard(Protocol):
    """Something that does work once per key; may block."""

    def once(self, key: str, content: bytes, work: Callable[[Any], object], *, now_ms: int) -> bool:
        """Do `work` unless it was done for `key`; was it done now?

        Raises KeyReused when the key was used for another content, and whatever `work` raises.
        """
        ...


class SqlGuard:
    """Keys and results in one database; exactly once.

    `connect` opens a connection that this guard closes after each message; with a pool, give
    connections whose `close` returns them to it. `scope` keeps the keys of one kind of work
    (usually the consumer group) apart from others'. Keys are kept GUARD_KEYS_KEPT_MS: a message
    that comes again later than that is consumed again.
    """

    def __init__(
        self, connect: Callable[[], SqlConnection], scope: str, dialect: SqlDialect
    ) -> None:
        if not scope:
            raise ConfigError("scope", scope, "a name for this kind of work, such as the group's")
        self._connect = connect
        self._scope = scope
        self._dialect = dialect
        self._noted_count = 0

    def prepare(self) -> None:
        """Make the table of keys when it is missing; once, before the first message."""
        connection = self._connect()
        try:
            cursor = connection.cursor()
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS consumed_keys ("
                "scope TEXT NOT NULL, business_key TEXT NOT NULL, "
                f"content {self._dialect.bytes_type} NOT NULL, consumed_ms BIGINT NOT NULL, "
                "PRIMARY KEY (scope, business_key))"
            )
            cursor.execute(
                "CREATE INDEX IF NOT EXISTS consumed_keys_by_age ON consumed_keys (consumed_ms)"
            )
            connection.commit()
        finally:
            connection.close()

    def once(self, key: str, content: bytes, work: Callable[[Any], object], *, now_ms: int) -> bool:
        """See `Guard.once`; `work` is given the cursor to write its result through.

        Of two that bring the same key at the same time, the second waits for the first's end.
        """
        connection = self._connect()
        try:
            cursor = connection.cursor()
            if not self._note(connection, cursor, key, content, now_ms=now_ms):
                self._check_same(cursor, key, content)
                connection.rollback()
                return False
            work(cursor)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()
        self._noted_count += 1
        if self._noted_count % GUARD_KEYS_PER_CLEANING == 0:
            self.forget_before(now_ms - GUARD_KEYS_KEPT_MS)
        return True

    def forget_before(self, consumed_ms: int) -> int:
        """Delete keys noted before this time; how many. Done by itself now and then."""
        connection = self._connect()
        try:
            cursor = connection.cursor()
            place = self._dialect.parameter
            cursor.execute(
                f"DELETE FROM consumed_keys WHERE scope = {place} AND consumed_ms < {place}",  # noqa: S608 - place is ? or %s
                (self._scope, consumed_ms),
            )
            connection.commit()
            return int(cursor.rowcount)
        finally:
            connection.close()

    def _note(
        self, connection: SqlConnection, cursor: Any, key: str, content: bytes, *, now_ms: int
    ) -> bool:
        """Write the key into the open transaction; False when it is there already."""
        place = self._dialect.parameter
        cursor.execute(
            "INSERT INTO consumed_keys (scope, business_key, content, consumed_ms) "  # noqa: S608
            f"VALUES ({place}, {place}, {place}, {place}) ON CONFLICT DO NOTHING",
            (self._scope, key, digest_of(content), now_ms),
        )
        noted = bool(cursor.rowcount == 1)
        if self._is_autocommit(connection, noted=noted):
            raise ConfigError(
                "autocommit", True, "off: key and result must be committed by one transaction"
            )
        return noted

    def _is_autocommit(self, connection: Any, *, noted: bool) -> bool:
        if self._dialect is SqlDialect.POSTGRESQL:
            return bool(connection.autocommit)
        return noted and not bool(connection.in_transaction)

    def _check_same(self, cursor: Any, key: str, content: bytes) -> None:
        place = self._dialect.parameter
        cursor.execute(
            f"SELECT content FROM consumed_keys WHERE scope = {place} AND business_key = {place}",  # noqa: S608
            (self._scope, key),
        )
        row = cursor.fetchone()
        if row is not None and bytes(row[0]) != digest_of(content):
            raise _reused(self._scope, key)


@dataclass(slots=True, eq=False)
class RedisGuard:
    """Keys in Redis, results elsewhere; NOT exactly once.

    Key and result lie in two places, so they cannot be written together:

        claim the key for `lease_ms` → work → mark the key as done

    Killed between work and mark, the work is done again when the lease has ended: at least once,
    with a window as short as the mark takes. The same happens when the work outlasts its lease,
    and when Redis forgets (a fail-over, or a crash before it wrote its file). Enough where a rare
    repetition is harmless; never where money moves.

    `client` is a `redis.Redis`; the work must end well within `lease_ms`.
    """

    client: Any
    scope: str
    _: KW_ONLY
    lease_ms: int = 5 * MINUTE_MS
    kept_ms: int = GUARD_KEYS_KEPT_MS

    def __post_init__(self) -> None:
        if not self.scope:
            raise ConfigError(
                "scope", self.scope, "a name for this kind of work, such as the group's"
            )
        for name, value in (("lease_ms", self.lease_ms), ("kept_ms", self.kept_ms)):
            if value <= 0:
                raise ConfigError(name, value, "more than 0")

    def once(self, key: str, content: bytes, work: Callable[[Any], object], *, now_ms: int) -> bool:
        """See `Guard.once`; `work` is given the Redis client.

        Raises ClusterError while another consumer holds the key: the message has to come again.
        """
        del now_ms  # Redis counts the leases.
        place, done = f"consumed:{self.scope}:{key}", f"done {digest_of(content).hex()}"
        if not self.client.set(place, "claimed", nx=True, px=self.lease_ms):
            found = self.client.get(place)
            if isinstance(found, bytes):  # Text, from a client with `decode_responses`.
                found = found.decode("ascii", "replace")
            if found == done:
                return False
            if found is not None and found.startswith("done "):
                raise _reused(self.scope, key)
            raise ClusterError(
                f"key {key!r} of {self.scope} is claimed: a consumer is at work on it, or died; "
                f"it is free again after at most {self.lease_ms} ms"
            )
        try:
            work(self.client)
        except BaseException:
            self.client.delete(place)
            raise
        self.client.set(place, done, px=self.kept_ms)
        return True


def once_per_key(
    runtime: Runtime,
    guard: Guard,
    key_of: Callable[[MessageExt], str | None],
    work: Callable[[MessageExt, Any], object],
) -> MessageListener:
    """A concurrent listener that does `work` once per business key.

    `work` gets the message and what the guard writes through (a cursor, or the Redis client). It
    runs beside the event loop and may block. A message fails when `work` raises, and when it has no
    key; those before it in its batch are acknowledged.
    """

    def consume_once(message: MessageExt) -> bool:
        key = key_of(message)
        if not key:
            raise ConfigError(
                "business key", key, f"a key for {message.message_id}: without one it is unguarded"
            )
        body = bytes(message.body)
        return guard.once(key, body, partial(work, message), now_ms=runtime.clock.now_ms())

    async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
        for position, message in enumerate(messages):
            try:
                await runtime.disk.off_loop(partial(consume_once, message))
            except Exception as error:  # The work is the user's, and may raise anything.
                if position == 0:
                    raise
                _log.warning("%s failed, it comes again: %r", message.message_id, error)
                context.ack_index = position - 1
                break
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return listen


def digest_of(content: bytes) -> bytes:
    """What is stored of a content to distinguish it from another."""
    return blake2b(content, digest_size=16).digest()


def _reused(scope: str, key: str) -> KeyReused:
    return KeyReused(
        f"key {key!r} of {scope} was consumed with another content: the sender used it for two "
        "messages; give each its own"
    )
