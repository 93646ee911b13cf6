"""Row C11: who may lead, and who may not."""

from __future__ import annotations

from engine.raft.events import Role
from tests.unit.raft.group import Group


def test_a_group_elects_a_leader_and_acknowledges_what_a_majority_has() -> None:
    group = Group()
    group.elect("a")
    assert group.put("a", 3)
    assert group.acknowledged == []
    group.deliver_all()
    assert group.acknowledged == [1]
    group.settle()
    assert group.leader().node == "a"


def test_nobody_leads_without_a_majority() -> None:
    group = Group("abcde")
    for node in "cde":
        group.crash(node)
    for _ in range(100):
        group.pass_time(100)
        group.deliver_all()
    assert all(host.state.role is not Role.LEADER for host in group.up())
    assert all(host.state.term == 0 for host in group.up())
