"""The causes of a lag, tested one by one, with their figures in words.

Place in the walk: what is known of a group that is behind at a tick → why it is, a finding a cause.

Each test stands alone and looks at figures that say something: a test without its figures finds
nothing, and a group of which no test finds anything is behind for UNKNOWN reasons, which are said
as well: what nobody told, or what the figures were.

Invariant: a finding names a figure, what it is held against, and the unit of both. Absent on
purpose: memory, and a judgement which of several causes came first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final, NamedTuple

from pipelines.marts.causes.resting import FLOW_CONTROL_MS, WHY_PULLS_REST, worst_rest
from pipelines.marts.sentences import clock, messages
from pipelines.settings import MINUTE_US, SECOND_US

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
)
"""Their order is the number of their bit: append only."""

SLOWER: Final = 3
"""A listener is slow when its calls take so many times as long as they did: percentiles are told to
within a quarter, and those of a few calls are that of the longest.
"""
SLOWER_MS: Final = 5
"""And so much longer at least."""
AT_WORK_MIN_US: Final = 6 * SECOND_US
"""Listeners that worked for less of the last minute, all of them together, hold up nobody, if no
message waits for one either.
"""
SKEW_PERCENT: Final = 50
"""A queue with so much of the lag, or a key with so many of the held messages, stands out; a queue
only if that is a third of the way from its fair part to all, or more.
"""
KEYED_MIN: Final = 20
"""Held messages with keys, of which less say nothing about one."""
DIVIDED_US: Final = 25 * SECOND_US
"""After so long a member has what it is given: each divides the queues every twenty seconds, and
lets go of what is another's.
"""
COLD_PERCENT: Final = 30
"""Reads from far behind are a cause if they are so much of what the group consumed, and if so much
of them came from disk.
"""
FEW_QUEUES: Final = 8
"""One queue in so many may stand out with others; of fewer queues one alone."""
SLOTS_OF_GIVEN: Final = 3
"""Slots of a group from which on it is known what its queues were given in the last two."""
RETRIED_PERCENT: Final = 30
"""So many of the consumed messages are retries: they crowd out new ones."""
RETRIED_MIN: Final = 10
BURST: Final = 2
"""A slot in which so many times what is usual was sent is a burst,"""
BURST_PERCENT: Final = 50
"""and a cause if what went beyond makes so much of the lag."""
BURST_SLOTS: Final = 4
"""Slots that must be known to say what is usual: over all of them, or before, whichever is more.
What is sent until it ends is no burst.
"""
FLAPS_MIN: Final = 6
"""Members that came or went within the span that is looked at."""

Row = Mapping[str, Any]


class QueueFigures(NamedTuple):
    """A queue that is further behind than it may be. A tuple, for there are very many."""

    topic: str
    queue_id: int
    lag: int
    given: int
    """Messages sent to it in the present slot and the one before."""
    late: int
    """Messages beyond what it may be behind: a few, or those of the last seconds."""


class TopicFigures(NamedTuple):
    """All queues of a topic that the group reads."""

    queues: int
    given: int
    """Messages sent to them in the present slot and the one before."""


@dataclass(slots=True)
class Figures:
    """What is known of a group at a tick. Not frozen, which takes three times as long to make."""

    tick_us: int
    slot_us: int
    span_us: int
    """From the beginning of the slot before the present one."""
    slots_known: int
    """Slots up to the present one in which the group was there."""
    lag: int
    members: int | None
    given: Sequence[int]
    """Messages sent in each slot, oldest first."""
    consumed: int
    """Messages consumed within the span, retried ones apart."""
    retried: int
    queues: Sequence[QueueFigures] = ()
    """Those that are late; retry queues are not among them, nor among those of `topics`."""
    topics: Mapping[str, TopicFigures] = field(default_factory=dict)
    stats: Sequence[Row] = ()
    """Newest consume_stats of each member and topic, with calm_us: how long calls took before the
    group fell behind.
    """
    keys: Sequence[Row] = ()
    """Newest client_windows in which keys were told."""
    rests: Sequence[Row] = ()
    """Newest client_windows whose pulls rest for SPAN."""
    changes: Sequence[Row] = ()
    """Members that came and went lately: event_us, client_id, kind."""
    cold: Sequence[Row] = ()
    """cold_reads of the last moments."""
    was_hot: tuple[str, int] | None = None
    """The queue that was told to be hot a moment ago: topic and number."""
    standing: str | None = None
    """Why queues of the group do not move, in the words of its state."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause."""

    cause: str
    evidence: str
    measured: int | None = None
    expected: int | None = None
    unit: str | None = None
    share_percent: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    client_id: str | None = None


