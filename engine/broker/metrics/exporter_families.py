"""Broker metrics under rocketmq-exporter's names, so existing dashboards keep working.

Place in the walk: behind the families of `families`, once a scrape. Where the exporter sums over a
cluster, this broker shows its share; boards sum over brokers.

Two names are in its manual but no longer in its code, and stay for boards that ask for them:
rocketmq_message_accumulation and rocketmq_group_get_latency.

What only clients know (rocketmq_client_*) is what they last answered this broker; each broker of a
client shows all of it, so boards take the greatest, not the sum.

Invariant: rates are those of the last minute, and a client's are its own; what it does not say is
left out. Absent on purpose: figures of the runtime info (runtime_families).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from operator import attrgetter

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.metrics.exposition import Family, Series
from engine.broker.metrics.lags import GroupLag
from engine.broker.stats.broker_stats import BrokerStats, Count, Sums
from engine.broker.stats.client_stats import ClientStats
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from engine.runtime.clock import Clock
from engine.store import MessageStore

NO_MODEL = "CLUSTERING"
"""What the exporter reports of a group without members, too."""


@dataclass(slots=True, kw_only=True, eq=False)
class ExporterFamilies:
    """Metric families under the names of rocketmq-exporter."""

    client_stats: ClientStats
    clock: Clock
    groups: ConsumerGroups
    node: BrokerNode
    producers: ProducerGroups
    store: MessageStore
    stats: BrokerStats

    def exporter_families(self, lags: Sequence[GroupLag]) -> Iterator[Family]:
        """Every family, from the counts and the lags of this scrape."""
        place = {"cluster": self.node.config.cluster_name, "broker": self.node.config.broker_name}
        yield from self._of_broker()
        yield from self._of_topics(place)
        yield from self._of_groups(place)
        yield from self._of_lags(place, lags)
        yield from self._of_clients()

    def _of_broker(
        self,
    ) -> Iterator[Family]:
        labels = {
            "cluster": self.node.config.cluster_name,
            "brokerIP": self.node.address,
            "broker": self.node.config.broker_name,
        }
        now_ms = self.clock.steady_ms()
        for name, meaning, count in (
            ("rocketmq_broker_tps", "Messages put a second", self.stats.put_total),
            ("rocketmq_broker_qps", "Messages got a second", self.stats.get_total),
        ):
            yield Family(
                name, "gauge", meaning, [Series(labels, _rate([count], now_ms, _messages))]
            )

    def _of_topics(self, place: dict[str, str]) -> Iterator[Family]:
        now_ms = self.clock.steady_ms()

        def rates(column: Callable[[Sums], int]) -> Iterator[Series | None]:
            shown: dict[str, None] = {}
            for topic, _, _ in self.stats.puts():
                if topic in shown:
                    yield None
                    continue
                shown[topic] = None
                rate = _rate(self.stats.puts_of(topic), now_ms, column)
                yield Series(place | {"topic": topic}, rate)

        yield Family("rocketmq_producer_tps", "gauge", "Messages put a second", rates(_messages))
        yield Family("rocketmq_producer_message_size", "gauge", "Bytes put a second", rates(_bytes))
        ends: dict[str, int] = {}

        def added_up() -> Iterator[None]:
            for topic, queue_id in self.store.queues():
                ends[topic] = ends.get(topic, 0) + self.store.max_offset(topic, queue_id)
                yield

        def of(prefix: str, label: str) -> Iterator[Series | None]:
            for topic, end in ends.items():
                is_wanted = _kind(topic) == prefix and (prefix != "" or not is_system_topic(topic))
                name = topic if label == "topic" else topic.removeprefix(prefix)
                yield Series(place | {label: name}, end) if is_wanted else None

        yield Family(
            "rocketmq_producer_offset",
            "gauge",
            "Messages a topic has ever got",
            chain(added_up(), of("", "topic")),
        )
        yield Family(
            "rocketmq_topic_retry_offset",
            "gauge",
            "Messages a retry topic has ever got",
            of(RETRY_PREFIX, "topic"),
        )
        yield Family(
            "rocketmq_topic_dlq_offset",
            "gauge",
            "Messages a group's dead letters have ever got",
            of(DLQ_PREFIX, "group"),
        )

    def _of_groups(self, place: dict[str, str]) -> Iterator[Family]:
        now_ms = self.clock.steady_ms()
        gets, send_backs = self.stats.gets, self.stats.send_backs
        for name, meaning, counts, column in (
            ("rocketmq_consumer_tps", "Messages got a second", gets, _messages),
            ("rocketmq_group_consume_tps", "Messages got a second", gets, _messages),
            ("rocketmq_consumer_message_size", "Bytes got a second", gets, _bytes),
            ("rocketmq_send_back_nums", "Messages sent back a second", send_backs, _messages),
        ):
            yield Family(name, "gauge", meaning, _rates(counts.items(), place, now_ms, column))
        yield Family(
            "rocketmq_producer_count",
            "gauge",
            "Producers of a group",
            (
                Series(place | {"group": name}, self.producers.count(name))
                for name in self.producers.names()
            ),
        )
        yield Family(
            "rocketmq_group_count", "gauge", "Consumers of a group at an address", self._at()
        )

    def _at(
        self,
    ) -> Iterator[Series | None]:
        for group in list(self.groups.all()):
            for member_id in group.member_ids():
                member = group.members.get(member_id)
                if member is None:
                    yield None  # It left while others were reported.
                    continue
                labels = {
                    "caddr": member.channel.peer.address,
                    "localaddr": member_id,
                    "group": group.name,
                }
                yield Series(labels, 1)

    def _of_clients(
        self,
    ) -> Iterator[Family]:
        for name, meaning, column in (
            (
                "consume_fail_msg_count",
                "Messages a client failed to consume, an hour",
                "failed_msgs",
            ),
            ("consume_fail_msg_tps", "Messages a client failed to consume, a second", "failed_tps"),
            ("consume_ok_msg_tps", "Messages a client consumed, a second", "ok_tps"),
            ("consume_rt", "Milliseconds a client needs to consume a message", "rt"),
        ):
            series = self._of_client_figures(f"consume_{column}")
            yield Family(f"rocketmq_client_{name}", "gauge", meaning, series)
        for name, meaning, column in (
            ("consumer_pull_rt", "Milliseconds a pull of a client takes", "pull_rt"),
            ("consumer_pull_tps", "Messages a client pulls, a second", "pull_tps"),
        ):
            series = self._of_client_figures(column)
            yield Family(f"rocketmq_client_{name}", "gauge", meaning, series)

    def _of_client_figures(self, column: str) -> Iterator[Series | None]:
        for group in list(self.groups.all()):
            for member_id in group.member_ids():
                yield None
                member = group.members.get(member_id)
                if member is None:
                    continue  # It left while others were reported.
                labels = {
                    "clientAddr": member.channel.peer.address,
                    "clientId": member_id,
                    "group": group.name,
                }
                for topic, figures in self.client_stats.of(group.name, member_id).items():
                    value: float | None = getattr(figures, column)
                    if value is not None and isfinite(value):
                        yield Series(labels | {"topic": topic}, value)

    def _of_lags(self, place: dict[str, str], lags: Sequence[GroupLag]) -> Iterator[Family]:
        for name, meaning, prefix in (
            ("rocketmq_group_diff", "Messages not consumed", ""),
            ("rocketmq_group_retrydiff", "Retried messages not consumed", RETRY_PREFIX),
            ("rocketmq_group_dlqdiff", "Dead letters not consumed", DLQ_PREFIX),
        ):
            yield Family(name, "gauge", meaning, self._diffs(lags, prefix))
        now_ms = self.clock.now_ms()

        def age_ms(lag: GroupLag) -> int:
            return max(0, now_ms - (lag.waiting_since_ms or now_ms))

        age = "Age of the oldest message not consumed, in milliseconds"
        ends, consumed = attrgetter("max_offsets"), attrgetter("consume_offsets")
        for name, meaning, value in (
            ("rocketmq_consumer_offset", "Ends of a group's queues", ends),
            ("rocketmq_group_consume_total_offset", "A group's consume offsets", consumed),
            ("rocketmq_message_accumulation", "Messages not consumed", _waiting),
            ("rocketmq_group_get_latency_by_storetime", age, age_ms),
            ("rocketmq_group_get_latency", age, age_ms),
        ):
            yield Family(name, "gauge", meaning, _series_of(lags, place, value))

    def _diffs(self, lags: Iterable[GroupLag], prefix: str) -> Iterator[Series | None]:
        for lag in lags:
            if _kind(lag.topic) != prefix:
                yield None
                continue
            members = self.groups.of(lag.group)
            labels = {
                "group": lag.group,
                "topic": lag.topic,
                "countOfOnlineConsumers": str(0 if members is None else len(members.members)),
                "msgModel": NO_MODEL if members is None else members.message_model,
            }
            yield Series(labels, lag.waiting)


def _rates(
    counts: Iterable[tuple[tuple[str, str], Count]],
    place: dict[str, str],
    now_ms: int,
    column: Callable[[Sums], int],
) -> Iterator[Series]:
    for (group, topic), count in counts:
        labels = {"topic": topic, "group": group}
        yield Series(place | labels, _rate([count], now_ms, column))


def _series_of(
    lags: Iterable[GroupLag], place: dict[str, str], value: Callable[[GroupLag], int]
) -> Iterator[Series]:
    for lag in lags:
        yield Series(place | {"topic": lag.topic, "group": lag.group}, value(lag))


def _waiting(lag: GroupLag) -> int:
    return lag.waiting


def _kind(topic: str) -> str:
    return next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(prefix)), "")


def _rate(counts: Iterable[Count], now_ms: int, column: Callable[[Sums], int]) -> float:
    minutes = [count.last_minute(now_ms) for count in counts]
    return sum(minute.per_second(column(minute)) for minute in minutes)


def _messages(sums: Sums) -> int:
    return sums.messages


def _bytes(sums: Sums) -> int:
    return sums.size_bytes
