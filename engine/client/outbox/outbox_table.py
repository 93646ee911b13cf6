"""Outbox table that stores messages in a business transaction for a job to send later.

Place in the walk: before the producer. Work that is committed and a message that is sent lie in two
places, and a process that dies between them has done one without the other. So the message is a row
beside the work, and a job sends what the table has (`sending`):

    begin → the work → write the row → commit          the business, in one transaction
    claim the row → send → mark it as sent             the job, as often as it takes

    WAITING ──sent──▶ SENT ──kept a while──▶ gone
       │ ▲
       │ └──again── POISON ──dropped──▶ DROPPED        by a person
       └─refused────▲

A sender may die between sending and marking: the row is sent again, with the same KEYS (the
business key, by which consumers know copies) and the same UNIQ_KEY (by which a topic made with
`+message.deduplication=true` stores it once).

Order: rows of one topic and business key are sent in the order of their numbers, to one queue,
each after the one before it was marked: a second copy of a row comes before the first copy of the
next. A row that waits or is poison holds those of its key behind it, and no others. Transactions
that write for one key at the same time have no order that anybody could keep.

Invariant: a row that was committed stays until it is stored by a broker or a person drops it. A row
is held by one sender at a time, as long as that one keeps within OUTBOX_LEASE_MS. Absent on
purpose: drivers, and the business's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from engine.client.sql import SqlConnection, SqlDialect
from engine.foundation.errors import ConfigError, LocalProtocolError, RequestRefused
from engine.foundation.limits import OUTBOX_LEASE_MS
from engine.protocol.copy_room import fits_with_copies, properties_bytes, without_room
from engine.protocol.message import Message
from engine.protocol.message_ids import UniqueIds
from engine.protocol.names import FORBIDDEN_TO_CLIENTS, check_topic
from engine.protocol.properties import (
    PROPERTY_KEYS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from engine.runtime import Runtime

ERROR_CHARS_MAX: Final = 500
"""What is kept of why a row was not sent."""


class RowState(StrEnum):
    """What has become of a row."""

    WAITING = "WAITING"
    SENT = "SENT"
    POISON = "POISON"
    """Refused for what it is. Nobody sends it until a person has said so."""
    DROPPED = "DROPPED"
    """A person has said that it is not to be sent."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One row, as its sender claimed it."""

    row_id: int
    message: Message
    failures: int
    """Sends that were known to fail."""
    refusals: int
    """Those of them that spoke of the message itself."""

    @property
    def business_key(self) -> str:
        """What it is about: the same in every copy."""
        return str(self.message.keys)


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What came of one row: SENT, POISON, or WAITING until `due_ms`."""

    row_id: int
    state: RowState
    due_ms: int
    failures: int = 0
    refusals: int = 0
    message: str = ""
    """Of a row that was sent, how safely it is stored and where; of another one, why not."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A row that is poison."""

    row_id: int
    topic: str
    business_key: str
    error: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What the table holds that was not sent."""

    waiting: int
    poison: int
    oldest_written_ms: int | None
    """Of the rows that wait; None: none does."""


def check_sendable(message: Message) -> None:
    """Raise ConfigError for a message that no broker stores for consumers, now or later."""
    try:
        check_topic(message.topic)
        encode_properties(message.properties)
    except RequestRefused as refused:
        raise ConfigError("topic", message.topic, refused.remark) from refused
    except LocalProtocolError as error:
        raise ConfigError("properties", len(message.properties), str(error)) from error
    if message.topic in FORBIDDEN_TO_CLIENTS:
        raise ConfigError("topic", message.topic, "a topic of your own: brokers alone write this")
    prepared = message.properties.get(PROPERTY_TRANSACTION_PREPARED, "")
    if prepared.lower() == "true":
        raise ConfigError(
            PROPERTY_TRANSACTION_PREPARED,
            prepared,
            "no such property: it makes a half message, which nobody would commit; the outbox is "
            "the transaction",
        )


class OutboxTable:
    """The rows, in the business's database."""

    def __init__(
        self, runtime: Runtime, connect: Callable[[], SqlConnection], dialect: SqlDialect
    ) -> None:
        """`connect` opens a connection that is closed after each use; with a pool, give
        connections whose `close` returns them to it."""
        self._clock = runtime.clock
        entropy = runtime.entropy
        self._ids = UniqueIds("127.0.0.1", entropy.process_id(), entropy.below(1 << 32))
        self._connect = connect
        self._dialect = dialect

    def prepare(self) -> None:
        """Make the table when it is missing; once, before the first row."""
        number = (
            "INTEGER PRIMARY KEY AUTOINCREMENT"
            if self._dialect is SqlDialect.SQLITE
            else "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        )
        self._in_transaction(
            f"CREATE TABLE IF NOT EXISTS outbox_messages (row_id {number}, "
            "topic TEXT NOT NULL, business_key TEXT NOT NULL, properties TEXT NOT NULL, "
            f"flag INTEGER NOT NULL, body {self._dialect.bytes_type} NOT NULL, "
            "state TEXT NOT NULL, written_ms BIGINT NOT NULL, due_ms BIGINT NOT NULL, "
            "claim TEXT NOT NULL, claims INTEGER NOT NULL, failures INTEGER NOT NULL, "
            "refusals INTEGER NOT NULL, told TEXT NOT NULL, ended_ms BIGINT)",
            "CREATE INDEX IF NOT EXISTS outbox_by_key ON outbox_messages "
            "(topic, business_key, row_id) WHERE state IN ('WAITING', 'POISON')",
            "CREATE INDEX IF NOT EXISTS outbox_due ON outbox_messages (row_id) "
            "WHERE state = 'WAITING'",
            "CREATE INDEX IF NOT EXISTS outbox_ended ON outbox_messages (ended_ms) "
            "WHERE state IN ('SENT', 'DROPPED')",
        )

    def write(self, cursor: Any, message: Message) -> None:
        """Put a message into the outbox, by a cursor of the business's open transaction: it will
        be sent if that is committed, and never was there if it is not.

        Raises ConfigError for a message without KEYS, which are its business key, for one that
        every broker refuses for its topic or its properties, for the beginning of a transaction,
        and for a cursor that commits each statement by itself.
        """
        if not message.keys:
            raise ConfigError(
                "keys", message.keys, "a business key: consumers recognise copies by it"
            )
        check_sendable(message)
        now_ms = self._clock.now_ms()
        properties = {PROPERTY_UNIQ_KEY: self._ids.next(now_ms)} | message.properties
        length = properties_bytes(properties)
        if not fits_with_copies(length, properties):
            raise ConfigError("properties", f"{length} bytes", without_room(length, properties))
        cursor.execute(
            self._sql(
                "INSERT INTO outbox_messages (topic, business_key, properties, flag, body, state, "
                "written_ms, due_ms, claim, claims, failures, refusals, told) "
                "VALUES (?, ?, ?, ?, ?, 'WAITING', ?, ?, '', 0, 0, 0, '')"
            ),
            (
                *(message.topic, properties[PROPERTY_KEYS], json.dumps(properties)),
                *(message.flag, bytes(message.body), now_ms, now_ms),
            ),
        )
        if not self._is_in_transaction(cursor):
            raise ConfigError("autocommit", True, "off: work and message are committed together")

    def claim(self, holder: str, *, rows_max: int) -> list[OutboxRow]:
        """Take rows that are due, the first of each key, for OUTBOX_LEASE_MS; `holder` is a word
        that nobody else uses, and that was not used before."""
        now_ms = self._clock.now_ms()
        with self._transaction() as cursor:
            cursor.execute(
                self._sql(
                    "SELECT row_id, due_ms, topic, properties, flag, body, failures, refusals "
                    "FROM outbox_messages AS due WHERE state = 'WAITING' AND due_ms <= ? "
                    "AND NOT EXISTS (SELECT 1 FROM outbox_messages AS earlier "
                    "WHERE earlier.topic = due.topic AND earlier.business_key = due.business_key "
                    "AND earlier.state IN ('WAITING', 'POISON') AND earlier.row_id < due.row_id) "
                    "ORDER BY row_id LIMIT ?"
                ),
                (now_ms, rows_max),
            )
            claimed = []
            for row_id, due_ms, topic, properties, flag, body, failures, refusals in list(
                cursor.fetchall()
            ):
                cursor.execute(
                    self._sql(
                        "UPDATE outbox_messages SET claim = ?, claims = claims + 1, due_ms = ? "
                        "WHERE row_id = ? AND state = 'WAITING' AND due_ms = ?"
                    ),
                    (holder, now_ms + OUTBOX_LEASE_MS, row_id, due_ms),
                )
                if cursor.rowcount == 1:  # Else another sender was quicker.
                    message = Message(topic, bytes(body), json.loads(properties), flag)
                    claimed.append(OutboxRow(row_id, message, failures, refusals))
        return claimed

    def note(self, holder: str, outcomes: Iterable[RowOutcome]) -> int:
        """Write down what came of claimed rows; of how many. Of a row whose claim has ended nothing
        is said: whoever has it now says it."""
        now_ms, noted = self._clock.now_ms(), 0
        with self._transaction() as cursor:
            for outcome in outcomes:
                is_ended = outcome.state is RowState.SENT
                cursor.execute(
                    self._sql(
                        "UPDATE outbox_messages SET state = ?, due_ms = ?, failures = ?, "
                        "refusals = ?, told = ?, ended_ms = ?, claim = '' "
                        "WHERE row_id = ? AND claim = ? AND state = 'WAITING'"
                    ),
                    (
                        *(outcome.state.value, outcome.due_ms, outcome.failures),
                        *(outcome.refusals, outcome.message[:ERROR_CHARS_MAX]),
                        *(now_ms if is_ended else None, outcome.row_id, holder),
                    ),
                )
                noted += int(cursor.rowcount)
        return noted

    def standing(self) -> Standing:
        """How much was not sent."""
        counted = self._rows(
            "SELECT state, count(*), min(written_ms) FROM outbox_messages "
            "WHERE state IN ('WAITING', 'POISON') GROUP BY state"
        )
        found = {state: (count, oldest) for state, count, oldest in counted}
        waiting, oldest_ms = found.get(RowState.WAITING.value, (0, None))
        return Standing(waiting, found.get(RowState.POISON.value, (0, None))[0], oldest_ms)

    def poison(self, *, rows_max: int = 100) -> list[HeldRow]:
        """The first rows that were refused for what they are."""
        rows = self._rows(
            "SELECT row_id, topic, business_key, told FROM outbox_messages "
            "WHERE state = 'POISON' ORDER BY row_id LIMIT ?",
            (rows_max,),
        )
        return [HeldRow(*row) for row in rows]

    def send_again(self, row_id: int) -> bool:
        """Have a poison row tried again, what it was refused for being mended. Was it poison?"""
        return self._decide(row_id, "state = 'WAITING', due_ms = ?, refusals = 0")

    def drop(self, row_id: int) -> bool:
        """A poison row is not to be sent; those behind it go on. Was it poison?"""
        return self._decide(row_id, "state = 'DROPPED', ended_ms = ?")

    def forget_before(self, ended_ms: int) -> int:
        """Delete rows that were sent or dropped before this time; how many."""
        return self._in_transaction(
            "DELETE FROM outbox_messages WHERE state IN ('SENT', 'DROPPED') AND ended_ms < ?",
            given=(ended_ms,),
        )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor of a transaction of our own, which is committed at the end."""
        connection = self._connect()
        try:
            yield connection.cursor()
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()

    def _is_in_transaction(self, cursor: Any) -> bool:
        if self._dialect is SqlDialect.SQLITE:
            return bool(cursor.connection.in_transaction)
        return bool(cursor.connection.info.transaction_status)  # 0 is idle.

    def _decide(self, row_id: int, change: str) -> bool:
        statement = f"UPDATE outbox_messages SET {change} WHERE row_id = ? AND state = 'POISON'"  # noqa: S608 - one of the two above
        return bool(self._in_transaction(statement, given=(self._clock.now_ms(), row_id)))

    def _in_transaction(self, *statements: str, given: Sequence[object] = ()) -> int:
        """Run and commit; how many rows the last one changed."""
        with self._transaction() as cursor:
            for statement in statements:
                cursor.execute(self._sql(statement), given)
            return int(cursor.rowcount)

    def _rows(self, statement: str, given: Sequence[object] = ()) -> list[Any]:
        with self._transaction() as cursor:
            cursor.execute(self._sql(statement), given)
            return list(cursor.fetchall())

    def _sql(self, statement: str) -> str:
        return statement.replace("?", self._dialect.parameter)