def findings(group: Figures) -> list[Finding]:
    """Why it is behind: at least one finding, UNKNOWN if no test finds anything."""
    tests = TESTS if group.stats else TESTS_WITHOUT_MEMBERS
    found = [finding for test in tests for finding in test(group)]
    return found or [unknown(group)]


def standing_queues(group: Figures) -> Iterator[Finding]:
    """Queues do not move at all."""
    if group.standing is not None:
        yield Finding("STANDING_QUEUES", group.standing)


def paused(group: Figures) -> Iterator[Finding]:
    """The application suspended consumers."""
    told = _by_member(group, "paused")
    resting = [row["client_id"] for row in told if row["paused"]]
    if resting:
        yield Finding(
            "PAUSED",
            f"{len(resting)} of {len(told)} members are suspended by their application: "
            f"{_names(resting)}",
            *(len(resting), len(told), "members", _percent(len(resting), len(told))),
            client_id=resting[0],
        )


def no_members(group: Figures) -> Iterator[Finding]:
    """Nobody consumes."""
    if group.members == 0:
        yield Finding("NO_MEMBERS", "the group has no member on this broker", 0, 1, "members", 100)


def listeners_saturated(group: Figures) -> Iterator[Finding]:
    """All listeners of a member are at work, and more messages wait for one."""
    told = _by_member(group, "listeners_busy", "listeners", "listeners_queued")
    full = [
        row
        for row in told
        if row["listeners_busy"] >= row["listeners"] and row["listeners_queued"] > 0
    ]
    if not full:
        return
    worst = max(full, key=lambda row: (row["listeners_queued"], row["client_id"]))
    slots, mean_us = worst["listeners"], worst["consume_us_mean"]
    at_most = ""
    if mean_us:
        a_minute = slots * MINUTE_US // mean_us
        at_most = (
            f"; a call takes {_ms(mean_us)} on average, so they make at most {a_minute} calls a "
            "minute"
        )
    yield Finding(
        "LISTENERS_SATURATED",
        f"all {slots} listeners of {worst['client_id']} are at work and "
        f"{worst['listeners_queued']} batches wait for one{at_most}; so it is with {len(full)} of "
        f"{len(told)} members",
        *(worst["listeners_busy"], slots, "listener calls at once"),
        _percent(len(full), len(told)),
        client_id=worst["client_id"],
    )


def slow_listener(group: Figures) -> Iterator[Finding]:
    """Listener calls take much longer than they did before the group fell behind."""
    told = [row for row in group.stats if length_ms(row) is not None]
    slow = [row for row in told if _is_slower(row) and not _is_idle(row)]
    if not slow:
        return
    worst = max(slow, key=lambda row: (length_ms(row), row["client_id"], row["topic"]))
    now_ms, calm_ms = length_ms(worst), round(worst["calm_us"] / 1000)
    is_p99 = worst["consume_ms_p99"] is not None
    which = "99 % of the listener calls" if is_p99 else "listener calls on average"
    yield Finding(
        "SLOW_LISTENER",
        f"{which} of {worst['client_id']} for {worst['topic']} took up to {now_ms} ms in the last "
        f"minute, {calm_ms} ms before the group fell behind",
        *(now_ms, calm_ms, "ms a call, p99" if is_p99 else "ms a call, mean"),
        _percent(len(slow), len(told)),
        topic=worst["topic"],
        client_id=worst["client_id"],
    )


