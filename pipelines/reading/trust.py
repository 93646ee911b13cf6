"""Decides which verdicts to withhold because a critical check failed on their source rows.

Place in the walk: between the results of checks and everybody who shows a verdict; gold itself
stays a function of facts. A verdict rests on its own table and all that was read to make it, as the
marts declare, and is withheld when a check of one of these failed on rows of the last STANDS_FOR,
in which every key is emitted anew.

Invariant: pure. A failure about one emitter or group withholds verdicts of these alone, if all its
rows are known by name; else those of everybody. Of a verdict about several the named ones are left
out, and the rest is judged (`Doubts`). Absent on purpose: names of marts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import polars as pl

from engine.telemetry.tables import BY_NAME as BRONZE
from pipelines.base.settings import LOOK_BACK_US
from pipelines.base.wording import broken_text
from pipelines.marts.declared import steps
from pipelines.marts.mart import ROW_NUMBERS
from pipelines.reading.moment import cluster_of
from pipelines.sentences.checks import WITHHELD, failed, is_withheld, of_whom

STANDS_FOR: Final = timedelta(microseconds=LOOK_BACK_US)
"""So long after its rows a critical failure withholds verdicts: until every key was reported anew.
"""

EVERY_TABLE: Final = "bronze"
"""The table of checks about facts of all tables."""

OF_THE_PRESENT: Final = ("emitters_speak",)
"""Checks about what is, not about rows: only their newest run counts."""


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
        return is_withheld(self.why)

    @property
    def why(self) -> str:
        """Which check failed, when, and on what."""
        return failed(self.check, self.failed_at, self.reason)

    def place(self, *, with_emitter: bool) -> str:
        """The group or emitter whose verdicts it withholds; empty: everybody's."""
        if self.emitter is None:
            return self.group or ""
        if self.group is None:
            return f"all of {self.emitter}"
        return f"{self.group} on {self.emitter}" if with_emitter else self.group

    def rows_of(self, columns: Collection[str]) -> pl.Expr:
        """The rows that it is about, of a table with these columns: all of an emitter's where they
        name no group."""
        about = pl.lit(value=True)
        if self.emitter is not None:
            about &= pl.col("emitter").eq_missing(pl.lit(self.emitter))
        if self.group is not None and "group" in columns:
            about &= pl.col("group").eq_missing(pl.lit(self.group))
        return about

    def concerns(self, table: str, *, emitter: str | None, group: str | None) -> bool:
        """Does a verdict of that table rest on it? None: one about several."""
        if self.table not in rests_on(table):
            return False
        is_emitter = self.emitter is None or emitter is None or emitter == self.emitter
        is_group = self.group is None or group is None or group == self.group
        return is_emitter and is_group


@dataclass(frozen=True, slots=True)
class Doubts:
    """What critical failures withhold of a verdict about several."""

    whole: Withheld | None = None
    """The newest that withholds all of it; None when there is a rest that may be believed."""
    named: tuple[Withheld, ...] = ()
    """Of each emitter and group that is known by name, the newest; in the order of their names."""

    @property
    def about(self) -> str:
        """Where something is withheld: `2 groups and all groups of 1 broker`; nothing without."""
        groups = {one.group for one in self.named if one.group is not None}
        return of_whom(len(groups), sum(one.group is None for one in self.named))

    @property
    def each(self) -> list[tuple[str, Withheld]]:
        """The subject of each of the named, as it is distinguished from the others."""
        several = len({one.emitter for one in self.named}) > 1
        return [(one.place(with_emitter=several), one) for one in self.named]

    def rest_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that the verdict may rest on."""
        for one in self.named:
            rows = rows.filter(~one.rows_of(rows.columns))
        return rows


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

    def doubts(
        self,
        table: str,
        until: datetime | None,
        *,
        since: datetime | None = None,
        emitters: Collection[str] = (),
    ) -> Doubts:
        """What is withheld of a verdict about all groups of these emitters."""
        standing = self.standing(table, until, since=since)
        unnamed = [one for one in standing if one.emitter is None and one.group is None]
        places = {(one.emitter or "", one.group or ""): one for one in standing}
        hit = {emitter for emitter, group in places if emitter and not group}
        if emitters and hit.issuperset(emitters):
            unnamed = [one for one in standing if one.group is None]
        named = [
            places[emitter, group]
            for emitter, group in sorted(places)
            if (emitter or group) and not (group and emitter in hit)
        ]
        return Doubts(unnamed[-1] if unnamed else None, tuple(named))

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
            about = one.rows_of(states.columns)
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
        result["observed_value"] or "its rows were not reported",
    )
    if len(rows) < result["failed_rows"] or not rows:
        yield whole
        return
    places: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
    for row in rows:
        places.setdefault((row["about_emitter"], row["about_group"]), []).append(row)
    for emitter, group in sorted(places, key=str):
        own = places[emitter, group]
        reason = whole.reason
        if len(places) > 1:  # The whole sentence names rows of others.
            breaches = [(row["row_key"], row["detail"]) for row in own]
            reason = broken_text(len(own), result["checked_rows"], breaches)
        about = replace(whole, reason=reason, emitter=emitter, group=group)
        for since in sorted({row["since"] for row in own}, key=str):
            begin = since or whole.since
            yield replace(about, since=begin, until=max(whole.until, begin))
