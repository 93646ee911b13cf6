"""Consumer groups: who they are, how far they are."""

from __future__ import annotations

from dataclasses import dataclass

from engine.client.admin.asking import Asking
from engine.client.wire_fields import wire_fields
from engine.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, ConsumeStats
from engine.protocol.codes import RequestCode
from engine.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue, as its broker tells it."""

    broker_offset: int
    """The queue's max offset."""
    consumer_offset: int
    """The group's consume offset; 0 also when it has none."""
    pull_offset: int
    """Next offset not yet pulled."""
    last_timestamp_ms: int
    """Store time of the last consumed message; 0 when that is unknown."""

    @property
    def lag(self) -> int:
        """Messages waiting; negative when the broker lost its end of the log."""
        return self.broker_offset - self.consumer_offset


class GroupAdmin(Asking):
    """Questions and orders about groups."""

    async def consume_stats(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in each queue of a topic, or of all it reads; sorted by queue.

        Without a topic the brokers of the group's retry topic are asked.
        """
        found: dict[MessageQueue, QueueProgress] = {}
        for address in await self._brokers_of(topic or f"%RETRY%{group}"):
            fields = wire_fields(consumerGroup=group, topic=topic or "")
            answer = await self._ask(address, RequestCode.GET_CONSUME_STATS, fields)
            for queue, told in ConsumeStats.decode(answer.body).offset_table.items():
                found[queue] = QueueProgress(
                    told.broker_offset,
                    told.consumer_offset,
                    told.pull_offset,
                    told.last_timestamp_ms,
                )
        return dict(sorted(found.items()))

    async def consumer_connections(self, broker_address: str, group: str) -> ConsumerConnection:
        """The members of a group, as one broker sees them.

        RequestRefused (206) when there are none.
        """
        answer = await self._ask(
            broker_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
        return ConsumerConnection.decode(answer.body)

    async def consumer_running_info(
        self, broker_address: str, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What a member tells of itself and its windows, asked through a broker it is connected
        with.
        """
        fields = wire_fields(consumerGroup=group, clientId=client_id, jstackEnable=stacks)
        answer = await self._ask(broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        return ConsumerRunningInfo.decode(answer.body)
