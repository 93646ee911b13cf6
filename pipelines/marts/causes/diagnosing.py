"""Tests of the causes of a lag, in the order of display, and the UNKNOWN that remains.

Place in the walk: what is known of a group that is behind at a tick → why it is, a finding a cause.

Each test stands alone and looks at figures that say something: a test without its figures finds
nothing, and a group of which no test finds anything is behind for UNKNOWN reasons, which are said
as well: what nobody reported, or what the figures were. Absent on purpose: memory, and a judgement
which of several causes came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pipelines.marts.causes.finding import Figures, Finding, by_member
from pipelines.marts.causes.load import burst, cold_reads, retries
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
)
_OF_MEMBERS: Final = (paused, listeners_saturated, slow_listener, flow_control, idle_members)
TESTS_WITHOUT_MEMBERS: Final = tuple(test for test in TESTS if test not in _OF_MEMBERS)
"""Those that can find something of a group of which no member reports how it works."""
