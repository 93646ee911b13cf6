"""Units of one queue over several small files: order, ends, gaps, cuts, and following the log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.foundation.limits import QUEUE_UNITS_WAITING_MAX
from engine.runtime import SystemDisk
from engine.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue, Unit
from engine.store.mapped_file import FilePool
from tests.counting_disk import CountingDisk

UNITS_PER_FILE = 4
FILE_BYTES = UNITS_PER_FILE * 20


def new_queue(root: Path) -> ConsumeQueue:
    return ConsumeQueue(SystemDisk(), str(root / "TopicA" / "0"), FILE_BYTES, FilePool())


def units(first: int, count: int) -> list[Unit]:
    """Messages of 10 bytes, one behind the other in the log."""
    return [(number * 10, 10, number + 1000) for number in range(first, first + count)]


def test_units_are_20_bytes_big_endian_in_files_named_by_their_first_byte(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 5))
    queue.write_out()
    first, second = sorted((tmp_path / "TopicA" / "0").iterdir())
    assert [first.name, second.name] == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert first.read_bytes().hex() == "".join(
        f"{physical:016x}{10:08x}{tags:016x}" for physical, _, tags in units(0, 4)
    )
    assert second.read_bytes() == UNIT.pack(*units(4, 1)[0]).ljust(FILE_BYTES, b"\0")


def test_units_wait_in_memory_are_read_there_and_written_together(tmp_path: Path) -> None:
    queue, kept = new_queue(tmp_path), units(0, QUEUE_UNITS_WAITING_MAX + 3)
    for unit in kept[:-3]:
        queue.append([unit])
    assert not (tmp_path / "TopicA").exists()
    for unit in kept[-3:]:
        queue.append([unit])
    assert len(list((tmp_path / "TopicA" / "0").iterdir())) == (
        QUEUE_UNITS_WAITING_MAX // UNITS_PER_FILE
    )
    assert [queue.unit(number) for number in range(queue.max_offset)] == kept
    last_written = QUEUE_UNITS_WAITING_MAX - 1
    assert queue.units(last_written, 9) == kept[last_written:][:1], "a file's last"
    assert queue.units(QUEUE_UNITS_WAITING_MAX, 9) == kept[-3:]
    queue.write_out()
    queue.append(units(100, 1))
    assert queue.units(QUEUE_UNITS_WAITING_MAX, 9) == [*kept[-3:], *units(100, 1)], "both at once"


def test_one_read_never_goes_beyond_the_end_of_a_file(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 10))
    assert queue.units(1, 100) == units(1, 3)
    assert queue.units(4, 2) == units(4, 2)
    assert queue.units(8, 100) == units(8, 2)
    assert queue.units(10, 1) == []
    assert queue.next_file_offset(5) == 8


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [1, 4, 7, 8, 10, 20])
def test_a_loaded_queue_ends_where_it_ended(tmp_path: Path, count: int, clean: bool) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, count))
    queue.write_out()
    queue.close()
    again = new_queue(tmp_path)
    assert again.load("mappedFileSizeConsumeQueue", clean=clean) == []
    assert (again.min_offset, again.max_offset, again.end_physical) == (0, count, count * 10)


def test_a_queue_that_begins_late_is_filled_up_to_its_first_message(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.skip_to(6)
    queue.append(units(6, 3))
    assert (queue.min_offset, queue.max_offset) == (6, 9)
    file = tmp_path / "TopicA" / "0" / f"{FILE_BYTES:020d}"
    assert file.read_bytes()[:40] == UNIT.pack(0, 0x7FFFFFFF, 0) * 2
    queue.write_out()
    queue.close()
    again = new_queue(tmp_path)
    again.load("mappedFileSizeConsumeQueue", clean=False)
    again.follow_log(60)
    assert (again.min_offset, again.max_offset, again.end_physical) == (6, 9, 90)


def test_a_skip_inside_a_file_keeps_the_file_and_drops_what_is_before(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 1))
    queue.skip_to(3)
    queue.append(units(3, 1))
    assert (queue.min_offset, queue.max_offset) == (3, 4)
    assert queue.unit(3) == units(3, 1)[0]
    assert queue.unit(0) is None


@pytest.mark.parametrize("bad", [(-(1 << 40), 10, 0), (3, 10, 0), (70, -(1 << 31), 0)])
def test_a_damaged_unit_does_not_move_the_front_past_those_before_it(
    tmp_path: Path, bad: Unit
) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 12))
    queue.write_out()
    middle = 6  # Where a search for the front looks first.
    assert queue.mend(middle, bad)
    assert queue.follow_log(0) == 0
    assert queue.min_offset == 0
    assert queue.follow_log(25) == 0
    assert queue.min_offset == 2
    assert queue.mend(middle, units(middle, 1)[0])
    assert queue.units_over_files(2, 99) == units(2, 10)


def test_following_the_log_moves_the_minimum_and_deletes_whole_files_only(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 10))
    queue.write_out()
    assert queue.follow_log(50) == 1
    assert queue.min_offset == 5
    assert queue.unit(4) is None
    assert queue.unit(5) == units(5, 1)[0]
    assert queue.follow_log(1000) == 1, "the newest file stays"
    assert (queue.min_offset, queue.max_offset) == (10, 10)
    queue.append(units(10, 1))
    assert queue.unit(10) == units(10, 1)[0]


def test_a_cut_at_the_log_s_end_leaves_zeros_behind(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 10))
    queue.write_out()
    assert queue.truncate_to_log(55) == 5
    assert (queue.max_offset, queue.end_physical) == (5, 50)
    assert sorted(p.name for p in (tmp_path / "TopicA" / "0").iterdir()) == [
        f"{0:020d}",
        f"{FILE_BYTES:020d}",
    ]
    second = tmp_path / "TopicA" / "0" / f"{FILE_BYTES:020d}"
    assert second.read_bytes() == UNIT.pack(*units(4, 1)[0]).ljust(FILE_BYTES, b"\0")
    assert queue.truncate_to_log(55) == 0
    assert queue.truncate_to_log(0) == 5
    assert (queue.max_offset, queue.end_physical) == (0, 0)


def test_the_first_message_reaching_an_offset_is_found_by_halving(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 10))
    assert [queue.first_reaching(offset) for offset in (0, 9, 10, 95, 100, 500)] == [
        0,
        0,
        1,
        9,
        10,
        10,
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(2, 6)),
        st.tuples(st.just("skip"), st.integers(1, 6)),
        st.tuples(st.just("cut"), st.integers(1, 6)),
        st.tuples(st.just("write out"), st.just(0)),
        st.tuples(st.just("follow"), st.integers(0, 200)),
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS)
@example([("append", 4), ("cut", 2), ("append", 3)])
@example([("append", 4), ("cut", 2)])
def test_what_reaches_an_offset_is_found_wherever_it_lies(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        queue, number = new_queue(Path(folder)), 0
        appended: dict[int, Unit] = {}
        for step, value in steps:
            if step == "append":
                appended |= dict(enumerate(units(number, value), queue.max_offset))
                queue.append(units(number, value))
                number += value + 1  # Somebody else's message lies between.
            elif step == "skip":
                queue.skip_to(queue.max_offset + value)
            elif step == "write out":
                queue.write_out()
            elif step == "cut":
                queue.truncate(max(queue.min_offset, queue.max_offset - value))
            else:
                queue.follow_log(value)
        kept = [(one, queue.unit(one)) for one in range(queue.min_offset, queue.max_offset)]
        assert kept == [(one, appended[one]) for one, _ in kept]
        for physical_offset in range(0, 10 * number + 20, 5):
            reaching = [
                queue_offset
                for queue_offset, unit in kept
                if unit and unit[1] != FILLER_SIZE and unit[0] + unit[1] > physical_offset
            ]
            assert queue.first_reaching(physical_offset) == (reaching or [queue.max_offset])[0]
        queue.close()


@pytest.mark.parametrize("stale_at", [(), (2_000_000,), (30_000, 5_999_980)])
def test_what_was_never_written_behind_the_end_is_not_read(
    tmp_path: Path, stale_at: tuple[int, ...]
) -> None:
    """Blocks of a power cut may lie anywhere behind the end, with nothing between."""
    big, disk = 300_000 * 20, CountingDisk()
    queue = ConsumeQueue(disk, str(tmp_path / "TopicA" / "0"), big, FilePool())
    queue.append(units(0, 10))
    queue.write_out()
    path = tmp_path / "TopicA" / "0" / f"{0:020d}"
    for number, place in enumerate(stale_at):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes(20) if number < len(stale_at) - 1 else UNIT.pack(*units(500, 1)[0]))
    disk.read_bytes = 0
    queue.wipe_behind_end()
    assert disk.read_bytes <= (1 + len(stale_at)) * 64 * 1024
    content = path.read_bytes()
    assert content[:200] == b"".join(UNIT.pack(*unit) for unit in units(0, 10))
    assert content.count(0, 200) == big - 200, "something of another time is left"


def test_a_bad_unit_ends_a_loaded_queue_and_what_is_behind_is_wiped(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    queue.append(units(0, 10))
    queue.write_out()
    queue.close()
    second = tmp_path / "TopicA" / "0" / f"{FILE_BYTES:020d}"
    content = bytearray(second.read_bytes())
    content[20:40] = bytes(20)
    second.write_bytes(content)
    again = new_queue(tmp_path)
    again.load("mappedFileSizeConsumeQueue", clean=False)
    again.wipe_behind_end()
    assert again.max_offset == 5
    assert second.read_bytes() == UNIT.pack(*units(4, 1)[0]).ljust(FILE_BYTES, b"\0")
    assert len(list(second.parent.iterdir())) == 2, "the file behind the bad unit is gone"
