"""Flags watermarks whose time lag is unknown because the broker's clock was adjusted.

Place in the walk: group_watermarks and lifecycle → a flag a row, for all that show how long
messages wait. Carried: the last step of each emitter's clock.

Invariant: a message that was stored before the clock was set, or while it makes up for that, has an
age that nobody knows. Absent on purpose: verdicts; `pipelines.marts.judging.ticks` has those.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import MS_US
from pipelines.marts.judging.packed import UNKNOWN, numbers
from pipelines.marts.judging.ticks import CLOCK_STEPPED, is_set_by
from pipelines.marts.mart import Given, Made, Step
from pipelines.staging.facts import is_one_of

NAME: Final = "timeless"
FLAGGED: Final = pa.schema([("is_timeless", pa.bool_())])
"""A row per row of group_watermarks, in its order."""
STEPS: Final = pa.schema([("emitter", pa.string()), ("seq", pa.int64()), ("until_us", pa.int64())])
"""Clocks that were set, the last step of each emitter: how long messages wait that were stored
before `until_us` is unknown in rows behind `seq`.
"""


def timeless(given: Given) -> Made:
    """Is it unknown how long the message at the consume offset waits?"""
    rows = given.facts["group_watermarks"]
    steps = [*given.state["steps"].to_pylist(), *_steps(given)]
    is_timeless = np.zeros(rows.num_rows, bool)
    if steps and rows.num_rows:
        emitters, seqs = pc.cast(rows["emitter"], pa.string()), numbers(rows["seq"])
        until_us = np.zeros(rows.num_rows, np.int64)
        for step in steps:  # In the order of seq: of several before a row the last one counts.
            is_later = np.asarray(pc.equal(emitters, step["emitter"])) & (seqs > step["seq"])
            until_us[is_later] = step["until_us"]
        since = numbers(rows["store_us_at_committed"])
        is_timeless = (since != UNKNOWN) & (since < until_us)
    last = {step["emitter"]: step for step in steps}
    left = pa.Table.from_pylist([last[emitter] for emitter in sorted(last)], STEPS)
    return Made(pa.table([pa.array(is_timeless)], schema=FLAGGED), {"steps": left})


def timely(given: Given) -> pa.Table:
    """The rows of group_watermarks with `is_timeless`; where it holds, the time lag is null."""
    rows, is_timeless = given.facts["group_watermarks"], given.facts[NAME]["is_timeless"]
    place = rows.schema.get_field_index("time_lag_us")
    known = pc.if_else(is_timeless, pa.scalar(None, pa.int64()), rows["time_lag_us"])
    return rows.set_column(place, "time_lag_us", known).append_column("is_timeless", is_timeless)


def _steps(given: Given) -> list[dict[str, Any]]:
    """What becomes of the clocks, in the order of seq: set, or right again in the next life."""
    until_us = {row["emitter"]: row["until_us"] for row in given.state["steps"].to_pylist()}
    lifecycle = given.facts["lifecycle"]
    rows = lifecycle.filter(is_one_of(lifecycle["kind"], CLOCK_STEPPED, "BOOT"))
    steps = []
    for row in rows.to_pylist():
        emitter, event_us = row["emitter"], row["event_us"]
        before = until_us.get(emitter, 0)
        step_us = (row.get("step_ms") or 0) * MS_US
        if row["kind"] == "BOOT":
            until = min(before, event_us)
        elif is_set_by(step_us):
            until = max(before, event_us + max(0, -step_us))
        else:
            continue
        if until != before:
            until_us[emitter] = until
            steps.append({"emitter": emitter, "seq": row["seq"], "until_us": until})
    return steps


STEP: Final = Step(
    NAME, ("group_watermarks", "lifecycle"), timeless, {"steps": STEPS}, makes=FLAGGED
)
