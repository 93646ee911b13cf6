"""Damage below the synced position on real files: what the terminal, the rows, the metric's source
and `tidemark store check` say of it, and what `strictStore` does instead.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import StorageError
from engine.foundation.limits import CUT_BYTES_KEPT_MAX, LOG_HOLES_TOLD_MAX
from engine.runtime import SystemDisk
from engine.store import PutResult
from engine.store.commands import app
from engine.store.commit_log import CommitLog
from engine.store.holes import Hole
from engine.store.mapped_file import FilePool
from engine.store.upkeep.cut_bytes import CutBytes
from tests.store_support import (
    Listener,
    abandon,
    draft,
    file_bytes,
    messages_over_holes,
    open_store,
    small_config,
    sync_config,
    turn,
)

FILE_BYTES = 4096
FAR = 1 << 40
SHAPE = ["--set", "maxHashSlotNum=50", "--set", "maxIndexNum=40"]


def played(root: Path, count: int, *, clean: bool, unsynced: int = 0) -> list[PutResult]:
    """So many messages in two queues, each flushed, and some more that are not."""
    return asyncio.run(_played(root, count, clean=clean, unsynced=unsynced))


async def _played(root: Path, count: int, *, clean: bool, unsynced: int) -> list[PutResult]:
    store = await open_store(sync_config(root))
    put = []
    for number in range(count + unsynced):
        body = b"%d:" % number + b"x" * 200
        properties = f"UNIQ_KEY\x01{number}\x02"
        put.append(store.put(draft(body, queue_id=number % 2, properties=properties)))
        if number < count:
            await store._flusher.flush_log("GROUP")
    await turn()
    if clean:
        await store.close()
    else:
        await abandon(store)
    return put


def opened(root: Path, **changes: object) -> tuple[list[int], Listener, int]:
    """Open; the numbers that consumers get, the facts, and the holes that are known."""
    return asyncio.run(_opened(root, **changes))


async def _opened(root: Path, **changes: object) -> tuple[list[int], Listener, int]:
    listener = Listener()
    store = await open_store(sync_config(root, **changes), listener)
    numbers = sorted(
        int(message.body.partition(b":")[0])
        for queue_id in (0, 1)
        for message in messages_over_holes(store, queue_id=queue_id)
    )
    holes = store.holes.count
    await store.close()
    return numbers, listener, holes


def flip(root: Path, physical_offset: int) -> None:
    path = root / "commitlog" / f"{physical_offset - physical_offset % FILE_BYTES:020d}"
    with path.open("r+b") as file:  # In place: a broker may have it mapped.
        file.seek(physical_offset % FILE_BYTES)
        (byte,) = file.read(1)
        file.seek(physical_offset % FILE_BYTES)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_a_missing_file_costs_its_messages_and_is_reported_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    put = played(tmp_path, 120, clean=clean)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    lost = [n for n, each in enumerate(put) if each.physical_offset // FILE_BYTES == 1]
    with caplog.at_level(logging.WARNING):
        numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(120) if n not in lost]
    assert holes == 1
    (row,) = listener.lifecycle("LOG_HOLE")
    assert row.detail == (
        f"commit log: hole [4096, 8192), 4096 bytes that were on disk and cannot be read (file "
        f"{FILE_BYTES:020d} is missing); {len(lost)} messages of 2 queues known to be lost; pulls "
        f"pass over it, everything else is kept"
    )
    assert (row.truncated_from, row.truncated_to) == (None, None), "no offset is given again"
    assert [record.message for record in caplog.records].count(str(row.detail)) == 1
    assert listener.recovery.truncated_from is None


def test_a_flipped_bit_costs_one_message_though_queues_are_built_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put = played(tmp_path, 120, clean=True)
    flip(tmp_path, put[16].physical_offset + 100)
    for folder in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        folder.unlink() if folder.is_file() else folder.rmdir()
    with caplog.at_level(logging.WARNING):
        numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(120) if n != 16]
    assert holes == 1
    (row,) = listener.lifecycle("LOG_HOLE")
    assert f"hole [{put[16].physical_offset}, {put[16].end_offset})" in str(row.detail)
    assert "1 messages of 1 queues" in str(row.detail), "its queue offset was left out"
    assert "is not as the last stop left it" in caplog.text


def test_a_flipped_bit_that_no_start_looks_at_is_reported_by_the_pull_that_meets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put = played(tmp_path, 120, clean=True)
    flip(tmp_path, put[16].physical_offset + 100)
    with caplog.at_level(logging.WARNING):
        numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(120) if n != 16]
    assert holes == 1
    (row,) = listener.lifecycle("LOG_HOLE")
    assert "does not match its CRC" in str(row.detail)
    assert str(row.detail) in caplog.text


@pytest.mark.parametrize(("byte", "bit"), [(7, 1), (1, 1), (8, 1), (9, 64)], ids=str)
def test_an_entry_that_leads_astray_makes_no_hole_in_a_sound_log(
    tmp_path: Path, byte: int, bit: int
) -> None:
    """Messages around the place it names are still there for everybody, and the next start makes it
    anew from the log: its own was never damaged.
    """
    put = played(tmp_path, 50, clean=True)
    queue = tmp_path / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    content = bytearray(queue.read_bytes())
    content[60 + byte] ^= bit  # Entry 3, message 7: beside its record, or of another length.
    queue.write_bytes(content)
    numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(50) if n != 7]
    assert put[7].queue_offset == 3
    assert holes == 0
    (reported,) = listener.lifecycle("LOG_HOLE")
    assert "another record lies where a queue leads" in str(reported.detail)
    numbers, listener, _ = opened(tmp_path)
    assert numbers == list(range(50))
    assert not listener.lifecycle("LOG_HOLE")


QUEUE_ID_AT, TOPIC_AT = 12 + 3, 88 + len(b"16:" + b"x" * 200) + 1
"""Of a record's bytes: the last of its queue id, the first of its topic."""


