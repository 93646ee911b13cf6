"""One process at a time has a store folder, and settings must fit the files in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, StorageError
from tests.store_support import bodies_of, draft, file_bytes, open_store, small_config, turn

APPENDING = "tests.integration.store.appending_process"
ROOT = Path(__file__).parents[3]


def start_another(root: Path) -> subprocess.CompletedProcess[str]:
    """A process that would append to the store in `root` for ever, if it could open it."""
    return subprocess.run(
        [sys.executable, "-m", APPENDING, str(root), "ASYNC_FLUSH", "0"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )


async def test_a_second_process_is_refused_with_one_clear_sentence(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    other = await asyncio.to_thread(start_another, tmp_path)
    assert other.returncode != 0
    last_line = other.stderr.strip().splitlines()[-1]
    assert "is in use by another process" in last_line
    assert str(tmp_path) in last_line
    store.put(draft(b"undisturbed"))
    await turn()
    assert bodies_of(store) == [b"undisturbed"]
    await store.close()


async def test_a_second_opening_in_the_same_process_is_refused_until_the_first_is_closed(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    with pytest.raises(StorageError, match="in use by another process"):
        await open_store(small_config(tmp_path))
    await store.close()
    await (await open_store(small_config(tmp_path))).close()


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("mappedFileSizeCommitLog", {"mapped_file_size_commit_log_bytes": 1024}),
        ("mappedFileSizeCommitLog", {"mapped_file_size_commit_log_bytes": 6144}),
        ("mappedFileSizeConsumeQueue", {"mapped_file_size_consume_queue_bytes": 80}),
    ],
)
async def test_other_file_sizes_are_refused_by_the_setting_s_name_and_nothing_is_touched(
    tmp_path: Path, key: str, changes: dict[str, int]
) -> None:
    store = await open_store(small_config(tmp_path))
    for number in range(100):
        store.put(draft(b"%d" % number))
        await turn()
    await store.close()
    before = file_bytes(tmp_path)
    with pytest.raises(ConfigError, match=key):
        await open_store(small_config(tmp_path, **changes))
    assert file_bytes(tmp_path) == before
    store = await open_store(small_config(tmp_path))
    assert bodies_of(store) == [b"%d" % number for number in range(100)]
    await store.close()


async def test_the_abort_file_stands_while_the_store_is_open_and_goes_with_a_clean_stop(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    assert (tmp_path / "abort").read_text(encoding="ascii").isdigit()
    await store.close()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"
