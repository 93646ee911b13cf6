"""Lives of a Raft node's files: its vote, its marks, and a log whose bytes say their term.

Whatever a power cut leaves, each byte belongs to the term that the marks say, what was durable is
there, and a vote is the last one or a later one.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from engine.raft.eligibility import Found, Standing, judge
from engine.raft.events import Cut, Event, Install, Installed, SaveMark, Synced
from engine.raft.journal import Bytes, Journal
from engine.raft.log_shape import Base, LogShape, Mark
from engine.raft.members import Members
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.raft.vote_file import StoredVote, VoteFile
from tests.simulation.crash_states.recording import RecordingDisk, Tree
from tests.simulation.crash_states.workloads import Life, Workload

FOLDER = "/raft"
PREFIX = "log."
FOUNDERS = Members(("a", "b", "c"))
Unit = int | Mark
"""A byte, which is its term, or a mark."""


class ByteLog:
    """A commit log of one-byte records: a file whose name says where it begins."""

    def __init__(self, disk: RecordingDisk) -> None:
        self._disk = disk
        names = [name for name in disk.names(FOLDER) if name.startswith(PREFIX)]
        self.begin = max((int(name.removeprefix(PREFIX)) for name in names), default=0)
        self._file = disk.open(self._path(), create=True)
        self.data = self._file.pread(self._file.size_bytes(), 0).split(b"\0")[0]
        if len(self.data) < self._file.size_bytes():
            self._file.truncate(len(self.data))  # As recovery keeps the records that are whole.
        self._file.sync()
        disk.sync_directory(FOLDER)

    def _path(self) -> str:
        return f"{FOLDER}/{PREFIX}{self.begin}"

    @property
    def end_offset(self) -> int:
        return self.begin + len(self.data)

    def append_at(self, offset: int, data: bytes) -> None:
        assert offset == self.begin + len(self.data)
        self._file.pwrite(data, len(self.data))
        self.data += data

    async def sync(self) -> None:
        await asyncio.sleep(0)
        self._file.sync()
        await asyncio.sleep(0)

    async def truncate(self, offset: int) -> None:
        self.data = self.data[: offset - self.begin]
        self._file.truncate(len(self.data))
        self._file.sync()

    async def begin_at(self, offset: int) -> None:
        old = self._path()
        self.begin, self.data = offset, b""
        self._file = self._disk.open(self._path(), create=True)
        if old != self._path():
            self._disk.remove(old)
        self._disk.sync_directory(FOLDER)


@dataclass
class RaftStory:
    """The votes in their order, and the log as it is when all is done."""

    votes: list[StoredVote] = field(default_factory=list)


@dataclass(frozen=True)
class RaftPromise:
    """From `base` on these units must be there; as many votes were saved."""

    base: Base
    units: tuple[Unit, ...] = ()
    votes: int = 0


class RaftLife:
    """A node that does what leaders want."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        disk = RecordingDisk({FOLDER: None})
        self.story = RaftStory()
        self.base = Base(members=FOUNDERS)
        self.life = Life(disk, [(0, RaftPromise(self.base))], self.story)
        self.units: list[Unit] = []
        self.shape = LogShape(self.base)
        marks = TermStarts(disk, FOLDER)
        marks.save(StoredMarks(self.base))
        self.votes = VoteFile(disk, FOLDER)
        self.vote()
        self.begun = len(disk.changes)
        self.cuts = 0
        self.journal = Journal(
            disk, ByteLog(disk), marks, self.shape, happened=self.happened, fetch_files=self.fetch
        )

    def promise(self, **changes: object) -> None:
        self.life.promise(replace(self.life.promises[-1][1], **changes))

    def happened(self, event: Event) -> None:
        if isinstance(event, Installed):
            assert event.base == self.base
        elif isinstance(event, Synced) and event.cuts == self.cuts:
            self.promise(base=self.base, units=tuple(self.units[: event.index - self.base.index]))

    async def fetch(self, install: Install) -> None:
        await asyncio.sleep(0)

    def vote(self) -> None:
        vote = StoredVote("a", len(self.story.votes), self.chance.choice([None, "a", "b"]))
        self.story.votes.append(vote)
        self.votes.save(vote)
        self.promise(votes=len(self.story.votes))

    def put(self) -> None:
        count = self.chance.randint(1, 5)
        self.units += [self.shape.last.term] * count
        self.shape = self.shape.with_bytes(self.shape.end_offset + count)
        begin = self.shape.end_offset - count
        self.journal.add(Bytes(begin, bytes(self.units[-count:])))

    def mark(self, members: Members | None) -> None:
        term = self.shape.last.term + (members is None)
        self.shape = self.shape.with_mark(term, members)
        self.units.append(self.shape.marks[-1])
        self.journal.add(SaveMark(self.shape.marks[-1]))

    def cut(self) -> None:
        index = self.chance.randint(self.base.index, self.shape.end_index)
        if index == self.shape.end_index:
            return
        self.shape = self.shape.cut(index)
        del self.units[index - self.base.index :]
        self.cuts += 1
        kept = self.life.promises[-1][1].units
        same = 0
        while same < min(len(kept), len(self.units)) and kept[same] == self.units[same]:
            same += 1
        self.promise(units=tuple(self.units[:same]))
        self.journal.add(Cut(index, self.shape.end_offset))
        self.mark(None)

    async def install(self) -> None:
        """A leader's files, further on than everything here."""
        await self.level()
        last, end = self.shape.last, self.shape.end_offset
        self.base = Base(last.index + 7, last.term + 1, end + 5, FOUNDERS)
        self.shape, self.units = LogShape(self.base, (), self.base.offset), []
        self.cuts += 1
        self.promise(base=None)
        self.journal.add(Install("b", self.base))
        await self.level()

    async def level(self) -> None:
        for _ in range(10_000):
            if self.journal.is_level:
                return
            await asyncio.sleep(0)
        raise AssertionError("the journal stands still")


