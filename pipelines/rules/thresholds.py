"""Flags lag that stays above a threshold for a given time.

Place in the walk: the third rule set of a comparison, beside ours and Burrow's: what most alerts on
lag are.

Invariant: exact in time whatever the distance of ticks, since a lag stands between observations.
Absent on purpose: hysteresis, windows, rates. One message fewer for an instant begins it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import ConfigError
from pipelines.rules.observations import (
    Kind,
    Observation,
    State,
    Ticks,
    Verdict,
    as_intervals,
    in_order,
)

OK: Final = State("OK", is_bad=False)
LAGGING: Final = State("LAGGING", is_bad=True)
NO_END: Final = State("NO_END_OFFSET", is_bad=None)
NO_COMMIT: Final = State("NO_COMMIT", is_bad=None)
GONE: Final = State("GONE", is_bad=None)


@dataclass(slots=True)
class _Known:
    """What has been observed up to now."""

    end: int | None = None
    committed: int | None = None
    is_gone: bool = False
    above_since_us: int | None = None
    """Since when the lag is above the limit; null: it is not."""

    def take(self, one: Observation, lag_max: int) -> None:
        match one.kind:
            case Kind.END:
                self.end, self.is_gone = one.offset, False
            case Kind.COMMIT:
                self.committed = one.offset
            case Kind.GONE:
                self.end, self.committed, self.is_gone = None, None, True
        if self.end is None or self.committed is None or self.end - self.committed <= lag_max:
            self.above_since_us = None
        elif self.above_since_us is None:
            self.above_since_us = one.at_us


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A queue is LAGGING when its lag has been above `lag_max` for `for_s` without a break."""

    lag_max: int
    """Messages behind that are fine."""
    for_s: int
    """Seconds that more are fine, too."""

    def __post_init__(self) -> None:
        if self.lag_max < 0:
            raise ConfigError("lag_max", self.lag_max, "messages, 0 or more")
        if self.for_s < 0:
            raise ConfigError("for_s", self.for_s, "seconds, 0 or more")

    @property
    def name(self) -> str:
        """Limit and time."""
        return f"lag > {self.lag_max} for {self.for_s} s"

    def judge(self, observations: Sequence[Observation], ticks: Ticks) -> list[Verdict]:
        """Verdicts on a queue; before its first end and commit nothing is known."""
        return as_intervals(self._states(in_order(observations), ticks))

    def _states(
        self, observations: Sequence[Observation], ticks: Ticks
    ) -> Iterator[tuple[int, State]]:
        known = _Known()
        taken = 0
        for tick_us in ticks:
            while taken < len(observations) and observations[taken].at_us <= tick_us:
                known.take(observations[taken], self.lag_max)
                taken += 1
            yield tick_us, self._state(known, tick_us)

    def _state(self, known: _Known, tick_us: int) -> State:
        if known.is_gone:
            return GONE
        if known.end is None:
            return NO_END
        if known.committed is None:
            return NO_COMMIT
        since_us = known.above_since_us
        if since_us is None or tick_us - since_us < self.for_s * 1_000_000:
            return OK
        return LAGGING
