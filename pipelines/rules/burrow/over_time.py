"""Simulates Burrow over a time range and records its verdict at every tick.

Place in the walk: observations of the queues of a group → `storage` → `evaluator` → verdicts, so
that what Burrow would have said of our own facts, and when, can be laid beside what we say.

A RocketMQ queue is a Burrow partition: the queues that a topic has on one broker are a Burrow
topic, since every broker numbers its queues from 0.

Invariant: what Burrow would not see is not shown to it: the ends of the logs only at its polls,
each `offset_refresh_s`. Commits keep their true times. Absent on purpose: clocks, and the cache of
Burrow's answers (`expire-cache`): a tick is a question that nobody has asked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.evaluator import GroupStatus, Status, evaluate_group
from pipelines.rules.burrow.storage import Storage, StorageSettings
from pipelines.rules.observations import (
    Intervals,
    Kind,
    Observation,
    Queue,
    State,
    Ticks,
    Verdict,
    in_order,
)

_SECOND_US: Final = 1_000_000
_GROUP: Final = "group"
_POLL_KIND: Final = Kind.END + 0.5
"""A poll sees the end of its instant, and comes before the commits of it."""
_ALONE: Final = Queue("", "", "", "", 0)


@dataclass(frozen=True, slots=True)
class EvaluatorSettings:
    """Burrow's names and defaults."""

    allowed_lag: int = 0
    """Lag that is never a problem, for all groups alike."""
    minimum_complete: float = 0.0
    """Share of a ring that must be filled before it is judged."""

    def __post_init__(self) -> None:
        if self.allowed_lag < 0:
            raise ConfigError("allowed-lag", self.allowed_lag, "messages, 0 or more")
        if not 0.0 <= self.minimum_complete <= 1.0:
            raise ConfigError("minimum-complete", self.minimum_complete, "a share from 0 to 1")


@dataclass(frozen=True, slots=True)
class BurrowRules:
    """Burrow's rules as a rule set."""

    storage: StorageSettings = field(default_factory=StorageSettings)
    evaluator: EvaluatorSettings = field(default_factory=EvaluatorSettings)
    offset_refresh_s: int = 10
    """How often the ends of the logs are polled; polls lie on multiples of it."""
    bad_from: Status = Status.WARN
    """Statuses from this one on are bad: the notifier's threshold."""

    def __post_init__(self) -> None:
        if self.offset_refresh_s < 1:
            raise ConfigError("offset-refresh", self.offset_refresh_s, "seconds, 1 or more")

    @property
    def name(self) -> str:
        """Its name in a comparison."""
        return "burrow"

    def judge(self, observations: Sequence[Observation], ticks: Ticks) -> list[Verdict]:
        """Verdicts on one queue, as if its group had no other."""
        return self.judge_group({_ALONE: observations}, ticks).queues[_ALONE]

    def judge_group(
        self, observations: Mapping[Queue, Sequence[Observation]], ticks: Ticks
    ) -> GroupVerdicts:
        """Verdicts on the queues of one group, and on the group."""
        monitor = _Monitor(self, observations)
        of_group = Intervals()
        of_queues = {queue: Intervals() for queue in observations}
        for tick_us in ticks:
            answer = monitor.ask(tick_us)
            of_group.say(tick_us, self._state(answer.status))
            for queue, said in of_queues.items():
                one = answer.partitions.get(monitor.keys[queue])
                said.say(tick_us, self._state(one.status if one else Status.NOTFOUND))
        return GroupVerdicts(
            group=of_group.verdicts(),
            queues={queue: said.verdicts() for queue, said in of_queues.items()},
        )

    def _state(self, status: Status) -> State:
        if status is Status.NOTFOUND:
            return State(status.name, is_bad=None)
        return State(status.name, is_bad=status >= self.bad_from)


@dataclass(frozen=True, slots=True)
class GroupVerdicts:
    """What was said of a group and of each of its queues."""

    group: list[Verdict]
    queues: dict[Queue, list[Verdict]]


class _Monitor:
    """A Burrow that lives through the observations of one group."""

    def __init__(
        self, rules: BurrowRules, observations: Mapping[Queue, Sequence[Observation]]
    ) -> None:
        self._rules = rules
        self._storage = Storage(rules.storage)
        self.keys = {
            queue: (f"{queue.topic}@{queue.broker}", queue.queue_id) for queue in observations
        }
        self._counts: dict[str, int] = {}
        for topic, queue_id in self.keys.values():
            self._counts[topic] = max(self._counts.get(topic, 0), queue_id + 1)
        self._ends: dict[tuple[str, int], int] = {}
        self._commits = 0
        self._waiting = _merged(observations)
        self._next = next(self._waiting, None)
        self._step_us = rules.offset_refresh_s * _SECOND_US
        self._next_poll_us: int | None = None
        if self._next is not None:  # Before the first observation no poll would find anything.
            self._next_poll_us = -(-self._next[1].at_us // self._step_us) * self._step_us

    def ask(self, tick_us: int) -> GroupStatus:
        """Live on to the tick, then answer."""
        while self._next_poll_us is not None:
            poll = (self._next_poll_us, _POLL_KIND)
            if self._next is not None and self._next[1].place[:2] < poll:
                if self._next[1].at_us > tick_us:
                    break
                self._take(*self._next)
                self._next = next(self._waiting, None)
            elif self._next_poll_us <= tick_us:
                self._poll()
                self._next_poll_us += self._step_us * (1 + self._idle_polls(tick_us))
            else:
                break
        now_s = tick_us // _SECOND_US
        settings = self._rules.evaluator
        return evaluate_group(
            self._storage.fetch(_GROUP, now_s=now_s),
            now_s=now_s,
            allowed_lag=settings.allowed_lag,
            minimum_complete=settings.minimum_complete,
        )

    def _idle_polls(self, tick_us: int) -> int:
        """Polls that follow and may be left out: as many as a ring has slots come after them, and
        find the same ends.
        """
        assert self._next_poll_us is not None
        until_us = min(tick_us, self._next[1].at_us - 1) if self._next else tick_us
        following = (until_us - self._next_poll_us) // self._step_us
        return max(0, following - self._rules.storage.intervals)

    def _poll(self) -> None:
        for (topic, partition), end in self._ends.items():
            self._storage.add_end_offset(
                topic, partition, offset=end, partition_count=self._counts[topic]
            )

    def _take(self, queue: Queue, one: Observation) -> None:
        topic, partition = self.keys[queue]
        if one.kind is Kind.GONE:
            self._ends.pop((topic, partition), None)
            # Burrow forgets whole topics: one with a queue left keeps what it knew.
            if not any(known == topic for known, _ in self._ends):
                self._storage.delete_topic(topic)
            return
        assert one.offset is not None
        if one.kind is Kind.END:
            self._ends[topic, partition] = one.offset
            return
        self._commits += 1
        self._storage.add_commit(
            *(_GROUP, topic, partition),
            offset=one.offset,
            order=self._commits,
            timestamp_ms=one.at_us // 1000,
            now_s=one.at_us // _SECOND_US,
        )


def _merged(
    observations: Mapping[Queue, Sequence[Observation]],
) -> Iterator[tuple[Queue, Observation]]:
    everything = [(queue, one) for queue, ones in observations.items() for one in in_order(ones)]
    everything.sort(key=lambda pair: pair[1].place)
    return iter(everything)
