"""Reads the check results needed to decide which verdicts can be trusted.

Place in the walk: between gold and `trust`. Invariant: what is read goes with the range that is
asked about, not with the age of the lake; and an answer as of a moment knows only results that were
kept by then, so that no run of the checks that comes later changes it: what that finds is read
apart (`found_later`). Absent on purpose: what follows from it (`trust`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.lake.lake import sql_text
from pipelines.reading.reading import Reading
from pipelines.reading.trust import OF_THE_PRESENT, STANDS_FOR, Trust, trust_of

SHOWN_FOR: Final = timedelta(hours=1)
"""Results of runs whose newest data is older are history: no page shows them beside newer ones."""


Question = tuple[str, datetime, tuple[str, ...]]
"""(table of checks, read from which moment on, of which runs): with the version of the tables, all
that an answer depends on."""

Keep = Callable[[Question, Callable[[], pl.DataFrame]], pl.DataFrame]
"""What may keep the answer to a question, or asks it."""


def asked_anew(_question: Question, ask: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """Keeps nothing."""
    return ask()


def trust_at(reading: Reading, *, since: datetime | None = None, keep: Keep = asked_anew) -> Trust:
    """What critical failures withhold of verdicts about the reading's moment, or about a range of
    moments that begins with `since` and ends there, as far as they are known to it.

    The range moves with each cycle, while a run of the checks comes seldom: so results are read
    from a full hour on, and cut here. Who keeps them by the version of their tables (`keep`) reads
    them once a run and hour.
    """
    return _trust(reading, since, keep, _known(reading))


def found_later(reading: Reading, *, since: datetime | None = None) -> Trust:
    """What checks would withhold of the same verdicts that were run after what the reading knows;
    nothing of a reading that knows all."""
    if reading.known_at is None:
        return Trust()
    return _trust(reading, since, asked_anew, ~_known(reading))


def _known(reading: Reading) -> pl.Expr:
    """Of results: were they kept by the moment at which the reading knows?"""
    if reading.known_at is None:
        return pl.lit(value=True)
    return pl.coalesce("kept_at", "started_at") <= reading.known_at


def _trust(reading: Reading, since: datetime | None, keep: Keep, is_known: pl.Expr) -> Trust:
    newest = reading.moment.newest
    if newest is None:
        return Trust()
    begin = (newest if since is None else min(since, newest)) - STANDS_FOR
    hour = begin.replace(minute=0, second=0, microsecond=0)
    present = ", ".join(sql_text(name) for name in OF_THE_PRESENT)
    kept_runs = keep(
        ("dq_results", hour, ()),
        lambda: reading.rows(
            "dq_results",
            "checked_rows > 0",
            f"((NOT success AND severity = 'CRITICAL') OR expectation IN ({present}))",
            since=hour,
        ),
    )
    results = kept_runs.filter(pl.col("observed_at") > begin).filter(is_known)
    failed = results.filter(~pl.col("success"))
    runs = tuple(failed["run_id"].unique().sort())
    if not runs:
        return Trust()
    names = ", ".join(sql_text(name) for name in runs)
    failures = keep(
        ("dq_failures", hour, runs),
        lambda: reading.rows("dq_failures", f"run_id IN ({names})", since=hour),
    )
    trust = trust_of(results, failures.filter(pl.col("observed_at") >= begin))
    cluster = reading.moment.cluster
    return trust if cluster is None else trust.within(cluster)


def recent_results(reading: Reading) -> pl.DataFrame:
    """Results of the runs about the last hour of data; of all runs, when there is none. As far as
    they are known to the reading."""
    newest, is_known = reading.moment.newest, _known(reading)
    if newest is not None:
        recent = reading.rows("dq_results", since=newest - SHOWN_FOR).filter(is_known)
        if recent.height:
            return recent
    return reading.rows("dq_results").filter(is_known)


def of_each_check(results: pl.DataFrame) -> pl.DataFrame:
    """One result a check: a critical failure that still counts, else the newest that looked at
    something, else the newest."""
    if results.is_empty():
        return results
    looked = pl.col("checked_rows") > 0
    still = pl.col("observed_at") > pl.col("observed_at").max() - STANDS_FOR
    is_past = ~pl.col("expectation").is_in(OF_THE_PRESENT)
    failed = looked & ~pl.col("success") & (pl.col("severity") == "CRITICAL") & still & is_past
    weight = pl.when(failed).then(2).when(looked).then(1).otherwise(0)
    ordered = results.with_columns(weight.alias("weight")).sort("weight", "started_at", "run_id")
    newest = ordered.unique("expectation", keep="last", maintain_order=True)
    return newest.drop("weight").sort("suite", "expectation")
