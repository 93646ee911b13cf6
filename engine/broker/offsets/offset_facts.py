"""Emits a row whenever a group's consume offset is reported or set.

Place in the walk: beside it; commits, resets, new lives, transactions and the audit at boot report
here what they did. See table consume_offsets. Absent on purpose: deciding.
"""

from __future__ import annotations

from engine.broker.groups.readers import QueueKey
from engine.foundation.observing import Observer, OffsetReport
from engine.store import MessageStore


class OffsetFacts:
    """Reports the consume offsets of one broker to its observer."""

    def __init__(self, *, store: MessageStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    def emit(
        self,
        key: QueueKey,
        offset: int,
        previous: int | None,
        *,
        path: str,
        trigger: str = "UNKNOWN",
        client_id: str | None = None,
        accepted: bool = True,
        held_back: int | None = None,
    ) -> None:
        """A group's offset of a queue was reported or set: one row."""
        group, topic, queue_id = key
        self._observer.observe(
            OffsetReport(
                group=group,
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                previous_offset=previous,
                path=path,
                trigger=trigger,
                client_id=client_id,
                accepted=accepted,
                min_offset=self._store.min_offset(topic, queue_id),
                max_offset=self._store.max_offset(topic, queue_id),
                held_back=held_back,
            )
        )
