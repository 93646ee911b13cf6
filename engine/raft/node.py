"""Drives the core of one node: its clock, its disk, its log and its connections are ports.

Place in the walk: whoever leads puts into its own log and says so (`put_to`); messages of other
nodes come in by `receive`; what is committed is shown by `on_committed`.

    tick, letter, durable write  →  core  →  letters, saves, operations on the log (`journal`)

Invariant: one event after the other, each carried out whole before the next. A letter leaves when
the term and vote that it rests on are durable, with the bytes that its leader's log has then.
Absent on purpose: what entries mean, and who connects to whom.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from engine.foundation.errors import ClusterError, DiskFull, StorageError
from engine.foundation.units import SECOND_MS
from engine.raft import core
from engine.raft.eligibility import Found, Standing, Verdict, judge
from engine.raft.events import (
    Accepted,
    BeginGone,
    Committed,
    Cut,
    DiskFailed,
    Effect,
    Event,
    Install,
    Propose,
    ReadIndex,
    ReadReady,
    Received,
    Refused,
    RoleChanged,
    SaveMark,
    SaveVote,
    Send,
    Tick,
    UnsafeToElect,
    VoteSaved,
    WriteBytes,
)
from engine.raft.frames import Letter, packed, unpacked
from engine.raft.journal import DISK_FULL_RETRY_MS, Bytes, Journal, Log
from engine.raft.log_shape import LogShape, Position
from engine.raft.members import NodeId, name_of, node_id
from engine.raft.messages import Append, Gone, Message
from engine.raft.state import RaftSettings, State
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.raft.vote_file import StoredVote, VoteFile
from engine.runtime import Runtime
from engine.runtime.disk import Disk

TICKS_PER_HEARTBEAT = 4
LETTERS_HELD_MAX = 1000
"""Letters that wait for a vote to be durable; the oldest are lost, and sent again."""

_log = logging.getLogger(__name__)


class ReadableLog(Log, Protocol):
    """The bytes, which a leader sends as well."""

    def read(self, offset: int, end_offset: int) -> bytes | None:
        """These bytes; None when they are gone. Whole entries end there."""
        ...

    def whole_end(self, offset: int, limit: int) -> int:
        """The end of the last whole entry before `limit`; of the first one, if it is longer."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a node works with."""

    runtime: Runtime
    log: ReadableLog
    folder: str
    post: Callable[[NodeId, bytes], None]
    """Have a letter sent, or lost."""
    on_committed: Callable[[Position, int], None]
    on_role: Callable[[RoleChanged], None]
    fetch_files: Callable[[Install], Awaitable[None]]


def found_on(disk: Disk, folder: str, *, log_begin: int, log_end: int, has_holes: bool) -> Verdict:
    """Who is the node that has this disk, and what does its log hold?"""
    faults: list[str] = []
    vote: StoredVote | None = None
    marks: StoredMarks | None = None
    try:
        vote = VoteFile(disk, folder).load()
    except StorageError as error:
        faults.append(str(error))
    try:
        marks = TermStarts(disk, folder).load()
    except StorageError as error:
        faults.append(str(error))
    found = Found(vote, marks, tuple(faults), log_begin, log_end, has_holes=has_holes)
    return judge(found)


async def made_whole(ports: Ports, shape: LogShape) -> None:
    """End what the last life had written down, and not done. Raises StorageError."""
    file = TermStarts(ports.runtime.disk, ports.folder)
    stored = file.load()
    assert stored is not None, "a node that is nobody is not made whole"
    if stored.begins_anew:
        await ports.log.begin_at(stored.base.offset)
    elif stored.cut_offset is not None:
        await ports.log.truncate(shape.end_offset)
    await ports.runtime.disk.off_loop(lambda: file.save(StoredMarks(shape.base, shape.marks)))


async def begun_as_another(ports: Ports, name: str, shape: LogShape | None) -> LogShape:
    """A new identity, durably, for a host that is nobody or an amnesiac; `shape`: what it keeps of
    its log, None: nothing, and its log holds nothing. Raises StorageError.
    """
    runtime, shape = ports.runtime, shape or LogShape()
    node = node_id(name, runtime.entropy.token(8).hex())
    votes, marks = VoteFile(runtime.disk, ports.folder), TermStarts(runtime.disk, ports.folder)
    # First it is nobody's vote any more: marks that are new beside an old vote would be believed.
    await runtime.disk.off_loop(partial(votes.save, StoredVote(node)))
    stored = StoredMarks(shape.base, shape.marks)
    await runtime.disk.off_loop(partial(marks.save, stored))
    return shape


