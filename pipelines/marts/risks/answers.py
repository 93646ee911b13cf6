"""Readers that were told to begin below what their group had pulled.

Place in the walk: offset_answers → events. A reader that begins anew asks the broker where; what
the group has pulled from there on comes again, below the committed offset as well when the answer
is stale.

Invariant: the range is that of the answer's instant. Absent on purpose: readers that were told that
there is no offset. Where they begin is configured at the client.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.risks.events import Event, Place


def answered(answers: pa.Table) -> Iterator[Event]:
    """Answers that put messages at risk."""
    goes_back = pc.fill_null(pc.less(answers["told_offset"], answers["pulled"]), False)
    for row in answers.filter(goes_back).to_pylist():
        is_same = row["client_id"] is not None and row["client_id"] == row["last_puller"]
        yield Event(
            place=Place.of(row),
            seq=row["seq"],
            event_us=row["event_us"],
            type="ANSWER",
            basis="OFFSET_ANSWER",
            cause="CONSUMER_CRASH" if is_same else "HAND_OVER",
            client_id=row["last_puller"],
            next_client_id=row["client_id"],
            from_offset=row["told_offset"],
            to_offset=row["pulled"],
        )
