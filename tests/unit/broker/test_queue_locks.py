"""Order locks as leases."""

from __future__ import annotations

from engine.broker.groups.queue_locks import QueueLocks
from engine.protocol.message import MessageQueue

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def test_a_free_queue_is_granted_and_a_held_one_is_not() -> None:
    locks = QueueLocks(lease_ms=60_000)
    assert locks.lock("g", "c1", [Q0, Q1], now_ms=0) == [Q0, Q1]
    assert locks.lock("g", "c2", [Q0, Q1], now_ms=1) == []
    assert locks.holder("g", Q0, now_ms=1) == "c1"


def test_another_group_locks_the_same_queue_for_itself() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.lock("g", "c1", [Q0], now_ms=0)
    assert locks.lock("other", "c2", [Q0], now_ms=0) == [Q0]


def test_a_renewed_lease_lasts_and_one_not_renewed_runs_out() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.lock("g", "c1", [Q0, Q1], now_ms=0)
    locks.lock("g", "c1", [Q0], now_ms=40_000)
    assert locks.lock("g", "c2", [Q0, Q1], now_ms=60_001) == [Q1]
    assert locks.holder("g", Q0, now_ms=60_001) == "c1"
    assert locks.holder("g", Q1, now_ms=60_001) == "c2"


def test_the_lease_holds_at_its_last_millisecond() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.lock("g", "c1", [Q0], now_ms=0)
    assert locks.lock("g", "c2", [Q0], now_ms=60_000) == []
    assert locks.is_held("g", now_ms=60_000)
    assert not locks.is_held("g", now_ms=60_001)


def test_unlocking_frees_own_queues_only() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.lock("g", "c1", [Q0], now_ms=0)
    locks.lock("g", "c2", [Q1], now_ms=0)
    locks.unlock("g", "c2", [Q0, Q1])
    assert locks.holder("g", Q0, now_ms=1) == "c1"
    assert locks.holder("g", Q1, now_ms=1) is None


def test_expired_leases_leave_the_table_one_after_the_other() -> None:
    locks = QueueLocks(lease_ms=10)
    locks.lock("g", "c1", [Q0], now_ms=0)
    locks.lock("g", "c1", [Q1], now_ms=5)
    locks.lock("g", "c1", [Q0], now_ms=8)
    assert len(list(locks.drop_expired(16))) == 1, "the one renewed last is held still"
    assert (locks.holder("g", Q0, now_ms=8), len(locks)) == ("c1", 1)
    assert len(list(locks.drop_expired(19))) == 1
    assert (locks.holder("g", Q0, now_ms=8), len(locks)) == (None, 0)


def test_a_full_table_grants_nothing_new_and_renews_what_it_holds() -> None:
    locks = QueueLocks(count_max=1)
    assert locks.lock("g", "c1", [Q0, Q1], now_ms=0) == [Q0]
    assert locks.lock("other", "c2", [Q0], now_ms=1) == []
    assert locks.lock("g", "c1", [Q0, Q1], now_ms=2) == [Q0]
    locks.unlock("g", "c1", [Q0])
    assert locks.lock("other", "c2", [Q0], now_ms=3) == [Q0]


def test_a_queue_moves_when_its_holder_does_and_not_when_a_lease_is_renewed() -> None:
    locks = QueueLocks(lease_ms=10)
    locks.lock("g", "c1", [Q0, Q1], now_ms=0)
    assert list(locks.take_moved()) == [("g", Q0.topic, 0), ("g", Q1.topic, 1)]
    locks.lock("g", "c1", [Q0], now_ms=5)
    assert list(locks.take_moved()) == []
    locks.lock("g", "c2", [Q1], now_ms=11)
    locks.unlock("g", "c1", [Q0])
    assert list(locks.take_moved()) == [("g", Q1.topic, 1), ("g", Q0.topic, 0)]
    list(locks.drop_expired(22))
    assert list(locks.take_moved()) == [("g", Q1.topic, 1)]


def test_who_held_a_queue_is_remembered_until_it_holds_it_again_or_others_push_it_out() -> None:
    locks = QueueLocks(lease_ms=10, former_max=2)
    for client_id in ("c1", "c2", "c3"):
        locks.lock("g", client_id, [Q0], now_ms=int(client_id[1]) * 20)
    assert [locks.was_held_by("g", Q0, one) for one in ("c1", "c2", "c3")] == [True, True, False]
    assert not locks.was_held_by("g", Q1, "c1")
    assert not locks.was_held_by("other", Q0, "c1")
    locks.unlock("g", "c3", [Q0])
    assert [locks.was_held_by("g", Q0, one) for one in ("c1", "c2", "c3")] == [False, True, True]
    locks.lock("g", "c2", [Q0], now_ms=61)
    assert not locks.was_held_by("g", Q0, "c2")
    list(locks.drop_expired(100))
    assert locks.was_held_by("g", Q0, "c2")


def test_a_new_leader_grants_nothing_while_a_lease_of_an_earlier_one_may_be_trusted() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.begin_term(2, now_ms=1000)
    assert locks.lock("g", "c2", [Q0], now_ms=61_000) == []
    assert locks.lock("g", "c2", [Q0], now_ms=61_001) == [Q0]


def test_a_lease_of_an_earlier_term_is_void() -> None:
    locks = QueueLocks(lease_ms=60_000)
    locks.lock("g", "c1", [Q0, Q1], now_ms=0)
    locks.begin_term(2, now_ms=1000)
    assert locks.holder("g", Q0, now_ms=1000) is None
    assert not locks.is_held("g", now_ms=1000)
    assert locks.lock("g", "c1", [Q0], now_ms=2000) == [], "its holder has no privilege"
    assert len(list(locks.drop_expired(2000))) == 2
    assert locks.lock("g", "c2", [Q0], now_ms=61_001) == [Q0]
