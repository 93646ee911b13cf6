"""Is telemetry gapless and unique? What each shipment promised against what bronze holds.

Place in the walk: shipments and the (emitter, seq) of all new bronze rows → gold emitter_health.
Carried: rows beyond the last shipment of their emitter, which belong to its next one.

Invariant: a shipment that is complete has rows_expected = rows_found = rows_distinct. Each emitter
is judged in one partition, its own. Absent on purpose: a row per cycle. Shipments are facts, so the
same rows come out however cycles were cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import must
from pipelines.marts.columns import EMITTER, LONG, OBSERVED_AT, OBSERVED_DATE
from pipelines.marts.declaring import as_declared
from pipelines.marts.mart import ROW_NUMBERS, Given, GoldTable, Made, Positions, mart
from pipelines.staging.facts import NUMBERS, in_order

EMITTER_HEALTH: Final = GoldTable(
    "emitter_health",
    "emitter and shipment that carried rows",
    (
        OBSERVED_AT,
        EMITTER,
        must("seq_from", LONG, "first seq of the shipment"),
        must("seq_to", LONG, "last seq of the shipment: a shipped horizon"),
        must("rows_expected", LONG, "seq_to - seq_from + 1"),
        must("rows_found", LONG, "rows found in bronze, over all tables"),
        must(
            "rows_distinct",
            LONG,
            "distinct seq among them; all three equal when telemetry is gapless and unique",
        ),
        OBSERVED_DATE,
    ),
    ("emitter", "seq_to"),
)


def emitter_health(given: Given) -> Made:
    """One row per shipment that carried rows."""
    numbers = in_order(pa.concat_tables([given.state["ahead"], given.facts[ROW_NUMBERS]]))
    shipments = given.facts["shipments"]
    if given.emitters is not None:
        own = pa.array(sorted(given.emitters), pa.string())
        shipments = shipments.filter(
            pc.is_in(pc.cast(shipments["emitter"], pa.string()), value_set=own)
        )
    carried = shipments.filter(pc.greater_equal(shipments["seq_to"], shipments["seq_from"]))
    is_ahead = np.ones(numbers.num_rows, bool)
    found = np.zeros(carried.num_rows, np.int64)
    distinct = np.zeros(carried.num_rows, np.int64)
    seqs = np.asarray(numbers["seq"])
    begins, ends = np.asarray(carried["seq_from"]), np.asarray(carried["seq_to"])
    of_rows, of_shipments = _rows_by_emitter(numbers), _rows_by_emitter(carried)
    for emitter, unordered in of_shipments.items():
        rows = of_rows.get(emitter, np.empty(0, np.int64))
        marks = unordered[np.argsort(begins[unordered], kind="stable")]
        inside, is_first = _inside(seqs[rows], begins[marks], ends[marks])
        found[marks] = np.bincount(inside, minlength=len(marks))
        distinct[marks] = np.bincount(inside[is_first], minlength=len(marks))
        is_ahead[rows] = seqs[rows] > ends[marks].max(initial=0)
    columns = {
        "observed_us": carried["event_us_to"],
        "emitter": carried["emitter"],
        "seq_from": carried["seq_from"],
        "seq_to": carried["seq_to"],
        "rows_expected": pa.array(ends - begins + 1),
        "rows_found": pa.array(found),
        "rows_distinct": pa.array(distinct),
    }
    ahead = numbers.filter(pa.array(is_ahead))
    is_changed = ahead.num_rows or given.state["ahead"].num_rows
    return Made(as_declared(columns, EMITTER_HEALTH), {"ahead": ahead} if is_changed else {})


def _inside(
    seqs: Positions, begins: Positions, ends: Positions
) -> tuple[Positions, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """For each number that lies in a shipment, which: the last one that begins at or before it. Is
    it the first of its kind? Numbers and shipments are in order.
    """
    place = np.searchsorted(begins, seqs, side="right") - 1
    is_inside = (place >= 0) & (seqs <= ends[place])
    is_first = np.ones(len(seqs), bool)
    is_first[1:] = seqs[1:] != seqs[:-1]
    return place[is_inside], is_first[is_inside]


def _rows_by_emitter(rows: pa.Table) -> dict[str, Positions]:
    """Row numbers of each emitter."""
    if not rows.num_rows:
        return {}
    emitters = rows["emitter"].unify_dictionaries().combine_chunks()
    names = emitters.dictionary.to_pylist()
    codes = np.asarray(emitters.indices)
    return {names[code]: np.flatnonzero(codes == code) for code in np.unique(codes)}


MART: Final = mart(
    EMITTER_HEALTH,
    emitter_health,
    reads=("shipments", ROW_NUMBERS),
    carries={"ahead": NUMBERS},
)
