"""Row C6: the commit log's files: nothing runs past an end, the next file is there before it is
needed, sizes that the formats cannot address are refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, FileTooLarge
from engine.foundation.limits import STORE_FILE_BYTES_MAX
from engine.foundation.units import GIB
from engine.runtime import SystemDisk
from engine.store import StoreConfig
from engine.store.commit_log import CommitLog, PooledCommitLog
from engine.store.mapped_file import FilePool
from tests.failing_disk import FailingDisk
from tests.store_support import bodies_of, draft, open_store, runtime_on, small_config, turn


@pytest.mark.parametrize("kind", [CommitLog, PooledCommitLog])
def test_a_write_past_a_files_end_is_refused_by_name_and_writes_nothing(
    tmp_path: Path, kind: type[CommitLog]
) -> None:
    log = kind(SystemDisk(), str(tmp_path), 512, FilePool())
    with pytest.raises(FileTooLarge, match="ask for a place first"):
        log.append(b"without a place")
    log.place_for(100)
    log.append(bytes(100))
    with pytest.raises(FileTooLarge, match="413 bytes at 100 run past the end"):
        log.append(bytes(413))
    with pytest.raises(FileTooLarge, match="raise mappedFileSizeCommitLog"):
        log.place_for(505)
    assert log.end_offset == 100
    log.commit_pool()
    assert (tmp_path / f"{0:020d}").stat().st_size == 512
    log.close()


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("mappedFileSizeCommitLog", {"mapped_file_size_commit_log_bytes": 2 * GIB}),
        (
            "mappedFileSizeConsumeQueue",
            {"mapped_file_size_consume_queue_bytes": 2 * GIB // 20 * 20 + 20},
        ),
        ("maxIndexNum", {"max_index_count": 2 * GIB // 20}),
    ],
)
def test_a_file_of_2_gib_or_more_is_refused(key: str, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=key):
        StoreConfig("/store", **settings)
    assert StoreConfig("/store", mapped_file_size_commit_log_bytes=STORE_FILE_BYTES_MAX)


async def test_the_roll_finds_its_file_made_allocated_and_synced_ahead(tmp_path: Path) -> None:
    """The put that rolls only writes a blank and opens a name: no allocation, no new file."""
    disk = FailingDisk()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(disk))
    store.put(draft(bytes(1000)))
    await store._flusher._spares.make()
    assert not (tmp_path / "commitlog" / f"{4096:020d}").exists(), "not before it is half full"
    store.put(draft(bytes(1500)))
    await store._flusher._spares.make()
    spare = tmp_path / "commitlog" / f"{4096:020d}"
    assert spare.stat().st_blocks * 512 >= 4096, "its room is reserved"
    assert [line for line in disk.log if "making" in line] == [
        f"sync commitlog/{spare.name}.making"
    ]
    disk.free_bytes = 0  # A roll that had to make its file would fail now.
    assert store.put(draft(bytes(1500))).physical_offset == 4096
    await turn()
    assert [len(body) for body in bodies_of(store)] == [1000, 1500, 1500]
    await store.close()


async def test_a_spare_that_was_not_begun_goes_with_a_clean_stop(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    store.put(draft(bytes(3000)))
    await store._flusher._spares.make()
    await store.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
