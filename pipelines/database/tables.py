"""Defines the current version's database tables, which the migrations create.

Every row that belongs to a lake says to which. Moments are µs since 1970, UTC. Texts that others
chose are JSON with escapes (`Escaped`): PostgreSQL refuses NUL in a text, and no encoding has
lone surrogates. What is asked for by SQL has a column; the rest lies whole in `body`.
"""

from __future__ import annotations

import json
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class Kept(StrEnum):
    """Where a notice stands."""

    WAITING = "WAITING"
    SENDING = "SENDING"
    """A sender has it; if its claim is over, nobody knows what came of it, and it is due again."""
    DELIVERED = "DELIVERED"
    REPLACED = "REPLACED"
    """A newer one of its group reports what it would have reported."""
    GIVEN_UP = "GIVEN_UP"


class Ended(StrEnum):
    """Where an operation stands."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    """Its time is over, and nobody said how it ended."""
    LOST = "LOST"
    """The process that kept it is gone, and did not say how it ended: part of it may be done."""


class Escaped(TypeDecorator[str]):
    """A text of somebody else's, as a JSON string in ASCII. What other hands have written into the
    column as it is, is read as it is: one such row would else hide all that are read with it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To the database."""
        del dialect
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """From the database."""
        del dialect
        try:
            return None if value is None else str(json.loads(value))
        except (ValueError, TypeError):
            return str(value)


metadata = MetaData()

leads = Table(
    "leads",
    metadata,
    Column("role", String(512), primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("holder", Escaped, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)
"""Leaders, a row a role. The token grows with each change and fences off earlier ones."""

cursors = Table(
    "cursors",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("run", String(128), nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("clock", Text, nullable=False),
    Column("taken_us", BigInteger, nullable=False),
)
"""Up to which cycle of a lake's gold everything was decided."""

alerts = Table(
    "alerts",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("fingerprint", String(64), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("resolved_at_us", BigInteger),
    Column("body", Text, nullable=False),
    Index("alerts_by_state", "lake", "state", "resolved_at_us"),
)

alert_groups = Table(
    "alert_groups",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("receiver", String(128), primary_key=True),
    Column("group_id", String(64), primary_key=True),
    Column("group_key", Escaped, nullable=False),
    Column("state", Text, nullable=False),
)
"""What grouping remembers; its state is opaque JSON. `group_id` is a digest of the key."""

silences = Table(
    "silences",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("silence_id", String(64), primary_key=True),
    Column("author", Escaped, nullable=False),
    Column("comment", Escaped, nullable=False),
    Column("from_us", BigInteger, nullable=False),
    Column("to_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expired_us", BigInteger),
    Column("body", Text, nullable=False),
    Index("silences_by_end", "lake", "to_us"),
)
"""`body` is opaque JSON: matchers, recurrence. `expired_us`: ended by hand."""

acks = Table(
    "acks",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("fingerprint", String(64), primary_key=True),
    Column("active_at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("author", Escaped, nullable=False),
    Column("comment", Escaped, nullable=False),
    Column("acked_us", BigInteger, nullable=False),
)
"""Somebody has seen the alert that began then: the next one of that name is another."""

judged_rules = Table(
    "judged_rules",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("rule", String(128), primary_key=True),
    Column("judged_us", BigInteger, nullable=False),
    Column("data_us", BigInteger),
    Column("outcome", String(16), nullable=False),
    Column("matched", BigInteger),
    Column("reason", Escaped, nullable=False),
    Column("sound_us", BigInteger),
)
"""How each rule in force fared when it was judged last."""

histories = Table(
    "histories",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("history", String(64), nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("carried_seq", BigInteger, nullable=False),
)
"""How many changes of a lake's alerts there were, and up to which one they are in the lake. A
transaction that writes changes holds this row, so that their numbers have no gap. `history` names
this count of them: a database that was lost, or put back from a copy, begins another one."""

changes = Table(
    "changes",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
"""Changes of alerts that are not yet known to be in the lake."""

operations = Table(
    "operations",
    metadata,
    Column("operation_id", String(64), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("result", Escaped),
    Column("command", Escaped),
    Column("author", Escaped),
    Column("host", String(255)),
    Column("pid", Integer),
    Column("process", String(64)),
    Column("seen_us", BigInteger),
    Column("said", Escaped),
    Index("operations_by_state", "state", "ended_us"),
)
"""`command`: a JSON list of words. `host`, `pid`, `process`: who keeps it, and as which process of
that number. `seen_us`: when that said last that it is there; NULL of one that no process keeps."""

notices = Table(
    "notices",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("lake", String(512), nullable=False),
    Column("notice_id", String(128), nullable=False),
    Column("receiver", String(128), nullable=False),
    Column("group_id", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("claim", String(64)),
    Column("last_error", Escaped),
    Column("body", Text, nullable=False),
    UniqueConstraint("lake", "notice_id", name="one_of_each_notice"),
    Index("notices_by_receiver", "lake", "receiver", "state", "seq"),
    Index("notices_by_group", "lake", "receiver", "group_id", "state"),
    Index("notices_by_end", "lake", "state", "ended_us"),
)
"""The outbox: what has to be reported, in this order to each receiver and group."""

receivers = Table(
    "receivers",
    metadata,
    Column("lake", String(512), primary_key=True),
    Column("receiver", String(128), primary_key=True),
    Column("claim", String(64)),
    Column("claimed_until_us", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("rest_until_us", BigInteger, nullable=False),
    Column("last_error", Escaped),
)
"""How a receiver is doing: who sends to it now, and until when it is left alone after failing."""
