"""Command lines for a demo on a Raft group: three brokers, each with a shipper of its own.

Place in the walk: the stage starts, kills and stops the three as one broker; who dies is whoever
leads then. Absent on purpose: clients, which are those of a single broker.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from demo.cast import OwnCast, Roles, broker_options
from demo.plan import BROKER_NAME, Plan
from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, StageError, tidemark

NODES = 3
LIST_PATIENCE_S = 30.0


class Ensemble(Actor):
    """Several processes that play one part."""

    def __init__(self, name: str, actors: Sequence[Actor], logs: Path) -> None:
        super().__init__(name, [], logs)
        self.actors = list(actors)

    @property
    def running(self) -> bool:
        """Do all of them live?"""
        return all(actor.running for actor in self.actors)

    @property
    def exit_code(self) -> int | None:
        """How one of them ended; None while all run or before they began."""
        return next((one.exit_code for one in self.actors if one.exit_code is not None), None)

    @property
    def pid(self) -> int:
        """The number of the first one."""
        return self.actors[0].pid

    def start(self) -> None:
        """Start those that do not run."""
        for actor in self.actors:
            if not actor.running:
                actor.start()

    def start_until_ready(
        self, *, within_s: float, heed: Callable[[], None] = lambda: None
    ) -> None:
        """Start those that do not run, and wait until each of them is ready. Raises StageError."""
        heed()
        begun = [(actor, actor.said_bytes()) for actor in self.actors if not actor.running]
        self.start()
        for actor, offset_bytes in begun:
            actor.wait_until_ready(within_s=within_s, offset_bytes=offset_bytes, heed=heed)

    def ask_to_stop(self) -> None:
        """SIGTERM to all."""
        for actor in self.actors:
            actor.ask_to_stop()

    def finish(self) -> None:
        """Wait for the end of each."""
        for actor in self.actors:
            actor.finish()

    def last_words(self) -> str:
        """What the one says that has ended, or the first one."""
        ended = [actor for actor in self.actors if actor.exit_code is not None]
        return (ended or self.actors)[0].last_words()


class Group(Ensemble):
    """The brokers."""

    def __init__(self, brokers: Sequence[Actor], roles: Roles, ports: Sequence[int]) -> None:
        super().__init__("brokers", brokers, roles.logs)
        self._of_address = {
            f"127.0.0.1:{port}": actor for port, actor in zip(ports, brokers, strict=True)
        }
        self._namesrv = roles.namesrv

    def kill(self) -> None:
        """SIGKILL to whoever leads. Raises StageError when nobody does."""
        command = tidemark("admin", "replica", "list", BROKER_NAME, "--json")
        done = subprocess.run(
            [*command, "--namesrv", self._namesrv],
            capture_output=True,
            check=False,
            timeout=LIST_PATIENCE_S,
        )
        nodes = json.loads(done.stdout or b"[]")
        leaders = [one["address"] for one in nodes if one["role"] == "RAFT"]
        if len(leaders) != 1:
            raise StageError(f"{len(leaders)} of {len(nodes)} brokers lead; {done.stderr.decode()}")
        self._of_address[leaders[0]].kill()


class RaftCast(OwnCast):
    """Three brokers of one name, and three shippers."""

    def __init__(self, plan: Plan, roles: Roles) -> None:
        super().__init__(plan, roles)
        own = [free_broker_port() for _ in range(NODES)]
        peers = [free_port_block(1) for _ in range(NODES)]
        names = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(peers))
        group = {"enableDLegerCommitLog": "true", "dLegerPeers": names}
        stores = [roles.store / f"n{number}" for number in range(NODES)]
        brokers = [
            self._actor(
                f"broker-n{number}",
                tidemark(
                    "broker",
                    *broker_options(
                        roles, store=store, port=port, more=group | {"dLegerSelfId": f"n{number}"}
                    ),
                ),
            )
            for number, (store, port) in enumerate(zip(stores, own, strict=True))
        ]
        self.broker: Group = Group(brokers, roles, own)
        shippers = [
            self._actor(
                f"shipper-n{number}", tidemark("shipper", "--store", str(store), *self._lake)
            )
            for number, store in enumerate(stores)
        ]
        self.reporter = Ensemble("shippers", shippers, roles.logs)
