"""Broker metrics under RocketMQ 5.x's names and labels.

Place in the walk: beside it, once a scrape; counts come from `stats/broker_stats`, marks from the
tables that handlers move.

Invariant: a series is shown only when its value is known: a queue without a consume offset has no
lag, a broker without half messages no such topic. Counters count from the boot on. What RocketMQ
measures and this broker has not (thread pools, RocksDB) is absent, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.metrics.exporter_families import ExporterFamilies
from engine.broker.metrics.exposition import Family, LeftOut, Series, histogram, written
from engine.broker.metrics.lags import GroupLag, Lags
from engine.broker.metrics.runtime_families import RuntimeFamilies, latency_family
from engine.broker.metrics.timer_families import timer_families
from engine.broker.stats.broker_stats import FINISH_BOUNDS_S, SIZE_BOUNDS, BrokerStats
from engine.broker.stats.client_stats import ClientStats
from engine.broker.topics.topics import Topics
from engine.broker.transactions.transactions import Transactions
from engine.delay import TimeWheel
from engine.foundation.limits import METRIC_SERIES_MAX
from engine.protocol.names import RETRY_PREFIX, is_system_topic
from engine.remoting.latencies import Latencies
from engine.runtime.clock import Clock
from engine.store import MessageStore

STORED = {"storage_type": "local", "storage_medium": "disk"}
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
VERSION_4_0_0_SNAPSHOT = 212


@dataclass(slots=True, kw_only=True, eq=False)
class BrokerMetrics:
    """The families of one broker."""

    client_stats: ClientStats
    clock: Clock
    group_configs: GroupConfigs
    groups: ConsumerGroups
    latencies: Latencies
    exporter: ExporterFamilies
    lags: Callable[[], Lags]
    node: BrokerNode
    producers: ProducerGroups
    runtime: RuntimeFamilies
    store: MessageStore
    topics: Topics
    stats: BrokerStats
    transactions: Transactions
    wheel: TimeWheel
    _labels: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        config = self.node.config
        self._labels = {
            "cluster": config.cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
        }

    def pages(self) -> Iterator[str]:
        """The text of one scrape, in pieces."""
        left_out = LeftOut()
        yield from written(self._families(), series_max=METRIC_SERIES_MAX, left_out=left_out)
        own = [
            Series(self._labels | {"family": name}, count)
            for name, count in left_out.by_family.items()
        ]
        family = Family(
            "tidemark_metrics_left_out_series",
            "gauge",
            f"Series beyond the {METRIC_SERIES_MAX} of a family that this scrape left out",
            own,
        )
        yield from written([family], series_max=METRIC_SERIES_MAX, left_out=left_out)

    def _families(self) -> Iterator[Family]:
        yield from self._broker_families()
        yield from self._traffic_families()
        yield from self._transaction_families()
        yield from self._store_families()
        yield from timer_families(self.wheel.figures(), self._labels | STORED)
        yield from self._connection_families()
        yield latency_family(self.latencies, self._labels)
        lags = self.lags()
        yield from self._lag_families(lags)
        yield from self.exporter.exporter_families(lags.known)
        yield from self.runtime.runtime_families()

    def _one(self, name: str, kind: str, meaning: str, value: float | None) -> Family:
        series = [] if value is None else [Series(self._labels, value)]
        return Family(name, kind, meaning, series)

    def _broker_families(self) -> Iterator[Family]:
        yield self._one(
            "rocketmq_broker_permission",
            "gauge",
            "Broker permission: 4 read, 2 write, 6 both",
            self.node.config.broker_permission,
        )
        yield self._one("rocketmq_topic_number", "gauge", "Topics of this broker", len(self.topics))
        yield self._one(
            "rocketmq_consumer_group_number",
            "gauge",
            "Consumer groups of this broker",
            len(self.group_configs),
        )
        yield self._one(
            "tidemark_traffic_uncounted_messages",
            "gauge",
            "Messages counted under no name, because there were too many topics or groups",
            self.stats.keys_left_out(),
        )
        yield self._one(
            "tidemark_client_figures_left_out",
            "gauge",
            "Topics of consumers whose own figures are left out, because there were too many",
            self.client_stats.left_out,
        )

    def _traffic_families(self) -> Iterator[Family]:
        traffic = self.stats

        def of_puts(column: str) -> Iterator[Series]:
            for topic, message_type, count in traffic.puts():
                labels = {"topic": topic, "message_type": message_type, "is_system": _system(topic)}
                yield Series(self._labels | labels, getattr(count, column))

        def of_gets(column: str) -> Iterator[Series]:
            for (group, topic), count in traffic.gets.items():
                yield Series(self._labels | _reader(group, topic), getattr(count, column))

        for name, of, meaning in (
            ("rocketmq_messages_{}_total", "messages", "Messages"),
            ("rocketmq_throughput_{}_total", "size_bytes", "Bytes of messages"),
        ):
            yield Family(name.format("in"), "counter", f"{meaning} that were sent", of_puts(of))
            yield Family(
                name.format("out"),
                "counter",
                f"{meaning} that pulls were answered with",
                of_gets(of),
            )
        total = traffic.put_total
        yield Family(
            "rocketmq_message_size",
            "histogram",
            "Bytes of a message as it is stored",
            histogram(self._labels, SIZE_BOUNDS, traffic.size_counts(), total.size_bytes),
        )
        yield Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages that went to a group's dead letters",
            (
                Series(self._labels | _reader(group, topic), count.messages)
                for (group, topic), count in traffic.dead_letters.items()
            ),
        )

    def _transaction_families(self) -> Iterator[Family]:
        traffic = self.stats
        for name, ends in (("commit", traffic.commits), ("rollback", traffic.rollbacks)):
            yield Family(
                f"rocketmq_{name}_messages_total",
                "counter",
                f"Transactions that ended by {name}",
                (
                    Series(self._labels | {"topic": topic}, count.messages)
                    for topic, count in ends.items()
                ),
            )
        ended = dict.fromkeys((*traffic.commits.by_key, *traffic.rollbacks.by_key), 0)
        yield Family(
            "rocketmq_half_messages",
            "gauge",
            "Half messages of a topic whose transaction is open",
            (
                Series(self._labels | {"topic": topic}, count)
                for topic, count in (ended | self.transactions.open_by_topic()).items()
            ),
        )
        yield Family(
            "rocketmq_finish_message_latency_milliseconds",
            "histogram",
            "Age of a transaction at its commit, in whole seconds as in RocketMQ 5.5",
            (
                series
                for topic, times in list(traffic.finish_times.items())
                for series in histogram(
                    self._labels | {"topic": topic}, FINISH_BOUNDS_S, times.counts, times.total_s
                )
            ),
        )

    def _store_families(self) -> Iterator[Family]:
        store, labels = self.store, self._labels | STORED
        for name, meaning, value in (
            (
                "rocketmq_storage_size_bytes",
                "Bytes of the commit log",
                store.physical_max - store.physical_min,
            ),
            (
                "rocketmq_storage_flush_behind_bytes",
                "Bytes written that a power cut could lose",
                store.physical_max - store.physical_flushed,
            ),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes written that no consumer can see yet",
                store.dispatch_behind_bytes,
            ),
            (
                "tidemark_storage_holes",
                "Damaged places of the commit log that are passed over, as far as they are known",
                store.holes.count,
            ),
            (
                "tidemark_storage_holes_bytes",
                "Bytes of the commit log in those places",
                store.holes.size_bytes,
            ),
        ):
            yield Family(name, "gauge", meaning, [Series(labels, value)])
        oldest_ms = self.store.oldest_store_time()
        age = [] if oldest_ms is None else [Series(labels, max(0, self.clock.now_ms() - oldest_ms))]
        yield Family(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "gauge",
            "Age of the oldest message kept",
            age,
        )

    def _connection_families(self) -> Iterator[Family]:
        yield Family(
            "rocketmq_producer_connections",
            "gauge",
            "Producers by language and version, once for each of their groups",
            self._producer_series(),
        )
        yield Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Members of a consumer group by language and version",
            self._consumers(),
        )

    def _producer_series(self) -> Iterator[Series | None]:
        counts: dict[tuple[str, str], int] = {}
        for name in self.producers.names():
            for member in self.producers.members(name):
                key = (_language(member.channel.language), _version(member.channel.version))
                counts[key] = counts.get(key, 0) + 1
                yield None
        for (language, version), count in counts.items():
            labels = {"language": language, "version": version, "protocol_type": "remoting"}
            yield Series(self._labels | labels, count)

    def _consumers(self) -> Iterator[Series | None]:
        for group in list(self.groups.all()):
            counts: dict[tuple[str, str], int] = {}
            for member_id in group.member_ids():
                member = group.members.get(member_id)
                yield None
                if member is None:
                    continue  # It left while others were counted.
                key = (_language(member.channel.language), _version(member.channel.version))
                counts[key] = counts.get(key, 0) + 1
            for (language, version), count in counts.items():
                labels = {
                    "consumer_group": group.name,
                    "language": language,
                    "version": version,
                    "protocol_type": "remoting",
                    "consume_mode": "push" if group.consume_type == "CONSUME_PASSIVELY" else "pull",
                    "is_system": _word(group.name.startswith(SYSTEM_GROUP_PREFIX)),
                }
                yield Series(self._labels | labels, count)

    # ---- lag --------------------------------------------------------------------------------

    def _lag_families(self, lags: Lags) -> Iterator[Family]:
        now_ms = self.clock.now_ms()
        yield Family(
            "rocketmq_consumer_lag_messages",
            "gauge",
            "Messages a group has not consumed",
            self._of_lags(lags.computed(), "waiting"),
        )
        for name, meaning, column in (
            (
                "rocketmq_consumer_inflight_messages",
                "Messages pulled by a group and not consumed",
                "inflight",
            ),
            ("rocketmq_consumer_ready_messages", "Messages not pulled by a group", "ready"),
            (
                "tidemark_consumer_unreadable_messages",
                "Messages a group has not consumed in queues that cannot be read any more",
                "unreadable",
            ),
        ):
            yield Family(name, "gauge", meaning, self._of_lags(lags.known, column))
        for name, meaning, column in (
            (
                "rocketmq_consumer_lag_latency_milliseconds",
                "Age of the oldest message a group has not consumed",
                "waiting_since_ms",
            ),
            (
                "rocketmq_consumer_queueing_latency_milliseconds",
                "Age of the oldest message a group has not pulled",
                "ready_since_ms",
            ),
        ):
            yield Family(name, "gauge", meaning, self._of_lags(lags.known, column, now_ms=now_ms))

    def _of_lags(
        self,
        lags: Iterable[GroupLag],
        column: str,
        *,
        now_ms: int | None = None,
    ) -> Iterator[Series]:
        """One column of the lags; with `now_ms` it is a time, and its age is reported."""
        for lag in lags:
            value = getattr(lag, column)
            if now_ms is not None:
                value = 0 if value is None else max(0, now_ms - value)
            yield Series(self._labels | _pair(lag.group, lag.topic), value)


def _reader(group: str, topic: str) -> dict[str, str]:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_system": _word(is_system_topic(topic) or group.startswith(SYSTEM_GROUP_PREFIX)),
    }


def _pair(group: str, topic: str) -> dict[str, str]:
    return _reader(group, topic) | {"is_retry": _word(topic.startswith(RETRY_PREFIX))}


def _system(topic: str) -> str:
    return _word(is_system_topic(topic))


def _word(value: bool) -> str:
    return "true" if value else "false"


def _language(language: str) -> str:
    return language.lower()


def _version(version: int) -> str:
    """`v5_5_0` from RocketMQ's number of a version: from 4.0.0 on they go in pairs."""
    step, is_release = divmod(version - VERSION_4_0_0_SNAPSHOT, 2)
    if not 0 <= step < 200:
        return str(version)
    name = f"v{4 + step // 100}_{step % 100 // 10}_{step % 10}"
    return name if is_release else f"{name}_snapshot"
