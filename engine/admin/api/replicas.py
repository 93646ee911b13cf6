"""Replica administration: state, promotion, hand-over and truncation of log copies.

A promotion counts: of N slaves, of which each acknowledgement waited for k, at least N - k + 1 have
to answer; then one of them has whatever was acknowledged, and it is the one of the greatest (epoch,
end). The epoch of a promotion is the second in which it was planned: greater than any that a former
master counts up to by its starts.

Invariant: a master that answers is demoted before another is promoted. Absent on purpose: deciding
that a master is lost (an operator does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import ClusterError, ConfigError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies_admin import LogCut, ReplicaState
from engine.protocol.codes import RequestCode
from engine.protocol.headers import ChangeReplicaRequestHeader
from engine.protocol.names import MASTER_ID

LOOK_MS = 50
ORDER_TIMEOUT_MS = 60 * SECOND_MS
REBUILD_TIMEOUT_MS = 600 * SECOND_MS


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy, as it answers now."""

    broker_id: int
    address: str
    state: ReplicaState | None
    """None: it does not answer."""
    why_not: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """(epoch of its last byte, end of its log)."""
        state = self.state
        assert state is not None, "only of one that answers"
        epochs = [one["epoch"] for one in state.epochs if one["startOffset"] < state.log_end]
        return max(epochs, default=0), state.log_end

    @property
    def leads(self) -> bool:
        """Is it a master that answers?"""
        return self.state is not None and self.state.role == "MASTER"

    def is_in_sync(self, master: ReplicaState) -> bool:
        """Does it follow, with an unbroken log from the master's lowest offset on?"""
        state = self.state
        return (
            state is not None
            and state.following == "FOLLOWING"
            and state.log_begin <= master.log_begin
        )


@dataclass(frozen=True, slots=True)
class Promotion:
    """A plan to let another copy lead."""

    broker: str
    chosen: Replica
    epoch: int
    broker_role: str
    copies: int
    """Which a SYNC_MASTER waits for, its own among them."""
    slaves: int
    answered: int
    waited_for: int
    """Slaves without whose word nothing was acknowledged; 0: it was acknowledged without any."""
    former: Replica | None
    """The master, when it answers."""

    def sentences(self) -> list[str]:
        """What it does, and what may be lost by it."""
        end = self.chosen.place[1]
        becomes = (
            f"{self.chosen.address} (id {self.chosen.broker_id}) becomes {self.broker_role} of "
            f"{self.broker} in epoch {self.epoch}, which begins at byte {end} of the log"
        )
        said = [becomes]
        if self.former is not None:
            said.append(
                f"{self.former.address}, which leads and answers, becomes its slave first; what "
                f"its log holds behind {end} is lost: `replica transfer` hands over without a loss"
            )
        elif self.waited_for:
            said.append(
                f"nothing that was acknowledged is lost: of {self.slaves} slaves, of which each "
                f"acknowledgement waited for {self.waited_for}, {self.answered} answer"
            )
        else:
            said.append(
                "the former master acknowledged without waiting for slaves: what its log holds "
                f"behind {end} is lost{self._seen(end)}"
            )
        if self.broker_role == "SYNC_MASTER" and self.copies > 1:
            said.append(
                f"a send is acknowledged when {self.copies} copies have it; until enough slaves "
                "follow it is answered FLUSH_SLAVE_TIMEOUT (--role ASYNC_MASTER waits for none)"
            )
        return said

    def _seen(self, end: int) -> str:
        state = self.chosen.state
        if state is None or state.master_end <= end:
            return ""
        return f", {state.master_end - end} bytes at least: its end was last heard of there"


