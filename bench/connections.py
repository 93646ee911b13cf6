"""Measures memory and send rate with ten thousand idle connections and a slow reader.

Run by `python -m bench --only connections`.

Three processes: our engine, one that only holds the connections, and this one, which sends. Memory
is that of the first round: what Python has taken once it keeps for the next ones.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from rich.console import Console
from rich.table import Table

from bench.bars import CONNECTIONS_MEMORY, CONNECTIONS_RATE_RATIO, Bar
from bench.brokers import Side, tidemark_side
from engine.client import ClientConfig, Producer
from engine.protocol.message import Message
from engine.runtime import system_runtime
from tests.integration.broker.held_connections import holding, slow_reader

CONNECTIONS = 10_000
BODY = bytes(1024)
IN_FLIGHT = 16
TOPIC = "beside-many"


def send_rate(side: Side, seconds: float) -> float:
    """Messages a second of one producer of ours, with a few sends in flight."""

    async def story() -> float:
        config = ClientConfig(namesrv_addresses=(side.name_server,))
        producer = Producer(system_runtime(), config, "beside")
        await producer.start()
        await producer.send(Message(TOPIC, BODY))
        sent, end = 0, time.monotonic() + seconds

        async def send() -> None:
            nonlocal sent
            while time.monotonic() < end:
                await producer.send(Message(TOPIC, BODY))
                sent += 1

        began = time.monotonic()
        await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
        rate = sent / (time.monotonic() - began)
        await producer.stop()
        return rate

    return asyncio.run(story())


def measure_connections(*, rounds: int, seconds: float, count: int = CONNECTIONS) -> Table:
    """Memory and send rate alone and beside the others, alternating; medians."""
    alone, beside, added, after = [], [], [], 0.0
    with tidemark_side("async") as side:
        assert side.broker is not None
        send_rate(side, seconds)  # Warm.
        for _ in range(rounds):
            alone.append(send_rate(side, seconds))
            before = _memory(side)
            with holding(side.broker, count):
                added.append(_memory(side) - before)
                with slow_reader(side.broker, TOPIC):
                    beside.append(send_rate(side, seconds))
            after = _memory(side)
    table = Table(title=f"{count} idle connections and a slow reader, median of {rounds}")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("bar", justify="right")
    bars: dict[str, Bar] = {"memory they add": CONNECTIONS_MEMORY, "ratio": CONNECTIONS_RATE_RATIO}
    mib, ratio = max(added), statistics.median(beside) / statistics.median(alone)
    for what, value in (
        ("memory they add", f"{mib:.1f} MiB"),
        ("memory of one connection", f"{mib * 1024 / count:.1f} KiB"),
        ("memory when they have gone", f"{after:.1f} MiB"),
        ("sends alone", f"{statistics.median(alone):,.0f} msg/s"),
        ("sends beside them", f"{statistics.median(beside):,.0f} msg/s"),
        ("ratio", f"{ratio:.2f}"),
    ):
        table.add_row(what, value, str(bars.get(what, "")))
    return table


def _memory(side: Side) -> float:
    return side.memory_mib()[1]


if __name__ == "__main__":
    Console(width=140).print(measure_connections(rounds=3, seconds=3))
