"""A table on disk beside its last version, whatever happens while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.observing import LifecycleEvent
from engine.protocol.fastjson import dumps
from engine.runtime import system_runtime
from engine.store.table_file import TableFile, sealed, store_id_of
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


async def test_the_last_version_is_read_and_the_one_before_is_kept(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    assert shelf.read() == [SECOND]
    assert shelf.listener.facts == []


async def test_a_missing_file_falls_back_to_the_version_before_and_that_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    shelf.path.unlink()
    assert shelf.read() == [FIRST]
    (reported,) = shelf.listener.facts
    assert isinstance(reported, LifecycleEvent)
    assert reported.kind == "DAMAGED_FILE"
    said = f"{shelf.path} is missing; read {shelf.path}.bak instead"
    assert reported.detail == said
    assert said in caplog.text


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "torn"])
async def test_a_write_cut_between_its_two_renames_is_finished(
    tmp_path: Path, is_whole: bool
) -> None:
    """The fresh version was synced before them; nothing is lost and nothing to report."""
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    backup, fresh = (shelf.path.with_suffix(f".json.{end}") for end in ("bak", "tmp"))
    third = sealed(dumps(THIRD), 1, None)
    shelf.path.rename(backup)
    fresh.write_bytes(third if is_whole else third[:9])
    assert shelf.read() == [THIRD if is_whole else SECOND]
    assert len(shelf.listener.facts) == (0 if is_whole else 1)
    assert shelf.path.exists() == is_whole


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b'{"offsetTable":{', b"[1,2]", b"\xff\xfe"])
async def test_a_damaged_file_falls_back_and_is_reported_and_kept(
    tmp_path: Path, damage: bytes
) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    shelf.path.write_bytes(damage)
    assert shelf.read() == [FIRST]
    (reported,) = shelf.listener.facts
    assert isinstance(reported, LifecycleEvent)
    assert reported.kind == "DAMAGED_FILE"
    assert shelf.path.with_suffix(".json.damaged").read_bytes() == damage


async def test_two_damaged_files_are_refused_rather_than_forgotten(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    shelf.path.write_bytes(b"{")
    shelf.path.with_suffix(".json.bak").write_bytes(b"{")
    with pytest.raises(CorruptRecord, match="remove the damaged files to begin with an empty"):
        shelf.read()


async def test_a_table_of_the_wrong_form_counts_as_damaged(tmp_path: Path) -> None:
    def accept(document: Mapping[str, object]) -> None:
        if document != FIRST:
            raise CorruptRecord("not the first")

    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    shelf.file.load(shelf.listener, accept)
    assert len(shelf.listener.facts) == 1


async def test_a_failed_write_leaves_the_version_before(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    shelf.disk.fail_syncs = True
    with pytest.raises(StorageError):
        await shelf.file.write(SECOND)
    shelf.disk.fail_syncs = False
    assert shelf.read() == [FIRST]


async def test_a_cancelled_write_does_not_cross_the_next_one(tmp_path: Path) -> None:
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


async def test_a_file_that_was_changed_is_taken_and_that_is_reported(tmp_path: Path) -> None:
    """By hand, or one bit of it: both leave a good document that says something else."""
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    shelf.path.write_bytes(shelf.path.read_bytes().replace(b'"0":1', b'"0":3'))
    assert shelf.read() == [THIRD]
    (reported,) = shelf.listener.lifecycle("CHANGED_FILE")
    assert f"{shelf.path} is not as it was written" in str(reported.detail)


async def test_a_file_of_another_broker_has_no_checksum_and_is_not_reported(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.path.parent.mkdir()
    shelf.path.write_bytes(dumps(FIRST))
    assert shelf.read() == [FIRST]
    assert shelf.listener.facts == []


async def test_a_file_swapped_with_the_version_before_is_noticed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    await shelf.file.write(FIRST)
    await shelf.file.write(SECOND)
    backup = shelf.path.with_suffix(".json.bak")
    content, before = shelf.path.read_bytes(), backup.read_bytes()
    shelf.path.write_bytes(before)
    backup.write_bytes(content)
    assert shelf.read() == [SECOND], "the newer one counts"
    (reported,) = shelf.listener.lifecycle("DAMAGED_FILE")
    assert f"{shelf.path} is older than {backup}" in str(reported.detail)


async def test_a_file_of_another_store_is_refused_and_the_version_before_is_read(
    tmp_path: Path,
) -> None:
    shelf = Shelf(tmp_path)
    runtime, path = system_runtime(), str(shelf.path)
    own, other = (TableFile(runtime, path, name * 16) for name in "ab")
    await own.write(FIRST)
    await other.write(SECOND)
    found: list[Mapping[str, object]] = []
    own.load(shelf.listener, found.append)
    assert found == [FIRST]
    (reported,) = shelf.listener.lifecycle("DAMAGED_FILE")
    assert f"{path} is of another store, {'b' * 16}" in str(reported.detail)


async def test_a_stores_id_is_that_of_most_of_its_tables(tmp_path: Path) -> None:
    runtime = system_runtime()
    first = store_id_of(runtime, str(tmp_path))
    assert store_id_of(runtime, str(tmp_path)) != first, "nothing holds it yet"
    for name, store_id in (("x", "aa"), ("y", "bb"), ("z", "bb")):
        await TableFile(runtime, f"{tmp_path}/{name}.json", store_id).write(FIRST)
    assert store_id_of(runtime, str(tmp_path)) == "bb"
