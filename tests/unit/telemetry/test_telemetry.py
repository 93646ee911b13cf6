"""The observer over a real folder: what one turn writes, how a loss is reported, when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.observing import Fact, FlushDone, LifecycleEvent
from engine.runtime import system_runtime
from engine.telemetry import Telemetry
from engine.telemetry.frames import Turn, encode_frame
from engine.telemetry.segments import segment_name
from tests.failing_disk import FailingDisk
from tests.unit.telemetry.lives import DETAIL, MASTER, Broker, boot_event, report


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_turn_is_one_frame_with_its_rows_numbered_from_one(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.observe(boot_event("up"))
    assert broker.turns() == [], "nothing is written before the turn ends"
    telemetry.write_turn()
    assert len(broker.turns()) == 1
    assert [(seq, table) for seq, table, _ in broker.rows()] == [
        (1, "consume_offsets"),
        (2, "lifecycle"),
    ]
    assert telemetry.next_seq == 3


def test_a_turn_without_facts_writes_nothing(broker: Broker) -> None:
    telemetry = broker.boot()
    before = (broker.spool / segment_name(1)).read_bytes()
    telemetry.write_turn()
    assert (broker.spool / segment_name(1)).read_bytes() == before


def test_event_time_never_goes_back_and_passes_what_was_vouched_for(broker: Broker) -> None:
    telemetry = broker.boot()
    broker.clock.us = 5_000_000
    telemetry.observe(report(1))
    telemetry.write_turn()
    broker.clock.us = 3_000_000  # Somebody set the clock back.
    telemetry.observe(report(2))
    telemetry.write_turn()
    first, second = broker.turns()
    assert [row[1] for row in (*first.rows, *second.rows)] == [5_000_000, 5_000_001]
    assert (first.as_of, second.as_of) == (5_000_000, 5_000_001)


def test_an_idle_spool_reports_the_time_without_growing(broker: Broker) -> None:
    telemetry = broker.boot()
    broker.clock.us = 1_000_000
    telemetry.tick()
    size_bytes = (broker.spool / segment_name(1)).stat().st_size
    for second in range(2, 60):
        broker.clock.us = second * 1_000_000
        telemetry.tick()
    assert [turn.as_of for turn in broker.turns()] == [59_000_000]
    assert (broker.spool / segment_name(1)).stat().st_size == size_bytes
    telemetry.observe(report(1))
    telemetry.write_turn()
    assert [turn.next_seq for turn in broker.turns()] == [2], "the row is written over the sign"


def test_flushes_wait_for_the_second_but_not_those_of_a_shutdown(broker: Broker) -> None:
    telemetry = broker.boot()
    for duration_us in (10, 30):
        telemetry.observe(FlushDone("COMMIT_LOG", "FLUSH", "GROUP", 5, 5, None, duration_us))
    telemetry.observe(FlushDone("COMMIT_LOG", "FLUSH", "SHUTDOWN", 9, 9, None, 7))
    telemetry.write_turn()
    assert [values[2] for _, _, values in broker.rows()] == ["SHUTDOWN"]
    telemetry.tick()
    (_, _, summed) = broker.rows()[-1]
    assert summed[2] == "GROUP"
    assert summed[7:10] == (2, 40, 30)


@pytest.mark.parametrize(
    ("fact", "lost"),
    [
        (boot_event("half a character: \ud800"), 0),
        (LifecycleEvent("ROLE_CHANGE", "impossible", term=2**70), 1),
    ],
)
def test_text_and_numbers_no_table_can_hold_harm_no_other_row(
    broker: Broker, fact: Fact, lost: int
) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.observe(fact)
    telemetry.pulled("g\udfff", "orders", 1, 5, "client@1")
    telemetry.observe(report(2))
    telemetry.write_turn()
    telemetry.tick()
    rows = broker.rows()
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1))
    assert [values[3] for _, table, values in rows if table == "consume_offsets"] == [1, 2]
    losses = [values[DETAIL] for _, _, values in rows if values[0] == "SPOOL_LOSS"]
    assert [f"{lost} facts" in detail for detail in losses] == [True] * (1 if lost else 0)


def test_a_turn_of_very_many_rows_is_written_before_it_ends(broker: Broker) -> None:
    telemetry = broker.boot()
    for offset in range(5000):
        telemetry.observe(report(offset))
    assert 0 < len(broker.rows()) < 5000
    telemetry.write_turn()
    assert [seq for seq, _, _ in broker.rows()] == list(range(1, 5001))


SMALL = {"segment_bytes": 400, "bytes_max": 2_000}


def full_spool(broker: Broker, caplog: pytest.LogCaptureFixture) -> Telemetry:
    """Telemetry that has just stopped, for nobody ships its rows."""
    telemetry = broker.boot(**SMALL)
    while not caplog.records:
        telemetry.observe(report(1))
        telemetry.tick()
    return telemetry


def test_a_spool_over_its_limit_stops_loudly_and_resumes_with_a_count(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = full_spool(broker, caplog)
    written = len(broker.rows())
    for offset in range(25):
        telemetry.observe(report(offset))
        telemetry.write_turn()
        telemetry.tick()
    assert len(broker.rows()) == written
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "once, not each turn"
    assert "telemetry stops, messages go on" in caplog.text
    for name in broker.segments()[:-1]:  # The shipper made room.
        (broker.spool / name).unlink()
    telemetry.tick()
    telemetry.tick()
    seq, _, values = broker.rows()[-1]
    assert values[0] == "SPOOL_LOSS"
    assert values[DETAIL].startswith("25 facts were not written")
    assert seq == telemetry.next_seq - 1


def test_after_lost_reports_nobody_knows_which_was_the_last(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = full_spool(broker, caplog)
    telemetry.observe(report(50))
    telemetry.write_turn()
    again = broker.boot(**SMALL)
    assert again.reported_offsets() == {}, "1 was reported, 50 was not"
    for name in broker.segments()[:-1]:  # The shipper made room.
        (broker.spool / name).unlink()
    again.tick()
    again.observe(report(60))
    again.write_turn()
    assert broker.boot().reported_offsets() == {("g", "t", 0): 60}


async def test_closing_writes_the_last_facts_and_syncs_them(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.start()
    telemetry.observe(FlushDone("INDEX", "FLUSH", "TIMER", 1, 1, None, 5))
    telemetry.observe(boot_event("up"))
    await telemetry.close()
    assert [table for _, table, _ in broker.rows()] == ["lifecycle", "flush_checkpoints"]


async def test_whoever_ticks_when_it_knows_something_gives_no_sign_of_life_at_the_end(
    broker: Broker,
) -> None:
    telemetry = broker.boot()
    broker.clock.us = 1_000_000
    telemetry.tick()
    broker.clock.us = 60_000_000
    await telemetry.close()
    assert [turn.as_of for turn in broker.turns()] == [1_000_000]


async def test_ticks_come_by_themselves_each_second(tmp_path: Path) -> None:
    telemetry = Telemetry.open(system_runtime(), str(tmp_path / "spool"), MASTER)
    telemetry.start()
    telemetry.observe(boot_event("up"))
    (segment,) = (tmp_path / "spool").glob("*.seg")
    await until(lambda: segment.read_bytes().count(b"BOOT") > 0)
    await telemetry.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the file is written by no awaitable
            await asyncio.sleep(0.01)


def test_a_heartbeat_is_never_longer_than_what_is_written_over_it() -> None:
    as_of = 1_790_000_000_000_000
    heartbeat = encode_frame(Turn(2**40, as_of, [], []))
    shortest_row = encode_frame(Turn(2**40, as_of + 1, [(0, as_of + 1, ())], []))
    shortest_mark = encode_frame(Turn(2**40, as_of + 1, [], [("", "", 0, 0, None, 0)]))
    next_heartbeat = encode_frame(Turn(2**40, as_of + 1, [], []))
    assert len(heartbeat) == len(next_heartbeat) < min(len(shortest_row), len(shortest_mark))


def snapshot() -> LifecycleEvent:
    return LifecycleEvent("SNAPSHOT", "2 queues", seq_from=1, time_from_ms=5)


def kinds(broker: Broker) -> list[str]:
    return [values[0] for _, table, values in broker.rows() if table == "lifecycle"]


def test_the_place_of_a_fact_to_come_is_its_seq(broker: Broker) -> None:
    telemetry = broker.boot()
    at = telemetry.emitted_up_to()
    assert at is not None
    telemetry.observe(report(1))
    telemetry.write_turn()
    telemetry.observe(report(2))
    later = telemetry.emitted_up_to()
    assert later == replace(at, seq=at.seq + 2)
    telemetry.observe_all([report(3), report(4)])
    telemetry.write_turn()
    assert telemetry.emitted_up_to() == replace(at, seq=at.seq + 4)
    assert [seq for seq, _, _ in broker.rows()] == [1, 2, 3, 4]


def test_a_snapshot_is_not_said_to_be_complete_when_its_turn_is_lost(broker: Broker) -> None:
    disk = FailingDisk()
    runtime = replace(broker.runtime, disk=disk)
    telemetry = Telemetry.open(runtime, str(broker.spool), MASTER)
    before = telemetry.emitted_up_to()
    assert before is not None
    disk.fail_writes = True
    telemetry.observe(report(1))
    telemetry.observe(boot_event("kept"))
    telemetry.observe(snapshot())
    telemetry.write_turn()
    assert telemetry.emitted_up_to() is None, "nothing is numbered while rows are lost"
    disk.fail_writes = False
    telemetry.tick()
    telemetry.tick()
    assert kinds(broker) == ["BOOT", "SPOOL_LOSS"]
    after = telemetry.emitted_up_to()
    assert after is not None
    assert after.losses > before.losses
    assert after.seq == telemetry.next_seq, "a snapshot that begins now begins behind the loss"


def test_a_snapshot_in_one_frame_with_a_row_that_no_table_can_hold_is_none(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(2**70))
    telemetry.observe(snapshot())
    telemetry.write_turn()
    telemetry.tick()
    assert kinds(broker) == ["SPOOL_LOSS"]


def test_while_a_full_spool_refuses_facts_no_snapshot_can_begin_or_end(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = full_spool(broker, caplog)
    telemetry.observe_all([report(1), report(2)])
    telemetry.observe(snapshot())
    assert telemetry.emitted_up_to() is None
    for name in broker.segments()[:-1]:  # The shipper made room.
        (broker.spool / name).unlink()
    telemetry.tick()
    telemetry.tick()
    assert kinds(broker) == ["SPOOL_LOSS"]
    (loss,) = [values for _, table, values in broker.rows() if table == "lifecycle"]
    assert loss[DETAIL].startswith("3 facts were not written")
    after = telemetry.emitted_up_to()
    assert after is not None
    assert after.seq == telemetry.next_seq
