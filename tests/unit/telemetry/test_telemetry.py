"""The observer over a real folder: what one turn writes, what a reboot finds, what a loss is told
as."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import ConfigError, StorageError
from engine.foundation.observing import Fact, FlushDone, LifecycleEvent, OffsetReport
from engine.runtime import Runtime, system_runtime
from engine.telemetry import EmitterIdentity, PulledMark, Telemetry
from engine.telemetry.frames import Life, Turn, decode_frames, encode_frame
from engine.telemetry.segments import segment_name
from engine.telemetry.shipped_mark import ShippedMark, write_shipped_mark
from engine.telemetry.tables import TABLES
from tests.unit.telemetry.mortal_disk import MortalDisk

MASTER = EmitterIdentity("cluster-1", "broker-a", 0)


class SetClock:
    """A clock that shows what it is told."""

    def __init__(self, now_us: int) -> None:
        self.us = now_us

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000

    def steady_us(self) -> int:
        return self.us

    def steady_ms(self) -> int:
        return self.us // 1000


class Broker:
    """A store folder, a clock, and the telemetry of its present life."""

    def __init__(self, store: Path) -> None:
        self.spool = store / "spool"
        self.clock = SetClock(1_000_000)
        self.disk = MortalDisk()
        self.runtime: Runtime = replace(system_runtime(), clock=self.clock, disk=self.disk)

    def boot(self, **settings: Any) -> Telemetry:
        """The next life; the one before, if any, was killed."""
        self.disk.die()
        return Telemetry.open(self.runtime, str(self.spool), MASTER, **settings)

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.spool.glob("*.seg"))

    def turns(self) -> list[Turn]:
        """Every turn in the spool, heartbeats too, oldest first."""
        found = []
        for name in self.segments():
            placed, _ = decode_frames((self.spool / name).read_bytes())
            found += [each.frame for each in placed if isinstance(each.frame, Turn)]
        return found

    def rows(self) -> list[tuple[int, str, tuple[Any, ...]]]:
        """(seq, table, own values) of every row in the spool."""
        return [
            (seq, TABLES[number].name, values)
            for turn in self.turns()
            for seq, (number, _, values) in enumerate(turn.rows, turn.first_seq)
        ]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def report(offset: int) -> OffsetReport:
    return OffsetReport("g", "t", 0, offset, None, "COMMIT_RPC", "TIMER", "c", True, 0, 100)


def boot_event(detail: str) -> LifecycleEvent:
    return LifecycleEvent("BOOT", detail)


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


def test_an_idle_spool_tells_the_time_without_growing(broker: Broker) -> None:
    telemetry = broker.boot()
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


def test_the_next_life_goes_on_with_seq_time_and_a_later_epoch(broker: Broker) -> None:
    first = broker.boot()
    broker.clock.us = 9_000_000
    first.observe(report(1))
    first.write_turn()
    broker.clock.us = 2_000_000  # The clock lost seven seconds over the reboot.
    second = broker.boot()
    second.observe(report(2))
    second.write_turn()
    assert [seq for seq, _, _ in broker.rows()] == [1, 2]
    assert broker.turns()[1].rows[0][1] > 9_000_000
    assert second.broker_epoch > first.broker_epoch


def test_lives_without_a_row_share_a_segment(broker: Broker) -> None:
    for _ in range(3):
        broker.boot().tick()
    assert broker.segments() == [segment_name(1)]
    placed, end = decode_frames((broker.spool / segment_name(1)).read_bytes())
    assert sum(isinstance(each.frame, Life) for each in placed) == 3
    assert end == (broker.spool / segment_name(1)).stat().st_size


def test_pulled_marks_are_written_once_a_turn_and_restored_with_their_life(broker: Broker) -> None:
    first = broker.boot()
    for offset in (10, 20, 32):
        first.pulled("g", "orders", 1, offset, "client@1")
    first.write_turn()
    (turn,) = broker.turns()
    assert turn.marks == [("g", "orders", 1, 32, "client@1", first.broker_epoch)]
    assert first.pulled_marks() == {}, "only earlier lives are restored"
    second = broker.boot()
    assert second.pulled_marks() == {
        ("g", "orders", 1): PulledMark(32, "client@1", first.broker_epoch)
    }
    second.pulled("g", "orders", 2, 7, "client@2")
    second.write_turn()
    third = broker.boot()
    assert third.pulled_marks()[("g", "orders", 1)].broker_epoch == first.broker_epoch
    assert third.pulled_marks()[("g", "orders", 2)].broker_epoch == second.broker_epoch


def test_a_new_segment_carries_every_mark_so_that_old_ones_may_go(broker: Broker) -> None:
    telemetry = broker.boot(segment_bytes=256)
    telemetry.pulled("g", "orders", 1, 5, "client@1")
    for offset in range(30):
        telemetry.observe(report(offset))
        telemetry.write_turn()
    names = broker.segments()
    assert len(names) > 2
    for name in names[:-1]:
        (broker.spool / name).unlink()
    again = broker.boot()
    assert again.pulled_marks()[("g", "orders", 1)].offset == 5
    assert again.next_seq == 31


def test_a_crash_between_creating_a_segment_and_its_first_frame_loses_nothing(
    broker: Broker,
) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.pulled("g", "orders", 1, 5, "client@1")
    telemetry.write_turn()
    (broker.spool / segment_name(2)).touch()
    again = broker.boot()
    assert again.next_seq == 2
    assert ("g", "orders", 1) in again.pulled_marks()
    again.tick()
    assert [table for _, table, _ in broker.rows()] == ["consume_offsets"], "no loss to report"


def test_a_torn_tail_at_every_byte_is_cut_told_and_followed_by_a_gapless_seq(
    broker: Broker,
) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.write_turn()
    path = broker.spool / segment_name(1)
    kept = path.read_bytes()
    telemetry.observe(report(2))
    telemetry.write_turn()
    whole = path.read_bytes()
    for length in range(len(kept) + 1, len(whole)):
        for name in broker.segments():
            (broker.spool / name).unlink()
        path.write_bytes(whole[:length])
        again = broker.boot()
        again.write_turn()
        assert path.read_bytes() == kept
        assert [(seq, table) for seq, table, _ in broker.rows()] == [
            (1, "consume_offsets"),
            (2, "lifecycle"),
        ]
        kind, clean, *_, detail = broker.rows()[1][2]
        assert (kind, clean) == ("SPOOL_LOSS", False)
        assert f"cut {length - len(kept)} bytes of an unfinished write after seq 1" in detail


def test_a_second_recovery_changes_no_byte(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.write_turn()
    path = broker.spool / segment_name(1)
    path.write_bytes(path.read_bytes() + b"torn")
    broker.boot()
    settled = path.read_bytes()
    broker.boot()
    assert path.read_bytes() == settled


def test_rows_behind_a_hole_at_the_end_are_cut_because_nobody_shipped_them(
    broker: Broker,
) -> None:
    telemetry = broker.boot(segment_bytes=1)
    for offset in range(3):  # One segment each; the last two not synced yet.
        telemetry.observe(report(offset))
        telemetry.write_turn()
    second = broker.spool / segment_name(2)
    second.write_bytes(second.read_bytes()[:-3])  # A power cut tore the second, not the third.
    again = broker.boot()
    assert again.next_seq == 2
    again.write_turn()
    assert [table for _, table, _ in broker.rows()] == [
        "consume_offsets",
        "lifecycle",
        "lifecycle",
    ]
    assert [seq for seq, _, _ in broker.rows()] == [1, 2, 3]


def test_damage_in_an_old_segment_is_named_with_the_rows_it_costs(broker: Broker) -> None:
    telemetry = broker.boot(segment_bytes=1)
    for offset in range(5):
        telemetry.observe(report(offset))
        telemetry.write_turn()
    second = broker.spool / segment_name(2)
    damaged = bytearray(second.read_bytes())
    damaged[-1] ^= 1
    second.write_bytes(damaged)
    again = broker.boot()
    assert again.next_seq == 6
    again.write_turn()
    detail = broker.rows()[-1][2][-1]
    assert f"{segment_name(2)}: damaged" in detail
    assert "rows 2 to 2 cannot be read" in detail


def test_damage_in_rows_that_are_shipped_costs_nothing(broker: Broker) -> None:
    telemetry = broker.boot(segment_bytes=1)
    for offset in range(5):
        telemetry.observe(report(offset))
        telemetry.write_turn()
    second = broker.spool / segment_name(2)
    second.write_bytes(second.read_bytes()[:-1])
    mark = ShippedMark(MASTER.emitter, 3, 1, "/lake")
    write_shipped_mark(broker.runtime.disk, str(broker.spool), mark)
    again = broker.boot()
    again.tick()
    assert "lifecycle" not in [table for _, table, _ in broker.rows()]


def test_a_seq_that_was_shipped_is_never_given_again(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.write_turn()
    mark = ShippedMark(MASTER.emitter, 40, 7_000_000, "/lake")
    write_shipped_mark(broker.runtime.disk, str(broker.spool), mark)
    again = broker.boot()
    again.write_turn()
    (seq, table, values) = broker.rows()[-1]
    assert (seq, table, values[0]) == (41, "lifecycle", "SPOOL_LOSS")
    assert broker.turns()[-1].rows[0][1] > 7_000_000, "later than what was vouched for"


def test_a_spool_of_another_broker_is_refused_by_name(broker: Broker) -> None:
    broker.boot()
    broker.disk.die()
    other = EmitterIdentity("cluster-1", "broker-b", 0)
    with pytest.raises(ConfigError, match=r"cluster-1/broker-a/0, whose rows are in spool"):
        Telemetry.open(broker.runtime, str(broker.spool), other)


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
    losses = [values[-1] for _, _, values in rows if values[0] == "SPOOL_LOSS"]
    assert [f"{lost} facts" in detail for detail in losses] == [True] * (1 if lost else 0)


def test_a_turn_of_very_many_rows_is_written_before_it_ends(broker: Broker) -> None:
    telemetry = broker.boot()
    for offset in range(5000):
        telemetry.observe(report(offset))
    assert 0 < len(broker.rows()) < 5000
    telemetry.write_turn()
    assert [seq for seq, _, _ in broker.rows()] == list(range(1, 5001))


def test_a_spool_over_its_limit_stops_loudly_and_resumes_with_a_count(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = broker.boot(segment_bytes=400, bytes_max=2_000)
    while not caplog.records:
        telemetry.observe(report(1))
        telemetry.tick()
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
    assert values[-1].startswith("25 facts were not written")
    assert seq == telemetry.next_seq - 1


def test_closing_writes_the_last_facts_and_syncs_them(broker: Broker) -> None:
    async def life() -> None:
        telemetry = broker.boot()
        telemetry.start()
        telemetry.observe(FlushDone("INDEX", "FLUSH", "TIMER", 1, 1, None, 5))
        telemetry.observe(boot_event("up"))
        await telemetry.close()

    asyncio.run(life())
    assert [table for _, table, _ in broker.rows()] == ["lifecycle", "flush_checkpoints"]


def test_ticks_come_by_themselves_each_second(tmp_path: Path) -> None:
    async def life() -> None:
        telemetry = Telemetry.open(system_runtime(), str(tmp_path / "spool"), MASTER)
        telemetry.start()
        telemetry.observe(boot_event("up"))
        await until(lambda: (tmp_path / "spool" / segment_name(1)).read_bytes().count(b"BOOT") > 0)
        await telemetry.close()

    asyncio.run(life())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the file is written by no awaitable
            await asyncio.sleep(0.01)


def test_a_mark_file_that_is_no_mark_is_not_believed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.write_turn()
    (broker.spool / "shipped").write_bytes(b"{")
    assert broker.boot().next_seq == 2
    assert "not readable" in caplog.text


def test_a_spool_that_another_broker_writes_is_left_alone(broker: Broker) -> None:
    telemetry = broker.boot()
    telemetry.observe(report(1))
    telemetry.write_turn()
    path = broker.spool / segment_name(1)
    path.write_bytes(path.read_bytes() + b"a write under way")
    content = path.read_bytes()
    with pytest.raises(StorageError, match="is written by another process"):
        Telemetry.open(system_runtime(), str(broker.spool), MASTER)
    assert path.read_bytes() == content


def test_a_refused_spool_is_free_again(broker: Broker) -> None:
    broker.boot()
    broker.disk.die()
    for _ in range(2):
        with pytest.raises(ConfigError):
            Telemetry.open(
                broker.runtime, str(broker.spool), EmitterIdentity("cluster-1", "broker-b", 0)
            )
    assert broker.boot().next_seq == 1


def test_files_that_are_no_segments_are_left_alone(broker: Broker) -> None:
    broker.boot()
    (broker.spool / "notes.txt").write_text("mine")
    (broker.spool / "old.seg").write_text("mine too")
    broker.boot()
    assert (broker.spool / "notes.txt").read_text() == "mine"
    assert (broker.spool / "old.seg").read_text() == "mine too"


def test_a_heartbeat_is_never_longer_than_what_is_written_over_it() -> None:
    as_of = 1_790_000_000_000_000
    heartbeat = encode_frame(Turn(2**40, as_of, [], []))
    shortest_row = encode_frame(Turn(2**40, as_of + 1, [(0, as_of + 1, ())], []))
    shortest_mark = encode_frame(Turn(2**40, as_of + 1, [], [("", "", 0, 0, None, 0)]))
    next_heartbeat = encode_frame(Turn(2**40, as_of + 1, [], []))
    assert len(heartbeat) == len(next_heartbeat) < min(len(shortest_row), len(shortest_mark))