class ReplicaAdmin:
    """Questions and orders about copies."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def of(self, broker: str, others: Iterable[str] = ()) -> list[Replica]:
        """The copies of a broker by id, and at `others`, addresses that no name server names.
        Raises ConfigError for a broker of which nothing is known.
        """
        info = await self._requests.cluster_info()
        known = info.broker_addr_table.get(broker)
        places = {} if known is None else dict(known.broker_addrs)
        found = [await self._look(place, address) for place, address in sorted(places.items())]
        unnamed = [one for one in others if one not in places.values()]
        found += [await self._look(-1, address) for address in unnamed]
        if not found:
            raise ConfigError("broker", broker, f"one of {', '.join(info.broker_addr_table)}")
        return found

    async def state(self, address: str) -> ReplicaState:
        """How one copy stands."""
        answer = await self._requests.ask(address, RequestCode.GET_REPLICA_STATE, {})
        return ReplicaState.decode(answer.body)

    async def _look(self, broker_id: int, address: str) -> Replica:
        try:
            state = await self.state(address)
        except TidemarkError as error:
            return Replica(broker_id, address, None, str(error))
        return Replica(state.broker_id, address, state)

    async def plan(
        self,
        broker: str,
        *,
        broker_role: str,
        copies: int,
        slaves: int | None = None,
        others: Iterable[str] = (),
    ) -> Promotion:
        """Which copy is to lead; `slaves`: how many there are, when name servers know fewer. Raises
        ClusterError when too few answer.
        """
        found = await self.of(broker, others)
        if any(one.state is not None and one.state.voters for one in found):
            raise ClusterError(f"{broker} is a Raft group, which elects its leaders by itself")
        former = next((one for one in found if one.leads), None)
        able = [one for one in found if one.state is not None and not one.leads]
        if not able:
            raise ClusterError(f"no copy of {broker} answers that could lead")
        of_slaves = [one for one in able if one.state is not None and one.state.role == "SLAVE"]
        registered = sum(one.broker_id != MASTER_ID for one in found if one not in able)
        count = max(slaves or 0, len(of_slaves) + registered)
        waited_for = _waited_for(found)
        held = any(one not in of_slaves for one in able)  # A master that was held has all there is.
        needed = count - waited_for + 1
        if waited_for and former is None and not held and len(of_slaves) < needed:
            raise ClusterError(
                f"{len(of_slaves)} of {count} slaves of {broker} answer; each acknowledgement "
                f"waited for {waited_for}, so {needed} have to: the others may have what these lack"
            )
        return Promotion(
            broker,
            max(able, key=lambda one: (one.place, -one.broker_id)),
            self._next_epoch(found),
            broker_role,
            copies,
            count,
            len(of_slaves),
            waited_for,
            former,
        )

    def _next_epoch(self, found: Sequence[Replica]) -> int:
        highest = max(one.state.highest_epoch for one in found if one.state is not None)
        return max(highest + 1, self._requests.clock.now_ms() // SECOND_MS)

    async def promote(self, plan: Promotion) -> int:
        """Carry it out; how many bytes of a master that answered are lost."""
        lost, former = 0, plan.former
        if former is not None:
            await self._demote(former, plan)
            lost = (await self.state(former.address)).log_end - plan.chosen.place[1]
        await self._promote(plan)
        return lost

    async def transfer(self, broker: str, *, to: int | None, wait_ms: int) -> Promotion:
        """Hand over without a loss: the master puts nothing any more, and when a slave has all of
        its log that one leads. Raises ClusterError when it does not come that far: then the master
        leads again.
        """
        found = await self.of(broker)
        former = next((one for one in found if one.leads), None)
        if former is None or former.state is None:
            raise ClusterError(f"no master of {broker} answers: `replica promote` takes its place")
        able = [one for one in found if one.is_in_sync(former.state)]
        if to is not None:
            able = [one for one in able if one.broker_id == to]
        if not able:
            raise ClusterError(f"no slave of {broker} that could take over is in sync")
        chosen = max(able, key=lambda one: one.place)
        if former.state.voters:
            return await self._transfer_in_group(broker, former, to=to, wait_ms=wait_ms)
        state, epoch = former.state, self._next_epoch(found)
        role, copies = state.broker_role, state.in_sync_replicas
        back = Promotion(broker, former, epoch, role, copies, 0, 0, 0, None)
        await self._order(former.address, action="HOLD")
        try:
            await self._equal(former.address, chosen.address, wait_ms)
            plan = Promotion(broker, chosen, epoch + 1, role, copies, 0, 0, 0, former)
            await self._order(chosen.address, action="COPY")
            await self._promote(plan)
        except (TidemarkError, TimeoutError) as error:
            await self._promote(back)
            raise ClusterError(f"{former.address} leads on, in epoch {epoch}: {error}") from error
        await self._demote(former, plan)
        return plan

    async def _transfer_in_group(
        self, broker: str, former: Replica, *, to: int | None, wait_ms: int
    ) -> Promotion:
        """The leader hands over by itself; who leads then is asked of all."""
        chosen = await self.of(broker)
        states = [one.state for one in chosen if one.broker_id == to and one.state is not None]
        name = states[0].member if states else ""
        if to is not None and not name:
            raise ClusterError(f"no copy of {broker} has the id {to}")
        await self._order(former.address, action="TRANSFER", member=name)
        deadline_ms = self._requests.clock.steady_ms() + wait_ms
        while True:
            for one in await self.of(broker):
                if one.leads and one.address != former.address and one.state is not None:
                    return Promotion(broker, one, one.state.highest_epoch, "RAFT", 0, 0, 0, 0, None)
            if self._requests.clock.steady_ms() >= deadline_ms:
                raise ClusterError(f"nobody leads {broker} after {wait_ms} ms")
            await asyncio.sleep(LOOK_MS / SECOND_MS)

    async def change_group(self, broker: str, action: str, member: str) -> ReplicaState:
        """ADD a node to a Raft group or REMOVE it; how its leader stands then. Raises ClusterError
        when nobody leads.
        """
        leader = next((one for one in await self.of(broker) if one.leads), None)
        if leader is None:
            raise ClusterError(f"nobody leads {broker} now")
        await self._order(leader.address, action=action, member=member)
        return await self.state(leader.address)

    async def _equal(self, former: str, chosen: str, wait_ms: int) -> None:
        """Wait until both logs end alike."""
        end = (await self.state(former)).log_end
        try:
            async with asyncio.timeout(wait_ms / SECOND_MS):
                while (await self.state(chosen)).log_end != end:  # noqa: ASYNC110 - it is asked.
                    await asyncio.sleep(LOOK_MS / SECOND_MS)
        except TimeoutError as error:
            raise ClusterError(f"{chosen} does not have its log within {wait_ms} ms") from error

    async def cut(self, address: str, *, at: int | None = None) -> LogCut:
        """What the log of a slave holds that its master's does not; `at`: cut it there, as it was
        previewed, after all of that was written to a file.
        """
        action, log_end = ("PREVIEW", -1) if at is None else ("REBUILD", at)
        answer = await self._order(address, action=action, log_end=log_end)
        return LogCut.decode(answer)

    async def _promote(self, plan: Promotion) -> None:
        await self._order(
            plan.chosen.address,
            action="PROMOTE",
            epoch=plan.epoch,
            broker_role=plan.broker_role,
            in_sync_replicas=plan.copies,
        )

    async def _demote(self, former: Replica, plan: Promotion) -> None:
        await self._order(
            former.address,
            action="DEMOTE",
            epoch=plan.epoch,
            broker_id=max(1, plan.chosen.broker_id),
        )

    async def _order(self, address: str, **fields: str | int) -> bytes:
        header = ChangeReplicaRequestHeader(**fields)  # type: ignore[arg-type]
        is_long = header.action in ("PREVIEW", "REBUILD")
        answer = await self._requests.ask(
            address,
            RequestCode.CHANGE_REPLICA,
            header.encode(),
            timeout_ms=REBUILD_TIMEOUT_MS if is_long else ORDER_TIMEOUT_MS,
        )
        return bytes(answer.body)


def _waited_for(found: Sequence[Replica]) -> int:
    """Slaves for which each acknowledgement of the newest epoch waited."""
    states = [one.state for one in found if one.state is not None]
    known = {one["epoch"]: one["slaves"] for state in states for one in state.epochs}
    return known[max(known)] if known else 0
