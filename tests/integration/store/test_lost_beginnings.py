"""What nobody can see in the files that are left: the log's first files are gone, or the checkpoint
that says how far everything was synced. Nothing sound is destroyed for it, and what is missing is
reported.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import StorageError
from engine.foundation.units import DAY_MS
from engine.store.commands import app
from engine.store.upkeep.checkpoint import Checkpoint, decode_checkpoint
from tests.integration.store.test_damage_is_reported import FILE_BYTES, SHAPE, flip, opened, played
from tests.store_support import (
    START_MS,
    HandClock,
    Listener,
    abandon,
    draft,
    open_store,
    runtime_on,
    small_config,
    sync_config,
    turn,
)

STOPS = pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])


def file_of(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * FILE_BYTES:020d}"


@STOPS
def test_the_first_files_of_the_log_are_missed_like_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    put = played(tmp_path, 120, clean=clean)
    file_of(tmp_path, 0).unlink()
    file_of(tmp_path, 1).unlink()
    left = [n for n, each in enumerate(put) if each.physical_offset >= 2 * FILE_BYTES]
    checked = CliRunner().invoke(app, ["store", "check", str(tmp_path), *SHAPE])
    with pytest.raises(StorageError, match=r"strictStore is on: commit log: hole \[0, 8192\)"):
        opened(tmp_path, strict_store=True)
    with caplog.at_level(logging.WARNING):
        numbers, listener, holes = opened(tmp_path)
    assert numbers == left
    assert holes == 1
    (row,) = listener.lifecycle("LOG_HOLE")
    known = f"{120 - len(left)} messages of 2 queues" if clean else "0 messages of 0 queues"
    assert row.detail == (
        f"commit log: hole [0, 8192), 8192 bytes that were on disk and cannot be read (file "
        f"{0:020d} is missing); {known} known to be lost; pulls pass over it, everything else is "
        f"kept"
    )
    assert [record.message for record in caplog.records].count(str(row.detail)) == 1
    assert checked.exit_code == 3
    assert str(row.detail) in checked.output
    assert "faults" not in checked.output, "entries of lost messages are no faults of their own"
    assert "does not lead" not in checked.output
    again, listener, _ = opened(tmp_path)
    assert again == left
    assert not listener.lifecycle("LOG_HOLE"), "it is reported once"


@STOPS
async def test_what_retention_let_go_is_not_missed(tmp_path: Path, clean: bool) -> None:
    config = small_config(tmp_path, file_reserved_time_ms=1)
    store = await open_store(config, runtime=runtime_on(clock=HandClock(START_MS)))
    for number in range(120):
        store.put(draft(b"%d:" % number + b"x" * 200, queue_id=number % 2))
    await turn()
    await store._flusher.flush_log("TIMER")
    count = await store.retention.run(START_MS + 100_000 * DAY_MS, by_hand=True)
    assert count > 1
    if clean:
        await store.close()
    else:
        await abandon(store)
    listener = Listener()
    store = await open_store(config, listener)
    assert store.physical_min == count * FILE_BYTES
    assert not listener.lifecycle("LOG_HOLE")
    await store.close()
    assert CliRunner().invoke(app, ["store", "check", str(tmp_path), *SHAPE]).exit_code == 0


def lose(root: Path, how: str) -> None:
    checkpoint = root / "checkpoint"
    content = checkpoint.read_bytes()
    if how == "missing":
        checkpoint.unlink()
    elif how == "earlier times":  # A flipped bit: nobody writes times that are earlier.
        times = bytearray(content)
        times[0:8] = (7).to_bytes(8, "big")
        checkpoint.write_bytes(times)
    else:
        checkpoint.write_bytes({"empty": b"", "short": content[:30], "zeros": bytes(4096)}[how])


@STOPS
@pytest.mark.parametrize("how", ["missing", "empty", "short", "zeros", "earlier times"])
@pytest.mark.parametrize("damage", ["flipped bit", "missing file"])
def test_without_a_checkpoint_damage_costs_what_it_hit_and_no_more(
    tmp_path: Path, clean: bool, how: str, damage: str
) -> None:
    put = played(tmp_path, 120, clean=clean)
    files = sorted(each.name for each in (tmp_path / "commitlog").iterdir())
    if damage == "flipped bit":
        flip(tmp_path, put[16].physical_offset + 100)
        lost = [16]
    else:
        file_of(tmp_path, 1).unlink()
        files.remove(f"{FILE_BYTES:020d}")
        lost = [n for n, each in enumerate(put) if each.physical_offset // FILE_BYTES == 1]
    lose(tmp_path, how)
    if how in {"missing", "short"}:
        for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(120) if n not in lost]
    assert holes == 1
    assert len(listener.lifecycle("LOG_HOLE")) == 1
    assert set(files) <= {each.name for each in (tmp_path / "commitlog").iterdir()}


@pytest.mark.parametrize("how", ["missing", "empty", "short", "zeros", "note"])
@pytest.mark.parametrize("damage", ["file", "folder", "newest half"])
def test_a_queue_that_is_lost_with_the_checkpoint_is_built_again(
    tmp_path: Path, how: str, damage: str
) -> None:
    """After a clean stop nothing else shows that it was there."""
    played(tmp_path, 120, clean=True)
    if how == "note":
        content = bytearray((tmp_path / "checkpoint").read_bytes())
        content[330] ^= 1
        (tmp_path / "checkpoint").write_bytes(content)
    else:
        lose(tmp_path, how)
    folder = tmp_path / "consumequeue" / "TopicA" / "0"  # The log ends with a message of 1.
    files = sorted(folder.iterdir())
    for path in {"file": files[-1:], "folder": files, "newest half": files[4:]}[damage]:
        path.unlink()
    numbers, _, _ = opened(tmp_path)
    assert numbers == list(range(120))


@STOPS
def test_a_log_that_is_gone_with_its_checkpoint_is_known_from_the_queues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    put = played(tmp_path, 120, clean=clean)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    (tmp_path / "checkpoint").unlink()
    with caplog.at_level(logging.WARNING):
        numbers, listener, _ = opened(tmp_path)
    assert numbers == []
    known = put[-1].end_offset if clean else None
    reported = [str(row.detail) for row in listener.lifecycle("DAMAGED_FILE")]
    if known is not None:
        assert any(
            f"the commit log ends at 0, though consume queues know of messages up to {known}"
            in words
            for words in reported
        ), reported
    assert all(words in caplog.text for words in reported)


async def test_a_store_notes_where_its_log_begins_before_anything_is_put(tmp_path: Path) -> None:
    """So a log beside a blank checkpoint has lost it, and is no store that has just been made."""
    store = await open_store(sync_config(tmp_path))
    noted = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    await abandon(store)
    assert noted == Checkpoint(log_begin=0)
    assert not noted.is_blank
    assert Checkpoint(written_offset=5).is_blank


@pytest.mark.parametrize("cut", [1, 19, 21])
def test_a_check_reads_a_queue_file_that_was_cut_anywhere(tmp_path: Path, cut: int) -> None:
    """It changes nothing, so it has to do with what is there."""
    played(tmp_path, 120, clean=True)
    for name in ("00000000000000000000", "00000000000000000960"):
        path = tmp_path / "consumequeue" / "TopicA" / "0" / name
        path.write_bytes(path.read_bytes()[:cut])
    checked = CliRunner().invoke(app, ["store", "check", str(tmp_path), *SHAPE])
    assert checked.exit_code == 3, checked.exception
    assert "damaged" in checked.output
    numbers, _, _ = opened(tmp_path)
    assert numbers == list(range(120))
