"""Performs a round of check runs, repeating until every complete cycle has been checked.

Place in the walk: `commands` asks for one round, or for one after every nth cycle. A round holds
the lease of its role, so that two rounds never judge the same rows at once.

Invariant: a run's results are kept before what the next one goes on from, and pages about it take
the place of the former ones as a whole. Absent on purpose: words for a terminal.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from expectations.batch import ROWS_MAX
from expectations.check import Outcome, Severity
from expectations.checkpoints import CheckRun, run_checks
from expectations.job import Job
from expectations.memory import FOLDER, Memory, load
from expectations.results import keep
from pipelines.lake.lake import Lake
from pipelines.lake.lease import Lease, LeaseHeld, acquire
from pipelines.lake.small_files import SmallFiles
from pipelines.reading.catalogue import DQ_RESULTS
from pipelines.reading.moment import sql_time
from pipelines.reading.trust import OF_THE_PRESENT, STANDS_FOR

ROLE: Final = "checks"
TURN_PATIENCE_S: Final = 600.0
"""How long a round waits for another one to end: it is at work, be it slowly; the turn of one that
is gone ends after half a minute.
"""
TURN_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """What a round has found."""

    runs: tuple[CheckRun, ...]
    earlier: tuple[str, ...]
    """Of earlier rounds, critical checks that failed on rows on which present verdicts rest."""

    @property
    def outcomes(self) -> list[Outcome]:
        """One a check: the worst of its runs, else the last that looked at something."""
        found: dict[str, Outcome] = {}
        for run in self.runs:
            for one in run.outcomes:
                known = found.get(one.check.name)
                if known is None or _weight(one) >= _weight(known):
                    found[one.check.name] = one
        return list(found.values())

    def failed(self, at_least: Severity) -> bool:
        """Does a check fail that is at least that severe?"""
        return bool(self.earlier) or any(run.failed(at_least) for run in self.runs)


def _weight(outcome: Outcome) -> int:
    if outcome.nothing_to_check:
        return 0
    return 1 if outcome.success else 2


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a round is asked for."""

    run_id: str | None = None
    keeps: bool = True
    """Keep results, and go on from them the next time."""
    again: bool = False
    """Judge everything that is there anew."""
    docs: Path | None = None
    """Where Great Expectations' pages belong."""
    rows_max: int = ROWS_MAX


def check_round(lake: Lake, job: Job, wishes: Wishes, *, clock: Callable[[], datetime]) -> Round:
    """Judge all that is new. Raises LakeError when the lake cannot be judged."""
    runs: list[CheckRun] = []
    with _turn(lake) if wishes.keeps else nullcontext():
        former = load(lake)
        known = Memory() if wishes.again else former
        while True:
            now = clock()
            name = wishes.run_id or f"{now:%Y%m%dT%H%M%S.%fZ}"
            run_id = name if not runs else f"{name}-{len(runs) + 1}"
            with tempfile.TemporaryDirectory(prefix="tidemark-docs-") as draft:
                folder = Path(draft) / "docs" if wishes.docs is not None else None
                run = run_checks(
                    lake, job, known, run_id=run_id, now=now, rows_max=wishes.rows_max, docs=folder
                )
                if wishes.keeps:
                    keep(run, lake, now=clock())
                if wishes.docs is not None and folder is not None:
                    _publish(folder, wishes.docs)
            runs.append(run)
            kept = run.memory if wishes.keeps else former
            is_last = run.batch.is_last
            needed = [kept] if is_last else [kept, run.memory]
            _forget(lake, [former, known, run.memory], needed)
            known = run.memory
            if is_last:
                return Round(tuple(runs), _earlier(lake, runs))


def _forget(lake: Lake, known: Sequence[Memory], needed: Sequence[Memory]) -> None:
    """Remove files of what was carried from which nobody goes on."""
    there = {file for memory in known for file in memory.carried.values()}
    kept = {file for memory in needed for file in memory.carried.values()}
    for file in there - kept:
        SmallFiles(lake).remove(f"{lake.state(FOLDER)}/{file}")


def _earlier(lake: Lake, runs: Sequence[CheckRun]) -> tuple[str, ...]:
    """Critical failures of earlier rounds that present verdicts rest on."""
    address, end = lake.gold(DQ_RESULTS.name), runs[-1].observed_at
    if not lake.exists(address):
        return ()
    since = sql_time(end - STANDS_FOR)
    wanted = f"NOT success AND severity = 'CRITICAL' AND checked_rows > 0 AND observed_at > {since}"
    rows = pl.DataFrame(pl.from_arrow(lake.rows(address, wanted, DQ_RESULTS.columns)))
    own = [run.run_id for run in runs]
    is_past = ~pl.col("expectation").is_in(OF_THE_PRESENT)
    others = rows.filter(~pl.col("run_id").is_in(own) & is_past)
    newest = others.sort("started_at").unique("expectation", keep="last", maintain_order=True)
    return tuple(
        f"{row['expectation']} failed in run {row['run_id']}: {row['observed_value']}"
        for row in newest.iter_rows(named=True)
    )


def _turn(lake: Lake) -> Lease:
    """The lease, once the round of another process has ended. Raises LeaseHeld."""
    deadline_s = time.monotonic() + TURN_PATIENCE_S
    while True:
        try:
            return acquire(lake, ROLE)
        except LeaseHeld:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(TURN_POLL_S)


def _publish(made: Path, place: Path) -> None:
    """Put new pages in the place of the former ones."""
    beside = place.with_name(f".{place.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(made, beside)
    former = place.with_name(f".{place.name}.old")
    shutil.rmtree(former, ignore_errors=True)
    if place.exists():
        place.rename(former)
    beside.rename(place)
    shutil.rmtree(former, ignore_errors=True)
