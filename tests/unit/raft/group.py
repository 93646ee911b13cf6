"""A group of Raft nodes without clock, disk or network: every step is taken by hand, or by chance.

A host has a log in memory and one on disk; what is appended reaches the disk with a sync, in order,
or in part when the power goes. A term and a vote are durable when they are saved. Messages wait
until they are delivered, twice, later, or never. `laws` is asked after every event.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.raft.core import begin, step
from engine.raft.events import (
    Accepted,
    BeginGone,
    Committed,
    Cut,
    Effect,
    Event,
    Install,
    Installed,
    Propose,
    ProposeMembers,
    ReadIndex,
    ReadReady,
    Received,
    Refused,
    Role,
    RoleChanged,
    SaveMark,
    SaveVote,
    Send,
    Synced,
    Tick,
    TransferTo,
    VoteSaved,
    WriteBytes,
)
from engine.raft.log_shape import Base, LogShape, Mark
from engine.raft.members import Members, NodeId
from engine.raft.messages import Append, Gone, Message, VoteReply
from engine.raft.state import RaftSettings, State
from tests.unit.raft.laws import Laws, ModelLog, Record, Unit, records_in

SETTINGS = RaftSettings(append_bytes_max=6, window_bytes=20)
Operation = tuple[str, object]


@dataclass
class Letter:
    """A message under way."""

    sender: NodeId
    to: NodeId
    message: Message
    data: list[Unit] = field(default_factory=list)


@dataclass
class Disk:
    """What a power cut leaves of one host."""

    log: ModelLog
    term: int = 0
    vote: NodeId | None = None


@dataclass
class Host:
    """One node."""

    node: NodeId
    disk: Disk
    log: ModelLog
    state: State
    clock_ms: int
    """How far its clock is from the others'."""
    operations: list[Operation] = field(default_factory=list)
    """On the log, since the last sync."""
    saves: list[SaveVote] = field(default_factory=list)
    outbox: list[Send] = field(default_factory=list)
    syncs: list[tuple[int, int, int]] = field(default_factory=list)
    """Under way: cuts and end when it began, and how many operations it makes durable."""
    installs: list[tuple[NodeId, Base]] = field(default_factory=list)
    is_up: bool = True
    is_paused: bool = False
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Entry → position that a client waits for, at the leader of one term."""


class Group:
    """Hosts, what is under way between them, and the time."""

    def __init__(
        self,
        names: str = "abc",
        *,
        chance: random.Random | None = None,
        settings: RaftSettings = SETTINGS,
        learners: str = "",
        on_effect: Callable[[NodeId, Effect], None] | None = None,
    ) -> None:
        self.chance = chance or random.Random(0)
        self.settings = settings
        self.members = Members(tuple(names), tuple(learners))
        self.laws = Laws()
        self.now_ms = 10_000
        self.hosts: dict[NodeId, Host] = {}
        self.letters: list[Letter] = []
        self.cut_ways: set[tuple[NodeId, NodeId]] = set()
        self.lives: dict[NodeId, NodeId] = {}
        """A node whose disk was lost → the one that lives there now."""
        self.lost_logs: dict[NodeId, ModelLog] = {}
        self.acknowledged: list[int] = []
        self.reads: dict[int, int] = {}
        self.ready_reads: list[int] = []
        self.refused: list[Refused] = []
        self.entries = 0
        self.on_effect = on_effect or (lambda node, effect: None)
        for name in names + learners:
            self.add_host(name, ModelLog(self.members))

    # ---- hosts ------------------------------------------------------------------------------

    def add_host(self, node: NodeId, log: ModelLog) -> None:
        disk = Disk(log.copy())
        clock_ms = self.chance.randrange(100_000)
        host = Host(node, disk, log, self._born(node, disk, clock_ms), clock_ms)
        self.hosts[node] = host

    def _born(self, node: NodeId, disk: Disk, clock_ms: int) -> State:
        log = disk.log
        marks = tuple(unit for unit in log.units if isinstance(unit, Mark))
        base = Base(log.begin, self._term_before(log), log.offset, log.members)
        return begin(
            node,
            self.settings,
            log=LogShape(base, marks, log.end_offset),
            synced=log.end,
            term=disk.term,
            vote=disk.vote,
            now_ms=self.now_ms + clock_ms,
            below=self.chance.randrange,
        )

    def _term_before(self, log: ModelLog) -> int:
        return self.laws.committed[log.begin - 1].term if log.begin else 0

    def up(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_up and not host.is_paused]

    def leaders(self) -> list[Host]:
        """Those that take themselves for it."""
        return [host for host in self.up() if host.state.role is Role.LEADER]

    def leader(self) -> Host:
        """The one of the greatest term."""
        return max(self.leaders(), key=lambda host: host.state.term)

    # ---- one step ---------------------------------------------------------------------------

    def happen(self, node: NodeId, event: Event, data: list[Unit] | None = None) -> None:
        """An event at a node, and everything that follows from it there."""
        host = self.hosts[node]
        before, was = host.state, replace(host.state)
        host.state, effects = step(
            before, event, now_ms=self.now_ms + host.clock_ms, below=self.chance.randrange
        )
        assert before == was, "a step changed the state that went in"
        for effect in effects:
            self.on_effect(node, effect)
            self._carry_out(host, effect, event, data or [])
        self._check(host, before)

    def _carry_out(self, host: Host, effect: Effect, event: Event, data: list[Unit]) -> None:
        match effect:
            case Send():
                host.outbox.append(effect)
                self._post(host)
            case SaveVote():
                host.saves.append(effect)
            case WriteBytes(first, end):
                assert first == host.log.end
                assert isinstance(event, Received)
                assert isinstance(event.message, Append)
                at = event.message.prev.index
                self._append(host, data[first - at : end - at])
            case SaveMark(mark):
                assert mark.index == host.log.end
                self._append(host, [mark])
            case Cut(index, end_offset):
                self.laws.cuts(host.node, index, host.state.visible)
                host.log.cut(index)
                host.operations.append(("cut", index))
                assert host.log.end_offset == end_offset
            case Install(leader, base):
                host.installs.append((leader, base))
            case Accepted(position):
                if isinstance(event, Propose):
                    host.waiting[self.entries] = (position.term, position.index)
            case Committed(position, offset):
                self._show(host, position.index, offset)
            case ReadReady(key, index):
                self._note_read(key, index)
            case RoleChanged(role, term, _):
                if role is Role.LEADER:
                    self.laws.leads(host.node, term, host.log)
                else:
                    host.waiting.clear()
            case Refused():
                self.refused.append(effect)

    def _append(self, host: Host, units: list[Unit]) -> None:
        host.log.append(units)
        host.operations.append(("append", list(units)))
        self.laws.appended(host.node, host.log, len(units))

    def _show(self, host: Host, index: int, offset: int) -> None:
        self.laws.commits_to(host.node, index, host.log, self._durable())
        self.laws.shows(host.node, index, host.disk.log)
        shown = host.log.between(host.log.begin, index)
        assert offset == host.log.offset + records_in(shown)
        done = [each for each, (_, end) in host.waiting.items() if end <= index]
        for each in done:
            del host.waiting[each]
            self.acknowledged.append(each)

    def _note_read(self, key: int, index: int | None) -> None:
        least = self.reads.pop(key)
        if index is not None:
            assert index >= least, f"read index {index}, {least} was committed before"
            self.ready_reads.append(key)

    def _durable(self) -> dict[NodeId, ModelLog]:
        """What is on disks; of one that was lost, what it had acknowledged counted."""
        return self.lost_logs | {host.node: host.disk.log for host in self.hosts.values()}

    def _post(self, host: Host) -> None:
        """What may leave does."""
        while host.outbox and host.outbox[0].after <= host.state.saved_number:
            sent = host.outbox.pop(0)
            message, data = sent.message, []
            if isinstance(message, VoteReply) and message.granted and not message.is_pre:
                self.laws.votes_for(host.node, message.term, sent.to)
            if isinstance(message, Append) and message.prev.index < host.log.begin:
                continue  # Its bytes are gone.
            if isinstance(message, Append) and message.end > host.log.end:
                continue  # They were cut while the message waited.
            if isinstance(message, Append):
                if message.may_end_earlier:
                    last = message.prev.index + self.chance.randint(
                        1, self.settings.append_bytes_max
                    )
                    message = replace(message, end=last)
                data = host.log.between(message.prev.index, message.end)
            self.letters.append(Letter(host.node, sent.to, message, data))

    def _check(self, host: Host, before: State) -> None:
        state, log = host.state, host.log
        assert (state.log.base.index, state.log.end_index) == (log.begin, log.end)
        assert state.log.end_offset == log.end_offset
        assert state.members == log.current_members()
        assert state.visible <= min(state.commit, state.synced)
        assert state.commit <= state.log.end_index
        if state.commit > before.commit and state.installing == before.installing:
            self.laws.commits_to(host.node, state.commit, log, self._durable())
        now = [(each, self.now_ms + each.clock_ms) for each in self.up()]
        held = [
            (each.node, each.state.term) for each, ms in now if each.state.lease_until_ms(ms) > ms
        ]
        if held:
            self.laws.leases(held, [each.state.term for each in self.leaders()])

    # ---- what a schedule may do -------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Time passes, and everybody who is awake notices."""
        self.now_ms += ms
        for host in self.up():
            self.happen(host.node, Tick())

    def deliver(self, place: int, *, keep: bool = False) -> None:
        """A letter arrives, unless its way is cut; `keep`: it arrives again later."""
        letter = self.letters[place]
        host = self.hosts.get(self.lives.get(letter.to, letter.to))
        if host is not None and host.is_paused:
            return
        if not keep:
            self.letters.pop(place)
        if (letter.sender, letter.to) in self.cut_ways:
            return
        if letter.to in self.lives:
            other = Letter(letter.to, letter.sender, Gone(letter.message.term, letter.to))
            if letter.sender in self.hosts:
                self.letters.append(other)
        elif self.hosts[letter.to].is_up:
            self.happen(letter.to, Received(letter.sender, letter.message), letter.data)

    def deliver_letter(self, letter: Letter) -> None:
        """This one, wherever it waits."""
        self.deliver(next(at for at, each in enumerate(self.letters) if each is letter))

    def deliver_all(self, rounds: int = 50) -> None:
        """Letters, saves and syncs, until nothing is under way or so often."""
        for _ in range(rounds):
            for letter in list(self.letters):
                self.deliver_letter(letter)
            for host in self.up():
                self.save(host.node)
                self.sync(host.node)
                self.install(host.node)
            if not self.letters:
                return

    def save(self, node: NodeId) -> None:
        """Term and vote become durable."""
        host = self.hosts[node]
        if not host.saves:
            return
        newest = host.saves[-1]
        host.saves.clear()
        host.disk.term, host.disk.vote = newest.term, newest.vote
        if newest.vote == node:
            self.laws.votes_for(node, newest.term, node)
        self.happen(node, VoteSaved(newest.number))
        self._post(host)

    def begin_sync(self, node: NodeId) -> None:
        host = self.hosts[node]
        host.syncs.append((host.state.cuts, host.log.end, len(host.operations)))

    def end_sync(self, node: NodeId) -> None:
        """What was there when it began is durable."""
        host = self.hosts[node]
        if not host.syncs:
            return
        cuts, end, count = host.syncs.pop(0)
        self._make_durable(host, count)
        host.syncs = [(c, e, max(0, n - count)) for c, e, n in host.syncs]
        self.happen(node, Synced(cuts, end))

    def sync(self, node: NodeId) -> None:
        self.begin_sync(node)
        while self.hosts[node].syncs:
            self.end_sync(node)

    def _make_durable(self, host: Host, count: int) -> None:
        for kind, what in host.operations[:count]:
            if kind == "append":
                assert isinstance(what, list)
                host.disk.log.append(what)
            else:
                assert isinstance(what, int)
                host.disk.log.cut(what)
        del host.operations[:count]

    def install(self, node: NodeId) -> None:
        """The leader's files are here, if it still has those."""
        host = self.hosts[node]
        if not host.installs:
            return
        _, base = host.installs.pop(0)
        digest = self.laws.committed_digests[base.index]
        host.log = ModelLog(base.members, base.index, base.offset, digest)
        host.disk.log = host.log.copy()
        host.operations.clear()
        host.syncs.clear()
        self.happen(node, Installed(base))

    def put(self, node: NodeId, size: int = 1) -> bool:
        """A client's entry of so many records, if this node takes it."""
        host = self.hosts[node]
        if host.state.refusal() is not None:
            return False
        self.entries += 1
        records = [Record(host.state.term, self.entries, part) for part in range(size)]
        self._append(host, list(records))
        self.happen(node, Propose(host.log.end_offset))
        return True

    def change_members(self, node: NodeId, members: Members) -> None:
        self.happen(node, ProposeMembers(members))

    def transfer(self, node: NodeId, to: NodeId) -> None:
        self.happen(node, TransferTo(to))

    def read(self, node: NodeId) -> int:
        key = len(self.ready_reads) + len(self.reads) + 1000 * self.now_ms
        self.reads[key] = len(self.laws.committed)
        self.happen(node, ReadIndex(key))
        return key

    def forget_begin(self, node: NodeId) -> None:
        """Retention takes what is shown there, or some of it."""
        host = self.hosts[node]
        state = host.state
        offset = state.log.offset_at(self.chance.randint(state.log.base.index, state.visible))
        log = state.log.begun_at(offset)
        host.log.forget_before(log.base.index)
        if host.disk.log.begin < log.base.index:
            host.disk.log.forget_before(log.base.index)
        self.happen(node, BeginGone(offset))

    def cut_way(self, sender: NodeId, to: NodeId) -> None:
        self.cut_ways.add((sender, to))

    def isolate(self, node: NodeId) -> None:
        for other in self.hosts:
            if other != node:
                self.cut_ways |= {(node, other), (other, node)}

    def heal(self) -> None:
        self.cut_ways.clear()

    def crash(self, node: NodeId, *, survivors: int | None = None) -> None:
        """The power goes; of what was not synced, `survivors` operations are there, or some."""
        host = self.hosts[node]
        if survivors is None:
            survivors = self.chance.randint(0, len(host.operations))
        partial = host.operations[survivors : survivors + 1]
        self._make_durable(host, survivors)
        if partial and partial[0][0] == "append" and self.chance.random() < 0.5:
            units = partial[0][1]
            assert isinstance(units, list)
            host.disk.log.append(units[: self.chance.randint(0, len(units) - 1)])
        if host.saves and self.chance.random() < 0.5:
            saved = self.chance.choice(host.saves)
            host.disk.term, host.disk.vote = saved.term, saved.vote
            if saved.vote == node:
                self.laws.votes_for(node, saved.term, node)
        host.is_up, host.is_paused = False, False
        host.operations, host.saves, host.outbox = [], [], []
        host.syncs, host.installs, host.waiting = [], [], {}

    def start(self, node: NodeId) -> None:
        host = self.hosts[node]
        host.log = host.disk.log.copy()
        host.state = self._born(node, host.disk, host.clock_ms)
        host.is_up = True

    def lose_disk(self, node: NodeId) -> NodeId:
        """It starts with nothing, as somebody else."""
        new = f"{node}'"
        self.lost_logs[node] = self.hosts.pop(node).disk.log
        self.lives[node] = new
        self.letters = [letter for letter in self.letters if letter.sender != node]
        self.add_host(new, ModelLog(Members()))
        return new

    def settle(self, *, seconds: int = 20) -> None:
        """Everything is whole again: within a bounded time all agree, and go on."""
        self.heal()
        for host in self.hosts.values():
            host.is_paused = False
            if not host.is_up:
                self.start(host.node)
        for _ in range(seconds * 20):
            self.pass_time(50)
            self.deliver_all(3)
            if self.is_settled():
                return
        raise AssertionError(f"not settled: {self.words()}")

    def is_settled(self) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1 or leaders[0].state.refusal() is not None:
            return False
        leader = leaders[0]
        return all(
            self.hosts[node].state.log.last == leader.state.log.last
            and self.hosts[node].state.visible == leader.log.end
            for node in leader.state.members.all
            if node in self.hosts
        )

    def words(self) -> str:
        """The state of all, for a reader."""
        return "; ".join(
            f"{host.node} {host.state.role.name} of {host.state.term}, log {host.state.log.last}, "
            f"commit {host.state.commit}, synced {host.state.synced}"
            for host in self.hosts.values()
        )

    def elect(self, node: NodeId) -> None:
        """Have this node lead, by its impatience."""
        host = self.hosts[node]
        self.now_ms += self.settings.election_timeout_ms * 2
        self.happen(host.node, Tick())
        self.deliver_all()
        assert host.state.role is Role.LEADER, self.words()
        self.deliver_all()
