"""Which verdicts may be believed: a critical check that failed withholds what rests on its rows.

Place in the walk: between the results of checks and everybody who shows a verdict: pages, `tm`,
alerts. Gold itself stays a function of facts; what is withheld is withheld where it is read.

A verdict rests on its own table and on all that was read to make it, as the marts declare. It is
withheld at a moment when a check of one of these failed on rows of data time on which the verdict
of that moment rests: those of the last STANDS_FOR, in which every key is told anew.

Invariant: pure functions over the rows of dq_results and dq_failures; nothing here reads a lake or
a clock. A failure about one emitter or group withholds verdicts of these alone, if all its rows are
known by name; else those of everybody. Absent on purpose: names of marts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import polars as pl

from engine.telemetry.tables import BY_NAME as BRONZE
from pipelines.marts.declared import steps
from pipelines.marts.mart import ROW_NUMBERS
from pipelines.moment import cluster_of
from pipelines.settings import LOOK_BACK_US
from pipelines.wording import clock

STANDS_FOR: Final = timedelta(microseconds=LOOK_BACK_US)
"""So long after its rows a critical failure withholds verdicts: until every key was told anew."""

EVERY_TABLE: Final = "bronze"
"""The table of checks about facts of all tables."""

OF_THE_PRESENT: Final = ("emitters_speak",)
"""Checks about what is, not about rows: only their newest run counts."""

WITHHELD: Final = "WITHHELD"
"""The state of a group whose verdict is withheld."""

REASON_MAX: Final = 200
"""Characters of a reason that are shown beside a verdict; the page of checks has it whole."""


@cache
def rests_on(table: str) -> frozenset[str]:
    """The tables that a verdict of a gold table rests on, itself included."""
    reads = {step.name: step.reads for step in steps()}
    found, waiting = {EVERY_TABLE}, [table]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += BRONZE if name == ROW_NUMBERS else reads.get(name, ())
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a verdict is withheld."""

    check: str
    table: str
    since: datetime
    """It failed on rows of data time after this,"""
    until: datetime
    """up to this."""
    failed_at: datetime
    """Wall clock of the run that found it."""
    reason: str
    emitter: str | None = None
    """None: verdicts about everybody."""
    group: str | None = None

    def __str__(self) -> str:
        short = self.reason if len(self.reason) <= REASON_MAX else f"{self.reason[:REASON_MAX]}…"
        failed = clock(self.failed_at, day=True)
        return f"withheld: {self.check} failed at {failed} UTC: {short}"

    def concerns(self, table: str, *, emitter: str | None, group: str | None) -> bool:
        """Does a verdict of that table rest on it? None: one about several."""
        if self.table not in rests_on(table):
            return False
        is_emitter = self.emitter is None or emitter is None or emitter == self.emitter
        is_group = self.group is None or group is None or group == self.group
        return is_emitter and is_group


@dataclass(frozen=True, slots=True)
class Trust:
    """What critical failures withhold."""

    failures: tuple[Withheld, ...] = ()

    def withheld(
        self,
        table: str,
        until: datetime | None,
        *,
        since: datetime | None = None,
        emitter: str | None = None,
        group: str | None = None,
    ) -> Withheld | None:
        """The newest failure that withholds a verdict about a moment, or about a range of them;
        None when it may be believed."""
        standing = [
            one
            for one in self.standing(table, until, since=since)
            if one.concerns(table, emitter=emitter, group=group)
        ]
        return standing[-1] if standing else None

    def standing(
        self, table: str, until: datetime | None, *, since: datetime | None = None
    ) -> list[Withheld]:
        """The failures that withhold something of a table's verdicts, the newest last."""
        if until is None:
            return []
        begin = (since if since is not None else until) - STANDS_FOR
        found = [
            one
            for one in self.failures
            if one.concerns(table, emitter=None, group=None)
            and one.since < until
            and one.until > begin
        ]
        return sorted(found, key=lambda one: (one.until, one.failed_at, one.check))

    def within(self, cluster: str) -> Trust:
        """What is withheld of verdicts about one cluster: failures about emitters of others
        withhold nothing of it."""
        return Trust(
            tuple(
                one
                for one in self.failures
                if one.emitter is None or cluster_of(one.emitter) == cluster
            )
        )

    def over_states(self, states: pl.DataFrame, until: datetime | None) -> pl.DataFrame:
        """States of groups, those that are withheld as such, with the reason."""
        for one in self.standing("group_state", until):
            about = pl.lit(value=True)
            if one.emitter is not None:
                about &= pl.col("emitter") == one.emitter
            if one.group is not None:
                about &= pl.col("group") == one.group
            states = states.with_columns(
                pl.when(about).then(pl.lit(WITHHELD)).otherwise("state").alias("state"),
                pl.when(about).then(pl.lit(str(one))).otherwise("reason").alias("reason"),
            )
        return states


def trust_of(results: pl.DataFrame, failures: pl.DataFrame) -> Trust:
    """What the results of runs withhold, with their failing rows."""
    if results.is_empty():
        return Trust()
    is_past = ~pl.col("expectation").is_in(OF_THE_PRESENT)
    is_newest = pl.col("started_at") == pl.col("started_at").max().over("expectation")
    looked = results.filter(pl.col("checked_rows") > 0).filter(is_past | is_newest)
    critical = looked.filter(~pl.col("success") & (pl.col("severity") == "CRITICAL"))
    named: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in failures.iter_rows(named=True):
        named.setdefault((row["run_id"], row["expectation"]), []).append(row)
    found: dict[Withheld, None] = {}
    for row in critical.iter_rows(named=True):
        rows = named.get((row["run_id"], row["expectation"]), [])
        found |= dict.fromkeys(_of_result(row, rows))
    return Trust(tuple(found))


def _of_result(result: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterable[Withheld]:
    """One for each emitter and group that is known by name, else one about everybody."""
    begin = result["judged_from"] or datetime.min.replace(tzinfo=result["observed_at"].tzinfo)
    whole = Withheld(
        result["expectation"],
        result["table"],
        begin,
        result["observed_at"],
        result["started_at"],
        result["observed_value"] or "its rows were not told",
    )
    about = {(row["about_emitter"], row["about_group"], row["since"]) for row in rows}
    if len(rows) < result["failed_rows"] or not rows:
        yield whole
        return
    for emitter, group, since in sorted(about, key=str):
        yield _about(whole, emitter, group, since)


def _about(
    whole: Withheld, emitter: str | None, group: str | None, since: datetime | None
) -> Withheld:
    return Withheld(
        whole.check,
        whole.table,
        since or whole.since,
        max(whole.until, since or whole.until),
        whole.failed_at,
        whole.reason,
        emitter,
        group,
    )
