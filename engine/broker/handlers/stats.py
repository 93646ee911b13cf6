"""Serves traffic statistics by topic, group and time period under RocketMQ's names.

Place in the walk: beside it; `stats/broker_stats` has the counts, here they get their names.

Invariant: a statistic that is not kept, or of a key that never did anything, is answered as
missing and never as zero. Absent on purpose: latencies of single calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.progress import Progress
from engine.broker.stats.broker_stats import BrokerStats, Count, Sums
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import in_steps, sorted_in_steps, stepped
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FRAME_BYTES_MAX
from engine.protocol import fastjson
from engine.protocol.bodies import BrokerStatsData, BrokerStatsItem
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers_admin import (
    BrokerConsumeStatsRequestHeader,
    ViewBrokerStatsRequestHeader,
)
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock

SEPARATOR = "@"


@dataclass(slots=True)
class _Totals:
    """An answer to GET_BROKER_CONSUME_STATS on its way."""

    listed: list[bytes] = field(default_factory=list)
    """Each group with its topics, as JSON."""
    size_bytes: int = 0
    """Of these."""
    lag: int = 0
    inflight: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class StatsHandlers(Handlers):
    """Requests of tools about traffic."""

    clock: Clock
    group_configs: GroupConfigs
    node: BrokerNode
    offsets: ConsumerOffsets
    progress: Progress
    topics: Topics
    stats: BrokerStats

    @serves(RequestCode.VIEW_BROKER_STATS_DATA)
    def view(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA (315); keys are `topic`, `topic@group` or the cluster's name."""
        header = ViewBrokerStatsRequestHeader.decode(request.fields)
        counts = self._counts_of(header.stats_name, header.stats_key)
        column = attrgetter("size_bytes" if header.stats_name.endswith("_SIZE") else "messages")
        if not counts:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        now_ms = self.clock.steady_ms()
        data = BrokerStatsData(
            stats_minute=_item([count.last_minute(now_ms) for count in counts], column),
            stats_hour=_item([count.last_hour(now_ms) for count in counts], column),
            stats_day=_item([count.last_day(now_ms) for count in counts], column),
        )
        return request.respond(ResponseCode.SUCCESS, body=data.encode())

    @serves(RequestCode.GET_BROKER_CONSUME_STATS)
    async def consume_stats(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS (317): every group's marks in every topic it has offsets of."""
        ordered_only = BrokerConsumeStatsRequestHeader.decode(request.fields).is_order
        totals, names = _Totals(), list[str]()
        await in_steps(self._sorted_groups(names))
        await in_steps(stepped(self._consume_stats(totals, names, ordered_only=ordered_only)))
        body = b'{"brokerAddr":"%s","consumeStatsList":[%s],"totalDiff":%d,%s%d}' % (
            *(self.node.address.encode(), b",".join(totals.listed), totals.lag),
            *(b'"totalInflightDiff":', totals.inflight),
        )
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _sorted_groups(self, names: list[str]) -> Iterator[None]:
        names += yield from sorted_in_steps(self.group_configs.names())

    def _consume_stats(
        self, totals: _Totals, names: list[str], *, ordered_only: bool
    ) -> Iterator[None]:
        """Add up group by group; a step for each, for each of its topics, and for each queue.

        Raises RequestRefused as soon as no frame can hold the answer.
        """
        for name in names:
            entries = []
            for topic in self.offsets.topics_of(name):
                config = self.topics.find(topic)
                if config is None or (ordered_only and not config.order):
                    yield
                    continue
                stats = self.progress.consume_stats_of(name, topic)
                entries.append(stats.encode())
                for one in stats.rows():
                    totals.lag += max(0, one.broker_offset - one.consumer_offset)
                    totals.inflight += max(0, one.pull_offset - one.consumer_offset)
                    yield
                yield
            entry = b"{%s:[%s]}" % (fastjson.dumps(name), b",".join(entries))
            totals.listed.append(entry)
            totals.size_bytes += len(entry) + 1
            if totals.size_bytes > FRAME_BYTES_MAX:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the statistics of {len(totals.listed)} of {len(names)} groups take more than "
                    f"the {FRAME_BYTES_MAX} bytes of a frame; ask group by group",
                )
            yield

    def _counts_of(self, name: str, key: str) -> Sequence[Count]:
        """Those of a statistic; none, when there is no such one."""
        stats = self.stats
        match name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return stats.puts_of(key)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                return _of_pair(stats.gets.find, key)
            case "SNDBCK_PUT_NUMS":
                return _of_pair(stats.send_backs.find, key)
            case "DLQ_PUT_NUMS":
                return _of_pair(stats.dead_letters.find, key)
            case "BROKER_PUT_NUMS" if key == self.node.config.cluster_name:
                return [stats.put_total]
            case "BROKER_GET_NUMS" if key == self.node.config.cluster_name:
                return [stats.get_total]
        return []


def _of_pair(find: Callable[[tuple[str, str]], Count | None], key: str) -> list[Count]:
    """The count of `topic@group`."""
    topic, _, group = key.partition(SEPARATOR)
    count = find((group, topic))
    return [] if count is None else [count]


def _item(sums: Sequence[Sums], column: Callable[[Sums], int]) -> BrokerStatsItem:
    total, calls = sum(map(column, sums)), sum(one.calls for one in sums)
    return BrokerStatsItem(
        sum=total,
        tps=round(sum(one.per_second(column(one)) for one in sums), 2),
        avgpt=round(total / calls, 2) if calls else 0.0,
    )
