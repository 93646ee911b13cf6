"""Evidence for FLOW_CONTROL_SPAN: the lowest unfinished message of a queue whose pulls rest.

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

from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.sentences.causes import not_pulled

Row = Mapping[str, Any]

FLOW_CONTROL_MS: Final = 1_000
"""Pulls that rested for less of a minute, over all queues, are no cause."""
KINDS: Final = ("COUNT", "BYTES", "SPAN")
"""What clients hold too much of when their pulls rest: messages, bytes, or what lies beyond an
unfinished message.
"""
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
    """The remembered part of a window; None when its pulls do not rest for SPAN."""
    if window["resting"] != "SPAN" or window["first_held"] is None or window["dropped"]:
        return None
    since_us, seen_us = window["head_since_us"], window["last_pull_us"]
    age_us = None if since_us is None or seen_us is None else max(0, seen_us - since_us)
    return {name: window.get(name) for name in RESTS.names} | {"head_age_us": age_us}


def worst_rest(rests: Sequence[Row], *, tick_us: int) -> tuple[int | None, str]:
    """The queue with the most messages behind its head, and the sentence about it; nothing of
    none.
    """
    if not rests:
        return None, ""
    row = max(rests, key=lambda row: (_behind(row), -row["queue_id"]))
    age_us = row["head_age_us"]
    if age_us is not None:
        age_us = max(0, age_us + tick_us - row["event_us"]) // SECOND_US * SECOND_US
    return row["queue_id"], not_pulled(
        row, age_us=age_us, behind=_behind(row), others=len(rests) - 1
    )


def _behind(row: Row) -> int:
    return int((row["finished_count"] or 0) + row["held_count"] - 1)
