"""What holds of a group of Raft nodes, checked after every event by slow means of its own.

A log is a plain list here: a record has its term with it, a mark is itself, and an index is a place
in the list. Nothing of `engine.raft.log_shape` is used, so that an error in its arithmetic shows.

    one leader a term
    a node votes for one candidate a term, whatever it forgot in between
    logs that have an entry of the same term at the same place are the same before it
    what is committed is durable on a majority of voters, and never changes
    a leader has everything that is committed
    what a node shows is committed, and durable there
    a lease means that nobody leads in a greater term
    a read index is not below what was committed when it was asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.raft.log_shape import Mark
from engine.raft.members import Members, NodeId


class Record(NamedTuple):
    """One record of a commit log."""

    term: int
    payload: int
    part: int
    """An entry of several records (a batch) counts them."""


Unit = Record | Mark


class ModelLog:
    """A log as a list, which may have lost its begin."""

    def __init__(self, members: Members, begin: int = 0, offset: int = 0, digest: int = 0) -> None:
        """`members`: of the begin; `digest`: of what is gone."""
        self.members = members
        self.begin = begin
        self.offset = offset
        self.units: list[Unit] = []
        self.digests = [digest]
        """Of each prefix: of what is gone, and of one unit more each."""

    @property
    def end(self) -> int:
        return self.begin + len(self.units)

    @property
    def end_offset(self) -> int:
        return self.offset + records_in(self.units)

    def copy(self) -> ModelLog:
        copy = ModelLog(self.members, self.begin, self.offset)
        copy.units, copy.digests = list(self.units), list(self.digests)
        return copy

    def append(self, units: Iterable[Unit]) -> None:
        for unit in units:
            self.units.append(unit)
            self.digests.append(hash((self.digests[-1], unit)))

    def cut(self, index: int) -> None:
        del self.units[index - self.begin :], self.digests[index - self.begin + 1 :]

    def forget_before(self, begin: int) -> None:
        gone = self.between(self.begin, begin)
        self.members = last_members(gone) or self.members
        self.offset += records_in(gone)
        del self.units[: len(gone)], self.digests[: len(gone)]
        self.begin = begin

    def between(self, begin: int, end: int) -> list[Unit]:
        assert self.begin <= begin <= end <= self.end
        return self.units[begin - self.begin : end - self.begin]

    def current_members(self) -> Members:
        return last_members(self.units) or self.members

    def digest_at(self, index: int) -> int:
        """Of all before it."""
        return self.digests[index - self.begin]


def records_in(units: Iterable[Unit]) -> int:
    return sum(isinstance(unit, Record) for unit in units)


def last_members(units: Iterable[Unit]) -> Members | None:
    found = [unit.members for unit in units if isinstance(unit, Mark) and unit.members is not None]
    return found[-1] if found else None


class Laws:
    """The group as somebody sees it who sees everything."""

    def __init__(self) -> None:
        self.leaders: dict[int, NodeId] = {}
        self.votes: dict[tuple[int, NodeId], NodeId] = {}
        self.prefixes: dict[tuple[int, int], int] = {}
        """(term, index) of the end of an entry → digest of all before it."""
        self.committed: list[Unit] = []
        self.committed_digests = [0]

    def leads(self, node: NodeId, term: int, log: ModelLog) -> None:
        assert self.leaders.setdefault(term, node) == node, (
            f"{node} and {self.leaders[term]} lead in term {term}"
        )
        known = len(self.committed)
        assert log.end >= known, f"leader {node} lacks what is committed"
        assert log.digest_at(known) == self.committed_digests[-1], (
            f"leader {node} has other than what is committed"
        )

    def votes_for(self, voter: NodeId, term: int, candidate: NodeId) -> None:
        first = self.votes.setdefault((term, voter), candidate)
        assert first == candidate, f"{voter} votes for {first} and {candidate} in term {term}"

    def appended(self, node: NodeId, log: ModelLog, count: int) -> None:
        """The last `count` units are new there."""
        for index in range(log.end - count + 1, log.end + 1):
            term = log.units[index - log.begin - 1].term
            digest = log.digest_at(index)
            same = self.prefixes.setdefault((term, index), digest)
            assert same == digest, f"{node}: two logs differ before ({term}, {index})"

    def commits_to(
        self, node: NodeId, index: int, log: ModelLog, durable: Mapping[NodeId, ModelLog]
    ) -> None:
        """A node takes what stands before `index` for committed; of what nobody took for it before,
        it is the leader, and its newest configuration counts.
        """
        known = len(self.committed)
        at = min(index, known)
        assert log.digest_at(at) == self.committed_digests[at], (
            f"{node} commits other than what is committed before {at}"
        )
        if index <= known:
            return
        for unit in log.between(known, index):
            self.committed.append(unit)
            self.committed_digests.append(hash((self.committed_digests[-1], unit)))
        voters = log.current_members().voters
        have = [voter for voter in voters if self._has(durable.get(voter), index)]
        assert len(have) * 2 > len(voters), (
            f"{node} commits {index}, which is durable on {have} of {voters} only"
        )

    def _has(self, log: ModelLog | None, index: int) -> bool:
        if log is None or log.end < index:
            return False
        if index < log.begin:
            return True
        return log.digest_at(index) == self.committed_digests[index]

    def shows(self, node: NodeId, index: int, durable: ModelLog) -> None:
        assert self._has(durable, index), f"{node} shows {index}, which is not durable there"

    def cuts(self, node: NodeId, index: int, visible: int) -> None:
        assert index >= visible, f"{node} cuts {index} below {visible}, which it has shown"

    def leases(self, holders: Iterable[tuple[NodeId, int]], leading: Sequence[int]) -> None:
        """(node, term) of each that holds a lease now, and the terms in which anybody leads."""
        for node, term in holders:
            assert max(leading) <= term, f"{node} has a lease of {term}, {max(leading)} leads"
