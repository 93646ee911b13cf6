"""A table on disk beside its last version, whatever happens while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.observing import LifecycleEvent
from engine.runtime import system_runtime
from engine.store.table_file import TableFile
from tests.failing_disk import FailingDisk
from tests.store_support import Listener

FIRST, SECOND, THIRD = ({"offsetTable": {"t@g": {"0": number}}} for number in (1, 2, 3))


class Shelf:
    """A file, the disk below it, and what was read back."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.listener = FailingDisk(), Listener()
        self.path = folder / "config" / "table.json"
        self.file = TableFile(replace(system_runtime(), disk=self.disk), str(self.path))

    def read(self) -> list[Mapping[str, object]]:
        found: list[Mapping[str, object]] = []
        self.file.load(self.listener, found.append)
        return found


def test_a_table_never_written_is_nothing_to_read(tmp_path: Path) -> None:
    assert Shelf(tmp_path).read() == []


def test_the_last_version_is_read_and_the_one_before_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        await shelf.file.write(SECOND)
        assert shelf.read() == [SECOND]
        shelf.path.unlink()
        assert shelf.read() == [FIRST], "a crash between the two renames leaves the one before"

    asyncio.run(story())


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b'{"offsetTable":{', b"[1,2]", b"\xff\xfe"])
def test_a_damaged_file_falls_back_and_is_told_and_kept(tmp_path: Path, damage: bytes) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        await shelf.file.write(SECOND)
        shelf.path.write_bytes(damage)
        assert shelf.read() == [FIRST]
        (told,) = shelf.listener.facts
        assert isinstance(told, LifecycleEvent)
        assert told.kind == "DAMAGED_FILE"
        assert shelf.path.with_suffix(".json.damaged").read_bytes() == damage

    asyncio.run(story())


def test_two_damaged_files_are_refused_rather_than_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        await shelf.file.write(SECOND)
        shelf.path.write_bytes(b"{")
        shelf.path.with_suffix(".json.bak").write_bytes(b"{")
        with pytest.raises(CorruptRecord, match="remove the damaged files to begin with an empty"):
            shelf.read()

    asyncio.run(story())


def test_a_table_of_the_wrong_form_counts_as_damaged(tmp_path: Path) -> None:
    def accept(document: Mapping[str, object]) -> None:
        if document != FIRST:
            raise CorruptRecord("not the first")

    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        await shelf.file.write(SECOND)
        shelf.file.load(shelf.listener, accept)
        assert len(shelf.listener.facts) == 1

    asyncio.run(story())


def test_a_failed_write_leaves_the_version_before(tmp_path: Path) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        shelf.disk.fail_syncs = True
        with pytest.raises(StorageError):
            await shelf.file.write(SECOND)
        shelf.disk.fail_syncs = False
        assert shelf.read() == [FIRST]

    asyncio.run(story())


def test_a_cancelled_write_does_not_cross_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.file.write(FIRST)
        shelf.disk.hold_syncs = asyncio.Event()
        slow = asyncio.create_task(shelf.file.write(SECOND))
        await asyncio.sleep(0)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        following = asyncio.create_task(shelf.file.write(THIRD))
        await asyncio.sleep(0)
        shelf.disk.hold_syncs.set()
        await following
        assert shelf.read() == [THIRD]
        assert shelf.listener.facts == []

    asyncio.run(story())
