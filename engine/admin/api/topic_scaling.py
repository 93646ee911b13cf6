"""Scales a topic's queue count while keeping every message readable.

Place in the walk: beside it; an order to brokers, in the order that keeps every message readable.

    fewer   lower writeQueueNums → wait until producers know and every group has drained the queues
            that go → lower readQueueNums
    more    raise both: readers of the new queues are found by the next rebalance

Invariant: a step that would leave messages where nobody may read them is taken only when it is
asked for by name. Absent on purpose: waiting (the command does), and deciding how many queues.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.api.admin import Admin
from engine.foundation.errors import RemoteProtocolError, RequestRefused, Unreachable
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue

BROADCASTING = "BROADCASTING"

SAYS_NOTHING = "it says nothing of what it holds"


@dataclass(frozen=True, slots=True)
class Stranded:
    """Messages that a group could not read any more."""

    group: str | None
    """None: no group reads the topic at all."""
    queue: MessageQueue
    message_count: int


@dataclass(frozen=True, slots=True)
class Removal:
    """The queues of one broker that are to go, and what is in them."""

    ends: dict[MessageQueue, tuple[int, int]]
    """First kept and next to be written offset of each."""
    stranded: tuple[Stranded, ...]
    unreadable: tuple[Stranded, ...]
    """Those of them that nobody can read now already, so that no waiting drains them."""
    broadcast_groups: tuple[str, ...]
    """Groups whose members keep their offsets themselves: their progress is unknown."""


def stranded_of(
    group: str | None, ends: dict[MessageQueue, tuple[int, int]], consumed: dict[MessageQueue, int]
) -> list[Stranded]:
    """What would be lost to a group that is at `consumed`, queue by queue."""
    found = []
    for queue, (minimum, maximum) in ends.items():
        waiting = maximum - max(minimum, consumed.get(queue, 0))
        if waiting > 0:
            found.append(Stranded(group, queue, waiting))
    return found


async def config_of(admin: Admin, topic: str, broker_name: str) -> TopicConfig:
    """The topic's settings on one broker. Raises RequestRefused when it has no such topic."""
    config = (await admin.topics.configs(topic)).get(broker_name)
    if config is None:
        raise RequestRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"broker {broker_name} has no topic {topic}"
        )
    return config


async def removal_of(admin: Admin, topic: str, broker_name: str, *, keep: int) -> Removal:
    """What lowering readQueueNums to `keep` on one broker would do now."""
    config = await config_of(admin, topic, broker_name)
    queues = [
        MessageQueue(topic, broker_name, queue_id)
        for queue_id in range(keep, max(config.read_queue_nums, config.write_queue_nums))
    ]
    ends = {
        queue: (await admin.offsets.min_offset(queue), await admin.offsets.max_offset(queue))
        for queue in queues
    }
    stranded: list[Stranded] = []
    broadcast = []
    groups = await admin.topics.groups(topic)
    for group in groups:
        members = await admin.groups.members(group)
        if any(one.message_model == BROADCASTING for one in members.values()):
            broadcast.append(group)
            continue
        progress = await admin.groups.consume_stats(group, topic)
        consumed = {queue: one.consumer_offset for queue, one in progress.items()}
        stranded += stranded_of(group, ends, consumed)
    if not groups:
        stranded = stranded_of(None, ends, {})
    unreadable = [one for one in stranded if one.queue.queue_id >= config.read_queue_nums]
    return Removal(ends, tuple(stranded), tuple(unreadable), tuple(broadcast))


async def set_queues(
    admin: Admin,
    topic: str,
    broker_name: str,
    *,
    read: int | None = None,
    write: int | None = None,
    force: bool = False,
) -> TopicConfig:
    """Change a topic's queue numbers on one broker and nothing else; the settings before. `force`:
    although it strands messages.
    """
    config = await config_of(admin, topic, broker_name)
    await admin.topics.create(
        (await admin.cluster.masters())[broker_name],
        topic,
        read_queues=config.read_queue_nums if read is None else read,
        write_queues=config.write_queue_nums if write is None else write,
        perm=config.perm,
        order=config.order,
        sys_flag=config.topic_sys_flag,
        force=force,
    )
    return config


@dataclass(frozen=True, slots=True)
class IdleMember:
    """A member of a group that can get no message of a topic."""

    group: str
    client_id: str
    queues: tuple[MessageQueue, ...] | None
    """What it holds of the topic: queues that nobody ever wrote to; empty when it holds none, None
    when it does not say.
    """
    silence: str | None = None
    """Why it does not say what it holds."""


async def idle_members(admin: Admin, topic: str) -> list[IdleMember]:
    """Members of the topic's groups that hold none of its queues, or none ever written to; and
    those that do not say what they hold.
    """
    written: dict[MessageQueue, bool] = {}
    found = []
    for group in await admin.topics.groups(topic):
        masters = await admin.cluster.masters()
        clients: dict[str, str] = {}
        for broker_name, members in (await admin.groups.members(group)).items():
            for connection in members.connection_set:
                clients.setdefault(connection.client_id, masters[broker_name])
        for client_id, address in sorted(clients.items()):
            try:
                info = await admin.groups.running_info(address, group, client_id)
            except (RequestRefused, RemoteProtocolError, Unreachable) as error:
                found.append(IdleMember(group, client_id, None, str(error)))
                continue
            if info.says_nothing:
                found.append(IdleMember(group, client_id, None, SAYS_NOTHING))
                continue
            held = tuple(sorted(queue for queue in info.mq_table if queue.topic == topic))
            for queue in held:
                if queue not in written:
                    written[queue] = await admin.offsets.max_offset(queue) > 0
            if not any(written[queue] for queue in held):
                found.append(IdleMember(group, client_id, held))
    return found
