"""Builds the timeline of a message or a window from the rows of several tables.

Each row says when, what, and which table and fact it is from, so that it can be looked up there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from engine.foundation.errors import ConfigError
from pipelines.base.wording import plural
from pipelines.lake.lake import sql_text
from pipelines.lake.schemas import QUEUE
from pipelines.reading.catalogue import GOLD_TABLES, STALLED_WINDOWS
from pipelines.reading.known import began_at, stood_until
from pipelines.reading.moment import Moment, sql_time
from pipelines.reading.reading import LOOK_BACK, Reading, equals
from pipelines.sentences import stories as words
from pipelines.sentences.events import lag_text
from pipelines.tm.arguments import Asked, the_message

WINDOWED: Final = tuple(table.name for table in GOLD_TABLES if table.revised)
_SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "at": pl.Datetime("us", "UTC"),
    "what": pl.String,
    "source": pl.String,
    "group": pl.String,
    "topic": pl.String,
    "queue_id": pl.Int32,
    "seq": pl.Int64,
    "emitter": pl.String,
}
FIRST: Final = ("at", "what", "source")
"""The columns shown where a story is printed."""
Row = dict[str, Any]


def of_message(reading: Reading, message_id: str) -> pl.DataFrame:
    """Everything the lake knows about a message, oldest first."""
    if not message_id.strip():
        raise ConfigError("message_id", message_id, "the id of a message")
    is_it = f"message_id IN ({the_message(message_id)})"
    steps = reading.facts("retry_dlq_flow", is_it)
    rows = list(_as_steps(steps, "retry_dlq_flow", words.step, at="event_time"))
    rows += _as_steps(reading.rows("dead_letters", is_it), "dead_letters", words.dead_letter)
    rows += _as_steps(_risks(reading, is_it), "duplicate_risk_windows", words.risk)
    rows += _as_steps(_heads(reading, message_id), "stalled_windows", words.head)
    is_either = f"{is_it} OR message_id_before IN ({the_message(message_id)})"
    rows += _as_steps(
        reading.rows("replaced_messages", is_either), "replaced_messages", words.replaced
    )
    for place in _places(steps):
        rows += _as_steps(
            reading.facts("redeliveries", *place), "redeliveries", words.redelivery, at="event_time"
        )
        rows += _as_steps(_risks(reading, *place), "duplicate_risk_windows", words.risk)
    unique = {(row["source"], row["at"], row["what"], row["seq"]): row for row in rows}
    return _frame(unique.values())


def _risks(reading: Reading, *conditions: str) -> pl.DataFrame:
    return reading.windows("duplicate_risk_windows", *conditions)


def _heads(reading: Reading, message_id: str) -> pl.DataFrame:
    return reading.windows("stalled_windows", f"head_message_id IN ({the_message(message_id)})")


def _places(steps: pl.DataFrame) -> list[list[str]]:
    """SQL conditions: the ranges in which the message lay, once for each place it was seen in."""
    known = steps.drop_nulls(["origin_topic", "origin_queue_id", "origin_offset"])
    places = known.select("broker", "origin_topic", "origin_queue_id", "origin_offset").unique(
        maintain_order=True
    )
    return [
        [
            equals("broker", broker),
            equals("topic", topic),
            equals("queue_id", queue_id),
            f"from_offset <= {offset} AND to_offset > {offset}",
        ]
        for broker, topic, queue_id, offset in places.iter_rows()
    ]


def the_window(reading: Reading, given: Any) -> tuple[str, Row]:
    """(table, newest revision) of a window that was named by its id or by a row that has it."""
    window_id = given if isinstance(given, str) else _id_in(given)
    for name in WINDOWED:
        found = reading.windows(name, f"window_id = {sql_text(window_id)}")
        if found.height:
            return name, found.row(0, named=True)
    raise ConfigError(
        "window", window_id, f"the window_id of a row of {', '.join(WINDOWED)} in this lake"
    )


def as_it_is(reading: Reading, name: str, window: Row) -> Row:
    """An open stall with its figures of the moment, any other window as its newest revision is; and
    when each began.
    """
    if name != STALLED_WINDOWS.name:
        return {**window, "began_at": began_at(window)}
    revision = reading.windows(name, f"window_id = {sql_text(window['window_id'])}")
    here = [equals(column, window[column]) for column in QUEUE]
    lag = reading.newest("consumer_lag", *here)
    return stood_until(revision, lag, reading.moment).row(0, named=True)


def _id_in(given: Any) -> str:
    """The window id of a row: a mapping, a pandas row, or an answer with one row."""
    rows = getattr(given, "rows", None)
    if isinstance(rows, pl.DataFrame):
        if rows.height != 1 or "window_id" not in rows.columns:
            raise ConfigError("window", plural(rows.height, "row"), "an answer with one window")
        return str(rows["window_id"][0])
    try:
        return str(given["window_id"])
    except (KeyError, TypeError, IndexError):
        found = getattr(given, "window_id", None)  # A row of pandas' itertuples.
        if found is None:
            raise ConfigError("window", given, "a window_id, or a row that has one") from None
        return str(found)


def around(window: Row, moment: Moment) -> Asked:
    """The queue and interval of a window, with what it was judged from before it began."""
    slide_ms = int(window.get("slide_ms") or 5_000)
    before = timedelta(milliseconds=int(window.get("window_ms") or 0) + 2 * slide_ms)
    end = window["closed_at"] or moment.present
    return Asked(
        window["group"], window["topic"], window["queue_id"], window["opened_at"] - before, end
    )


def of_window(reading: Reading, name: str, window: Row) -> pl.DataFrame:
    """The evidence behind a window, oldest first."""
    asked = around(window, reading.moment)
    assert asked.group is not None
    here = [*asked.place, equals("broker", window["broker"])]
    revisions = reading.rows(name, f"window_id = {sql_text(window['window_id'])}")
    rows = list(_as_steps(revisions, name, words.revision))
    if "stack" in revisions.columns:
        rows += _as_steps(_with_new_stack(revisions), name, words.stack)
    lag = reading.rows("consumer_lag", *here, *asked.times, since=asked.since)
    if lag.is_empty() and asked.since is not None:  # Unchanged since before: its last report.
        lag = reading.newest("consumer_lag", *here, since=asked.since - LOOK_BACK)
    rows += _as_steps(lag, "consumer_lag", lag_text)
    changes = reading.rows(
        "rebalances", equals("group", asked.group), *asked.times, since=asked.since
    )
    rows += _as_steps(changes, "rebalances", words.change)
    again = reading.facts("redeliveries", *here, *_until(asked.until), since=asked.since)
    rows += _as_steps(again, "redeliveries", words.redelivery, at="event_time")
    return _frame(rows)


def _until(end: datetime | None) -> list[str]:
    return [f"event_time <= {sql_time(end)}"] if end is not None else []


def _as_steps(
    rows: pl.DataFrame, source: str, said: Callable[[Row], str], *, at: str = "observed_at"
) -> Iterable[Row]:
    for row in rows.iter_rows(named=True):
        topic = row["topic"] if "topic" in row else row.get("origin_topic")
        queue = row["queue_id"] if "queue_id" in row else row.get("origin_queue_id")
        yield {
            "at": row[at],
            "what": said(row),
            "source": source,
            "group": row.get("group"),
            "topic": topic,
            "queue_id": queue,
            "seq": row["seq"],
            "emitter": row["emitter"],
        }


def _frame(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=_SCHEMA).sort("at", "source", "seq", maintain_order=True)


def _with_new_stack(revisions: pl.DataFrame) -> pl.DataFrame:
    """Those that show another stack than the one before."""
    stacks = revisions.sort("revision").filter(pl.col("stack").is_not_null())
    return stacks.filter(pl.col("stack").ne_missing(pl.col("stack").shift(1)))
