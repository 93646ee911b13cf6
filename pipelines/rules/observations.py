"""Defines the types shared by rule sets: queue observations and verdict intervals.

Place in the walk: bronze rows become observations (`from_bronze`), a rule set judges them on a grid
of ticks, and a comparison lays the verdicts of several rule sets side by side.

An observation is a row of four columns: when, in which order, what kind, and an offset. Between two
observations nothing changes. Verdicts are intervals without gaps from the first tick on.

Invariant: a verdict at a tick rests on observations up to that tick alone. Absent on purpose:
clocks. What a rule set cannot know is neither good nor bad: `is_bad` is null, and `state` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from engine.foundation.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A group on a queue."""

    cluster: str
    group: str
    topic: str
    broker: str
    queue_id: int


class Kind(IntEnum):
    """What was observed, in the order that counts among observations of one instant."""

    END = 1
    """The log's end: `offset` is the next to be written."""
    COMMIT = 2
    """A report of the group: `offset` is the next to consume; also one that changes nothing."""
    GONE = 3
    """The queue is no more; what follows is another life of it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One row."""

    at_us: int
    """The broker's clock, µs since 1970 UTC."""
    order: int
    """Order of what its emitter reported: decides among observations of one instant and kind."""
    kind: Kind
    offset: int | None
    """Null for GONE."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it comes in time."""
        return (self.at_us, self.kind, self.order)


def in_order(observations: Iterable[Observation]) -> list[Observation]:
    """By time, then kind, then the emitter's order."""
    return sorted(observations, key=lambda one: one.place)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Instants at which queues are judged: `begin_us`, and each `every_us` up to `end_us`."""

    begin_us: int
    end_us: int
    every_us: int

    def __post_init__(self) -> None:
        if self.every_us < 1:
            raise ConfigError("every_us", self.every_us, "1 or more")
        if self.end_us < self.begin_us:
            raise ConfigError("end_us", self.end_us, f"no earlier than begin_us {self.begin_us}")

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.begin_us, self.end_us + 1, self.every_us))


@dataclass(frozen=True, slots=True)
class State:
    """What a rule set says of a queue at one tick."""

    name: str
    """The rule set's own word."""
    is_bad: bool | None
    """Would somebody be notified? Null: not known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule set says of a queue from one tick on."""

    begin_us: int
    end_us: int | None
    """The tick at which it says something else; null: it was still so at the last tick."""
    state: str
    is_bad: bool | None


class RuleSet(Protocol):
    """Rules that judge one queue by itself."""

    @property
    def name(self) -> str:
        """Its name in a comparison."""
        ...

    def judge(self, observations: Sequence[Observation], ticks: Ticks) -> list[Verdict]:
        """Verdicts on a queue, for observations in any order."""
        ...


class Intervals:
    """Verdicts as they are said, tick after tick: equal neighbours are one."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, State]] = []

    def say(self, tick_us: int, state: State) -> None:
        """At this tick, later than those before, the state is this."""
        if not self._begun or self._begun[-1][1] != state:
            self._begun.append((tick_us, state))

    def verdicts(self) -> list[Verdict]:
        """What was said, without gaps; the last one is open."""
        ends: list[int | None] = [*(tick_us for tick_us, _ in self._begun[1:]), None]
        return [
            Verdict(tick_us, end_us, state.name, state.is_bad)
            for (tick_us, state), end_us in zip(self._begun, ends, strict=False)
        ]


def as_intervals(states: Iterable[tuple[int, State]]) -> list[Verdict]:
    """Verdicts from what was said at each tick, in order."""
    said = Intervals()
    for tick_us, state in states:
        said.say(tick_us, state)
    return said.verdicts()
