"""A name server and a broker in a process of their own, on the same ports in every life, and its
shipper in another."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TIDEMARK = Path(sys.executable).parent / "tidemark"
START_S = 60
SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")
"""Options of a store that is quick to make and to recover."""
STOP_S = 90


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KillableEngine:
    """`tidemark engine` with a store that outlives it."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are further ones of the command, the same in every life."""
        self._options = options
        self.store = folder / "store"
        self.lake = folder / "lake"
        self.namesrv_port, self.broker_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{self.namesrv_port}"
        self.broker = f"127.0.0.1:{self.broker_port}"
        self.log = folder / "log.txt"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *options: str) -> None:
        """The next life, ready for requests."""
        self._process = await self._run(
            *("engine", "--store", str(self.store), "--namesrv-port", str(self.namesrv_port)),
            *("--broker-port", str(self.broker_port)),
            *self._options,
            *options,
        )
        await self._first_line(self._process, b"ready ")

    async def end(self, number: signal.Signals) -> int:
        """Send the signal and wait; the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        async with asyncio.timeout(STOP_S):
            return await self._process.wait()

    async def start_shipper(self) -> asyncio.subprocess.Process:
        """A shipper that is open for business."""
        process = await self._run("shipper", "--store", str(self.store), "--lake", str(self.lake))
        await self._first_line(process, b"shipping ")
        return process

    async def kill_shippers(self, seed: int, count: int, more: asyncio.Event) -> int:
        """SIGKILL shippers at random moments, `count` or more, until `more` is set; how many."""
        choice = random.Random(seed)
        kills = 0
        while kills < count or not more.is_set():
            process = await self.start_shipper()
            await asyncio.sleep(choice.uniform(0.01, 1.0))
            assert process.returncode is None, "it ends by itself only when something is wrong"
            process.kill()
            await process.wait()
            kills += 1
        return kills

    async def _run(self, *arguments: str) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(TIDEMARK), *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log
            )

    async def _first_line(self, process: asyncio.subprocess.Process, begins: bytes) -> None:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        assert line.startswith(begins), self.log.read_text()[-2000:]
