"""Starts the brokers to benchmark: our own and a real Apache RocketMQ."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

FLUSHES = ("async", "sync")
LOG_FILE_BYTES = 256 << 20
NO_LAKE = "none"
RIVAL_SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    # The interop tests ask about transactions every second or two, and evaluate SQL92 selectors:
    # here the rival has no work that a fresh installation does not have.
    "transactionTimeOut": "6000",
    "transactionOpBatchInterval": "3000",
    "transactionCheckInterval": "30000",
    "enablePropertyFilter": "false",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A running broker: where it is, and its process."""

    name_server: str
    process_id: int
    """Ours is name server and broker in one; the rival's is its broker alone."""
    broker: str | None = None
    """Where our broker listens; None for the rival, which only name servers know."""
    store: Path | None = None
    """The folder of our broker's store."""

    def memory_mib(self) -> tuple[float, float]:
        """Resident and anonymous memory of the process, MiB."""
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        )
        resident, anonymous = (int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon"))
        return resident / 1024, anonymous / 1024

    def cpu_seconds(self) -> float:
        """CPU time the process has taken since its start, without its shipper."""
        return cpu_seconds(self.process_id)

    def shipper_cpu_seconds(self) -> float:
        """CPU time our shipper has taken since its start; 0 without one."""
        return sum(map(cpu_seconds, self._shippers()))

    def let_ship(self, *, go_on: bool) -> None:
        """Hold our shipper, or let it go on; without one, nothing."""
        for process_id in self._shippers():
            os.kill(process_id, signal.SIGCONT if go_on else signal.SIGSTOP)

    def open_files(self) -> int:
        """Descriptors the process has open."""
        return sum(1 for _ in Path(f"/proc/{self.process_id}/fd").iterdir())

    def forget_log(self) -> None:
        """Take out of the machine's memory what our commit log holds and nobody has mapped."""
        for path in [] if self.store is None else (self.store / "commitlog").iterdir():
            with path.open("rb+") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _shippers(self) -> list[int]:
        """The process's children: none, or our shipper."""
        tasks = Path(f"/proc/{self.process_id}/task").glob("*/children")
        return [int(child) for children in tasks for child in children.read_text().split()]


def cpu_seconds(process_id: int) -> float:
    """CPU time of a process so far, which a busy machine changes least."""
    stat = Path(f"/proc/{process_id}/stat").read_text()
    return sum(map(int, stat.rpartition(") ")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def tidemark_side(flush: str, *options: str, ships: bool = False) -> Iterator[Side]:
    """Our name server and broker in one process; `ships`: with a lake, and so with a shipper."""
    settings = ("--flush", flush, "--set", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}")
    with (
        TemporaryDirectory(prefix="tidemark-bench-") as work,
        our_engine(
            Path(work), *settings, "--lake", f"{work}/lake" if ships else NO_LAKE, *options
        ) as engine,
    ):
        side = Side(engine.name_server, engine.process.pid, engine.broker, engine.store)
        try:
            yield side
        finally:
            side.let_ship(go_on=True)  # A held one could not be stopped.


@contextmanager
def rival_side(flush: str) -> Iterator[Side]:
    """Apache RocketMQ's name server and broker, with the settings of a fresh installation."""
    settings = RIVAL_SETTINGS | {"flushDiskType": f"{flush.upper()}_FLUSH"}
    with (
        TemporaryDirectory(prefix="rocketmq-bench-") as work,
        real_rocketmq(Path(work), settings) as cluster,
    ):
        yield Side(cluster.name_server, cluster.broker_process_id)
