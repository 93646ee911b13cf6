"""Marks externally polled rows and gives the margin of error of their timestamps.

Place in the walk: lifecycle → per emitter that watches a broker from outside how often it asks, for
marts that show figures of queues and groups. Carried: the last report of each. What is polled each
ten seconds may have changed up to ten seconds before its row, or after it: OBSERVED rows have an
error of a period, rows of a broker that reports on itself none. Invariant: which cycle a row is in
changes nothing. Absent on purpose: clocks that differ (`lifecycle.skew_ms`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.judging.packed import UNKNOWN, Flags, as_column, numbers
from pipelines.marts.mart import Given, Made, Positions, Step
from pipelines.staging.facts import is_one_of

NAME: Final = "polled"
OBSERVED: Final = "OBSERVED"
PERIODS: Final = pa.schema(
    [
        ("emitter", pa.string()),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("report_each_ms", pa.int64()),
    ]
)
"""From which moment on each emitter polls how often, in the order of what it reported."""


def polled(given: Given) -> Made:
    """All that was reported, up to the end of the cycle."""
    lifecycle = given.facts["lifecycle"]
    news = lifecycle.filter(
        pc.and_(is_one_of(lifecycle["kind"], OBSERVED), pc.is_valid(lifecycle["report_each_ms"]))
    )
    new = news.select(PERIODS.names).cast(PERIODS)
    known = pa.concat_tables([given.state["periods"], new]).sort_by(
        [("emitter", "ascending"), ("seq", "ascending")]
    )
    if not new.num_rows:
        return Made(known)
    emitters = known["emitter"].to_pylist()
    last = [row for row, one in enumerate(emitters) if emitters[row + 1 : row + 2] != [one]]
    return Made(known, {"periods": known.take(pa.array(last, pa.int64()))})


def errors_ms(rows: pa.Table, periods: pa.Table, *, by: str) -> Positions:
    """How far the moments of each row may be off; UNKNOWN: they are not, as they were reported, or
    nobody said how far. `by`: seq or event_us, the column by which rows and periods follow.
    """
    found = np.full(rows.num_rows, UNKNOWN)
    if not periods.num_rows or not rows.num_rows:
        return found
    emitters, places = rows["emitter"], numbers(rows[by])
    is_own: dict[str, Flags] = {}
    for period in periods.to_pylist():  # Of several before a row the last one counts.
        emitter = period["emitter"]
        if emitter not in is_own:
            is_own[emitter] = np.asarray(is_one_of(emitters, emitter)).astype(bool)
        found[is_own[emitter] & (places >= period[by])] = period["report_each_ms"]
    return found


def changed_messages(error_ms: Positions, per_minute: Positions) -> pa.Array:
    """By how many messages a figure changes meanwhile, at the rate that it has; null when either is
    not known.
    """
    is_known = (error_ms != UNKNOWN) & (per_minute != UNKNOWN)
    product = np.where(is_known, np.abs(per_minute), 0) * np.where(is_known, error_ms, 0)
    return as_column(np.where(is_known, -(-product // 60_000), UNKNOWN))


def marked(provenance: pa.Array, error_ms: Positions) -> pa.Array:
    """EXACT of what was reported stays; of what was polled it is OBSERVED."""
    is_polled = pa.array(error_ms != UNKNOWN)
    if not is_polled.true_count:
        return provenance
    words = pc.cast(provenance, pa.string())
    is_exact = pc.fill_null(pc.equal(words, "EXACT"), False)
    return pc.if_else(pc.and_(is_polled, is_exact), OBSERVED, words).dictionary_encode()


STEP: Final = Step(
    NAME,
    ("lifecycle", "shipments"),
    polled,
    {"periods": PERIODS},
    makes=PERIODS,
    wakes=("shipments",),
)
