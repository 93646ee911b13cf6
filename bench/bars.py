"""The bars: what a measured figure has to reach on a quiet machine of two cores.

Tables print a bar beside its figure; nothing asserts. Ratios are ours over Apache RocketMQ's, or
with over without. docs/measured.md has the figures of record beside the same bars.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Bar(NamedTuple):
    """A limit, and on which side of it a figure is good."""

    sign: str
    limit: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g} {self.unit}".rstrip()


def at_least(limit: float, unit: str = "") -> Bar:
    """The more the better."""
    return Bar("≥", limit, unit)


def at_most(limit: float, unit: str = "") -> Bar:
    """The less the better."""
    return Bar("≤", limit, unit)


SEND_RATE_RATIO: Final = at_least(1.0)
"""64 in flight, each flush type."""
SEND_LATENCY_RATIO: Final = at_most(1.0)
"""Median latency, one in flight, each flush type."""
BATCH_RATE_RATIO: Final = at_least(0.8)
CONSUME_RATE_RATIO: Final = at_least(0.8)
MEMORY_IDLE: Final = at_most(60, "MiB")
MEMORY_AT_LOAD: Final = at_most(250, "MiB")
"""Anonymous memory of our broker, before and after the loads."""

SEND_CPU_ASYNC: Final = at_most(20, "µs")
SEND_CPU_SYNC: Final = at_most(30, "µs")
"""Our broker's CPU time a message, one connection with 64 in flight."""

TELEMETRY_RATE_RATIO: Final = at_least(0.95)
"""Each load with telemetry and its shipper, over the same load without."""
COMMIT_TO_GOLD_P95: Final = at_most(15, "s")

CONNECTIONS_MEMORY: Final = at_most(300, "MiB")
"""What 10,000 idle connections add."""
CONNECTIONS_RATE_RATIO: Final = at_least(0.8)
"""Send rate beside them, over alone."""

START_EMPTY: Final = at_most(0.5, "s")
START_CLEAN: Final = at_most(2, "s")
"""10 GiB after a clean stop."""
START_UNCLEAN: Final = at_most(15, "s")
"""1 GiB to look through after SIGKILL."""

MANY_TOPICS_RATE_RATIO: Final = at_least(0.8)
"""Send rate over 10,000 topics, over that of one."""
CATCH_UP_P99_RATIO: Final = at_most(3)
"""99th percentile of sends beside a full-speed read of cold data, over alone."""

LONGEST_STEP: Final = at_most(50, "ms")
"""CPU time of one step of the engine's event loop, with 100,000 queues of groups."""

REPLAY_RATE: Final = at_least(200_000, "rows/s")
"""Bronze rows judged, gold of all tables written, on two cores."""

SAMPLE_STILL: Final = at_most(1, "ms")
"""CPU time of a sample of 100,000 queues of groups of which none moved."""
SAMPLE_MOVING: Final = at_most(5, "ms")
"""As `SAMPLE_STILL`, when 1 % of them moved."""
