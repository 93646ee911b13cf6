"""Merges offsets that a slave accepted during its master's absence into the master's table.

Place in the walk: a master that starts asks its slaves before its port opens; a slave hands over
what it has each time before it copies its master's table.

A report that the master has had since counts more than an older one made to its slave: both say how
long ago it was, by clocks of their own.

Invariant: no table is taken over whole, and none from a node of a later epoch. Absent on purpose:
reports (offsets).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.offsets.outage_offsets import Noted, OutageOffsets
from engine.broker.topics.topics import Topics
from engine.foundation.errors import ClusterError, RequestRefused
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies_admin import OutageOffset, OutageOffsetList
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import RpcClient
from engine.runtime.clock import Clock
from engine.store import MessageStore

AT_ONCE: Final = 500
"""Offsets in one request."""
TIMEOUT_MS: Final = 3 * SECOND_MS

_log = logging.getLogger(__name__)


class OffsetMerges:
    """Those of one broker, in either role."""

    def __init__(
        self,
        *,
        client: RpcClient,
        clock: Clock,
        facts: OffsetFacts,
        node: BrokerNode,
        offsets: ConsumerOffsets,
        outage: OutageOffsets,
        store: MessageStore,
        topics: Topics,
    ) -> None:
        self._client = client
        self._clock = clock
        self._facts = facts
        self._node = node
        self._offsets = offsets
        self._outage = outage
        self._store = store
        self._topics = topics

    # ---- as a slave -------------------------------------------------------------------------

    def listed(self, noted: Mapping[QueueKey, Noted]) -> OutageOffsetList:
        """As they go over the wire."""
        now_ms = self._clock.steady_ms()
        return OutageOffsetList(
            state_version=self._node.term,
            offsets=[
                OutageOffset(
                    group=group,
                    topic=topic,
                    queue_id=queue_id,
                    offset=one.offset,
                    age_ms=-1 if one.noted_ms is None else now_ms - one.noted_ms,
                )
                for (group, topic, queue_id), one in noted.items()
            ],
        )

    def own(self) -> OutageOffsetList:
        """What no master has yet."""
        return self.listed(self._outage.all())

    async def hand_over(self, master: str) -> None:
        """Have the master merge what was committed here. Raises Unreachable, ClusterError."""
        waiting = iter(self._outage.all().items())
        while piece := dict(islice(waiting, AT_ONCE)):
            request = RemotingCommand.request(
                RequestCode.MERGE_CONSUMER_OFFSETS, body=self.listed(piece).encode()
            )
            answer = await self._client.invoke(master, request, timeout_ms=TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                _log.warning("%s is no Tidemark: its own offsets count", master)
            elif answer.code != ResponseCode.SUCCESS:
                raise ClusterError(f"{master} takes no offsets: {answer.code} {answer.remark}")
            self._outage.merged(piece)

    # ---- as a master ------------------------------------------------------------------------

    async def fetch(self, slave: str) -> None:
        """Merge what clients committed there. Raises Unreachable, ClusterError."""
        request = RemotingCommand.request(RequestCode.GET_OUTAGE_OFFSETS)
        answer = await self._client.invoke(slave, request, timeout_ms=TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"{slave} has no offsets to merge: {answer.code} {answer.remark}")
        for _ in self.merge(OutageOffsetList.decode(answer.body)):
            pass

    def merge(self, listed: OutageOffsetList) -> Iterator[None]:
        """Take over what is newer than what was reported here, one after the other. Raises
        RequestRefused for a list of a later epoch.
        """
        if listed.state_version > self._node.term:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"offsets of epoch {listed.state_version}, this node knows {self._node.term} only",
            )
        for one in listed.offsets:
            self._merge(one)
            yield

    def _merge(self, one: OutageOffset) -> None:
        offsets, key = self._offsets, (one.group, one.topic, one.queue_id)
        if self._topics.find(one.topic) is None or offsets.reset_pending(*key):
            return
        if offsets.is_being_forgotten(one.topic, one.group):
            return
        _, _, reported = offsets.standing(key)
        if reported is not None:
            own_age_ms = self._clock.now_ms() - reported.last_commit_ms
            if not 0 <= one.age_ms < own_age_ms:
                return
        offset = min(one.offset, self._store.max_offset(one.topic, one.queue_id))
        previous = offsets.committed(*key)
        if previous != offset:
            offsets.place(*key, offset)
            self._facts.emit(key, offset, previous, path="COMMIT_RPC")
