"""Rolls up consumer_lag into one-minute, five-minute and hourly figures for each queue.

A row has the least, greatest and last lag of the slot, and which queue of its group was the worst.

Place in the walk: staged group_watermarks → gold consumer_lag_rollups, for readers of long ranges.
Carried: slots that are not over; a minute that is over goes into its five minutes, these into their
hour.

Invariant: a row is the aggregate of the rows of consumer_lag in its slot, the same however cycles
are cut. A slot is emitted once, when its emitter has reported everything up to its end; what comes
behind that (a clock was set back) counts into the slot in which it came. Absent on purpose: slots
in which a queue was not reported; its last report stands.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MS_US, SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import (
    BOOLEAN,
    INT,
    LONG,
    QUEUE_AT,
    STAMP,
    STRING,
    TIMESTAMP,
    as_declared,
)
from pipelines.marts.consumer_lag import unknown_reason
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, as_column, numbers, truncated
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.keys import numbered
from pipelines.marts.mart import Given, GoldTable, Made, Positions, mart
from pipelines.marts.slots import HORIZONS, horizons, is_over
from pipelines.marts.timeless import NAME as TIMELESS
from pipelines.marts.timeless import timely

SPANS_S: Final = (60, 300, 3600)
"""Each is a multiple of the one before, from which it is summed up."""

CONSUMER_LAG_ROLLUPS: Final = GoldTable(
    "consumer_lag_rollups",
    "group, topic, broker, queue, and minute, five minutes or hour in which it was reported",
    (
        *QUEUE_AT,
        must("span_s", INT, "length of the slot that ends at observed_at: 60, 300 or 3600 s"),
        Column("lag_min", LONG, "least known lag_messages; null when none was known"),
        Column("lag_max", LONG, "greatest known lag_messages; null when none was known"),
        Column("lag_last", LONG, "lag_messages of the last row; null when unknown"),
        Column("time_lag_ms_min", LONG, "least known time_lag_ms; null when none was known"),
        Column("time_lag_ms_max", LONG, "greatest known time_lag_ms; null when none was known"),
        Column("time_lag_ms_last", LONG, "time_lag_ms of the last row; null when unknown"),
        Column("unknown_reason", STRING, "why lag or time lag of the last row is null"),
        must("reports", LONG, "rows of consumer_lag in the slot"),
        must("last_at", TIMESTAMP, "observed_at of the last of them"),
        must(
            "is_worst",
            BOOLEAN,
            "of the queues of the group on this broker reported in the slot, the one with the "
            "greatest time lag, or lag; none when nothing was behind",
        ),
        *STAMP,
    ),
    ("cluster", "broker", "group", "topic", "queue_id", "span_s", "observed_at", "emitter"),
    on_ticks="true",
)

_KEY: Final = ("cluster", "broker", "emitter", "group", "topic", "queue_id")
_LEAST: Final = ("lag_min", "time_lag_us_min")
_GREATEST: Final = ("lag_max", "time_lag_us_max")
_LAST: Final = ("seq", "last_us", "lag_last", "time_lag_us_last")
_FIGURES: Final = (*_LEAST, *_GREATEST, *_LAST, "reports")
PARTIAL: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _KEY[:-1]),
        ("queue_id", pa.int32()),
        ("unknown_reason", KEY_TEXT),
        ("number", pa.int64()),
        ("slot_us", pa.int64()),
        *((name, pa.int64()) for name in _FIGURES),
    ]
)
"""What is known of a queue and slot so far; `slot_us` is the slot's end."""
_SLOTS: Final = {span_s: f"slots_{span_s}" for span_s in SPANS_S}


