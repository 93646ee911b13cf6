"""Counts the scheduled, released, waiting and overdue retries at each delay level.

Place in the walk: retry_dlq_flow → gold delayed_retries. Beside retry_flow, which closes the sheet
by topic of origin, this says where a message waits: a delay is a level, and a level is one queue of
the broker, so a level that stands shows as overdue messages of its delay in every group.

    scheduled = released + waiting        overdue: of waiting, those whose delay is over

A broker that is watched from outside shows where its delay levels stand (`delay_levels`), not whose
messages these hold: its rows are of the group `*`, one a change, and messages that were sent with a
delay count as well. A broker of an earlier version does not say of which delay a message came out:
how many of its group are overdue is unknown from then on. Carried: totals, and counts of slots that
are not over.

Invariant: totals are those since the first fact of the lake. Absent on purpose: single messages.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import GROUP_AT, LONG, STAMP, as_declared
from pipelines.marts.keys import numbered
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.retry_flow import SLOT_US, due_later
from pipelines.marts.slots import (
    HORIZONS,
    contributions,
    counted_on,
    ones,
    running,
    slots_of,
    summed,
    totalled,
)
from pipelines.staging.facts import is_one_of

DELAYED_RETRIES: Final = GoldTable(
    "delayed_retries",
    "group, broker, delay and ten seconds in which messages that failed were scheduled, due or "
    "released; totals at their end",
    (
        *GROUP_AT,
        must("delay_ms", LONG, "the delay; each delay level has its own"),
        must("scheduled", LONG, "messages scheduled for it so far"),
        must("released", LONG, "of these, put into the retry topic or given up since"),
        must("waiting", LONG, "scheduled - released"),
        Column(
            "overdue",
            LONG,
            "of waiting, messages whose delay was over by the end: a few on their way, or those "
            "that the level does not release; null when the delay of one that came out is unknown",
        ),
        *STAMP,
    ),
    ("emitter", "group", "delay_ms", "observed_at"),
    on_ticks="true",
)
_UNTOLD: Final = -1
"""Inside the state, in place of a delay that was not reported."""
_COUNTS: Final = ("scheduled", "released", "due")
_GROUP: Final = ("cluster", "broker", "emitter", "group")
_DELAY: Final = (*_GROUP, "delay_ms")
COUNTED: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _GROUP),
        *((name, pa.int64()) for name in ("delay_ms", "slot_us", "seq", *_COUNTS)),
    ]
)
"""Counts of slots that are not over; or totals, with the last slot reported."""


def delayed_retries(given: Given) -> Made:
    """One row per group, broker, delay and ten seconds in which something of it happened."""
    state = given.state
    new = _contributions(given.facts["retry_dlq_flow"])
    counted, carried = counted_on(state, given.facts["shipments"], [new], (*_DELAY, "slot_us"))
    seen = _levels(given.facts["delay_levels"])
    if not counted.num_rows:
        return Made(seen, carried)
    # What came out of an unreported delay lies before the others of its slot.
    counted = counted.sort_by([("slot_us", "ascending"), ("delay_ms", "ascending")])
    rows = pa.concat_tables([state["totals"], counted]).unify_dictionaries().combine_chunks()
    untold = np.where(np.asarray(rows["delay_ms"]) == _UNTOLD, np.asarray(rows["released"]), 0)
    of_group, _ = numbered(rows, _GROUP)
    untold = running(pa.table({"untold": untold}), of_group, ("untold",))["untold"]
    rows, carried["totals"] = totalled(rows, _DELAY, _COUNTS)
    shown = rows.append_column("untold", pa.array(untold)).slice(state["totals"].num_rows)
    own = _rows(shown.filter(pc.not_equal(shown["delay_ms"], _UNTOLD)))
    return Made(pa.concat_tables([own, seen]), carried)


def _levels(levels: pa.Table) -> pa.Table:
    """Rows of brokers that are watched from outside."""
    columns = {name: levels[name] for name in levels.column_names}
    columns |= {
        "observed_us": levels["event_us"],
        "scheduled": levels["end_offset"],
        "released": levels["next_offset"],
        "waiting": pc.max_element_wise(
            pc.subtract(levels["end_offset"], levels["next_offset"]), pa.scalar(0, pa.int64())
        ),
    }
    return as_declared(columns, DELAYED_RETRIES)


def _contributions(steps: pa.Table) -> pa.Table:
    delay_ms = steps["delay_ms"]
    is_scheduled = pc.and_(is_one_of(steps["step"], "SCHEDULED"), pc.is_valid(delay_ms))
    # Of what is given up at once no delay is reported.
    is_given_up = pc.and_(is_one_of(steps["step"], "DEAD_LETTERED"), pc.is_valid(delay_ms))
    is_released = pc.or_(is_one_of(steps["step"], "DELIVERED"), is_given_up)
    keys = {name: steps[name] for name in (*_GROUP, "seq")}
    keys["delay_ms"] = pc.fill_null(delay_ms, _UNTOLD)
    counts = {"scheduled": ones(is_scheduled), "released": ones(is_released)}
    at_once = contributions(keys, slots_of(steps["event_us"], SLOT_US), counts, COUNTED)
    at_once = at_once.filter(pc.or_(is_scheduled, is_released))
    both = pa.concat_tables([at_once, due_later(keys, steps, COUNTED)])
    return summed(both, (*_DELAY, "slot_us"))


def _rows(totals: pa.Table) -> pa.Table:
    columns = {name: totals[name] for name in totals.column_names}
    waiting = pc.subtract(totals["scheduled"], totals["released"])
    overdue = pc.max_element_wise(
        pc.subtract(totals["due"], totals["released"]), pa.scalar(0, pa.int64())
    )
    columns |= {
        "observed_us": totals["slot_us"],
        "waiting": waiting,
        "overdue": pc.if_else(pc.equal(totals["untold"], 0), overdue, None),
    }
    return as_declared(columns, DELAYED_RETRIES)


MART: Final = mart(
    DELAYED_RETRIES,
    delayed_retries,
    reads=("retry_dlq_flow", "delay_levels", "shipments"),
    carries={"counted": COUNTED, "totals": COUNTED, "horizons": HORIZONS},
)
