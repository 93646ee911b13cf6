"""Histograms of put and get times, as RocketMQ's runtime info shows them.

Place in the walk: beside it; the histograms are those of requests (`remoting/latencies`), sampled
each second on the broker's grid, read when a tool asks.

Invariant: the time of a put is that of its request, from its arrival until its answer was written:
what the store needs is within, and what the producer waits for is not left out. Ranges and
percentiles are those of the last full minute, as in RocketMQ 5.5; the longest times are since boot.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.foundation.units import MINUTE_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.remoting.latencies import (
    LONG_POLLED,
    PERCENTILE_BOUNDS_MS,
    RANGE_ENDS_MS,
    Histogram,
    Latencies,
    regrouped,
    summed,
)

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
