"""Computing gold again for a past range, into a lake of its own, and comparing it row by row.

Place in the walk: the same cycles as the live run, over bronze that is there already.

A range begins and ends where shipments do: `--from` is taken down to the last horizon at or before
it, `--to` up to the next one. What was open at the beginning is taken from the gold that is to be
checked; without one, the replay begins at the first row of bronze. Invariant: rows of the same
range are equal in all columns, whichever way they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from engine.foundation.errors import LakeError
from engine.telemetry.tables import SHIPMENTS
from pipelines.catalogue import SPARK_TABLES, GoldTable
from pipelines.cycle import TICK_TABLES, run_cycle
from pipelines.gold import create_gold, earlier_rows, open_windows, spark_address, to_spark
from pipelines.lake import Lake
from pipelines.marks import (
    CYCLES,
    SHIPPER_SUFFIX,
    Cut,
    Marks,
    last_marks,
    plan_cuts,
    record_completed,
)
from pipelines.settings import Evaluation, Pace

SAMPLES: Final = 3
"""Differing rows shown per table."""


@dataclass(frozen=True, slots=True)
class Range:
    """Where each emitter's part of the replay begins and ends."""

    cuts: tuple[Cut, ...]

    @property
    def begins(self) -> tuple[Cut, ...]:
        """Empty cuts at the beginnings: the marks a run starts from."""
        return tuple(
            Cut(cut.emitter, cut.seq_from, cut.seq_from, cut.time_from_us, cut.time_from_us)
            for cut in self.cuts
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one gold table that only one side has."""

    table: str
    rows: int
    missing: int
    """Rows the live gold has and the replay has not."""
    surplus: int
    """Rows the replay has and the live gold has not."""
    samples: tuple[str, ...]


def find_range(
    source: Lake, target: Lake, *, from_us: int, to_us: int, tell: Callable[[str], None]
) -> Range:
    """What a replay of [from_us, to_us] would compute; without Spark, so that a wrong name or time
    is refused at once.

    LakeError when `source` has no shipments of that time, or `target` has been computed before.
    """
    shipments = _all_shipments(source)
    if target.exists(target.state(CYCLES)):
        raise LakeError(f"{target.root} has been computed before: name an empty place for a replay")
    span = range_of(shipments, from_us, to_us)
    has_gold = all(source.exists(source.gold(table.name)) for table in SPARK_TABLES)
    if not has_gold and any(cut.time_from_us for cut in span.cuts):
        tell("no gold to take open windows from: computing from the first row of bronze")
        span = range_of(shipments, 0, to_us)
    return span


def judged_part(span: Range, live: Lake) -> Range:
    """The part of the range that the live run has come to; beyond its last marks only a replay has
    rows.

    LakeError when there is no such part.
    """
    marks = {mark.emitter: mark for mark in last_marks(live)}
    parts = []
    for cut in span.cuts:
        mark = marks.get(cut.emitter)
        if mark is None or mark.time_to_us <= cut.time_from_us:
            continue
        seq_to, time_to_us = min(cut.seq_to, mark.seq_to), min(cut.time_to_us, mark.time_to_us)
        parts.append(replace(cut, seq_to=seq_to, time_to_us=time_to_us))
    if not parts:
        raise LakeError(
            f"nothing to compare: the gold of {live.root} ends before --from; let the live run "
            "catch up, or name an earlier moment"
        )
    return Range(tuple(parts))


def replay_range(
    spark: SparkSession,
    source: Lake,
    target: Lake,
    span: Range,
    *,
    evaluation: Evaluation,
    pace: Pace,
    tell: Callable[[str], None],
) -> None:
    """Compute gold of the range that `find_range` has found from the bronze of `source` into
    `target`.
    """
    shipments = _until(_all_shipments(source), span)
    marks = Marks.open(target, evaluation.as_text())
    create_gold(spark, target)
    begun = [cut for cut in span.begins if cut.time_from_us]
    if begun:
        _carry_over(spark, source, target, begun)
        marks.begin_at(begun)
    while True:
        cuts = plan_cuts(marks.positions(), shipments, rows_max=pace.rows_per_cycle)
        if all(cut.is_empty for cut in cuts):
            return
        plan = marks.record(cuts)
        rows = run_cycle(spark, source, target, plan, evaluation=evaluation)
        record_completed(target, plan)
        tell(f"cycle {plan.cycle}: {plan.rows} rows in, {sum(rows.values())} out")


def range_of(shipments: Sequence[dict[str, Any]], from_us: int, to_us: int) -> Range:
    """Per emitter, the shipped horizons that enclose [from_us, to_us].

    LakeError when nothing was shipped then.
    """
    by_emitter: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(shipments, key=lambda row: int(row["seq"])):
        by_emitter.setdefault(row["emitter"].removesuffix(SHIPPER_SUFFIX), []).append(row)
    cuts = []
    for emitter, rows in sorted(by_emitter.items()):
        start = Cut(emitter, rows[0]["seq_from"] - 1, rows[0]["seq_from"] - 1, 0, 0)
        end = start
        for row in rows:
            here = Cut(emitter, 0, row["seq_to"], 0, row["event_time_to_us"])
            if row["event_time_to_us"] <= from_us:
                start = here
            if end.time_to_us < to_us:
                end = here
        if start.time_to_us < end.time_to_us:
            cuts.append(Cut(emitter, start.seq_to, end.seq_to, start.time_to_us, end.time_to_us))
    if not cuts:
        raise LakeError("nothing was shipped in that range: look at the times in bronze/shipments")
    return Range(tuple(cuts))


def compare(live: Lake, replayed: Lake, span: Range) -> list[Difference]:
    """Every gold table of both lakes inside the range, rows compared in all columns."""
    return [_compare_table(live, replayed, table, span) for table in SPARK_TABLES]


def _compare_table(live: Lake, replayed: Lake, table: GoldTable, span: Range) -> Difference:
    ours = _rows_within(live, table, span)
    theirs = _rows_within(replayed, table, span)
    missing, surplus = _beyond(ours, theirs), _beyond(theirs, ours)
    samples = [f"only live: {row}" for row in missing[:SAMPLES]]
    samples += [f"only replay: {row}" for row in surplus[:SAMPLES]]
    return Difference(table.name, len(ours), len(missing), len(surplus), tuple(samples))


def _beyond(rows: list[str], others: list[str]) -> list[str]:
    """Rows, with their number of occurrences, that `others` lacks."""
    left: dict[str, int] = {}
    for row in others:
        left[row] = left.get(row, 0) + 1
    beyond = []
    for row in rows:
        if left.get(row, 0):
            left[row] -= 1
        else:
            beyond.append(row)
    return beyond


def _rows_within(lake: Lake, table: GoldTable, span: Range) -> list[str]:
    """The rows of the range as text, in order; row by row marts by seq, judged ones by tick."""
    end = tuple(cut.rest() for cut in span.cuts)
    rows: list[str] = []
    for part in _parts(table):
        until = earlier_rows(lake, table, end, on_ticks=part.on_ticks)
        before = earlier_rows(lake, table, span.begins, on_ticks=part.on_ticks)
        inside = _beyond(part.texts(until), part.texts(before))
        rows.extend(inside)
    return sorted(rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a table that are cut the same way; a table may have both kinds."""

    on_ticks: bool
    exposures: bool | None

    def texts(self, rows: pa.Table) -> list[str]:
        """The part's rows, one text each."""
        if self.exposures is not None:
            is_exposure = pc.equal(rows["basis"], "EXPOSURE")
            rows = rows.filter(is_exposure if self.exposures else pc.invert(is_exposure))
        return [str(tuple(row.values())) for row in rows.to_pylist()]


def _parts(table: GoldTable) -> list[_Part]:
    if "basis" in table.column_names:
        return [_Part(on_ticks=True, exposures=True), _Part(on_ticks=False, exposures=False)]
    return [_Part(on_ticks=table.name in TICK_TABLES, exposures=None)]


def _carry_over(spark: SparkSession, source: Lake, target: Lake, begins: Sequence[Cut]) -> None:
    """Give the replay what was known at its beginning: open windows, and offset falls still
    remembered.
    """
    for table in SPARK_TABLES:
        if table.name == "offset_violations":
            rows = earlier_rows(source, table, begins, on_ticks=False)
        elif table.revised:
            rows = pa.concat_tables(
                _only(open_windows(source, table, begins, on_ticks=part.on_ticks), part)
                for part in _parts(table)
            )
        else:
            continue
        if rows.num_rows:
            address = spark_address(target.gold(table.name))
            to_spark(spark, rows).write.format("delta").mode("append").save(address)


def _only(rows: pa.Table, part: _Part) -> pa.Table:
    if part.exposures is None:
        return rows
    is_exposure = pc.equal(rows["basis"], "EXPOSURE")
    return rows.filter(is_exposure if part.exposures else pc.invert(is_exposure))


def _all_shipments(lake: Lake) -> list[dict[str, Any]]:
    wanted = ("emitter", "seq", "seq_from", "seq_to", "event_time_to")
    columns = [column for column in SHIPMENTS.columns if column.name in wanted]
    found = lake.rows(lake.bronze(SHIPMENTS.name), "true", columns)
    times = pc.cast(found["event_time_to"], pa.int64())
    rows: list[dict[str, Any]] = (
        found.append_column("event_time_to_us", times).drop_columns("event_time_to").to_pylist()
    )
    return rows


def _until(shipments: Sequence[dict[str, Any]], span: Range) -> list[dict[str, Any]]:
    """Shipments of the range's emitters, none beyond its end."""
    ends = {cut.emitter + SHIPPER_SUFFIX: cut for cut in span.cuts}
    return [
        row
        for row in shipments
        if (end := ends.get(row["emitter"])) is not None
        and row["seq_to"] <= end.seq_to
        and row["event_time_to_us"] <= end.time_to_us
    ]
