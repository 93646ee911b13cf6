"""Which files go, and when writing stops: the decision, then its effect on real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.foundation.units import DAY_MS, HOUR_MS
from engine.protocol.message_record import decode_records
from engine.store import GetStatus, StoreConfig
from engine.store.upkeep.retention import AgedFile, decide
from tests.failing_disk import FailingDisk
from tests.store_support import (
    BIG,
    HandClock,
    Listener,
    draft,
    messages_of,
    open_store,
    runtime_on,
    small_config,
    turn,
)

FOUR_O_CLOCK_MS = 20_000 * DAY_MS + 4 * HOUR_MS
NOON_MS = 20_000 * DAY_MS + 12 * HOUR_MS
CONFIG = StoreConfig("/store")


def hour_of(now_ms: int) -> int:
    return now_ms // HOUR_MS % 24


def files(*ages_hours: int, now_ms: int) -> list[AgedFile]:
    """Files 1000 bytes apart, oldest first, of these ages."""
    return [
        AgedFile(number * 1000, now_ms - hours * HOUR_MS) for number, hours in enumerate(ages_hours)
    ]


@pytest.mark.parametrize(
    ("ages", "now_ms", "used_ratio", "deleted", "stop_writes"),
    [
        pytest.param((90, 80, 70, 0), FOUR_O_CLOCK_MS, 0.5, (0, 1000), False, id="aged, at 4"),
        pytest.param((90, 80, 70, 0), NOON_MS, 0.5, (), False, id="aged, not the hour"),
        pytest.param((90, 80, 70, 0), NOON_MS, 0.76, (0, 1000), False, id="aged, disk filling"),
        pytest.param((72, 71, 0), FOUR_O_CLOCK_MS, 0.5, (0,), False, id="72 hours exactly"),
        pytest.param((90, 80), FOUR_O_CLOCK_MS, 0.5, (0,), False, id="the newest stays"),
        pytest.param((90,), FOUR_O_CLOCK_MS, 0.99, (), True, id="a single file stays"),
        pytest.param((), FOUR_O_CLOCK_MS, 0.5, (), False, id="no file"),
        pytest.param((5, 4, 3), NOON_MS, 0.86, (0, 1000), False, id="forced: youth is no shield"),
        pytest.param((5, 4, 3), NOON_MS, 0.91, (0, 1000), True, id="forced, writing stops"),
        pytest.param((90, 10, 80, 0), FOUR_O_CLOCK_MS, 0.5, (0,), False, id="no hole is made"),
        pytest.param((5, 4, 3), NOON_MS, 0.85, (), False, id="85 % exactly is not over it"),
    ],
)
def test_files_go_by_age_hour_and_room(
    ages: tuple[int, ...],
    now_ms: int,
    used_ratio: float,
    deleted: tuple[int, ...],
    stop_writes: bool,
) -> None:
    verdict = decide(
        CONFIG,
        files(*ages, now_ms=now_ms),
        used_ratio=used_ratio,
        now_ms=now_ms,
        local_hour=hour_of(now_ms),
    )
    assert verdict.delete == deleted
    assert verdict.stop_writes is stop_writes


async def test_the_hour_is_that_of_the_machines_local_time(tmp_path: Path) -> None:
    class EastOfGreenwich(HandClock):
        def local_hour(self, at_ms: int) -> int:
            return (at_ms // HOUR_MS + 8) % 24

    clock = EastOfGreenwich(FOUR_O_CLOCK_MS)
    store = await open_store(small_config(tmp_path), runtime=runtime_on(FailingDisk(), clock))
    for number in range(60):
        store.put(draft(b"%d" % number + b"." * 300))
        await turn()
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    assert await store.retention.run(FOUR_O_CLOCK_MS) == 0, "it is noon there"
    assert await store.retention.run(FOUR_O_CLOCK_MS - 8 * HOUR_MS) > 0
    await store.close()


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
async def test_the_fullest_of_the_volumes_with_messages_decides(
    tmp_path: Path, folder: str
) -> None:
    disk, listener = FailingDisk(), Listener()
    config = small_config(
        tmp_path,
        disk_max_used_ratio=0.75,
        disk_clean_forcibly_ratio=0.85,
        disk_warning_ratio=0.9,
    )
    store = await open_store(config, listener, runtime_on(disk))
    for number in range(60):
        store.put(draft(b"%d" % number + b"." * 300, properties=f"UNIQ_KEY\x01key-{number}\x02"))
        await turn()
    disk.ratio = 0.5
    assert await store.retention.run(NOON_MS) == 0
    disk.ratios = {folder: 0.86}
    assert await store.retention.run(NOON_MS) > 0
    assert f"disk of {tmp_path}/{folder} 86%" in str(listener.lifecycle("RETENTION")[0].detail)
    disk.ratios = {folder: 0.91}
    await store.retention.run(NOON_MS)
    assert not store.writable
    disk.ratios = {}
    await store.retention.run(NOON_MS)
    assert store.writable
    await store.close()


async def test_a_full_volume_beside_the_messages_is_reported_and_no_message_goes(
    tmp_path: Path,
) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(
        small_config(
            tmp_path,
            disk_max_used_ratio=0.75,
            disk_clean_forcibly_ratio=0.85,
            disk_warning_ratio=0.9,
        ),
        listener,
        runtime_on(disk),
    )
    (tmp_path / "spool").mkdir()
    store.retention.beside = (str(tmp_path), str(tmp_path / "spool"), str(tmp_path / "no"))
    disk.ratio, disk.ratios = 0.5, {"spool": 0.99}
    for _ in range(3):
        assert await store.retention.run(NOON_MS) == 0
    (reported,) = listener.lifecycle("DISK_FULL")
    assert f"disk of {tmp_path}/spool 99.0% full" in str(reported.detail)
    assert store.writable
    disk.ratios = {}
    await store.retention.run(NOON_MS)
    disk.ratios = {"spool": 0.99}
    await store.retention.run(NOON_MS)
    assert len(listener.lifecycle("DISK_FULL")) == 2, "full again"
    await store.close()


def test_asked_by_hand_aged_files_go_at_any_hour_and_young_ones_stay() -> None:
    """Row C5: DELETE_EXPIRED_COMMITLOG."""
    aged = files(90, 80, 10, 0, now_ms=NOON_MS)
    asked = decide(CONFIG, aged, used_ratio=0.5, now_ms=NOON_MS, local_hour=12, by_hand=True)
    assert asked.delete == (0, 1000)


def test_at_most_ten_files_go_in_one_round() -> None:
    aged = files(*([100] * 30), now_ms=FOUR_O_CLOCK_MS)
    verdict = decide(CONFIG, aged, used_ratio=0.5, now_ms=FOUR_O_CLOCK_MS, local_hour=4)
    assert verdict.delete == tuple(number * 1000 for number in range(10))


async def test_queues_and_index_follow_the_log_and_held_answers_stay_readable(
    tmp_path: Path,
) -> None:
    disk, listener = FailingDisk(), Listener()
    config = small_config(
        tmp_path, disk_max_used_ratio=0.75, disk_clean_forcibly_ratio=0.85, disk_warning_ratio=1
    )
    store = await open_store(config, listener, runtime_on(disk))
    for number in range(60):
        store.put(draft(b"%d" % number + b"." * 300, properties=f"UNIQ_KEY\x01key-{number}\x02"))
        await turn()
    await store._flusher.flush_derived("TIMER")
    held = store.get("TopicA", 0, 0, max_count=8, max_bytes=BIG)
    assert held.status is GetStatus.FOUND
    disk.ratio = 0.86
    assert await store.retention.run(NOON_MS) > 0
    minimum = store.min_offset("TopicA", 0)
    assert store.physical_min > 0
    assert 0 < minimum < 60
    assert [message.body[:3] for message in decode_records(held.body())] == [
        b"%d.." % number for number in range(8)
    ], "an answer under way is not harmed"
    too_small = store.get("TopicA", 0, minimum - 1, max_count=8, max_bytes=BIG)
    assert too_small.status is GetStatus.OFFSET_TOO_SMALL
    assert too_small.next_begin_offset == minimum
    assert [message.queue_offset for message in messages_of(store)] == list(range(minimum, 60))
    lost = store.query_by_key("TopicA", "key-0", max_count=9, begin_ms=0, end_ms=1 << 50)
    kept = store.query_by_key("TopicA", "key-59", max_count=9, begin_ms=0, end_ms=1 << 50)
    assert lost.physical_offsets == []
    assert len(kept.physical_offsets) == 1
    assert store.put(draft(b"after")).queue_offset == 60
    assert "over 85%" in str(listener.lifecycle("RETENTION")[0].detail)
    await turn()
    await store.close()
    listener = Listener()
    store = await open_store(config, listener)
    assert store.min_offset("TopicA", 0) == minimum
    assert store.max_offset("TopicA", 0) == 61
    assert not listener.lifecycle("DAMAGED_FILE")
    await store.close()


async def test_a_queue_whose_messages_are_all_gone_keeps_its_place(tmp_path: Path) -> None:
    """Also when the consume queue itself is lost: its next message still has the next offset."""
    store = await open_store(small_config(tmp_path))
    for _ in range(5):
        store.put(draft(b"early", topic="Quiet"))
    for number in range(60):
        store.put(draft(b"%d" % number + b"." * 300))
        await turn()
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    await store.retention.run(FOUR_O_CLOCK_MS)
    assert (store.min_offset("Quiet", 0), store.max_offset("Quiet", 0)) == (5, 5)
    assert store.last_store_time("Quiet", 0) is None
    empty = store.get("Quiet", 0, 5, max_count=1, max_bytes=BIG)
    assert empty.status is GetStatus.OFFSET_OVERFLOW_ONE
    await store.close()
    store = await open_store(small_config(tmp_path))
    assert (store.min_offset("Quiet", 0), store.max_offset("Quiet", 0)) == (5, 5)
    assert store.put(draft(b"late", topic="Quiet")).queue_offset == 5
    await turn()
    assert [message.body for message in messages_of(store, "Quiet")] == [b"late"]
    await store.close()
