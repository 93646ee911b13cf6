"""Brokers and name servers as users start them: processes with options, files and variables."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.integration.broker.cluster import RawClient

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
READY = re.compile(r"ready (?:namesrv|broker)=(\S+:\d+)\n")
STOP_TIMEOUT_S = 30

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Started:
    """A party that said it was ready."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def stop(self) -> None:
        """End it cleanly."""
        self.process.terminate()
        assert self.process.wait(STOP_TIMEOUT_S) == 0, self.log.read_text()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def party(
    log: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = (TIDEMARK,),
) -> Iterator[Started]:
    """`tidemark ARGUMENTS`, ready; killed at the end if it still runs. Its log goes to `log`.

    `program` begins the command otherwise, for a `tidemark` somewhere else.
    """
    command = ["setpriv", "--pdeathsig", "KILL", *program, *arguments]
    with (
        log.open("a") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | dict(environment or {}),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = READY.fullmatch(line)
            assert ready, f"{line!r} is not the ready line:\n{log.read_text()}"
            yield Started(ready[1], process, log)
        finally:
            process.kill()


def refusal(*arguments: str, program: Sequence[str] = (TIDEMARK,)) -> str:
    """What `tidemark ARGUMENTS` says when it does not start."""
    done = subprocess.run(
        [*program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr


def talk(address: str, story: Callable[[RawClient], Awaitable[Answer]]) -> Answer:
    """What `story(client)` returns, with a client of the party at `address`."""

    async def run() -> Answer:
        client = RawClient(address)
        try:
            return await story(client)
        finally:
            await client.close()

    return asyncio.run(run())
