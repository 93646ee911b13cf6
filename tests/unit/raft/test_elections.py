"""Row C11: who may lead, and who may not."""

from __future__ import annotations

from engine.raft.events import Role, SaveVote
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


def test_the_only_voter_leads_when_its_vote_is_durable() -> None:
    group = Group("a")
    group.pass_time(2000)
    assert group.hosts["a"].state.role is Role.CANDIDATE
    group.save("a")
    assert group.hosts["a"].state.role is Role.LEADER


def test_one_save_is_enough_for_a_term_and_a_vote_in_it() -> None:
    saved: list[SaveVote] = []
    group = Group(
        on_effect=lambda node, effect: (
            saved.append(effect) if node == "b" and isinstance(effect, SaveVote) else None
        )
    )
    group.elect("a")
    assert [(each.term, each.vote) for each in saved] == [(1, "a")]
