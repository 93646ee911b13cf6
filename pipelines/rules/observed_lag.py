"""Time lags of an observed cluster: bronze rows of polls in, estimates with their errors out.

Place in the walk: beside consumer_lag, which projects what our engine tells exactly. An observed
cluster's group_watermarks have no `store_time_at_committed`; its polled ends, in queue_watermarks
and in the same rows, say between which two polls the message was stored (`time_lag`).

Invariant: a row is judged by the polls up to it alone. An end that is not reported again has not
changed: bars are wider by that, and hold all the same. Absent on purpose: rows whose store time is
told, broadcast groups (their offsets are their members' own), Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.microseconds import micros
from pipelines.rules.from_bronze import Row
from pipelines.rules.time_lag import PolledEnds

_QueueKey = tuple[str, str, str, int]


def observed_time_lags(
    queue_watermarks: Iterable[Row], group_watermarks: Iterable[Row]
) -> list[dict[str, Any]]:
    """One row per row of group_watermarks without a store time: its key, seq and time, and
    consumer_lag's columns of the time lag.
    """
    asked = [row for row in group_watermarks if _is_asked(row)]
    timeline = [(_place(row), False, row) for row in queue_watermarks]
    timeline += [(_place(row), True, row) for row in asked]
    # Of one instant polls come first: then the end is known as of the very row that is judged.
    timeline.sort(key=lambda entry: (entry[0][0], entry[1], entry[0][1]))
    ends: dict[_QueueKey, PolledEnds] = {}
    judged = []
    for (at_us, _), is_question, row in timeline:
        key = (row["cluster"], row["broker"], row["topic"], row["queue_id"])
        polled = ends.setdefault(key, PolledEnds())
        polled.add(row["max_offset"], at_us // 1000)
        if is_question:
            judged.append(_judged(row, polled, at_us))
    return judged


def _is_asked(row: Row) -> bool:
    return row["store_time_at_committed"] is None and row["message_model"] != "BROADCASTING"


def _place(row: Row) -> tuple[int, int]:
    return micros(row["event_time"]), row["seq"]


def _judged(row: Row, polled: PolledEnds, at_us: int) -> dict[str, Any]:
    found = polled.time_lag(row["committed"], now_ms=at_us // 1000, min_offset=row["min_offset"])
    return {
        **{name: row[name] for name in ("cluster", "group", "topic", "broker", "queue_id", "seq")},
        "observed_us": at_us,
        "time_lag_ms": found.lag_ms,
        "time_lag_error_ms": found.error_ms,
        "time_lag_least_ms": found.least_ms,
        "provenance": found.provenance.value,
        "unknown_reason": found.reason.value if found.reason else None,
    }
