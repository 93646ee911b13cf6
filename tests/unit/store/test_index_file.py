"""Keys over several small index files: chains, times, rolls, cuts and repair."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from engine.runtime import SystemDisk
from engine.store.index.index import Index, index_file_name
from engine.store.index.index_layout import ENTRY, HEADER, IndexShape
from engine.store.mapped_file import FilePool
from tests.counting_disk import CountingDisk

SHAPE = IndexShape(slot_count=5, index_count_max=8)
NOW_MS = 1_795_239_608_237
ALL = {"begin_ms": 0, "end_ms": 1 << 50}


def new_index(root: Path) -> Index:
    return Index(SystemDisk(), str(root / "index"), SHAPE, FilePool())


def flush(index: Index) -> None:
    for file in index.dirty_files():
        header = file.begin_flush()
        file.write_slots()
        file.write_sums(header)
        file.write_header(header)


def test_a_file_is_named_by_the_utc_time_of_its_creation() -> None:
    assert index_file_name(NOW_MS) == "20261121054008237"


def test_entries_of_one_hash_are_found_ascending_and_other_hashes_of_the_slot_are_not(
    tmp_path: Path,
) -> None:
    index = new_index(tmp_path)
    keys = [(7, 100), (2, 200), (7, 300), (12, 400)]  # All in slot 2.
    index.put([(key_hash, physical, NOW_MS) for key_hash, physical in keys], now_ms=NOW_MS)
    assert index.find(7, 10, **ALL) == [100, 300]
    assert index.find(2, 10, **ALL) == [200]
    assert index.find(17, 10, **ALL) == []
    assert index.find(7, 1, **ALL) == [300], "the newest, when not all are wanted"


def test_slots_are_written_some_pages_at_a_time_and_found_meanwhile(tmp_path: Path) -> None:
    """At full load a flush has thousands of pages: some 80 ms in one go."""
    index = Index(SystemDisk(), str(tmp_path / "index"), IndexShape(5000, 40), FilePool())
    index.put([(500 * n, n, NOW_MS) for n in range(10)], now_ms=NOW_MS)  # On five pages.
    (file,) = index.dirty_files()
    header, written = file.begin_flush(), 0
    while file.write_slots(2):
        written += 1
        assert [index.find(500 * n, 9, **ALL) for n in range(10)] == [[n] for n in range(10)]
    assert written == 2, "two, two and one"
    file.write_header(header)
    assert not file.write_slots(2)
    index.close()
    again = Index(SystemDisk(), str(tmp_path / "index"), IndexShape(5000, 40), FilePool())
    again.load(clean=True, ours=False)
    assert [again.find(500 * n, 9, **ALL) for n in range(10)] == [[n] for n in range(10)]
    again.close()


def test_a_full_file_is_followed_by_the_next_and_both_are_searched(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    for number in range(20):
        index.put([(3, number, NOW_MS + number)], now_ms=NOW_MS + number)
    assert [file.index_count for file in index.files] == [8, 8, 7]
    assert index.find(3, 100, **ALL) == list(range(20))
    assert index.find(3, 9, **ALL) == list(range(11, 20))


def test_two_files_made_in_one_millisecond_have_two_names(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.put([(1, number, NOW_MS) for number in range(16)], now_ms=NOW_MS)
    assert [file.start for file in index.files] == [
        20261121054008237,
        20261121054008238,
        20261121054008239,
    ]


def test_times_are_kept_to_the_second_and_none_is_missed_for_that(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    for number, later_ms in enumerate((0, 999, 1500, 2001, 60_000)):
        index.put([(1, number, NOW_MS + later_ms)], now_ms=NOW_MS)
    found = index.find(1, 10, NOW_MS + 1500, NOW_MS + 2001)
    assert {2, 3} <= set(found)
    assert not {4} & set(found)
    assert index.find(1, 10, NOW_MS + 60_000, NOW_MS + 60_000) == [4]
    assert index.find(1, 10, 0, NOW_MS - 1) == []


def test_the_last_message_before_a_cut_is_found_by_its_time_as_well(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.put([(7, 100 + at_ms, NOW_MS + at_ms) for at_ms in (0, 1900, 2500)], now_ms=NOW_MS)
    flush(index)
    index.truncate_to_log(2600)
    assert index.find(7, 10, begin_ms=NOW_MS + 1800, end_ms=1 << 50) == [2000]
    assert index.find(7, 10, begin_ms=NOW_MS + 3000, end_ms=1 << 50) == []


def test_a_loaded_index_goes_on_where_it_was(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.put([(1, 10, NOW_MS), (6, 20, NOW_MS), (1, 30, NOW_MS)], now_ms=NOW_MS)
    flush(index)
    index.close()
    again = new_index(tmp_path)
    assert again.load() == []
    assert again.end_physical == 30
    again.put([(1, 40, NOW_MS)], now_ms=NOW_MS + 5)
    assert again.find(1, 10, **ALL) == [10, 30, 40]
    assert len(again.files) == 1


@pytest.mark.parametrize("cut_at", [0, 15, 30, 31, 85, 1000])
def test_a_cut_forgets_the_messages_behind_it_and_keeps_the_rest(
    tmp_path: Path, cut_at: int
) -> None:
    index = new_index(tmp_path)
    offsets = [10 * number for number in range(15)]
    index.put([(1, physical, NOW_MS) for physical in offsets], now_ms=NOW_MS)
    flush(index)
    index.truncate_to_log(cut_at)
    kept = [physical for physical in offsets if physical < cut_at]
    assert index.find(1, 100, **ALL) == kept
    assert index.end_physical == (kept[-1] if kept else None)
    index.put([(1, 5000, NOW_MS)], now_ms=NOW_MS)
    assert index.find(1, 100, **ALL) == [*kept, 5000]


def test_repair_builds_lost_slots_from_the_entries(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.put([(1, 10, NOW_MS), (2, 20, NOW_MS), (6, 30, NOW_MS)], now_ms=NOW_MS)
    flush(index)
    index.close()
    path = next((tmp_path / "index").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER.size] + b"\x7f" * 20 + whole[HEADER.size + 20 :])
    again = new_index(tmp_path)
    again.load()
    again.repair_newest(1 << 40)
    assert [again.find(key_hash, 10, **ALL) for key_hash in (1, 2, 6)] == [[10], [20], [30]]
    assert path.read_bytes() == whole


def test_repair_does_not_believe_a_header_that_counts_entries_that_never_arrived(
    tmp_path: Path,
) -> None:
    index = new_index(tmp_path)
    index.put([(1, 10, NOW_MS), (6, 30, NOW_MS)], now_ms=NOW_MS)
    flush(index)
    index.close()
    path = next((tmp_path / "index").iterdir())
    content = bytearray(path.read_bytes())
    HEADER.pack_into(content, 0, NOW_MS, NOW_MS + 7, 10, 999, 1, 6)
    path.write_bytes(content)
    again = new_index(tmp_path)
    again.load()
    again.repair_newest(1 << 40)
    assert again.end_physical == 30
    assert again.files[0].index_count == 3
    assert again.find(1, 10, **ALL) == [10]


def test_files_of_another_length_are_removed_and_named(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121054008237").write_bytes(b"short")
    (tmp_path / "index" / "notes.txt").write_text("not ours", encoding="ascii")
    index = new_index(tmp_path)
    (sentence,) = index.load()
    assert "20261121054008237 had 5 bytes" in sentence
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["notes.txt"]


def test_following_the_log_deletes_files_whose_messages_are_gone_but_the_newest(
    tmp_path: Path,
) -> None:
    index = new_index(tmp_path)
    index.put([(1, 10 * number, NOW_MS) for number in range(15)], now_ms=NOW_MS)
    assert index.follow_log(65) == 1
    assert index.find(1, 100, **ALL) == [10 * number for number in range(7, 15)]
    assert index.follow_log(10_000) == 1
    assert len(index.files) == 1


def test_entries_are_laid_out_as_drawn(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    index.put([(7, 0x1234, NOW_MS), (12, 0x5678, NOW_MS + 2500)], now_ms=NOW_MS)
    flush(index)
    content = next((tmp_path / "index").iterdir()).read_bytes()
    assert len(content) == SHAPE.file_bytes == 40 + 5 * 4 + 8 * 20
    assert HEADER.unpack_from(content) == (NOW_MS, NOW_MS + 2500, 0x1234, 0x5678, 1, 3)
    assert content[40:60].hex() == "00000000" * 2 + "00000002" + "00000000" * 2
    first_entry = 40 + 20
    assert ENTRY.unpack_from(content, first_entry) == (0, 0, 0, 0)
    assert ENTRY.unpack_from(content, first_entry + 20) == (7, 0x1234, 0, 0)
    assert ENTRY.unpack_from(content, first_entry + 40) == (12, 0x5678, 2, 1)


def test_a_repair_follows_slots_that_lead_behind_the_header_and_reads_nothing_else(
    tmp_path: Path,
) -> None:
    """A crash between slots and header: keys of both flushes share slots."""
    index = new_index(tmp_path)
    index.put([(1, 10, NOW_MS), (6, 20, NOW_MS), (2, 30, NOW_MS)], now_ms=NOW_MS)
    flush(index)
    path = next((tmp_path / "index").iterdir())
    before = path.read_bytes()
    index.put([(1, 40, NOW_MS), (3, 50, NOW_MS), (6, 60, NOW_MS)], now_ms=NOW_MS)
    for file in index.dirty_files():
        file.begin_flush()
        file.write_slots()
    index.close()
    assert path.read_bytes()[HEADER.size :] != before[HEADER.size :]
    again = new_index(tmp_path)
    again.load()
    again.repair_newest(1 << 40)
    assert [again.find(key_hash, 10, **ALL) for key_hash in (1, 6, 2, 3)] == [[10], [20], [30], []]
    assert path.read_bytes()[: HEADER.size + 20] == before[: HEADER.size + 20]
    again.put([(1, 40, NOW_MS)], now_ms=NOW_MS)
    assert again.find(1, 10, **ALL) == [10, 40]


def test_what_is_put_during_a_flush_waits_for_the_next_and_is_found_meanwhile(
    tmp_path: Path,
) -> None:
    """Else a slot could be on disk before the entry it leads to."""
    index = new_index(tmp_path)
    index.put([(1, 10, NOW_MS)], now_ms=NOW_MS)
    (file,) = index.dirty_files()
    header = file.begin_flush()
    index.put([(1, 20, NOW_MS)], now_ms=NOW_MS)
    assert index.find(1, 10, **ALL) == [10, 20]
    file.write_slots()
    file.write_header(header)
    assert index.find(1, 10, **ALL) == [10, 20]
    assert file.dirty
    content = next((tmp_path / "index").iterdir()).read_bytes()
    assert HEADER.unpack_from(content)[5] == 2
    assert content[44:48].hex() == "00000001", "the slot leads to the entry that is counted"


def test_a_full_index_is_repaired_and_cut_without_reading_it(tmp_path: Path) -> None:
    """Bytes read and held, against a file a hundred times as long as what may be read."""
    shape = IndexShape(slot_count=20_000, index_count_max=400_000)
    (tmp_path / "index").mkdir()
    disk = CountingDisk()
    index = Index(disk, str(tmp_path / "index"), shape, FilePool())
    keys = [(number * 7919 % 1_000_003, number * 100, NOW_MS) for number in range(399_999)]
    for first in range(0, len(keys), 4000):
        index.put(keys[first : first + 4000], now_ms=NOW_MS)
        flush(index)
    index.close()
    again = Index(disk, str(tmp_path / "index"), shape, FilePool())
    again.load()
    disk.read_bytes = 0
    tracemalloc.start()
    again.repair_newest(1 << 40)
    again.truncate_to_log(39_999_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert again.end_physical == 39_998_900
    assert disk.read_bytes < 4 * shape.slot_count * 4
    assert peak_bytes < 2_000_000, "the file has 8 MB"
    key_hash, physical, _ = keys[399_980]
    assert physical in again.find(key_hash, 99, **ALL)
    assert not again.find(keys[399_995][0], 99, **ALL) or keys[399_995][1] not in again.find(
        keys[399_995][0], 99, **ALL
    )
