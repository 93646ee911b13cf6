"""Files of one size by their start offset: names, views that outlive their file, the open ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, DiskFull, OffsetOutOfRange
from engine.runtime import SystemDisk
from engine.store.mapped_file import FilePool, FileSequence
from tests.failing_disk import FailingDisk


def sequence(
    root: Path, *, pool: FilePool | None = None, disk: SystemDisk | None = None
) -> FileSequence:
    return FileSequence(disk or SystemDisk(), str(root), 100, pool or FilePool(), reserve=True)


def test_files_have_their_start_as_name_and_their_full_length_from_the_beginning(
    tmp_path: Path,
) -> None:
    files = sequence(tmp_path)
    files.create(0)
    files.create(100)
    assert [(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())] == [
        (f"{0:020d}", 100),
        (f"{100:020d}", 100),
    ]
    assert files.start_at(199) == 100
    with pytest.raises(OffsetOutOfRange, match="begins at 200"):
        files.open_file(200)


def test_a_view_shows_later_writes_and_outlives_removal_and_closing(tmp_path: Path) -> None:
    files = sequence(tmp_path)
    entry = files.create(0)
    part = entry.view[10:15]
    entry.file.pwrite(b"hello", 10)
    assert bytes(part) == b"hello"
    files.remove(0)
    files.close()
    assert list(tmp_path.iterdir()) == []
    assert bytes(part) == b"hello"


def test_the_longest_unused_file_is_closed_and_opened_again_when_needed(tmp_path: Path) -> None:
    pool = FilePool(open_files_max=2)
    files = sequence(tmp_path, pool=pool)
    first = files.create(0)
    first.file.pwrite(b"first", 0)
    files.create(100)
    files.create(200)
    assert pool.open_count == 2
    assert first.retired
    assert bytes(files.open_file(0).view[:5]) == b"first"
    assert pool.open_count == 2


def test_a_pinned_file_is_closed_only_when_the_pin_goes(tmp_path: Path) -> None:
    pool = FilePool(open_files_max=1)
    files = sequence(tmp_path, pool=pool)
    pinned = files.create(0).pin()
    files.create(100)
    files.remove(0)
    pinned.file.sync()
    pinned.unpin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        pinned.file.size_bytes()


def test_a_file_without_room_leaves_no_trace(tmp_path: Path) -> None:
    disk = FailingDisk()
    files = sequence(tmp_path, disk=disk)
    files.create(0)
    disk.free_bytes = 50
    with pytest.raises(DiskFull):
        files.create(100)
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]
    assert files.starts == [0]


def test_wiping_zeroes_the_rest_of_a_file_and_nothing_before(tmp_path: Path) -> None:
    files = sequence(tmp_path)
    files.create(0).file.pwrite(b"x" * 100, 0)
    files.wipe_from(30)
    assert (tmp_path / f"{0:020d}").read_bytes() == b"x" * 30 + bytes(70)


@pytest.mark.parametrize(("name", "length"), [(50, 100), (0, 101)])
def test_files_of_another_size_are_named_in_the_refusal(
    tmp_path: Path, name: int, length: int
) -> None:
    (tmp_path / f"{name:020d}").write_bytes(bytes(length))
    with pytest.raises(ConfigError, match=f"someKey=100 .*{name:020d} holds {length}"):
        sequence(tmp_path).load("someKey")
