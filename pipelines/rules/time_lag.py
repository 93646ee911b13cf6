"""Time lag of a queue of which only the end offset is polled: an estimate, and how wrong it may be.

Place in the walk: clusters that are observed from outside do not tell the store time of the message
at a committed offset. Their polls do: a message below the end at one poll and not at the poll
before was stored between the two.

A queue's polls are kept as points (end offset, time), rising in both. A message lies between the
last point at or below its offset and the next point above; linear between them, wrong by no more
than the way to the farther one. An end that falls begins a new life: the queue was made again, or
lost its newest messages. Points above the new end go; those below it stay as lower bounds alone,
for nobody can tell whether the messages below the new end are those of before.

Invariant: `least_ms` and `most_ms` hold the truth for every history of the queue that passes
through the polled points and falls only where they fall. A later offset has never a larger lag.
Absent on purpose: infinities, NaN, clocks. Where nothing can be known, a reason says why.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.foundation.errors import ConfigError

POINTS_MAX: Final = 120
"""Points kept of a queue. Beyond it the least telling one goes, so that old polls grow sparse: with
a poll each 30 s, a day back is known to about a twentieth of its age.
"""
POINTS_MIN: Final = 3
"""Two ends, and one between them to give up."""


class Provenance(StrEnum):
    """Where a time lag comes from, in the words of gold's consumer_lag."""

    INTERPOLATED = "INTERPOLATED"
    """Between two polls of one life of the queue, or nothing waited at a poll of this instant."""
    EXTRAPOLATED = "EXTRAPOLATED"
    """Beyond the newest poll, or across a fall of the end."""
    PURGED = "PURGED"
    UNKNOWN = "UNKNOWN"


class Reason(StrEnum):
    """Why a time lag is unknown."""

    NO_OFFSET = "NO_OFFSET"
    """The group has committed nothing."""
    NO_POLLS = "NO_POLLS"
    BEFORE_FIRST_POLL = "BEFORE_FIRST_POLL"
    """The message was there before anybody looked; the lag is `least_ms` at least."""
    AHEAD_OF_END = "AHEAD_OF_END"
    """The offset lies beyond the end that was polled at this very instant."""
    PURGED = "PURGED"
    """The queue keeps the message no more."""


class Polled(StrEnum):
    """What became of a poll."""

    ADDED = "ADDED"
    EXTENDED = "EXTENDED"
    """The newest point moves: on in time while the end stands, or up within one ms."""
    NEW_LIFE = "NEW_LIFE"
    """The end fell."""
    OUT_OF_ORDER = "OUT_OF_ORDER"
    """Before the newest poll, or of its ms and no higher: passed over."""


@dataclass(frozen=True, slots=True)
class TimeLag:
    """How long the message at a committed offset has waited; 0 when nothing waits."""

    lag_ms: int | None
    """The estimate; null: unknown."""
    error_ms: int | None
    """Half-width: the truth lies within `lag_ms` ± `error_ms`."""
    provenance: Provenance
    reason: Reason | None = None
    """Why it is unknown; null when it is known."""
    least_ms: int | None = None
    """It has waited this long at least; known more often than the lag itself."""
    most_ms: int | None = None
    """And this long at most."""


