"""Checks every declared table's schema, non-null columns, unique keys and freshness.

Invariant: the list is made from the declarations of bronze and gold, so that a new table is checked
from its first row. Absent on purpose: names of tables, but for those that repeat each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deltalake import Schema

from engine.telemetry.tables import TABLES, Column, ColumnType
from expectations.check import Check, Failure, Finding, RowLaw, Severity
from expectations.suites.rows import ROW_LAWS
from pipelines.base.settings import LOOK_BACK_US, SECOND_US
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import COMPUTED_TABLES

LATE_US: Final = 60 * SECOND_US
"""Gold that is further behind the shipped horizon is late."""

SHIPMENTS: Final = "shipments"
"""Its rows bear the moment of shipping, which comes behind all that is shipped."""
TOLD_AGAIN: Final = frozenset(
    {
        "group_watermarks",
        "queue_watermarks",
        "lifecycle",
        "shipments",
        "consumer_lag",
        "group_state",
    }
)
"""Tables that get a row at least each ten minutes; in the others only when it happens.
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """One table's checks that need no word of its own, and its laws by row."""

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    moment: str
    """The column that says when a row was."""
    gold: GoldTable | None
    """None: a bronze table."""

    @property
    def schema(self) -> Check:
        """Are its columns the declared ones?"""
        return Check(f"{self.table}_schema", self.table, Severity.CRITICAL)

    @property
    def sound(self) -> Check:
        """Of facts: is there no number that nothing can be, no list with such an entry, and no word
        that is not known? The pipeline sets such rows aside.
        """
        return Check(f"{self.table}_sound", self.table, Severity.CRITICAL)

    @property
    def unique(self) -> Check:
        """Is no key there twice?"""
        return Check(f"{self.table}_keys_unique", self.table, Severity.CRITICAL)

    @property
    def fresh(self) -> Check:
        """Does it keep up?"""
        return Check(f"{self.table}_fresh", self.table, Severity.WARNING)

    @property
    def laws(self) -> tuple[RowLaw, ...]:
        """Of its rows; first that what is never unknown is not."""
        never_null = [column.name for column in self.columns if not column.nullable]
        required = [name for name in never_null if name not in _folders(self.columns)]
        filled = RowLaw(
            Check(f"{self.table}_filled", self.table, Severity.CRITICAL),
            " OR ".join(f"`{name}` IS NULL" for name in required),
        )
        own = tuple(law for law in ROW_LAWS if law.check.table == self.table)
        return (filled, *own)

    @property
    def row_checks(self) -> tuple[Check, ...]:
        """The checks that executors count for it."""
        of_facts = (self.sound,) if self.gold is None else ()
        return (*(law.check for law in self.laws), *of_facts, self.unique)

    def judge_schema(self, lake: Lake) -> Finding:
        """Hold the table's columns against the declared ones; others may be there: a newer version
        has opened this lake before."""
        address = lake.gold(self.table) if self.gold is not None else lake.bronze(self.table)
        if not lake.exists(address):
            return Finding(self.schema, 0)
        there = {field.name: field for field in lake.table(address).schema().fields}
        failures = []
        for field in Schema.from_arrow(arrow_schema(self.columns)).fields:
            found = there.get(field.name)
            if found is None and not field.nullable:
                failures.append(Failure(field.name, f"missing, declared as {field.type}"))
            elif found is not None and found.type != field.type:
                failures.append(Failure(field.name, f"{found.type}, declared as {field.type}"))
        return Finding(
            self.schema,
            len(self.columns),
            len(failures),
            tuple(failures),
            f"{len(self.columns)} columns as declared",
        )

    def judge_fresh(
        self, *, newest_us: int | None, judged_to_us: int, horizon_us: int, rows: int
    ) -> Finding:
        """How far the table is behind: what was judged of it behind what was shipped, and, where
        rows come again and again, its newest row behind what was judged.
        """
        failures = []
        behind_us = horizon_us - judged_to_us
        if self.gold is not None and behind_us > LATE_US:
            failures.append(
                Failure(self.table, f"judged {behind_us // SECOND_US} s behind what is shipped")
            )
        if self.table in TOLD_AGAIN and newest_us is not None:
            old_us = judged_to_us - newest_us
            if old_us > LOOK_BACK_US + LATE_US:
                failures.append(
                    Failure(self.table, f"its newest row is {old_us // SECOND_US} s old")
                )
        newest_may_us = judged_to_us + (LATE_US if self.table == SHIPMENTS else SECOND_US)
        if newest_us is not None and newest_us > newest_may_us:
            ahead_us = newest_us - judged_to_us
            failures.append(
                Failure(self.table, f"speaks of {ahead_us // SECOND_US} s after what was judged")
            )
        if not rows and not (self.table in TOLD_AGAIN and newest_us is not None):
            return Finding(self.fresh, 0)
        summary = "keeps up with what is shipped"
        return Finding(self.fresh, max(rows, 1), len(failures), tuple(failures), summary)


def _folders(columns: tuple[Column, ...]) -> frozenset[str]:
    """Columns that only name a folder: they are not in the files."""
    return frozenset(column.name for column in columns if column.type is ColumnType.DATE)


def suites() -> tuple[Suite, ...]:
    """One for every declared bronze and gold table."""
    bronze = [
        Suite(table.name, table.columns, ("emitter", "seq"), "event_time", None) for table in TABLES
    ]
    gold = [
        Suite(table.name, table.columns, table.key, "observed_at", table)
        for table in COMPUTED_TABLES
    ]
    return (*bronze, *gold)
