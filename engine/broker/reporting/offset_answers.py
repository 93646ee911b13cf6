"""Emits rate-limited facts about the resume offsets returned to clients.

Place in the walk: behind `handlers/offset`. Who asks may begin there, and who read before may go
on: the messages between are consumed again. Absent on purpose: the answer itself; waiting for room:
rows beyond the rate are counted and not emitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.broker.groups.group_configs import TOOLS_GROUP, GroupConfigs
from engine.broker.groups.members import client_id_of
from engine.broker.groups.readers import DoubtfulReaders, QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics
from engine.foundation.limits import OFFSET_ANSWERS_TOLD_A_SECOND
from engine.foundation.observing import Observer, OffsetAnswer
from engine.foundation.units import SECOND_MS
from engine.remoting import Peer
from engine.runtime.clock import Clock


class RowsPerSecond:
    """How many were reported in the present second of steady time."""

    __slots__ = ("_count", "_count_max", "_second", "untold")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._second = self._count = 0
        self.untold = 0
        """Rows for which there was no room, ever."""

    def has_room(self, now_ms: int) -> bool:
        """May one more be reported now? It is counted then."""
        second = now_ms // SECOND_MS
        if second != self._second:
            self._second, self._count = second, 0
        if self._count >= self._count_max:
            self.untold += 1
            return False
        self._count += 1
        return True


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetAnswers:
    """The facts about the answers of one broker."""

    clock: Clock
    topics: Topics
    group_configs: GroupConfigs
    offsets: ConsumerOffsets
    readers: Readers
    doubtful_readers: DoubtfulReaders
    observer: Observer
    _answers: RowsPerSecond = field(
        default_factory=lambda: RowsPerSecond(OFFSET_ANSWERS_TOLD_A_SECOND), init=False
    )

    def emit(self, peer: Peer, key: QueueKey, offset: int | None) -> None:
        """The client was answered this offset: who goes on there, and what is known of it: the
        messages between are consumed again. A question about what is not here, or by a group that
        is not, is nobody's progress.
        """
        group, topic, queue_id = key
        client_id = client_id_of(peer)
        if (
            self.topics.find(topic) is None
            or group == TOOLS_GROUP
            or not (self.group_configs.known(group) or self.offsets.has_any(group))
            or not self._answers.has_room(self.clock.steady_ms())
        ):
            return
        reading = self.readers.of(key)
        if reading is not None:  # Who asked may begin, and who read before may go on.
            for name in {client_id: None, reading.last_puller: None}:
                if name is not None:
                    place = (topic, queue_id)
                    self.doubtful_readers.arises((group, name), place, self.clock.steady_ms())
        self.observer.observe(
            OffsetAnswer(
                client_id=client_id,
                group=group,
                topic=topic,
                queue_id=queue_id,
                told_offset=offset,
                committed=self.offsets.committed(*key),
                pulled=None if reading is None else reading.pulled_offset,
                last_puller=None if reading is None else reading.last_puller,
            )
        )
