"""Traffic: totals, spans and rates, on a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.stats.broker_stats import FIFO, NORMAL, BrokerStats, Counts

DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000


@dataclass
class Clock:
    now_ms: int = 20_000 * DAY_MS + 7

    def __call__(self) -> int:
        return self.now_ms


def run(traffic: BrokerStats, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now_ms += 1000
        for _ in traffic.sample(clock.now_ms, wall_ms=clock.now_ms):
            pass


def test_a_minute_an_hour_and_a_day_forget_at_their_own_pace() -> None:
    clock = Clock()
    traffic = BrokerStats(clock)
    traffic.put("t", NORMAL, 10, 1000)
    (count,) = traffic.puts_of("t")

    def sums() -> list[int]:
        spans = (count.last_minute, count.last_hour, count.last_day)
        return [span(clock.now_ms).messages for span in spans]

    assert sums() == [10, 10, 10]
    run(traffic, clock, 90)
    assert sums() == [0, 10, 10]
    traffic.put("t", NORMAL, 1, 1)
    assert sums() == [1, 11, 11]
    run(traffic, clock, 2 * 3600)
    assert sums() == [0, 0, 11]
    run(traffic, clock, 26 * 3600)
    assert sums() == [0, 0, 0]
    assert count.messages == 11


def test_a_key_that_wakes_up_has_the_rate_of_its_last_minute() -> None:
    clock = Clock()
    traffic = BrokerStats(clock)
    traffic.put("t", NORMAL, 1, 1)
    run(traffic, clock, 3600)
    traffic.put("t", NORMAL, 30, 1)
    (count,) = traffic.puts_of("t")
    minute = count.last_minute(clock.now_ms)
    assert (minute.messages, minute.per_second(minute.messages)) == (30, 0.5)


def test_a_new_key_has_the_rate_of_the_last_minute_not_of_the_instant_it_exists() -> None:
    clock = Clock()
    traffic = BrokerStats(clock)
    run(traffic, clock, 20)
    traffic.put("early", NORMAL, 10, 1)
    (early,) = traffic.puts_of("early")
    assert early.last_minute(clock.now_ms).per_second(10) == 0.5, "20 s are all there is"
    run(traffic, clock, 3600)
    traffic.put("late", NORMAL, 30, 1)
    clock.now_ms += 3
    (late,) = traffic.puts_of("late")
    minute, hour = late.last_minute(clock.now_ms), late.last_hour(clock.now_ms)
    assert (minute.messages, minute.per_second(30)) == (30, 0.5)
    assert round(hour.per_second(30), 4) == round(30 / 3620, 4)


def test_rates_look_back_ten_seconds_a_minute_and_ten_minutes() -> None:
    clock = Clock()
    traffic = BrokerStats(clock)
    assert traffic.rates(1, clock.now_ms) == (0.0, 0.0, 0.0)
    for _ in range(700):
        traffic.put("t", NORMAL, 5, 1)
        run(traffic, clock, 1)
    assert [round(rate, 1) for rate in traffic.rates(1, clock.now_ms)] == [5.0, 5.0, 5.0]
    run(traffic, clock, 60)
    ten_seconds, minute, ten_minutes = traffic.rates(1, clock.now_ms)
    assert (ten_seconds, minute < 0.1, round(ten_minutes, 1)) == (0.0, True, 4.5)


def test_the_days_totals_turn_at_midnight() -> None:
    clock = Clock()
    traffic = BrokerStats(clock)
    traffic.put("t", FIFO, 3, 1)
    run(traffic, clock, 24 * 3600)
    traffic.put("t", FIFO, 4, 1)
    assert traffic.puts_at_midnight == [0, 3]
    run(traffic, clock, 24 * 3600)
    assert traffic.puts_at_midnight == [3, 7]


def test_keys_beyond_the_limit_are_counted_together() -> None:
    counts: Counts[str] = Counts(0, keys_max=2)
    for key in ("a", "b", "c", "d", "a"):
        counts.add(key, 1, 10)
    assert [(key, count.messages) for key, count in counts.items()] == [("a", 2), ("b", 1)]
    assert counts.others is not None
    assert (counts.others.messages, counts.find("c")) == (2, None)
