"""Runs a broker as a member of a Raft group: its log, tables and role follow the majority.

Place in the walk: `broker` starts it before its tables are read, and opens its port when the node
knows what its log says. Puts are entries of the group's log; they are answered when they are
committed, as one of the conditions of `sending/safety`.

    follower   appends what the leader sends; shows what is committed
    elected    its first entry committed, all of the log dispatched, what follows the log read from
               its end: only then it is the master of its term
    leading    answers that rest on tables leave when all that they may rest on is committed, and a
               majority has said that this node still leads (`settled`)
    deposed    in that very step it puts nothing, and whoever waits hears that the outcome is
               unknown; its tables go back to what was agreed on

Invariant: what this node shows, answers or applies is committed. Absent on purpose: elections
(engine/raft), what is replicated beside the log (agreed_tables).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode, Role
from engine.broker.replicating.agreed_tables import AgreedTables
from engine.broker.replicating.raft_founding import Founding, shape_at_start
from engine.broker.replicating.raft_log import RaftLog
from engine.broker.replicating.raft_orders import RaftOrders
from engine.broker.replicating.raft_peers import RaftPeers, Who
from engine.broker.role_changes import RoleChanges
from engine.broker.sending.safety import Condition, PutStatus, Safety
from engine.foundation.errors import RequestRefused, StorageError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.raft.events import Install, RoleChanged
from engine.raft.events import Role as RaftRole
from engine.raft.log_shape import Position
from engine.raft.members import NodeId, name_of
from engine.raft.node import Ports, RaftNode
from engine.raft.state import RaftSettings
from engine.replication import Acknowledgements
from engine.runtime import Runtime
from engine.store import GroupCommit, MessageStore

LOOK_MS: Final = 10
"""How often it is looked whether what is committed is visible."""
SAVE_MS: Final = 5 * SECOND_MS
"""Between two snapshots of tables that change."""
SAVE_AT_REST_MS: Final = 60 * SECOND_MS
"""Between two snapshots of tables that do not: a start need not read the log from long ago."""
REPORT_MS: Final = 10 * SECOND_MS
CLOCK_MS: Final = SECOND_MS
"""How often clocks are compared, and how far ahead of a majority's that of a leader may be."""
HAND_OVER_MS: Final = 30 * SECOND_MS
"""How often a leader that should not be one tries to hand over."""
_MAJORITY: Final = "a majority"

_log = logging.getLogger(__name__)


