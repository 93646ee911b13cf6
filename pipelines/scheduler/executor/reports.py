"""In-memory queue of run results, each retried until an admin accepts it.

`run_files` stores them.

A call carries up to BATCH_MAX results. Nobody reached: all wait, 1 s at first and up to 30 s, as in
XXL-Job. Refused: one of them may be what the admin cannot take, so that fewer go together next
time, down to one, and those that were refused go to the end: none holds up the others.

Invariant: a result is held until `delivered`. Delivering twice does no harm: an admin leaves a row
that has its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from pipelines.scheduler.wire.messages import RunResult

BATCH_MAX: Final = 100
RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 30_000
HELD_MAX: Final = 10_000
"""With this many that no admin has taken, no run is accepted: its result would be one more."""


class Reports:
    """The line of results. At most one batch is under way."""

    def __init__(self) -> None:
        self._line: deque[RunResult] = deque()
        self._under_way = 0
        self._batch = BATCH_MAX
        self._wait_ms = 0
        self._not_before_ms = 0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_full(self) -> bool:
        """Are there so many that no more may come?"""
        return len(self._line) >= HELD_MAX

    def add(self, result: RunResult) -> None:
        """One more."""
        self._line.append(result)

    def due_in_ms(self, *, now_ms: int) -> int | None:
        """How long `take` has nothing yet; None: until there is a result."""
        return max(0, self._not_before_ms - now_ms) if self._line else None

    def take(self, *, now_ms: int) -> list[RunResult]:
        """What goes to an admin now; say `delivered`, `refused` or `unreachable` of it."""
        assert not self._under_way, "one batch at a time"
        if now_ms < self._not_before_ms:
            return []
        batch = [self._line[at] for at in range(min(self._batch, len(self._line)))]
        self._under_way = len(batch)
        return batch

    def delivered(self) -> list[RunResult]:
        """An admin has the batch: it is not held any more."""
        done = self._batch_out()
        self._batch = min(BATCH_MAX, self._batch * 2)
        self._wait_ms = self._not_before_ms = 0
        return done

    def refused(self, *, now_ms: int) -> Sequence[RunResult]:
        """An admin does not want the batch."""
        back = self._batch_out()
        self._line.extend(back)
        if len(back) == 1:
            self._later(now_ms)
        self._batch = max(1, min(self._batch, len(back)) // 2)
        return back

    def unreachable(self, *, now_ms: int) -> None:
        """No admin answered."""
        self._under_way = 0
        self._later(now_ms)

    def _batch_out(self) -> list[RunResult]:
        batch = [self._line.popleft() for _ in range(self._under_way)]
        self._under_way = 0
        return batch

    def _later(self, now_ms: int) -> None:
        self._wait_ms = min(RETRY_MS_MAX, max(RETRY_MS_MIN, self._wait_ms * 2))
        self._not_before_ms = now_ms + self._wait_ms
