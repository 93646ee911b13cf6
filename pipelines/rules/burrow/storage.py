"""Reproduces Burrow's storage for one cluster: log-end offsets and recent group commits.

Place in the walk: before `evaluator`. These rules shape the window that is judged:

- a commit older than `expire_group_s`, or of a partition without an end offset yet, is dropped;
- a commit has its place by `order`; one that comes out of order has no lag, one whose order is
  there already is dropped, and so is one older than a full ring;
- one that comes less than `min_distance_s` after its predecessor takes its predecessor's place and
  keeps the predecessor's timestamp;
- only newest commits move the group's last commit, and a group whose last commit is older than
  `expire_group_s` is forgotten when somebody asks for it;
- tombstones delete a group or a topic; the reaper deletes groups that the cluster does not list.

Invariant: orders of a ring rise strictly. Absent on purpose: clocks, threads, allow-lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.evaluator import Commit, Partition

INTERVALS: Final = 10
"""Commits that a ring keeps, and polls of the log's end, unless set otherwise."""
EXPIRE_GROUP_S: Final = 604_800


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Burrow's names and defaults."""

    intervals: int = INTERVALS
    """Slots of a ring."""
    min_distance_s: int = 0
    """Commits closer together than this share a slot."""
    expire_group_s: int = EXPIRE_GROUP_S
    """After this long without a newest commit a group is forgotten."""

    def __post_init__(self) -> None:
        if self.intervals < 1:
            raise ConfigError("intervals", self.intervals, "1 or more")
        if self.min_distance_s < 0 or self.expire_group_s < 0:
            worst = min(self.min_distance_s, self.expire_group_s)
            raise ConfigError("min-distance, expire-group", worst, "seconds, 0 or more")


@dataclass(slots=True)
class _Ring:
    commits: list[Commit] = field(default_factory=list)


@dataclass(slots=True)
class _Owner:
    name: str
    client_id: str


@dataclass(slots=True)
class _Group:
    topics: dict[str, list[_Ring | None]] = field(default_factory=dict)
    owners: dict[str, dict[int, _Owner]] = field(default_factory=dict)
    last_commit_ms: int = 0


