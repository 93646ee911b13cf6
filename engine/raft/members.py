"""Who belongs to a group: voters, and learners who get the log and count nowhere.

Place in the walk: a configuration is a mark in the log (`log_shape`); it counts from its append and
is taken back with it.

Invariant: from one configuration to the next at most one voter comes or goes, so that a majority of
either holds one of the other. A voter was a learner before. Absent on purpose: addresses; the name
of a node is its identity, which is new whenever its disk is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NodeId = str
"""The identity of a node, `name#life`: one life of the disk of the host with that name. A node that
lost its vote has another one.
"""


def node_id(name: str, life: str) -> NodeId:
    """The identity of a host with this name, whose disk has this life."""
    assert "#" not in name, name
    return f"{name}#{life}"


def name_of(node: NodeId) -> str:
    """The name of its host."""
    return node.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Members:
    """One configuration of a group."""

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def all(self) -> tuple[NodeId, ...]:
        """Everybody who gets the log."""
        return (*self.voters, *self.learners)

    def agree(self, nodes: Iterable[NodeId]) -> bool:
        """Are the voters among these nodes a majority? Nobody is one of no voters."""
        return len(set(nodes).intersection(self.voters)) >= self.majority

    def quorum_of(self, values: Mapping[NodeId, int]) -> int:
        """The greatest value that a majority of voters has reached; who has none has 0."""
        if not self.voters:
            return 0
        reached = sorted((values.get(voter, 0) for voter in self.voters), reverse=True)
        return reached[self.majority - 1]

    def fault_of(self, new: Members) -> str:
        """Why `new` may not follow this configuration, in words; empty: it may."""
        voters, learners = set(new.voters), set(new.learners)
        if len(voters) < len(new.voters) or len(learners) < len(new.learners) or voters & learners:
            return "a node is named twice"
        if not voters:
            return "nobody would vote"
        if len(voters ^ set(self.voters)) > 1:
            return "more than one voter comes or goes"
        if not voters - set(self.voters) <= set(self.learners):
            return "a new voter must be a learner first"
        return ""
