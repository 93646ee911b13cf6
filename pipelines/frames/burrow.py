"""Burrow's rules, exactly, as a second opinion: what that monitor would say of the same offsets.

Place in the walk: beside the stall grammar, for comparison and for backtests; no gold table is made
from it. Rules as measured on Burrow at ced55ba9 (commits in a ring, statuses in code order).

Invariant: its faults are kept. The window is counted in commits, not in time, so a fast committer
is STOP after a pause of seconds and a slow one is never. Absent on purpose: clocks, and a repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Final

INTERVALS: Final = 10
"""Commits a ring keeps."""


class Status(IntEnum):
    """From best to worst; a group's status is capped at ERR."""

    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as a ring keeps it; `lag` is null for one that arrived out of order."""

    offset: int
    order: int
    timestamp_ms: int
    lag: int | None


class Ring:
    """The last commits of one partition, by their order; oldest first."""

    def __init__(self, *, intervals: int = INTERVALS, min_distance_s: int = 0) -> None:
        self._intervals = intervals
        self._min_distance_ms = min_distance_s * 1000
        self.commits: list[Commit] = []

    @property
    def complete(self) -> float:
        """Share of the ring that is filled; a ring without a commit says 1/N, as Burrow's does."""
        return max(1, len(self.commits)) / self._intervals

    def store(self, offset: int, *, order: int, timestamp_ms: int, end_offset: int | None) -> None:
        """Keep a commit, unless there is no end offset yet, or it is known, or older than all."""
        if end_offset is None:
            return
        commits = self.commits
        place = len(commits)
        while place and commits[place - 1].order > order:
            place -= 1
        if place and commits[place - 1].order == order:
            return
        is_newest = place == len(commits)
        if place == 0 and len(commits) >= self._intervals:
            return
        lag = max(0, end_offset - offset) if is_newest else None
        commit = Commit(offset, order, timestamp_ms, lag)
        if place and timestamp_ms - commits[place - 1].timestamp_ms < self._min_distance_ms:
            # Too close: it takes the place of its predecessor, under the predecessor's time.
            earlier = commits[place - 1].timestamp_ms
            commits[place - 1] = replace(commit, timestamp_ms=earlier)
            return
        commits.insert(place, commit)
        del commits[: -self._intervals]


def partition_status(
    commits: Sequence[Commit],
    *,
    end_offsets: Sequence[int],
    current_lag: int,
    now_s: int,
    allowed_lag: int = 0,
) -> Status:
    """The status of one partition; the first rule that holds decides."""
    if current_lag <= allowed_lag or not commits:
        return Status.OK
    if is_stopped(commits, end_offsets=end_offsets, now_s=now_s):
        return Status.STOP
    if rewind_index(commits) is not None:
        return Status.REWIND
    lags = [commit.lag for commit in commits if commit.lag is not None]
    if any(lag <= allowed_lag for lag in lags):
        return Status.OK
    if all(commit.offset == commits[0].offset for commit in commits):
        return Status.STALL
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Status.WARN
    return Status.OK


def is_stopped(commits: Sequence[Commit], *, end_offsets: Sequence[int], now_s: int) -> bool:
    """The last commit is further away than the window is long, and the log's end lies beyond it."""
    first, last = commits[0], commits[-1]
    is_late = now_s * 1000 - last.timestamp_ms > last.timestamp_ms - first.timestamp_ms
    return is_late and not any(end <= last.offset for end in end_offsets)


def rewind_index(commits: Sequence[Commit]) -> int | None:
    """Where the first fall of the offset is, when no later commit regains what was before it."""
    for index, (earlier, later) in enumerate(pairwise(commits), start=1):
        if later.offset < earlier.offset:
            regained = any(commit.offset >= earlier.offset for commit in commits[index:])
            return None if regained else index
    return None


def group_status(partitions: Sequence[Status]) -> Status:
    """The worst partition's status, never worse than ERR."""
    return min(max(partitions, default=Status.OK), Status.ERR)


def group_complete(partitions: Sequence[float]) -> float:
    """Share of partitions whose ring is full; 0 without partitions."""
    if not partitions:
        return 0.0
    return sum(1 for complete in partitions if complete >= 1.0) / len(partitions)
