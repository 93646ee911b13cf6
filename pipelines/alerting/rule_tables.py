"""Tables that rules can use: gold tables, and current-state tables that no mart writes.

Place in the walk: below rules and their evaluation. A table holds a state (the newest row of each
key), intervals (their newest revisions), or events (its rows of a stretch of time), as the mart has
declared, and is read accordingly. Invariant: pure; a frame without rows has the declared columns
and types. Absent on purpose: reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import polars as pl

from engine.telemetry.tables import Column, must
from pipelines.lake.schemas import arrow_schema
from pipelines.marts.columns import BOOLEAN, CLUSTER, GROUP, LONG, OBSERVED_AT, STRING, TIMESTAMP
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import CHECK_TABLES, COMPUTED_TABLES, EMITTER_HEALTH


class Shape(StrEnum):
    """What the rows of a table stand for."""

    STATE = "state"
    INTERVALS = "intervals"
    EVENTS = "events"


EMITTERS: Final = GoldTable(
    "emitters",
    "emitter, at the present moment",
    (
        OBSERVED_AT,
        must("cluster", STRING, "cluster name"),
        must("broker", STRING, "broker name"),
        must("emitter", STRING, "who reports"),
        must("judged_to", TIMESTAMP, "data time up to which it has been judged"),
        must("age_ms", LONG, "the present moment minus judged_to"),
        must("is_silent", BOOLEAN, "does it report nothing about now any more?"),
        must("is_ahead", BOOLEAN, "is its clock ahead of that of the lake?"),
        Column("reason", STRING, "why nothing is known of it, in words; null when something is"),
    ),
    ("emitter",),
)
PIPELINE: Final = GoldTable(
    "pipeline",
    "lake, at the present moment: always one row",
    (
        OBSERVED_AT,
        Column("run_id", STRING, "run whose gold is read; null when there is none"),
        Column("cycle", LONG, "its last complete cycle; null when there is none"),
        Column("planned_at", TIMESTAMP, "when that cycle was planned, clock of its machine"),
        Column("age_ms", LONG, "clock of the alerting process minus data time of that cycle; "
               "null when there is none"),
        must("waits", BOOLEAN, "does the process that computes gold live, and get nothing?"),
        must("emitters", LONG, "emitters known"),
        must("emitters_silent", LONG, "of these, silent ones"),
    ),
    ("observed_at",),
)  # fmt: skip
JOB_RUNS: Final = GoldTable(
    "job_runs",
    "run of a job that ended badly in the last hour, or waits for too long; job without its run",
    (
        OBSERVED_AT,
        must("app", STRING, "application whose executors run it"),
        must("job", STRING, "title of the job"),
        must("job_id", LONG, "its number"),
        Column("run", LONG, "number of the run, by which its log is found; null: there is none"),
        must("outcome", STRING, "FAILED, REFUSED, LOST, RESULT_LATE (it counted as lost) or LATE; "
             "of jobs without a run NOT_PLANNED (one row for all), STOPPED or MISSED"),
        Column("executor", STRING, "address of who had it; null: nobody"),
        must("planned_at", TIMESTAMP, "when it was to begin"),
        must("opened_at", TIMESTAMP, "since when it is so"),
        must("evidence", STRING, "what happened, in a sentence"),
        Column("last_lines", STRING, "the last lines that its executor reported; null: none"),
    ),
    ("job_id", "outcome", "run"),
)  # fmt: skip
RETRY_RATES: Final = GoldTable(
    "retry_rates",
    "group of which messages failed, or came back to a POP group since nobody acknowledged them in "
    "time, in the last 65 minutes, at the present moment",
    (
        OBSERVED_AT,
        CLUSTER,
        GROUP,
        must("failed_5m", LONG, "failures of the last five minutes: messages that were sent back"),
        must("failed_hour", LONG, "those of the hour before them"),
        must("usual_5m", LONG, "of that hour so many each five minutes"),
        must("evidence", STRING, "the same in a sentence"),
        must("came_back_5m", LONG, "copies of the last five minutes whose invisible time ran out"),
        must("came_back_hour", LONG, "those of the hour before them"),
        must("usual_came_back_5m", LONG, "of that hour so many each five minutes"),
    ),
    ("cluster", "group"),
)
OBJECTIVE_BURN: Final = GoldTable(
    "objective_burn",
    "group that an objective is given to, at the end of the last five minutes that are judged",
    (
        OBSERVED_AT,
        CLUSTER,
        GROUP,
        must("objective_ms", LONG, "time lag that it should keep"),
        must("share_percent", STRING, "for this share of the time at least"),
        must("state", STRING, "of the last five minutes: WITHIN, BEHIND or UNKNOWN"),
        *(
            must(f"burn_{name}", LONG, "so many times as fast as its objective allows it was "
                 f"behind in the last {name}, rounded down")
            for name in ("5m", "30m", "1h", "6h")
        ),
        must("behind_1h_ms", LONG, "time behind in the last hour"),
        must("behind_6h_ms", LONG, "time behind in the last six hours"),
        must("evidence", STRING, "the same in a sentence"),
    ),
    ("cluster", "group"),
)  # fmt: skip
DERIVED: Final = (RETRY_RATES, OBJECTIVE_BURN)
"""They are made at each look, of what gold holds."""
OF_THE_PRESENT: Final = (EMITTERS, PIPELINE, JOB_RUNS, *DERIVED)
"""Nobody records them: rules about them are not played over the past."""
OF_THE_LAKE: Final = (EMITTERS, PIPELINE, JOB_RUNS, *CHECK_TABLES, EMITTER_HEALTH)
"""They report silence, missing facts, and failed checks: none of that hides them."""

_TIMES: Final = ("observed_at", "seq", "seq_to")
_PLACE: Final = ("cluster", "broker", "group", "topic", "queue_id")
_ABOUT: Final = {"lag_causes": ("emitter", "group"), "dq_results": ("expectation",)}
"""Keys whose newest rows are read together, where that is not each key's own."""
_UNKNOWN: Final = {
    "group_state": (
        "state = 'WITHHELD' or (state = 'UNKNOWN' and lag_at_least_messages is null "
        "and time_lag_at_least_ms is null)"
    ),
    "consumer_lag": "provenance = 'UNKNOWN'",
    "stalled_windows": "unknown_reason is not null",
    "objective_burn": "state = 'UNKNOWN'",
}
"""How rows say that nothing is known: of them no condition is true, and none false."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A table as rules see it."""

    table: GoldTable
    shape: Shape
    identity: tuple[str, ...]
    """Of a state: the key whose newest rows are read together; of intervals: the window."""
    parts: tuple[str, ...]
    """What distinguishes its rows of one moment, identity included."""
    unknown: str | None
    """The condition that says of a row that nothing is known; None: there are none such."""

    @property
    def name(self) -> str:
        """The table's."""
        return self.table.name

    @property
    def is_of_lake(self) -> bool:
        """Whether it is about the lake itself, silence included."""
        return self.table in OF_THE_LAKE

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that become labels unless a rule says otherwise: the place that a row is
        about, as far as the table names it."""
        place = tuple(name for name in _PLACE if name in self.table.column_names)
        return place or tuple(name for name in self.identity if name not in _TIMES)

    def none(self) -> pl.DataFrame:
        """No rows, with all columns."""
        return no_rows(self.name)


@cache
def watched() -> dict[str, Watched]:
    """All tables that a rule may be about, by name."""
    tables = (*COMPUTED_TABLES, *CHECK_TABLES, *OF_THE_PRESENT)
    return {table.name: _watched(table) for table in tables}


@cache
def no_rows(name: str) -> pl.DataFrame:
    """No rows of a table, with all columns."""
    schema = arrow_schema(watched()[name].table.columns)
    frame = pl.from_arrow(schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _watched(table: GoldTable) -> Watched:
    parts = tuple(name for name in table.key if name not in _TIMES)
    shape, identity = Shape.STATE, _ABOUT.get(table.name, parts)
    if table.revised:
        shape, identity = Shape.INTERVALS, ("window_id",)
        parts = identity
    elif "seq" in table.key and table.key[0] == "emitter":
        shape = Shape.EVENTS
    if table.name in _ABOUT:
        parts = tuple(dict.fromkeys((*identity, *(one for one in parts if one != "run_id"))))
    return Watched(table, shape, identity, parts, _UNKNOWN.get(table.name))


def rows_at(name: str, rows: pl.DataFrame, at_us: int, *, within_us: int = 0) -> pl.DataFrame:
    """The rows of a table that count at a moment of data time: of a state the newest of each key,
    of intervals the newest revisions, of events those of the last `within_us`; also intervals that
    were closed within it, else only open ones.
    """
    if rows.is_empty():
        return rows
    table = watched()[name]
    moment = pl.lit(at_us).cast(pl.Datetime("us", "UTC"))
    begin = pl.lit(at_us - within_us).cast(pl.Datetime("us", "UTC"))
    seen = rows.filter(pl.col("observed_at") <= moment)
    match table.shape:
        case Shape.EVENTS:
            return seen.filter(pl.col("observed_at") > begin)
        case Shape.INTERVALS:
            newest = seen.sort("revision").unique("window_id", keep="last", maintain_order=True)
            lasts = pl.col("state") == "OPEN"
            return newest.filter(lasts | (pl.col("observed_at") > begin) & (within_us > 0))
        case Shape.STATE:
            if not table.identity:
                return seen.sort("observed_at").tail(1)
            newest_at = pl.col("observed_at").max().over(table.identity)
            last = seen.filter(pl.col("observed_at") == newest_at)
            order = [one for one in ("observed_at", "seq") if one in seen.columns]
            return last.sort(order).unique(table.parts, keep="last", maintain_order=True)
