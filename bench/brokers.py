"""The brokers under load: ours as a user starts it, and a real Apache RocketMQ for comparison."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

FLUSHES = ("async", "sync")
LOG_FILE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """A running broker: where it is, and its process when it is ours."""

    name_server: str
    process_id: int | None
    broker: str | None = None
    """Where our broker listens; None for the rival, which only name servers know."""

    def memory_mib(self) -> tuple[float, float] | None:
        """Resident and anonymous memory of our process, MiB; None for the rival's two JVMs."""
        if self.process_id is None:
            return None
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        )
        resident, anonymous = (int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon"))
        return resident / 1024, anonymous / 1024

    def cpu_seconds(self) -> float:
        """CPU time our process has taken since its start; 0 for the rival."""
        if self.process_id is None:
            return 0.0
        stat = Path(f"/proc/{self.process_id}/stat").read_text()
        user_ticks, system_ticks = stat.rpartition(") ")[2].split()[11:13]
        return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def tidemark_side(flush: str, *options: str) -> Iterator[Side]:
    """Our name server and broker in one process, without a shipper."""
    settings = ("--set", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}")
    with (
        TemporaryDirectory(prefix="tidemark-bench-") as work,
        our_engine(Path(work), "--flush", flush, *settings, *options) as engine,
    ):
        yield Side(engine.name_server, engine.process.pid, engine.broker)


@contextmanager
def rival_side(flush: str) -> Iterator[Side]:
    """Apache RocketMQ's name server and broker."""
    settings = {
        "flushDiskType": f"{flush.upper()}_FLUSH",
        "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    }
    with (
        TemporaryDirectory(prefix="rocketmq-bench-") as work,
        real_rocketmq(Path(work), settings) as cluster,
    ):
        yield Side(cluster.name_server, None)