def flow_control(group: Figures) -> Iterator[Finding]:
    """Clients do not pull, for they hold too much, or too much came behind what is unfinished."""
    for kind, why in WHY_PULLS_REST.items():
        name = f"flow_{kind.lower()}_ms"
        told = [row for row in group.stats if row[name] is not None]
        rested_ms = sum(row[name] for row in told)
        if rested_ms < FLOW_CONTROL_MS:
            continue
        worst = max(told, key=lambda row: (row[name], row["client_id"], row["topic"]))
        whole_ms = 60_000 * sum(row["queues_held"] for row in told if row[name])
        rests = [r for r in group.rests if (kind, r["topic"]) == ("SPAN", worst["topic"])]
        queue_id, queue = worst_rest(rests, tick_us=group.tick_us)
        yield Finding(
            f"FLOW_CONTROL_{kind}",
            f"{queue}pulls rested for {_seconds(rested_ms)} of the last minute, summed over the "
            f"queues, for {why}; most of it {worst['client_id']} for {worst['topic']}",
            *(rested_ms, FLOW_CONTROL_MS, "ms of rest a minute"),
            _percent(rested_ms, whole_ms),
            topic=worst["topic"],
            queue_id=queue_id,
            client_id=worst["client_id"],
        )


def skewed_queue(group: Figures) -> Iterator[Finding]:
    """One queue, or a few of very many, have most of the lag: they are given most of the messages,
    or their readers are slower.
    """
    if not group.queues or group.lag <= 0:
        return
    most = max([queue.late for queue in group.queues])
    latest = [queue for queue in group.queues if queue.late == most]
    worst = max(latest, key=lambda queue: (queue.topic, -queue.queue_id))
    of_topic = [queue for queue in group.queues if queue.topic == worst.topic]
    late = sum([queue.late for queue in of_topic])
    queues, given = group.topics[worst.topic]
    few = _fewest_with_most(of_topic, queues, late)
    if few is None:
        return
    fair_percent = 100 * len(few) / queues
    behind = messages(sum([queue.lag for queue in few]))
    skewed = _skewed_percent(len(few), queues)
    share = _percent(sum([queue.late for queue in few]), late) or 0
    part = _percent(sum([queue.given for queue in few]), given)
    was_hot = part is None and group.was_hot == (worst.topic, worst.queue_id)
    is_hot = was_hot or (part is not None and part >= skewed)
    was, fair = ("they were", "their") if len(few) > 1 else ("it was", "its")
    sent = f"{was} given {part} % of what was sent"
    if part is None:
        sent = "nothing was sent lately" + (", and most to it before" if was_hot else "")
    if group.slots_known < SLOTS_OF_GIVEN and not is_hot:
        sent = "what was sent is not known for long enough"
    yield Finding(
        "HOT_QUEUE" if is_hot else "LAGGING_QUEUE",
        f"{_queues_named(few)} of {worst.topic}: {behind} behind, {share} % of the lag of "
        f"the topic beyond what is allowed; {sent}; with {queues} queues {fair} fair part is "
        f"{_fine(fair_percent)} %",
        *(share if part is None or not is_hot else part, max(1, round(fair_percent))),
        f"% of {'the lag' if part is None or not is_hot else 'what was sent'}",
        share,
        topic=worst.topic,
        queue_id=worst.queue_id,
    )


