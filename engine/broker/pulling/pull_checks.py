"""Checks pulls: permissions, queue, group and subscription, in RocketMQ's order.

Place in the walk: every pull passes here first, and one that was held once more before its answer:
accounts, topic and group may have changed meanwhile. Absent on purpose: offsets (pull_positions).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from engine.broker.groups.group_configs import TOOLS_GROUP, GroupConfigs, SubscriptionGroupConfig
from engine.broker.groups.members import client_id_of
from engine.broker.groups.readers import QueueKey
from engine.broker.node import BrokerNode
from engine.broker.offsets.remembered_offsets import Client, Store, pull_store
from engine.broker.offsets.topic_lives import TopicLives
from engine.broker.pulling.pull_filter import PullFilter, PullFilters
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import PullMessageRequestHeader
from engine.protocol.names import PERM_READ, PullSysFlag, check_no_own_dead_letters
from engine.remoting import Peer
from engine.remoting.gate import Gate

SUSPEND = int(PullSysFlag.SUSPEND)


@dataclass(slots=True)
class Pull:
    """A pull that passed every check."""

    peer: Peer
    request: RemotingCommand
    header: PullMessageRequestHeader
    key: QueueKey
    reader: str | None
    """Client id, or the address of a client that has sent no heartbeat."""
    shared: bool
    """Do the group's members share the queues (CLUSTERING)?"""
    client: Client
    """The client that names the offset, and its source."""
    life: int
    """The life of the topic in which it came."""
    filter: PullFilter
    topic_sys_flag: int
    group_config: SubscriptionGroupConfig
    gate_changes: int
    """What the gate had seen of other accounts when it passed this request."""


class PullChecks:
    """The checks of one broker."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        topics: Topics,
        group_configs: GroupConfigs,
        groups: ConsumerGroups,
        lives: TopicLives,
        gate: Gate,
        filters: PullFilters,
    ) -> None:
        self._node = node
        self._topics = topics
        self._group_configs = group_configs
        self._groups = groups
        self._lives = lives
        self._gate = gate
        self._filters = filters

    def checked(
        self, peer: Peer, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> Pull:
        """Permissions, queue and subscription, in RocketMQ's order. Raises RequestRefused."""
        group, topic = header.consumer_group, header.topic
        if not self._node.config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._node.config.host}] pulling message is forbidden: its "
                f"brokerPermission {self._node.config.broker_permission} has no read bit",
            )
        check_no_own_dead_letters(group, topic)
        group_config = self._group_configs.find(group)
        if group_config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it, or let the broker do so "
                "(autoCreateSubscriptionGroup)",
            )
        if not group_config.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        config = self._topics.require(topic)
        if not config.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] pulling message is forbidden: its perm {config.perm} has no "
                "read bit",
            )
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{peer.address}]",
            )
        members = self._groups.of(group)
        if (
            members is not None
            and members.broadcasting
            and not group_config.consume_broadcast_enable
        ):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way "
                "(consumeBroadcastEnable is false)",
            )
        return Pull(
            peer=peer,
            request=request,
            header=header,
            key=(group, topic, header.queue_id),
            reader=client_id_of(peer),
            shared=group != TOOLS_GROUP and (members is None or not members.broadcasting),
            client=Client(client_id_of(peer), peer.address, _store_of(request, header, members)),
            life=self._lives.number(topic),
            filter=self._filters.filter_of(header),
            topic_sys_flag=config.topic_sys_flag,
            group_config=group_config,
            gate_changes=self._gate.changes,
        )

    def why_void(self, pull: Pull) -> str | None:
        """Why a pull that was held has to be made again; None when it still holds."""
        group, topic, _ = pull.key
        if pull.gate_changes != self._gate.changes:
            return "the accounts have changed"
        if pull.life != self._lives.number(topic) or not self._group_configs.known(group):
            return "topic or group was deleted"
        return None


def _store_of(
    request: RemotingCommand, header: PullMessageRequestHeader, group: ConsumerGroup | None
) -> Store:
    is_lite = request.code == RequestCode.LITE_PULL_MESSAGE
    return pull_store(group, is_lite=is_lite, suspends=bool(header.sys_flag & SUSPEND))
