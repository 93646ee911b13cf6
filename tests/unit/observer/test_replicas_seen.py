"""Row C9: what a watched master says of its slaves is reported as a broker's own report is."""

from __future__ import annotations

from typing import Any

from engine.foundation.observing import FlushDone, LifecycleEvent
from engine.observer.replicas_seen import (
    AGAIN_MS,
    AT_REST_MS,
    ReplicaFigures,
    ReplicasSeen,
    replica_figures,
)
from engine.protocol.bodies_admin import HaConnectionInfo, HaRuntimeInfo

NEAR, FAR = "192.0.2.3:40000", "192.0.2.4:40000"


def status(written: int = 1000, *, master: bool = True, **slaves: int) -> HaRuntimeInfo:
    """As a RocketMQ 5.5 says it."""
    connections = [
        HaConnectionInfo(addr={"near": NEAR, "far": FAR}.get(name, name), slave_ack_offset=end)
        for name, end in slaves.items()
    ]
    return HaRuntimeInfo(
        master_commit_log_max_offset=written, master=master, ha_connection_info=connections
    )


def said(facts: list[Any]) -> list[tuple[Any, ...]]:
    """(what, slave, its master's end, its own) of each fact."""
    found: list[tuple[Any, ...]] = []
    for fact in facts:
        if isinstance(fact, LifecycleEvent):
            found.append((fact.kind, fact.address))
        else:
            assert isinstance(fact, FlushDone)
            assert (fact.component, fact.ended) == ("REPLICA", 0)
            found.append((fact.cause, fact.replica, fact.written, fact.flushed))
    return found


def test_only_what_can_be_believed_of_a_master_is_taken() -> None:
    found = replica_figures(status(near=900, far=-1), "SYNC_MASTER")
    assert found == ReplicaFigures("SYNC_MASTER", 1000, {NEAR: 900, FAR: None})
    assert replica_figures(status(near=900, master=False), "SYNC_MASTER") is None
    assert replica_figures(status(near=900), "SLAVE") is None
    assert replica_figures(status(near=900), None) is None
    assert replica_figures(status(-5), "SYNC_MASTER") is None
    many = replica_figures(status(**{f"s{number}": 1 for number in range(99)}), "ASYNC_MASTER")
    assert many is not None
    assert len(many.slaves) == 64


def test_slaves_come_and_go_and_are_reported_when_they_move() -> None:
    seen = ReplicasSeen()

    def look(at_ms: int, written: int, **slaves: int) -> list[tuple[Any, ...]]:
        figures = replica_figures(status(written, **slaves), "SYNC_MASTER")
        assert figures is not None
        return said(list(seen.of(figures, at_ms)))

    assert look(0, 1000) == [("SYNC_MASTER", None, 1000, None)], "it waits for one, and has none"
    assert look(1, 1000, near=-1) == [
        ("REPLICA_JOINED", NEAR),
        ("SYNC_MASTER", NEAR, 1000, None),
    ]
    assert look(2, 1000, near=800) == [("SYNC_MASTER", NEAR, 1000, 800)]
    assert look(3, 1000, near=800) == []
    assert look(2 + AGAIN_MS, 1000, near=800) == [("SYNC_MASTER", NEAR, 1000, 800)], "it hangs"
    assert look(20_000, 1000, near=1000) == [("SYNC_MASTER", NEAR, 1000, 1000)]
    assert look(20_000 + AGAIN_MS, 1000, near=1000) == [], "it has everything"
    assert look(20_000 + AT_REST_MS, 1000, near=1000) != []
    assert look(900_000, 1000) == [("REPLICA_LOST", NEAR), ("SYNC_MASTER", None, 1000, None)]


def test_an_asynchronous_master_without_a_slave_says_nothing() -> None:
    figures = replica_figures(status(), "ASYNC_MASTER")
    assert figures is not None
    assert list(ReplicasSeen().of(figures, 0)) == []
