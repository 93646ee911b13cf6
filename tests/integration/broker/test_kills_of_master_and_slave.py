"""Row C9: kill -9 of a master and of its slave under load, in turn and at once: what a SYNC_MASTER
acknowledged is in both logs, and the logs are the same bytes.

The suite plays a few rounds; TIDEMARK_KILL_ROUNDS asks for more.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.broker.cluster import eventually
from tests.integration.broker.processes import Started, party
from tests.integration.broker.test_kill_loop import (
    QUEUES,
    SMALL,
    everything_stored,
    make_topic,
    send_for_ever,
)
from tests.integration.telemetry.killable_engine import KillableEngine, free_port
from tests.seeds import one_seed
from tests.simulation.history import History, check_nothing_acknowledged_is_lost

ROUNDS = int(os.environ.get("TIDEMARK_KILL_ROUNDS", "4"))
SEED = one_seed()


class KillablePair:
    """A master, its name server, and a slave, each a process; they outlive no kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        master = ("brokerRole=SYNC_MASTER", f"haListenPort={free_port()}", "slaveTimeout=1500")
        options = [word for setting in master for word in ("--set", setting)]
        self.master = KillableEngine(folder, *options, *SMALL)
        self.slave_port = free_port()
        self.slave: Started | None = None
        self._stack = ExitStack()

    def start_slave(self) -> None:
        self.slave = self._stack.enter_context(
            party(
                self.folder / "slave.txt",
                *("broker", "--store", str(self.folder / "slave"), "--lake", "none"),
                *("--namesrv", self.master.namesrv, "--port", str(self.slave_port)),
                *("--set", "brokerRole=SLAVE", "--set", "brokerId=1", *SMALL),
            )
        )

    def kill_slave(self) -> None:
        assert self.slave is not None
        self.slave.kill()
        self.slave = None

    def close(self) -> None:
        self._stack.close()


def log_bytes(store: Path) -> bytes:
    """Every byte of a commit log up to its last record: what follows are zeros made ahead."""
    files = sorted(one for one in (store / "commitlog").iterdir() if one.name.isdigit())
    return b"".join(one.read_bytes() for one in files).rstrip(b"\0")


@pytest.mark.timeout(90 + 20 * ROUNDS)
async def test_what_is_acknowledged_is_in_both_logs_whoever_is_killed(tmp_path: Path) -> None:
    chance, history = random.Random(SEED), History()
    pair, clients = KillablePair(tmp_path), list[asyncio.Task[None]]()
    try:
        await pair.master.start()
        await asyncio.to_thread(pair.start_slave)
        await eventually_made(pair)
        clients += [
            asyncio.create_task(send_for_ever(pair.master, history, one)) for one in range(QUEUES)
        ]
        for number in range(ROUNDS):
            acked_before = len(history.acked)

            async def more_is_acked(before: int = acked_before) -> bool:
                return len(history.acked) > before + 20

            await eventually(more_is_acked, "sends are acknowledged", within_s=40)
            await asyncio.sleep(chance.uniform(0.0, 0.6))
            victims = ("master", "slave", "both")[number % 3]
            if victims != "slave":
                await pair.master.end(signal.SIGKILL)
            if victims != "master":
                await asyncio.to_thread(pair.kill_slave)
            if victims != "slave":
                await pair.master.start()
            if victims != "master":
                await asyncio.to_thread(pair.start_slave)
        for client in clients:
            client.cancel()
        for outcome in await asyncio.gather(*clients, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome

        async def same_logs() -> bool:
            return log_bytes(pair.master.store) == log_bytes(tmp_path / "slave")

        await eventually(same_logs, "the logs are the same", within_s=40)
        check_nothing_acknowledged_is_lost(history, await everything_stored(pair.master))
        await asyncio.to_thread(pair.kill_slave)
        await pair.master.end(signal.SIGTERM)
    finally:
        pair.close()


async def eventually_made(pair: KillablePair) -> None:
    """The topic is there, and the slave follows."""

    async def is_made() -> bool:
        try:
            await make_topic(pair.master)
        except AssertionError:
            return False
        return True

    await eventually(is_made, "a send is acknowledged by both", within_s=40)
