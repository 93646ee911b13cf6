"""Starts our engine as a user does: `tidemark engine` in its own process, on free ports."""

from __future__ import annotations

import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.ports import free_broker_port, free_port_block

READY = re.compile(r"ready namesrv=(\S+:\d+) broker=(\S+:\d+)")
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 90
"""A broker of 10,000 topics first makes the files of queues that only memory held."""
QUICK_CHECKS = (
    *("--set", "transactionTimeOut=1500", "--set", "transactionOpBatchInterval=1000"),
    *("--set", "transactionCheckInterval=500"),
)
"""Open transactions are asked about within two seconds instead of half a minute."""

AS_THE_REAL_ONE = (
    *("--set", "enablePropertyFilter=true"),
    *("--set", "recallMessageEnable=true"),
)
"""SQL92 selectors are evaluated, and messages recalled, as by the real cluster of these tests."""


@dataclass(frozen=True)
class OurEngine:
    """A running engine: what its ready line said, and the process."""

    name_server: str
    broker: str
    store: Path
    process: subprocess.Popen[str]


@contextmanager
def our_engine(
    work: Path, *options: str, killed: bool = False, ports: tuple[int, int] | None = None
) -> Iterator[OurEngine]:
    """Start `tidemark engine` below `work`, yield it ready, stop it by SIGTERM; it must then exit
    with 0. `killed`: end it by SIGKILL instead. `ports` of name server and broker; free ones when
    left out.
    """
    name_server_port, broker_port = ports or (free_port_block(1), free_broker_port())
    store, log = work / "store", work / "engine.log"
    work.mkdir(parents=True, exist_ok=True)
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # a killed test run leaves no engine behind
        *(str(Path(sys.prefix) / "bin" / "tidemark"), "engine", "--store", str(store)),
        *("--namesrv-port", str(name_server_port), "--broker-port", str(broker_port)),
        *("--lake", "none", *options),
    ]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            ready = READY.fullmatch(first_line(process, log))
            assert ready, f"the first line is not the ready line:\n{log.read_text()}"
            yield OurEngine(ready[1], ready[2], store, process)
            if killed:
                return
            process.terminate()
            code = process.wait(STOP_TIMEOUT_S)
            assert code == 0, (
                f"SIGTERM must end the engine with 0, it was {code}:\n{log.read_text()}"
            )
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str], log: Path) -> str:
    """The engine's first line on standard output, without its end of line."""
    assert process.stdout is not None
    said = select.poll()  # `select` knows the first 1024 descriptors of a process only.
    said.register(process.stdout, select.POLLIN)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if said.poll(100):
            return process.stdout.readline().rstrip("\n")
    raise AssertionError(f"no ready line within {START_TIMEOUT_S} s:\n{log.read_text()}")