async def life_of_raft_files(chance: random.Random) -> Life:
    """Terms, entries, configurations, cuts and votes; once in a while a leader's files."""
    life = RaftLife(chance)
    running = asyncio.create_task(life.journal.run())
    life.mark(None)
    for _ in range(12):
        draw = chance.random()
        if draw < 0.5:
            life.put()
        elif draw < 0.62:
            life.mark(None)
        elif draw < 0.7:
            life.mark(Members(("a", "b"), ("c",)))
        elif draw < 0.85:
            life.cut()
        elif draw < 0.93:
            life.vote()
        else:
            await life.install()
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
    await life.level()
    running.cancel()
    assert life.story.votes
    return life.life


async def check_raft_files(life: Life, tree: Tree, promise: RaftPromise) -> None:
    """The node is who it was, with all that it promised, and each byte in its term."""
    disk = RecordingDisk(tree)
    vote, marks = VoteFile(disk, FOLDER).load(), TermStarts(disk, FOLDER).load()
    if vote is None or marks is None:
        assert not promise.votes, "what was saved is gone"
        return
    at = life.story.votes.index(vote)
    assert at >= promise.votes - 1, f"vote {at} of {promise.votes}"
    log = ByteLog(disk)
    verdict = judge(Found(vote, marks, (), log.begin, log.begin + len(log.data)))
    assert verdict.standing is Standing.AS_IT_WAS, verdict.reason
    shape = verdict.log
    assert shape is not None
    if marks.begins_anew:
        await log.begin_at(marks.base.offset)
    elif marks.cut_offset is not None and marks.cut_offset < log.begin + len(log.data):
        await log.truncate(marks.cut_offset)
    assert shape.end_offset == log.begin + len(log.data)
    units: list[Unit] = []
    for index in range(shape.base.index, shape.end_index):
        mark = shape.mark_at(index)
        place = shape.offset_at(index) - log.begin
        units.append(mark if mark is not None else log.data[place])
        assert shape.term_at(index + 1) == (mark.term if mark is not None else log.data[place])
    if promise.base == shape.base:
        assert units[: len(promise.units)] == list(promise.units), "what was durable is gone"
    else:
        assert promise.base is None or shape.base.index > promise.base.index


RAFT = [Workload("raft", life_of_raft_files, check_raft_files)]
