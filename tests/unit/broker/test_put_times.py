"""Row Figures: times of puts and gets, as the runtime info shows them."""

from __future__ import annotations

import pytest

from engine.broker.stats.runtime_info import PutTimes, percentile_ms
from engine.protocol.codes import RequestCode, ResponseCode
from engine.remoting.latencies import Histogram, Latencies, Result

MINUTE_MS = 60_000
BEGIN_MS = 29_000_000 * MINUTE_MS


def took(
    latencies: Latencies, code: int, response: int, *times_ms: int, is_late: bool = False
) -> None:
    histogram = latencies.histogram(code, response, Result.SUCCESS, is_late=is_late)
    for time_ms in times_ms:
        histogram.add(time_ms, 1)


def test_ranges_are_those_of_the_last_full_minute_and_the_longest_is_since_boot() -> None:
    latencies = Latencies()
    times = PutTimes(latencies, BEGIN_MS)
    took(latencies, RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS, 0, 3, 9, 10, 700, 12_000)
    took(latencies, RequestCode.SEND_MESSAGE, ResponseCode.FLUSH_DISK_TIMEOUT, 5000, is_late=True)
    took(latencies, RequestCode.SEND_MESSAGE, ResponseCode.NO_PERMISSION, 1, 1)
    took(latencies, RequestCode.HEART_BEAT, ResponseCode.SUCCESS, 1, 1)
    times.sample(BEGIN_MS + 59_000)
    assert " [0~10ms]:0 " in times.figures()["putMessageDistributeTime"], "the minute goes on"
    assert times.figures()["putLatency99"] == "0.00"
    times.sample(BEGIN_MS + MINUTE_MS)
    figures = times.figures()
    assert figures["putMessageDistributeTime"] == (
        "[<=0ms]:1 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:1 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 "
    )
    assert figures["putMessageEntireTimeMax"] == "12000"
    assert figures["putLatency99"] == "5000.00", "six of seven are that quick"
    times.sample(BEGIN_MS + 2 * MINUTE_MS)
    assert "[0~10ms]:0" in times.figures()["putMessageDistributeTime"], "nothing in this one"
    assert times.figures()["putMessageEntireTimeMax"] == "12000"


def test_a_store_that_could_not_write_is_a_failed_put() -> None:
    latencies = Latencies()
    times = PutTimes(latencies, BEGIN_MS)
    failed = ResponseCode.SERVICE_NOT_AVAILABLE
    took(latencies, RequestCode.SEND_MESSAGE_V2, failed, 2, 2)
    took(latencies, RequestCode.PULL_MESSAGE, failed, 2)
    assert times.figures()["putMessageFailedTimes"] == "2"


def test_the_longest_get_is_none_that_was_held() -> None:
    latencies = Latencies()
    times = PutTimes(latencies, BEGIN_MS)
    took(latencies, RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, 6, 2)
    took(latencies, RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, 15_000, is_late=True)
    assert times.figures()["getMessageEntireTimeMax"] == "6"


@pytest.mark.parametrize(
    ("times_ms", "share", "expected"),
    [
        ([], 0.99, 0.0),
        ([1] * 100, 0.99, 0.99),
        ([1] * 99 + [20], 0.99, 1.0),
        ([1] * 98 + [20, 20], 0.99, 19.5),
        ([60_000], 0.99, 0.0),
        ([60_000] * 1000, 0.999, 10_000.0),
    ],
)
def test_a_percentile_is_drawn_within_its_bucket(
    times_ms: list[int], share: float, expected: float
) -> None:
    histogram = Histogram()
    for time_ms in times_ms:
        histogram.add(time_ms, 1)
    assert percentile_ms(histogram.counts, share) == pytest.approx(expected)