def consumer_lag_rollups(given: Given) -> Made:
    """One row per queue and slot in which it was reported, for each length of a slot."""
    state = given.state
    came = _behind_horizons(given)
    known = horizons(state["horizons"], given.facts["shipments"])
    carried = {"horizons": known}
    made = []
    news = _contributions(given, came)
    for span_s in SPANS_S:
        waiting = state[_SLOTS[span_s]]
        if news.num_rows:
            is_raw = span_s == SPANS_S[0]
            waiting = _combined(waiting, _of_slots(news, span_s), span_s=span_s, is_raw=is_raw)
            carried[_SLOTS[span_s]] = waiting
        over = _are_over(waiting, known)
        news = waiting.filter(over) if over is not None else PARTIAL.empty_table()
        if over is not None:
            carried[_SLOTS[span_s]] = waiting.filter(pc.invert(over))
            made.append(_rows(news, span_s))
    return Made(pa.concat_tables(made) if made else MART.none, carried)


def _behind_horizons(given: Given) -> Positions:
    """Per fact, the moment from which its slot follows: its own, or right behind the horizon that
    its emitter had reported before it.
    """
    rows, shipments = given.facts["group_watermarks"], given.facts["shipments"]
    event_us, seq = numbers(rows["event_us"]), numbers(rows["seq"])
    came = event_us.copy()
    if not rows.num_rows:
        return came
    of_row = rows["emitter"].combine_chunks()
    codes = np.asarray(of_row.indices)
    known = {row["emitter"]: row["event_us_to"] for row in given.state["horizons"].to_pylist()}
    names = shipments["emitter"].cast(pa.string())
    for code, emitter in enumerate(of_row.dictionary.to_pylist()):
        mine = np.flatnonzero(codes == code)
        own = shipments.filter(pc.equal(names, emitter)).sort_by("seq_to")
        ends = np.concatenate([[-1], numbers(own["seq_to"])])
        horizon = np.concatenate([[known.get(emitter, UNKNOWN)], numbers(own["event_us_to"])])
        before = horizon[np.searchsorted(ends, seq[mine], side="left") - 1]
        came[mine] = np.maximum(event_us[mine], np.where(before == UNKNOWN, UNKNOWN, before + 1))
    return came


def _contributions(given: Given, came: Positions) -> pa.Table:
    """What each fact says of its slot, in the order of facts; slots are those of the moments."""
    rows = timely(given)
    if not rows.num_rows:
        return PARTIAL.empty_table()
    lag, time_lag = rows["lag_messages"], rows["time_lag_us"]
    columns = {
        **{name: rows[name] for name in _KEY},
        "unknown_reason": unknown_reason(rows).cast(KEY_TEXT),
        "number": given.facts[QUEUE_NUMBERS]["number"],
        "slot_us": pa.array(came),
        **dict.fromkeys(("lag_min", "lag_max", "lag_last"), lag),
        **dict.fromkeys(("time_lag_us_min", "time_lag_us_max", "time_lag_us_last"), time_lag),
        "seq": rows["seq"],
        "last_us": rows["event_us"],
        "reports": pa.array(np.ones(rows.num_rows, np.int64)),
    }
    return pa.table([columns[name].cast(kind) for name, kind in _fields()], schema=PARTIAL)


def _fields() -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in PARTIAL]


