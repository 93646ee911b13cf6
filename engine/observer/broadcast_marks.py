"""Marks of broadcasting groups, whose members keep their own offsets.

Place in the walk: under `facts`. Pure. Absent on purpose: offsets.
"""

from __future__ import annotations

from typing import Final

from engine.foundation.observing import GroupWatermark
from engine.observer.members_seen import GroupSeen
from engine.protocol.bodies import TopicOffset

BROADCASTING: Final = "BROADCASTING"


def broadcast_mark(
    key: tuple[str, str, int], ends: TopicOffset, known: GroupSeen
) -> GroupWatermark:
    """The mark of a queue of such a group: where the queue ends, and how many members there are."""
    return GroupWatermark(
        *key,
        pulled=None,
        processed=None,
        committed=None,
        persisted=None,
        committed_state="NONE",
        store_time_at_committed_ms=None,
        min_offset=ends.min_offset,
        max_offset=ends.max_offset,
        last_store_time_ms=ends.last_update_timestamp_ms or None,
        last_puller=None,
        lock_holder=None,
        last_pull_time_ms=None,
        last_commit_time_ms=None,
        reports=0,
        message_model=BROADCASTING,
        members=known.member_count,
        members_unknown_reason=known.unknown_reason,
    )
