"""Validates each pull as RocketMQ does, and determines the offset from which it reads.

Place in the walk: every pull passes here first, and one that was held once more before its answer:
accounts, topic and group may have changed meanwhile. A reset moves a reader, and so does an offset
that it remembers of messages that are gone; an offset that the pull carries is committed.

Invariant: a reader that is moved has neither committed nor pulled. Absent on purpose: which offsets
count (offsets/remembered_offsets).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from engine.broker.groups.group_configs import TOOLS_GROUP, GroupConfigs, SubscriptionGroupConfig
from engine.broker.groups.members import client_id_of
from engine.broker.groups.membership import Membership
from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.identity import BrokerNode
from engine.broker.offsets.commit_reports import CommitReports
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.new_lives import NewLives
from engine.broker.offsets.remembered_offsets import Client, RememberedOffsets, Store, pull_store
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
from engine.runtime.clock import Clock

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


@dataclass(slots=True, kw_only=True, eq=False)
class PullChecks:
    """The checks of one broker."""

    node: BrokerNode
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    lives: TopicLives
    gate: Gate
    filters: PullFilters

    def checked(
        self, peer: Peer, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> Pull:
        """Permissions, queue and subscription, in RocketMQ's order. Raises RequestRefused."""
        group, topic = header.consumer_group, header.topic
        if not self.node.config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.node.config.host}] pulling message is forbidden: its "
                f"brokerPermission {self.node.config.broker_permission} has no read bit",
            )
        check_no_own_dead_letters(group, topic)
        group_config = self.group_configs.find(group)
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
        config = self.topics.require(topic)
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
        members = self.groups.of(group)
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
            life=self.lives.number(topic),
            filter=self.filters.filter_of(header),
            topic_sys_flag=config.topic_sys_flag,
            group_config=group_config,
            gate_changes=self.gate.changes,
        )

    def why_void(self, pull: Pull) -> str | None:
        """Why a pull that was held has to be made again; None when it still holds."""
        group, topic, _ = pull.key
        if pull.gate_changes != self.gate.changes:
            return "the accounts have changed"
        if pull.life != self.lives.number(topic) or not self.group_configs.known(group):
            return "topic or group was deleted"
        return None


def _store_of(
    request: RemotingCommand, header: PullMessageRequestHeader, group: ConsumerGroup | None
) -> Store:
    is_lite = request.code == RequestCode.LITE_PULL_MESSAGE
    return pull_store(group, is_lite=is_lite, suspends=bool(header.sys_flag & SUSPEND))


COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)  # A plain number, as PERM_READ is.


@dataclass(slots=True, kw_only=True, eq=False)
class PullPositions:
    """Where the readers of one broker are."""

    clock: Clock
    offsets: ConsumerOffsets
    readers: Readers
    remembered: RememberedOffsets
    new_lives: NewLives
    reports: CommitReports
    membership: Membership

    def moved_to(self, pull: Pull) -> int | None:
        """Where the reader has to go on instead; None: its offset counts, and is noted. Hot."""
        key, offset = pull.key, pull.header.queue_offset
        back_to = self.remembered.goes_back_to(key, offset, pull.client, shared=pull.shared)
        self._note_reader(pull, is_sent_back=back_to is not None)
        if back_to is not None:
            committed = self.offsets.answered(*key)
            if pull.shared and (committed is None or committed > back_to):
                # So does any other of its group that asks, whatever its start policy is.
                self.new_lives.place_at(key, back_to)
            return back_to
        if pull.shared:
            self.new_lives.pulled_from(key, offset)
        self.remembered.note_pull(key, offset, pull.client)
        self._commit(pull)
        return self.offsets.take_reset(*key)

    def reset_to(self, pull: Pull) -> int | None:
        """The offset to which a reset moves the reader of a held pull; None without a reset."""
        return self.offsets.take_reset(*pull.key)

    def _note_reader(self, pull: Pull, *, is_sent_back: bool) -> None:
        if not pull.shared:
            return
        is_new, previous = self.readers.arrived(
            pull.key,
            pull.reader,
            now_ms=self.clock.now_ms(),
            from_offset=pull.header.queue_offset,
            is_sent_back=is_sent_back,
        )
        if is_new and pull.reader is not None:
            self.membership.reader_changed(pull.key, pull.reader, previous)

    def _commit(self, pull: Pull) -> None:
        """The piggyback: a pull that arrives may carry the offset to store (row A5)."""
        if pull.header.sys_flag & COMMIT_OFFSET and pull.header.commit_offset >= 0:
            self.reports.commit(
                pull.peer,
                pull.key,
                pull.header.commit_offset,
                path="PULL_PIGGYBACK",
                trigger="UNKNOWN",
                pulled_from=pull.header.queue_offset,
            )
