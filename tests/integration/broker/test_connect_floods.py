"""Connections opened and dropped as fast as possible, and TLS handshakes that never end: a producer
beside them has every send answered, and what they took is given back. Every party is a process of
its own.

The limits they meet are HANDSHAKES_MAX, CONNECTIONS_MAX and CONNECTIONS_PER_ADDRESS_MAX.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from engine.client import ClientConfig, Producer, ProducerConfig
from engine.foundation.limits import HANDSHAKES_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.message import Message
from engine.runtime import ClientTls, system_runtime
from engine.runtime.tls import CROWD
from tests.certificates import authority
from tests.integration.broker.cluster import eventually
from tests.integration.broker.connect_floods import flooding
from tests.interop.our_engine import OurEngine, our_engine

TOPIC = "beside-floods"
CONNECTIONS = 3000
PATIENCE_S = 90
"""The floods leave the broker little of a busy machine."""
LEFT_MIB_MAX = 32
"""Anonymous memory that may be left of the floods: 1000 handshakes under way take 100 MiB. What
3000 connections leave between things that live on is 9 to 16, and no flood after the first adds to
it."""


def anonymous_mib(engine: OurEngine) -> float:
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return int(kib) / 1024


def sockets(engine: OurEngine) -> int:
    count = 0
    for descriptor in Path(f"/proc/{engine.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed since the folder was read.
            count += str(descriptor.readlink()).startswith("socket:")
    return count


async def send_beside(engine: OurEngine, tls: ClientTls | None, kinds: tuple[str, ...]) -> int:
    """Send for as long as the floods last, never twice; the number of sends, all answered."""
    config = ClientConfig(namesrv_addresses=(engine.name_server,), tls=tls)
    settings = ProducerConfig(retry_times=0, send_timeout_ms=PATIENCE_S * SECOND_MS)
    producer = Producer(system_runtime(), config, "p", producer=settings)
    await producer.start()
    sent = 0
    try:
        await producer.send(Message(TOPIC, b"makes the topic"))
        before = sockets(engine)
        for kind in kinds:
            with flooding(engine.broker, kind, CONNECTIONS) as flood:
                while flood.poll() is None:
                    await producer.send(Message(TOPIC, b"%d" % sent))
                    sent += 1
                assert flood.returncode == 0
            await eventually(
                lambda: _has_returned(engine, before),
                "every connection is gone",
                within_s=PATIENCE_S,
            )
    finally:
        await producer.stop()
    return sent


async def _holds_at_most(engine: OurEngine, mib: float) -> bool:
    return anonymous_mib(engine) <= mib


async def _has_returned(engine: OurEngine, before: int) -> bool:
    return sockets(engine) <= before


async def crowd(engine: OurEngine) -> None:
    """More handshakes at a time than `CROWD`, gone at a time. Memory is given back when the last of
    a crowd goes; a flood meets a slow broker in pieces, of which the last may be none.
    """

    async def is_crowd() -> bool:
        return sockets(engine) >= 2 * CROWD

    host, _, port = engine.broker.rpartition(":")
    with contextlib.ExitStack() as connections:
        for _ in range(2 * CROWD):
            connections.enter_context(socket.create_connection((host, int(port))))
        await eventually(is_crowd, "handshakes are under way at a time", within_s=PATIENCE_S)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_every_send_is_answered_beside_floods_and_what_they_took_is_given_back(
    tmp_path: Path, *, encrypted: bool
) -> None:
    options: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("drop",)
    tls: ClientTls | None = None
    if encrypted:
        ca = authority(tmp_path / "ca")
        certificate, key = ca.issue("server")
        access = tmp_path / "access.toml"
        access.touch(mode=0o600)
        access.write_text(
            f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
            f'authorities = "{ca.certificate}"\n'
        )
        options, kinds = ("--access", str(access)), ("drop", "half-open")
        tls = ClientTls(str(ca.certificate))
    with our_engine(tmp_path / "engine", *options) as engine:
        assert asyncio.run(send_beside(engine, tls, ())) == 0
        before = anonymous_mib(engine)
        assert asyncio.run(send_beside(engine, tls, kinds)) > 0
        if encrypted:
            asyncio.run(crowd(engine))
        asyncio.run(
            eventually(
                lambda: _holds_at_most(engine, before + LEFT_MIB_MAX),
                f"memory is where it was, {before} MiB",
                within_s=PATIENCE_S,
            )
        )
    log = (tmp_path / "engine" / "engine.log").read_text()
    assert "Traceback" not in log
    assert log.count("\n") < CONNECTIONS, "a log is no place for floods"
    if encrypted:
        assert f"{HANDSHAKES_MAX} handshakes are under way" in log
