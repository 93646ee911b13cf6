"""Counts the messages lost in a hole of the log, as far as the consume queues know.

Place in the walk: `recovery` and `store check` report it. Absent on purpose: which messages it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.store.consume_queue import ConsumeQueue
from engine.store.holes import Hole


@dataclass(frozen=True, slots=True)
class LostMessages:
    """A hole, and what the queues know of it."""

    hole: Hole
    messages: int
    """Messages that the queues knew to lie there: at least so many are lost."""
    queues: int
    """Queues that lost some of them."""

    def sentence(self) -> str:
        """For an operator."""
        hole = self.hole
        return (
            f"commit log: hole [{hole.start}, {hole.end}), {hole.size_bytes} bytes that were on "
            f"disk and cannot be read ({hole.reason}); {self.messages} messages of {self.queues} "
            f"queues known to be lost; pulls pass over it, everything else is kept"
        )


def lost_in(hole: Hole, queues: Iterable[ConsumeQueue]) -> LostMessages:
    """Count the units that lead into the hole, and those that bridge it."""
    counts = [queue.count_between(hole.start, hole.end) for queue in queues]
    return LostMessages(hole, sum(counts), sum(count > 0 for count in counts))
