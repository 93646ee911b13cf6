"""Steady clock for timing alerts, unaffected by jumps in any other clock.

Place in the walk: beside the life cycle, which waits by it. What is waited for is data time, but a
broker's clock may be set, and so may this process's; neither may make an alert fire, or end it. So
it goes on as data time does, yet no further than this process's own clock and SLACK_US; a leap of
both (a night's sleep, a restart) counts as GAP_US at most. Rules about the lake itself wait by this
process's clock alone: they alert when gold stands still.

Invariant: `advanced` with the same two moments again gives the same value. Absent on purpose: I/O;
it is stored with the alerts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.base.settings import MINUTE_US, SECOND_US

GAP_US: Final = MINUTE_US
"""Two looks that lie further apart than this are counted as this far."""
SLACK_US: Final = 15 * SECOND_US
"""Data time comes in leaps of a slide, process time does not: so far the first may be ahead. While
it stands, as between two slow cycles, process time is kept for it up to GAP_US."""
PAST_US: Final = 5 * MINUTE_US
"""Gold that is so far behind where it was, and behind now, says nothing of what is now."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The clock's time, and that of the two others when it was last read."""

    total_us: int = 0
    """What it shows, µs since it was begun."""
    data_us: int | None = None
    now_us: int | None = None
    credit_us: int = 0
    """Process time that data time has not used yet."""
    process_us: int = 0
    """Process time alone, with the same bound on a leap."""
    furthest_us: int = 0
    """The newest moment of data time that gold had, but for moments that had not come yet."""

    def advanced(self, data_us: int | None, now_us: int) -> Steady:
        """After a look at gold of that moment of data time, at that moment of this process."""
        passed_us = 0 if self.now_us is None else _bounded(now_us - self.now_us, GAP_US)
        credit_us = self.credit_us + passed_us
        gained_us = 0
        if data_us is not None and self.data_us is not None:
            gained_us = _bounded(data_us - self.data_us, credit_us)
        stands = data_us is None or data_us == self.data_us
        come_us = 0 if data_us is None else min(data_us, now_us)
        return Steady(
            self.total_us + gained_us,
            self.data_us if data_us is None else data_us,
            now_us,
            min(GAP_US if stands else SLACK_US, credit_us - gained_us),
            self.process_us + passed_us,
            max(self.furthest_us, come_us),
        )

    @property
    def is_of_the_past(self) -> bool:
        """Is gold about what was long ago, and was further before? It is made anew then, or was put
        back from a copy. A clock that was set back is neither: its gold is about now."""
        if self.data_us is None or self.now_us is None:
            return False
        return self.data_us + PAST_US < min(self.furthest_us, self.now_us)


def _bounded(span_us: int, most_us: int) -> int:
    return max(0, min(span_us, most_us))
