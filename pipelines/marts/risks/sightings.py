"""Detects signs of duplicates: falling offsets, repeated pulls and second deliveries.

A second delivery comes from another place than the first.

Place in the walk: offset_violations, redeliveries and retry_dlq_flow → events and revisions.
Invariant: an observed re-delivery comes from the broker's own redeliveries, never from a
prediction. Absent on purpose: anything carried; each row says all it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.offset_violations import UNACCOUNTED
from pipelines.marts.risks.events import Event, Place
from pipelines.marts.risks.windows import Revision
from pipelines.staging.facts import is_one_of

_CAUSES: Final = {
    "DELIVERED": "SEND_BACK",
    "SENT_AGAIN": "SEND_RETRY",
    "INVISIBLE_TIME_EXPIRED": "INVISIBLE_TIME_EXPIRED",
}
"""Of steps that deliver a message once more."""


def falls(violations: pa.Table) -> Iterator[Event]:
    """An accepted report lowered the committed offset, by an operator's reset or for no known
    reason.
    """
    is_fall = is_one_of(violations["law"], "MONOTONIC")
    counts = is_one_of(violations["cause"], "RESET", *UNACCOUNTED)
    fallen = violations.filter(pc.and_(is_fall, counts))
    moments_us = pc.cast(fallen["observed_at"], pa.int64()).to_pylist()
    for row, event_us in zip(
        fallen.drop_columns(["observed_at"]).to_pylist(), moments_us, strict=True
    ):
        yield Event(
            place=Place.of(row),
            seq=row["seq"],
            event_us=event_us,
            type="OPENING",
            basis="OFFSET_FALL",
            cause="RESET" if row["cause"] == "RESET" else "REWIND",
            client_id=row["client_id"],
            from_offset=row["offset"],
            to_offset=row["previous_offset"],
        )


def redelivered(redeliveries: pa.Table) -> Iterator[Event]:
    """A pull brought messages again; `cause` is the best guess, used when no window expected it."""
    for row in redeliveries.to_pylist():
        is_other_life = row["broker_epoch_before"] != row["broker_epoch"]
        is_other_client = row["client_id"] != row["previous_client_id"]
        yield Event(
            place=Place.of(row),
            seq=row["seq"],
            event_us=row["event_us"],
            type="REDELIVERY",
            basis="REDELIVERY",
            cause="BROKER_CRASH" if is_other_life else "HAND_OVER" if is_other_client else "REWIND",
            client_id=row["previous_client_id"],
            next_client_id=row["client_id"],
            from_offset=row["from_offset"],
            to_offset=row["to_offset"],
            messages=row["messages"],
        )


def delivered_once_more(steps: pa.Table) -> Iterator[Revision]:
    """A message that was delivered once more from another place, opened and closed at once: surely
    a duplicate.

    Because it failed (SEND_BACK), because a POP group did not acknowledge it within its invisible
    time (INVISIBLE_TIME_EXPIRED), or because its producer sent it again and both copies are stored
    (SEND_RETRY). The window lies where the message was first, and where the copy is that was sent
    again.
    """
    is_known = pc.is_valid(steps["origin_topic"])
    for name in ("origin_queue_id", "origin_offset"):
        is_known = pc.and_(is_known, pc.is_valid(steps[name]))
    again = steps.filter(pc.and_(is_known, is_one_of(steps["step"], *_CAUSES)))
    for row in again.to_pylist():
        cause = _CAUSES[row["step"]]
        begin, end = row["origin_offset"], row["origin_offset"] + 1
        place = Place.of({**row, "topic": row["origin_topic"], "queue_id": row["origin_queue_id"]})
        yield {
            **place._asdict(),
            "opened_us": row["event_us"],
            "revision": 1,
            "basis": cause,
            "cause": cause,
            "client_id": None,
            "next_client_id": None,
            "from_offset": begin,
            "to_offset": end,
            "certain": None,
            "uncertain": None,
            "redelivered_from": begin,
            "redelivered_to": end,
            "redelivered": 1,
            "observed_us": row["event_us"],
            "seq": row["seq"],
            "state": "CLOSED",
            "told_by": "AGAIN",
            "message_id": row["message_id"],
        }
