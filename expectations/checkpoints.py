"""Performs a check run: selects a batch, counts violations in Spark and judges the counts.

Place in the walk: `commands` calls it again and again; `results` keeps what it finds.

Invariant: a run reads only what no run before it has read: its cost grows with what is new. What it
leaves to the next is part of what it returns, and is stored after its results. Absent on purpose:
writing of results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException

from engine.foundation.errors import LakeError
from expectations import memory as memories
from expectations.batch import ROWS_MAX, Batch, next_batch, require
from expectations.check import Finding, Outcome, Severity
from expectations.job import Job
from expectations.judging import Judge
from expectations.memory import Memory, TablePosition
from expectations.new_files import NewFiles, new_answers, new_facts, rejoin_answers, rejoin_facts
from expectations.suites import intervals, masters, queue_ends, telemetry
from expectations.suites.every_table import Suite, suites
from expectations.suites.gold_against_facts import SET_LAWS
from expectations.work import Order
from pipelines.base.time_units import moment_at
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.tail import Place
from pipelines.reading.catalogue import COMPUTED_TABLES

__all__ = ["CheckRun", "Seen", "look", "run_checks"]

OWNERS: Final = intervals.EXCLUSIVE.table


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run has counted, before it is judged."""

    batch: Batch
    findings: tuple[Finding, ...]
    """One a check."""
    versions: Mapping[str, int]
    """Delta version by table."""
    memory: Memory
    """What it leaves to the next run, once its results are kept."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """All outcomes of one run."""

    run_id: str
    started_at: datetime
    observed_at: datetime
    """Newest moment of data time the run looked at."""
    judged_from: datetime
    """Its rows are of data time after this."""
    outcomes: tuple[Outcome, ...]
    batch: Batch
    memory: Memory
    """What it leaves to the next run, once its results are kept."""

    def failed(self, at_least: Severity) -> list[Outcome]:
        """Checks that did not hold and are at least that severe."""
        order = list(Severity)
        worst = order[: order.index(at_least) + 1]
        return [
            one
            for one in self.outcomes
            if not one.success and not one.nothing_to_check and one.severity in worst
        ]


def run_checks(
    lake: Lake,
    job: Job,
    known: Memory,
    *,
    run_id: str,
    now: datetime,
    rows_max: int = ROWS_MAX,
    docs: Path | None = None,
) -> CheckRun:
    """Judge what is new behind `known`, up to a bound. `docs`: an empty folder for pages about it.

    Raises LakeError when the lake cannot be judged.
    """
    seen = look(lake, job, known, now=now, rows_max=rows_max)
    judge = Judge(docs)
    in_suites = sorted(seen.findings, key=lambda finding: finding.check.suite)
    outcomes = judge.judge(in_suites, seen.versions)
    if docs is not None:
        judge.build_docs()
    return CheckRun(
        run_id,
        now,
        moment_at(seen.batch.judged_to_us),
        moment_at(seen.batch.judged_from_us),
        tuple(outcomes),
        seen.batch,
        seen.memory,
    )


def look(lake: Lake, job: Job, known: Memory, *, now: datetime, rows_max: int = ROWS_MAX) -> Seen:
    """Count what is new behind `known`, up to a bound. Raises LakeError as `run_checks` does."""
    require(lake)
    batch = next_batch(lake, known, rows_max=rows_max)
    known = memories.begun_for(known, batch.run_id)
    look_at = _Look(lake, job, known, batch)
    findings, after = look_at.everything(now)
    return Seen(batch, tuple(findings), look_at.versions, after)


class _Look:
    """One look at the new rows of all tables."""

    def __init__(self, lake: Lake, job: Job, known: Memory, batch: Batch) -> None:
        self._lake = lake
        self._known = known
        self._batch = batch
        self._new = self._files(follows=True)
        try:
            done = job(self._order())
        except (LakeError, PySparkException):
            # Merged and vacuumed since: the rows are in the files that are there now.
            self._new = self._files(follows=False)
            try:
                done = job(self._order())
            except PySparkException as error:
                raise LakeError(_lake_error_in(error)) from error
        self._done = {one.unit: one for one in done}
        self._carried = {**known.carried}
        for one in done:
            self._carried |= one.carried
        self._shared = self._done[OWNERS].shared if OWNERS in self._done else ()
        self.versions = {name: new.seen for name, new in self._new.items() if new.seen >= 0}

    def everything(self, now: datetime) -> tuple[list[Finding], Memory]:
        """All findings, and what is remembered."""
        counted = self._counted()
        findings = [*self._found(), *telemetry.judge(self._known, self._batch, counted, now)]
        for suite in suites():
            findings += [self._schema(suite), self._freshness(suite, counted)]
        after = replace(
            self._known,
            cycle=self._batch.cycle,
            tables={suite.table: self._position(suite) for suite in suites()},
            emitters=telemetry.remembered(self._known, self._batch, counted),
            carried=self._carried,
        )
        return findings, after

    def _order(self) -> Order:
        folder = self._lake.state(memories.FOLDER)
        return Order(self._lake, self._batch, self._new, self._known.carried, folder)

    def _files(self, *, follows: bool) -> dict[str, NewFiles]:
        found = {}
        for suite in suites():
            name, position = suite.table, self._known.table(suite.table)
            found[name] = (
                new_facts(self._lake, name, position, self._batch, follows=follows)
                if suite.gold is None
                else new_answers(self._lake, suite.gold, position, self._batch, follows=follows)
            )
        return found

    def _found(self) -> list[Finding]:
        """What executors found; a check whose table has nothing new has looked at nothing."""
        by_name = {one.check.name: one for done in self._done.values() for one in done.findings}
        checks = [check for suite in suites() for check in suite.row_checks]
        checks += [law.check for law in SET_LAWS]
        checks += [intervals.well_formed(table) for table in COMPUTED_TABLES if table.revised]
        checks += [queue_ends.CHECK, masters.CHECK]
        found = [by_name.get(check.name, Finding(check, 0)) for check in checks]
        owners = Finding(
            intervals.EXCLUSIVE,
            self._rows(OWNERS),
            len(self._shared),
            self._shared,
            "no queue has two owners",
        )
        return [*found, owners]

    def _counted(self) -> telemetry.Counted:
        """What executors counted by emitter."""
        by_name: dict[str, Any] = {}
        for done in self._done.values():
            by_name |= done.numbers
        horizons = by_name.pop("horizons", {})
        return telemetry.Counted(
            **by_name, horizons_us={name: row["to_us"] for name, row in horizons.items()}
        )

    def _rows(self, table: str) -> int:
        return self._done[table].rows if table in self._done else 0

    def _schema(self, suite: Suite) -> Finding:
        """Of a table that was written since."""
        is_same = self._new[suite.table].seen == self._known.table(suite.table).seen
        return Finding(suite.schema, 0) if is_same else suite.judge_schema(self._lake)

    def _freshness(self, suite: Suite, counted: telemetry.Counted) -> Finding:
        if not self._batch.is_last:
            return Finding(suite.fresh, 0)
        return suite.judge_fresh(
            newest_us=self._newest(suite.table),
            judged_to_us=self._batch.judged_to_us,
            horizon_us=max(counted.horizons_us.values(), default=self._batch.judged_to_us),
            rows=self._rows(suite.table),
        )

    def _newest(self, table: str) -> int | None:
        now = self._done[table].newest_us if table in self._done else None
        moments = (self._known.table(table).newest_us, now)
        return max((moment for moment in moments if moment is not None), default=None)

    def _position(self, suite: Suite) -> TablePosition:
        """Where the next run goes on in a table."""
        new, before = self._new[suite.table], self._known.table(suite.table)
        place = new.after
        if place is None and self._batch.is_last:
            place = self._rejoined(suite)
        return TablePosition(place or before.place, new.seen, self._newest(suite.table))

    def _rejoined(self, suite: Suite) -> Place | None:
        if suite.gold is None:
            return rejoin_facts(self._lake, suite.table, self._batch)
        return rejoin_answers(self._lake, suite.gold, self._batch)


def _lake_error_in(error: PySparkException) -> str:
    """What an executor said of the lake, out of Spark's report of it."""
    marks = [line for line in str(error).splitlines() if "LakeError" in line]
    return marks[-1].split("LakeError:", 1)[-1].strip() if marks else first_line(error)
