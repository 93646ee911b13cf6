"""Catalogue of all gold tables, with the name, type and meaning of every column.

Place in the walk: marts declare their own (`pipelines.marts`); here are those that checks and
alerting write, and the list of all. Types are the vocabulary of `engine.telemetry.tables`.

Invariant: every row names `observed_at`, a moment of data time (the broker's clock), never the wall
clock of the job; an unknown value is null and the reason column beside it says why. Interval tables
are append-only revisions: the newest of a `window_id` is its present truth, an older one is what
was known then. Absent on purpose: Spark.
"""

from __future__ import annotations

from typing import Final

from engine.telemetry.tables import Column, must
from pipelines.lake.lake import BEGUN_ANEW
from pipelines.marts.columns import (
    BOOLEAN,
    INT,
    LONG,
    OBSERVED_AT,
    OBSERVED_DATE,
    STRING,
    TIMESTAMP,
)
from pipelines.marts.consumer_lag import CONSUMER_LAG
from pipelines.marts.dead_letters import DEAD_LETTERS
from pipelines.marts.declared import gold_tables
from pipelines.marts.duplicate_risk_windows import DUPLICATE_RISK_WINDOWS
from pipelines.marts.emitter_health import EMITTER_HEALTH
from pipelines.marts.group_state import GROUP_STATE
from pipelines.marts.mart import GoldTable
from pipelines.marts.offset_violations import OFFSET_VIOLATIONS
from pipelines.marts.ownership import OWNERSHIP
from pipelines.marts.rebalances import REBALANCES
from pipelines.marts.stalled_windows import STALLED_WINDOWS

__all__ = [
    "ALERTS",
    "BY_NAME",
    "CHECK_TABLES",
    "COMPUTED_TABLES",
    "CONSUMER_LAG",
    "DEAD_LETTERS",
    "DELTA_RS_TABLES",
    "DQ_FAILURES",
    "DQ_RESULTS",
    "DUPLICATE_RISK_WINDOWS",
    "EMITTER_HEALTH",
    "GOLD_TABLES",
    "GROUP_STATE",
    "OFFSET_VIOLATIONS",
    "OWNERSHIP",
    "REBALANCES",
    "REPORTS",
    "STALLED_WINDOWS",
]

DQ_RESULTS: Final = GoldTable(
    "dq_results",
    "expectation and run",
    (
        OBSERVED_AT,
        must("run_id", STRING, "one run of a suite"),
        must("suite", STRING, "suite"),
        must("expectation", STRING, "name of the check"),
        must("table", STRING, "gold or bronze table it governs"),
        must("severity", STRING, "CRITICAL, WARNING or INFO"),
        must("success", BOOLEAN, "did it hold?"),
        Column("observed_value", STRING, "what was observed, in words"),
        must("failed_rows", LONG, "rows that broke it"),
        must("checked_rows", LONG, "rows looked at"),
        Column("table_version", LONG, "Delta version checked"),
        must("started_at", TIMESTAMP, "wall clock at which the run began"),
        must("seconds_ms", LONG, "how long the check took, ms"),
        OBSERVED_DATE,
        Column(
            "judged_from",
            TIMESTAMP,
            "the run judged rows of data time after this, up to observed_at; null: all before",
        ),
        Column("cycle", LONG, "the last cycle whose rows the run judged; null when not known"),
        Column(
            "kept_at",
            TIMESTAMP,
            "wall clock at which the run's results were written; they are known from then on; null "
            "when not known: take started_at",
        ),
    ),
    ("run_id", "expectation"),
)
DQ_FAILURES: Final = GoldTable(
    "dq_failures",
    "failing row of an expectation, a sample of at most 200 per run and expectation",
    (
        OBSERVED_AT,
        must("run_id", STRING, "run"),
        must("expectation", STRING, "check"),
        must("table", STRING, "table"),
        must("row_key", STRING, "key of the failing row, readable"),
        must("detail", STRING, "the row's figures, readable"),
        OBSERVED_DATE,
        Column("about_emitter", STRING, "whose facts it is about; null: it may be anybody's"),
        Column("about_group", STRING, "the group it is about; null: it may be any"),
        Column("since", TIMESTAMP, "data time after which it holds; null: the run's judged_from"),
    ),
    ("run_id", "expectation", "row_key"),
)

