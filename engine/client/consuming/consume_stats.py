"""A member's pull and consume rates per topic, as shown by RocketMQ's tools and exporters.

They are those of the last minute. Beside them stand how long listener calls take, and for how long
and why pulls rested.

Place in the walk: pulls, their rests and listener calls are noted here as they end; the broker's
question for the member's running info reads it.

Invariant: rates are those of the minute before the question, failures those of the hour; noting
costs a few additions and keeps at most seven tens of seconds and 61 minutes of a topic; lengths of
calls are counted in LENGTHS_MAX classes. Absent on purpose: clocks; the callers say when it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.protocol.bodies import ConsumeStatus

SPAN_MS: Final = 10 * SECOND_MS
SPANS: Final = MINUTE_MS // SPAN_MS
MINUTES: Final = 60
LENGTHS_MAX: Final = 120
"""Classes of lengths: four to a doubling, so a percentile is at most a quarter too high; the last
one holds all above nine days.
"""
_EXACT_MS: Final = 4
"""Lengths below have a class each."""


class FlowControl(Enum):
    """Why a window was not pulled though it was its turn."""

    COUNT = "COUNT"
    """It holds too many messages,"""
    BYTES = "BYTES"
    """or too many bytes of them,"""
    SPAN = "SPAN"
    """or what was handed out lies too far beyond the lowest unfinished message."""


@dataclass(slots=True)
class _Span:
    """Sums of ten seconds."""

    number: int
    pulls: int = 0
    pulls_ms: int = 0
    pulled: int = 0
    calls: int = 0
    calls_ms: int = 0
    succeeded: int = 0
    failed: int = 0
    lengths: dict[int, int] = field(default_factory=dict)
    """Listener calls by the class of their length."""
    rested_ms: dict[FlowControl, int] = field(default_factory=dict)
    """How long pulls rested, summed over the queues of the topic."""


@dataclass(slots=True)
class _TopicSpeed:
    """One topic since `begin_ms`."""

    begin_ms: int
    spans: deque[_Span] = field(default_factory=lambda: deque(maxlen=SPANS + 1))
    failures: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MINUTES + 1))
    """(minute, messages that failed in it)"""

    def span(self, now_ms: int) -> _Span:
        number = now_ms // SPAN_MS
        if not self.spans or self.spans[-1].number != number:
            self.spans.append(_Span(number))
        return self.spans[-1]

    def note_failures(self, count: int, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        before = self.failures.pop()[1] if self.failures and self.failures[-1][0] == minute else 0
        self.failures.append((minute, before + count))

    def status(self, now_ms: int) -> ConsumeStatus:
        oldest = now_ms // SPAN_MS - SPANS
        spans = [span for span in self.spans if span.number > oldest]
        since_ms = max(self.begin_ms, (oldest + 1) * SPAN_MS)
        seconds = max(now_ms - since_ms, SPAN_MS) / SECOND_MS  # A rate of an instant is none.
        pulls, calls = sum(s.pulls for s in spans), sum(s.calls for s in spans)
        hour = now_ms // MINUTE_MS - MINUTES
        lengths = _summed(s.lengths for s in spans)
        rested_ms = _summed(s.rested_ms for s in spans)
        return ConsumeStatus(
            pull_rt=sum(s.pulls_ms for s in spans) / pulls if pulls else 0.0,
            pull_tps=sum(s.pulled for s in spans) / seconds,
            consume_rt=sum(s.calls_ms for s in spans) / calls if calls else 0.0,
            consume_ok_tps=sum(s.succeeded for s in spans) / seconds,
            consume_failed_tps=sum(s.failed for s in spans) / seconds,
            consume_failed_msgs=sum(count for minute, count in self.failures if minute > hour),
            calls=calls,
            consume_p50=_percentile_ms(lengths, 50),
            consume_p99=_percentile_ms(lengths, 99),
            flow_count_ms=rested_ms.get(FlowControl.COUNT, 0),
            flow_bytes_ms=rested_ms.get(FlowControl.BYTES, 0),
            flow_span_ms=rested_ms.get(FlowControl.SPAN, 0),
        )


class Speeds:
    """The topics of one member."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicSpeed] = {}

    def pulled(self, topic: str, *, count: int, took_ms: int, now_ms: int) -> None:
        """A pull brought `count` messages after `took_ms`."""
        span = self._topic(topic, now_ms).span(now_ms)
        span.pulls += 1
        span.pulls_ms += took_ms
        span.pulled += count

    def consumed(
        self, topic: str, *, succeeded: int, failed: int, took_ms: int, now_ms: int
    ) -> None:
        """A listener had so many messages for `took_ms`."""
        speed = self._topic(topic, now_ms)
        span = speed.span(now_ms)
        span.calls += 1
        span.calls_ms += took_ms
        span.succeeded += succeeded
        span.failed += failed
        length = _length_class(took_ms)
        span.lengths[length] = span.lengths.get(length, 0) + 1
        if failed:
            speed.note_failures(failed, now_ms)

    def rested(self, topic: str, why: FlowControl, *, rest_ms: int, now_ms: int) -> None:
        """A queue of the topic is not pulled for `rest_ms`, for its window holds too much."""
        span = self._topic(topic, now_ms).span(now_ms)
        span.rested_ms[why] = span.rested_ms.get(why, 0) + rest_ms

    def table(self, topics: Iterable[str], *, now_ms: int) -> dict[str, ConsumeStatus]:
        """The reported rates of these topics; the others are forgotten."""
        self._topics = {topic: self._topic(topic, now_ms) for topic in topics}
        return {topic: speed.status(now_ms) for topic, speed in self._topics.items()}

    def _topic(self, topic: str, now_ms: int) -> _TopicSpeed:
        speed = self._topics.get(topic)
        if speed is None:
            speed = self._topics[topic] = _TopicSpeed(now_ms)
        return speed


_Key = TypeVar("_Key")


def _summed(parts: Iterable[Mapping[_Key, int]]) -> dict[_Key, int]:
    sums: dict[_Key, int] = {}
    for part in parts:
        for key, count in part.items():
            sums[key] = sums.get(key, 0) + count
    return sums


def _length_class(took_ms: int) -> int:
    if took_ms < _EXACT_MS:
        return max(took_ms, 0)
    bits = took_ms.bit_length()
    return min(4 * (bits - 2) + (took_ms >> (bits - 3) & 3), LENGTHS_MAX - 1)


def _longest_ms(length: int) -> int:
    """The longest call of a class."""
    if length < _EXACT_MS:
        return length
    return ((length % 4 + 5) << (length // 4 - 1)) - 1


def _percentile_ms(lengths: Mapping[int, int], percent: int) -> int | None:
    """How many of the calls took no longer; None without any."""
    wanted = -(-sum(lengths.values()) * percent // 100)
    for length in sorted(lengths):
        wanted -= lengths[length]
        if wanted <= 0:
            return _longest_ms(length)
    return None
