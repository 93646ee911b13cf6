"""Consumer-group administration: settings, members and progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import RequestRefused
from engine.protocol import fastjson
from engine.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    OffsetWrapper,
    encode_document,
)
from engine.protocol.bodies_admin import (
    ConsumeTimeSpans,
    ProducerInfo,
    ProducerTable,
    QueueTimeSpan,
)
from engine.protocol.body_codec import convert, table_of
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.consume_stats_list import consume_stats_in_slices
from engine.protocol.headers import (
    BrokerConsumeStatsRequestHeader,
    ConsumerRunningInfoRequestHeader,
    ConsumeStatsRequestHeader,
    ConsumeTimeSpanRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
)
from engine.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue, by its broker."""

    broker_offset: int
    """The queue's max offset."""
    consumer_offset: int
    """The group's consume offset; 0 also when it has none."""
    pull_offset: int
    """Next offset not yet pulled."""
    last_timestamp_ms: int
    """Store time of the last consumed message; 0 when that is unknown."""

    @property
    def lag(self) -> int | None:
        """Messages waiting; None when that is not known (`why_unknown`)."""
        return None if self.is_beyond_end else self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int | None:
        """Messages pulled and not committed; None when the lag is not known, 0 when nobody has
        reported what was pulled.
        """
        return None if self.is_beyond_end else max(0, self.pull_offset - self.consumer_offset)

    @property
    def is_beyond_end(self) -> bool:
        """Is the consume offset none of this queue? The topic was made again, or its log was cut,
        and nobody can say what waits.
        """
        return self.consumer_offset > self.broker_offset

    @property
    def why_unknown(self) -> str | None:
        """Why the lag is not known; None: it is."""
        if not self.is_beyond_end:
            return None
        return (
            f"the offset is beyond the queue's end (committed {self.consumer_offset}, end "
            f"{self.broker_offset})"
        )


class GroupAdmin:
    """Questions and orders about groups."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def consume_stats(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in each queue of a topic, or of all it reads; sorted by queue.

        Without a topic every broker is asked.
        """
        found: dict[MessageQueue, QueueProgress] = {}
        addresses = await (self._requests.brokers_of(topic) if topic else self._all_masters())
        for address in addresses:
            fields = ConsumeStatsRequestHeader(consumer_group=group, topic=topic or "").encode()
            answer = await self._requests.ask(address, RequestCode.GET_CONSUME_STATS, fields)
            table = ConsumeStats.decode(answer.body).offset_table
            found |= {queue: _progress(entry) for queue, entry in table.items()}
        return dict(sorted(found.items()))

    async def broker_consume_stats(
        self, broker_address: str
    ) -> dict[str, dict[MessageQueue, QueueProgress]]:
        """How far every group is in each queue of one broker that it has offsets of, by group."""
        found: dict[str, dict[MessageQueue, QueueProgress]] = {}
        async for entries in self.progress_in_slices(broker_address):
            for group, entry in entries:
                rows = found.setdefault(group, {})
                if entry is not None:
                    rows[entry[0]] = entry[1]
        return {group: dict(sorted(rows.items())) for group, rows in sorted(found.items())}

    async def progress_in_slices(
        self, broker_address: str, *, timeout_ms: int | None = None
    ) -> AsyncIterator[list[tuple[str, tuple[MessageQueue, QueueProgress] | None]]]:
        """As `broker_consume_stats`, in the order of the answer, (group, None) where figures of a
        group begin; between two slices others run, so that no answer holds them up for long.
        """
        answer = await self._requests.ask(
            broker_address,
            RequestCode.GET_BROKER_CONSUME_STATS,
            BrokerConsumeStatsRequestHeader().encode(),
            timeout_ms=timeout_ms,
        )
        for entries in consume_stats_in_slices(answer.body):
            yield [
                (group, None if entry is None else (entry[0], _progress(entry[1])))
                for group, entry in entries
            ]
            await asyncio.sleep(0)

    async def configs(self) -> dict[str, dict[str, Any]]:
        """Settings of every group under RocketMQ's names, by group, sorted; of a group that
        several brokers know, those of the last one.
        """
        found: dict[str, dict[str, Any]] = {}
        for address in await self._all_masters():
            found |= await self.configs_at(address)
        return dict(sorted(found.items()))

    async def configs_at(self, broker_address: str) -> dict[str, dict[str, Any]]:
        """Settings of every group that one broker knows, by group, sorted."""
        answer = await self._requests.ask(
            broker_address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}
        )
        table = table_of(fastjson.loads(answer.body), "subscriptionGroupTable")
        return dict(sorted(convert(table, dict[str, dict[str, Any]]).items()))

    async def put(self, broker_address: str, settings: dict[str, Any]) -> None:
        """Create a group on one broker, or change it; `settings` under RocketMQ's names."""
        await self._requests.ask(
            broker_address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            encode_document(settings),
        )

    async def put_all(self, broker_address: str, settings: Sequence[Mapping[str, Any]]) -> None:
        """Create or change groups on one broker: none of them when one is refused."""
        body = encode_document({"groupConfigList": [dict(one) for one in settings]})
        await self._requests.ask(
            broker_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body
        )

    async def delete(self, broker_address: str, group: str, *, with_offsets: bool) -> None:
        """Delete a group's settings on one broker, and its offsets there if asked to."""
        fields = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=with_offsets
        ).encode()
        await self._requests.ask(broker_address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    async def members(self, group: str) -> dict[str, ConsumerConnection]:
        """The members of a group as each broker sees them, by broker name."""
        found: dict[str, ConsumerConnection] = {}
        for name, address in (await self._requests.masters()).items():
            try:
                found[name] = await self.connections(address, group)
            except RequestRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
        return found

    async def producers(self, broker_address: str) -> dict[str, list[ProducerInfo]]:
        """Connected producers of one broker, by group, sorted."""
        answer = await self._requests.ask(broker_address, RequestCode.GET_ALL_PRODUCER_INFO, {})
        return dict(sorted(ProducerTable.decode(answer.body).data.items()))

    async def _all_masters(self) -> list[str]:
        return list((await self._requests.masters()).values())

    async def connections(self, broker_address: str, group: str) -> ConsumerConnection:
        """The members of a group, as one broker sees them.

        RequestRefused (206) when there are none.
        """
        answer = await self._requests.ask(
            broker_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
        return ConsumerConnection.decode(answer.body)

    async def running_info(
        self, broker_address: str, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What a member reports of itself and its windows, asked through a broker it is connected
        with.
        """
        fields = ConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        ).encode()
        answer = await self._requests.ask(
            broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields
        )
        return ConsumerRunningInfo.decode(answer.body)

    async def time_spans(self, broker_address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """Store times of the ends of a topic's queues on one broker, and how long the first message
        that the group has not consumed waits.
        """
        fields = ConsumeTimeSpanRequestHeader(topic=topic, group=group).encode()
        answer = await self._requests.ask(
            broker_address, RequestCode.QUERY_CONSUME_TIME_SPAN, fields
        )
        return ConsumeTimeSpans.decode(answer.body).consume_time_span_set


def total(counts: Iterable[int | None]) -> int | None:
    """Their sum; None as soon as one of them is not known."""
    summed = 0
    for count in counts:
        if count is None:
            return None
        summed += count
    return summed


def _progress(wrapper: OffsetWrapper) -> QueueProgress:
    return QueueProgress(
        wrapper.broker_offset,
        wrapper.consumer_offset,
        wrapper.pull_offset,
        wrapper.last_timestamp_ms,
    )