@pytest.mark.parametrize("at", [QUEUE_ID_AT, TOPIC_AT], ids=["queue id", "topic"])
def test_a_record_that_says_it_is_of_another_queue_is_not_answered_as_of_this_one(
    tmp_path: Path, at: int
) -> None:
    """No checksum covers what a record says of its queue: nobody gets it as what it is not."""
    put = played(tmp_path, 120, clean=True)
    flip(tmp_path, put[16].physical_offset + at)
    numbers, listener, holes = opened(tmp_path)
    assert numbers == [n for n in range(120) if n != 16]
    assert holes == 0, "who asks for the record itself gets it"
    (reported,) = listener.lifecycle("LOG_HOLE")
    assert "another record lies where a queue leads" in str(reported.detail)


@pytest.mark.parametrize("gone", ["consumequeue/TopicA/1", "index"])
def test_what_was_removed_after_a_clean_stop_is_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    """Else messages were hidden, and their queue offsets given a second time."""
    played(tmp_path, 50, clean=True)
    before = file_bytes(tmp_path)
    for path in (tmp_path / gone).iterdir():
        path.unlink()
    with caplog.at_level(logging.WARNING):
        numbers, _, _ = opened(tmp_path)
    assert numbers == list(range(50))
    assert "is not as the last stop left it" in caplog.text
    after = file_bytes(tmp_path)
    if gone != "index":  # Its files are called by the time at which they were made.
        assert after == before
    assert len(after) == len(before)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        opened(tmp_path)
    assert not caplog.records


def test_what_recovery_cuts_is_reported_with_figures_and_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put = played(tmp_path, 10, clean=False, unsynced=20)
    flip(tmp_path, put[10].physical_offset + 100)
    tail = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()[put[10].physical_offset :]
    with caplog.at_level(logging.WARNING):
        numbers, listener, _ = opened(tmp_path)
    assert numbers == list(range(10))
    begin, end = put[10].physical_offset, put[-1].end_offset
    (reported,) = [record.message for record in caplog.records]
    assert reported == str(listener.recovery.detail)
    assert f"{end - begin} bytes dropped with 19 sound records (kept in {tmp_path}/cut)" in reported
    kept = sorted((tmp_path / "cut").iterdir())
    assert kept[0].name.startswith(f"{begin:020d}.")
    assert kept[0].read_bytes() == tail
    assert sum(path.stat().st_size for path in kept) == end - begin