class RaftNode:
    """One node of a group, while its process lives."""

    def __init__(self, ports: Ports, settings: RaftSettings, shape: LogShape) -> None:
        """`shape`: of the log as it is. Raises ClusterError for a node without a vote file."""
        runtime = ports.runtime
        self._ports = ports
        self._clock = runtime.clock
        self._below = runtime.entropy.below
        self._votes = VoteFile(runtime.disk, ports.folder)
        stored = self._votes.load()
        if stored is None:
            raise ClusterError(f"{ports.folder} says of no node who it is: {Standing.NEW.name}")
        self.state: State = core.begin(
            stored.node,
            settings,
            log=shape,
            synced=shape.base.index,
            term=stored.term,
            vote=stored.vote,
            now_ms=self._clock.steady_ms(),
            below=self._below,
        )
        self._journal = Journal(
            runtime.disk,
            ports.log,
            TermStarts(runtime.disk, ports.folder),
            shape,
            happened=self.happen,
            fetch_files=ports.fetch_files,
        )
        self._events: deque[tuple[Event, bytes]] = deque()
        self._is_stepping = False
        self._outbox: deque[Send] = deque(maxlen=LETTERS_HELD_MAX)
        self._save: SaveVote | None = None
        self._save_wanted = asyncio.Event()
        self._reads: dict[int, asyncio.Future[int | None]] = {}
        self._next_key = 0
        self._clocks: dict[NodeId, tuple[int, int]] = {}
        """By how many ms this node's clock is ahead of another's, and when that was heard."""
        self.refused: Refused | None = None
        """The newest refusal, for who asks right after an event."""
        self._put_end: int | None = None
        """What was put and is no entry yet ends there."""

    # ---- what others ask --------------------------------------------------------------------

    def put_to(self, end_offset: int) -> Position:
        """The own log was put up to there in this step, which `state.refusal` did not forbid."""
        assert self.state.refusal() is None, "somebody puts who may not"
        assert not self._is_stepping, "somebody puts in the midst of a step"
        self._journal.grown_to(end_offset)
        self.happen(Propose(end_offset))
        return self.state.log.last

    def has_put(self, end_offset: int) -> None:
        """As `put_to`, for all puts of one turn of the loop together: one entry. Whatever happens
        meanwhile happens after them. Hot.
        """
        if self._put_end is None:
            asyncio.get_running_loop().call_soon(self._propose)
        self._put_end = end_offset

    def _propose(self) -> None:
        end_offset, self._put_end = self._put_end, None
        if end_offset is not None:
            self.put_to(end_offset)

    def receive(self, body: bytes) -> NodeId:
        """A letter came; who sent it. Raises RemoteProtocolError for what is none."""
        letter = unpacked(body)
        if letter.to == self.state.node:
            self.happen(Received(letter.sender, letter.message), letter.data)
        elif name_of(letter.to) == name_of(self.state.node):
            gone = Gone(letter.message.term, letter.to)
            self._ports.post(letter.sender, packed(self._signed(letter.sender, gone)))
        ahead_ms = self._clock.now_ms() - letter.sent_ms
        self._clocks[letter.sender] = (ahead_ms, self._clock.steady_ms())
        return letter.sender

    def clock_is_ahead(self, bound_ms: int) -> bool:
        """Do fewer than a majority of voters, this node among them, have a clock that is not behind
        its own by more than that, as far as they are heard from?
        """
        state, now_ms = self.state, self._clock.steady_ms()
        heard_from_ms = now_ms - 2 * state.settings.election_timeout_ms
        confirmed = 1
        for one in state.members.voters:
            ahead_ms, heard_ms = self._clocks.get(one, (0, heard_from_ms))
            confirmed += one != state.node and heard_ms > heard_from_ms and ahead_ms <= bound_ms
        return confirmed < state.members.majority

    def _signed(self, to: NodeId, message: Message, data: bytes = b"") -> Letter:
        return Letter(self.state.node, to, message, data, self._clock.now_ms())

    async def read_index(self) -> int | None:
        """What must be applied before a question of now is answered; None: ask whoever leads."""
        self._next_key += 1
        ready: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._reads[self._next_key] = ready
        self.happen(ReadIndex(self._next_key))
        return await ready

    def log_begins_at(self, offset: int) -> None:
        """Retention took what stood before, all of it visible."""
        self._journal.begin_gone(offset)
        self.happen(BeginGone(offset))

    # ---- events and effects -----------------------------------------------------------------

    async def run(self) -> None:
        """Live, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._journal.run())
            tasks.create_task(self._save_votes())
            tasks.create_task(self._tick())

    async def _tick(self) -> None:
        interval_s = self.state.settings.heartbeat_ms / TICKS_PER_HEARTBEAT / SECOND_MS
        while True:
            await asyncio.sleep(interval_s)
            self.happen(Tick())

    def happen(self, event: Event, data: bytes = b"") -> None:
        """An event of the disk or of time; also a transfer, or a change of the members."""
        if self._put_end is not None:
            self._propose()
        self._events.append((event, data))
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                self._step(*self._events.popleft())
        finally:
            self._is_stepping = False

    def _step(self, event: Event, data: bytes) -> None:
        now_ms = self._clock.steady_ms()
        self.state, effects = core.step(self.state, event, now_ms=now_ms, below=self._below)
        for effect in effects:
            self._carry_out(effect, event, data)

    def _carry_out(self, effect: Effect, event: Event, data: bytes) -> None:
        match effect:
            case Send():
                self._outbox.append(effect)
                self._post()
            case SaveVote():
                self._save = effect
                self._save_wanted.set()
            case WriteBytes(begin, end):
                assert isinstance(event, Received)
                assert isinstance(event.message, Append)
                at = event.message.prev.index
                begin_offset = self.state.log.offset_at(begin)
                self._journal.add(Bytes(begin_offset, data[begin - at : end - at]))
            case SaveMark() | Cut() | Install():
                self._journal.add(effect)
            case Committed(position, offset):
                self._ports.on_committed(position, offset)
            case RoleChanged():
                self._ports.on_role(effect)
            case ReadReady(key, index):
                ready = self._reads.pop(key)
                if not ready.done():
                    ready.set_result(index)
            case UnsafeToElect(gone):
                _log.error("UNSAFE_TO_ELECT: %s lost their disks; no majority is left", gone)
            case Accepted():
                pass  # Who put knows the place.
            case _:
                self.refused = effect
                _log.info("%s: %s", effect.reason.name, effect.detail)

    def _post(self) -> None:
        """What may leave does."""
        while self._outbox and self._outbox[0].after <= self.state.saved_number:
            sent = self._outbox.popleft()
            letter = self._letter(sent)
            if letter is not None:
                self._ports.post(sent.to, packed(letter))

    def _letter(self, sent: Send) -> Letter | None:
        """With its bytes; None when the log has them no more."""
        message, log = sent.message, self.state.log
        if not isinstance(message, Append) or message.end == message.prev.index:
            return self._signed(sent.to, message)
        if not log.holds(message.prev) or message.end > log.bytes_end(message.prev.index):
            return None
        begin = log.offset_at(message.prev.index)
        end = begin + message.end - message.prev.index
        if self._ports.log.read(begin, begin) is None:
            return None  # Retention was faster; files are offered when the core has heard of it.
        if message.may_end_earlier:
            end = self._ports.log.whole_end(begin, end)
            message = replace(message, end=message.prev.index + end - begin)
        data = self._ports.log.read(begin, end)
        return None if data is None else self._signed(sent.to, message, data)

    async def _save_votes(self) -> None:
        """The newest term and vote; those before it need not be saved."""
        while True:
            await self._save_wanted.wait()
            self._save_wanted.clear()
            save = self._save
            assert save is not None
            vote = StoredVote(self.state.node, save.term, save.vote)
            try:
                await self._ports.runtime.disk.off_loop(partial(self._votes.save, vote))
            except DiskFull:
                await asyncio.sleep(DISK_FULL_RETRY_MS / SECOND_MS)
                self._save_wanted.set()
                continue
            except StorageError as error:
                _log.error("the vote cannot be saved: %s", error)
                self.happen(DiskFailed())
                return
            self.happen(VoteSaved(save.number))
            self._post()
