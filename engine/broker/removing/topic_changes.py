"""Applies requested topic changes without stranding messages, unless forced to do so.

Place in the walk: behind `handlers/admin_topics`; a changed number of queues makes the groups that
read the topic rebalance.

    first   lower writeQueueNums: producers leave the queues that are to go
    then    wait until every group has consumed what is in them
    last    lower readQueueNums

Invariant: readQueueNums never goes below a queue that holds messages some group has not consumed,
or that is still written to, unless that is forced; what is stranded then is reported. Groups are
looked at in steps before; what was seen counts only while nothing has changed that could strand
more. Absent on purpose: waiting (the tool does), groups that broadcast: how far they are only their
members know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.broker.config import BrokerConfig
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import SYSTEM_GROUPS
from engine.broker.groups.membership import Membership
from engine.broker.groups.removals import Removals
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import TAG_FILTER, Topics, changed_attributes, tag_filter
from engine.foundation.chunked_work import in_steps, sorted_in_steps, stepped
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.names import check_topic, is_system_topic, reply_topic
from engine.store import MessageStore

STRANDED_TOLD_MAX = 10
"""Queues of groups named one by one; those beyond are reported as a number."""

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


@dataclass(slots=True)
class GroupsOfTopic:
    """Groups that read a topic."""

    sharing: list[str] = field(default_factory=list)
    """Those whose progress on it is known here, sorted."""
    has_any: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A look at all groups of a topic, and what it depends on."""

    stranded: Stranded
    state: tuple[object, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Shrinking:
    """Checks changes of topics that take queues away."""

    groups: ConsumerGroups
    offsets: ConsumerOffsets
    store: MessageStore
    topics: Topics

    async def look_before(self, after: TopicConfig) -> Look | None:
        """Find out in steps what `after` strands, for `check_shrinking`; None when it shrinks
        nothing now.
        """
        look = None
        for _ in range(LOOKS_MAX):
            before = self.topics.find(after.topic_name)
            if before is None or after.read_queue_nums >= before.read_queue_nums:
                return None
            look = Look(Stranded(), self._state(before, after))
            readers = GroupsOfTopic()
            await in_steps(self._find_groups(after.topic_name, readers))
            stranded = self._find_stranded(before, after, readers=readers, found=look.stranded)
            await in_steps(stepped(stranded))
            if self._state(self.topics.find(after.topic_name), after) == look.state:
                break
        return look

    def check(self, look: Look | None, after: TopicConfig, *, forced: bool) -> str:
        """What `after` strands now, in words; nothing at all when nothing is. `look` spares to look
        at all groups, while it is true.

        Raises RequestRefused with INVALID_PARAMETER when it strands messages and is not `forced`.
        """
        before = self.topics.find(after.topic_name)
        if before is None or after.read_queue_nums >= before.read_queue_nums:
            return ""
        if look is not None and look.state == self._state(before, after):
            stranded = look.stranded
        else:
            stranded, readers = Stranded(), GroupsOfTopic()
            for _ in self._find_groups(after.topic_name, readers):
                pass
            for _ in self._find_stranded(before, after, readers=readers, found=stranded):
                pass
        reasons = [str(one) for one in stranded.first]
        if stranded.count > STRANDED_TOLD_MAX:
            reasons.append(f"and {stranded.count - STRANDED_TOLD_MAX} more like these")
        if after.write_queue_nums > after.read_queue_nums:
            reasons.append(
                f"queues {after.read_queue_nums} to {after.write_queue_nums - 1} would still be "
                "written to"
            )
        text = "; ".join(reasons)
        if not reasons or forced:
            if reasons:
                _log.warning("topic %s is shrunk by force: %s", after.topic_name, text)
            return text
        had, keep = before.read_queue_nums, after.read_queue_nums
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"topic {after.topic_name} has {had} queues to read, {keep} would strand messages: "
            f"{text}. First set writeQueueNums={keep} and leave readQueueNums={had}, wait until "
            f"the groups have consumed what is there, then set readQueueNums={keep} (tidemark "
            "admin topic shrink does all that); or force it by the attribute +queue.shrink=forced",
        )

    def _state(self, before: TopicConfig | None, after: TopicConfig) -> tuple[object, ...]:
        """Equal while nothing happens that could strand more; progress of groups does not."""
        topic, store = after.topic_name, self.store
        had = 0 if before is None else before.read_queue_nums
        ends = [
            (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
            for queue_id in range(after.read_queue_nums, had)
        ]
        return ends, self.offsets.setback_of(topic), self.groups.subscriptions_counter

    def _find_stranded(
        self,
        before: TopicConfig,
        after: TopicConfig,
        *,
        readers: GroupsOfTopic,
        found: Stranded,
    ) -> Iterator[None]:
        """Look at every group of each queue that is to go, one after the other."""
        topic, store = before.topic_name, self.store
        for queue_id in range(after.read_queue_nums, before.read_queue_nums):
            first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            if end > first and not readers.has_any:
                found.add(StrandedQueue(None, queue_id, end - first))
            for group in readers.sharing:
                consumed = self.offsets.answered(group, topic, queue_id) or 0
                waiting = end - max(first, consumed)
                if waiting > 0:
                    found.add(StrandedQueue(group, queue_id, waiting))
                yield

    def _find_groups(self, topic: str, found: GroupsOfTopic) -> Iterator[None]:
        """Note in steps which groups read the topic."""
        names: dict[str, None] = {}
        broadcasting: set[str] = set()
        for group in self.groups.subscribers_of(topic):
            if group is None:
                yield
                continue
            names[group.name] = None
            if group.broadcasting:
                broadcasting.add(group.name)
        names |= dict.fromkeys(self.offsets.groups_on(topic))
        for name in SYSTEM_GROUPS:
            names.pop(name, None)
        found.has_any = bool(names)
        ordered = yield from sorted_in_steps(names)
        found.sharing += [name for name in ordered if name not in broadcasting]


def is_own(topic: str, config: BrokerConfig) -> bool:
    """Is it a topic that every broker has, or this one for itself?"""
    own = (config.cluster_name, config.broker_name, reply_topic(config.cluster_name))
    return is_system_topic(topic) or topic in own


@dataclass(slots=True, kw_only=True, eq=False)
class TopicChanges:
    """Changes of one broker's topics."""

    node: BrokerNode
    store: MessageStore
    topics: Topics
    changes: TableChanges
    removals: Removals
    membership: Membership

    def check_name(self, topic: str) -> None:
        """Raise RequestRefused for an illegal name, and for a topic of the broker's own."""
        check_topic(topic)
        if is_own(topic, self.node.config):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic.",
            )

    def take_attributes(self, config: TopicConfig, change: str) -> None:
        """What the topic has after `change`, in RocketMQ's words. Raises RequestRefused."""
        topic = config.topic_name
        before = self.topics.find(topic)
        old = {} if before is None else before.attributes
        config.attributes = changed_attributes(None if before is None else old, change)
        self._refuse_another_tag_filter(topic, tag_filter(old), tag_filter(config.attributes))

    def put_all(self, configs: Sequence[TopicConfig]) -> None:
        """Create or change these topics; none when one is refused. Raises RequestRefused."""
        for config in configs:
            self.topics.check(config)
        self.topics.check_room([config.topic_name for config in configs])
        for config in configs:
            self._put(config)

    def _put(self, config: TopicConfig) -> None:
        """Create or change a topic."""
        topic = config.topic_name
        before = self.topics.find(topic)
        self.topics.put(config)
        self.changes.of_topics()
        if before is not None and before.read_queue_nums > config.read_queue_nums:
            self.removals.queues_removed(topic, config.read_queue_nums)
        if before is not None and before.read_queue_nums != config.read_queue_nums:
            self.membership.queues_changed(topic, before.read_queue_nums, config.read_queue_nums)

    def _refuse_another_tag_filter(self, topic: str, old: str, new: str) -> None:
        """Refuse to change what the units of a queue mean once there are any."""
        if old != new and self.store.has_held(topic):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"attempt to update an unchangeable attribute. key: {TAG_FILTER}: topic {topic} "
                f"holds messages filtered by {old}; make a new topic with {new}, or delete this "
                "one first",
            )