def test_a_flipped_bit_in_the_first_record_after_a_kill_is_no_silent_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was ever synced: all goes, and one line says so."""
    played(tmp_path, 0, clean=False, unsynced=12)
    flip(tmp_path, 5)
    with caplog.at_level(logging.WARNING):
        numbers, _, _ = opened(tmp_path)
    assert numbers == []
    assert "bytes dropped with 11 sound records" in caplog.text


def test_the_folder_of_cut_bytes_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    log = CommitLog(SystemDisk(), str(tmp_path / "commitlog"), 512, FilePool())
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(range(256)) * 2)
    log.load(0)
    aside = CutBytes(SystemDisk(), str(tmp_path / "cut"), bytes_max=300)
    assert aside.keep(log, 100, 300, now_ms=1) == f"kept in {tmp_path}/cut"
    assert aside.keep(log, 200, 300, now_ms=2) == f"kept in {tmp_path}/cut"
    assert len(list((tmp_path / "cut").iterdir())) == 2
    assert "the first 300 of them" in aside.keep(log, 10, 500, now_ms=3)
    (kept,) = (tmp_path / "cut").iterdir()
    assert kept.name == f"{10:020d}.3"
    assert kept.read_bytes() == (bytes(range(256)) * 2)[10:310]
    assert CUT_BYTES_KEPT_MAX >= 1 << 20
    log.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_a_strict_store_refuses_in_one_sentence_and_changes_nothing(
    tmp_path: Path, clean: bool
) -> None:
    put = played(tmp_path, 120, clean=clean)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    before = file_bytes(tmp_path)
    with pytest.raises(StorageError, match=r"strictStore is on.*hole \[4096, 8192\)") as refused:
        opened(tmp_path, strict_store=True)
    assert "\n" not in str(refused.value)
    assert file_bytes(tmp_path) == before
    assert len(opened(tmp_path)[0]) < len(put)


def test_a_strict_store_that_is_sound_opens(tmp_path: Path) -> None:
    played(tmp_path, 60, clean=False, unsynced=3)
    assert opened(tmp_path, strict_store=True)[0] == list(range(63))
    assert opened(tmp_path, strict_store=True)[0] == list(range(63))


def checked(root: Path, *words: str) -> tuple[int, str]:
    """`tidemark store check`: exit code and what it says. Nothing may change."""
    before = file_bytes(root)
    answer = CliRunner().invoke(app, ["store", "check", str(root), *SHAPE, *words])
    assert file_bytes(root) == before
    return answer.exit_code, answer.output


async def test_what_was_reported_does_not_silence_what_readers_come_upon(tmp_path: Path) -> None:
    put = await _played(tmp_path, 500, clean=True, unsynced=0)
    listener = Listener()
    store = await open_store(sync_config(tmp_path), listener)
    for number in range(LOG_HOLES_TOLD_MAX + 1):
        store.holes.add(Hole(FAR + 10 * number, FAR + 10 * number + 5, "known before"))
    for each in put[:450:4]:
        flip(tmp_path, each.physical_offset + 100)
    read = sum(len(messages_over_holes(store, queue_id=queue_id)) for queue_id in (0, 1))
    assert read == len(put) - len(put[:450:4])
    rows = [str(row.detail) for row in listener.lifecycle("LOG_HOLE")]
    assert len(rows) == LOG_HOLES_TOLD_MAX < len(put[:450:4])
    last = "more that are met before the next start are in the metrics alone"
    assert [last in row for row in rows] == [False] * (LOG_HOLES_TOLD_MAX - 1) + [True]
    await store.close()


def test_a_check_names_each_hole(tmp_path: Path) -> None:
    hit = played(tmp_path, 500, clean=True)[::4]
    assert len(hit) > LOG_HOLES_TOLD_MAX
    for each in hit:
        flip(tmp_path, each.physical_offset + 100)
    code, said = checked(tmp_path)
    assert (code, said.count("commit log: hole [")) == (3, len(hit))
    assert "further holes" not in said


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_a_check_of_a_sound_store_says_so(tmp_path: Path, clean: bool) -> None:
    put = played(tmp_path, 50, clean=clean)
    code, said = checked(tmp_path)
    assert code == 0, said
    assert f"commit log [0, {put[-1].end_offset}): 50 sound records" in said
    assert said.endswith("sound\n")


def test_a_check_shows_every_hole_and_what_it_held(tmp_path: Path) -> None:
    put = played(tmp_path, 120, clean=True)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    flip(tmp_path, put[-1].physical_offset + 100)
    code, said = checked(tmp_path)
    lost = sum(each.physical_offset // FILE_BYTES == 1 for each in put)
    assert code == 3
    assert "hole [4096, 8192), 4096 bytes that were on disk and cannot be read (file" in said
    assert f"{lost} messages of 2 queues known to be lost" in said
    assert f"hole [{put[-1].physical_offset}, {put[-1].end_offset})" in said
    assert said.endswith("damaged\n")


def test_a_check_shows_entries_that_lead_nowhere_and_indexes_that_cannot_be(tmp_path: Path) -> None:
    played(tmp_path, 50, clean=True)
    queue = tmp_path / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    content = bytearray(queue.read_bytes())
    content[63] ^= 1
    queue.write_bytes(content)
    index = min((tmp_path / "index").iterdir())
    content = bytearray(index.read_bytes())
    content[40 + 50 * 4 + 20 * 5 + 4] ^= 0x40
    index.write_bytes(content)
    code, said = checked(tmp_path)
    assert code == 3
    assert "consume queue TopicA/1: entry 3 does not lead to its message" in said
    assert "consume queue TopicA/1: 1 entries lead to no message of the log" in said
    assert f"index file {index.name}: entry 5 names a message at" in said


async def test_a_check_counts_what_is_not_synced_and_judges_it_not(tmp_path: Path) -> None:
    """As beside a running broker, which holds the lock."""
    store = await open_store(small_config(tmp_path))
    for number in range(30):
        store.put(draft(b"%d" % number))
    await turn()
    answer = await asyncio.to_thread(checked, tmp_path)
    await store.close()
    (code, said) = answer
    assert code == 0, said
    assert "the last stop was not clean, or a broker is running" in said
    assert "30 sound records, synced to 0" in said
    assert "30 entries of consume queues are still to be written" in said


def test_a_check_where_no_store_is_says_so(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["store", "check", str(tmp_path / "nowhere")])
    assert answer.exit_code == 1
    assert "no store is there" in answer.output
    assert not (tmp_path / "nowhere").exists()
    answer = CliRunner().invoke(app, ["store", "check", str(tmp_path), "--set", "colour=red"])
    assert answer.exit_code == 1
    assert "colour" in answer.output