class Storage:
    """Offsets of one cluster."""

    def __init__(self, settings: StorageSettings | None = None) -> None:
        self.settings = settings or StorageSettings()
        self._ends: dict[str, list[deque[int]]] = {}
        self._groups: dict[str, _Group] = {}

    @property
    def groups(self) -> list[str]:
        """Names of the groups that are known, in the order in which they came."""
        return list(self._groups)

    def add_end_offset(
        self, topic: str, partition: int, *, offset: int, partition_count: int
    ) -> None:
        """Keep a poll of a log's end; a topic may gain partitions, it never loses one."""
        assert 0 <= partition < partition_count
        polls = self._ends.setdefault(topic, [])
        while len(polls) < partition_count:
            polls.append(deque(maxlen=self.settings.intervals))
        polls[partition].append(offset)

    def add_commit(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        offset: int,
        order: int,
        timestamp_ms: int,
        now_s: int,
    ) -> bool:
        """Keep a commit; false: it was dropped."""
        if timestamp_ms < (now_s - self.settings.expire_group_s) * 1000:
            return False
        end_offset = self._end_offset(topic, partition)
        if end_offset is None:
            return False
        known = self._groups.setdefault(group, _Group())
        ring = self._ring(known, topic, partition)
        place = bisect_left(ring.commits, order, key=lambda commit: commit.order)
        is_newest = place == len(ring.commits)
        is_full = len(ring.commits) == self.settings.intervals
        if not is_newest and ring.commits[place].order == order:
            return False
        if is_full and place == 0:
            return False
        lag = max(0, end_offset - offset) if is_newest else None
        if is_newest:
            known.last_commit_ms = timestamp_ms
        self._put(ring, place, Commit(offset, order, timestamp_ms, lag))
        return True

    def set_owner(
        self, group: str, topic: str, partition: int, *, owner: str, client_id: str
    ) -> None:
        """Report who holds a partition; its ring exists from then on, if the topic is known."""
        known = self._groups.setdefault(group, _Group())
        if self._end_offset(topic, partition) is None:
            return
        self._ring(known, topic, partition)
        known.owners.setdefault(topic, {})[partition] = _Owner(owner, client_id)

    def clear_owners(self, group: str) -> None:
        """Forget who holds what; rings stay."""
        if group in self._groups:
            self._groups[group].owners.clear()

    def owner(self, group: str, topic: str, partition: int) -> tuple[str, str] | None:
        """Owner and client id of a partition, if reported."""
        known = self._groups.get(group)
        found = known.owners.get(topic, {}).get(partition) if known else None
        return (found.name, found.client_id) if found else None

    def delete_topic(self, topic: str) -> None:
        """Forget a topic and what groups committed to it; a group may be left with nothing."""
        for known in self._groups.values():
            known.topics.pop(topic, None)
            known.owners.pop(topic, None)
        self._ends.pop(topic, None)

    def delete_group(self, group: str) -> None:
        """Forget a group, as its tombstone says."""
        self._groups.pop(group, None)

    def reap(self, listed: Collection[str]) -> list[str]:
        """Forget groups that the cluster does not list (`groups-reaper-refresh`); their names."""
        absent = [group for group in self._groups if group not in listed]
        for group in absent:
            self.delete_group(group)
        return absent

    def is_known(self, group: str, *, now_s: int) -> bool:
        """Is there such a group? One that has expired is forgotten by the question."""
        known = self._groups.get(group)
        if known is None:
            return False
        if (now_s - self.settings.expire_group_s) * 1000 > known.last_commit_ms:
            self.delete_group(group)
            return False
        return True

    def fetch(self, group: str, *, now_s: int) -> dict[tuple[str, int], Partition] | None:
        """The group's partitions by topic and number; null when it is not known."""
        if not self.is_known(group, now_s=now_s):
            return None
        known = self._groups[group]
        return {
            (topic, number): self._partition(topic, number, ring)
            for topic, rings in sorted(known.topics.items())
            for number, ring in enumerate(rings)
        }

    def _end_offset(self, topic: str, partition: int) -> int | None:
        polls = self._ends.get(topic, [])
        if not 0 <= partition < len(polls) or not polls[partition]:
            return None
        return polls[partition][-1]

    def _ring(self, known: _Group, topic: str, partition: int) -> _Ring:
        rings = known.topics.setdefault(topic, [])
        if partition >= len(rings):
            rings.extend([None] * (len(self._ends[topic]) - len(rings)))
        ring = rings[partition]
        if ring is None:
            ring = rings[partition] = _Ring()
        return ring

    def _put(self, ring: _Ring, place: int, commit: Commit) -> None:
        commits, slots = ring.commits, self.settings.intervals
        is_full = len(commits) == slots
        is_newest = place == len(commits)
        if is_full and place == 1 and not is_newest:
            # It takes the oldest slot as it is; Burrow does not ask here how close it came.
            commits[0] = commit
            return
        if place and self._is_close(commits[place - 1], commit):
            earlier_ms = commits[place - 1].timestamp_ms
            commits[place - 1] = replace(commit, timestamp_ms=earlier_ms)
            return
        commits.insert(place, commit)
        del commits[:-slots]

    def _is_close(self, predecessor: Commit, commit: Commit) -> bool:
        distance_ms = commit.timestamp_ms - predecessor.timestamp_ms
        return distance_ms < self.settings.min_distance_s * 1000

    def _partition(self, topic: str, number: int, ring: _Ring | None) -> Partition:
        polls = self._ends.get(topic, [])
        ends = tuple(polls[number]) if number < len(polls) else ()
        if ring is None:
            return Partition(slots=(), end_offsets=ends, current_lag=0)
        commits = ring.commits
        blanks = [None] * (self.settings.intervals - len(commits))
        lag = max(0, ends[-1] - commits[-1].offset) if ends and commits else 0
        return Partition(slots=(*blanks, *commits), end_offsets=ends, current_lag=lag)
