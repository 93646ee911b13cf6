"""What lowering a topic's readQueueNums would leave where nobody reads it.

Place in the walk: before a tool's change of a topic is taken, whoever the tool is.

    first   lower writeQueueNums: producers leave the queues that are to go
    then    wait until every group has consumed what is in them
    last    lower readQueueNums

Invariant: readQueueNums never goes below a queue that holds messages some group has not consumed,
or that is still written to, unless that is forced; and what is stranded then is told. Absent on
purpose: waiting (the tool does), and groups that broadcast: how far they are only their members
know.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice

from engine.broker.parts import BrokerParts
from engine.broker.state.group_configs import SYSTEM_GROUPS
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode

STRANDED_TOLD_MAX = 10
"""Queues of groups named one by one; those beyond are told as a number."""

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


def check_shrinking(
    parts: BrokerParts, before: TopicConfig | None, after: TopicConfig, *, forced: bool
) -> str:
    """What `after` strands, in words; nothing at all when nothing is.

    Raises RequestRefused with INVALID_PARAMETER when it strands messages and is not `forced`.
    """
    if before is None or after.read_queue_nums >= before.read_queue_nums:
        return ""
    stranded = _stranded(parts, before, after)
    reasons = [str(one) for one in islice(stranded, STRANDED_TOLD_MAX)]
    if len(stranded) > STRANDED_TOLD_MAX:
        reasons.append(f"and {len(stranded) - STRANDED_TOLD_MAX} more like these")
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


def _stranded(parts: BrokerParts, before: TopicConfig, after: TopicConfig) -> list[StrandedQueue]:
    topic, store = before.topic_name, parts.store
    groups, somebody_reads = _groups_of(parts, topic)
    found = []
    for queue_id in range(after.read_queue_nums, before.read_queue_nums):
        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if end > first and not somebody_reads:
            found.append(StrandedQueue(None, queue_id, end - first))
        for group in groups:
            consumed = parts.offsets.told(group, topic, queue_id) or 0
            waiting = end - max(first, consumed)
            if waiting > 0:
                found.append(StrandedQueue(group, queue_id, waiting))
    return found


def _groups_of(parts: BrokerParts, topic: str) -> tuple[list[str], bool]:
    """Groups whose progress on the topic is known here, sorted; does any group read it?"""
    subscribed = {one.name: one for one in parts.groups.all() if topic in one.subscriptions}
    names = ({*subscribed, *parts.offsets.groups_of(topic)}).difference(SYSTEM_GROUPS)
    sharing = [
        name
        for name in sorted(names)
        if name not in subscribed or not subscribed[name].broadcasting
    ]
    return sharing, bool(names)
