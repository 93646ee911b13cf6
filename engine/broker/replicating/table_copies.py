"""Copies a master's tables to a slave: topics, groups, consume offsets and delay cursors.

Place in the walk: beside the log that `engine.replication` copies. What is in the log needs no copy
here; these tables are not in it.

Invariant: a table is taken over whole or not at all, and only while this node is a slave. A topic
or group that the master has no more is deleted here. Absent on purpose: what a slave adds of its
own; accounts, which are files on each machine.
"""

from __future__ import annotations

import logging
from typing import Final

from engine.broker.groups.group_configs import GroupConfigs, group_from_document
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, from_document
from engine.broker.offsets.outage_offsets import OutageOffsets
from engine.broker.removing.deletion import Deletions
from engine.broker.removing.topic_changes import is_own
from engine.broker.replicating.offset_merges import OffsetMerges
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.delay import DelayLevels
from engine.foundation.chunked_work import in_steps
from engine.foundation.errors import ClusterError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol import fastjson
from engine.protocol.bodies_broker import TopicConfigTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import RpcClient
from engine.store import MessageStore

ASK_TIMEOUT_MS: Final = 6 * SECOND_MS

_log = logging.getLogger(__name__)


class TableCopies:
    """Copies the tables of one master after the other."""

    def __init__(
        self,
        *,
        changes: TableChanges,
        client: RpcClient,
        delay_levels: DelayLevels,
        deletions: Deletions,
        group_configs: GroupConfigs,
        merges: OffsetMerges,
        node: BrokerNode,
        offsets: ConsumerOffsets,
        outage: OutageOffsets,
        store: MessageStore,
        topics: Topics,
    ) -> None:
        self._changes = changes
        self._client = client
        self._delay_levels = delay_levels
        self._deletions = deletions
        self._group_configs = group_configs
        self._merges = merges
        self._node = node
        self._offsets = offsets
        self._outage = outage
        self._store = store
        self._topics = topics

    async def copy(self, master: str) -> None:
        """Copy every table from the master at this address. Raises Unreachable, ClusterError, and
        CorruptRecord for a table that cannot be read.
        """
        await self._merges.hand_over(master)
        log_end = self._store.physical_max
        topics = TopicConfigTable.decode(await self._ask(master, RequestCode.GET_ALL_TOPIC_CONFIG))
        groups = await self._document(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        offsets = await self._document(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        delays = await self._document(master, RequestCode.GET_ALL_DELAY_OFFSET)
        table = from_document(offsets)
        if self._node.is_master:
            return
        self._outage.lay_over(table)
        await self._take_topics(topics)
        await self._take_groups(groups)
        await in_steps(self._offsets.copy(table))
        self._delay_levels.copy(delays, log_end)

    async def _take_topics(self, table: TopicConfigTable) -> None:
        own, theirs, has_changed = self._node.config, table.topic_config_table, False
        for name, config in theirs.items():
            if not is_own(name, own) and config != self._topics.find(name):
                self._topics.put(config)
                has_changed = True
        if has_changed:
            self._changes.of_topics()
        for config in self._topics.all():
            if config.topic_name not in theirs and not is_own(config.topic_name, own):
                await self._deletions.delete_topic(config.topic_name)

    async def _take_groups(self, document: dict[str, object]) -> None:
        entries = document.get("subscriptionGroupTable")
        if not isinstance(entries, dict):
            raise ClusterError("the master's groups have no subscriptionGroupTable")
        groups, theirs = self._group_configs, [group_from_document(one) for one in entries.values()]
        changed = [one for one in theirs if one != groups.look(one.group_name)]
        for config in changed:
            groups.put(config)
        if changed:
            self._changes.of_settings()
        known = {one.group_name for one in theirs}
        for name in groups.names():
            if name not in known:
                await self._deletions.delete_group(name)

    async def _document(self, master: str, code: RequestCode) -> dict[str, object]:
        document = fastjson.loads(await self._ask(master, code))
        if not isinstance(document, dict):
            raise ClusterError(f"the master's answer to {code.name} is no table")
        return document

    async def _ask(self, master: str, code: RequestCode) -> bytes:
        return await answer_of(self._client, master, code)


async def answer_of(client: RpcClient, master: str, code: RequestCode) -> bytes:
    """What a master answers to a request without fields. Raises Unreachable, and ClusterError when
    it refuses.
    """
    request = RemotingCommand.request(code)
    answer = await client.invoke(master, request, timeout_ms=ASK_TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise ClusterError(f"the master refused {code.name}: {answer.code} {answer.remark}")
    return bytes(answer.body)


async def copied(copies: TableCopies, master: str) -> bool:
    """Were the tables copied? If not, the log says why."""
    try:
        await copies.copy(master)
    except (TidemarkError, ValueError) as error:
        _log.warning("the tables of %s are not copied yet: %s", master, error)
        return False
    return True
