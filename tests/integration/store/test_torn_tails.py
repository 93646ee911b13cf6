"""Real files, cut, zeroed and bent after a crash: recovery keeps exactly the valid prefix.

Every message has its number as body; what remains must be 0, 1, 2, ... without a hole, and the
recovery report must say how many bytes went.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.foundation.observing import LifecycleEvent
from engine.runtime import Runtime
from engine.store import MessageStore, PutResult
from tests.failing_disk import FailingDisk
from tests.store_support import (
    Listener,
    abandon,
    bodies_of,
    draft,
    file_bytes,
    messages_of,
    open_store,
    runtime_on,
    small_config,
    turn,
)

BODY_BYTES = 40
LOG_BYTES = 4096
Bend = Callable[[Path], None]


def unsynced() -> Runtime:
    """Real files without syncs: here files are cut by hand, over hundreds of lives."""
    disk = FailingDisk()
    disk.skip_syncs = True
    return runtime_on(disk)


def body(number: int) -> bytes:
    return str(number).encode().ljust(BODY_BYTES, b".")


def crashed_store(root: Path, count: int) -> list[PutResult]:
    """A store that was killed after `count` messages, dealt to two queues in turn."""
    return asyncio.run(_crashed_store(root, count))


async def _crashed_store(root: Path, count: int) -> list[PutResult]:
    store = await open_store(small_config(root), runtime=unsynced())
    results = [store.put(draft(body(n), queue_id=n % 2)) for n in range(count)]
    await turn()
    for queue in store._queues.all():
        queue.write_out()  # As by a flush that the kill cut short.
    await abandon(store)
    return results


def survivors(root: Path) -> tuple[list[bytes], LifecycleEvent, list[LifecycleEvent]]:
    """Recover; the bodies in log order, the report, the reports of damage.

    A second recovery must find nothing more to do, and the store must take new messages.
    """
    return asyncio.run(_survivors(root))


async def _survivors(
    root: Path,
) -> tuple[list[bytes], LifecycleEvent, list[LifecycleEvent]]:
    listener = Listener()
    store = await open_store(small_config(root), listener, unsynced())
    found = sorted(
        [*messages_of(store), *messages_of(store, queue_id=1)],
        key=lambda message: message.physical_offset,
    )
    await abandon(store)
    after_first = file_bytes(root, leave_out=("abort", "checkpoint"))
    again = Listener()
    store = await open_store(small_config(root), again, unsynced())
    assert again.recovery.truncated_from is None, again.recovery
    assert file_bytes(root, leave_out=("abort", "checkpoint")) == after_first
    await check_it_goes_on(store)
    await store.close()
    return (
        [message.body for message in found],
        listener.recovery,
        listener.lifecycle("DAMAGED_FILE"),
    )


async def check_it_goes_on(store: MessageStore) -> None:
    before = store.max_offset("TopicA", 0)
    assert store.put(draft(b"afterwards")).queue_offset == before
    await turn()
    assert bodies_of(store)[-1] == b"afterwards"


def test_the_last_record_cut_at_every_byte(tmp_path: Path) -> None:
    results = crashed_store(tmp_path / "whole", 7)
    last = results[-1]
    assert last.end_offset - last.physical_offset == 88 + BODY_BYTES + 1 + 6 + 2 + 10
    log = tmp_path / "whole" / "commitlog" / f"{0:020d}"
    for cut_at in range(last.physical_offset, last.end_offset):
        root = tmp_path / f"cut-{cut_at}"
        shutil.copytree(tmp_path / "whole", root)
        (root / "commitlog" / log.name).write_bytes(log.read_bytes()[:cut_at])
        bodies, report, _ = survivors(root)
        assert bodies == [body(n) for n in range(6)], cut_at
        torn_bytes = len(log.read_bytes()[last.physical_offset : cut_at].rstrip(b"\0"))
        if torn_bytes:
            assert report.truncated_from == last.physical_offset, cut_at
            assert report.truncated_to == last.physical_offset + torn_bytes, cut_at
            assert f"{torn_bytes} bytes dropped" in str(report.detail)
        else:
            assert report.truncated_from is None, cut_at
        shutil.rmtree(root)


def test_a_file_cut_at_the_end_of_its_last_record_loses_nothing(tmp_path: Path) -> None:
    results = crashed_store(tmp_path, 7)
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[: results[-1].end_offset])
    bodies, report, damaged = survivors(tmp_path)
    assert bodies == [body(n) for n in range(7)]
    assert report.truncated_from is None
    assert "zeros were added" in str(damaged[0].detail)


# What a flipped bit can hit: offsets inside a record with IPv4 hosts, and whether it can be seen.
# Born time, hosts, store time, flag, retries and the transaction offset have no check of their own.
SEEN = [
    pytest.param(0, id="size"),
    pytest.param(4, id="magic"),
    pytest.param(8, id="body crc"),
    pytest.param(15, id="queue id"),
    pytest.param(27, id="queue offset"),
    pytest.param(35, id="physical offset"),
    pytest.param(84, id="body length"),
    pytest.param(88, id="first byte of the body"),
    pytest.param(88 + BODY_BYTES - 1, id="last byte of the body"),
    pytest.param(88 + BODY_BYTES, id="topic length"),
    pytest.param(88 + BODY_BYTES + 1 + len("TopicA") + 1, id="properties length"),
]


@pytest.mark.parametrize("position", SEEN)
@pytest.mark.parametrize("bit", [0, 3, 6])
def test_a_flipped_bit_ends_the_log_before_its_record(
    tmp_path: Path, position: int, bit: int
) -> None:
    results = crashed_store(tmp_path, 12)
    victim = results[9]
    flip(tmp_path / "commitlog" / f"{0:020d}", victim.physical_offset + position, bit)
    bodies, report, _ = survivors(tmp_path)
    assert bodies == [body(n) for n in range(9)]
    assert report.truncated_from == victim.physical_offset
    assert report.truncated_to == results[-1].end_offset
    dropped_bytes = results[-1].end_offset - victim.physical_offset
    assert f"{dropped_bytes} bytes dropped" in str(report.detail)


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("page", [0, 512, 1024, 2048, 3072])
def test_a_zeroed_page_ends_the_log_before_the_first_record_it_hits(
    tmp_path: Path, page: int
) -> None:
    results = crashed_store(tmp_path, 30)  # Two commit-log files; the page is in the first.
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[page : page + 512] = bytes(512)
    path.write_bytes(content)
    kept = sum(result.end_offset <= page for result in results)
    bodies, report, _ = survivors(tmp_path)
    assert bodies == [body(n) for n in range(kept)]
    assert report.truncated_from == results[kept].physical_offset
    assert report.truncated_to == results[-1].end_offset


async def test_stale_bytes_behind_a_cut_never_come_back(tmp_path: Path) -> None:
    """A new record as long as the bad one replaces it; the good old one behind it stays gone."""
    results = await _crashed_store(tmp_path, 12)
    flip(tmp_path / "commitlog" / f"{0:020d}", results[9].physical_offset + 88, 0)
    store = await open_store(small_config(tmp_path), runtime=unsynced())
    replaced = store.put(draft(body(99), queue_id=1))
    assert replaced.physical_offset == results[9].physical_offset
    assert replaced.size_bytes == results[9].size_bytes
    await turn()
    await abandon(store)
    store = await open_store(small_config(tmp_path), runtime=unsynced())
    assert store.physical_max == replaced.end_offset
    assert bodies_of(store, queue_id=1) == [body(n) for n in (1, 3, 5, 7, 99)]
    await store.close()


def test_a_damaged_consume_queue_is_built_again_from_the_log(tmp_path: Path) -> None:
    crashed_store(tmp_path, 30)
    queue_file = tmp_path / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    content = bytearray(queue_file.read_bytes())
    content[40:80] = bytes(40)  # Units 2 and 3 never reached the disk.
    queue_file.write_bytes(content)
    bodies, report, _ = survivors(tmp_path)
    assert bodies == [body(n) for n in range(30)]
    assert report.truncated_from is None


def test_queues_ahead_of_a_cut_log_are_cut_to_it(tmp_path: Path) -> None:
    results = crashed_store(tmp_path, 30)
    second = tmp_path / "commitlog" / f"{LOG_BYTES:020d}"
    second.unlink()
    kept = sum(result.end_offset <= LOG_BYTES for result in results)
    bodies, _, _ = survivors(tmp_path)
    assert bodies == [body(n) for n in range(kept)]


def test_a_missing_file_beyond_what_was_synced_ends_the_log(tmp_path: Path) -> None:
    results = crashed_store(tmp_path, 60)
    (tmp_path / "commitlog" / f"{LOG_BYTES:020d}").unlink()
    kept = sum(result.end_offset <= LOG_BYTES for result in results)
    bodies, report, damaged = survivors(tmp_path)
    assert bodies == [body(n) for n in range(kept)]
    assert (report.truncated_from, report.truncated_to) == (LOG_BYTES, results[-1].end_offset)
    assert not damaged


@pytest.mark.parametrize("name", ["checkpoint", "index"])
def test_lost_or_damaged_derived_files_cost_no_message(tmp_path: Path, name: str) -> None:
    crashed_store(tmp_path, 30)
    if name == "checkpoint":
        (tmp_path / "checkpoint").write_bytes(b"\xff" * 100)
    else:
        for path in (tmp_path / "index").iterdir():
            path.write_bytes(b"short")
    bodies, report, _ = survivors(tmp_path)
    assert bodies == [body(n) for n in range(30)]
    assert report.truncated_from is None


def test_an_empty_store_folder_and_one_with_an_empty_file_both_start(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    (tmp_path / "commitlog" / f"{4096:020d}.making").write_bytes(b"half made")
    (tmp_path / "abort").touch()
    bodies, report, damaged = survivors(tmp_path)
    assert bodies == []
    assert report.clean is False
    assert "was empty" in str(damaged[0].detail)
    assert not list((tmp_path / "commitlog").glob("*.making"))
