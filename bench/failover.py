"""Measures how long nobody takes sends when the leader of a Raft group of brokers is killed.

    python -m bench.failover [--trials N] [--at FOLDER] [--clients ours java]

Three brokers and two name servers, each a process. A client sends one message after the other; the
leader is killed by SIGKILL. The clock runs from there to the first acknowledgement after which no
send of RUN fails. Our client is at its defaults, Java's polls routes each second. The killed one
comes back before the next trial.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import FAILOVER_JAVA, FAILOVER_OURS
from bench.java_load import JavaLoad, compile_load
from engine.client import ClientConfig, Producer, ProducerConfig
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from engine.runtime import system_runtime
from provision.places import rocketmq_jars
from tests.integration.broker.broker_group import BrokerGroup
from tests.integration.broker.cluster import RawClient

RUN: Final = 100
"""So many sends in a row are acknowledged: then all is well again."""
PAUSE_MS: Final = 5
JAVA_POLL_MS: Final = 1000
STEADY_S: Final = 2.0
PATIENCE_S: Final = 90
TOPIC: Final = "steady"
BARS: Final = {"ours": FAILOVER_OURS, "java": FAILOVER_JAVA}


class Sends:
    """When each send ended, in wall-clock seconds, and whether it was acknowledged."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, bool]] = []
        self.complaints: list[str] = []

    async def well_again_s(self, killed_s: float) -> float:
        """How long after the kill the first of RUN acknowledged sends in a row was answered."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            run: list[float] = []
            for ended_s, is_acknowledged in self.ends:
                if ended_s > killed_s:
                    run = [*run, ended_s] if is_acknowledged else []
                if len(run) == RUN:
                    return run[0] - killed_s
            await asyncio.sleep(0.05)
        raise SystemExit(f"no {RUN} sends in a row within {PATIENCE_S} s: {self.complaints[-3:]}")


@asynccontextmanager
async def our_sends(group: BrokerGroup) -> AsyncIterator[Sends]:
    """By our client, in this process."""
    sends = Sends()
    config = ClientConfig(namesrv_addresses=group.namesrvs)
    producer = Producer(system_runtime(), config, "steady", producer=ProducerConfig())
    await producer.start()

    async def send_for_ever() -> None:
        while True:
            try:
                sent = await producer.send(Message(TOPIC, bytes(100)))
                is_acknowledged = sent.status.name == "SEND_OK"
            except TidemarkError as error:
                sends.complaints.append(str(error))
                is_acknowledged = False
            sends.ends.append((time.time(), is_acknowledged))
            await asyncio.sleep(PAUSE_MS / 1000)

    task = asyncio.create_task(send_for_ever())
    try:
        yield sends
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await producer.stop()


@asynccontextmanager
async def java_sends(group: BrokerGroup, load: JavaLoad, home: Path) -> AsyncIterator[Sends]:
    """By RocketMQ's client."""
    sends = Sends()
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", str(load.java_home / "bin" / "java"), "-Xmx256m"),
        *(f"-Duser.home={home}", "-cp", f"{load.classes}:{rocketmq_jars()}/*", "SteadySends"),
        *(";".join(group.namesrvs), TOPIC, str(JAVA_POLL_MS), str(PAUSE_MS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def read(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            words = line.split()
            if words[:1] == [b"SENT"]:
                sends.ends.append((int(words[1]) / 1000, words[2] == b"1"))
            else:
                sends.complaints.append(line.decode().strip())

    tasks = [asyncio.create_task(read(one)) for one in (process.stdout, process.stderr)]
    try:
        yield sends
    finally:
        process.stdin.close()
        await process.wait()
        await asyncio.gather(*tasks)


async def trials(group: BrokerGroup, sends: Sends, count: int) -> list[float]:
    """Kill the leader so often; how long each took, in seconds."""
    found: list[float] = []
    await sends.well_again_s(0.0)
    for number in range(count):
        leader = await group.named_leader(TOPIC)
        await asyncio.sleep(STEADY_S)
        killed_s = time.time()
        await leader.kill()
        found.append(await sends.well_again_s(killed_s))
        errors = sum(not good for ended_s, good in sends.ends if ended_s > killed_s)
        print(f"  trial {number + 1}: {found[-1]:.2f} s, {errors} sends failed", flush=True)
        sends.ends.clear()
        await leader.begin()
        await leader.ready()
        await asyncio.sleep(STEADY_S)
    return found


async def measure(home: Path, clients: list[str], count: int) -> Table:
    """One group for all trials of a client."""
    table = Table(title=f"from SIGKILL of the leader to sends as before, {count} trials, s")
    for heading in ("client", "median", "longest", "bar", "all"):
        table.add_column(heading, justify="left" if heading in ("client", "all") else "right")
    for client in clients:
        print(client)
        folder = home / client
        folder.mkdir()
        group = BrokerGroup(folder)
        try:
            await group.start()
            maker = RawClient((await group.leader()).address)
            await maker.make_topic(TOPIC)
            await maker.close()
            await group.named_leader(TOPIC)
            if client == "java":
                source = java_sends(group, compile_load(folder), folder)
            else:
                source = our_sends(group)
            async with source as sends:
                found = await trials(group, sends, count)
        finally:
            await group.close()
        longest = f"{max(found):.2f}"
        texts = " ".join(f"{one:.2f}" for one in found)
        table.add_row(client, f"{statistics.median(found):.2f}", longest, str(BARS[client]), texts)
    return table


def main() -> None:
    """Measure below a folder that goes afterwards, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--clients", nargs="+", choices=list(BARS), default=list(BARS))
    parser.add_argument("--at", help="folder on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-failover-", dir=options.at) as folder:
        table = asyncio.run(measure(Path(folder), options.clients, options.trials))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
