"""RocketMQ's own Java clients beside ours: one JVM with senders and a push consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from demo.rocketmq import Installation, configure_log, find_installation
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls
from tests.chaos.record import Record

SOURCES: Final = Path(__file__).parent / "java"
GROUP: Final = "chaos-java"
POLL_MS: Final = 1000
"""How often they ask for routes, which is every 30 s by default."""
READY_S: Final = 60
STOPPED_S: Final = 30


def compiled(folder: Path) -> Installation:
    """What runs the clients, which are compiled below the folder."""
    installation = find_installation()
    configure_log(folder)
    installation.compile(SOURCES.glob("*.java"), folder / "classes")
    return installation


def _account_options(account: Credentials | None) -> Iterable[str]:
    return () if account is None else (f"-Daccount={account.access_key}:{account.secret_key}",)


def _tls_options(folder: Path, tls: ClientTls | None) -> Iterable[str]:
    """Of a JVM that speaks TLS alone."""
    if tls is None:
        return ()
    lines = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": tls.authorities,
        "tls.client.certPath": tls.certificate,
        "tls.client.keyPath": tls.key,
    }
    file = folder / "tls.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return ("-Dtls.enable=true", f"-Dtls.config.file={file}")


class JavaClients:
    """Those of one run."""

    def __init__(self, process: asyncio.subprocess.Process, record: Record) -> None:
        self._process, self._record = process, record
        self._stopped = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            match line.split():
                case [b"try", key]:
                    self._record.try_next(int(key))
                case [b"sent", key, queue_offset, message_id]:
                    where = int(queue_offset), message_id.decode()
                    self._record.acknowledge(int(key), *where, time.monotonic())
                case [b"seen", queue_id, queue_offset, message_id, body]:
                    self._record.consume(
                        GROUP, int(queue_id), int(queue_offset), message_id.decode(), body
                    )
                case [b"stopped"]:
                    self._stopped.set()
                case _:
                    raise AssertionError(f"Java's clients say {line!r}")

    async def stop_sending(self) -> None:
        """The senders stop; the consumer goes on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(STOPPED_S):
            await self._stopped.wait()

    def check(self) -> None:
        """Are they alive, and is read what they say?"""
        assert self._process.returncode is None, f"Java ended with {self._process.returncode}"
        if self._reading.done():
            self._reading.result()

    async def end(self) -> None:
        """End the JVM."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def java_clients(
    folder: Path,
    record: Record,
    namesrvs: Sequence[str],
    *,
    tls: ClientTls | None,
    account: Credentials | None,
    words: Sequence[str],
) -> AsyncIterator[JavaClients]:
    """At work; `words`: topic, broker, pause between sends in ms, keys."""
    folder.mkdir()
    topic, broker, pause_ms, *keys = words
    java, *options = (await asyncio.to_thread(compiled, folder)).program_command(folder, "Clients")
    with (folder / "stderr.txt").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", java, *_tls_options(folder, tls)),
            *_account_options(account),
            *(*options, ";".join(namesrvs), topic, broker, GROUP, str(POLL_MS), pause_ms, *keys),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    async with asyncio.timeout(READY_S):
        line = await process.stdout.readline()
        assert line == b"ready\n", (folder / "stderr.txt").read_text()
    clients = JavaClients(process, record)
    try:
        yield clients
    finally:
        await clients.end()
