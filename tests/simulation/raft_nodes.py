"""Nodes of a Raft group in the simulator: message stores, letters over streams, kills.

Each host runs the production node and store on a disk and a network of the world. Letters travel as
frames with their length before them; a connection that is lost takes with it what was under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from engine.broker.replicating.raft_log import RaftLog
from engine.foundation.errors import DiskFull, TidemarkError
from engine.raft.eligibility import Standing
from engine.raft.events import Install, RoleChanged
from engine.raft.log_shape import Base, LogShape, Position
from engine.raft.members import Members, NodeId, name_of, node_id
from engine.raft.node import Ports, RaftNode, begun_as_another, found_on, made_whole
from engine.raft.state import RaftSettings
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.raft.vote_file import StoredVote, VoteFile
from engine.runtime import Runtime
from engine.store import MessageStore
from tests.store_support import Listener, draft, small_config

PORT = 9000
FOLDER = "/raft"
SETTINGS = RaftSettings(append_bytes_max=3000, window_bytes=20_000)
HELD_MAX = 200
"""Letters that wait for a connection."""


class Frames(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost
        self._rest = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, body: bytes) -> None:
        self.transport.write(len(body).to_bytes(4, "big") + body)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            self._take(data[4:end])
            data = data[end:]
        self._rest = data


class Post:
    """Letters from one host to the others: a connection each, made when there is something."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, Frames] = {}
        self._waiting: dict[str, deque[bytes]] = {}
        self._connecting: dict[str, asyncio.Task[None]] = {}

    def send(self, node: NodeId, body: bytes) -> None:
        to = name_of(node)
        if to in self._open:
            self._open[to].send(body)
            return
        self._waiting.setdefault(to, deque(maxlen=HELD_MAX)).append(body)
        if to not in self._connecting:
            self._connecting[to] = asyncio.create_task(self._connect(to))

    async def _connect(self, to: str) -> None:
        try:
            frames = await self._runtime.network.connect(
                to,
                PORT,
                lambda: Frames(lambda body: None, lambda: self._open.pop(to, None) and None),
                timeout_ms=300,
            )
            assert isinstance(frames, Frames)
            self._open[to] = frames
            for body in self._waiting.pop(to, ()):
                frames.send(body)
        except TidemarkError:
            self._waiting.pop(to, None)
        finally:
            del self._connecting[to]


class ReplicatedStore:
    """One host, over its lives."""

    def __init__(self, host: str, hosts: tuple[str, ...]) -> None:
        self.host = host
        self.founders: Members | None = Members(tuple(node_id(each, "0") for each in hosts))
        """None once the group is founded: who has nothing then is somebody new."""
        self.acknowledged: list[int] = []
        self.waiting: deque[tuple[Position, int]] = deque()
        self.node: RaftNode | None = None
        """None until it has started."""
        self.store: MessageStore
        self.runtime: Runtime
        self.cuts = 0

    async def live(self, runtime: Runtime) -> None:
        """Start with what the disk has, and serve until the power goes."""
        self.waiting.clear()
        self.node, self.runtime = None, runtime
        runtime.disk.make_directories(FOLDER)
        self.store = await MessageStore.open(
            runtime,
            small_config("/store", file_reserved_time_ms=2000),
            Listener(),
            visible_end=0,
        )
        self.store.start()
        self.store.on_cut(lambda offset: setattr(self, "cuts", self.cuts + 1))
        ports = Ports(
            runtime=runtime,
            log=RaftLog(self.store),
            folder=FOLDER,
            post=Post(runtime).send,
            on_committed=self.on_committed,
            on_role=self.on_role,
            fetch_files=self.fetch_files,
        )
        node = RaftNode(ports, SETTINGS, await self.shape(ports))
        await runtime.network.listen(self.host, PORT, lambda: Frames(node.receive, lambda: None))
        self.node, self.founders = node, None
        await node.run()

    async def shape(self, ports: Ports) -> LogShape:
        disk, store = ports.runtime.disk, self.store
        verdict = found_on(
            disk,
            FOLDER,
            log_begin=store.physical_min,
            log_end=store.physical_max,
            has_holes=bool(store.holes.count),
        )
        if self.founders is not None and verdict.standing is Standing.NEW:
            base = Base(members=self.founders)
            TermStarts(disk, FOLDER).save(StoredMarks(base))
            VoteFile(disk, FOLDER).save(StoredVote(node_id(self.host, "0")))
            return LogShape(base)
        if verdict.standing is Standing.NEW:
            return await begun_as_another(ports, self.host, None)
        assert verdict.standing is Standing.AS_IT_WAS, verdict.reason
        assert verdict.log is not None
        await made_whole(ports, verdict.log)
        return verdict.log

    def put(self, number: int) -> bool:
        """A client's message, if this node takes it."""
        node = self.node
        if node is None or node.state.refusal() is not None or not self.store.writable:
            return False
        body = str(number).encode().ljust(number * 53 % 700, b".")
        try:
            result = self.store.put(draft(body, properties=f"UNIQ_KEY\x01{number}\x02"))
        except DiskFull:
            return False
        self.waiting.append((node.put_to(result.end_offset), number))
        return True

    async def forget_begin(self) -> None:
        """Retention takes what is two seconds old."""
        assert self.node is not None
        await self.store.retention.run(self.runtime.clock.wall_ms(), by_hand=True)
        self.node.log_begins_at(self.store.physical_min)

    def on_committed(self, position: Position, offset: int) -> None:
        self.store.visible_end = max(self.store.visible_end, offset)
        while self.waiting and self.waiting[0][0].index <= position.index:
            self.acknowledged.append(self.waiting.popleft()[1])

    def on_role(self, change: RoleChanged) -> None:
        self.waiting.clear()  # Each is answered that its outcome is unknown.

    async def fetch_files(self, install: Install) -> None:
        """Queues and index are made of the log; there is nothing else."""
