"""Statistics returned by GET_BROKER_RUNTIME_INFO, including put and get times.

Place in the walk: beside it, when a tool asks; the histograms are those of requests
(`remoting/latencies`), sampled each second on the broker's grid.

Invariant: a figure is true or absent. The time of a put is that of its request, from its arrival
until its answer was written. Ranges and percentiles are those of the last full minute, as in
RocketMQ 5.5; the longest times are since boot. Queues before handlers are always empty here, for a
request runs when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.stats.broker_stats import BrokerStats
from engine.delay import DelayLevels
from engine.foundation.limits import HANDLER_TASKS_MAX
from engine.foundation.units import DAY_MS, GIB, HOUR_MS, KIB, MINUTE_MS, SECOND_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.names import SCHEDULE_TOPIC
from engine.remoting.latencies import (
    LONG_POLLED,
    PERCENTILE_BOUNDS_MS,
    RANGE_ENDS_MS,
    Histogram,
    Latencies,
    regrouped,
    summed,
)
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.store import MessageStore

RANGE_NAMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]"),
    *("[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
"""RocketMQ's words for the ranges between RANGE_ENDS_MS."""
assert len(RANGE_NAMES) == len(RANGE_ENDS_MS) + 1

PUTS = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    )
)
FAILED = ResponseCode.SERVICE_NOT_AVAILABLE
"""How a put is answered that the store could not do."""
PUT = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        FAILED,
    )
)
"""Answers of requests that came as far as the store."""


class PutTimes:
    """The figures of one broker."""

    def __init__(self, latencies: Latencies, now_ms: int) -> None:
        self._latencies = latencies
        self._sampled_ms = now_ms
        self._before = self._last_minute = summed(())

    def sample(self, now_ms: int) -> None:
        """Called each second: a minute may have ended."""
        before_ms, self._sampled_ms = self._sampled_ms, now_ms
        if now_ms // MINUTE_MS != before_ms // MINUTE_MS:
            now = summed(histogram.counts for histogram in self._puts())
            self._last_minute = [
                here - there for here, there in zip(now, self._before, strict=True)
            ]
            self._before = now

    def figures(self) -> dict[str, str]:
        """Under the names, and in the forms, of RocketMQ 5.5."""
        ranges = regrouped(self._last_minute, RANGE_ENDS_MS)
        named = zip(RANGE_NAMES, ranges, strict=True)
        return {
            "putLatency99": f"{percentile_ms(self._last_minute, 0.99):.2f}",
            "putLatency999": f"{percentile_ms(self._last_minute, 0.999):.2f}",
            "putMessageDistributeTime": "".join(f"{name}:{count} " for name, count in named),
            "putMessageEntireTimeMax": str(_longest(self._puts())),
            "putMessageFailedTimes": str(sum(sum(one.counts) for one in self._failed())),
            "getMessageEntireTimeMax": str(_longest(self._gets())),
        }

    def _puts(self) -> Iterator[Histogram]:
        for key, histogram in self._latencies.by_key.items():
            if key.request_code in PUTS and key.response_code in PUT:
                yield histogram

    def _failed(self) -> Iterator[Histogram]:
        for key, histogram in self._latencies.by_key.items():
            if key.request_code in PUTS and key.response_code == FAILED:
                yield histogram

    def _gets(self) -> Iterator[Histogram]:
        """Pulls that were answered at once: how long others were held is no figure of the store."""
        for key, histogram in self._latencies.by_key.items():
            if key.request_code in LONG_POLLED and not key.is_long_polling:
                yield histogram


def percentile_ms(counts: list[int], share: float) -> float:
    """The time that `share` of the counts stay below, drawn evenly within its bucket; 0 for none.

    What took longer than the last bound is reported as that bound, not guessed.
    """
    wanted, passed = int(sum(counts) * share), 0
    bounds = (0, *PERCENTILE_BOUNDS_MS, PERCENTILE_BOUNDS_MS[-1])
    for place, count in enumerate(regrouped(counts, PERCENTILE_BOUNDS_MS)):
        if wanted <= passed + count:
            low, high = bounds[place], bounds[place + 1]
            return low + ((high - low) * (wanted - passed) / count if count else 0.0)
        passed += count
    raise AssertionError("a share of the counts is at most all of them")


def _longest(histograms: Iterator[Histogram]) -> int:
    return max((histogram.max_ms for histogram in histograms), default=0)


VERSION_NAME = "V5_5_0"
"""The RocketMQ whose wire this broker speaks."""

NO_POOL = 2**31 - 1
"""RocketMQ's word for `there is no transient pool to run out of`."""

POOLS = ("send", "pull", "litePull", "query", "ack")
"""RocketMQ's thread pools by kind of request."""