def _of_slots(news: pa.Table, span_s: int) -> pa.Table:
    """The same with the ends of the slots in which its slots, or moments, lie."""
    span_us = span_s * SECOND_US
    ends = -(-numbers(news["slot_us"]) // span_us) * span_us
    return news.set_column(news.schema.get_field_index("slot_us"), "slot_us", pa.array(ends))


def _combined(waiting: pa.Table, news: pa.Table, *, span_s: int, is_raw: bool) -> pa.Table:
    """One row of each queue and slot. `is_raw`: the news lie in the order of seq, behind what
    waits; else they are put into it.
    """
    both = pa.concat_tables([waiting, news]).unify_dictionaries().combine_chunks()
    slot = numbers(both["slot_us"]) // (span_s * SECOND_US)
    least = int(slot.min())
    place = numbers(both["number"]) * (int(slot.max()) - least + 1) + (slot - least)
    if is_raw:
        order = np.argsort(place, kind="stable")
    else:
        order = np.lexsort((numbers(both["seq"]), place))
    is_first = np.concatenate([[True], np.diff(place[order]) != 0])
    first = np.flatnonzero(is_first)
    last = order[np.append(first[1:], len(order)) - 1]
    found = both.take(pa.array(last))
    made = {name: _reduced(np.minimum, both[name], order, first) for name in _LEAST}
    made |= {name: _reduced(np.maximum, both[name], order, first) for name in _GREATEST}
    made["reports"] = pa.array(np.add.reduceat(numbers(both["reports"])[order], first))
    for name, column in made.items():
        found = found.set_column(found.schema.get_field_index(name), name, column)
    return found


def _reduced(
    reduce: np.ufunc, column: pa.ChunkedArray, order: Positions, first: Positions
) -> pa.Array:
    """The least or greatest known value of each run of rows; null where none is known."""
    values = numbers(column)[order]
    if reduce is np.minimum:
        values = np.where(values == UNKNOWN, NEVER, values)
    found = reduce.reduceat(values, first)
    return as_column(np.where(found == NEVER, UNKNOWN, found))


def _are_over(waiting: pa.Table, known: pa.Table) -> pa.ChunkedArray | pa.Array | None:
    """Which slots are over; None when none is."""
    if not waiting.num_rows or not known.num_rows:
        return None
    if int(numbers(waiting["slot_us"]).min()) > int(numbers(known["event_us_to"]).max()):
        return None
    over = is_over(waiting, known)
    return over if pc.any(over).as_py() else None


def _rows(slots: pa.Table, span_s: int) -> pa.Table:
    columns = {name: slots[name] for name in slots.column_names}
    columns |= {
        "observed_us": slots["slot_us"],
        "span_s": pa.array(np.full(slots.num_rows, span_s)),
        "last_at": slots["last_us"],
        "is_worst": pa.array(_are_worst(slots)),
    }
    for end in ("min", "max", "last"):
        time_lag_us = numbers(slots[f"time_lag_us_{end}"])
        ms = np.where(time_lag_us == UNKNOWN, UNKNOWN, truncated(time_lag_us, MS_US))
        columns[f"time_lag_ms_{end}"] = as_column(ms)
    return as_declared(columns, CONSUMER_LAG_ROLLUPS)


def _are_worst(slots: pa.Table) -> Flags:
    """Per row: is its queue the worst of its group in the slot? Of equal ones the first by name."""
    of_group, _ = numbered(slots, ("emitter", "group", "slot_us"))
    # Unknown counts least; the least number of all has no counterpart above 0.
    figures = (numbers(slots[name]) for name in ("time_lag_us_max", "lag_max"))
    time_lag, lag = (np.maximum(one, UNKNOWN + 1) for one in figures)
    topic = _ranks(slots["topic"])
    order = np.lexsort((numbers(slots["queue_id"]), topic, -lag, -time_lag, of_group))
    is_first = np.concatenate([[True], np.diff(of_group[order]) != 0])
    worst = np.zeros(slots.num_rows, bool)
    worst[order[is_first]] = True
    return np.asarray(worst & ((time_lag > 0) | (lag > 0)))


def _ranks(texts: pa.ChunkedArray) -> Positions:
    """Numbers that lie in the order of the texts."""
    column = texts.unify_dictionaries().combine_chunks()
    names = np.asarray(column.dictionary.to_pylist(), dtype=object)
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(names, kind="stable")] = np.arange(len(names))
    return np.asarray(rank[np.asarray(column.indices)])


MART: Final = mart(
    CONSUMER_LAG_ROLLUPS,
    consumer_lag_rollups,
    reads=("group_watermarks", QUEUE_NUMBERS, TIMELESS, "shipments"),
    carries={**dict.fromkeys(_SLOTS.values(), PARTIAL), "horizons": HORIZONS},
    wakes=("group_watermarks", "shipments"),
)
