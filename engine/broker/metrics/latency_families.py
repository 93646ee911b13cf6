"""RocketMQ's histogram of request latencies by request code.

Place in the walk: one family of `families`, once a scrape.

Invariant: buckets, labels and words are those of RocketMQ 5.5; codes that it has not are one series
of their own, `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.broker.metrics.exposition import Family, Series, histogram
from engine.protocol.codes import RequestCode, ResponseCode
from engine.remoting.latencies import UNKNOWN, Latencies, regrouped

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
