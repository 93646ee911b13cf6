"""Assigns each queue of a group a permanent number, its row index in every judge's state.

Place in the walk: group_watermarks → numbers, which consumer_lag, judged_queues and group_state
share, so that texts are looked up once a cycle.

Invariant: numbers begin at 0, have no gaps, and stay; a new queue has the next one at its first
row. Absent on purpose: queues without a state of a group.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, as_text, positions_of
from pipelines.marts.mart import Given, Made, Positions, Step

NAME: Final = "queue_numbers"
NUMBERED: Final = pa.schema([("number", pa.int64()), ("is_first", pa.bool_())])
"""A row per row of group_watermarks, in its order."""
QUEUES: Final = pa.schema(QUEUE_FIELDS)


def queue_numbers(given: Given) -> Made:
    """The number of each row's queue; is the row the first of it?"""
    rows, known = given.facts["group_watermarks"], given.state["queues"]
    found, first = positions_of(known, rows, QUEUE_KEY)
    is_first = np.zeros(rows.num_rows, bool)
    is_first[first] = True
    made = pa.table([pa.array(found), pa.array(is_first)], schema=NUMBERED)
    if not len(first):
        return Made(made)
    grown = np.arange(known.num_rows, known.num_rows + len(first))
    return Made(made, {"queues": with_rows(known, rows, first)}, {"queues": grown})


def own_numbers(known: pa.Table, rows: pa.Table, numbered: pa.Table) -> tuple[Positions, Positions]:
    """`positions_of` the queues of `rows` in `known`, the keys of a judge that counts them itself:
    each queue is looked up once, by the number (NUMBERED) that it has here.
    """
    number = np.asarray(numbered["number"])
    if not len(number):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    shown = np.zeros(int(number.max()) + 1, np.int64)
    order = np.arange(len(number))
    shown[number[::-1]] = order[::-1]  # Of several assignments to one place the last stays.
    first = np.flatnonzero(shown[number] == order)
    found, new = positions_of(known, rows.select(QUEUE_KEY).take(pa.array(first)), QUEUE_KEY)
    shown[number[first]] = found
    return shown[number], first[new]


def with_rows(known: pa.Table, rows: pa.Table, chosen: Positions) -> pa.Table:
    """`known` with the chosen rows at its end, in the columns of `known`."""
    new = rows.select(known.schema.names).take(pa.array(chosen))
    columns = [
        as_text(column) if field.type == KEY_TEXT else column.cast(field.type)
        for column, field in zip(new.columns, known.schema, strict=True)
    ]
    appended = pa.table(columns, schema=known.schema)
    return pa.concat_tables([known, appended]).unify_dictionaries().combine_chunks()


STEP: Final = Step(NAME, ("group_watermarks",), queue_numbers, {"queues": QUEUES}, makes=NUMBERED)
