"""A group that works by a schedule, and what such work comes to in an hour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.base.settings import SECOND_US, Evaluation
from pipelines.marts.judging.swings import TURN_LEAST, TURN_SHARE
from tests.pipelines.marts.played_group import FIRST, Work

WINDOW_S = Evaluation().window_us / SECOND_US


@dataclass(frozen=True)
class Schedule:
    """So many messages a second come; the group works, at most at its speed, and rests in turn. One
    that takes batches rests, and finishes all that is there at once.
    """

    produced: float
    speed: float
    work_s: int
    rest_s: int
    behind: int = 0
    in_batches: bool = False
    commit_s: float = 5
    reports: bool = True

    @property
    def period_s(self) -> int:
        """Work and rest."""
        return self.work_s + self.rest_s

    @property
    def balance(self) -> float:
        """Messages a second by which it falls behind while it has a backlog; below 0: gains."""
        if self.in_batches:
            return -self.behind
        return self.produced - self.speed * self.work_s / self.period_s

    def turns_within(self, seconds: int) -> bool:
        """Does what it gains in so long, while it works, count as a leg of a swing?"""
        moved = max(self.produced, self.speed) * WINDOW_S
        gained = (self.speed - self.produced) * min(self.work_s, seconds)
        return gained > max(TURN_LEAST, moved / TURN_SHARE)

    def work(self, seconds: int, *, dies_at: int | None = None) -> Work:
        """The story of it, a second at a time."""
        steps = np.arange(seconds + 2)
        ends = FIRST + self.behind + np.floor(self.produced * steps).astype(np.int64)
        reached = np.full(seconds + 2, FIRST, np.int64)
        exact = float(FIRST)
        for at in range(1, seconds + 2):
            if dies_at is None or at < dies_at:
                exact = self._finished(exact, at, int(ends[at - 1]))
            reached[at] = int(exact)

        def stored(offset: int) -> float:
            return (offset - FIRST - self.behind) / self.produced

        return Work(
            end=lambda at: int(ends[int(at)]),
            finished=lambda at: int(reached[int(at)]),
            stored=stored,
            commit_s=self.commit_s,
            seconds=seconds,
            reports=self.reports,
            held_max=0 if self.in_batches else 1000,
        )

    def _finished(self, before: float, at: int, end: int) -> float:
        if self.in_batches:
            return float(end) if at % self.period_s == 0 else before
        is_at_work = at % self.period_s < self.work_s
        return max(before, min(before + self.speed, float(end))) if is_at_work else before
