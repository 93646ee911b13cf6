"""A Raft group of three `tidemark broker` processes with two name servers, on the same ports and
stores in every life.

    group = BrokerGroup(folder)
    await group.start()            founded, and one of them leads
    leader = await group.leader()
    leader.kill(), leader.pause()  as a crash, and as a machine that stops for a while
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.foundation.errors import TidemarkError
from engine.protocol.bodies import TopicRouteData
from engine.protocol.bodies_admin import ReplicaState
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.names import MASTER_ID
from tests.integration.broker.cluster import RawClient, eventually
from tests.integration.broker.processes import TIDEMARK
from tests.integration.telemetry.killable_engine import free_port

BROKER = "broker-a"
SMALL = (
    *("mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000"),
    *("maxHashSlotNum=500", "maxIndexNum=2000"),
)
"""Settings of a store that is quick to make and to recover."""
READY_S = 60


class Party:
    """A process that is started again and again, by the same command."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log, self._command = log, command
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of its present life."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Has it begun, and not ended?"""
        return self.process is not None and self.process.returncode is None

    async def begin(self) -> None:
        """Begin a life; `ready` says when others can ask it."""
        with self.log.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", *self._command),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )

    async def ready(self) -> None:
        """Wait for its ready line."""
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await self.process.stdout.readline()
        assert line.startswith(b"ready "), f"{line!r}:\n{self.log.read_text()}"

    def pause(self) -> None:
        """Stop it where it is: it does nothing, and its connections stay."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def ended(self, *, within_s: float) -> bool:
        """Wait for its end; does it come?"""
        assert self.process is not None
        try:
            async with asyncio.timeout(within_s):
                await self.process.wait()
        except TimeoutError:
            return False
        return True

    async def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass(frozen=True)
class Place:
    """Where a party runs."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    """Words before its command."""
    options: tuple[str, ...] = ()
    """Options of the command that belong to the place."""
    program: tuple[str, ...] = (TIDEMARK,)
    """Words that begin its command."""
    store: Path | None = None
    """Where a broker's store is, if not beside the others."""


HERE = Place()


class Member(Party):
    """A broker that has copies."""

    def __init__(
        self,
        folder: Path,
        number: int,
        place: Place,
        *settings: str,
        client: Callable[[str], RawClient],
    ) -> None:
        self.store = place.store or folder / f"n{number}"
        self.place = place
        self._client = client
        port = free_port()
        self.address = f"{place.address}:{port}"
        super().__init__(
            folder / f"n{number}.txt",
            *(*place.enter, *place.program, "broker", "--store", str(self.store)),
            *("--port", str(port), "--no-telemetry", *place.options),
            *(word for setting in (*SMALL, *settings) for word in ("--set", setting)),
        )

    async def state(self) -> ReplicaState | None:
        """How it stands among the copies; None: it does not say so now."""
        client = self._client(self.address)
        try:
            answer = await client.ask(RequestCode.GET_REPLICA_STATE, timeout_ms=1000)
        except TidemarkError:
            return None
        finally:
            await client.close()
        return ReplicaState.decode(answer.body)


class Copies:
    """Brokers of one name, and two name servers."""

    def __init__(
        self, folder: Path, places: Sequence[Place], client: Callable[[str], RawClient]
    ) -> None:
        """`places`: of the name servers; `client` makes one that all of them answer."""
        self.client = client
        self.members: list[Member] = []
        self.namesrvs: tuple[str, ...] = ()
        self.name_servers: list[Party] = []
        for number, place in enumerate(places):
            port, log = free_port(), folder / f"namesrv-{number}.txt"
            self.namesrvs += (f"{place.address}:{port}",)
            command = (*place.enter, TIDEMARK, "namesrv", "--port", str(port), *place.options)
            self.name_servers.append(Party(log, *command))

    async def start(self) -> None:
        """Begin all; return when one leads, and both name servers name it."""
        parties = (*self.name_servers, *self.members)
        await asyncio.gather(*(one.begin() for one in parties))
        await asyncio.gather(*(one.ready() for one in parties))
        await self.named_leader()

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(one.kill() for one in (*self.members, *self.name_servers)))

    async def leader(self, *, within_s: float = 30) -> Member:
        """Who leads in the newest term, as soon as somebody does."""
        found: list[tuple[int, Member]] = []

        async def leads() -> bool:
            states = await asyncio.gather(*(one.state() for one in self.members))
            found[:] = [
                (state.highest_epoch, member)
                for member, state in zip(self.members, states, strict=True)
                if state is not None and state.role == "MASTER"
            ]
            return bool(found)

        await eventually(leads, "somebody leads", within_s=within_s)
        return max(found, key=lambda one: one[0])[1]

    async def named_leader(self, topic: str = "TBW102", *, within_s: float = 30) -> Member:
        """As `leader`, as soon as both name servers name it, and it alone, for the topic."""
        leader = await self.leader(within_s=within_s)

        async def is_named() -> bool:
            nonlocal leader
            leader = await self.leader(within_s=within_s)
            named = [await self.master_named(one, topic) for one in self.namesrvs]
            return named == [leader.address] * 2

        await eventually(is_named, "both name servers name the leader", within_s=within_s)
        return leader

    async def master_named(self, namesrv: str, topic: str) -> str | None:
        """Whom a name server names as the master of the group, to whom asks for a topic."""
        client = self.client(namesrv)
        try:
            answer = await client.ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                topic=topic,
                acceptStandardJsonOnly=True,
                timeout_ms=2000,
            )
        except TidemarkError:
            return None
        finally:
            await client.close()
        if answer.code != ResponseCode.SUCCESS:
            return None
        brokers = TopicRouteData.decode(answer.body).broker_datas
        named = (one.broker_addrs.get(MASTER_ID) for one in brokers if one.broker_name == BROKER)
        return next(named, None)


class BrokerGroup(Copies):
    """A Raft group of three."""

    def __init__(
        self,
        folder: Path,
        *settings: str,
        places: Sequence[Place] = (HERE,) * 5,
        client: Callable[[str], RawClient] = RawClient,
    ) -> None:
        """`settings`: further ones of each broker; `places`: of the brokers, then of the name
        servers.
        """
        super().__init__(folder, places[3:], client)
        self.names = [
            f"n{number}-{place.address}:{free_port()}" for number, place in enumerate(places[:3])
        ]
        common = (
            *("enableDLegerCommitLog=true", f"dLegerPeers={';'.join(self.names)}"),
            *(f"namesrvAddr={';'.join(self.namesrvs)}", *settings),
        )
        self.members = [
            Member(folder, number, place, f"dLegerSelfId=n{number}", *common, client=client)
            for number, place in enumerate(places[:3])
        ]

    async def is_level(self) -> bool:
        """Have all three the same log, durable and committed to its end?"""
        states = [await one.state() for one in self.members]
        ends = {
            (one.log_end, one.log_synced, one.master_end, one.highest_epoch)
            for one in states
            if one is not None
        }
        if None in states or len(ends) != 1:
            return False
        log_end, log_synced, committed, _ = ends.pop()
        return log_end == log_synced == committed

    async def settled(self) -> None:
        """Wait until nothing is put any more, and all three have all of it."""
        await eventually(self.is_level, "all three have the same log", within_s=60)
