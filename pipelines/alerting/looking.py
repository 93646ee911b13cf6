"""One look at gold: the rows that rules are about, as they were when a cycle was complete.

Place in the walk: gold, read with delta-rs → `Looked` → `evaluating`.

Invariant: all rows are of one `Moment`. A table that cannot be read is named with its reason, and
holds up no other. Newest states are followed from cycle to cycle; intervals and events are read for
as long as a rule looks back, and never more than ROWS_MAX of a table. Absent on purpose: rules'
conditions, and Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import polars as pl

from engine.foundation.errors import LakeError
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.rules import Rule
from pipelines.alerting.watched import EMITTERS, OF_THE_LAKE, PIPELINE, Shape, rows_at, watched
from pipelines.check_results import trust_at
from pipelines.emitters import emitters_at
from pipelines.followed import Followed
from pipelines.lake import Lake
from pipelines.marts.ended_queues import ENDED_QUEUES
from pipelines.marts.group_state import GONE
from pipelines.microseconds import micros
from pipelines.moment import Moment, cluster_of, last_complete
from pipelines.reading import LOOK_BACK, STATE_KEYS, OpenTables, Reading
from pipelines.settings import MS_US
from pipelines.trust import Trust

ROWS_MAX: Final = 2_000_000
"""Of one table in one look: more is told as a table that cannot be read."""
GONE_MAX: Final = 10_000
"""Ended groups and queues that are looked through for alerts about them."""


class Gold:
    """The gold of one lake, looked at again and again."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables = OpenTables(lake)
        self._followed = Followed()

    def moment(self) -> Moment | None:
        """The last complete cycle; None when there is none. Raises LakeError."""
        moment = last_complete(self._lake)
        self._tables.follow(None if moment is None else moment.run_id)
        return moment

    def look(self, rules: Sequence[Rule], moment: Moment | None, *, now_us: int) -> Looked:
        """What rules are about at that moment; `now_us`: µs of the clock of this process."""
        if moment is None or moment.present is None:
            return Looked(None, {PIPELINE.name: _pipeline(moment, now_us)})
        reading = Reading(self._tables, moment)
        rows: dict[str, pl.DataFrame] = {}
        unreadable: dict[str, str] = {}
        for name, within_us in _spans(rules).items():
            try:
                rows[name] = _bounded(name, self._rows(name, reading, within_us, now_us))
            except LakeError as error:
                unreadable[name] = str(error)
        if all(rule.is_of_lake for rule in rules):
            return Looked(micros(moment.present), rows, moment.unknown, unreadable=unreadable)
        trust, gone = Trust(), tuple[Mapping[str, str], ...]()
        try:
            trust = trust_at(reading)
            gone = self._gone(reading)
        except LakeError as error:
            unreadable |= dict.fromkeys(rows, f"what it rests on cannot be read: {error}")
            rows = {one.name: rows[one.name] for one in OF_THE_LAKE if one.name in rows}
        return Looked(micros(moment.present), rows, moment.unknown, trust, gone, unreadable)

    def _rows(self, name: str, reading: Reading, within_us: int, now_us: int) -> pl.DataFrame:
        if name == PIPELINE.name:
            return _pipeline(reading.moment, now_us)
        if name == EMITTERS.name:
            return _emitters(reading)
        if name in STATE_KEYS:
            return self._followed.newest(name, reading)
        present = reading.moment.present
        assert present is not None
        shape = watched()[name].shape
        since = present - (LOOK_BACK if shape is Shape.STATE else timedelta(microseconds=within_us))
        if shape is Shape.INTERVALS:
            return reading.windows(name, since=since, until=present)
        return rows_at(name, reading.rows(name, since=since), micros(present), within_us=within_us)

    def _gone(self, reading: Reading) -> tuple[Mapping[str, str], ...]:
        """Ended queues, and groups of a broker that are not there any more."""
        queues = reading.told_last(ENDED_QUEUES.name).select(
            "cluster", "broker", "group", "topic", pl.col("queue_id").cast(pl.String)
        )
        groups = reading.told_last("group_state", f"state = '{GONE}'").select(
            "cluster", "broker", "group"
        )
        return (*groups.head(GONE_MAX).to_dicts(), *queues.head(GONE_MAX).to_dicts())


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


def _pipeline(moment: Moment | None, now_us: int) -> pl.DataFrame:
    present = None if moment is None else moment.present
    row = {
        "observed_at": now_us if present is None else micros(present),
        "run_id": None if moment is None else moment.run_id,
        "cycle": None if moment is None else moment.cycle,
        "planned_at": None if moment is None or moment.planned_at is None else moment.planned_at,
        "age_ms": None if present is None else (now_us - micros(present)) // MS_US,
        "emitters": 0 if moment is None else len(moment.reached),
        "emitters_silent": 0 if moment is None else len(moment.silent),
    }
    return _of_lake(PIPELINE.name, [row])


def _emitters(reading: Reading) -> pl.DataFrame:
    moment = reading.moment
    assert moment.present is not None
    silent = {one.emitter for one in moment.silent}
    ahead = {one.emitter for one in moment.ahead}
    rows = [
        {
            "observed_at": moment.present,
            "cluster": cluster_of(row["emitter"]),
            "broker": row["emitter"].split("/")[1],
            "emitter": row["emitter"],
            "judged_to": row["judged_to"],
            "age_ms": int((moment.present - row["judged_to"]).total_seconds() * 1000),
            "is_silent": row["emitter"] in silent,
            "is_ahead": row["emitter"] in ahead,
            "reason": row["reason"],
        }
        for row in emitters_at(reading).to_dicts()
    ]
    return _of_lake(EMITTERS.name, rows)


def _of_lake(name: str, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    empty = watched()[name].none()
    made = [
        pl.Series(column, [row[column] for row in rows]).cast(kind)
        for column, kind in empty.schema.items()
    ]
    return pl.DataFrame(made)
