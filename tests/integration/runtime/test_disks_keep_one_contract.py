"""The machine's disk and the simulated one answer alike, or a simulated run would prove nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.foundation.errors import StorageError
from engine.runtime import Disk, Runtime, SystemDisk
from tests.asynchronous import run_by
from tests.simulation.world.world import World, run_world

Story = Callable[[Disk, str], Awaitable[None]]
On = Callable[[Story], None]


@pytest.fixture(params=["machine", "simulated"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> On:
    """Runs a story on the disk that the parameter names, in an empty folder."""

    def on_the_machine(story: Story) -> None:
        asyncio.run(story(SystemDisk(), str(tmp_path)))  # type: ignore[arg-type]

    def simulated(story: Story) -> None:
        async def scenario(world: World) -> None:
            async def boot(runtime: Runtime) -> None:
                runtime.disk.make_directories("/data")
                await story(runtime.disk, "/data")

            await world.node("10.0.0.1").boot(boot)

        run_world(1, scenario)

    return on_the_machine if request.param == "machine" else simulated


def on_the_disk(on: On, story: Story) -> None:
    """The stage of each test here."""
    on(story)


@run_by(on_the_disk, "on")
async def test_bytes_come_back_from_where_they_were_put(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/file", create=True)
    file.pwrite(b"tide", 3)
    file.pwrite(memoryview(b"mark"), 7)
    assert file.size_bytes() == 11
    assert file.pread(100, 0) == b"\0\0\0tidemark"
    assert file.pread(4, 7) == b"mark"
    assert file.pread(4, 11) == b""
    file.sync()
    await file.sync_async()
    file.close()
    file.close()
    assert disk.read(f"{root}/file") == b"\0\0\0tidemark"


@run_by(on_the_disk, "on")
async def test_many_parts_are_written_one_after_the_other(disk: Disk, root: str) -> None:
    parts = [b"%d," % number for number in range(2500)]  # More than one system call takes.
    file = disk.open(f"{root}/file", create=True)
    file.pwritev(parts, 5)
    assert file.pread(1 << 20, 5) == b"".join(parts)
    file.close()


@run_by(on_the_disk, "on")
async def test_what_was_never_written_is_passed_over(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/file", create=True)
    file.truncate(1_000_000)
    assert file.written_from(0) is None
    file.pwrite(b"tide", 500_000)
    found = file.written_from(0)
    assert found is not None
    assert found[0] <= 500_000
    assert 500_004 <= found[1] <= found[0] + 65_536
    inside = file.written_from(500_002)
    assert inside is not None
    assert inside[0] == 500_002, "where one asks, when that is amid"
    assert file.written_from(found[1]) is None
    assert file.written_from(1_000_000) is None
    file.close()


@run_by(on_the_disk, "on")
async def test_a_view_is_read_only_and_shows_later_writes(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/file", create=True)
    assert bytes(file.view()) == b""
    file.allocate(8)
    view = file.view()
    file.pwrite(b"abc", 2)
    assert bytes(view) == b"\0\0abc\0\0\0"
    with pytest.raises(TypeError):
        view[0] = 1
    view.release()
    file.close()


@run_by(on_the_disk, "on")
async def test_allocating_never_shrinks_and_truncating_does(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/file", create=True)
    file.pwrite(b"abcdef", 0)
    file.allocate(3)
    assert file.pread(9, 0) == b"abcdef"
    file.truncate(4)
    file.truncate(6)
    assert file.pread(9, 0) == b"abcd\0\0"
    file.close()


@run_by(on_the_disk, "on")
async def test_what_is_absent_is_refused_by_name_or_passed_over(disk: Disk, root: str) -> None:
    absent = f"{root}/absent"
    for reach in (disk.open, disk.read, disk.sync_file, disk.sync_directory, disk.modified_ms):
        with pytest.raises(StorageError, match="absent"):
            reach(absent)
    with pytest.raises(StorageError, match="absent"):
        disk.rename(absent, f"{root}/target")
    assert not disk.exists(absent)
    assert disk.names(absent) == []
    disk.remove(absent)
    disk.remove_directory(absent)
    with pytest.raises(StorageError):
        disk.open(f"{absent}/inside", create=True)


@run_by(on_the_disk, "on")
async def test_folders_are_made_listed_and_removed_when_empty(disk: Disk, root: str) -> None:
    disk.make_directories(f"{root}/b/c")
    disk.make_directories(f"{root}/b/c")
    disk.write(f"{root}/a", b"1")
    assert disk.names(root) == ["a", "b"]
    assert (disk.is_directory(f"{root}/b"), disk.is_directory(f"{root}/a")) == (True, False)
    disk.remove_directory(f"{root}/b")
    assert disk.exists(f"{root}/b/c"), "a folder that is not empty stays"
    disk.remove_directory(f"{root}/b/c")
    disk.remove_directory(f"{root}/b")
    disk.remove(f"{root}/a")
    assert disk.names(root) == []
    disk.sync_directory(root)


@run_by(on_the_disk, "on")
async def test_renaming_replaces_and_writing_replaces_all(disk: Disk, root: str) -> None:
    disk.write(f"{root}/old", b"a longer text")
    disk.write(f"{root}/old", b"short")
    disk.write(f"{root}/new", b"to be replaced")
    disk.rename(f"{root}/old", f"{root}/new")
    assert disk.names(root) == ["new"]
    assert disk.read(f"{root}/new") == b"short"
    disk.sync_file(f"{root}/new")
    assert disk.modified_ms(f"{root}/new") > 0


@run_by(on_the_disk, "on")
async def test_a_locked_file_is_nobody_elses_until_it_is_closed(disk: Disk, root: str) -> None:
    holder = disk.open(f"{root}/lock", create=True)
    other = disk.open(f"{root}/lock")
    assert holder.lock()
    assert holder.lock(), "it is its own already"
    assert not other.lock()
    holder.close()
    assert other.lock()
    other.close()


@run_by(on_the_disk, "on")
async def test_work_beside_the_loop_brings_back_its_answer_or_its_error(
    disk: Disk, root: str
) -> None:
    disk.write(f"{root}/file", b"answer")
    assert await disk.off_loop(lambda: disk.read(f"{root}/file")) == b"answer"
    with pytest.raises(StorageError, match="absent"):
        await disk.off_loop(lambda: disk.read(f"{root}/absent"))
    assert 0.0 <= disk.used_ratio(root) <= 1.0
