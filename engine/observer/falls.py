"""Detects consume offsets that fell between two looks.

Place in the walk: under `facts`. Pure. Absent on purpose: by whose hand, which no look shows.
"""

from __future__ import annotations

from engine.foundation.observing import GroupWatermark, OffsetReport


def fall_of(mark: GroupWatermark, before: int | None, path: str) -> OffsetReport | None:
    """That a consume offset is lower than at the look before, or than in the broker's life before;
    None when it is not. Of a queue that ends below where the group was, it is not known what fell:
    it may be another one.
    """
    committed = mark.committed
    if committed is None or before is None or not committed < before <= mark.max_offset:
        return None
    return OffsetReport(
        *(mark.group, mark.topic, mark.queue_id),
        offset=committed,
        previous_offset=before,
        path=path,
        trigger="UNKNOWN",
        client_id=None,
        accepted=True,
        min_offset=mark.min_offset,
        max_offset=mark.max_offset,
    )