class RaftGroup:
    """One broker's part in its group."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        node: BrokerNode,
        read_again: Callable[[], Awaitable[None]],
        roles: RoleChanges,
        safety: Safety,
        store: MessageStore,
        tables: AgreedTables,
    ) -> None:
        """`read_again` has every state that follows the log read from its end."""
        config = node.config
        self._clock = runtime.clock
        self._node = node
        self._read_again = read_again
        self._roles = roles
        self._runtime = runtime
        self._store = store
        self.tables = tables
        self._folder = f"{config.store.root}/raft"
        self.name, self._others = own_and_others(config)
        self._founding = Founding(runtime, self._folder, self.name)
        self.peers = RaftPeers(
            runtime, config.access, receive=self._receive, who=self._who, tables=self._give_tables
        )
        self.orders = RaftOrders(
            clock=runtime.clock, node=node, peers=self.peers, raft=lambda: self.raft, store=store
        )
        self._raft: RaftNode | None = None
        self._committed = 0
        self._note_planned = False
        self._role_changed = asyncio.Event()
        self._record_planned = False
        self._acks = Acknowledgements(timeout_ms=config.slave_timeout_ms, needed=1)
        self._acks.on_wait = self._close_turn_soon
        safety.conditions = (Condition(self._when_committed, PutStatus.UNKNOWN),)
        store.put_refusal = self._put_refusal
        store.on_put = self._has_put
        store.retention.needed_from = lambda: tables.saved_offset
        tables.on_change = self._plan_record
        tables.on_deleted = self._show
        tables.on_failed = self._fail
        tables.attach()
        self._running: asyncio.Task[None] | None = None
        """The node's own work."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def raft(self) -> RaftNode:
        """The node, once it has started."""
        assert self._raft is not None, "the node has not started"
        return self._raft

    # ---- its life ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, found the group or come back to it, and return when all that was committed before
        is visible here. Raises ConfigError, StorageError.
        """
        await self._runtime.disk.off_loop(self._founding.load)
        await self.peers.start(self.name)
        try:
            await self._join()
        except BaseException:
            await self.stop()
            raise

    async def _join(self) -> None:
        founders = await self._founding.agree(self._others, self.peers.who)
        ports = Ports(
            runtime=self._runtime,
            log=RaftLog(self._store),
            folder=self._folder,
            post=self.peers.post,
            on_committed=self._on_committed,
            on_role=self._on_role,
            fetch_files=self._fetch_files,
        )
        shape = await shape_at_start(ports, self._store, self._founding, founders)
        await self.tables.find_deletions(self._store.visible_end)
        self._raft = RaftNode(ports, RaftSettings(), shape)
        self._running = asyncio.get_running_loop().create_task(self._raft.run())
        self._running.add_done_callback(self._ended)
        await self._caught_up()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _caught_up(self) -> None:
        """All that was committed when the present leader began is visible here."""
        reported_ms = self._clock.steady_ms()
        while not self._is_current:
            if self._failed.done():
                await self._failed
            now_ms = self._clock.steady_ms()
            if now_ms - reported_ms >= REPORT_MS:
                reported_ms = now_ms
                state = self.raft.state
                who = "no majority has elected a leader"
                if state.leader is not None:
                    who = f"{name_of(state.leader)} leads, and this node's log is behind"
                _log.warning("the broker opens its port when it knows what is committed: %s", who)
            await asyncio.sleep(LOOK_MS / SECOND_MS)

    @property
    def _is_current(self) -> bool:
        """Is the first entry of the present term visible, as far as deletions let it be?"""
        state = self.raft.state
        is_known = state.leader is not None or state.role is RaftRole.LEADER
        return (
            is_known
            and state.log.term_at(state.visible) == state.term
            and not self._store.dispatch_behind_bytes
        )

    async def run(self) -> None:
        """Follow the node's role, until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow_roles())
            loops.create_task(self._save_tables())
            loops.create_task(self._watch_itself())
            loops.create_task(self.peers.failed())
            loops.create_task(_raised(self._failed))

    def is_clock_ahead(self) -> bool:
        """Would what waits for a moment leave before its time? Then it waits for another leader."""
        return self._raft is None or self._raft.clock_is_ahead(CLOCK_MS)

    async def _watch_itself(self) -> None:
        """Hand over while this node's clock is ahead, or its disk takes nothing."""
        was_ahead, again_ms = False, 0
        while True:
            await asyncio.sleep(CLOCK_MS / SECOND_MS)
            is_ahead = self.is_clock_ahead()
            why = "its disk is too full" if not self._store.writable else ""
            if is_ahead and was_ahead:  # Letters may have been late once.
                why = "its clock is ahead of a majority's"
            was_ahead = is_ahead
            now_ms = self._clock.steady_ms()
            if not why or not self._node.is_master or now_ms < again_ms:
                continue
            again_ms = now_ms + HAND_OVER_MS
            _log.error("another node is to lead: %s", why)
            try:
                await self.orders.transfer("")
            except TidemarkError as error:
                _log.warning("nobody takes over yet: %s", error)

    async def stop(self) -> None:
        """Say nothing any more; a leader hands over first, so that nobody has to miss it."""
        if self._raft is not None and self._node.is_master:
            try:
                await self.orders.transfer("")
            except TidemarkError as error:
                _log.warning("the others have to elect a leader: %s", error)
        try:
            await self.save_tables()
        except TidemarkError as error:
            _log.warning("the next start reads more of the log: %s", error)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.peers.stop()

    # ---- what the node does -----------------------------------------------------------------

    def _receive(self, body: bytes) -> NodeId | None:
        return None if self._raft is None else self._raft.receive(body)

    def _who(self) -> Who:
        node = self._founding.node if self._raft is None else self._raft.state.node
        return Who(node, self._founding.founders, (self.name, *self._others))

    def _on_committed(self, position: Position, offset: int) -> None:
        del position
        self._committed = offset
        self._show()
        if not self._note_planned:  # Who waits may put again, which nobody may amid a step.
            self._note_planned = True
            asyncio.get_running_loop().call_soon(self._note_committed)

    def _close_turn_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._acks.close_turn)

    def _note_committed(self) -> None:
        self._note_planned = False
        self._acks.note(_MAJORITY, self._committed)
        self._store.replicated_end = self._committed if self._node.is_master else None

    def _show(self) -> None:
        """Let be seen what is committed, up to a deletion that is under way."""
        limit = self.tables.visible_limit
        end = self._committed if limit is None else min(self._committed, limit)
        self._store.visible_end = max(self._store.visible_end, end)

    def _on_role(self, change: RoleChanged) -> None:
        """Hear of the node's role. What a leader may not do any more ends in this step."""
        if change.role is not RaftRole.LEADER:
            self._acks.forget_all()
            self.tables.end_term()
            role = Role.SLAVE if change.leader is not None else Role.NONE
            if self._node.is_master:
                role = Role.NONE
            if role is Role.NONE and self._node.term <= change.term:
                self._roles.become(Role.NONE, change.term)
        self._role_changed.set()

    async def _follow_roles(self) -> None:
        self._role_changed.set()
        while True:
            await self._role_changed.wait()
            self._role_changed.clear()
            if self.raft.state.role is RaftRole.LEADER:
                await self._take_over(self.raft.state.term)
            else:
                await self._follow()

    async def _take_over(self, term: int) -> None:
        """Become the master of this term, unless it is over before."""
        if not self.tables.is_sound:
            await self.tables.load()
        while not self._is_current or self.tables.visible_limit is not None:
            if not self._leads(term):
                return
            await asyncio.sleep(LOOK_MS / SECOND_MS)
        if not self._leads(term):  # It may have ended while tables were loaded.
            return
        self.tables.begin_term()
        try:
            await self._read_again()
        except StorageError as error:
            _log.error("the log cannot be read, so another node leads: %s", error)
            raise
        if self._leads(term) and not (self._node.is_master and self._node.term == term):
            self._roles.become(Role.MASTER, term)

    def _leads(self, term: int) -> bool:
        state = self.raft.state
        return state.role is RaftRole.LEADER and state.term == term

    async def _follow(self) -> None:
        state = self.raft.state
        if state.role is not RaftRole.LEADER and state.leader is not None:
            self._roles.become(Role.SLAVE, max(state.term, self._node.term))
        if not self.tables.is_sound:
            await self.tables.load()

    # ---- puts -------------------------------------------------------------------------------

    def _put_refusal(self) -> str | None:
        if self._raft is None:
            return "this node has not joined its group"
        refusal = self._raft.state.refusal()
        return None if refusal is None else f"nothing is put now: {refusal.name}"

    def _has_put(self, end_offset: int) -> None:
        self.raft.has_put(end_offset)

    def _when_committed(self, term: int, end_offset: int) -> GroupCommit | None:
        """As a `Condition` asks; what was changed for a message is committed with it."""
        if self.tables.has_news:
            self._record()
            end_offset = self._store.physical_max
        return self._acks.when_met(term, end_offset)

    # ---- tables -----------------------------------------------------------------------------

    def check_leads(self) -> None:
        """Raise RequestRefused unless this node is the master, as far as it knows."""
        self._node.check_master()

    def _plan_record(self) -> None:
        if not self._record_planned:
            self._record_planned = True
            asyncio.get_running_loop().call_soon(self._record)

    def _record(self) -> None:
        self._record_planned = False
        try:
            self.tables.record()
        except StorageError as error:  # Whoever waits for it hears so by `settled`.
            _log.warning("what changed is not recorded yet: %s", error)

    async def settled(self) -> None:
        """Return when all that was recorded is committed, and this node still leads. Raises
        RequestRefused when that is not known.
        """
        term = self._node.term
        self._record()
        if not self._node.is_master or self.tables.has_news:
            raise _unknown()
        waiter = self._acks.when_met(term, self._store.physical_max)
        if await self.raft.read_index() is None:
            raise _unknown()
        if waiter is not None and not await asyncio.shield(waiter):
            raise _unknown()
        if not self._node.leads(term):
            raise _unknown()

    async def save_tables(self) -> None:
        """Write the snapshot of the tables, once what is in it is agreed on. Raises StorageError,
        and RequestRefused when it may never be.
        """
        await self.tables.save(self._agreed)

    async def _agreed(self) -> None:
        """As `settled`; a follower holds nothing that is not."""
        if self.tables.leads:
            await self.settled()

    async def _save_tables(self) -> None:
        saved_ms = self._clock.steady_ms()
        while True:
            await asyncio.sleep(SAVE_MS / SECOND_MS)
            if self._store.physical_min > self.raft.state.log.base.offset:
                self.raft.log_begins_at(self._store.physical_min)
            at_rest = self._clock.steady_ms() - saved_ms >= SAVE_AT_REST_MS
            if self.tables.is_saved and not at_rest:
                continue
            try:
                await self.save_tables()
            except TidemarkError as error:
                _log.warning("the group's tables are not saved yet: %s", error)
            else:
                saved_ms = self._clock.steady_ms()

    async def _give_tables(self) -> bytes:
        self._node.check_master()
        return await self.tables.snapshot(self.settled)

    async def _fetch_files(self, install: Install) -> None:
        """Take over what the leader has beside its log, which does not go back as far as this one.
        Raises TidemarkError.
        """
        tables = await self.peers.tables(name_of(install.leader))
        await self.tables.take(tables, install.base.offset)


def own_and_others(config: BrokerConfig) -> tuple[str, tuple[str, ...]]:
    """The names of this node and of the others that are to found the group with it."""
    own = next(name for name in config.raft_peers if name.startswith(f"{config.raft_self_id}-"))
    return own, tuple(name for name in config.raft_peers if name != own)


def _unknown() -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        "a majority of the group has not confirmed it: whether it holds is unknown; ask again",
    )


async def _raised(failed: asyncio.Future[None]) -> None:
    await asyncio.shield(failed)
