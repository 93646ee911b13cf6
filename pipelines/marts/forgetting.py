"""Drops carried rows that are too old to matter.

Place in the walk: the end of a mart that remembers for a while. Invariant: time is that of the
emitter of a row, as its newest facts show; stamps never go back in one life of a broker, so nothing
that is forgotten would have been needed. Absent on purpose: the wall clock.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipelines.marts.keys import positions_of

_BY_EMITTER = ("emitter",)


def recent(rows: pa.Table, facts: pa.Table, span_us: int) -> pa.Table:
    """Returns the `rows` not older than `span_us` by the newest of `facts` of the same emitter."""
    if not rows.num_rows:
        return rows
    moments_us = np.asarray(rows["event_us"])
    of_facts, _ = positions_of(rows.slice(0, 0), facts, _BY_EMITTER)
    emitters = facts.take(pa.array(np.unique(of_facts, return_index=True)[1]))
    newest_us = np.full(emitters.num_rows + rows.num_rows, np.iinfo(np.int64).min)
    np.maximum.at(newest_us, of_facts, np.asarray(facts["event_us"]))
    of_rows, _ = positions_of(emitters, rows, _BY_EMITTER)
    return rows.filter(pa.array(newest_us[of_rows] <= moments_us + span_us))
