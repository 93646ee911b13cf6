"""What one step of dispatch does is bounded by the keys of its messages, not by their number: one
message may have sixteen thousand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.limits import DISPATCH_BATCH_MAX, INDEX_FILL_RECORDS
from engine.runtime.disk import SystemDisk
from engine.store.commit_log import CommitLog
from engine.store.dispatch import Dispatcher
from engine.store.index.index import Index
from engine.store.index.index_layout import IndexShape
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.record_writing import DraftRecord
from tests.steps import STEP_INSTRUCTIONS_MAX, instructions
from tests.store_support import draft

MESSAGES = 8
KEYS = DISPATCH_BATCH_MAX // 2
"""Of each message: two of them are one step."""


def dispatcher_of_many_keys(folder: Path, *, notified: bool) -> tuple[CommitLog, Dispatcher, Index]:
    disk, pool = SystemDisk(), FilePool()
    log = CommitLog(disk, f"{folder}/commitlog", 1 << 20, pool)
    queues = QueueTable(disk, f"{folder}/consumequeue", 20 * 100, pool)
    index = Index(disk, f"{folder}/index", IndexShape(100_000, 100_000), pool)
    dispatcher = Dispatcher(log, queues, index, ())
    keys = " ".join(str(number % 10) for number in range(KEYS))
    for number in range(MESSAGES):
        record = DraftRecord(draft(b"", topic="T", queue_id=0, properties=f"KEYS\x01{keys}\x02"))
        place = log.place_for(record.size_bytes)
        log.append(record.encode(number, place, 1))
        if notified:
            dispatcher.enqueue(record.request(number, place, 1, ()))
    return log, dispatcher, index


@pytest.mark.parametrize("notified", [True, False])
def test_messages_of_many_keys_are_dispatched_few_at_a_time(
    tmp_path: Path, *, notified: bool
) -> None:
    log, dispatcher, index = dispatcher_of_many_keys(tmp_path, notified=notified)
    places = [0]
    while places[-1] < log.end_offset:
        spent = instructions(lambda: dispatcher.run(log.end_offset, now_ms=1))
        assert spent <= STEP_INSTRUCTIONS_MAX
        places.append(dispatcher.position)
    assert len(places) == 1 + MESSAGES // 2
    assert sum(file.index_count - 1 for file in index.files) == MESSAGES * KEYS, "every key"


def test_an_index_that_is_behind_is_filled_by_few_of_them_at_a_time(tmp_path: Path) -> None:
    log, dispatcher, index = dispatcher_of_many_keys(tmp_path, notified=True)
    index.is_behind, index.filled_to = True, 0
    while dispatcher.run(log.end_offset, now_ms=1):
        pass
    steps = 1
    while dispatcher.fill_index(now_ms=1):
        steps += 1
    assert KEYS > INDEX_FILL_RECORDS
    assert steps == MESSAGES
    assert sum(file.index_count - 1 for file in index.files) == MESSAGES * KEYS
