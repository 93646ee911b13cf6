"""Row C11: a log whose disk is full or fails, and a leader's files that cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from engine.foundation.errors import DiskFull, StorageError, Unreachable
from engine.raft.events import DiskFailed, Event, Install, InstallFailed, SaveMark, Synced
from engine.raft.journal import Bytes, Journal
from engine.raft.log_shape import Base, LogShape, Mark
from engine.raft.term_starts import StoredMarks, TermStarts
from tests.asynchronous import run_by
from tests.simulation.crash_states.raft_files import FOLDER, FOUNDERS, ByteLog
from tests.simulation.crash_states.recording import RecordingDisk
from tests.simulation.world import World, run_world


class SmallLog(ByteLog):
    """Takes so many bytes, and fails to sync when it is to."""

    room = 2
    sync_fails = False

    def append_at(self, offset: int, data: bytes) -> None:
        taken = data[: self.room]
        super().append_at(offset, taken)
        self.room -= len(taken)
        if len(taken) < len(data):
            raise DiskFull("no space left on the device")

    async def sync(self) -> None:
        if self.sync_fails:
            raise StorageError("syncing: Input/output error")
        await super().sync()


class Bench:
    """A journal at work."""

    def __init__(self) -> None:
        disk = RecordingDisk({FOLDER: None})
        self.log = SmallLog(disk)
        self.marks = TermStarts(disk, FOLDER)
        self.events: list[Event] = []
        shape = LogShape(Base(members=FOUNDERS)).with_mark(1)
        self.marks.save(StoredMarks(shape.base, shape.marks))
        self.journal = Journal(
            disk,
            self.log,
            self.marks,
            shape,
            happened=self.events.append,
            fetch_files=self.fetch,
        )
        self.running = asyncio.create_task(self.journal.run())

    async def fetch(self, install: Install) -> None:
        raise Unreachable(f"{install.leader} is gone")


async def at_work(play: Callable[[Bench], Awaitable[None]], world: World) -> None:
    del world
    bench = Bench()
    await play(bench)
    bench.running.cancel()


def on_a_bench(play: Callable[[Bench], Awaitable[None]]) -> None:
    run_world(1, partial(at_work, play))


@run_by(on_a_bench)
async def test_a_full_disk_is_tried_again_from_where_it_ended(bench: Bench) -> None:
    bench.journal.add(Bytes(0, b"\1\1\1\1\1"))
    bench.journal.add(SaveMark(Mark(6, 2)))
    await asyncio.sleep(1.5)
    assert bench.log.data == b"\1\1"
    assert not [each for each in bench.events if isinstance(each, Synced) and each.index > 3]
    bench.log.room = 10
    await asyncio.sleep(1.5)
    assert bench.log.data == b"\1\1\1\1\1"
    assert bench.events[-1] == Synced(0, 7)
    assert bench.marks.load() == StoredMarks(Base(members=FOUNDERS), (Mark(0, 1), Mark(6, 2)))


@run_by(on_a_bench)
async def test_a_failed_sync_ends_it(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    bench.log.sync_fails = True
    bench.journal.add(Bytes(0, b"\1"))
    await asyncio.sleep(3)
    assert bench.events[-1] == DiskFailed()
    assert bench.running.done()


@run_by(on_a_bench)
async def test_files_that_cannot_be_had_leave_the_log_as_it_is(bench: Bench) -> None:
    bench.journal.add(Bytes(0, b"\1\1"))
    bench.journal.add(Install("b", Base(90, 2, 80, FOUNDERS)))
    await asyncio.sleep(0.5)
    assert bench.events[-1] == InstallFailed()
    assert bench.log.data == b"\1\1"
    stored = bench.marks.load()
    assert stored is not None
    assert not stored.begins_anew
