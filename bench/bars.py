"""Targets that benchmark figures must meet on a quiet two-core machine.

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

    def is_held(self, value: float) -> bool:
        """Is a figure on the good side?"""
        return value >= self.limit if self.sign == "≥" else value <= self.limit


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

FILES_A_DAY: Final = at_most(100)
"""Files in use of a table and a day, whatever the cycle."""
QUESTION_CPU: Final = at_most(0.3, "CPU s")
"""A quarter of an hour of one group, asked of 30 days."""

EVENT_TO_GOLD_1K: Final = at_most(5, "s")
EVENT_TO_GOLD_10K: Final = at_most(8, "s")
"""95th percentile, from an answered commit to the gold row that has it, so many keys moving."""
KEEPS_UP: Final = at_most(2, "s")
"""How much later the median commit of the last third of a run is in gold than that of the first: a
cycle. One that falls behind is later all the time."""
EVENT_TO_PAGE: Final = at_most(7, "s")
"""95th percentile, from an answered commit to the page, 1,000 keys moving."""
CYCLE_OF_A_MILLION: Final = at_most(10, "s")
"""The longest cycle, 1,000,000 keys known, 1 % of which move a minute."""
DRIVER_MEMORY: Final = at_most(1.5, "GiB")
"""Resident memory of the driver's two processes then, Python and Java."""

TEN_FACTS_WALL: Final = at_most(30, "s")
TEN_FACTS_CPU: Final = at_most(25, "CPU s")
"""1,000,000 keys with ten facts each, judged and written."""
AGE_RATIO: Final = at_most(1.2)
"""CPU time of a cycle on a lake of 30 days, over that on one of an hour."""
LAG_JOB_CPU_RATIO: Final = at_most(5)
"""Our lag job on 5,000,000 commits, over DuckDB's."""
WORKERS_RATIO: Final = at_least(1.6)
"""Rows a second of a replay on two workers of one core, over one worker."""

OVERVIEW_CPU: Final = at_most(0.3, "CPU s")
"""The server's share of an overview of 1,000 groups on four queues each."""
OVERVIEW_TASK: Final = at_most(200, "ms")
"""CPU time of the longest task of the browser's main thread while that is loaded."""

OBSERVER_COLLECTED: Final = at_most(30, "s")
"""From the observer's start until every topic and group of a large cluster was asked."""
OBSERVER_CPU: Final = at_most(50, "%")
"""Of one core, in the span that collecting may take and while it goes on."""
OBSERVER_MEMORY: Final = at_most(500, "MiB")

RULES_CPU: Final = at_most(10, "CPU s")
"""5,000 rules of alerts held against 10,000 groups, a cycle."""
NOTICE_AFTER_GOLD: Final = at_most(3, "s")
"""95th percentile from a stall to the notice at its receiver, less that to gold."""
NOISE_MISSED: Final = at_most(0)
"""Incidents of a synthetic month that no shipped alert finds."""

SCHEDULER_P99: Final = at_most(1, "s")
"""99th percentile from the planned time to the executor, 10,000 jobs due in a minute."""
SCHEDULER_LOST: Final = at_most(0)
"""Planned times of that minute, or while parties were killed, of which nothing came."""
SCHEDULER_TWICE: Final = at_most(0)
"""Planned times of that minute that came twice; runs that began twice while parties were killed."""

TIMERS_RUSH: Final = at_most(5, "s")
"""100,000 due in one second, while sends go on: the last of them leaves so late."""
TIMER_P99: Final = at_most(1000, "ms")
"""How late timers are at a normal rate."""
TIMERS_MEMORY_RATIO: Final = at_most(1.1)
"""Anonymous and resident memory with 10 million that wait, over 1 million."""

FAILOVER_OURS: Final = at_most(3, "s")
"""From SIGKILL of a Raft group's leader to the first of 100 acknowledged sends in a row: our client
at its defaults; the longest of 20 trials."""
FAILOVER_JAVA: Final = at_most(4, "s")
"""The same by the Java client that polls routes each second."""
FAIL_OVER_SHOWN: Final = at_most(10, "s")
"""From that SIGKILL to what the overview's data has of it."""
GROUP_RATE_RATIO: Final = at_least(1.0)
"""Send rate of a Raft group of three, synced before each answer, over DLedger's."""
SYNC_MASTER_RATIO: Final = at_least(0.6)
ASYNC_MASTER_RATIO: Final = at_least(0.9)
"""Send rate of a master that has a slave over one alone, with each flush type."""
CATCH_UP_RATE: Final = at_least(200, "MB/s")
"""A slave with an empty disk, from the master's page cache."""
