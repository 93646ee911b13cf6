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
from dataclasses import dataclass, field
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


@dataclass
class ModelLog:
    """A log as a list, which may have lost its begin."""

    units: list[Unit] = field(default_factory=list)
    begin: int = 0
    offset: int = 0
    members: Members = field(default_factory=Members)
    """Of the begin."""
    digest: int = 0
    """Of what is gone."""

    @property
    def end(self) -> int:
        return self.begin + len(self.units)

    @property
    def end_offset(self) -> int:
        return self.offset + sum(isinstance(unit, Record) for unit in self.units)

    def copy(self) -> ModelLog:
        return ModelLog(list(self.units), self.begin, self.offset, self.members, self.digest)

    def between(self, begin: int, end: int) -> list[Unit]:
        assert self.begin <= begin <= end <= self.end
        return self.units[begin - self.begin : end - self.begin]

    def current_members(self) -> Members:
        found = [u.members for u in self.units if isinstance(u, Mark) and u.members is not None]
        return found[-1] if found else self.members

    def digests(self) -> list[int]:
        """Of each prefix: of what is gone, and of one unit more each."""
        found = [self.digest]
        for unit in self.units:
            found.append(hash((found[-1], unit)))
        return found

    def forget_before(self, begin: int) -> None:
        gone = self.between(self.begin, begin)
        for unit in gone:
            if isinstance(unit, Mark) and unit.members is not None:
                self.members = unit.members
            self.digest = hash((self.digest, unit))
        self.offset += sum(isinstance(unit, Record) for unit in gone)
        self.units = self.units[len(gone) :]
        self.begin = begin


class Laws:
    """The group as somebody sees it who sees everything."""

    def __init__(self, members: Members) -> None:
        self.founders = members
        self.leaders: dict[int, NodeId] = {}
        self.votes: dict[tuple[int, NodeId], NodeId] = {}
        self.prefixes: dict[tuple[int, int], int] = {}
        """(term, index) of the end of an entry → digest of all before it."""
        self.committed: list[Unit] = []
        self.committed_digests = [0]
        self.commits: list[tuple[int, int]] = []

    def leads(self, node: NodeId, term: int, log: ModelLog) -> None:
        assert self.leaders.setdefault(term, node) == node, (
            f"{node} and {self.leaders[term]} lead in term {term}"
        )
        begin = log.begin
        assert log.end >= len(self.committed), f"leader {node} lacks what is committed"
        mine = log.digests()[len(self.committed) - begin]
        assert mine == self.committed_digests[-1], f"leader {node} has not what is committed"

    def votes_for(self, voter: NodeId, term: int, candidate: NodeId) -> None:
        first = self.votes.setdefault((term, voter), candidate)
        assert first == candidate, f"{voter} votes for {first} and {candidate} in term {term}"

    def appended(self, node: NodeId, log: ModelLog, count: int) -> None:
        """The last `count` units are new there."""
        digests = log.digests()
        for back in range(count):
            index = log.end - back
            term = log.units[index - log.begin - 1].term
            digest = digests[index - log.begin]
            same = self.prefixes.setdefault((term, index), digest)
            assert same == digest, f"{node}: two logs differ before ({term}, {index})"

    def commits_to(
        self, node: NodeId, index: int, log: ModelLog, durable: Mapping[NodeId, ModelLog]
    ) -> None:
        """A node takes what stands before `index` for committed."""
        known = len(self.committed)
        at = min(index, known)
        mine = log.digests()
        assert mine[at - log.begin] == self.committed_digests[at], (
            f"{node} commits other than what is committed before {at}"
        )
        if index <= known:
            return
        for unit in log.between(known, index):
            self.committed.append(unit)
            self.committed_digests.append(hash((self.committed_digests[-1], unit)))
        voters = self.members_of_committed(log).voters
        have = [voter for voter in voters if self._has(durable.get(voter), index)]
        assert len(have) * 2 > len(voters), (
            f"{node} commits {index}, which is durable on {have} of {voters} only"
        )

    def members_of_committed(self, log: ModelLog) -> Members:
        """The configuration by which the newest commit counts: that of the log which commits."""
        del log
        found = [u.members for u in self.committed if isinstance(u, Mark) and u.members is not None]
        return found[-1] if found else self.founders

    def _has(self, log: ModelLog | None, index: int) -> bool:
        if log is None or log.end < index:
            return False
        if index < log.begin:
            return True
        return log.digests()[index - log.begin] == self.committed_digests[index]

    def shows(self, node: NodeId, index: int, durable: ModelLog) -> None:
        assert self._has(durable, index), f"{node} shows {index}, which is not durable there"

    def cuts(self, node: NodeId, index: int, visible: int) -> None:
        assert index >= visible, f"{node} cuts {index} below {visible}, which it has shown"

    def leases(self, holders: Iterable[tuple[NodeId, int]], leading: Sequence[int]) -> None:
        """(node, term) of each that holds a lease now, and the terms in which anybody leads."""
        for node, term in holders:
            assert max(leading) <= term, f"{node} has a lease of {term}, {max(leading)} leads"
