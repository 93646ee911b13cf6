"""The note of where consume queues begin and end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import CorruptRecord
from engine.runtime.disk import SystemDisk
from engine.store.commit_log import CommitLog
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.upkeep.noted_ends import (
    QUEUES_PER_STEP,
    EndsNote,
    NotedEnd,
    NotedEnds,
    decode_note,
    lacking_queues,
)
from engine.store.upkeep.queue_flush import QueueFlush
from tests.steps import heard, passes_counted
from tests.store_support import small_config

Key = tuple[str, int]
offsets = st.integers(0, (1 << 63) - 1)
sums = st.integers(0, (1 << 32) - 1)
notes = st.builds(
    EndsNote,
    offsets,
    offsets,
    offsets,
    st.tuples(sums, sums),
    st.dictionaries(
        st.tuples(st.text(max_size=20).filter(lambda name: name.isprintable()), st.integers(0, 99)),
        st.builds(NotedEnd, offsets, offsets, offsets),
        max_size=5,
    ),
)


@given(notes)
def test_what_is_noted_is_read_again(note: EndsNote) -> None:
    assert decode_note(note.encode()) == note


@given(notes, st.data())
def test_a_note_that_is_not_as_it_was_written_says_nothing(
    note: EndsNote, data: st.DataObject
) -> None:
    content = bytearray(note.encode())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecord):
        decode_note(bytes(content))
    with pytest.raises(CorruptRecord):
        decode_note(note.encode()[: bit // 8])


def queues_below(folder: Path) -> QueueTable:
    return QueueTable(SystemDisk(), f"{folder}/consumequeue", 160, FilePool())


def noted_ends(folder: Path, queues: QueueTable, dispatched: int = 0) -> NotedEnds:
    (folder / "commitlog").mkdir(exist_ok=True)
    log = CommitLog(SystemDisk(), f"{folder}/commitlog", 4096, FilePool())
    return NotedEnds(
        SystemDisk(), str(folder), log=log, queues=queues, dispatched=lambda: dispatched
    )


async def test_only_what_is_on_stable_storage_is_noted(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    queue = queues.find_or_add("T", 0)
    queue.append([(0, 100, 0), (100, 100, 0)])
    queues.note_written(("T", 0), queue)

    async def synced(files: list, folders: list) -> None:  # type: ignore[type-arg]
        for file in files:
            queue.append([(200, 100, 0)])  # While the disk is at it.
            file.unpin()

    await QueueFlush(queues, lambda: 0, synced).flush(small_config(tmp_path), everything=True)
    queues.find_or_add("T", 1).append([(300, 100, 0)])
    ends = noted_ends(tmp_path, queues)
    await ends.write(300, 400)
    assert decode_note(Path(ends.path).read_bytes()).ends == {("T", 0): NotedEnd(0, 2, 200)}


async def test_few_queues_are_noted_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = queues_below(tmp_path)
    for number in range(3 * QUEUES_PER_STEP):
        queues.find_or_add("T", number)
    noted_in: list[int] = []
    async with passes_counted() as passes:
        heard(monkeypatch, QueueTable, "find", lambda *args: noted_in.append(passes()))
        await noted_ends(tmp_path, queues).write(0, 0)
    assert len(noted_in) == 3 * QUEUES_PER_STEP
    assert max(noted_in.count(step) for step in set(noted_in)) <= QUEUES_PER_STEP


def test_a_note_is_due_when_the_log_goes_on_to_another_file(tmp_path: Path) -> None:
    ends = noted_ends(tmp_path, queues_below(tmp_path))
    assert not ends.is_due(4095)
    assert ends.is_due(4096)


@pytest.mark.parametrize(
    ("noted", "deleted", "log_begin", "words"),
    [
        (NotedEnd(0, 3, 300), 0, 0, ["T/0 ends at 2 instead of 3"]),
        (NotedEnd(0, 2, 200), 0, 0, []),
        (NotedEnd(0, 3, 300), 300, 0, []),
        (NotedEnd(0, 3, 300), 299, 0, ["T/0 ends at 2 instead of 3"]),
        (NotedEnd(0, 3, 300), 0, None, ["T/0 ends at 2 instead of 3"]),
    ],
    ids=["shorter", "as long", "deleted since", "deleted before", "wherever the log begins"],
)
def test_a_queue_lacks_what_was_noted_and_not_deleted(
    tmp_path: Path, noted: NotedEnd, deleted: int, log_begin: int | None, words: list[str]
) -> None:
    queues = queues_below(tmp_path)
    queues.find_or_add("T", 0).append([(0, 100, 0), (100, 100, 0)])
    note = EndsNote(300, 300, 0, (0, 0), {("T", 0): noted})
    assert lacking_queues(note, queues, {"T": deleted}, log_begin=log_begin) == words


@pytest.mark.parametrize(("log_begin", "is_noted"), [(0, True), (100, False), (None, False)])
def test_a_beginning_is_missed_while_the_log_begins_where_it_did(
    tmp_path: Path, log_begin: int | None, is_noted: bool
) -> None:
    queues = queues_below(tmp_path)
    queue = queues.find_or_add("T", 0)
    queue.skip_to(9)
    queue.append([(900, 100, 0)])
    note = EndsNote(1000, 1000, 0, (0, 0), {("T", 0): NotedEnd(0, 10, 1000)})
    found = lacking_queues(note, queues, {}, log_begin=log_begin)
    assert found == (["T/0 begins at 8 instead of 0"] if is_noted else [])
