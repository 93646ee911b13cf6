"""Picks the consume statistics of members to emit: those that changed or are due.

Place in the walk: `client_windows` asks clients; what an answer says of listeners, their times, the
rests of pulls and the division of queues becomes a fact here.

Invariant: a member's figures of a topic are emitted when they differ from the last ones emitted,
and no more often than each `rest_ms`; unchanged ones when that is `interval_ms` ago, and all when
facts were lost since. At most `count_max` are remembered; those beyond are emitted with each
answer. Absent on purpose: asking, and time (callers bring steady time). A figure that a client does
not report is null: RocketMQ's own clients report how many threads they may use, not how many are at
work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from engine.foundation.limits import CLIENT_FIGURES_MAX
from engine.foundation.observing import ConsumeStats
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.protocol.bodies import ConsumerRunningInfo, ConsumeStatus

POOL_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
_POOL_OF_GO: Final = "-1"
"""The pool size that rocketmq-client-go reports. Up to v2.1.2 it returns the mean time of its
pulls, which wait for messages, as that of its listener calls.
"""
_INT_MAX: Final = 2**31 - 1


@dataclass(slots=True)
class _Emitted:
    stats: ConsumeStats
    emitted_ms: int
    losses: int
    """Of the observer, when it was reported."""


class EmittedStats:
    """The figures of all members of one broker's groups, as they were reported last."""

    def __init__(
        self, *, rest_ms: int, interval_ms: int, count_max: int = CLIENT_FIGURES_MAX
    ) -> None:
        self._rest_ms = rest_ms
        self._interval_ms = interval_ms
        self._count_max = count_max
        self._count = 0
        self._emitted: dict[tuple[str, str], dict[str, _Emitted]] = {}

    def is_news(self, stats: ConsumeStats, now_ms: int, *, losses: int) -> bool:
        """Is this to be reported? It counts as reported then."""
        topics = self._emitted.setdefault((stats.group, stats.client_id), {})
        last = topics.get(stats.topic)
        if last is None:
            if self._count < self._count_max:
                self._count += 1
                topics[stats.topic] = _Emitted(stats, now_ms, losses)
            return True
        age_ms = now_ms - last.emitted_ms
        has_changed = age_ms >= self._rest_ms and stats != last.stats
        if not (has_changed or age_ms >= self._interval_ms or last.losses != losses):
            return False
        last.stats, last.emitted_ms, last.losses = stats, now_ms, losses
        return True

    def forget(self, group: str, client_id: str) -> None:
        """The client has left the group."""
        self._count -= len(self._emitted.pop((group, client_id), {}))

    def __len__(self) -> int:
        """Topics of members of which is known what was reported last."""
        return self._count


def stats_of(
    group: str, client_id: str, info: ConsumerRunningInfo, figures: dict[str, ConsumeStatus]
) -> list[ConsumeStats]:
    """What an answer says, a fact a topic; `figures` are those of topics that are here."""
    held = Counter(queue.topic for queue in info.mq_table)
    pool = info.listener_pool
    size = info.properties.get(POOL_SIZE, "")
    slots = _count(int(size)) if size.isdecimal() and len(size) < 10 else None
    is_go = size == _POOL_OF_GO
    return [
        ConsumeStats(
            client_id=client_id,
            group=group,
            topic=topic,
            listeners=slots if pool is None else _count(pool.slots),
            listeners_busy=None if pool is None else _count(pool.busy),
            listeners_queued=None if pool is None else _count(pool.queued),
            paused=None if pool is None else pool.paused,
            calls=status.calls,
            consume_us_mean=None
            if is_go and status.consume_rt == status.pull_rt
            else _mean_us(status),
            consume_ms_p50=status.consume_p50,
            consume_ms_p99=status.consume_p99,
            consumed=_a_minute(status.consume_ok_tps),
            failed=_a_minute(status.consume_failed_tps),
            flow_count_ms=status.flow_count_ms,
            flow_bytes_ms=status.flow_bytes_ms,
            flow_span_ms=status.flow_span_ms,
            queues_held=held[topic],
            topic_queues=_count(status.topic_queues),
            group_members=_count(status.group_members),
        )
        for topic, status in sorted(figures.items())
    ]


def _count(value: int | None) -> int | None:
    """A count for a column of 32 bits; None for what can be none."""
    return value if value is not None and 0 <= value <= _INT_MAX else None


def _mean_us(status: ConsumeStatus) -> int | None:
    """Mean length of a call. A client that reports no calls reports 0 when there were none."""
    mean_ms = status.consume_rt
    if mean_ms is None or not 0 <= mean_ms < _INT_MAX or status.calls == 0:
        return None
    if status.calls is None and not mean_ms:
        return None
    return round(mean_ms * 1000)


def _a_minute(per_second: float | None) -> int | None:
    if per_second is None or not 0 <= per_second < _INT_MAX:
        return None
    return round(per_second * (MINUTE_MS // SECOND_MS))
