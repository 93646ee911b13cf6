"""Why pulls of a queue rest, in words: what its lowest unfinished message is, and what lies behind.

Place in the walk: the newest client_windows of a group whose pulls rest for SPAN → the evidence of
FLOW_CONTROL_SPAN. A consumer hands out no more than `queue_span_max` messages beyond the lowest
one it has not finished, for a crash brings all of them again.

Invariant: times of a client are subtracted from each other alone; how long the window has stood
since is by the broker's clock. Pure. Absent on purpose: which rests are a cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pipelines.marts.mart import KEY_TEXT
from pipelines.settings import SECOND_US

Row = Mapping[str, Any]

FLOW_CONTROL_MS: Final = 1_000
"""Pulls that rested for less of a minute, over all queues, are no cause."""
WHY_PULLS_REST: Final = {
    "COUNT": "the clients held too many messages",
    "BYTES": "the clients held too many bytes",
    "SPAN": "too much lay beyond an unfinished message",
}
RESTS: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in ("emitter", "group", "topic", "client_id")),
        *((name, pa.int64()) for name in ("queue_id", "first_held", "held_count")),
        *((name, pa.int64()) for name in ("finished_count", "head_age_us", "event_us")),
    ]
)
"""Newest client_windows at rest for SPAN; head_age_us: how long the head had been in its listener
when the client answered, null when it is in none.
"""


def rest_of(window: Row) -> dict[str, Any] | None:
    """What is remembered of a window; None when its pulls do not rest for SPAN."""
    if window["resting"] != "SPAN" or window["first_held"] is None or window["dropped"]:
        return None
    since_us, seen_us = window["head_since_us"], window["last_pull_us"]
    age_us = None if since_us is None or seen_us is None else max(0, seen_us - since_us)
    return {name: window.get(name) for name in RESTS.names} | {"head_age_us": age_us}


def worst_rest(rests: Sequence[Row], *, tick_us: int) -> tuple[int | None, str]:
    """The queue with the most messages behind its head, and why its pulls rest; nothing of none."""
    if not rests:
        return None, ""
    row = max(rests, key=lambda row: (_behind(row), -row["queue_id"]))
    age_us, head = row["head_age_us"], f"offset {row['first_held']}"
    if age_us is None:
        head += " waits for another try"
    else:
        seconds = max(0, age_us + tick_us - row["event_us"]) // SECOND_US
        head += f" has been in a listener of {row['client_id']} for {seconds} s"
    also = f", and so it is with {len(rests) - 1} more" if len(rests) > 1 else ""
    return row["queue_id"], (
        f"queue {row['queue_id']} of {row['topic']}: pulling pauses, {head} and "
        f"{_behind(row):,} messages behind it are finished or held (queue_span_max){also}; "
    )


def _behind(row: Row) -> int:
    return int((row["finished_count"] or 0) + row["held_count"] - 1)