ALERTS: Final = GoldTable(
    "alerts",
    "change of an alert",
    (
        OBSERVED_AT,
        must("history", STRING, "the database that numbered it; one that was lost begins another"),
        must("seq", LONG, "number of the change, without a gap in its history"),
        must(
            "kind",
            STRING,
            "BEGUN, FIRED, RESOLVED, DROPPED (it was pending), FLAPPING, RESTED, MUTED, UNMUTED or "
            "ACKED",
        ),
        must("fingerprint", STRING, "rule and labels: the same as long as the alert is the same"),
        must("rule", STRING, "rule"),
        must("severity", STRING, "critical, error, warning or info"),
        must(
            "owner", STRING, "who is to act; empty: neither the rule nor `[[owners]]` names anybody"
        ),
        must(
            "state",
            STRING,
            "after the change: PENDING, FIRING, RESOLVED, INACTIVE, or of a rule that cannot be "
            "judged NO_DATA, EVAL_ERROR, WITHHELD",
        ),
        Column("cluster", STRING, "of its labels; null when it has no such label"),
        Column("broker", STRING, "of its labels"),
        Column("group", STRING, "of its labels"),
        Column("topic", STRING, "of its labels"),
        Column("queue_id", INT, "of its labels"),
        must("labels", STRING, "all its labels, a JSON object"),
        must("summary", STRING, "what it said; empty when its rule was gone"),
        must("evidence", STRING, "what was seen; may be empty"),
        must("reason", STRING, "why it is in this state, if not for the condition itself"),
        Column("muted", STRING, "why nobody is notified; null: somebody is"),
        must("is_flapping", BOOLEAN, "is it held as firing, for it changed too often?"),
        must("active_at", TIMESTAMP, "data time since when its condition holds"),
        Column("fired_at", TIMESTAMP, "data time at which it began to fire; null: never yet"),
        Column("resolved_at", TIMESTAMP, "data time at which it was resolved; null: not yet"),
        Column("author", STRING, "who said so; null: no person did"),
        Column("comment", STRING, "what he said"),
        must("recorded_at", TIMESTAMP, "clock of the process that noted it"),
        OBSERVED_DATE,
    ),
    ("history", "seq"),
)
"""Its `observed_at` is the data time of the look that decided; of ACKED, the clock of who said it.
"""

REPORTS: Final = GoldTable(
    "reports",
    "run of a report",
    (
        OBSERVED_AT,
        must("report", STRING, "its name, like lag-daily"),
        must("window", STRING, "name of the period: its beginning and its length"),
        must("number", INT, "1 for the first run of the report about this period"),
        must("period", STRING, "hourly, daily, weekly or custom"),
        must("began_at", TIMESTAMP, "beginning of the period; observed_at is its end"),
        must("zone", STRING, "time zone of its days"),
        must("run_id", STRING, "run of gold that it was made from"),
        must("cycle", LONG, "the last cycle whose rows it has seen"),
        must("told_at_us", LONG, "checks that had begun by then were seen, µs since 1970"),
        must("digest", STRING, "of its numbers, the cut left out: equal numbers, equal digests"),
        must("headline", STRING, "the report in a sentence"),
        must("groups", INT, "groups in it"),
        must("missed", INT, "of these, groups that missed their objective"),
        must("unclear", INT, "of these, groups of which too little is known"),
        must("revised", STRING, "what it reports otherwise than the run before; else empty"),
        must("no_paper", STRING, "why there is no PDF; empty: there is one"),
        must("made_at", TIMESTAMP, "clock of the process that made it"),
        must("took_ms", LONG, "how long that took, ms"),
        Column(
            "rebuilt", STRING, "why its numbers are those that an earlier run stored; else empty"
        ),
        OBSERVED_DATE,
    ),
    ("report", "window", "number"),
)

COMPUTED_TABLES: Final = gold_tables()
"""What cycles compute: one table a mart."""

CHECK_TABLES: Final = (DQ_RESULTS, DQ_FAILURES)
"""What checks write."""

DELTA_RS_TABLES: Final = (*CHECK_TABLES, ALERTS, REPORTS)
"""What checks, alerting and reports write, with delta-rs."""

GOLD_TABLES: Final = (*COMPUTED_TABLES, *DELTA_RS_TABLES)
BY_NAME: Final = {table.name: table for table in GOLD_TABLES}

assert {table.name for table in DELTA_RS_TABLES} == set(BEGUN_ANEW), "each says how it is got back"
