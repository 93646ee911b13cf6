"""Builds an answer from one table's rows, with a sentence and a figure.

Place in the walk: `handle` reads and asks; here rows become an `Answer` with the columns that a
person looks at first, a drawing, and a sentence about what may be believed. Absent on purpose:
which rows answer a question (handle), and the sentences (pipelines/sentences).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from pipelines.reading.reading import Reading
from pipelines.reading.rollbacks import BOOTS, NO_BOOTS, rollbacks
from pipelines.tm import drawing
from pipelines.tm.arguments import Asked, asked_of
from pipelines.tm.clusters import NOTHING_NAMED, Answer
from pipelines.tm.results import FIRST
from pipelines.tm.withholding import believed


def windows_of(reading: Reading, name: str, asked: Asked) -> pl.DataFrame:
    """Newest revisions of the windows of a table that a question names."""
    return reading.windows(name, *asked.place, since=asked.since, until=asked.until)


def rollbacks_in(reading: Reading, windows: pl.DataFrame) -> pl.DataFrame:
    """Risk windows that opened together, with the boots that explain them."""
    if windows.is_empty():
        return rollbacks(windows, NO_BOOTS)
    since: datetime = windows["opened_at"].dt.min()  # type: ignore[assignment]
    return rollbacks(windows, reading.facts("lifecycle", BOOTS, since=since))


def answer_of_events(
    reading: Reading,
    name: str | None,
    *,
    table: str,
    say: Callable[[Asked, pl.DataFrame], str],
    **named: Any,
) -> Answer:
    """Rows of a table of events that a question names."""
    asked = asked_of(reading, group=name, **named)
    rows = reading.rows(table, *asked.place, *asked.times, since=asked.since)
    return judged_answer(reading, asked, table, rows, say=say)


def judged_answer(
    reading: Reading,
    asked: Asked,
    table: str,
    rows: pl.DataFrame,
    *,
    say: Callable[[Asked, pl.DataFrame], str],
) -> Answer:
    """Rows, drawn as what they are about, and what is said of those that may be believed."""
    return table_answer(
        reading,
        believed(reading, asked, table, lambda doubts: say(asked, doubts.rest_of(rows))),
        rows,
        table,
        draw=drawing.of(reading, asked, rows),
        asked=asked,
    )


def table_answer(
    reading: Reading,
    verdict: str,
    rows: pl.DataFrame,
    table: str,
    *,
    draw: Any = None,
    asked: Asked = NOTHING_NAMED,
    first: Sequence[str] | None = None,
) -> Answer:
    """Rows of one table, the columns that a person looks at first."""
    wanted = FIRST.get(table, ()) if first is None else first
    first = tuple(name for name in wanted if name in rows.columns)
    ordered = rows.select(*first, *(name for name in rows.columns if name not in first))
    return Answer(reading, verdict, ordered, table, draw, first, asked)
