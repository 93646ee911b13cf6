"""Finds readers that the broker sent to an offset below what their group had pulled.

Place in the walk: offset_answers → events. A reader that begins anew asks the broker where; what
the group has pulled from there on comes again, below the committed offset as well when the answer
is stale. A reader that asks again begins where it was reported last.

Invariant: the range is that of the answer's instant. Absent on purpose: readers that were reported
that there is no offset. Where they begin is configured at the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among
from pipelines.marts.risks.events import Event, Place

_KEYS: Final = pa.schema(QUEUE_FIELDS)


def answered(answers: pa.Table, windows: pa.Table, others: Iterable[Event]) -> Iterator[Event]:
    """Where readers were reported to begin. An answer at or beyond what was pulled puts nothing at
    risk; it counts where something is, by `windows` that are open, `others` or another answer, and
    may take back what an earlier one did. At a rebalance almost all answers are such.
    """
    is_known = pc.and_(pc.is_valid(answers["told_offset"]), pc.is_valid(answers["pulled"]))
    known = answers.filter(is_known)
    if not known.num_rows:
        return
    goes_back = pc.less(known["told_offset"], known["pulled"])
    places = [{name: getattr(event.place, name) for name in QUEUE_KEY} for event in others]
    at_risk = pa.concat_tables(
        [
            windows.select(QUEUE_KEY),
            known.filter(goes_back).select(QUEUE_KEY).cast(_KEYS),
            pa.Table.from_pylist(places, _KEYS),
        ]
    )
    counts = pc.or_(goes_back, are_among(known, at_risk.unify_dictionaries(), QUEUE_KEY))
    for row in known.filter(counts).to_pylist():
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
