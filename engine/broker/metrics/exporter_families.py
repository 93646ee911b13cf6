"""The same figures under the names of rocketmq-exporter, so that boards made for it go on working.

Place in the walk: behind the families of `families`, once a scrape. Where the exporter sums over a
cluster, this broker tells its share; boards sum over brokers.

Two names its manual has and its code no longer tells, for boards that still ask for them:
rocketmq_message_accumulation and rocketmq_group_get_latency.

What only clients know (rocketmq_client_*) is told as they told this broker when it asked last; each
broker of a client tells it whole, so that boards take the greatest, not the sum.

Invariant: rates are those of the last minute, and a client's are its own; what it does not say is
left out. Absent on purpose: figures of the runtime info (runtime_families).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from math import isfinite

from engine.broker.metrics.exposition import Family, Series
from engine.broker.metrics.lags import GroupLag
from engine.broker.parts import BrokerParts
from engine.broker.state.traffic import Count, Sums
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

NO_MODEL = "CLUSTERING"
"""What the exporter tells of a group without members, too."""


def exporter_families(parts: BrokerParts, lags: Sequence[GroupLag]) -> Iterator[Family]:
    """Every family, from the counts and the lags of this scrape."""
    place = {"cluster": parts.config.cluster_name, "broker": parts.config.broker_name}
    yield from _of_broker(parts)
    yield from _of_topics(parts, place)
    yield from _of_groups(parts, place)
    yield from _of_lags(parts, place, lags)
    yield from _of_clients(parts)


def _of_broker(parts: BrokerParts) -> Iterator[Family]:
    labels = {
        "cluster": parts.config.cluster_name,
        "brokerIP": parts.address,
        "broker": parts.config.broker_name,
    }
    now_ms = parts.steady_ms()
    for name, meaning, count in (
        ("rocketmq_broker_tps", "Messages put a second", parts.traffic.put_total),
        ("rocketmq_broker_qps", "Messages got a second", parts.traffic.get_total),
    ):
        yield Family(name, "gauge", meaning, [Series(labels, _rate([count], now_ms, _messages))])


def _of_topics(parts: BrokerParts, place: dict[str, str]) -> Iterator[Family]:
    now_ms = parts.steady_ms()

    def rates(column: Callable[[Sums], int]) -> Iterator[Series | None]:
        told: dict[str, None] = {}
        for topic, _, _ in parts.traffic.puts():
            if topic in told:
                yield None
                continue
            told[topic] = None
            rate = _rate(parts.traffic.puts_of(topic), now_ms, column)
            yield Series(place | {"topic": topic}, rate)

    yield Family("rocketmq_producer_tps", "gauge", "Messages put a second", rates(_messages))
    yield Family("rocketmq_producer_message_size", "gauge", "Bytes put a second", rates(_bytes))
    ends: dict[str, int] = {}

    def added_up() -> Iterator[None]:
        for topic, queue_id in parts.store.queues():
            ends[topic] = ends.get(topic, 0) + parts.store.max_offset(topic, queue_id)
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


def _of_groups(parts: BrokerParts, place: dict[str, str]) -> Iterator[Family]:
    now_ms = parts.steady_ms()
    gets, send_backs = parts.traffic.gets, parts.traffic.send_backs
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
            Series(place | {"group": name}, parts.producers.count(name))
            for name in parts.producers.names()
        ),
    )
    yield Family("rocketmq_group_count", "gauge", "Consumers of a group at an address", _at(parts))


def _rates(
    counts: Iterable[tuple[tuple[str, str], Count]],
    place: dict[str, str],
    now_ms: int,
    column: Callable[[Sums], int],
) -> Iterator[Series]:
    for (group, topic), count in counts:
        labels = {"topic": topic, "group": group}
        yield Series(place | labels, _rate([count], now_ms, column))


def _at(parts: BrokerParts) -> Iterator[Series | None]:
    for group in list(parts.groups.all()):
        for member_id in group.member_ids():
            member = group.members.get(member_id)
            if member is None:
                yield None  # It left while others were told.
                continue
            labels = {
                "caddr": member.channel.peer.address,
                "localaddr": member_id,
                "group": group.name,
            }
            yield Series(labels, 1)


def _of_clients(parts: BrokerParts) -> Iterator[Family]:
    for name, meaning, column in (
        ("consume_fail_msg_count", "Messages a client failed to consume, an hour", "failed_msgs"),
        ("consume_fail_msg_tps", "Messages a client failed to consume, a second", "failed_tps"),
        ("consume_ok_msg_tps", "Messages a client consumed, a second", "ok_tps"),
        ("consume_rt", "Milliseconds a client needs to consume a message", "rt"),
    ):
        series = _told_by_clients(parts, f"consume_{column}")
        yield Family(f"rocketmq_client_{name}", "gauge", meaning, series)
    for name, meaning, column in (
        ("consumer_pull_rt", "Milliseconds a pull of a client takes", "pull_rt"),
        ("consumer_pull_tps", "Messages a client pulls, a second", "pull_tps"),
    ):
        series = _told_by_clients(parts, column)
        yield Family(f"rocketmq_client_{name}", "gauge", meaning, series)


def _told_by_clients(parts: BrokerParts, column: str) -> Iterator[Series | None]:
    for group in list(parts.groups.all()):
        for member_id in group.member_ids():
            yield None
            member = group.members.get(member_id)
            if member is None:
                continue  # It left while others were told.
            labels = {
                "clientAddr": member.channel.peer.address,
                "clientId": member_id,
                "group": group.name,
            }
            for topic, told in parts.client_figures.of(group.name, member_id).items():
                value: float | None = getattr(told, column)
                if value is not None and isfinite(value):
                    yield Series(labels | {"topic": topic}, value)


def _of_lags(
    parts: BrokerParts, place: dict[str, str], lags: Sequence[GroupLag]
) -> Iterator[Family]:
    for name, meaning, prefix in (
        ("rocketmq_group_diff", "Messages not consumed", ""),
        ("rocketmq_group_retrydiff", "Retried messages not consumed", RETRY_PREFIX),
        ("rocketmq_group_dlqdiff", "Dead letters not consumed", DLQ_PREFIX),
    ):
        yield Family(name, "gauge", meaning, _diffs(parts, lags, prefix))
    now_ms = parts.now_ms()

    def age_ms(lag: GroupLag) -> int:
        return max(0, now_ms - (lag.waiting_since_ms or now_ms))

    age = "Age of the oldest message not consumed, in milliseconds"
    for name, meaning, value in (
        ("rocketmq_consumer_offset", "Ends of a group's queues", _max_offsets),
        ("rocketmq_group_consume_total_offset", "A group's consume offsets", _consume_offsets),
        ("rocketmq_message_accumulation", "Messages not consumed", _waiting),
        ("rocketmq_group_get_latency_by_storetime", age, age_ms),
        ("rocketmq_group_get_latency", age, age_ms),
    ):
        yield Family(name, "gauge", meaning, _told_of(lags, place, value))


def _told_of(
    lags: Iterable[GroupLag], place: dict[str, str], value: Callable[[GroupLag], int]
) -> Iterator[Series]:
    for lag in lags:
        yield Series(place | {"topic": lag.topic, "group": lag.group}, value(lag))


def _max_offsets(lag: GroupLag) -> int:
    return lag.max_offsets


def _consume_offsets(lag: GroupLag) -> int:
    return lag.consume_offsets


def _waiting(lag: GroupLag) -> int:
    return lag.waiting


def _kind(topic: str) -> str:
    return next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(prefix)), "")


def _diffs(parts: BrokerParts, lags: Iterable[GroupLag], prefix: str) -> Iterator[Series | None]:
    for lag in lags:
        if _kind(lag.topic) != prefix:
            yield None
            continue
        members = parts.groups.of(lag.group)
        labels = {
            "group": lag.group,
            "topic": lag.topic,
            "countOfOnlineConsumers": str(0 if members is None else len(members.members)),
            "msgModel": NO_MODEL if members is None else members.message_model,
        }
        yield Series(labels, lag.waiting)


def _rate(counts: Iterable[Count], now_ms: int, column: Callable[[Sums], int]) -> float:
    minutes = [count.last_minute(now_ms) for count in counts]
    return sum(minute.per_second(column(minute)) for minute in minutes)


def _messages(sums: Sums) -> int:
    return sums.messages


def _bytes(sums: Sums) -> int:
    return sums.size_bytes
