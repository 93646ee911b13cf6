"""Tracks messages that a crash would redeliver because a queue's commits have stalled.

They are judged on ticks.

Place in the walk: judged rows in trouble → revisions with the basis EXPOSURE, which
duplicate_risk_windows words. An exposure opens at the first tick that shows it, is revised when its
range has changed on the ten-second grid, and is closed at the first tick without it. Carried: the
open ones. Invariant: cutting the ticks into other cycles gives the same revisions.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pipelines.marts.judging.judged_rows import PERIOD_US
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.mart import Given, Made, Step

NAME: Final = "exposures"

REVISIONS: Final = pa.schema(
    [
        ("emitter", pa.string()),
        ("cluster", pa.string()),
        ("broker", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("opened_us", pa.int64()),
        ("revision", pa.int32()),
        ("basis", pa.string()),
        ("cause", pa.string()),
        ("client_id", pa.string()),
        ("next_client_id", pa.string()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("certain", pa.int64()),
        ("uncertain", pa.int64()),
        ("redelivered_from", pa.int64()),
        ("redelivered_to", pa.int64()),
        ("redelivered", pa.int64()),
        ("observed_us", pa.int64()),
        ("seq", pa.int64()),
        ("state", pa.string()),
        ("told_by", pa.string()),
        ("message_id", pa.string()),
        ("from_offset_opened", pa.int64()),
    ]
)
"""A revision of an interval in which a queue's messages might be doubled, before it is worded."""
OPEN: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("opened_us", pa.int64()),
        ("revision", pa.int64()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("client_id", pa.string()),
    ]
)
"""Open exposures, by the number of their queue."""

Row = dict[str, Any]


def exposures(given: Given) -> Made:
    """One row per revision of an interval in which a crash would have repeated messages."""
    judged = given.facts[JUDGED_QUEUES]
    troubled = judged.filter(judged["is_troubled"])
    if not troubled.num_rows:
        return Made(STEP.none)
    known = {row["number"]: row for row in given.state["open"].to_pylist()}
    revisions = []
    for row in troubled.sort_by("tick_us").to_pylist():
        exposure = known.get(row["number"])
        if row["is_exposed"]:
            revisions.extend(_exposed(known, exposure, row))
        elif exposure is not None:
            del known[row["number"]]
            revisions.append(_revision({**exposure, "revision": exposure["revision"] + 1}, row))
    left = [known[one] for one in sorted(known)]
    return Made(
        pa.Table.from_pylist(revisions, REVISIONS), {"open": pa.Table.from_pylist(left, OPEN)}
    )


def _exposed(known: dict[int, Row], exposure: Row | None, row: Row) -> list[Row]:
    """The revision of an exposure that begins, or that goes on with another range."""
    reach = (row["committed"], row["pulled"])
    if exposure is not None:
        was = (exposure["from_offset"], exposure["to_offset"])
        if row["tick_us"] % PERIOD_US or reach == was:
            return []
    revised = {
        "number": row["number"],
        "opened_us": exposure["opened_us"] if exposure else row["tick_us"],
        "revision": (exposure["revision"] if exposure else 0) + 1,
        "from_offset": row["committed"],
        "to_offset": row["pulled"],
        "client_id": row["client_id"] or (exposure["client_id"] if exposure else None),
    }
    known[row["number"]] = revised
    return [_revision(revised, row)]


def _revision(exposure: Row, row: Row) -> Row:
    """The columns of a revision; what is not named is unknown."""
    is_open = row["is_exposed"]
    return {
        **{name: row[name] for name in REVISIONS.names if name in row},
        **{name: exposure[name] for name in OPEN.names if name != "number"},
        "client_id": row["client_id"] or exposure["client_id"],
        "basis": "EXPOSURE",
        "cause": "CONSUMER_CRASH",
        "uncertain": row["held_count"] if is_open else None,
        "redelivered": 0,
        "observed_us": row["tick_us"],
        "state": "OPEN" if is_open else "CLOSED",
        "told_by": "OPENED" if is_open else "PASSED",
    }


STEP: Final = Step(NAME, (JUDGED_QUEUES,), exposures, {"open": OPEN}, makes=REVISIONS)
