"""Process and store metrics: runtime-info gauges and the RPC latency histogram.

Place in the walk: behind `families` and `exporter_families`, once a scrape.

Invariant: a gauge is the figure that GET_BROKER_RUNTIME_INFO returns at the same moment, bytes as
plain numbers; what is unknown has no series. Buckets, labels and words are those of RocketMQ 5.5;
codes that it has not are one series, `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.metrics.exposition import Family, Series, histogram
from engine.broker.stats.runtime_info import RANGE_NAMES, VERSION_NAME, RuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.remoting.latencies import UNKNOWN, Latencies, regrouped
from engine.runtime import Runtime
from engine.store import MessageStore

PREFIX = "rocketmq_brokeruntime_"
VERSION = 513
"""Of RocketMQ 5.5.0, as its clients and brokers number it."""
NOT_KNOWN = "-1"

PLAIN = {
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
}
"""Gauge → figure that is a number."""

RATES = {
    "put": "putTps",
    "getfound": "getFoundTps",
    "getmiss": "getMissTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferredTps",
}
"""Gauge → figure of three numbers: messages a second over 10 s, 60 s and 600 s."""
SPANS = ("10", "60", "600")

PUT_TIMES = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
"""The exporter's words for the ranges of putMessageDistributeTime, in their order."""

assert len(PUT_TIMES) == len(RANGE_NAMES)


@dataclass(slots=True, kw_only=True, eq=False)
class RuntimeFamilies:
    """Metric families of the process and its store."""

    node: BrokerNode
    runtime: Runtime
    runtime_info: RuntimeInfo
    store: MessageStore

    def runtime_families(
        self,
    ) -> Iterator[Family]:
        """Every gauge, with the figures of now."""
        labels = {
            "cluster": self.node.config.cluster_name,
            "brokerIP": self.node.address,
            "brokerHost": "",  # The exporter leaves it empty, too; boards group by the label.
            "des": VERSION_NAME,
            "boottime": str(self.node.boot_ms),
            "broker_version": str(VERSION),
        }
        for name, value in self._gauges():
            yield Family(PREFIX + name, "gauge", "See the runtime info", [Series(labels, value)])

    def _gauges(
        self,
    ) -> Iterator[tuple[str, float]]:
        figures = self.runtime_info.figures()
        for name, figure in PLAIN.items():
            if figures.get(figure, NOT_KNOWN) != NOT_KNOWN:
                yield name, float(figures[figure])
        for name, figure in RATES.items():
            for span, rate in zip(SPANS, figures[figure].split(), strict=True):
                yield f"{name}_tps{span}", float(rate)
        ranges = figures["putMessageDistributeTime"].split()
        for name, text in zip(PUT_TIMES, ranges, strict=True):
            yield f"pmdt_{name}", float(text.rpartition(":")[2])
        store, folder = self.store, self.node.config.store.commit_log_folder
        total_bytes, free_bytes = self.runtime.disk.space_bytes(folder)
        yield "commitlogdir_capacity_total", total_bytes
        yield "commitlogdir_capacity_free", free_bytes
        yield "remain_howmanydata_toflush", store.physical_committed - store.physical_flushed


LATENCY_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
_REQUESTS = {int(code): code.name.lower() for code in RequestCode} | {UNKNOWN: "unknown"}
_RESPONSES = {int(code): code.name.lower() for code in ResponseCode}


def latency_family(latencies: Latencies, node: Mapping[str, str]) -> Family:
    """rocketmq_rpc_latency_milliseconds."""

    def series() -> Iterator[Series]:
        for key, measured in list(latencies.by_key.items()):
            labels = {
                **node,
                "protocol_type": "remoting",
                "request_code": _REQUESTS[key.request_code],
                "response_code": _RESPONSES.get(key.response_code, str(key.response_code)),
                "is_long_polling": "true" if key.is_long_polling else "false",
                "result": key.result.value,
            }
            counts = regrouped(measured.counts, LATENCY_BOUNDS_MS)
            yield from histogram(labels, LATENCY_BOUNDS_MS, counts, measured.total_ms)

    return Family("rocketmq_rpc_latency_milliseconds", "histogram", "Rpc latency", series())
