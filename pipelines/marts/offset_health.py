"""Counts offset reports and violations by cause for each group in ten-minute slots.

Place in the walk: consume_offsets and offset_violations → gold offset_health. Carried: counts of
slots that are not over.

Invariant: a group, broker and slot with reports has one row, emitted when the slot is over. A
refused report that is repeated counts in the slot of the row that counts it, ten minutes later at
most. Absent on purpose: single violations. They are rows of offset_violations.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import must
from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import GROUP_AT, LONG, STAMP, as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.slots import (
    HORIZONS,
    Values,
    contributions,
    counted_on,
    ones,
    slots_of,
    summed,
)
from pipelines.staging.facts import is_one_of

SLOT_US: Final = 600 * SECOND_US
LAWS: Final = ("MONOTONIC", "AT_MOST_MAX", "AT_LEAST_MIN")
CAUSES: Final = ("RESET", "BROKER_RESTART", "REPLAY", "HAND_OVER", "TWO_WRITERS", "UNEXPLAINED")

OFFSET_HEALTH: Final = GoldTable(
    "offset_health",
    "group, broker and ten minutes in which offsets were reported",
    (
        *GROUP_AT,
        must("reports", LONG, "reports that changed an offset, lowered it, or were refused"),
        must("refused", LONG, "of these, not stored"),
        must("violations", LONG, "broken laws; a report may break two"),
        *(must(law.lower(), LONG, f"of the violations, {law}") for law in LAWS),
        *(
            must(cause.lower(), LONG, f"of the violations, with the cause {cause}")
            for cause in CAUSES
        ),
        must("unaccounted", LONG, "two_writers and unexplained together"),
        *STAMP,
    ),
    ("emitter", "group", "observed_at"),
    on_ticks="true",
)
_COUNTS: Final = ("reports", "refused", "violations", *map(str.lower, (*LAWS, *CAUSES)))
_KEY: Final = ("cluster", "broker", "emitter", "group", "slot_us")
COUNTED: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _KEY[:-1]),
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
        *((name, pa.int64()) for name in _COUNTS),
    ]
)
"""Counts of slots that are not over."""


def offset_health(given: Given) -> Made:
    """One row per group, broker and ten minutes with reports."""
    new = [
        _reports(given.facts["consume_offsets"]),
        _violations(given.facts["offset_violations"]),
    ]
    counted, carried = counted_on(given.state, given.facts["shipments"], new, _KEY)
    columns = {name: counted[name] for name in counted.column_names}
    columns |= {
        "observed_us": counted["slot_us"],
        "unaccounted": pc.add(counted["two_writers"], counted["unexplained"]),
    }
    return Made(as_declared(columns, OFFSET_HEALTH), carried)


def _reports(reports: pa.Table) -> pa.Table:
    """What reports count for. Where a member goes on, and nobody reports it, is none."""
    is_seen = pc.and_(
        is_one_of(reports["path"], "OBSERVED", "PULL"), pc.invert(reports["accepted"])
    )
    reports = reports.filter(pc.invert(is_seen))
    repeated = pc.fill_null(reports["held_back"], 0)
    counts = {
        "reports": pc.add(ones(pc.is_valid(reports["seq"])), repeated),
        "refused": pc.add(ones(pc.invert(reports["accepted"])), repeated),
    }
    return _contributions(reports, reports["event_us"], counts)


def _violations(violations: pa.Table) -> pa.Table:
    """What violations count for."""
    moments_us = pc.cast(violations["observed_at"], pa.int64())
    counts = {"violations": ones(pc.is_valid(violations["law"]))}
    counts |= {law.lower(): ones(is_one_of(violations["law"], law)) for law in LAWS}
    counts |= {cause.lower(): ones(is_one_of(violations["cause"], cause)) for cause in CAUSES}
    return _contributions(violations, moments_us, counts)


def _contributions(rows: pa.Table, moments_us: Values, counts: dict[str, Values]) -> pa.Table:
    keys = {name: rows[name] for name in (*_KEY[:-1], "seq")}
    return summed(contributions(keys, slots_of(moments_us, SLOT_US), counts, COUNTED), _KEY)


MART: Final = mart(
    OFFSET_HEALTH,
    offset_health,
    reads=("consume_offsets", "offset_violations", "shipments"),
    carries={"counted": COUNTED, "horizons": HORIZONS},
)