class PolledEnds:
    """The polls of one queue's end offset."""

    def __init__(self, *, points_max: int = POINTS_MAX) -> None:
        if points_max < POINTS_MIN:
            raise ConfigError("points_max", points_max, f"{POINTS_MIN} or more")
        self._points_max = points_max
        self._offsets: list[int] = []
        self._times_ms: list[int] = []
        self._life_began_ms: int | None = None
        """First poll after the newest fall of the end; null: it never fell."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def points(self) -> list[tuple[int, int]]:
        """(end offset, time) of each poll that is kept, oldest first."""
        return list(zip(self._offsets, self._times_ms, strict=True))

    def add(self, max_offset: int, time_ms: int) -> Polled:
        """Take a poll: at `time_ms` the next offset to be written was `max_offset`."""
        offsets, times_ms = self._offsets, self._times_ms
        if times_ms and time_ms <= times_ms[-1]:
            if time_ms < times_ms[-1] or max_offset <= offsets[-1]:
                return Polled.OUT_OF_ORDER
            offsets[-1] = max_offset
            return Polled.EXTENDED
        polled = Polled.ADDED
        if offsets and max_offset < offsets[-1]:
            while offsets and offsets[-1] > max_offset:
                offsets.pop()
                times_ms.pop()
            self._life_began_ms = time_ms
            polled = Polled.NEW_LIFE
        elif offsets[-2:] == [max_offset, max_offset]:
            times_ms[-1] = time_ms
            return Polled.EXTENDED
        offsets.append(max_offset)
        times_ms.append(time_ms)
        if len(offsets) > self._points_max:
            self._give_up_one()
        return polled

    def time_lag(
        self, committed: int | None, *, now_ms: int, min_offset: int | None = None
    ) -> TimeLag:
        """How long the message at `committed` has waited at `now_ms`, no earlier than the newest
        poll. `min_offset`: the first message the queue still keeps, if that is known.
        """
        assert not self._times_ms or now_ms >= self._times_ms[-1], "a poll of the future"
        if committed is None:
            return _unknown(Reason.NO_OFFSET)
        if min_offset is not None and committed < min_offset:
            return _unknown(Reason.PURGED, Provenance.PURGED)
        if not self._offsets:
            return _unknown(Reason.NO_POLLS)
        if committed >= self._offsets[-1]:
            return self._beyond_newest(committed, now_ms)
        right = bisect_right(self._offsets, committed)
        latest_ms = max(self._times_ms[right], self._life_began_ms or self._times_ms[right])
        if right == 0:
            least_ms = now_ms - latest_ms
            return _unknown(Reason.BEFORE_FIRST_POLL, least_ms=least_ms)
        return self._between(right, committed, latest_ms, now_ms)

    def _beyond_newest(self, committed: int, now_ms: int) -> TimeLag:
        since_ms = now_ms - self._times_ms[-1]
        if since_ms:
            # It was not stored at the newest poll: it waits no longer than since then, if at all.
            return TimeLag(0, since_ms, Provenance.EXTRAPOLATED, least_ms=0, most_ms=since_ms)
        if committed > self._offsets[-1]:
            return _unknown(Reason.AHEAD_OF_END)
        return TimeLag(0, 0, Provenance.INTERPOLATED, least_ms=0, most_ms=0)

    def _between(self, right: int, committed: int, latest_ms: int, now_ms: int) -> TimeLag:
        """The message was stored after point `right` - 1, and no later than `latest_ms`."""
        earliest_ms = self._times_ms[right - 1]
        width_ms = latest_ms - earliest_ms
        if self._life_began_ms is not None and earliest_ms < self._life_began_ms:
            provenance = Provenance.EXTRAPOLATED
            stored_ms = earliest_ms + width_ms // 2
        else:
            provenance = Provenance.INTERPOLATED
            written = committed + 1 - self._offsets[right - 1]
            ends = self._offsets[right] - self._offsets[right - 1]
            stored_ms = earliest_ms + width_ms * written // ends
        return TimeLag(
            lag_ms=now_ms - stored_ms,
            error_ms=max(stored_ms - earliest_ms, latest_ms - stored_ms),
            provenance=provenance,
            least_ms=now_ms - latest_ms,
            most_ms=now_ms - earliest_ms,
        )

    def _give_up_one(self) -> None:
        """Drop the inner point whose neighbours are closest together for their age."""
        times_ms = self._times_ms
        newest_ms = times_ms[-1]

        def coarseness(inner: int) -> float:
            before_ms, after_ms = times_ms[inner - 1], times_ms[inner + 1]
            return (after_ms - before_ms) / (newest_ms - before_ms)

        least = min(range(1, len(times_ms) - 1), key=coarseness)
        del self._offsets[least], times_ms[least]


def _unknown(
    reason: Reason, provenance: Provenance = Provenance.UNKNOWN, *, least_ms: int | None = None
) -> TimeLag:
    return TimeLag(None, None, provenance, reason, least_ms=least_ms)
