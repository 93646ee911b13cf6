"""Limits the total load that all connections place on a server.

Place in the walk: beside the connections of one server. Each reports what it holds; here are the
sums, and the decisions at their limits (`foundation.limits`):

    requests under way   a peer that sends more is not read from, until half of them have ended
    unfinished frames    the connection is closed whose frame began first
    answers not taken    the connection is closed that is to get more

Invariant: a sum is that of the connections alive. Nobody else waits for one that reads slowly or
stops within a frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from engine.foundation.limits import OUTPUT_BYTES_MAX, REQUEST_BYTES_MAX, UNFINISHED_FRAME_BYTES_MAX


class Holder(Protocol):
    """A connection, as its party's load sees it."""

    unfinished_bytes: int
    unfinished_since_ms: int

    def read_on(self) -> None:
        """The party is no longer crowded."""
        ...

    def evict(self, reason: str) -> None:
        """Close it now, with a warning."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Load:
    """The sums of one party."""

    request_bytes_max: int = REQUEST_BYTES_MAX
    unfinished_bytes_max: int = UNFINISHED_FRAME_BYTES_MAX
    output_bytes_max: int = OUTPUT_BYTES_MAX
    request_bytes: int = field(default=0, init=False)
    """Bodies of requests that are under way."""
    unfinished_bytes: int = field(default=0, init=False)
    """Bytes of frames that have begun to arrive."""
    output_bytes: int = field(default=0, init=False)
    """Bytes of answers that slow readers have not taken."""
    _unfinished: dict[Holder, None] = field(default_factory=dict, init=False)
    _waiting: dict[Holder, None] = field(default_factory=dict, init=False)

    def add_requests(self, change_bytes: int) -> None:
        """Requests began (or, below 0, ended)."""
        self.request_bytes += change_bytes
        if change_bytes < 0 and self._waiting and self.request_bytes <= self.request_bytes_max // 2:
            waiting, self._waiting = self._waiting, {}
            for holder in waiting:
                holder.read_on()

    def is_crowded_by(self, holder: Holder) -> bool:
        """Must it wait? It is reported by `read_on` when it need not any more."""
        if self.request_bytes <= self.request_bytes_max:
            return False
        self._waiting[holder] = None
        return True

    def add_unfinished(self, holder: Holder, change_bytes: int) -> None:
        """Its unfinished frame grew, or (below 0) was finished; `holder` knows its new size."""
        self.unfinished_bytes += change_bytes
        if holder.unfinished_bytes:
            self._unfinished[holder] = None
        else:
            self._unfinished.pop(holder, None)
        while self.unfinished_bytes > self.unfinished_bytes_max:
            oldest = min(self._unfinished, key=lambda each: each.unfinished_since_ms)
            oldest.evict("its frame is the oldest of too many that are not finished")

    def add_output(self, change_bytes: int) -> bool:
        """A slow reader is to get more (or, below 0, took some): is it too much in all?"""
        self.output_bytes += change_bytes
        return self.output_bytes > self.output_bytes_max

    def forget(self, holder: Holder) -> None:
        """It is gone; what it held was given back before."""
        self._waiting.pop(holder, None)
        self._unfinished.pop(holder, None)
