"""Evaluates partitions and groups with Burrow's rules, in the order of Burrow's code.

Place in the walk: after `storage`, before `notifier`. The first rule that holds decides.

Invariant: its faults are kept. The window is counted in commits, not in time, so a consumer that
commits fast is STOP after a pause of seconds, and one that commits rarely is not for hours.
Absent on purpose: clocks (`now_s` arrives), and any repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import Final

_SINGLE: Final = Struct("<f")


class Status(IntEnum):
    """As Burrow numbers them; a group's is never worse than ERR."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as storage keeps it."""

    offset: int
    """The NEXT message to consume."""
    order: int
    """Grows with each commit of the partition: its place in the log of commits."""
    timestamp_ms: int
    lag: int | None
    """Messages behind when it came; null for one that came out of order."""


@dataclass(frozen=True, slots=True)
class Partition:
    """What storage knows of one partition for one group."""

    slots: tuple[Commit | None, ...]
    """The ring, oldest first; null slots, which come first, are not filled yet. No slots at all: no
    commit ever came."""
    end_offsets: tuple[int, ...]
    """The log's end at the last polls, oldest first."""
    current_lag: int
    """Newest end offset less last commit, at least 0."""

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The filled slots."""
        return tuple(slot for slot in self.slots if slot is not None)


@dataclass(frozen=True, slots=True)
class Findings:
    """What each rule by itself says of a window with at least one commit."""

    stopped: bool
    recent_lag_zero: bool
    """Did a recent end of the log lie at or below the last commit?"""
    rewind_index: int | None
    """The place at which the offset falls for the first time; null: nowhere."""
    rewind_recovered: bool
    """Does a later commit regain what was there before that fall?"""
    lag_always_above_allowed: bool
    stalled: bool
    lag_not_decreasing: bool


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The verdict on one partition."""

    status: Status
    complete: float
    """Share of the ring that is filled, in single precision as Burrow computes it."""
    current_lag: int
    start: Commit | None
    end: Commit | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The verdict on a group; keys are (topic, partition)."""

    status: Status
    complete: float
    """Share of partitions whose ring is full."""
    partitions: Mapping[tuple[str, int], PartitionStatus]
    total_lag: int
    max_lag: tuple[str, int] | None
    """Key of the partition with the largest current lag, the first of equals; null: no partition.
    """

    def shown(self, *, show_all: bool) -> dict[tuple[str, int], PartitionStatus]:
        """What an answer lists: all partitions, or only those that are not OK."""
        return {
            key: partition
            for key, partition in self.partitions.items()
            if show_all or partition.status > Status.OK
        }


NOT_FOUND: Final = GroupStatus(
    status=Status.NOTFOUND, complete=1.0, partitions={}, total_lag=0, max_lag=None
)
"""The answer for a cluster or group that storage does not know: complete, and empty."""


def single(value: float) -> float:
    """The nearest single-precision number: Burrow's shares are such, and compared as such."""
    nearest: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    return nearest


def evaluate_group(
    partitions: Mapping[tuple[str, int], Partition] | None,
    *,
    now_s: int,
    allowed_lag: int = 0,
    minimum_complete: float = 0.0,
) -> GroupStatus:
    """Judge a group as storage hands it over; null is a group that storage does not know.

    Burrow goes through topics in no order; here it is the order of `partitions`, which decides
    between partitions of equal lag.
    """
    if partitions is None:
        return NOT_FOUND
    judged = {
        key: evaluate_partition(
            partition, now_s=now_s, allowed_lag=allowed_lag, minimum_complete=minimum_complete
        )
        for key, partition in partitions.items()
    }
    worst = max((one.status for one in judged.values()), default=Status.OK)
    full = sum(1 for one in judged.values() if one.complete == 1.0)
    return GroupStatus(
        status=min(worst, Status.ERR),
        complete=single(full / len(judged)) if judged else 0.0,
        partitions=judged,
        total_lag=sum(one.current_lag for one in judged.values()),
        max_lag=max(judged, key=lambda key: judged[key].current_lag) if judged else None,
    )


def evaluate_partition(
    partition: Partition, *, now_s: int, allowed_lag: int = 0, minimum_complete: float = 0.0
) -> PartitionStatus:
    """Judge one partition; a ring less complete than `minimum_complete` is OK unevaluated."""
    commits = partition.commits
    slots = len(partition.slots)
    # A ring that has slots and no commit counts one of them as filled, as Burrow's does.
    complete = single(max(1, len(commits)) / slots) if slots else 0.0
    status = Status.OK
    if commits and complete >= single(minimum_complete):
        status = _status(partition, now_s=now_s, allowed_lag=allowed_lag)
    return PartitionStatus(
        status=status,
        complete=complete,
        current_lag=partition.current_lag,
        start=commits[0] if commits else None,
        end=commits[-1] if commits else None,
    )


def _status(partition: Partition, *, now_s: int, allowed_lag: int) -> Status:
    if partition.current_lag <= allowed_lag:
        return Status.OK
    found = findings(partition.commits, partition.end_offsets, now_s=now_s, allowed_lag=allowed_lag)
    # STOP and REWIND come before the rule of a lag that was allowed once: a window may be old.
    if found.stopped and not found.recent_lag_zero:
        return Status.STOP
    if found.rewind_index is not None and not found.rewind_recovered:
        return Status.REWIND
    if not found.lag_always_above_allowed:
        return Status.OK
    if found.stalled:
        return Status.STALL
    return Status.WARN if found.lag_not_decreasing else Status.OK


def findings(
    commits: Sequence[Commit], end_offsets: Sequence[int], *, now_s: int, allowed_lag: int = 0
) -> Findings:
    """What each rule says of these commits, at least one; `end_offsets` in any order."""
    first, last = commits[0], commits[-1]
    lags = [commit.lag for commit in commits if commit.lag is not None]
    rewind = _first_fall(commits)
    return Findings(
        # Strictly: a pause as long as the window is not a stop yet.
        stopped=now_s * 1000 - last.timestamp_ms > last.timestamp_ms - first.timestamp_ms,
        recent_lag_zero=any(end <= last.offset for end in end_offsets),
        rewind_index=rewind,
        rewind_recovered=rewind is not None
        and any(commit.offset >= commits[rewind - 1].offset for commit in commits[rewind:]),
        lag_always_above_allowed=all(lag > allowed_lag for lag in lags),
        stalled=all(commit.offset == first.offset for commit in commits),
        lag_not_decreasing=all(later >= earlier for earlier, later in pairwise(lags)),
    )


def _first_fall(commits: Sequence[Commit]) -> int | None:
    for index, (earlier, later) in enumerate(pairwise(commits), start=1):
        if later.offset < earlier.offset:
            return index
    return None
