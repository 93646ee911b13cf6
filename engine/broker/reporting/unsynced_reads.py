"""Newest messages that groups pulled before they were synced, and those lost since.

One message a queue is kept; lost are those of an earlier life that its log no longer has.

Place in the walk: sampling notes which queues were pulled beyond what is synced, `offset_reuse`
reads their messages and reports them, and reports when the offset of a lost one names another
message.

Invariant: a queue waits once; of lost messages at most HANDED_TAILS_MAX are known, as the spool
carries no more. Absent on purpose: messages, the log, reporting.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from engine.broker.groups.readers import QueueKey
from engine.foundation.observing import HandedTail

Queue = tuple[str, int]
"""topic, queue_id"""


@dataclass(frozen=True, slots=True)
class Pulled:
    """How far a group had pulled a queue beyond what was synced."""

    group: str
    pulled_offset: int
    client_id: str | None


@dataclass(frozen=True, slots=True)
class LostTail:
    """A message of an earlier life that its log has lost."""

    tail: HandedTail
    queue_end: int
    """Where the queue ended when this life began: from there on offsets are given again."""


class UnsyncedReads:
    """Those of one broker."""

    def __init__(self) -> None:
        self._pulled: dict[Queue, Pulled] = {}
        self.lost: dict[Queue, LostTail] = {}
        """Tails whose offsets nobody has got yet."""

    def pulled(self, key: QueueKey, pulled_offset: int, client_id: str | None) -> None:
        """A group is beyond what is synced; the furthest of a queue counts. Hot."""
        known = self._pulled.get(key[1:])
        if known is None or known.pulled_offset < pulled_offset:
            self._pulled[key[1:]] = Pulled(key[0], pulled_offset, client_id)

    def take_pulled(self, count_max: int) -> list[tuple[Queue, Pulled]]:
        """So many of them that were not taken yet; nobody waits for the rest, which may be synced
        by then.
        """
        taken, self._pulled = list(islice(self._pulled.items(), count_max)), {}
        return taken

    def forget_topic(self, topic: str) -> None:
        """The topic and its messages are gone: what comes under its name has offsets of its own."""
        for queues in (self._pulled, self.lost):
            for queue in [queue for queue in queues if queue[0] == topic]:
                del queues[queue]
