"""Row C11: a group of nodes whose schedule Hypothesis chooses, and shortens when a law breaks."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.raft.members import Members
from tests.amounts import examples
from tests.unit.raft.group import Group

NODE = st.sampled_from("abc")
PART = st.integers(0, 5)


class RaftMachine(RuleBasedStateMachine):
    """Three voters, or two and a learner."""

    group: Group

    @initialize(seed=st.integers(0, 3), learner=st.booleans(), begin=st.sampled_from(["", "a"]))
    def found(self, seed: int, learner: bool, begin: str) -> None:
        names, learners = ("ab", "c") if learner else ("abc", "")
        self.group = Group(names, learners=learners, chance=random.Random(seed))
        if begin:
            self.group.elect(begin)

    @rule(place=st.integers(0, 8), keep=st.booleans())
    def deliver(self, place: int, keep: bool) -> None:
        if self.group.letters:
            self.group.deliver(place % len(self.group.letters), keep=keep)

    @rule(place=st.integers(0, 8))
    def lose(self, place: int) -> None:
        if self.group.letters:
            self.group.letters.pop(place % len(self.group.letters))

    @rule(rounds=st.integers(1, 3))
    def arrive(self, rounds: int) -> None:
        self.group.deliver_all(rounds)

    @rule(ms=st.sampled_from([50, 100, 500, 1000, 2000]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_time(ms)

    @rule(node=NODE, ms=st.sampled_from([1000, 2000]))
    def grow_impatient(self, node: str, ms: int) -> None:
        self.group.now_ms += ms
        for host in self.group.up():
            if host.node == node:
                self.group.pass_time(0)

    @rule(node=NODE, size=st.integers(1, 8))
    def put(self, node: str, size: int) -> None:
        if self.group.hosts[node] in self.group.leaders():
            self.group.put(node, size)

    @rule(node=NODE)
    def read(self, node: str) -> None:
        if self.group.hosts[node] in self.group.up():
            self.group.read(node)

    @rule(node=NODE, work=st.sampled_from(["save", "begin_sync", "end_sync", "sync", "install"]))
    def use_disk(self, node: str, work: str) -> None:
        if self.group.hosts[node] in self.group.up():
            getattr(self.group, work)(node)

    @rule(node=NODE, survivors=PART)
    def cut_power(self, node: str, survivors: int) -> None:
        host = self.group.hosts[node]
        if host.is_up:
            self.group.crash(node, survivors=min(survivors, len(host.operations)))

    @rule(node=NODE)
    def start(self, node: str) -> None:
        if not self.group.hosts[node].is_up:
            self.group.start(node)

    @rule(node=NODE, other=NODE)
    def cut_way(self, node: str, other: str) -> None:
        self.group.cut_way(node, other)

    @rule()
    def heal(self) -> None:
        self.group.heal()

    @rule(node=NODE, sleeps=st.booleans())
    def sleep(self, node: str, sleeps: bool) -> None:
        host = self.group.hosts[node]
        host.is_paused = sleeps and host.is_up

    @rule(node=NODE, to=NODE)
    def transfer(self, node: str, to: str) -> None:
        if self.group.hosts[node] in self.group.leaders():
            self.group.transfer(node, to)

    @rule(node=NODE, one=NODE)
    def change_members(self, node: str, one: str) -> None:
        if self.group.hosts[node] not in self.group.leaders():
            return
        members = self.group.hosts[node].state.members
        voters = tuple(each for each in members.voters if each != one)
        learners = tuple(each for each in members.learners if each != one)
        if one in members.voters:
            self.group.change_members(node, Members(voters, (*learners, one)))
        else:
            self.group.change_members(node, Members((*voters, one), learners))

    @rule(node=NODE)
    def forget_begin(self, node: str) -> None:
        if self.group.hosts[node] in self.group.up():
            self.group.forget_begin(node)

    @precondition(lambda self: len(self.group.laws.leaders) < 8)
    @rule()
    def settle(self) -> None:
        """Whatever happened: whole again, the group agrees, and takes what clients put."""
        self.group.settle()
        leader = self.group.leader().node
        known = len(self.group.acknowledged)
        assert self.group.put(leader)
        self.group.deliver_all()
        assert len(self.group.acknowledged) == known + 1


TestRaftMachine = RaftMachine.TestCase
TestRaftMachine.settings = examples(40, in_full=1000)
