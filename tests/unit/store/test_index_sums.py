"""Every bit of every index file, flipped: no key is lost without a word, no wrong answer is given,
whatever the last stop was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

import pytest

from engine.store.index.index import Index, IndexScrub
from engine.store.index.index_layout import (
    HEADER,
    PAGE_SLOTS,
    DamagedIndex,
    IndexShape,
    sums_file_bytes,
)
from engine.store.mapped_file import FilePool
from tests.simulation.crash_states.recording import RecordingDisk, Tree

SHAPE = IndexShape(slot_count=5, index_count_max=8)
WIDE = IndexShape(slot_count=2 * PAGE_SLOTS + 100, index_count_max=10_000)
NOW_MS = 1_795_239_608_237
BOUND = 1 << 40
ALL = {"begin_ms": 0, "end_ms": 1 << 50}
KEYS = [(number * 7 % 13, 100 * number, NOW_MS + number) for number in range(1, 19)]
FOLDER, SUMS = "/index", "/indexSums"


def new_index(disk: RecordingDisk, shape: IndexShape = SHAPE) -> Index:
    return Index(disk, FOLDER, shape, FilePool())  # type: ignore[arg-type]


def flush(index: Index) -> None:
    for file in index.dirty_files():
        header = file.begin_flush()
        file.write_slots()
        file.write_sums(header)
        file.write_header(header)


def written(shape: IndexShape = SHAPE, *, half_flushed: bool = False) -> Tree:
    """Files of KEYS, put and flushed a few at a time."""
    disk = RecordingDisk({"/": None, FOLDER: None, SUMS: None})
    index = new_index(disk, shape)
    for first in range(0, len(KEYS), 4):
        index.put(KEYS[first : first + 4], now_ms=NOW_MS)
        flush(index)
    if half_flushed:
        index.put([(3, 5000, NOW_MS)], now_ms=NOW_MS)
        for file in index.dirty_files():
            file.begin_flush()
            file.write_slots()
    return disk.tree()


def flipped(tree: Tree, path: str, bit: int) -> Tree:
    content = bytearray(tree[path] or b"")
    content[bit // 8] ^= 1 << bit % 8
    return tree | {path: bytes(content)}


def wanted() -> dict[int, list[int]]:
    answers: dict[int, list[int]] = defaultdict(list)
    for key_hash, physical_offset, _ in KEYS:
        answers[key_hash].append(physical_offset)
    return answers


def flips(tree: Tree) -> Iterator[tuple[str, int]]:
    """Each bit of header, slots and the entries that are counted."""
    for path in sorted(path for path in tree if path.startswith(FOLDER + "/")):
        content = tree[path] or b""
        used = HEADER.unpack_from(content)[5]
        for bit in range(8 * SHAPE.entry_position(used)):
            yield path, bit


def start(tree: Tree, *, clean: bool, shape: IndexShape = SHAPE) -> tuple[Index, list[str]]:
    """As recovery does; what is reported, then and later."""
    index = new_index(RecordingDisk(tree), shape)
    reported = index.load(clean=clean)
    reported += index.repair_newest(BOUND, clean=clean)
    index.on_damage = reported.append
    return index, reported


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_no_flipped_bit_loses_or_forges_an_answer_without_a_word(clean: bool) -> None:
    tree, answers = written(half_flushed=not clean), wanted()
    index, reported = start(tree, clean=clean)
    assert not reported, "nothing is wrong yet"
    assert {key: index.find(key, 99, **ALL) for key in answers} == answers
    for path, bit in flips(tree):
        index, reported = start(flipped(tree, path, bit), clean=clean)
        for key in range(14):
            found = index.find(key, 99, **ALL)
            assert set(found) <= set(answers.get(key, [])), f"{path} bit {bit}: forged {found}"
            assert found == answers.get(key, []) or reported, (
                f"{path} bit {bit}: lost, not reported"
            )


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
async def test_the_scrub_finds_what_nobody_asks_for(clean: bool) -> None:
    tree = written()

    async def go_on(pause_ms: int) -> bool:
        return False

    for path, bit in flips(tree):
        index, reported = start(flipped(tree, path, bit), clean=clean)
        await IndexScrub(index._disk, index, go_on).run()
        assert reported, f"{path} bit {bit} was not noticed"
        left = index.end_physical or 0
        answers = {k: [o for o in v if o <= left] for k, v in wanted().items()}
        found = {key: index.find(key, 99, **ALL) for key in answers}
        assert all(set(answers[key]) - {left} <= set(found[key]) for key in answers)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_no_flipped_bit_of_the_sums_costs_an_answer(clean: bool) -> None:
    tree, answers = written(half_flushed=not clean), wanted()
    for path in sorted(path for path in tree if path.startswith(SUMS + "/")):
        for bit in range(8 * len(tree[path] or b"")):
            index, _ = start(flipped(tree, path, bit), clean=clean)
            found = {key: index.find(key, 99, **ALL) for key in answers}
            assert found == answers, f"{path} bit {bit}"


def test_damaged_slots_are_made_again_from_the_entries_and_a_header_from_the_sums() -> None:
    tree = written()
    newest = max(path for path in tree if path.startswith(FOLDER + "/"))
    for bit in (8 * HEADER.size, 8 * 36 + 1, 0):
        index, reported = start(flipped(tree, newest, bit), clean=True)
        assert len(reported) == 1
        assert len(index.files) == 3, "no file had to go"
        disk: RecordingDisk = index._disk  # type: ignore[assignment]
        assert disk.tree()[newest] == tree[newest], "the very bytes from before"


async def test_an_index_of_others_is_taken_as_it_is_and_has_sums_from_then_on() -> None:
    """RocketMQ wrote it: no sums at all, and after our store had some, newer entries without."""
    tree = written()
    bare = {path: data for path, data in tree.items() if not path.startswith(SUMS + "/")}
    index, reported = start(bare, clean=True)
    assert not reported
    disk: RecordingDisk = index._disk  # type: ignore[assignment]

    async def go_on(pause_ms: int) -> bool:
        return False

    await IndexScrub(disk, index, go_on).run()  # type: ignore[arg-type]
    made = disk.tree()
    assert {path for path in made if path.startswith(SUMS + "/")} == {
        path for path in tree if path.startswith(SUMS + "/")
    }
    for path, bit in list(flips(made))[::37]:
        index, reported = start(flipped(made, path, bit), clean=True)
        for key in range(14):
            index.find(key, 99, **ALL)
        await IndexScrub(index._disk, index, go_on).run()
        assert reported, f"{path} bit {bit} was not noticed"


def test_sums_that_rocketmq_has_left_behind_are_of_no_meaning() -> None:
    tree = written()
    disk = RecordingDisk(
        {path: data for path, data in tree.items() if SUMS not in path} | {SUMS: None}
    )
    index = new_index(disk)
    index.load()
    index.put([(3, 5000, NOW_MS)], now_ms=NOW_MS)
    for file in index.dirty_files():
        header = file.begin_flush()
        file.write_slots()
        file.write_header(header)
    grown = tree | {p: d for p, d in disk.tree().items() if p.startswith(FOLDER + "/")}
    index = new_index(RecordingDisk(grown))
    assert index.load(ours=False) == []
    assert index.repair_newest(BOUND, clean=True) == []
    assert 5000 in index.find(3, 99, **ALL)


def test_files_of_many_pages_and_blocks_are_looked_at_part_by_part() -> None:
    disk = RecordingDisk({"/": None, FOLDER: None, SUMS: None})
    index = new_index(disk, WIDE)
    keys = [(number * 7919, number, NOW_MS) for number in range(1, 19_000)]
    for first in range(0, len(keys), 1500):
        index.put(keys[first : first + 1500], now_ms=NOW_MS)
        flush(index)
    tree = disk.tree()
    first_file = min(path for path in tree if path.startswith(FOLDER + "/"))
    assert len(tree[first_file.replace(FOLDER, SUMS)] or b"") == sums_file_bytes(WIDE)
    again, reported = start(tree, clean=True, shape=WIDE)
    assert all(again.find(key, 9, **ALL) == [at] for key, at, _ in keys)
    assert not reported
    part = WIDE.entry_position(9000) * 8
    again, reported = start(flipped(tree, first_file, part), clean=True, shape=WIDE)
    assert again.find(keys[-1][0], 1, **ALL) == [keys[-1][1]], "other parts are believed"
    assert not reported
    assert again.find(keys[8999][0], 9, **ALL) == []
    assert len(reported) == 1
    assert again.is_behind


def test_sums_are_of_the_bytes_in_the_file() -> None:
    tree = written()
    first_file = min(path for path in tree if path.startswith(FOLDER + "/"))
    content = tree[first_file] or b""
    index, _ = start(tree, clean=True)
    sums = index.files[0].sums
    assert sums is not None
    slots = content[SHAPE.slot_position(0) : SHAPE.entry_position(0)]
    assert list(sums.slots) == [crc32(slots)]
    assert list(sums.entries) == [crc32(content[SHAPE.entry_position(0) :])]
    with pytest.raises(DamagedIndex, match="entries of block 0"):
        sums.check_block(0, memoryview(bytes(len(content))), SHAPE.index_count_max)


def cut_of(tree: Tree, end: int, *, ends_full: bool = False) -> RecordingDisk:
    """A live cut: what was put is flushed, as far as anybody has looked."""
    disk = RecordingDisk(tree)
    index = new_index(disk)
    index.load()
    assert index.repair_newest(BOUND) == []
    for file in index.files:
        while parts := file.parts_to_look_at(100):
            file.looked_at(parts, [file.sum_of(part) for part in parts])
        file.end_look()
    assert (index.files[0].sums is None) == ends_full
    del disk.changes[:]
    index.truncate_to_log(end)
    return disk


def test_a_cut_takes_the_newest_file_first_and_changes_none_before_those_are_gone() -> None:
    changes = cut_of(written(), 350, ends_full=True).changes
    unlinked = [each.name for each in changes if each.kind == "unlink" and each.target == FOLDER]
    assert unlinked == sorted(unlinked, reverse=True)
    assert len(unlinked) == 2
    kinds = [each.kind for each in changes]
    assert "write" not in kinds[: kinds.index("sync_folder")]


def test_entries_that_were_cut_from_a_full_file_are_not_believed_again_after_a_power_cut() -> None:
    before = written()
    after = cut_of(before, 350, ends_full=True).tree()
    (path,) = [path for path in after if path.startswith(f"{FOLDER}/")]
    torn, position = bytearray(after[path] or b""), SHAPE.entry_position(4)
    torn[position:] = (before[path] or b"")[position:]  # The zeros never came to the disk.
    index, _ = start(after | {path: bytes(torn)}, clean=False)
    assert index.end_physical == 300
    assert [index.entry(number)[1] for index in index.files for number in (1, 2, 3)] == [
        100,
        200,
        300,
    ]
