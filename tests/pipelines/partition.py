"""Runs columnar marts over a bronze lake in one partition, cut where a test wants it cut.

What an executor does without Spark: facts of a cut, steps in order, the state carried on. A lake is
written by `bronze_lake.BronzeWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import BY_NAME
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake, whole_table
from pipelines.lake.schemas import arrow_schema
from pipelines.marts.computing import Computed, compute
from pipelines.marts.mart import ROW_NUMBERS, Mart, Step
from pipelines.staging.facts import FACT_TABLES, SHIPPER_SUFFIX, as_facts, row_numbers
from pipelines.staging.soundness import sound

_ORDER = [("event_time_to", "ascending"), ("seq", "ascending")]
Bronze = Mapping[str, pa.Table]
Horizons = Mapping[str, int]
"""Per emitter, shippers among them, the last seq of a cut."""


def bronze_of(lake: Path) -> dict[str, pa.Table]:
    """All rows of every bronze table of a lake."""
    home = Lake.at(str(lake))
    return {
        name: whole_table(home.table(home.bronze(name)))
        if home.exists(home.bronze(name))
        else arrow_schema(BY_NAME[name].columns).empty_table()
        for name in FACT_TABLES
    }


def horizons_of(bronze: Bronze) -> list[dict[str, int]]:
    """The places where a cycle may end, in the order of time: after each shipment."""
    places: list[dict[str, int]] = []
    here: dict[str, int] = {}
    for row in bronze["shipments"].sort_by(_ORDER).to_pylist():
        of_rows = row["emitter"].removesuffix(SHIPPER_SUFFIX)
        here = {**here, of_rows: row["seq_to"], row["emitter"]: row["seq"]}
        places.append(here)
    return places


def facts_between(bronze: Bronze, start: Horizons, end: Horizons) -> dict[str, pa.Table]:
    """The facts of a cut: what lies beyond `start` up to `end`."""
    cut = {name: _within(rows, start, end) for name, rows in bronze.items()}
    return {
        **{name: as_facts(name, sound(name, rows)[0]) for name, rows in cut.items()},
        ROW_NUMBERS: row_numbers(cut),
    }


def run(
    steps: Sequence[Step],
    bronze: Bronze,
    evaluation: Evaluation,
    *,
    ends: Iterable[int] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Rows per mart, as dicts in the order of their keys, over the whole of `bronze`.

    ends: after which shipments (numbers from 0, in the order of time) a cycle ends; the last one
    always does. None: one cycle.
    """
    places = horizons_of(bronze)
    stops = sorted({*(ends or ()), len(places) - 1})
    state: dict[str, dict[str, pa.Table]] = {}
    made: dict[str, list[dict[str, Any]]] = {
        step.name: [] for step in steps if isinstance(step, Mart)
    }
    before: Horizons = {}
    for stop in stops:
        done: Computed = compute(
            steps, facts_between(bronze, before, places[stop]), state, evaluation
        )
        state.update(done.state)
        before = places[stop]
        for name, rows in done.rows.items():
            made[name].extend(rows.to_pylist())
    for step in steps:
        if isinstance(step, Mart) and step.table is not None:
            key = step.table.key
            made[step.name].sort(key=lambda row, key=key: tuple(str(row[part]) for part in key))  # type: ignore[misc]
    return made


def _within(rows: pa.Table, start: Horizons, end: Horizons) -> pa.Table:
    emitters, seqs = pc.cast(rows["emitter"], pa.string()), rows["seq"]
    wanted = pc.is_null(seqs)
    for emitter, last in end.items():
        is_new = pc.and_(pc.greater(seqs, start.get(emitter, 0)), pc.less_equal(seqs, last))
        wanted = pc.or_(wanted, pc.and_(pc.equal(emitters, emitter), is_new))
    return rows.filter(wanted)
