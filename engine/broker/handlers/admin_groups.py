"""Handles admin requests about consumer groups: settings, deletion and progress.

Place in the walk: beside it. Tools get a group's progress as memory holds it.

Invariant: lag is the queue's max offset less the group's consume offset.
Absent on purpose: judging progress (pipelines), moving offsets (group_offsets), connected clients
(admin_clients).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.broker.groups.group_configs import (
    GroupConfigs,
    SubscriptionGroupConfig,
    check_attributes,
    check_numbers,
    group_from_document,
    group_to_document,
)
from engine.broker.groups.removals import Removals
from engine.broker.handlers.admin_topics import check_entries
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.progress import Progress
from engine.broker.removing.deletion import Deletions
from engine.broker.table_changes import TableChanges
from engine.foundation.chunked_work import in_steps
from engine.foundation.errors import CorruptRecord, ProtocolError, RequestRefused
from engine.foundation.limits import LOOSE_BODY_KEYS_MAX
from engine.protocol import fastjson
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    AllGroupConfigResponseHeader,
    ConsumeStatsRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    SubscriptionGroupRequestHeader,
)
from engine.protocol.names import check_group
from engine.remoting import Handlers, Peer, serves


@dataclass(slots=True, kw_only=True, eq=False)
class GroupHandlers(Handlers):
    """Requests of tools about groups."""

    changes: TableChanges
    deletions: Deletions
    group_configs: GroupConfigs
    node: BrokerNode
    offsets: ConsumerOffsets
    progress: Progress
    removals: Removals
    save_settings: Callable[[], Awaitable[None]]

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def create(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        try:
            config = group_from_document(fastjson.loads(request.body, keys_max=LOOSE_BODY_KEYS_MAX))
        except (CorruptRecord, ProtocolError) as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._put([config])
        await self.save_settings()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def create_all(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): none of them when a name is refused."""
        try:
            document = fastjson.loads(request.body, keys_max=LOOSE_BODY_KEYS_MAX)
            entries = document.get("groupConfigList") if isinstance(document, dict) else None
            if not isinstance(entries, list):
                raise CorruptRecord("the body holds no groupConfigList")
            check_entries("groups", len(entries))
            configs = [group_from_document(entry) for entry in entries]
        except (CorruptRecord, ProtocolError) as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._put(configs)
        await self.save_settings()
        return request.respond(ResponseCode.SUCCESS)

    def _put(self, configs: Sequence[SubscriptionGroupConfig]) -> None:
        for config in configs:
            check_group(config.group_name)
            check_numbers(config)
            check_attributes(config)
            self.group_configs.check_stays(config.group_name)
        self.group_configs.check_room(config.group_name for config in configs)
        for config in configs:
            self.group_configs.put(config)
        self.changes.of_settings()

    @serves(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    async def all_configs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        configs = self.group_configs
        version = self.node.data_version(configs.counter).to_json()
        pieces: list[bytes] = []
        await in_steps(configs.encoded(pieces, {"dataVersion": version, "forbiddenTable": {}}))
        fields = AllGroupConfigResponseHeader(total_group_num=len(configs)).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=b"".join(pieces))

    @serves(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""
        group = SubscriptionGroupRequestHeader.decode(request.fields).group
        if not self.group_configs.known(group):
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {group}",
            )
        config = self.group_configs.find(group)
        assert config is not None, f"{group} is known"
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps(group_to_document(config)))

    @serves(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP (207), with its offsets when asked to."""
        header = DeleteSubscriptionGroupRequestHeader.decode(request.fields)
        if header.clean_offset:
            await self.deletions.delete_group(header.group_name)
        elif self.group_configs.delete(header.group_name):
            self.changes.of_settings()
            self.removals.settings_deleted(header.group_name)
        await self.save_settings()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_CONSUME_STATS)
    async def consume_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS (208): per queue its end, the consume offset and the pulled mark."""
        header = ConsumeStatsRequestHeader.decode(request.fields)
        group = header.consumer_group
        topics = [header.topic] if header.topic else self.offsets.topics_of(group)
        pieces = list[bytes]()
        await in_steps(self.progress.encode_consume_stats(group, topics, pieces))
        return request.respond(ResponseCode.SUCCESS, body=b"".join(pieces))
