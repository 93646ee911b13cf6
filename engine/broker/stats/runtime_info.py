"""The figures of GET_BROKER_RUNTIME_INFO, under RocketMQ 5.5's names and in its forms.

Place in the walk: beside it, when a tool asks.

Invariant: a figure is true or absent. Queues before handlers are always empty here, for a request
runs when it arrives. Pure reading.
"""

from __future__ import annotations

from engine.broker.node import BrokerNode
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.stats.put_times import PutTimes
from engine.delay import DelayLevels
from engine.foundation.limits import HANDLER_TASKS_MAX
from engine.foundation.units import DAY_MS, GIB, HOUR_MS, KIB, MINUTE_MS, SECOND_MS
from engine.protocol.names import SCHEDULE_TOPIC
from engine.runtime import Runtime
from engine.runtime.clock import Clock
from engine.store import MessageStore

VERSION_NAME = "V5_5_0"
"""The RocketMQ whose wire this broker speaks."""

NO_POOL = 2**31 - 1
"""RocketMQ's word for `there is no transient pool to run out of`."""

POOLS = ("send", "pull", "litePull", "query", "ack")
"""RocketMQ's thread pools by kind of request."""


class RuntimeInfo:
    """Figures of one broker for `brokerStatus`."""

    def __init__(
        self,
        *,
        clock: Clock,
        node: BrokerNode,
        put_times: PutTimes,
        runtime: Runtime,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._clock = clock
        self._node = node
        self._put_times = put_times
        self._runtime = runtime
        self._store = store
        self._stats = stats

    def with_delay(self, delay: DelayLevels) -> dict[str, str]:
        """Every figure, by name."""
        return dict(sorted({**self.figures(), **self._delay_figures(delay)}.items()))

    def figures(
        self,
    ) -> dict[str, str]:
        """Every figure but those of delayed messages."""
        now_ms = self._clock.now_ms()
        figures = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true",
            "bootTimestamp": str(self._node.boot_ms),
            "runtime": _span(now_ms - self._node.boot_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "pageCacheLockTimeMills": "0",
            **self._store_figures(),
            **self._traffic_figures(self._clock.steady_ms()),
            **self._put_times.figures(),
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
        store, config = self._store, self._node.config.store
        disk = self._runtime.disk
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
        traffic = self._stats
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
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
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
