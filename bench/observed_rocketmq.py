"""Measures what `tidemark observe` costs Apache RocketMQ 5.5 in CPU and send times.

The observer polls each ten seconds.

One client sends a message of 1 KiB each five milliseconds and waits for its answer, to TOPICS
topics in turn; GROUPS groups have consume offsets on each. After a warm-up that is not counted, the
observer runs and rests (SIGSTOP) in turn, for as long each, in PAIRS pairs whose order alternates;
figures are medians.

    python -m bench.observed_rocketmq [SECONDS]
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.analytics.cost import cpu_seconds
from engine.admin import admin_at
from engine.client import ClientConfig, Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageQueue
from engine.runtime import system_runtime
from tests.interop.real_rocketmq import RealRocketMQ, real_rocketmq

TOPICS: Final = 20
GROUPS: Final = 10
BODY: Final = bytes(1024)
PAUSE_S: Final = 0.005
WARM_S: Final = 30.0
SETTLE_S: Final = 2.0
"""After an observer was let go on: what waited for it is read, and not counted."""
PAIRS: Final = 5
SECONDS: Final = 20.0
"""Of each side of a pair: two looks."""


def table_of_sends(folder: Path, seconds: float) -> Table:
    """Both sides, and what the observer adds."""
    sides: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    with real_rocketmq(folder / "rocketmq") as cluster:
        asyncio.run(_prepare(cluster))
        with _observer(cluster, folder) as observer:
            _sends(cluster, min(WARM_S, seconds))
            for pair in range(PAIRS):
                for is_watched in (True, False) if pair % 2 else (False, True):
                    observer.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
                    _sends(cluster, min(SETTLE_S, seconds))
                    sides[is_watched].append(_measured(cluster, seconds))
    title = f"a real RocketMQ, {PAIRS} pairs of {seconds:g} s: {TOPICS} topics, {GROUPS} groups"
    table = Table("", "without observer", "with it", "more", title=title)
    for at, (what, unit) in enumerate(
        (("CPU of the broker, of one core", "%"), ("send, p50", "ms"), ("send, p99", "ms"))
    ):
        alone, seen = (median(one[at] for one in sides[side]) for side in (False, True))
        more = f"{seen - alone:+.2f} {unit}"
        table.add_row(what, f"{alone:.2f} {unit}", f"{seen:.2f} {unit}", more)
    return table


def _measured(cluster: RealRocketMQ, seconds: float) -> tuple[float, float, float]:
    """Percent of a core that the broker takes, and the median and p99 of sends, ms."""
    begun_s, cpu_s = time.monotonic(), cpu_seconds(cluster.broker_process_id)
    took_ms = sorted(_sends(cluster, seconds))
    wall_s = time.monotonic() - begun_s
    share = 100 * (cpu_seconds(cluster.broker_process_id) - cpu_s) / wall_s
    return share, took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]


def _sends(cluster: RealRocketMQ, seconds: float) -> list[float]:
    return asyncio.run(_send(cluster, seconds))


async def _send(cluster: RealRocketMQ, seconds: float) -> list[float]:
    producer = Producer(system_runtime(), _config(cluster), "bench")
    await producer.start()
    took_ms: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        begun_s = time.perf_counter()
        await producer.send(Message(f"watched-{len(took_ms) % TOPICS}", BODY))
        took_ms.append(1000 * (time.perf_counter() - begun_s))
        await asyncio.sleep(PAUSE_S)
    await producer.stop()
    return took_ms


async def _prepare(cluster: RealRocketMQ) -> None:
    """The topics, and groups with offsets on all of them."""
    producer = Producer(system_runtime(), _config(cluster), "bench")
    await producer.start()
    for number in range(TOPICS):
        while True:
            try:
                await producer.send(Message(f"watched-{number}", BODY))
            except TidemarkError:
                continue  # The broker is making the topic.
            break
    await producer.stop()
    async with admin_at(cluster.name_server) as admin:
        for group in range(GROUPS):
            await admin.groups.put(cluster.broker, {"groupName": f"group-{group}"})
            for number in range(TOPICS):
                queue = MessageQueue(f"watched-{number}", "broker-a", 0)
                await admin.offsets.commit(f"group-{group}", queue, 0)


def _config(cluster: RealRocketMQ) -> ClientConfig:
    return ClientConfig(namesrv_addresses=(cluster.name_server,))


@contextmanager
def _observer(cluster: RealRocketMQ, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["observe", "-n", cluster.name_server, "--home", str(folder / "home")]
    command = [str(Path(sys.executable).parent / "tidemark"), *words]
    with (folder / "observer.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--lake", str(folder / "lake")], stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        Console(width=110).print(table_of_sends(Path(folder), seconds))


if __name__ == "__main__":
    main()
