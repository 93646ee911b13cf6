"""Defines the inputs and results of lag-cause tests: group figures and findings.

Place in the walk: `causes.marks` and `causes.newest_reports` → the tests of `causes.members`,
`causes.queues` and `causes.diagnosing` → rows of lag_causes. Invariant: a finding names a figure,
what it is compared with, and the unit of both. Absent on purpose: tests, and sentences
(`pipelines/sentences/causes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

CAUSES: Final = (
    "NONE",
    "UNKNOWN",
    "STANDING_QUEUES",
    "PAUSED",
    "NO_MEMBERS",
    "LISTENERS_SATURATED",
    "SLOW_LISTENER",
    "FLOW_CONTROL_COUNT",
    "FLOW_CONTROL_BYTES",
    "FLOW_CONTROL_SPAN",
    "HOT_QUEUE",
    "LAGGING_QUEUE",
    "HOT_KEY",
    "FEWER_QUEUES_THAN_MEMBERS",
    "MEMBERS_WITHOUT_QUEUES",
    "RETRIES",
    "BURST",
    "COLD_READS",
    "REBALANCE_FLAPPING",
    "INVISIBLE_TIMES_RUN_OUT",
)
"""Their order is the number of their bit: append only."""

Row = Mapping[str, Any]


class Skew(NamedTuple):
    """The queues furthest behind of a topic that have together so much of its lag that they stand
    out. A tuple, for there are very many.
    """

    topic: str
    queue_ids: Sequence[int]
    """Furthest behind first."""
    queues: int
    """Of the topic, those that stand out among them."""
    lag: int
    share_percent: int
    """Of what the topic is behind beyond its allowance."""
    given_percent: int | None
    """Of what was sent to the topic in the present slot and the one before; None: nothing was."""


class QueueFigures(NamedTuple):
    """A queue that is further behind than it may be. A tuple, too."""

    topic: str
    queue_id: int
    late: int
    """Messages beyond what it may be behind: a few, or those of the last seconds."""


@dataclass(slots=True)
class Figures:
    """Figures of a group at a tick. Not frozen, which takes three times as long to make."""

    group: str
    broker: str
    tick_us: int
    slot_us: int
    span_us: int
    """From the beginning of the slot before the present one."""
    slots_known: int
    """Slots up to the present one in which the group was there."""
    lag: int
    """Over the queues whose lag is known."""
    members: int | None
    given: Sequence[int]
    """Messages sent in each slot, oldest first."""
    consumed: int
    """Messages consumed within the span for the first time."""
    retried: int
    """Those that had failed."""
    came_back: int
    """Those whose invisible time had run out."""
    skew: Skew | None = None
    queues: Sequence[QueueFigures] = ()
    """Those that are late, where keys are reported; retry queues are not among them, nor among
    those of `topics`.
    """
    topics: Mapping[str, int] = field(default_factory=dict)
    """How many queues of each topic the group reads, where keys are reported."""
    stats: Sequence[Row] = ()
    """Newest consume_stats of each member and topic, with calm_us: how long calls took before the
    group fell behind.
    """
    keys: Sequence[Row] = ()
    """Newest client_windows in which keys were reported."""
    rests: Sequence[Row] = ()
    """Newest client_windows whose pulls rest for SPAN."""
    changes: Sequence[Row] = ()
    """Members that came and went lately: event_us, client_id, kind."""
    cold: Sequence[Row] = ()
    """cold_reads of the last moments."""
    was_hot: tuple[str, int] | None = None
    """The queue that was reported to be hot a moment ago: topic and number."""
    is_part: bool = False
    """Is the lag of a queue unknown?"""
    standing: str | None = None
    """Why queues of the group do not move, in the words of its state."""

    @property
    def consumed_in_all(self) -> int:
        """Messages consumed within the span, those that came again among them."""
        return self.consumed + self.retried + self.came_back


Evidence = str | Callable[[], str]
"""A sentence, or what makes it: most findings repeat one that was reported, and are not shown."""


def said(evidence: Evidence) -> str:
    """The sentence."""
    return evidence if isinstance(evidence, str) else evidence()


class Finding(NamedTuple):
    """One cause. A tuple, too."""

    cause: str
    evidence: Evidence
    measured: int | None = None
    expected: int | None = None
    unit: str | None = None
    share_percent: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    client_id: str | None = None


def length_ms(row: Row) -> int | None:
    """How long calls of a member take: their p99, or their mean where that is all it reports."""
    if row["consume_ms_p99"] is not None:
        return int(row["consume_ms_p99"])
    return None if row["consume_us_mean"] is None else round(row["consume_us_mean"] / 1000)


def by_member(group: Figures, *names: str) -> list[Row]:
    """One row of each member that reports these figures, which are its own, not a topic's."""
    rows = {
        row["client_id"]: row
        for row in sorted(group.stats, key=lambda row: (row["client_id"], row["calls"] or 0))
        if all(row[name] is not None for name in names)
    }
    return list(rows.values())


def percent(part: int, whole: int) -> int | None:
    """A share of a whole; None without one."""
    return None if whole <= 0 else part * 100 // whole
