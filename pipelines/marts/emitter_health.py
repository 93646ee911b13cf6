"""Checks each telemetry shipment for completeness against the rows found in bronze.

Place in the walk: shipments and the (emitter, seq) of all new bronze rows → gold emitter_health,
which also says how far the emitter's clock is from that of its lake. Carried: rows beyond the last
shipment of their emitter, and how far horizons lay from the moments at which they were shipped: of
the last SKEW_SHIPMENTS the least late one shows how far the clocks are apart, but for a second or
two; of a clock that is behind it is an upper bound. A backlog says nothing.

Invariant: a shipment that is complete has rows_expected = rows_found = rows_distinct. Each emitter
is judged in one partition. Absent on purpose: a row per cycle; the same rows come out however
cycles were cut.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import CLOCK_SKEW_ALLOWED_US, MS_US
from pipelines.marts.columns import EMITTER, LONG, OBSERVED_AT, OBSERVED_DATE, STRING, as_declared
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
        Column(
            "clock_skew_ms",
            LONG,
            "horizon minus time of shipping, the largest of the last 12 shipments: by how much the "
            "emitter's clock is ahead of its shipper's, at least; negative: how late its rows "
            "come, or how far it is behind, at most; null when that is unknown",
        ),
        Column(
            "clock_skew_reason",
            STRING,
            "why clock_skew_ms is null: NOT_TOLD (by an earlier shipper) or BACKLOG",
        ),
    ),
    ("emitter", "seq_to"),
)

SKEW_SHIPMENTS: Final = 12
"""A minute of an emitter that has nothing to report."""
BACKLOG_ROWS: Final = 5_000
"""A shipment of so many rows is followed by the next one at once: it had waited."""
SKEWS: Final = pa.schema([("emitter", pa.string()), ("skew_us", pa.int64())])
"""Of each emitter the last SKEW_SHIPMENTS, in order; null where it was not reported."""


def emitter_health(given: Given) -> Made:
    """One row per shipment that carried rows."""
    numbers = in_order(pa.concat_tables([given.state["ahead"], given.facts[ROW_NUMBERS]]))
    shipments = given.facts["shipments"]
    if given.emitters is not None:
        own = pa.array(sorted(given.emitters), pa.string())
        shipments = shipments.filter(
            pc.is_in(pc.cast(shipments["emitter"], pa.string()), value_set=own)
        )
    is_carried = pc.greater_equal(shipments["seq_to"], shipments["seq_from"])
    carried = shipments.filter(is_carried)
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
    skews, carried_skews = _skews(shipments, given.state["skews"])
    columns |= {name: column.filter(is_carried) for name, column in skews.items()}
    ahead = numbers.filter(pa.array(is_ahead))
    is_changed = ahead.num_rows or given.state["ahead"].num_rows
    state = {"ahead": ahead} if is_changed else {}
    if shipments.num_rows:
        state["skews"] = carried_skews
    return Made(as_declared(columns, EMITTER_HEALTH), state)


def _skews(shipments: pa.Table, known: pa.Table) -> tuple[dict[str, pa.ChunkedArray], pa.Table]:
    """Per shipment the skew and why it is unknown; and what is carried on."""
    last: dict[str, deque[int | None]] = {}
    for row in known.to_pylist():
        last.setdefault(row["emitter"], deque(maxlen=SKEW_SHIPMENTS)).append(row["skew_us"])
    skews: list[int | None] = []
    why: list[str | None] = []
    for row in shipments.select(_OF_SKEW).to_pylist():
        shipped_us = row["shipped_us"]
        recent = last.setdefault(row["emitter"], deque(maxlen=SKEW_SHIPMENTS))
        recent.append(None if shipped_us is None else row["event_us_to"] - shipped_us)
        skew_us = max((one for one in recent if one is not None), default=None)
        is_backlog = row["seq_to"] - row["seq_from"] + 1 >= BACKLOG_ROWS
        reason: str | None = None
        if skew_us is None:
            reason = "NOT_TOLD"
        elif is_backlog and skew_us < -CLOCK_SKEW_ALLOWED_US:
            reason = "BACKLOG"
        skews.append(None if reason or skew_us is None else skew_us // MS_US)
        why.append(reason)
    rows = [
        {"emitter": emitter, "skew_us": one}
        for emitter, ones in sorted(last.items())
        for one in ones
    ]
    made = {
        "clock_skew_ms": pa.chunked_array([pa.array(skews, pa.int64())]),
        "clock_skew_reason": pa.chunked_array([pa.array(why, pa.string())]),
    }
    return made, pa.Table.from_pylist(rows, SKEWS)


_OF_SKEW: Final = ("emitter", "seq_from", "seq_to", "event_us_to", "shipped_us")


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
    carries={"ahead": NUMBERS, "skews": SKEWS},
)
