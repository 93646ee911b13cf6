"""The command over TLS, with a name server in its list that is dead: our engine is watched."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.ports import free_port_block
from engine.client import ClientConfig, Producer
from engine.protocol.message import Message
from engine.runtime import system_runtime
from engine.runtime.tls import ClientTls
from tests.certificates import authority
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.interop.our_engine import our_engine


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    """Until the end, which must be a clean one."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=out)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0, log.read_text()


@pytest.mark.timeout(120)
async def test_a_cluster_behind_tls_is_watched_though_the_first_name_server_is_dead(
    tmp_path: Path,
) -> None:
    ca = authority(tmp_path / "ca")
    certificate, key = ca.issue("server")
    access, credentials = tmp_path / "access.toml", tmp_path / "credentials.toml"
    for file in (access, credentials):
        file.touch(mode=0o600)
    access.write_text(
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nauthorities = "{ca.certificate}"\n'
    )
    credentials.write_text(f'[tls]\nauthorities = "{ca.certificate}"\n')
    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"
    with our_engine(tmp_path / "engine", "--access", str(access)) as engine:
        client = ClientConfig(
            namesrv_addresses=(engine.name_server,), tls=ClientTls(str(ca.certificate))
        )
        producer = Producer(system_runtime(), client, "p")
        await producer.start()
        await producer.send(Message("orders", b"x"))
        await producer.stop()
        name_servers = f"127.0.0.1:{free_port_block(1)};{engine.name_server}"
        command = [str(Path(sys.executable).parent / "tidemark"), "observe", "-n", name_servers]
        command += ["--credentials", str(credentials), "--home", str(tmp_path / "home")]
        with running([*command, "--period", "1"], tmp_path / "log"):

            async def is_reported() -> bool:
                return (home / "spool").exists() and any(
                    row["topic"] == "orders" for row in spooled(home, "queue_watermarks")
                )

            await eventually(is_reported, "it is watched", within_s=60)
    reported = [row for row in spooled(home, "lifecycle") if row["kind"] == "OBSERVED"]
    assert reported[0]["name_servers"] == ";".join(sorted(name_servers.split(";")))
    assert reported[0]["address"] == engine.broker
