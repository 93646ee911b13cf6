"""Balance sheet for failed messages: how many were sent back and what became of them.

Place in the walk: retry_dlq_flow → gold retry_flow. Carried: totals, and counts of slots that are
not over.

    sent_back = scheduled + dead_lettered           each failure is tried again, or given up
    scheduled = delivered + delayed                 what is tried again waits for its delay first
    delivered + redriven = failed_again + retried   and then it fails again, or it does not (yet)

In a POP group a message also comes back when its invisible time ran out, which is no failure:
`came_back` stands beside `delivered` in the third line, `came_back_again` beside `failed_again`.

`difference` is what the first line does not account for; it must be 0, and `difference_reason` says
why it is not. Invariant: totals are those since the first fact of the lake. Absent on purpose:
which of `retried` still wait to be consumed. A retry topic holds the messages of all origins; the
group's lag on it is a row of consumer_lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MS_US, SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import GROUP_AT, LONG, STAMP, STRING, as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.slots import (
    HORIZONS,
    Values,
    contributions,
    counted_on,
    ones,
    slots_of,
    summed,
    totalled,
)
from pipelines.sentences.losses import unaccounted
from pipelines.staging.facts import is_one_of

SLOT_US: Final = 10 * SECOND_US
UNKNOWN_ORIGIN: Final = ""
"""Of messages whose origin nobody reported; null in the table."""

RETRY_FLOW: Final = GoldTable(
    "retry_flow",
    "group, broker, topic of origin and ten seconds in which messages failed or were due again; "
    "totals at their end",
    (
        *GROUP_AT,
        Column(
            "origin_topic", STRING, "topic the messages were first sent to; null when not reported"
        ),
        must("sent_back", LONG, "failures so far"),
        must("scheduled", LONG, "of these, to be tried again"),
        must("delivered", LONG, "of these, in the retry topic when their delay was over"),
        must("delayed", LONG, "scheduled - delivered: waiting for their delay"),
        must("failed_again", LONG, "failures of messages that had failed before"),
        must(
            "retried",
            LONG,
            "delivered + redriven + came_back - failed_again - came_back_again: consumed, or "
            "waiting in the retry topic",
        ),
        must("dead_lettered", LONG, "messages given up so far"),
        must("redriven", LONG, "dead letters put into the retry topic again"),
        must("discarded", LONG, "dead letters that somebody decided to discard"),
        must("expired", LONG, "dead letters that retention removed before anybody decided"),
        must("difference", LONG, "sent_back - scheduled - dead_lettered; 0 when the sheet closes"),
        Column("difference_reason", STRING, "why it does not; null when it does"),
        *STAMP,
        Column(
            "overdue",
            LONG,
            "scheduled messages whose delay was over by the end, and that had not come by then: a "
            "few on their way, or those that a delay level keeps for ever",
        ),
        Column(
            "came_back",
            LONG,
            "copies that a POP group gets once more, as nobody acknowledged them within their "
            "invisible time: no failures; null in rows of earlier versions",
        ),
        Column("came_back_again", LONG, "of these, copies of messages that had come back before"),
    ),
    ("emitter", "group", "origin_topic", "observed_at"),
    on_ticks="true",
)
_STEPS: Final = {
    "sent_back": "SENT_BACK",
    "scheduled": "SCHEDULED",
    "delivered": "DELIVERED",
    "dead_lettered": "DEAD_LETTERED",
    "redriven": "REDRIVEN",
    "discarded": "DISCARDED",
    "expired": "EXPIRED",
}
_CAME_BACK: Final = "INVISIBLE_TIME_EXPIRED"
_COUNTS: Final = (*_STEPS, "failed_again", "due", "came_back", "came_back_again")
_COUNTED_SINCE: Final = ("due", "came_back", "came_back_again")
"""Counts that lakes of earlier versions do not carry, in the order in which they came."""
_ORIGIN: Final = ("cluster", "broker", "emitter", "group", "origin_topic")
COUNTED: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _ORIGIN),
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
        *((name, pa.int64()) for name in _COUNTS),
    ]
)
"""Counts of slots that are not over; or totals, with the last slot reported."""


def retry_flow(given: Given) -> Made:
    """One row per group, broker, topic of origin and ten seconds with steps of failed messages."""
    state = {name: _whole(rows) for name, rows in given.state.items()}
    new = _contributions(given.facts["retry_dlq_flow"])
    counted, carried = counted_on(state, given.facts["shipments"], [new], (*_ORIGIN, "slot_us"))
    if not counted.num_rows:
        return Made(MART.none, carried)
    rows = pa.concat_tables([state["totals"], counted.sort_by("slot_us")])
    rows = rows.unify_dictionaries().combine_chunks()
    rows, carried["totals"] = totalled(rows, _ORIGIN, _COUNTS)
    return Made(_rows(rows.slice(state["totals"].num_rows)), carried)


def _whole(rows: pa.Table) -> pa.Table:
    """What is carried; of a lake that began before something was counted, with none of it."""
    is_counted = rows.schema.names[: len(_ORIGIN)] == list(_ORIGIN)
    for name in _COUNTED_SINCE if is_counted else ():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.zeros(rows.num_rows, np.int64)))
    return rows.select(COUNTED.names) if is_counted else rows


def _contributions(steps: pa.Table) -> pa.Table:
    keys = {name: steps[name] for name in (*_ORIGIN[:-1], "seq")}
    keys["origin_topic"] = pc.fill_null(pc.cast(steps["origin_topic"], pa.string()), UNKNOWN_ORIGIN)
    counts = {name: ones(is_one_of(steps["step"], step)) for name, step in _STEPS.items()}
    has_failed_before = pc.greater(steps["reconsume_times"], 1)
    counts["failed_again"] = ones(pc.and_(is_one_of(steps["step"], "SENT_BACK"), has_failed_before))
    has_come_back = is_one_of(steps["step"], _CAME_BACK)
    counts["came_back"] = ones(has_come_back)
    counts["came_back_again"] = ones(pc.and_(has_come_back, has_failed_before))
    at_once = contributions(keys, slots_of(steps["event_us"], SLOT_US), counts, COUNTED)
    both = pa.concat_tables([at_once, due_later(keys, steps, COUNTED)])
    return summed(both, (*_ORIGIN, "slot_us"))


def due_later(keys: Mapping[str, Values], steps: pa.Table, schema: pa.Schema) -> pa.Table:
    """Scheduled messages, as `due` of the slot in which their delay will be over."""
    is_timed = pc.and_(is_one_of(steps["step"], "SCHEDULED"), pc.is_valid(steps["delay_ms"]))
    delay_us = pc.multiply(pc.fill_null(steps["delay_ms"], 0), MS_US)
    slots_us = slots_of(pc.add(steps["event_us"], delay_us), SLOT_US)
    return contributions(keys, slots_us, {"due": ones(is_timed)}, schema).filter(is_timed)


def _rows(totals: pa.Table) -> pa.Table:
    columns = {name: totals[name] for name in totals.column_names}
    origin = pc.cast(totals["origin_topic"], pa.string())
    difference = pc.subtract(
        totals["sent_back"], pc.add(totals["scheduled"], totals["dead_lettered"])
    )
    delayed = pc.subtract(totals["scheduled"], totals["delivered"])
    in_topic = pc.add(pc.add(totals["delivered"], totals["redriven"]), totals["came_back"])
    taken_again = pc.add(totals["failed_again"], totals["came_back_again"])
    columns |= {
        "observed_us": totals["slot_us"],
        "origin_topic": pc.if_else(pc.equal(origin, UNKNOWN_ORIGIN), None, origin),
        "delayed": delayed,
        "retried": pc.subtract(in_topic, taken_again),
        "difference": difference,
        "overdue": pc.max_element_wise(
            pc.subtract(totals["due"], totals["delivered"]), pa.scalar(0, pa.int64())
        ),
        "difference_reason": pa.array(_reasons(np.asarray(difference)), pa.string()),
    }
    return as_declared(columns, RETRY_FLOW)


def _reasons(differences: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str | None]:
    return [unaccounted(one) if one else None for one in differences.tolist()]


MART: Final = mart(
    RETRY_FLOW,
    retry_flow,
    reads=("retry_dlq_flow", "shipments"),
    carries={"counted": COUNTED, "totals": COUNTED, "horizons": HORIZONS},
)