@dataclass(slots=True, kw_only=True, eq=False)
class RuntimeInfo:
    """Figures of one broker for `brokerStatus`."""

    clock: Clock
    node: BrokerNode
    put_times: PutTimes
    runtime: Runtime
    store: MessageStore
    stats: BrokerStats

    def with_delay(self, delay: DelayLevels) -> dict[str, str]:
        """Every figure, by name."""
        return dict(sorted({**self.figures(), **self._delay_figures(delay)}.items()))

    def figures(
        self,
    ) -> dict[str, str]:
        """Every figure but those of delayed messages."""
        now_ms = self.clock.now_ms()
        figures = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true",
            "bootTimestamp": str(self.node.boot_ms),
            "runtime": _span(now_ms - self.node.boot_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "pageCacheLockTimeMills": "0",
            **self._store_figures(),
            **self._traffic_figures(self.clock.steady_ms()),
            **self.put_times.figures(),
        }
        for pool in POOLS:
            figures[f"{pool}ThreadPoolQueueSize"] = "0"
            figures[f"{pool}ThreadPoolQueueCapacity"] = str(HANDLER_TASKS_MAX)
            figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        figures["EndTransactionQueueSize"] = "0"
        figures["EndTransactionThreadPoolQueueCapacity"] = str(HANDLER_TASKS_MAX)
        return figures

    def _store_figures(
        self,
    ) -> dict[str, str]:
        store, config = self.store, self.node.config.store
        disk = self.runtime.disk
        used = disk.used_ratio(config.commit_log_folder)
        total_bytes, free_bytes = disk.space_bytes(config.commit_log_folder)
        oldest_ms = store.oldest_store_time()
        figures = {
            "commitLogMinOffset": str(store.physical_min),
            "commitLogMaxOffset": str(store.physical_max),
            "commitLogDirCapacity": (
                f"Total : {total_bytes / GIB:.1f} GiB, Free : {free_bytes / GIB:.1f} GiB."
            ),
            "commitLogDiskRatio": f"{used:.2f}",
            f"commitLogDiskRatio_{config.commit_log_folder}": f"{used:.2f}",
            "consumeQueueDiskRatio": f"{disk.used_ratio(config.consume_queue_folder):.2f}",
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(-1 if oldest_ms is None else oldest_ms),
            "remainHowManyDataToFlush": _bytes(store.physical_committed - store.physical_flushed),
        }
        if config.transient_store_pool_enable:
            figures["remainHowManyDataToCommit"] = _bytes(
                store.physical_max - store.physical_committed
            )
        else:
            figures["remainTransientStoreBufferNumbs"] = str(NO_POOL)
        return figures

    def _traffic_figures(self, now_ms: int) -> dict[str, str]:
        traffic = self.stats
        puts, gets = traffic.put_total, traffic.get_total
        found, missed = traffic.rates(2, now_ms), traffic.rates(3, now_ms)
        return {
            "putTps": _rates(traffic.rates(1, now_ms)),
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": _rates([a + b for a, b in zip(found, missed, strict=True)]),
            "getTransferredTps": _rates(traffic.rates(4, now_ms)),
            "putMessageTimesTotal": str(puts.messages),
            "putMessageSizeTotal": str(puts.size_bytes),
            "putMessageAverageSize": str(puts.size_bytes / puts.messages if puts.messages else 0.0),
            "msgPutTotalYesterdayMorning": str(traffic.puts_at_midnight[0]),
            "msgPutTotalTodayMorning": str(traffic.puts_at_midnight[1]),
            "msgPutTotalTodayNow": str(puts.messages),
            "msgGetTotalYesterdayMorning": str(traffic.gets_at_midnight[0]),
            "msgGetTotalTodayMorning": str(traffic.gets_at_midnight[1]),
            "msgGetTotalTodayNow": str(gets.messages),
        }

    def _delay_figures(self, delay: DelayLevels) -> dict[str, str]:
        figures = {
            "timerReadBehind": "0",  # No timer wheel: nothing is behind in it.
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        for level, cursor in sorted(delay.cursors().items()):
            end = self.store.max_offset(SCHEDULE_TOPIC, level - 1)
            figures[f"scheduleMessageOffset_{level}"] = f"{cursor},{end}"
        return figures


def _rates(rates: object) -> str:
    assert isinstance(rates, (tuple, list))
    return " ".join(str(float(rate)) for rate in rates)


def _span(span_ms: int) -> str:
    return (
        f"[ {span_ms // DAY_MS} days, {span_ms % DAY_MS // HOUR_MS} hours, "
        f"{span_ms % HOUR_MS // MINUTE_MS} minutes, {span_ms % MINUTE_MS // SECOND_MS} seconds ]"
    )


def _bytes(size_bytes: int) -> str:
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= KIB and len(units) > 1:
        size /= KIB
        units.pop(0)
    return f"{size_bytes} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
