"""Records when topics were recreated and their offsets started afresh.

Place in the walk: lifecycle → gold topic_lives, which pages show as a mark in time. Carried: when
each topic was deleted, for GONE_KEPT_US.

Invariant: one row a new life, in the partition of its emitter. Absent on purpose: groups
(`passed_over_messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from engine.telemetry.tables import Column, must
from pipelines.base.settings import DAY_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import BROKER_AT, STAMP, STRING, TIMESTAMP, TOPIC, rows_as_declared
from pipelines.marts.keys import recent
from pipelines.marts.lifecycle_events import MADE_AGAIN
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.staging.facts import is_one_of

TOPIC_LIVES: Final = GoldTable(
    "topic_lives",
    "topic of a broker that was made again after it had been deleted; observed_at is when",
    (
        *BROKER_AT,
        TOPIC,
        Column("gone_at", TIMESTAMP, "when it was deleted; null when that was long ago"),
        Column(
            "not_before",
            TIMESTAMP,
            "of a cluster that is watched from outside: the look before, at which the new life was "
            "not seen; null when its broker reported it",
        ),
        must("provenance", STRING, "EXACT, or OBSERVED: seen at a poll, not reported"),
        *STAMP,
    ),
    ("emitter", "seq"),
)

GONE_KEPT_US: Final = 30 * DAY_US
"""A topic that is made again later has none of its past: no client remembers it."""
GONE: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("topic", KEY_TEXT),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
    ]
)
"""Topics that were deleted and are not there."""
_MOMENTS: Final = pa.schema([GONE.field("emitter"), GONE.field("event_us")])


def topic_lives(given: Given) -> Made:
    """One row per topic and new life of it."""
    events = given.facts["lifecycle"]
    events = events.filter(is_one_of(events["kind"], "TOPIC_GONE", MADE_AGAIN))
    if given.emitters is not None and events.num_rows:
        events = events.filter(is_one_of(events["emitter"], *given.emitters))
    if not events.num_rows:
        return Made(MART.none)
    gone = {(row["emitter"], row["topic"]): row for row in given.state["gone"].to_pylist()}
    rows = []
    for event in events.to_pylist():
        key = event["emitter"], event["topic"]
        if event["kind"] == MADE_AGAIN:
            rows.append(_row(event, gone.pop(key, None)))
        else:
            gone[key] = {name: event[name] for name in GONE.names}
    kept = pa.Table.from_pylist(list(gone.values()), schema=GONE)
    moments = pa.concat_tables(
        [one.select(_MOMENTS.names).cast(_MOMENTS) for one in (kept, events)]
    )
    return Made(rows_as_declared(rows, TOPIC_LIVES), {"gone": recent(kept, moments, GONE_KEPT_US)})


def _row(event: Mapping[str, Any], gone: Mapping[str, Any] | None) -> dict[str, Any]:
    is_known = gone is not None and event["event_us"] - gone["event_us"] <= GONE_KEPT_US
    return {
        **event,
        "observed_us": event["event_us"],
        "gone_at": gone["event_us"] if gone is not None and is_known else None,
        "not_before": event["time_from_us"],
        "provenance": "EXACT" if event["time_from_us"] is None else "OBSERVED",
    }


MART: Final = mart(TOPIC_LIVES, topic_lives, reads=("lifecycle",), carries={"gone": GONE})
