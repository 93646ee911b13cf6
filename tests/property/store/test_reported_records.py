"""Dispatch from what puts hand over, and from the log: the same messages in the same order."""

from __future__ import annotations

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.disk import SystemDisk
from engine.store.commit_log import CommitLog
from engine.store.dispatch import Dispatcher
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.record_reading import DispatchRequest
from engine.store.record_writing import DraftRecord
from tests.store_support import draft

FILE_BYTES = 1024
"""A few records a file: blanks come often."""

steps = st.lists(
    st.tuples(st.integers(0, 400), st.booleans(), st.booleans()), min_size=1, max_size=25
)
"""(length of the body, does its put report?, is everything so far dispatched now?)"""


@given(steps, st.integers(1, 4))
def test_whatever_puts_reported_every_record_is_dispatched_once_and_as_it_was_put(
    steps: list[tuple[int, bool, bool]], reported_max: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        disk, pool = SystemDisk(), FilePool()
        log = CommitLog(disk, f"{root}/commitlog", FILE_BYTES, pool)
        queues = QueueTable(disk, f"{root}/consumequeue", 20 * 100, pool)
        dispatcher = Dispatcher(log, queues, None, (), queued_max=reported_max)
        dispatched: list[DispatchRequest] = []
        dispatcher.arrivals.append(dispatched.extend)
        put: list[DispatchRequest] = []
        for number, (body_bytes, reports, runs) in enumerate(steps):
            record = DraftRecord(draft(b"x" * body_bytes, topic="T", queue_id=0))
            place = log.place_for(record.size_bytes)
            log.append(record.encode(number, place, 1))
            put.append(record.request(number, place, 1, ()))
            if reports:
                dispatcher.enqueue(put[-1])
            if runs:
                assert not dispatcher.run(log.end_offset, now_ms=0)
                assert dispatched == put
        dispatcher.run(log.end_offset, now_ms=0)
        assert dispatched == put
        log.close()
        queues.close()
