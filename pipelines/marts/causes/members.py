"""Tests for lag caused by members that are paused, absent, busy, slow, idle or flapping.

Place in the walk: what is known of a group that is behind at a tick → findings. Invariant: a test
without its figures finds nothing; a group that grows and then shrinks does not flap, however large
it was. Absent on purpose: sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pipelines.base.settings import SECOND_US
from pipelines.marts.causes.finding import Figures, Finding, Row, by_member, length_ms, percent
from pipelines.marts.causes.newest_reports import FLOW_CONTROL_MS, KINDS, worst_rest
from pipelines.sentences import causes as sentences
from pipelines.sentences.figures import span

SLOWER: Final = 3
"""A listener is slow when its calls take so many times as long as they did: percentiles are
reported to within a quarter, and those of a few calls are that of the longest.
"""
SLOWER_MS: Final = 5
"""And so much longer at least."""
AT_WORK_MIN_US: Final = 6 * SECOND_US
"""Listeners that worked for less of the last minute, all of them together, hold up nobody, if no
message waits for one either.
"""
DIVIDED_US: Final = 25 * SECOND_US
"""After so long a member has what it is given: each divides the queues every twenty seconds, and
lets go of what is another's.
"""
FLAPS_MIN: Final = 6
"""Members that came or went within the span that is looked at."""


def paused(group: Figures) -> Iterator[Finding]:
    """The application suspended consumers."""
    known = by_member(group, "paused")
    resting = [row["client_id"] for row in known if row["paused"]]
    if resting:
        yield Finding(
            "PAUSED",
            sentences.paused(group.group, resting, len(known)),
            *(len(resting), len(known), "members", percent(len(resting), len(known))),
            client_id=resting[0],
        )


def no_members(group: Figures) -> Iterator[Finding]:
    """Nobody consumes."""
    if group.members == 0:
        left_us = [row["event_us"] for row in group.changes if row["kind"] != "JOINED"]
        said = sentences.no_members(group.group, group.broker, max(left_us, default=None))
        yield Finding("NO_MEMBERS", said, 0, 1, "members", 100)


def listeners_saturated(group: Figures) -> Iterator[Finding]:
    """All listeners of a member are at work, and more messages wait for one."""
    known = by_member(group, "listeners_busy", "listeners", "listeners_queued")
    full = [
        row
        for row in known
        if row["listeners_busy"] >= row["listeners"] and row["listeners_queued"] > 0
    ]
    if not full:
        return
    worst = max(full, key=lambda row: (row["listeners_queued"], row["client_id"]))
    yield Finding(
        "LISTENERS_SATURATED",
        sentences.listeners_saturated(group.group, worst, full=len(full), members=len(known)),
        *(worst["listeners_busy"], worst["listeners"], "listener calls at once"),
        percent(len(full), len(known)),
        client_id=worst["client_id"],
    )


def slow_listener(group: Figures) -> Iterator[Finding]:
    """Listener calls take much longer than they did before the group fell behind."""
    known = [row for row in group.stats if length_ms(row) is not None]
    slow = [row for row in known if _is_slower(row) and not _is_idle(row)]
    if not slow:
        return
    worst = max(slow, key=lambda row: (length_ms(row), row["client_id"], row["topic"]))
    now_ms, calm_ms = length_ms(worst) or 0, round(worst["calm_us"] / 1000)
    is_p99 = worst["consume_ms_p99"] is not None
    yield Finding(
        "SLOW_LISTENER",
        sentences.slow_listener(
            *(group.group, worst["client_id"], worst["topic"]),
            now_ms=now_ms,
            calm_ms=calm_ms,
            is_p99=is_p99,
        ),
        *(now_ms, calm_ms, "ms a call, p99" if is_p99 else "ms a call, mean"),
        percent(len(slow), len(known)),
        topic=worst["topic"],
        client_id=worst["client_id"],
    )


def flow_control(group: Figures) -> Iterator[Finding]:
    """Clients do not pull, for they hold too much, or too much came behind what is unfinished."""
    for kind in KINDS:
        name = f"flow_{kind.lower()}_ms"
        known = [row for row in group.stats if row[name] is not None]
        rested_ms = sum(row[name] for row in known)
        if rested_ms < FLOW_CONTROL_MS:
            continue
        worst = max(known, key=lambda row: (row[name], row["client_id"], row["topic"]))
        whole_ms = 60_000 * sum(row["queues_held"] for row in known if row[name])
        rests = [r for r in group.rests if (kind, r["topic"]) == ("SPAN", worst["topic"])]
        queue_id, standing = worst_rest(rests, tick_us=group.tick_us)
        yield Finding(
            f"FLOW_CONTROL_{kind}",
            sentences.flow_control(
                *(group.group, kind, worst["client_id"], worst["topic"]),
                rested_ms=rested_ms,
                standing=standing,
            ),
            *(rested_ms, FLOW_CONTROL_MS, "ms of rest a minute"),
            percent(rested_ms, whole_ms),
            topic=worst["topic"],
            queue_id=queue_id,
            client_id=worst["client_id"],
        )


class _Idle(NamedTuple):
    """Members without a queue of a topic."""

    topic: str
    clients: Sequence[str]
    queues: int
    """0: not known."""
    members: int

    @property
    def cause(self) -> str:
        is_few = 0 < self.queues < self.members
        return "FEWER_QUEUES_THAN_MEMBERS" if is_few else "MEMBERS_WITHOUT_QUEUES"

    @property
    def share_percent(self) -> int | None:
        return percent(len(self.clients), self.members)


def idle_members(group: Figures) -> Iterator[Finding]:
    """Members have no queue of a topic: there are too few, or the division leaves some out."""
    topics: dict[str, list[Row]] = {}
    for row in group.stats:
        if not row["topic"].startswith("%RETRY%"):
            topics.setdefault(row["topic"], []).append(row)
    found: dict[str, list[_Idle]] = {}
    for topic, rows in sorted(topics.items()):
        idle = sorted(row["client_id"] for row in rows if _is_left_out(row, group.tick_us))
        if idle:
            members = max(len(rows), *(row["group_members"] or 0 for row in rows))
            queues = max((row["topic_queues"] or 0 for row in rows), default=0)
            one = _Idle(topic, idle, queues, members)
            found.setdefault(one.cause, []).append(one)
    for of_cause in found.values():
        worst = max(of_cause, key=lambda one: one.share_percent or 0)
        yield _idle_finding(group.group, worst, [one.topic for one in of_cause if one != worst])


def _is_left_out(row: Row, tick_us: int) -> bool:
    """Does the member hold no queue, and not just because it has not divided them yet, or because
    another has not let go of them? Where queues are fewer than members one has to go without, and
    that is so at once.
    """
    if row["queues_held"] != 0:
        return False
    members, queues = row["group_members"], row["topic_queues"]
    if members is not None and queues is not None and queues < members:
        return True
    return row["idle_us"] is not None and tick_us - row["idle_us"] > DIVIDED_US


def _idle_finding(group: str, idle: _Idle, others: Sequence[str]) -> Finding:
    """Why members have no queue of a topic, and of `others` neither."""
    is_few = idle.cause == "FEWER_QUEUES_THAN_MEMBERS"
    say = sentences.fewer_queues if is_few else sentences.left_out
    measure = (idle.queues, idle.members, "queues") if is_few else (len(idle.clients), 0, "members")
    said = say(
        *(group, idle.topic, idle.clients),
        queues=idle.queues,
        members=idle.members,
        others=others,
    )
    return Finding(
        *(idle.cause, said, *measure, idle.share_percent),
        topic=idle.topic,
        client_id=idle.clients[0],
    )


def rebalance_flapping(group: Figures) -> Iterator[Finding]:
    """Members come and go, and each time the queues are divided anew."""
    if len(group.changes) < FLAPS_MIN:
        return
    if comebacks(row["kind"] for row in group.changes) <= (group.members or 0):
        return  # A group that grew, or shrank, or whose members were restarted once, does not flap.
    came = Counter(row["client_id"] for row in group.changes if row["kind"] == "JOINED")
    went = Counter(row["client_id"] for row in group.changes if row["kind"] != "JOINED")
    span_us = group.tick_us - min(row["event_us"] for row in group.changes)
    restless, _ = (came + went).most_common(1)[0]
    count = len(group.changes)
    yield Finding(
        "REBALANCE_FLAPPING",
        sentences.flapping(group.group, changes=count, span_us=span_us, joined=came, left=went),
        *(count, FLAPS_MIN, f"changes in {span(span_us)}"),
        client_id=restless,
    )


def _is_slower(row: Row) -> bool:
    now_ms, calm_us = length_ms(row), row["calm_us"]
    if now_ms is None or calm_us is None:
        return False
    now_us = now_ms * 1000
    return bool(now_us >= SLOWER * calm_us and now_us - calm_us >= SLOWER_MS * 1000)


def _is_idle(row: Row) -> bool:
    """Do its listeners have hardly anything to do, however long it takes?"""
    if row["calls"] is None or row["consume_us_mean"] is None or row["listeners_queued"] is None:
        return False
    at_work_us = row["calls"] * row["consume_us_mean"]
    return bool(row["listeners_queued"] == 0 and at_work_us < AT_WORK_MIN_US)


def comebacks(kinds: Iterable[str]) -> int:
    """Of changes in the order of time, those JOINED that follow another kind not taken back yet."""
    found = places = 0
    for kind in kinds:
        if kind != "JOINED":
            places += 1
        elif places:
            places -= 1
            found += 1
    return found
