"""Stores how each rule in force fared at its last evaluation, one row per rule.

Place in the walk: a step writes here in its own transaction; the page and the commands read, and
so does a process that begins to lead, so that it survives each restart.

Invariant: a rule that is no longer in force has no row. Absent on purpose: what the outcomes mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa

from pipelines.alerting.rule_status import JudgedRule
from pipelines.database.database import Database
from pipelines.database.tables import judged_rules

_ROWS_AT_ONCE: Final = 500
"""Of one statement: SQLite takes a bounded number of parameters."""


def record(
    connection: sa.Connection, lake: str, judged: Sequence[JudgedRule], gone: Collection[str]
) -> None:
    """Store how rules fared, and forget those that are gone, in an open transaction."""
    names = [*gone, *(one.rule for one in judged)]
    for start in range(0, len(names), _ROWS_AT_ONCE):
        some = names[start : start + _ROWS_AT_ONCE]
        is_one = (judged_rules.c.lake == lake) & judged_rules.c.rule.in_(some)
        connection.execute(sa.delete(judged_rules).where(is_one))
    rows = [
        {"lake": lake, **{name: getattr(one, name) for name in JudgedRule.__slots__}}
        for one in judged
    ]
    if rows:
        connection.execute(sa.insert(judged_rules), rows)


def judged_of(
    database: Database, lake: str, rules: Collection[str] | None = None
) -> dict[str, JudgedRule]:
    """By name, how the rules of a lake fared: these, or all that were ever judged."""
    query = sa.select(judged_rules).where(judged_rules.c.lake == lake)
    if rules is not None:
        query = query.where(judged_rules.c.rule.in_(rules))
    with database.reading() as connection:
        rows = connection.execute(query.order_by(judged_rules.c.rule)).all()
    names: Sequence[str] = JudgedRule.__slots__
    return {row.rule: JudgedRule(**{name: getattr(row, name) for name in names}) for row in rows}
