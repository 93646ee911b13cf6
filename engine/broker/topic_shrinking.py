"""What lowering a topic's readQueueNums would leave where nobody reads it.

Place in the walk: before a tool's change of a topic is taken, whoever the tool is.

    first   lower writeQueueNums: producers leave the queues that are to go
    then    wait until every group has consumed what is in them
    last    lower readQueueNums

Invariant: readQueueNums never goes below a queue that holds messages some group has not consumed,
or that is still written to, unless that is forced; and what is stranded then is told. All groups
are looked at in steps before; what was seen counts only while nothing has changed that could strand
more, else they are looked at again in the step that shrinks the topic. Absent on purpose: waiting
(the tool does), and groups that broadcast: how far they are only their members know.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from engine.broker.parts import BrokerParts
from engine.broker.state.group_configs import SYSTEM_GROUPS
from engine.broker.work_in_steps import in_steps, stepped
from engine.foundation.errors import RequestRefused
from engine.foundation.long_lists import sorted_in_steps
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode

STRANDED_TOLD_MAX = 10
"""Queues of groups named one by one; those beyond are told as a number."""

LOOKS_MAX = 3
"""Looks in steps, when groups come or go back meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StrandedQueue:
    """Messages of a queue that a group has not consumed; group None: no group reads the topic."""

    group: str | None
    queue_id: int
    message_count: int

    def __str__(self) -> str:
        """In words."""
        what = f"{self.message_count} messages of queue {self.queue_id}"
        if self.group is None:
            return f"{what}, which no group reads"
        return f"{what} that group {self.group} has not consumed"


@dataclass(slots=True)
class Stranded:
    """What a change would strand: the first of it, and how much there is."""

    first: list[StrandedQueue] = field(default_factory=list)
    count: int = 0

    def add(self, one: StrandedQueue) -> None:
        """Count it, and note it while it is among the first."""
        self.count += 1
        if self.count <= STRANDED_TOLD_MAX:
            self.first.append(one)


@dataclass(frozen=True, slots=True)
class Look:
    """A look at all groups of a topic, and what it depends on."""

    stranded: Stranded
    state: tuple[object, ...]


async def look_before_shrinking(parts: BrokerParts, after: TopicConfig) -> Look | None:
    """Find out in steps what `after` strands, for `check_shrinking`; None when it shrinks nothing
    now.
    """
    look = None
    for _ in range(LOOKS_MAX):
        before = parts.topics.find(after.topic_name)
        if before is None or after.read_queue_nums >= before.read_queue_nums:
            return None
        look = Look(Stranded(), _state(parts, before, after))
        await in_steps(stepped(_find_stranded(parts, before, after, look.stranded)))
        if _state(parts, parts.topics.find(after.topic_name), after) == look.state:
            break
    return look


def check_shrinking(
    parts: BrokerParts, look: Look | None, after: TopicConfig, *, forced: bool
) -> str:
    """What `after` strands now, in words; nothing at all when nothing is. `look` spares to look at
    all groups, while it is true.

    Raises RequestRefused with INVALID_PARAMETER when it strands messages and is not `forced`.
    """
    before = parts.topics.find(after.topic_name)
    if before is None or after.read_queue_nums >= before.read_queue_nums:
        return ""
    if look is not None and look.state == _state(parts, before, after):
        stranded = look.stranded
    else:
        stranded = Stranded()
        for _ in _find_stranded(parts, before, after, stranded):
            pass
    reasons = [str(one) for one in stranded.first]
    if stranded.count > STRANDED_TOLD_MAX:
        reasons.append(f"and {stranded.count - STRANDED_TOLD_MAX} more like these")
    if after.write_queue_nums > after.read_queue_nums:
        reasons.append(
            f"queues {after.read_queue_nums} to {after.write_queue_nums - 1} would still be "
            "written to"
        )
    told = "; ".join(reasons)
    if not reasons or forced:
        if reasons:
            _log.warning("topic %s is shrunk by force: %s", after.topic_name, told)
        return told
    had, keep = before.read_queue_nums, after.read_queue_nums
    raise RequestRefused(
        ResponseCode.INVALID_PARAMETER,
        f"topic {after.topic_name} has {had} queues to read, {keep} would strand messages: {told}. "
        f"First set writeQueueNums={keep} and leave readQueueNums={had}, wait until the groups "
        f"have consumed what is there, then set readQueueNums={keep} (tidemark admin topic shrink "
        "does all that); or force it by the attribute +queue.shrink=forced",
    )


def _state(
    parts: BrokerParts, before: TopicConfig | None, after: TopicConfig
) -> tuple[object, ...]:
    """Equal while nothing happens that could strand more. Progress of groups is no such thing."""
    topic, store = after.topic_name, parts.store
    had = 0 if before is None else before.read_queue_nums
    ends = [
        (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
        for queue_id in range(after.read_queue_nums, had)
    ]
    return ends, parts.offsets.setback_of(topic), parts.groups.subscriptions_counter


def _find_stranded(
    parts: BrokerParts, before: TopicConfig, after: TopicConfig, found: Stranded
) -> Iterator[None]:
    """Look at every group of each queue that is to go, one after the other."""
    topic, store = before.topic_name, parts.store
    sharing: list[str] = []
    somebody_reads = yield from _find_groups(parts, topic, sharing)
    for queue_id in range(after.read_queue_nums, before.read_queue_nums):
        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if end > first and not somebody_reads:
            found.add(StrandedQueue(None, queue_id, end - first))
        for group in sharing:
            consumed = parts.offsets.told(group, topic, queue_id) or 0
            waiting = end - max(first, consumed)
            if waiting > 0:
                found.add(StrandedQueue(group, queue_id, waiting))
            yield


def _find_groups(parts: BrokerParts, topic: str, sharing: list[str]) -> Generator[None, None, bool]:
    """Groups whose progress on the topic is known here, sorted; does any group read it?"""
    names: dict[str, None] = {}
    for group in list(parts.groups.all()):
        if topic in group.subscriptions:
            names[group.name] = None
        yield
    names |= dict.fromkeys(parts.offsets.groups_on(topic))
    for name in SYSTEM_GROUPS:
        names.pop(name, None)
    for name in (yield from sorted_in_steps(names)):
        group_now = parts.groups.of(name)
        is_broadcasting = (
            group_now is not None and topic in group_now.subscriptions and group_now.broadcasting
        )
        if not is_broadcasting:
            sharing.append(name)
        yield
    return bool(names)