def _fewest_with_most(
    late_ones: Sequence[QueueFigures], queues: int, late: int
) -> list[QueueFigures] | None:
    """The queues furthest behind, of so many of a topic, that have, together, so much of the lag
    that they stand out: one, or one of FEW_QUEUES; None when there are no such.
    """
    ranked = sorted(late_ones, key=lambda queue: (-queue.late, queue.queue_id))
    together = 0
    for count, queue in enumerate(ranked[: max(1, queues // FEW_QUEUES)], 1):
        together += queue.late
        share = _percent(together, late) or 0
        if count < queues and share >= _skewed_percent(count, queues):
            return ranked[:count]
    return None


def _skewed_percent(part: int, whole: int) -> int:
    """From where on so many of all queues stand out."""
    fair = 100 * part // whole
    return max(SKEW_PERCENT, fair + (100 - fair) // 3)


def _queues_named(queues: Sequence[QueueFigures]) -> str:
    numbers = [str(queue.queue_id) for queue in queues]
    return f"queue {numbers[0]}" if len(numbers) == 1 else f"queues {_names(numbers)}"


def hot_key(group: Figures) -> Iterator[Finding]:
    """Most of what waits has one key, which only one listener may work on at a time, or which one
    queue gets alone.
    """
    if not group.keys:
        return
    waits: dict[tuple[str, str], float] = {}
    queues_of: dict[tuple[str, str], set[int]] = {}
    lags = {(queue.topic, queue.queue_id): queue.late for queue in group.queues}
    hot = [
        row
        for row in group.keys
        if (row["keyed_messages"] or 0) >= KEYED_MIN
        and (_percent(row["top_key_messages"], row["keyed_messages"]) or 0) >= SKEW_PERCENT
    ]
    for row in hot:
        name = row["topic"], row["top_key"]
        part = row["top_key_messages"] / row["keyed_messages"]
        waits[name] = waits.get(name, 0) + part * lags.get((row["topic"], row["queue_id"]), 0)
        queues_of.setdefault(name, set()).add(row["queue_id"])
    if not waits:
        return
    (topic, key), messages_of_it = max(waits.items(), key=lambda one: (one[1], one[0]))
    late = sum(queue.late for queue in group.queues if queue.topic == topic)
    share = _percent(round(messages_of_it), late)
    queues = group.topics[topic].queues if late else 0
    if share is None or share < _key_stands_out(len(queues_of[topic, key]), queues):
        return  # As many keys as queues: each queue has one of its own, and none is the trouble.
    rows = [row for row in hot if (row["topic"], row["top_key"]) == (topic, key)]
    worst = max(rows, key=lambda row: (row["top_key_messages"], -row["queue_id"]))
    of_it, keyed = worst["top_key_messages"], worst["keyed_messages"]
    yield Finding(
        "HOT_KEY",
        f"{of_it} of {keyed} messages with keys that {worst['client_id']} holds of queue "
        f"{worst['queue_id']} of {topic} have the key {key}: some {share} % of the lag of the "
        "topic beyond what is allowed",
        *(of_it, keyed, "messages held"),
        share,
        topic=topic,
        queue_id=worst["queue_id"],
        client_id=worst["client_id"],
    )


def _key_stands_out(queues_with_it: int, queues: int) -> int:
    """Percent of the lag of the topic from which on a key of so many of its queues stands out."""
    return SKEW_PERCENT if queues_with_it >= queues else _skewed_percent(queues_with_it, queues)


def idle_members(group: Figures) -> Iterator[Finding]:
    """Members have no queue of a topic: there are too few, or the division leaves some out."""
    topics: dict[str, list[Row]] = {}
    for row in group.stats:
        if not row["topic"].startswith("%RETRY%"):
            topics.setdefault(row["topic"], []).append(row)
    found: dict[str, list[Finding]] = {}
    for topic, rows in sorted(topics.items()):
        idle = sorted(row["client_id"] for row in rows if _is_left_out(row, group.tick_us))
        if idle:
            one = _idle_of(topic, rows, idle)
            found.setdefault(one.cause, []).append(one)
    for findings_of_cause in found.values():
        worst = max(findings_of_cause, key=lambda one: one.share_percent or 0)
        others = [one.topic or "" for one in findings_of_cause if one is not worst]
        more = f"; so it is with {_names(others)}" if others else ""
        yield replace(worst, evidence=worst.evidence + more)


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


def _idle_of(topic: str, rows: Sequence[Row], idle: Sequence[str]) -> Finding:
    """Why these members have no queue of the topic."""
    members = max(len(rows), *(row["group_members"] or 0 for row in rows))
    queues = max((row["topic_queues"] or 0 for row in rows), default=0)
    share = _percent(len(idle), members)
    if 0 < queues < members:
        return Finding(
            "FEWER_QUEUES_THAN_MEMBERS",
            f"{topic} has {queues} {'queue' if queues == 1 else 'queues'} for {members} members: "
            f"{len(idle)} {'has' if len(idle) == 1 else 'have'} nothing to do ({_names(idle)})",
            *(queues, members, "queues", share),
            topic=topic,
            client_id=idle[0],
        )
    of_queues = f"; the topic has {queues} queues" if queues else ""
    return Finding(
        "MEMBERS_WITHOUT_QUEUES",
        f"{len(idle)} of {members} members hold no queue of {topic} ({_names(idle)}){of_queues}",
        *(len(idle), 0, "members", share),
        topic=topic,
        client_id=idle[0],
    )


def retries(group: Figures) -> Iterator[Finding]:
    """Retried messages take the listeners' time."""
    share = _percent(group.retried, group.retried + group.consumed)
    if group.retried < RETRIED_MIN or share is None or share < RETRIED_PERCENT:
        return
    failed = sum(row["failed"] or 0 for row in group.stats)
    fails = f"; listeners fail {messages(failed)} a minute" if failed else ""
    yield Finding(
        "RETRIES",
        f"{group.retried} of {messages(group.retried + group.consumed)} consumed in "
        f"{_span(group.span_us)} were retries{fails}",
        *(group.retried, group.retried + group.consumed, "messages", share),
    )


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
    if beyond <= 0 or (_percent(beyond, group.lag) or 0) < BURST_PERCENT:
        return
    most = max(known)
    slot = len(known) - 1 - known[::-1].index(most)
    end_us = ((group.tick_us - 1) // group.slot_us + 1 - (len(known) - 1 - slot)) * group.slot_us
    yield Finding(
        "BURST",
        f"{messages(most)} were sent in the {_span(group.slot_us)} from "
        f"{clock(end_us - group.slot_us)}, {usual} is usual; {beyond} beyond what is usual came in "
        f"{_span(group.slot_us * len(known))}",
        *(most, usual, f"messages in {_span(group.slot_us)}"),
        min(_percent(beyond, group.lag) or 0, 100),
    )


def cold_reads(group: Figures) -> Iterator[Finding]:
    """What the group reads is no more in the broker's memory."""
    cold = [row for row in group.cold if row["size_bytes"] is not None]
    if not cold or group.members == 0:
        return
    worst = max(cold, key=lambda row: (row["messages"], row["topic"]))
    share = _percent(worst["messages"], max(worst["messages"], group.consumed + group.retried))
    told = [row["paused"] for row in group.stats if row["paused"] is not None]
    if (share or 0) < COLD_PERCENT or (told and all(told)):
        return
    of_disk = ""
    fetched = worst["disk_read_bytes"]
    if fetched is not None:
        if fetched * 100 < COLD_PERCENT * worst["size_bytes"]:
            return  # However far behind: they were in memory.
        of_disk = f"; the broker read {fetched} bytes from disk meanwhile"
    few = ""
    if worst["behind_bytes_max"] > worst["resident_bytes"]:
        few = f" of at most {worst['messages_a_pull_max']}, as it is told to do"
        few += f" from {worst['resident_bytes']} bytes behind on"
    yield Finding(
        "COLD_READS",
        f"{messages(worst['messages'])} of {worst['topic']} ({worst['size_bytes']} bytes) were "
        f"read up to {worst['behind_bytes_max']} bytes behind the end of the log, in "
        f"{worst['pulls']} answers{few}{of_disk}",
        *(_cold_measure(worst)),
        share,
        topic=worst["topic"],
    )


def _cold_measure(row: Row) -> tuple[int, int, str]:
    """What was read from disk beside what was answered; if that is not known, the distance."""
    if row["disk_read_bytes"] is not None:
        return row["disk_read_bytes"], row["size_bytes"], "bytes read from disk, of those answered"
    return row["behind_bytes_max"], row["resident_bytes"], "bytes behind the end of the log"


def rebalance_flapping(group: Figures) -> Iterator[Finding]:
    """Members come and go, and each time the queues are divided anew."""
    if len(group.changes) < FLAPS_MIN:
        return
    came = Counter(row["client_id"] for row in group.changes if row["kind"] == "JOINED")
    if came.total() <= (group.members or 0):
        return  # A group that grew, or shrank, or whose members were restarted once, does not flap.
    went = Counter(row["client_id"] for row in group.changes if row["kind"] != "JOINED")
    span_us = group.tick_us - min(row["event_us"] for row in group.changes)
    restless, _ = (came + went).most_common(1)[0]
    yield Finding(
        "REBALANCE_FLAPPING",
        f"{len(group.changes)} changes of members in {_span(span_us)}: {_counted(came)} joined; "
        f"{_counted(went)} left",
        *(len(group.changes), FLAPS_MIN, f"changes in {_span(span_us)}"),
        client_id=restless,
    )


def unknown(group: Figures) -> Finding:
    """No test found anything: why not?"""
    if not group.stats:
        return Finding("UNKNOWN", "unknown: no member tells how its listeners work")
    told = _by_member(group, "listeners_busy")
    if not told:
        return Finding(
            "UNKNOWN",
            "unknown: the members, clients that are not ours, tell neither how many listeners are "
            "at work nor why pulls rest",
        )
    busy, slots = sum(row["listeners_busy"] for row in told), sum(row["listeners"] for row in told)
    given = sum(list(group.given)[-2:])
    return Finding(
        "UNKNOWN",
        f"unknown: no test finds a cause. {busy} of {slots} listeners are at work, pulls do not "
        f"rest; in {_span(group.span_us)} {messages(given)} were sent and {group.consumed} "
        "consumed",
    )


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
"""Those that can find something of a group of which no member tells how it works."""


def length_ms(row: Row) -> int | None:
    """How long calls of a member take: their p99, or their mean where that is all it tells."""
    if row["consume_ms_p99"] is not None:
        return int(row["consume_ms_p99"])
    return None if row["consume_us_mean"] is None else round(row["consume_us_mean"] / 1000)


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


def _by_member(group: Figures, *told: str) -> list[Row]:
    """One row of each member that tells these figures, which are its own, not a topic's."""
    rows = {
        row["client_id"]: row
        for row in sorted(group.stats, key=lambda row: (row["client_id"], row["calls"] or 0))
        if all(row[name] is not None for name in told)
    }
    return list(rows.values())


def _percent(part: int, whole: int) -> int | None:
    return None if whole <= 0 else part * 100 // whole


def _names(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def _counted(names: Counter[str]) -> str:
    told = [f"{name} {count} times" if count > 1 else name for name, count in names.most_common()]
    return _names(told) if told else "nobody"


def _fine(percent: float) -> str:
    return f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"


def _ms(micros: int) -> str:
    return f"{micros // 1000} ms" if micros >= 10_000 else f"{micros / 1000:.1f} ms"


def _seconds(millis: int) -> str:
    return f"{millis / 1000:.1f} s"


def _span(span_us: int) -> str:
    seconds = max(1, round(span_us / SECOND_US))
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"
