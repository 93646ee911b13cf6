"""What a reboot finds in the spool: earlier lives, torn tails, holes, damage, another's rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, StorageError
from engine.runtime import File, system_runtime
from engine.telemetry import EmitterIdentity, PulledMark, Telemetry
from engine.telemetry.frames import Life, Turn, decode_frames
from engine.telemetry.segments import ShippedMark, segment_name, write_shipped_mark
from tests.unit.telemetry.lives import DETAIL, MASTER, Broker, report
from tests.unit.telemetry.mortal_disk import MortalDisk


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_the_next_life_goes_on_with_seq_time_and_a_later_epoch(broker: Broker) -> None:
    first = broker.boot()
    broker.clock.us = 9_000_000
    first.observe(report(1))
    first.write_turn()
    broker.clock.us = 2_000_000  # The clock lost seven seconds over the reboot.
    second = broker.boot()
    second.observe(report(2))
    second.write_turn()
    assert [seq for seq, _, _ in broker.rows()] == [1, 9_000_001], "beyond what any life had"
    assert broker.turns()[1].rows[0][1] > 9_000_000
    assert second.broker_epoch > first.broker_epoch


def test_lives_of_one_moment_without_a_row_share_a_segment(broker: Broker) -> None:
    for _ in range(3):
        broker.boot()
    assert broker.segments() == [segment_name(1)]
    placed, end = decode_frames((broker.spool / segment_name(1)).read_bytes())
    assert sum(isinstance(each.frame, Life) for each in placed) == 3
    assert end == (broker.spool / segment_name(1)).stat().st_size


def test_each_life_names_the_row_that_it_follows(broker: Broker) -> None:
    for now_us in (1, 1_000, 2_000, 3_000):
        broker.clock.us = now_us
        telemetry = broker.boot(segment_bytes=1)
        if now_us == 2_000:
            continue  # It died before its first row.
        for offset in range(2):
            telemetry.observe(report(offset))
            telemetry.write_turn()
    lives = [
        placed.frame
        for name in broker.segments()
        for placed in decode_frames((broker.spool / name).read_bytes())[0]
        if isinstance(placed.frame, Life)
    ]
    assert [(life.before_seq, life.first_seq) for life in lives] == [
        *((0, 1), (1, 2)),
        *((2, 1_000), (1_000, 1_001)),
        (1_001, 2_000),
        *((1_001, 3_000), (3_000, 3_001)),
    ]
    assert [life.unused_in(3, 2_500) for life in lives] == [0, 0, 997, 997, 998, 1_498, 1_498]


def test_a_torn_beginning_of_a_life_is_cut_and_the_next_one_follows_what_is_left(
    broker: Broker,
) -> None:
    for now_us in (1, 1_000):
        broker.clock.us = now_us
        telemetry = broker.boot()
        telemetry.observe(report(1))
        telemetry.write_turn()
    before, torn = (broker.spool / name for name in broker.segments())
    torn.write_bytes(torn.read_bytes()[:9])
    broker.clock.us = 2_000
    broker.boot().write_turn()
    first, second = (
        decode_frames((broker.spool / name).read_bytes())[0] for name in broker.segments()
    )
    assert before.name == segment_name(1)
    assert len(first) == 2
    life, whole = second[0].frame, second[1].frame
    assert isinstance(life, Life)
    assert isinstance(whole, Turn)
    assert (life.before_seq, life.first_seq) == (1, 2_000)
    assert "dropped" in whole.rows[0][2][DETAIL]


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


def test_the_last_stored_report_of_each_queue_is_known_to_the_next_life(broker: Broker) -> None:
    telemetry = broker.boot(segment_bytes=256)
    for offset in range(40):
        telemetry.observe(replace(report(offset), queue_id=offset % 2))
        telemetry.write_turn()
    telemetry.observe(replace(report(99), accepted=False))
    telemetry.observe(replace(report(7), queue_id=1, path="RESET"))
    telemetry.write_turn()
    assert telemetry.reported_offsets() == {}, "only earlier lives are restored"
    for name in broker.segments()[:-1]:
        (broker.spool / name).unlink()
    assert broker.boot().reported_offsets() == {("g", "t", 0): 38, ("g", "t", 1): 7}
    assert broker.boot().reported_offsets() == {("g", "t", 0): 38, ("g", "t", 1): 7}


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


def test_a_torn_tail_at_every_byte_is_cut_reported_and_followed_by_a_gapless_seq(
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
        values = broker.rows()[1][2]
        assert values[:2] == ("SPOOL_LOSS", False)
        assert (
            f"cut {length - len(kept)} bytes of an unfinished write after seq 1" in values[DETAIL]
        )


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
    detail = broker.rows()[-1][2][DETAIL]
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
    assert (seq, table, values[0]) == (7_000_001, "lifecycle", "SPOOL_LOSS")
    assert broker.turns()[-1].rows[0][1] > 7_000_000, "later than what was vouched for"


def test_a_spool_of_another_broker_is_refused_by_name(broker: Broker) -> None:
    broker.boot()
    broker.disk.die()
    other = EmitterIdentity("cluster-1", "broker-b", 0)
    with pytest.raises(ConfigError, match=r"cluster-1/broker-a/0, whose rows are in spool"):
        Telemetry.open(broker.runtime, str(broker.spool), other)


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


class BusyShipper(MortalDisk):
    """Beside us, a shipper drops the oldest segment: after we have looked at the disk `looks`
    times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def _look(self, path: str) -> None:
        segments = sorted(Path(path).parent.glob("*.seg"))
        if self._looks == 0 and len(segments) > 1:
            segments[0].unlink()
        self._looks -= 1

    def open(self, path: str, *, create: bool = False) -> File:
        self._look(path)
        return super().open(path, create=create)

    def read(self, path: str) -> bytes:
        self._look(path)
        return super().read(path)


@pytest.mark.parametrize("segment_count", [2, 4])
@pytest.mark.parametrize("looks", range(14))
def test_a_reboot_while_the_shipper_drops_a_segment_finds_its_place(
    broker: Broker, looks: int, segment_count: int
) -> None:
    life = broker.boot(segment_bytes=1)  # Each row begins a new segment.
    for offset in range(segment_count):
        life.observe(report(offset))
        life.write_turn()
    assert len(broker.segments()) == segment_count
    broker.disk.die()
    disk = BusyShipper(looks)
    broker.runtime = replace(broker.runtime, disk=disk)
    broker.disk = disk
    again = broker.boot()
    assert again.next_seq == segment_count + 1
