"""Broker traffic counters: totals since boot, and sums by minute, hour and day.

Place in the walk: sends, pulls and send-backs add whole numbers here; tools (VIEW_BROKER_STATS_DATA
and the runtime info) and the port for metrics read them. Samples are taken on the broker's grid.

Invariant: adding costs a lookup and a few additions, however many read; totals never go down. There
are at most TRAFFIC_KEYS_MAX keys of a kind: what is beyond is counted together, under nobody's
name.
Absent on purpose: time (arrives as now_ms) and names of statistics (handlers/stats).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from engine.foundation.chunked_work import dropped_in_steps
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, TRAFFIC_KEYS_MAX
from engine.foundation.units import DAY_MS, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS

Key = TypeVar("Key")

MINUTE_EVERY_MS = 10 * SECOND_MS
HOUR_EVERY_MS = 10 * MINUTE_MS
DAY_EVERY_MS = HOUR_MS
MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25
"""Samples kept of each rhythm, as in RocketMQ: the oldest is a minute, an hour, a day old."""

NORMAL, FIFO, DELAY, TRANSACTION = range(4)
MESSAGE_TYPES = ("normal", "fifo", "delay", "transaction")
"""RocketMQ's words for what a send brings, by their number."""

SIZE_BOUNDS = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
"""RocketMQ's buckets of the size of a stored message, in bytes."""
_SIZE_BITS = 32

FINISH_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
"""RocketMQ's buckets of a committed transaction's age."""

Sample = tuple[int, int, int, int]
"""(time, messages, bytes, calls)"""


@dataclass(frozen=True, slots=True)
class Sums:
    """What was added over a while."""

    messages: int
    size_bytes: int
    calls: int
    span_ms: int

    def per_second(self, count: int) -> float:
        """`count` of the span as a rate; 0 for no span."""
        return count * 1000 / self.span_ms if self.span_ms > 0 else 0.0


class Count:
    """Totals of one key, and samples of them."""

    __slots__ = ("calls", "day", "hour", "messages", "minute", "size_bytes")

    def __init__(self, now_ms: int) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.calls = 0
        begin: Sample = (now_ms, 0, 0, 0)
        self.minute: deque[Sample] = deque([begin], MINUTE_SAMPLES)
        self.hour: deque[Sample] = deque([begin], HOUR_SAMPLES)
        self.day: deque[Sample] = deque([begin], DAY_SAMPLES)

    def sample(self, now_ms: int, samples: deque[Sample]) -> None:
        """Take a sample; a key that stood still for the whole rhythm keeps only the newest."""
        if samples[0][1] == self.messages:
            if len(samples) == 1:
                return  # Most keys, most of the time.
            samples.clear()
        samples.append((now_ms, self.messages, self.size_bytes, self.calls))

    def last_minute(self, now_ms: int) -> Sums:
        """What was added in the last minute, to within the sampling of ten seconds."""
        return self._since(self.minute[0], now_ms, MINUTE_MS)

    def last_hour(self, now_ms: int) -> Sums:
        """What was added in the last hour, to within ten minutes."""
        return self._since(self.hour[0], now_ms, HOUR_MS)

    def last_day(self, now_ms: int) -> Sums:
        """What was added in the last day, to within an hour."""
        return self._since(self.day[0], now_ms, DAY_MS)

    def _since(self, oldest: Sample, now_ms: int, rhythm_ms: int) -> Sums:
        """A key that stood still has an old sample: it began again within the rhythm."""
        age_ms = now_ms - oldest[0]
        is_old = age_ms > rhythm_ms * 7 // 6
        return Sums(
            self.messages - oldest[1],
            self.size_bytes - oldest[2],
            self.calls - oldest[3],
            rhythm_ms if is_old else age_ms,
        )


