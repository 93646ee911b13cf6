"""Runs every lag-cause test on a group that is behind, and reports UNKNOWN if none matches.

Place in the walk: what is known of a group that is behind at a tick → why it is, a finding a cause.
Each test stands alone: without its figures it finds nothing, and a group of which no test finds
anything is behind for UNKNOWN reasons, which are said as well. Absent on purpose: memory, and a
judgement which of several causes came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from pipelines.marts.causes.finding import Figures, Finding, Row, by_member, percent
from pipelines.marts.causes.members import (
    flow_control,
    idle_members,
    listeners_saturated,
    no_members,
    paused,
    rebalance_flapping,
    slow_listener,
)
from pipelines.marts.causes.queues import hot_key, skewed_queue
from pipelines.sentences import causes as sentences
from pipelines.sentences.figures import span

COLD_PERCENT: Final = 30
"""Reads from far behind are a cause if they are so much of what the group consumed, and if so much
of them came from disk.
"""
RETRIED_PERCENT: Final = 30
"""The share of retries among consumed messages at which they crowd out new ones."""
RETRIED_MIN: Final = 10
BURST: Final = 2
"""A slot in which so many times what is usual was sent is a burst,"""
BURST_PERCENT: Final = 50
"""and a cause if what went beyond makes so much of the lag."""
BURST_SLOTS: Final = 4
"""Slots that must be known to say what is usual: over all of them, or before, whichever is more.
What is sent until it ends is no burst.
"""


def findings(group: Figures) -> list[Finding]:
    """Why it is behind: at least one finding, UNKNOWN if no test finds anything."""
    tests = TESTS if group.stats else TESTS_WITHOUT_MEMBERS
    found = [finding for test in tests for finding in test(group)]
    return found or [unknown(group)]


def standing_queues(group: Figures) -> Iterator[Finding]:
    """Queues do not move at all."""
    if group.standing is not None:
        yield Finding("STANDING_QUEUES", group.standing)


def unknown(group: Figures) -> Finding:
    """No test found anything: why not?"""
    if not group.stats:
        why, figures = sentences.NO_MEMBER_REPORTS, ""
    elif rows := by_member(group, "listeners_busy"):
        why = sentences.NO_RULE_FINDS
        figures = sentences.at_work(
            busy=sum(row["listeners_busy"] for row in rows),
            slots=sum(row["listeners"] for row in rows),
            sent=sum(list(group.given)[-2:]),
            consumed=group.consumed,
            span_us=group.span_us,
        )
    else:
        why, figures = sentences.FOREIGN_CLIENTS, ""
    return Finding("UNKNOWN", sentences.unknown(group.group, group.broker, why, figures))


def retries(group: Figures) -> Iterator[Finding]:
    """Retried messages take the listeners' time."""
    share = _crowding(group, group.retried)
    if share is None:
        return
    failed = sum(row["failed"] or 0 for row in group.stats)
    yield Finding(
        "RETRIES",
        sentences.retries(
            group.group,
            retried=group.retried,
            consumed=group.consumed_in_all,
            span_us=group.span_us,
            failed=failed,
        ),
        *(group.retried, group.consumed_in_all, "messages", share),
    )


def invisible_times(group: Figures) -> Iterator[Finding]:
    """Messages that a POP group does not acknowledge in time take its consumers' time again."""
    share = _crowding(group, group.came_back)
    if share is None:
        return
    figures = {"came_back": group.came_back, "consumed": group.consumed_in_all}
    yield Finding(
        "INVISIBLE_TIMES_RUN_OUT",
        sentences.invisible_times(group.group, **figures, span_us=group.span_us),
        *(group.came_back, group.consumed_in_all, "messages", share),
    )


def _crowding(group: Figures, again: int) -> int | None:
    """The share of messages consumed again, in per cent; None where they crowd out no new ones."""
    share = percent(again, group.consumed_in_all)
    if again < RETRIED_MIN or share is None or share < RETRIED_PERCENT:
        return None
    return share


def burst(group: Figures) -> Iterator[Finding]:
    """Much more was sent for a while than is usual."""
    known = list(group.given)[-group.slots_known :]
    if len(known) < BURST_SLOTS:
        return
    normal = known[:1]
    beyond = usual = 0
    for given in known[1:]:
        before = int(max(median(normal), median(known)))
        if given <= BURST * before:
            normal.append(given)
        else:
            beyond, usual = beyond + given - before, before
    if beyond <= 0 or (percent(beyond, group.lag) or 0) < BURST_PERCENT:
        return
    most = max(known)
    slot = len(known) - 1 - known[::-1].index(most)
    end_us = ((group.tick_us - 1) // group.slot_us + 1 - (len(known) - 1 - slot)) * group.slot_us
    yield Finding(
        "BURST",
        sentences.burst(
            group.group,
            most=most,
            usual=usual,
            slot_us=group.slot_us,
            begin_us=end_us - group.slot_us,
            beyond=beyond,
            span_us=group.slot_us * len(known),
        ),
        *(most, usual, f"messages in {span(group.slot_us)}"),
        min(percent(beyond, group.lag) or 0, 100),
    )


def cold_reads(group: Figures) -> Iterator[Finding]:
    """What the group reads is no more in the broker's memory."""
    cold = [row for row in group.cold if row["size_bytes"] is not None]
    if not cold or group.members == 0:
        return
    worst = max(cold, key=lambda row: (row["messages"], row["topic"]))
    share = percent(worst["messages"], max(worst["messages"], group.consumed_in_all))
    paused = [row["paused"] for row in group.stats if row["paused"] is not None]
    if (share or 0) < COLD_PERCENT or (paused and all(paused)):
        return
    fetched = worst["disk_read_bytes"]
    is_known = fetched is not None
    if is_known and fetched * 100 < COLD_PERCENT * worst["size_bytes"]:
        return  # However far behind: they were in memory.
    yield Finding(
        "COLD_READS",
        sentences.cold_reads(group.group, worst),
        *_cold_measure(worst),
        share,
        topic=worst["topic"],
    )


def _cold_measure(row: Row) -> tuple[int, int, str]:
    """What was read from disk beside what was answered; if that is not known, the distance."""
    if row["disk_read_bytes"] is not None:
        return row["disk_read_bytes"], row["size_bytes"], "bytes read from disk, of those answered"
    return row["behind_bytes_max"], row["resident_bytes"], "bytes behind the end of the log"


TESTS: Final[tuple[Callable[[Figures], Iterator[Finding]], ...]] = (
    standing_queues,
    paused,
    no_members,
    listeners_saturated,
    slow_listener,
    flow_control,
    skewed_queue,
    hot_key,
    idle_members,
    retries,
    burst,
    cold_reads,
    rebalance_flapping,
    invisible_times,
)
_OF_MEMBERS: Final = (paused, listeners_saturated, slow_listener, flow_control, idle_members)
TESTS_WITHOUT_MEMBERS: Final = tuple(test for test in TESTS if test not in _OF_MEMBERS)
"""Those that can find something of a group of which no member reports how it works."""
