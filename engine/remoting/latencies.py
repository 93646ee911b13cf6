"""Request latencies of a party: from a request's arrival until its answer is written. Pure.

Place in the walk: the end of a turn notes here what it has written; metrics and runtime info read
the histograms.

    read ── began_us ──▶ handler ──▶ answer noted ──▶ turn ends: facts, frames ── now_us ──▶
    reported

Invariant: an answer is counted once. A peer chooses its request codes, so those that RocketMQ has
not are counted together, under UNKNOWN: the histograms are no more than the codes' pairs. Absent on
purpose: clocks (times arrive as steady microseconds) and names of codes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from itertools import accumulate, repeat
from typing import Final, NamedTuple

from engine.protocol.codes import RequestCode

PERCENTILE_BOUNDS_MS: Final = tuple(
    accumulate(
        step_ms
        for step_ms, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
        for step_ms in repeat(step_ms, count)
    )
)
"""Up to 20 ms by one, up to 50 by two, and so on up to 10 s: what RocketMQ 5.5 sorts puts by."""
RANGE_ENDS_MS: Final = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)
"""Last whole milliseconds of the ranges in which RocketMQ 5.5 prints puts."""
BOUNDS_MS: Final = tuple(sorted({*PERCENTILE_BOUNDS_MS, *RANGE_ENDS_MS}))
"""Every bound that anybody asks for, so that each answer is exact."""

LONG_POLLED: Final = (int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE))
"""Requests that were held, when they are not answered at once; others wait for the disk."""
UNKNOWN: Final = -1
"""The request code under which those are counted that RocketMQ has not."""
KNOWN_CODES: Final = frozenset(int(code) for code in RequestCode)


class Result(Enum):
    """What became of an answer, in RocketMQ's words."""

    SUCCESS = "success"
    ONE_WAY = "oneway"
    WRITE_FAILED = "write_channel_failed"
    """The connection had ended."""


class LatencyKey(NamedTuple):
    """What is measured apart."""

    request_code: int
    response_code: int
    is_long_polling: bool
    result: Result


class Histogram:
    """Times of one kind in whole milliseconds."""

    __slots__ = ("counts", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """Times up to each of BOUNDS_MS and above the one before, and those above all."""
        self.total_ms = 0
        self.max_ms = 0

    def add(self, elapsed_ms: int, count: int) -> None:
        """`count` answers took as long."""
        self.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += count
        self.total_ms += elapsed_ms * count
        self.max_ms = max(self.max_ms, elapsed_ms)


class Latencies:
    """The histograms of one party."""

    def __init__(self) -> None:
        self.by_key: dict[LatencyKey, Histogram] = {}

    def histogram(
        self, request_code: int, response_code: int, result: Result, *, is_late: bool
    ) -> Histogram:
        """The histogram of such answers; `is_late`: they are not given at once."""
        key = LatencyKey(
            request_code if request_code in KNOWN_CODES else UNKNOWN,
            int(response_code),
            is_late and request_code in LONG_POLLED,
            result,
        )
        return self.by_key.setdefault(key, Histogram())


def summed(counts: Iterable[list[int]]) -> list[int]:
    """Several histograms' counts as one."""
    return [sum(column) for column in zip([0] * (len(BOUNDS_MS) + 1), *counts, strict=True)]


def regrouped(counts: list[int], bounds_ms: tuple[int, ...]) -> list[int]:
    """Counts up to each of fewer bounds, all of BOUNDS_MS, and those above."""
    below = list(accumulate(counts))
    up_to = [below[BOUNDS_MS.index(bound)] for bound in bounds_ms]
    return [here - before for before, here in zip([0, *up_to], [*up_to, below[-1]], strict=True)]
