"""Idle connections and a reader that never reads, beside clients that work: all are served, and a
connection takes the memory that is stated. Every party is a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.client import ClientConfig, Producer
from engine.protocol.message import Message
from engine.runtime import system_runtime
from tests.integration.broker.held_connections import holding, slow_reader
from tests.interop.our_engine import OurEngine, our_engine

TOPIC = "beside-many"
ADDED_MIB_MAX = 300
"""For 10,000 idle connections, 30 KiB each."""


async def send(engine: OurEngine, count: int, body_bytes: int = 100) -> None:
    config = ClientConfig(namesrv_addresses=(engine.name_server,))
    producer = Producer(system_runtime(), config, "p")
    await producer.start()
    for number in range(count):
        await producer.send(Message(TOPIC, b"%0*d" % (body_bytes, number)))
    await producer.stop()


def anonymous_mib(engine: OurEngine) -> float:
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return int(kib) / 1024


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)], ids=lambda count: f"{count}"
)
async def test_others_are_served_beside_idle_connections_and_a_slow_reader(
    tmp_path: Path, count: int
) -> None:
    with our_engine(tmp_path / "engine") as engine:
        await send(engine, 200, body_bytes=20_000)
        before = anonymous_mib(engine)
        with holding(engine.broker, count):
            added = anonymous_mib(engine) - before
            assert added <= ADDED_MIB_MAX * count / 10_000, f"{added} MiB for {count}"
            with slow_reader(engine.broker, TOPIC):
                await send(engine, 500)
        await send(engine, 10)
    log = (tmp_path / "engine" / "engine.log").read_text()
    assert "Traceback" not in log
    assert "open already" not in log
