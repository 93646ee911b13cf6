"""Laws of the gold tables themselves: keys are unique, intervals are intervals, an unknown
number says why.

The dashboards and the notebook rely on each of these without looking again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import great_expectations.expectations as gxe
import polars as pl

from expectations.check import Check, Severity, Subject, SubjectOf
from expectations.custom import no_breach
from expectations.reading import CheckedLake
from expectations.suites.offsets import QUEUE
from pipelines.catalogue import BY_NAME

SUITE: Final = "tables"
INTERVALS: Final = ("stalled_windows", "duplicate_risk_windows", "ownership")


def lag_rows(lake: CheckedLake, _now: datetime) -> Subject:
    """One row per queue: repeated keys, unknowns without a reason, impossible lags."""
    key = BY_NAME["consumer_lag"].key
    columns = [*key, "lag_messages", "time_lag_ms", "time_lag_error_ms", "unknown_reason"]
    lag = lake.gold("consumer_lag", list(dict.fromkeys(columns)))
    unknown = pl.col("lag_messages").is_null() | pl.col("time_lag_ms").is_null()
    impossible = (pl.col("time_lag_ms") < 0) | (pl.col("time_lag_error_ms") < 0)
    rows = (
        lag.group_by(QUEUE)
        .agg(
            (pl.len() - pl.struct(key).n_unique()).cast(pl.Int64).alias("repeated_keys"),
            (unknown & pl.col("unknown_reason").is_null()).sum().alias("unknown_without_reason"),
            impossible.sum().alias("impossible_time_lags"),
        )
        .sort(QUEUE)
    )
    return Subject(
        "consumer_lag",
        rows,
        QUEUE,
        lag.height,
        lake.version("consumer_lag"),
        f"{lag.height:,} rows of {rows.height} queues",
    )


def keyed(table: str) -> SubjectOf:
    """The rows of a small gold table by their declared key."""

    def subject(lake: CheckedLake, _now: datetime) -> Subject:
        key = BY_NAME[table].key
        rows = lake.gold(table, list(key))
        text = f"{rows.height:,} rows, no key twice"
        return Subject(table, rows, key, rows.height, lake.version(table), text)

    return subject


def intervals(table: str) -> SubjectOf:
    """One row per interval, with what is wrong with its revisions taken together."""

    def subject(lake: CheckedLake, _now: datetime) -> Subject:
        revisions = lake.gold(table).sort("window_id", "revision")
        closed = pl.col("state") == "CLOSED"
        faults = (
            (closed != pl.col("closed_at").is_not_null()).sum()
            + (pl.col("closed_at") < pl.col("opened_at")).sum()
            + (pl.col("valid_from") != pl.col("observed_at")).sum()
            + (pl.col("opened_at").n_unique() > 1).cast(pl.Int64)
            + (pl.col("revision") != pl.int_range(1, pl.len() + 1)).sum()
            + _faults_of(table)
        )
        rows = revisions.group_by("window_id", maintain_order=True).agg(
            pl.col("group", "topic", "queue_id").last(),
            pl.col("opened_at").first(),
            faults.cast(pl.Int64).alias("faults"),
        )
        return Subject(
            table,
            rows,
            ("group", "topic", "queue_id", "window_id"),
            revisions.height,
            lake.version(table),
            f"{rows.height} intervals in {revisions.height} revisions",
        )

    return subject


def _faults_of(table: str) -> pl.Expr:
    """What only this kind of interval can get wrong."""
    if table != "duplicate_risk_windows":
        return pl.lit(0)
    confirmed = pl.col("outcome") == "CONFIRMED"
    return (pl.col("to_offset") < pl.col("from_offset")).sum() + (
        confirmed & (pl.col("redelivered_messages") < 1)
    ).sum()


def _unique(table: str) -> Check:
    columns = list(BY_NAME[table].key)

    def expectation(name: str, severity: str) -> Any:
        return gxe.ExpectCompoundColumnsToBeUnique(
            column_list=columns, severity=severity, meta={"check": name}
        )

    return _check(f"{table}_keys_unique", Severity.CRITICAL, keyed(table), expectation)


def _check(
    name: str, severity: Severity, subject: SubjectOf, expectation: Callable[[str, str], Any]
) -> Check:
    return Check(name, SUITE, severity, subject, expectation, may_be_empty=True)


def dead_letters(lake: CheckedLake, _now: datetime) -> Subject:
    """Dead letters, with where they came from."""
    rows = lake.gold("dead_letters", ["group", "message_id", "origin_topic", "emitter", "seq"])
    return Subject(
        "dead_letters",
        rows,
        ("group", "message_id", "emitter", "seq"),
        rows.height,
        lake.version("dead_letters"),
        f"{rows.height} dead letters, each with its origin",
    )


def _known_origin(name: str, severity: str) -> Any:
    return gxe.ExpectColumnValuesToNotBeNull(
        column="origin_topic", severity=severity, meta={"check": name}
    )


TABLES: Final = (
    Check("lag_keys_unique", SUITE, Severity.CRITICAL, lag_rows, no_breach("repeated_keys")),
    Check(
        "unknown_lag_says_why",
        SUITE,
        Severity.CRITICAL,
        lag_rows,
        no_breach("unknown_without_reason"),
    ),
    Check(
        "time_lag_possible", SUITE, Severity.CRITICAL, lag_rows, no_breach("impossible_time_lags")
    ),
    *(_unique(table) for table in ("group_state", "rebalances", *INTERVALS)),
    *(
        _check(f"{table}_well_formed", Severity.CRITICAL, intervals(table), no_breach("faults"))
        for table in INTERVALS
    ),
    _check("dead_letters_know_their_origin", Severity.WARNING, dead_letters, _known_origin),
)
