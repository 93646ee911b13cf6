"""Pipeline settings, including the parameters that determine verdicts.

Invariant: the part that decides verdicts (`Evaluation`) is stored with the marks of a run; a run is
never continued with another one, because its windows would then mix two meanings. Absent on
purpose: paths and sessions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from engine.foundation.errors import ConfigError

MS_US: Final = 1_000
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

SILENCE_US: Final = 25 * SECOND_US
"""An emitter whose horizon is older than this reports nothing about now: one that lives ships its
horizon each 5 s, with nothing else to report, too. So what is unknown is called so within 30 s.
"""

REPORTS_MISSED: Final = 2
SHIPPING_US: Final = 5 * SECOND_US


def silence_us(report_each_ms: int | None) -> int:
    """How long an emitter is silent before nothing is known of it: as SILENCE_US; but one that
    reports more seldom, as it has reported (`lifecycle.report_each_ms`), may miss a report, and
    what it reported is under way for a while.
    """
    return max(SILENCE_US, REPORTS_MISSED * (report_each_ms or 0) * MS_US + SHIPPING_US)


REPORT_SPAN_US: Final = 35 * SECOND_US
"""An engine that reports no snapshots reports every key each 30 s: a key whose last row is older
than this, its lateness included, reports nothing about now.
"""

SNAPSHOT_PERIOD_US: Final = 600 * SECOND_US
"""Every key is reported at least this often, changed or not: by brokers, and by gold."""

SNAPSHOT_SPAN_US: Final = 120 * SECOND_US
"""From the begin of a snapshot until it has reported everything, of brokers with many keys."""

LOOK_BACK_US: Final = SNAPSHOT_PERIOD_US + SNAPSHOT_SPAN_US + SILENCE_US
"""The newest state of a key is its last row within this long before the moment asked about; a key
without one is not there any more.
"""

CLOCK_SKEW_ALLOWED_US: Final = 10 * SECOND_US
"""A broker's clock that is further from that of the lake is reported wherever its times are read.
Up to here it may as well be that its rows were under way.
"""

CLOCK_STEP_ALLOWED_US: Final = SECOND_US
"""A broker's clock that is set by less than this changes no verdict."""

TREND_US: Final = MINUTE_US
"""Trends look back this far."""

RETRY_SPAN_US: Final = 6 * HOUR_US
"""A message's troubles are traced back this far: sixteen tries at the default levels take
4 h 46 min."""

FAILING_MESSAGES_MAX: Final = 10_000
"""First failures remembered for one group and broker, 0.1 KiB each. Beyond it the oldest is
forgotten: when that message is dead-lettered, the moment of its first failure is unknown.
"""


BUCKETS_MAX: Final = 1024
"""Parts of a run's groups: the driver holds a few hundred bytes of each."""


FAR_TIMES: Final = 10


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures that decide verdicts."""

    window_ms: int = 30_000
    """Length of the window in which a queue is judged; a multiple of the slide."""
    slide_ms: int = 5_000
    """Distance of evaluation ticks; they lie on multiples of it in data time."""
    allowed_lag: int = 10
    """Messages behind that are never a problem; five seconds of the queue's produce rate when that
    is more.
    """
    allowed_time_ms: int = 30_000
    """Time behind that is never a problem as long as the lag is within allowed_lag."""
    far_times: int = FAR_TIMES
    """Who waits for so many times as long is SLOW at once, whichever way its lag goes."""

    def __post_init__(self) -> None:
        if self.slide_ms < 1_000 or self.slide_ms % 1_000:
            raise ConfigError("slide_ms", self.slide_ms, "whole seconds, at least 1000")
        if self.window_ms < 2 * self.slide_ms or self.window_ms % self.slide_ms:
            raise ConfigError(
                "window_ms", self.window_ms, "a multiple of slide_ms, at least twice it"
            )
        if self.allowed_lag < 0 or self.allowed_time_ms < 0:
            raise ConfigError("allowed_lag", self.allowed_lag, "allowances of 0 or more")
        if self.far_times < 1:
            raise ConfigError("far_times", self.far_times, "1 or more: times allowed_time_ms")

    @property
    def window_us(self) -> int:
        """Window in µs."""
        return self.window_ms * MS_US

    @property
    def slide_us(self) -> int:
        """Slide in µs."""
        return self.slide_ms * MS_US

    @property
    def ticks_per_window(self) -> int:
        """Slides that make a window."""
        return self.window_ms // self.slide_ms

    def as_text(self) -> str:
        """One line, equal for equal figures: what the marks remember. A figure that earlier
        versions had no name for is left out where it is as they had it.
        """
        figures = asdict(self)
        if self.far_times == FAR_TIMES:
            del figures["far_times"]
        return json.dumps(figures, sort_keys=True)

    @staticmethod
    def from_text(text: str) -> Evaluation:
        """The reverse."""
        return Evaluation(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Pace:
    """Figures that decide only when work is done, never what comes out."""

    cycle_ms: int = 1_000
    """Shortest time from the start of one cycle to the start of the next: a shipment that comes
    later than that begins one at once.
    """
    rows_per_cycle: int = 200_000
    """Bronze rows one cycle reads at most; a backlog is worked off in several cycles."""
    first_shipment_wait_ms: int = 120_000
    """How long a stream waits for a lake to receive its first shipment."""
    buckets: int = 2
    """Into how many parts the groups of a new run are divided, for good: as many as the cores that
    will work on it.
    """

    def __post_init__(self) -> None:
        for name in ("cycle_ms", "first_shipment_wait_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "0 or more")
        if self.rows_per_cycle < 1:
            raise ConfigError("rows_per_cycle", self.rows_per_cycle, "1 or more")
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ConfigError("buckets", self.buckets, f"1 to {BUCKETS_MAX}")