class Counts(Generic[Key]):
    """Counts by key; those beyond the limit share one."""

    def __init__(self, begin_ms: int, keys_max: int = TRAFFIC_KEYS_MAX) -> None:
        """A key that is added to for the first time did nothing since `begin_ms`: a rate over the
        instant it has existed would claim thousands a second where one message came.
        """
        self._begin_ms = begin_ms
        self._keys_max = keys_max
        self.by_key: dict[Key, Count] = {}
        """For reading, and for those who add in a hurry."""
        self.others: Count | None = None
        """What keys beyond the limit added."""

    def add(self, key: Key, messages: int, size_bytes: int) -> None:
        """One call of a key."""
        count = self.by_key.get(key) or self.make(key)
        count.messages += messages
        count.size_bytes += size_bytes
        count.calls += 1

    def find(self, key: Key) -> Count | None:
        """The count of a key that was added to."""
        return self.by_key.get(key)

    def items(self) -> Iterator[tuple[Key, Count]]:
        """Every key with its count, in order of first appearance, of those there are now: to list
        a hundred thousand pairs at once holds the loop for 50 ms.
        """
        for key in list(self.by_key):
            count = self.by_key.get(key)
            if count is not None:
                yield key, count

    def all(self) -> Iterator[Count]:
        """Every count, that of the others as well."""
        yield from self.by_key.values()
        if self.others is not None:
            yield self.others

    def forget(self, gone: Callable[[Key], bool]) -> Iterator[None]:
        """Drop the keys of something that was deleted, in steps."""
        yield from dropped_in_steps(self.by_key, gone)

    def make(self, key: Key) -> Count:
        """The count of a key that has none yet: its own, or that of the others."""
        if len(self.by_key) < self._keys_max:
            self.by_key[key] = count = Count(self._begin_ms)
            return count
        if self.others is None:
            self.others = Count(self._begin_ms)
        return self.others


