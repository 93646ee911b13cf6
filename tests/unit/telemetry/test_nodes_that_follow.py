"""Row C9: of the nodes of a broker one reports on it, each under a name that stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from engine.foundation.observing import FlushDone, HandedTail, LifecycleEvent
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.frames import Life, decode_frames
from engine.telemetry.tables import BY_NAME
from tests.failing_disk import FailingDisk
from tests.unit.telemetry.lives import MASTER, Broker, report

NAMES = BY_NAME["lifecycle"].own_names


def lifecycle(broker: Broker) -> list[tuple[int, str, int | None]]:
    """(seq, kind, seq_from) of what happened."""
    return [
        (seq, values[NAMES.index("kind")], values[NAMES.index("seq_from")])
        for seq, table, values in broker.rows()
        if table == "lifecycle"
    ]


def test_who_follows_ends_what_it_reported_and_reports_on_itself_alone(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.pulled("g", "t", 0, 5, "c")
    telemetry.observe(LifecycleEvent("ROLE_CHANGE", "NONE of term 1"))
    telemetry.follow()
    assert telemetry.emitted_up_to() is None, "it begins no snapshot"
    telemetry.observe(report(2))
    telemetry.observe_all([report(3)])
    telemetry.pulled("g", "t", 0, 9, "c")
    telemetry.observe(FlushDone("COMMIT_LOG", "FLUSH", "TIMER", 1, 1, None, 9))
    telemetry.observe(LifecycleEvent("TOPIC_GONE", None, topic="t"))
    telemetry.observe(LifecycleEvent("DISK_FULL", "no room"))
    telemetry.tick()
    assert lifecycle(broker) == [
        (2, "ROLE_CHANGE", None),
        (3, "SNAPSHOT", 3),  # Every key is below it: all of them are gone.
        (4, "DISK_FULL", None),
    ]
    assert [table for _, table, _ in broker.rows()].count("consume_offsets") == 1
    after = broker.boot()
    assert (after.pulled_marks(), after.reported_offsets()) == ({}, {}), "they would be of before"


def test_who_leads_again_reports_everything_anew(tmp_path: Path) -> None:
    telemetry = Broker(tmp_path).boot()
    before = telemetry.emitted_up_to()
    telemetry.follow()
    telemetry.lead()
    telemetry.lead()
    after = telemetry.emitted_up_to()
    assert before is not None
    assert after is not None
    assert after.losses == before.losses + 1, "a snapshot begins at once"


def test_what_was_reported_holds_while_nobody_knows_who_leads(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    telemetry = broker.boot()
    telemetry.await_role()
    telemetry.observe(report(1))
    telemetry.observe(LifecycleEvent("BOOT", None))
    telemetry.tick()
    assert lifecycle(broker) == [(1, "BOOT", None)]
    telemetry.lead()
    telemetry.observe(report(2))
    telemetry.await_role()
    telemetry.follow()
    telemetry.await_role()
    telemetry.follow()
    assert lifecycle(broker) == [(1, "BOOT", None), (3, "SNAPSHOT", 3)]
    assert [table for _, table, _ in broker.rows()].count("consume_offsets") == 1


def test_marks_that_could_not_be_written_are_not_written_by_who_follows(tmp_path: Path) -> None:
    broker, disk = Broker(tmp_path), FailingDisk()
    runtime = replace(broker.runtime, disk=disk)
    telemetry = Telemetry.open(runtime, str(broker.spool), MASTER)
    telemetry.pulled("g", "t", 0, 5, "c")
    telemetry.handed(HandedTail("t", 0, 4, 400, None, "g", "c"))
    disk.fail_writes = True
    telemetry.follow()
    disk.fail_writes = False
    telemetry.tick()
    assert [(turn.marks, turn.tails) for turn in broker.turns() if turn.marks or turn.tails] == []


def end_of(role: str) -> LifecycleEvent:
    return LifecycleEvent("ROLE_CHANGE", f"{role} of term 2", role=role, term=2)


def test_a_role_taken_while_the_spool_was_full_is_reported_first_when_there_is_room(
    tmp_path: Path,
) -> None:
    broker, full_bytes = Broker(tmp_path), 2_000
    telemetry = broker.boot(segment_bytes=400, bytes_max=full_bytes)
    while telemetry.emitted_up_to() is not None:
        telemetry.observe(report(1))
        telemetry.tick()
    written = telemetry.next_seq
    telemetry.observe(end_of("NONE"))
    telemetry.observe(end_of("SLAVE"))
    telemetry.follow()
    telemetry.tick()
    assert telemetry.next_seq == written, "nothing is written"
    for name in broker.segments()[:-1]:  # The shipper made room.
        (broker.spool / name).unlink()
    for _ in range(3):
        telemetry.tick()
    kinds = [row[:2] for row in lifecycle(broker) if row[0] >= written]
    assert kinds == [
        (written, "ROLE_CHANGE"),
        (written + 1, "SPOOL_LOSS"),
        (written + 2, "SNAPSHOT"),
    ]
    roles = [values[NAMES.index("role")] for seq, _, values in broker.rows() if seq == written]
    assert roles == ["SLAVE"]


def test_an_end_that_could_not_be_written_is_reported_when_the_loss_is(tmp_path: Path) -> None:
    broker, disk = Broker(tmp_path), FailingDisk()
    runtime = replace(broker.runtime, disk=disk)
    telemetry = Telemetry.open(runtime, str(broker.spool), MASTER)
    telemetry.observe(report(1))
    telemetry.write_turn()
    disk.fail_writes = True
    telemetry.observe(report(2))
    telemetry.observe(end_of("SLAVE"))
    telemetry.follow()
    disk.fail_writes = False
    for _ in range(3):
        telemetry.tick()
    assert [kind for _, kind, _ in lifecycle(broker)] == ["ROLE_CHANGE", "SPOOL_LOSS", "SNAPSHOT"]


def opened(broker: Broker, number: int | str, name: str = "broker-a") -> Telemetry:
    broker.disk.die()
    identity = EmitterIdentity("cluster-1", name, number)
    return Telemetry.open(broker.runtime, str(broker.spool), identity)


def test_a_node_has_the_name_of_its_spool_whatever_its_role_is(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for number in (77, 0, 3):
        opened(broker, number)
        (frame, *_), _ = decode_frames((broker.spool / broker.segments()[-1]).read_bytes())
        assert isinstance(frame.frame, Life)
        assert frame.frame.broker_id == 77
    with pytest.raises(ConfigError):
        opened(broker, 77, name="broker-b")
    with pytest.raises(ConfigError):
        opened(broker, "observer")
