"""Reads the gold rows that rules use, all as of one complete cycle.

Place in the walk: gold, read with delta-rs → `Looked` → `evaluating`.

Invariant: all rows are of one `Moment`. A table that cannot be read is named with its reason, and
holds up no other. Newest states, events and intervals are followed from cycle to cycle, as far back
as a rule looks, and never more than ROWS_MAX of a table are taken. Absent on
purpose: rules' conditions, and Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.alerting.derived_tables import RATES_EACH, last_slot, objective_burn, retry_rates
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.objectives import Objectives
from pipelines.alerting.present_rows import gone, rows_of_lake
from pipelines.alerting.rule_tables import (
    JOB_RUNS,
    OBJECTIVE_BURN,
    OF_THE_LAKE,
    RETRY_RATES,
    Shape,
    no_rows,
    rows_at,
    watched,
)
from pipelines.alerting.rules import Rule
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake, first_line
from pipelines.marts.ended_queues import ENDED_QUEUES
from pipelines.marts.group_state import GONE
from pipelines.reading.check_results import of_each_check, recent_results, trust_at
from pipelines.reading.incremental import Followed
from pipelines.reading.moment import Moment, last_complete
from pipelines.reading.reading import LOOK_BACK, STATE_KEYS, OpenTables, Reading
from pipelines.reading.trust import Trust

ROWS_MAX: Final = 2_000_000
"""Rows of one table in one look: a table with more counts as one that cannot be read."""
_NEVER: Final = datetime.fromtimestamp(0, UTC)
GONE_MAX: Final = 10_000
"""Ended groups and queues that are looked through for alerts about them."""


class Gold:
    """The gold of one lake, looked at again and again."""

    def __init__(
        self,
        lake: Lake,
        job_runs: Callable[[int], pl.DataFrame] | None = None,
        objectives: Callable[[], Objectives] = Objectives,
    ) -> None:
        """job_runs: rows of that table at a moment of this process's clock, µs; without it there
        are none. objectives: what groups should keep, as it is now."""
        self._lake = lake
        self._job_runs = job_runs
        self._objectives = objectives
        self._derived: dict[str, tuple[object, pl.DataFrame]] = {}
        self._tables = OpenTables(lake)
        self._followed = Followed()

    def moment(self) -> Moment | None:
        """The last complete cycle; None when there is none. Raises LakeError."""
        with _as_lake_errors():
            moment = last_complete(self._lake)
            self._tables.follow(None if moment is None else moment.run_id)
            return moment

    def look(self, rules: Sequence[Rule], moment: Moment | None, *, now_us: int) -> Looked:
        """What rules are about at that moment; `now_us`: µs of the clock of this process."""
        rows = rows_of_lake(moment, now_us)
        if any(JOB_RUNS.name in rule.tables for rule in rules):
            job_runs = self._job_runs
            rows[JOB_RUNS.name] = no_rows(JOB_RUNS.name) if job_runs is None else job_runs(now_us)
        if moment is None or moment.present is None:
            return Looked(None, rows)
        reading = Reading(self._tables, moment)
        unreadable: dict[str, str] = {}
        for name, within_us in _spans(rules).items():
            if name in rows:
                continue
            try:
                with _as_lake_errors():
                    rows[name] = _bounded(name, self._rows(name, reading, within_us))
            except LakeError as error:
                unreadable[name] = str(error)
        if all(rule.is_of_lake for rule in rules):
            data_us, silent = micros(moment.present), moment.unknown
            return Looked(data_us, rows, silent, unreadable=unreadable, reached=moment.reached)
        trust, ended = Trust(), tuple[Mapping[str, str], ...]()
        try:
            with _as_lake_errors():
                trust = trust_at(reading)
                ended = self._gone(reading)
        except LakeError as error:
            unreadable |= dict.fromkeys(rows, f"what it rests on cannot be read: {error}")
            rows = {one.name: rows[one.name] for one in OF_THE_LAKE if one.name in rows}
        data_us, silent = micros(moment.present), moment.unknown
        return Looked(data_us, rows, silent, trust, ended, unreadable, moment.reached)

    def _rows(self, name: str, reading: Reading, within_us: int) -> pl.DataFrame:
        if name == RETRY_RATES.name:
            slot = (reading.moment.present or _NEVER).timestamp() // RATES_EACH.total_seconds()
            return self._once(name, (reading.moment.run_id, slot), lambda: retry_rates(reading))
        if name == OBJECTIVE_BURN.name:
            given = self._objectives()
            at = (reading.moment.run_id, last_slot(reading.moment), given)
            return self._once(name, at, lambda: objective_burn(reading, given))
        if name in STATE_KEYS:
            return self._followed.newest(name, reading)
        if name == "dq_results":
            return of_each_check(recent_results(reading))
        present = reading.moment.present
        assert present is not None
        shape = watched()[name].shape
        since = present - (LOOK_BACK if shape is Shape.STATE else timedelta(microseconds=within_us))
        if shape is Shape.INTERVALS:
            return self._followed.windows(name, since, reading)
        if shape is Shape.EVENTS:
            found = self._followed.recent(name, since, reading)
            return rows_at(name, found, micros(present), within_us=within_us)
        return rows_at(name, reading.rows(name, since=since), micros(present), within_us=within_us)

    def _once(self, name: str, at: object, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A frame that changes only when `at` does."""
        kept = self._derived.get(name)
        if kept is None or kept[0] != at:
            kept = self._derived[name] = (at, make())
        return kept[1]

    def _gone(self, reading: Reading) -> tuple[Mapping[str, str], ...]:
        """Ended queues, and groups of a broker that are not there any more."""
        states = reading.last_reported("group_state", f"state = '{GONE}'")
        ended = reading.last_reported(ENDED_QUEUES.name).head(GONE_MAX)
        living = self._followed.newest("consumer_lag", reading) if ended.height else ended
        return gone(states.head(GONE_MAX), ended, living)


@contextmanager
def _as_lake_errors() -> Iterator[None]:
    """A lake that goes away while it is read may fail in any library: that ends no alerting."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise LakeError(f"the lake cannot be read ({first_line(error)})") from error


def _spans(rules: Sequence[Rule]) -> dict[str, int]:
    """The tables that rules read, and how far back the one that looks furthest does, µs."""
    spans: dict[str, int] = {}
    for rule in rules:
        for name in rule.tables:
            spans[name] = max(spans.get(name, 0), rule.within_us)
    return spans


def _bounded(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    if rows.height > ROWS_MAX:
        raise LakeError(
            f"{name} has {rows.height:,} rows that rules look at, more than {ROWS_MAX:,}: "
            "let rules on it look back less far (within)"
        )
    return rows