@dataclass(slots=True)
class FinishTimes:
    """How old the transactions of a topic were when they were committed, in whole seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(FINISH_BOUNDS_S) + 1))
    """Up to each of FINISH_BOUNDS_S and above the one before, and those above all."""
    total_s: int = 0

    def add(self, age_s: int) -> None:
        """One was committed."""
        self.counts[bisect_left(FINISH_BOUNDS_S, age_s)] += 1
        self.total_s += age_s


class BrokerStats:
    """The counts of one broker."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        begin_ms = now_ms()
        self._puts = tuple(Counts[str](begin_ms) for _ in MESSAGE_TYPES)
        self.gets: Counts[tuple[str, str]] = Counts(begin_ms)
        """(group, topic) → what pulls were answered with."""
        self.send_backs: Counts[tuple[str, str]] = Counts(begin_ms)
        """(group, topic) → messages a group sent back."""
        self.dead_letters: Counts[tuple[str, str]] = Counts(begin_ms)
        """(group, topic) → messages that went to the group's dead letters."""
        self._sizes = [0] * (_SIZE_BITS + 1)
        """Messages by the bits of their size less one: each bound is a power of two."""
        self.commits: Counts[str] = Counts(begin_ms)
        self.rollbacks: Counts[str] = Counts(begin_ms)
        """topic → transactions that ended so."""
        self.finish_times: dict[str, FinishTimes] = {}
        """Of the topics that are counted one by one."""
        self.put_total = Count(begin_ms)
        self.get_total = Count(begin_ms)
        """Calls are pulls that found something."""
        self.get_misses = 0
        """Pulls that found nothing."""
        self._seconds: deque[tuple[int, int, int, int, int]] = deque(
            [(begin_ms, 0, 0, 0, 0)], 10 * MINUTE_MS // SECOND_MS + 1
        )
        """(time, messages put, pulls found, pulls missed, messages got) on each second."""
        self._sampled_ms = begin_ms
        self._day: int | None = None
        self.puts_at_midnight = [0, 0]
        self.gets_at_midnight = [0, 0]
        """Totals at the last midnight but one, and at the last."""

    def put(self, topic: str, message_type: int, messages: int, size_bytes: int) -> None:
        """Hot: a send was stored."""
        counts = self._puts[message_type]
        count = counts.by_key.get(topic) or counts.make(topic)
        count.messages += messages
        count.size_bytes += size_bytes
        count.calls += 1
        self._sizes[(size_bytes // messages - 1).bit_length()] += messages
        total = self.put_total
        total.messages += messages
        total.size_bytes += size_bytes
        total.calls += 1

    def got(self, group: str, topic: str, messages: int, size_bytes: int) -> None:
        """Hot: a pull was answered with messages."""
        key = (group, topic)
        count = self.gets.by_key.get(key) or self.gets.make(key)
        count.messages += messages
        count.size_bytes += size_bytes
        count.calls += 1
        total = self.get_total
        total.messages += messages
        total.size_bytes += size_bytes
        total.calls += 1

    def transaction_ended(self, topic: str, age_ms: int, *, committed: bool) -> None:
        """A transaction of a topic was committed or rolled back. How old it was nobody knows when
        its producer's clock was ahead of ours.
        """
        (self.commits if committed else self.rollbacks).add(topic, 1, 0)
        if committed and age_ms >= 0 and self.commits.find(topic) is not None:
            self.finish_times.setdefault(topic, FinishTimes()).add(age_ms // SECOND_MS)

    def missed(self) -> None:
        """Hot: a pull found nothing."""
        self.get_misses += 1

    def size_counts(self) -> list[int]:
        """Messages up to each of SIZE_BOUNDS and above the one before, and those above all."""
        bits = [0, *((bound - 1).bit_length() + 1 for bound in SIZE_BOUNDS), _SIZE_BITS + 1]
        return [sum(self._sizes[low:high]) for low, high in pairwise(bits)]

    def puts(self) -> Iterator[tuple[str, str, Count]]:
        """(topic, message type, count) of everything that was sent."""
        for name, counts in zip(MESSAGE_TYPES, self._puts, strict=True):
            for topic, count in counts.items():
                yield topic, name, count

    def puts_of(self, topic: str) -> list[Count]:
        """The counts of a topic, one for each message type it got."""
        return [count for counts in self._puts if (count := counts.find(topic)) is not None]

    def keys_left_out(self) -> int:
        """Messages counted under nobody's name, for there were too many keys."""
        kinds: Iterable[Counts[str] | Counts[tuple[str, str]]] = (
            *self._puts,
            self.commits,
            self.rollbacks,
            self.gets,
            self.send_backs,
            self.dead_letters,
        )
        return sum(counts.others.messages for counts in kinds if counts.others is not None)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic is deleted: so are its counts, in steps."""
        for counts in (*self._puts, self.commits, self.rollbacks):
            counts.by_key.pop(topic, None)
        self.finish_times.pop(topic, None)
        for pairs in (self.gets, self.send_backs, self.dead_letters):
            yield from pairs.forget(lambda key: key[1] == topic)

    def forget_group(self, group: str) -> Iterator[None]:
        """The group is deleted: so are its counts, in steps."""
        for pairs in (self.gets, self.send_backs, self.dead_letters):
            yield from pairs.forget(lambda key: key[0] == group)

    def sample(self, now_ms: int, *, wall_ms: int) -> Iterator[None]:
        """Take the samples that are due; called each second, and done in steps of so many counts
        that the loop is not held up. Days are those of the wall clock.
        """
        before_ms, self._sampled_ms = self._sampled_ms, now_ms
        day_before, self._day = self._day, wall_ms // DAY_MS
        self._seconds.append(
            (
                now_ms,
                self.put_total.messages,
                self.get_total.calls,
                self.get_misses,
                self.get_total.messages,
            )
        )
        if day_before not in (None, self._day):
            self.puts_at_midnight = [self.puts_at_midnight[1], self.put_total.messages]
            self.gets_at_midnight = [self.gets_at_midnight[1], self.get_total.messages]
        due = [now_ms // every != before_ms // every for every in _RHYTHMS_MS]
        if not any(due):
            return
        looked_at = 0
        for counts in self._all():
            for count in counts:
                for samples, wanted in zip((count.minute, count.hour, count.day), due, strict=True):
                    if wanted:
                        count.sample(now_ms, samples)
                looked_at += 1
                if not looked_at % LOOP_STEP_ENTRIES_MAX:
                    yield

    def rates(self, column: int, now_ms: int) -> tuple[float, float, float]:
        """Per second over 10 s, a minute and 10 minutes: 1 puts, 2 pulls found, 3 pulls missed,
        4 messages got.
        """
        newest = (
            now_ms,
            self.put_total.messages,
            self.get_total.calls,
            self.get_misses,
            self.get_total.messages,
        )

        def rate(span_ms: int) -> float:
            since_ms = now_ms - span_ms - SECOND_MS
            oldest = next((one for one in self._seconds if one[0] >= since_ms), self._seconds[-1])
            grown = newest[column] - oldest[column]
            return grown * 1000 / (now_ms - oldest[0]) if now_ms > oldest[0] else 0.0

        return rate(10 * SECOND_MS), rate(MINUTE_MS), rate(10 * MINUTE_MS)

    def _all(self) -> Iterator[list[Count]]:
        """Every count, kind by kind; those of a kind as they are when it has its turn."""
        for counts in (*self._puts, self.commits, self.rollbacks):
            yield list(counts.all())
        for pairs in (self.gets, self.send_backs, self.dead_letters):
            yield list(pairs.all())
        yield [self.put_total, self.get_total]


_RHYTHMS_MS = (MINUTE_EVERY_MS, HOUR_EVERY_MS, DAY_EVERY_MS)
