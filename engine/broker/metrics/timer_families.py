"""Time-wheel metrics under RocketMQ's names (`rocketmq_timer_*`).

Place in the walk: behind `families`, once a scrape. Absent on purpose: `rocketmq_timing_messages`
and `rocketmq_delay_message_latency`: which topics the waiting messages are for is known of those
alone that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.broker.metrics.exposition import Family, Series
from engine.delay.wheel.figures import TimerFigures


def timer_families(figures: TimerFigures, labels: Mapping[str, str]) -> Iterator[Family]:
    """The families of one scrape."""
    for name, meaning, value in (
        ("enqueue_lag", "Records of timers that the wheel does not know yet", figures.enqueue_lag),
        (
            "enqueue_latency_milliseconds",
            "Age of the oldest record of a timer that the wheel does not know yet",
            figures.enqueue_latency_ms,
        ),
        ("dequeue_lag", "Entries of the wheel that wait for their time", figures.dequeue_lag),
        (
            "dequeue_latency_milliseconds",
            "How late a message is that is due and was not delivered yet",
            figures.dequeue_latency_ms,
        ),
    ):
        yield Family(f"rocketmq_timer_{name}", "gauge", meaning, [Series(labels, value)])
    for name, meaning, counts in (
        ("enqueue", "Messages for a moment that came", figures.enqueued),
        ("dequeue", "Messages that were delivered at their moment", figures.dequeued),
    ):
        of_topics = [Series({**labels, "topic": topic}, n) for topic, n in counts.items()]
        yield Family(f"rocketmq_timer_{name}_total", "counter", meaning, of_topics)
    yield Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        "Entries that are due within so many seconds, and not within the bound before",
        [
            Series({**labels, "timer_bound_s": str(bound_s)}, count)
            for bound_s, count in figures.due_within.items()
        ],
    )
