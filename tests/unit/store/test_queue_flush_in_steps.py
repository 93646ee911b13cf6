"""Consume queues are written a few in each step: each may have its first file to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.runtime.disk import SystemDisk
from engine.store.config import StoreConfig
from engine.store.consume_queue import ConsumeQueue
from engine.store.mapped_file import FilePool, OpenFile
from engine.store.queue_table import QueueTable
from engine.store.upkeep.queue_flush import WRITTEN_AT_ONCE, Flushed, QueueFlush
from tests.steps import heard, passes_counted

QUEUES = 50


async def test_few_queues_get_their_files_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = QueueTable(SystemDisk(), f"{tmp_path}/consumequeue", 20 * 100, FilePool())
    for number in range(QUEUES):
        queue = queues.find_or_add("T", number)
        queue.append([(number, 100, 0)])
        queues.note_written(("T", number), queue)
    written_in: list[int] = []

    async def synced(files: list[OpenFile], folders: list[str]) -> None:
        for file in files:
            file.unpin()

    flush = QueueFlush(queues, lambda: 0, synced)
    config = StoreConfig(root=str(tmp_path))
    async with passes_counted() as passes:
        heard(monkeypatch, ConsumeQueue, "write_out", lambda queue: written_in.append(passes()))
        assert await flush.flush(config, everything=True) is Flushed.EVERYTHING
    assert len(written_in) == QUEUES
    assert max(written_in.count(step) for step in set(written_in)) <= WRITTEN_AT_ONCE
